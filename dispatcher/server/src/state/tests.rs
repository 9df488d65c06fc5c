//! What one process leaves and the next goes on from, without one.

use weir_core::{
    Band, Gate, PodId,
    prefix::{Cached, Part},
};

use super::*;
use crate::{
    fleet::{Ask, Pod},
    hub::fixture::{Fixture, pod},
    worker::Worker,
};

const EVERY: Duration = Duration::from_secs(60);

fn open(dir: &std::path::Path, hub: &Arc<Hub>) -> (Keeper, Arc<StateTally>) {
    let tally = Arc::<StateTally>::default();
    let config = StateConfig { dir: dir.to_owned(), every: EVERY };
    (Keeper::open(config, std::slice::from_ref(hub), tally.clone()), tally)
}

/// Writes what there is, as at the end of a process.
async fn leave(keeper: Keeper) {
    let worker = Worker::spawn_async("test-state", move |stop| keeper.run(stop)).unwrap();
    let joined = tokio::task::spawn_blocking(move || worker.join(Duration::from_secs(20)));
    assert!(joined.await.unwrap());
}

const fn began(at_s: f64) -> Witness {
    Witness { started_at_s: Some(at_s), generated: None }
}

const fn counts(generated: u64) -> Witness {
    Witness { started_at_s: None, generated: Some(generated) }
}

fn says(number: u32, witness: Witness) -> Arc<Pod> {
    let pod = pod(number, format!("127.0.0.1:{number}"));
    *pod.witness.lock() = witness;
    pod
}

fn names(number: u64) -> Cached {
    Cached(vec![Part::Prompt((0..9).map(|at| 100 * number + at).collect())])
}

/// A pool of which something is known.
fn known() -> Arc<Hub> {
    let (hub, _) = Fixture::default().hub();
    for number in 1..=5 {
        let pod = says(number, if number < 4 { began(1000.0) } else { counts(700) });
        hub.add_pod(pod.clone());
        hub.recall_on(pod.id, names(number.into()));
    }
    let silent = pod(6, "127.0.0.1:6");
    hub.add_pod(silent.clone());
    hub.recall_on(silent.id, names(6));
    hub.recall(weir_core::Learned { held: 0.33, ..hub.learned() });
    hub.pause(Gate::Band(Band(0)));
    hub.ask_pod(&hub.pods()[1].name, Ask::Cordon).unwrap();
    hub
}

#[tokio::test]
async fn the_next_process_goes_on_from_what_was_known() {
    let dir = tempfile::tempdir().unwrap();
    let first = known();
    let (keeper, tally) = open(dir.path(), &first);
    assert_eq!(tally.age(1), None);
    leave(keeper).await;
    assert!(tally.age(first.clock().unix_ms()).is_some_and(|age| age < EVERY));
    assert!(tally.bytes.load(Relaxed) > 200);

    let (next, _) = Fixture::default().hub();
    let (keeper, tally) = open(dir.path(), &next);
    assert_eq!(next.learned().held, 0.33);
    assert_eq!(next.held(), first.held());
    assert_eq!(tally.unusable.load(Relaxed), 0);
    // The first is the same and the fourth may be, the second and the fifth are others, the third does not come.
    let said = [(1, began(1000.4)), (2, began(1002.0)), (4, counts(700)), (5, counts(699))];
    for (number, witness) in said {
        let pod = Pod::new(PodId(10 + number), "p".into(), format!("127.0.0.1:{number}"), 0);
        *pod.witness.lock() = witness;
        next.add_pod(Arc::new(pod));
        next.recall_cached(&next.pods().last().cloned().unwrap(), &witness);
    }
    let on = |number: u32| next.cached_on(PodId(number));
    assert_eq!((on(11), on(14)), (names(1), names(4)));
    assert_eq!((on(12), on(15)), (Cached::default(), Cached::default()));
    assert_eq!(next.pods_recalled(), 2);
    assert_eq!(next.pods()[1].cordon.asked().0, Ask::Cordon);
    // What nobody has asked for yet is left to the one after.
    leave(keeper).await;
    let (last, _) = Fixture::default().hub();
    drop(open(dir.path(), &last));
    let mut expected: Vec<_> = last.still_expected().into_iter().map(|pod| pod.address).collect();
    expected.sort();
    assert_eq!(expected, [1, 2, 3, 4, 5].map(|number| format!("127.0.0.1:{number}")));
}

#[tokio::test]
async fn what_pods_had_cached_long_ago_is_not_believed() {
    let dir = tempfile::tempdir().unwrap();
    let hub = known();
    let (keeper, _) = open(dir.path(), &hub);
    leave(keeper).await;
    let model = hub.model().to_string();
    let kept = read(dir.path(), &model).unwrap().unwrap();
    let old_ms = kept.written_ms - MOST_AGE.as_millis() as u64 - 1;
    let old = bytes(&Kept { written_ms: old_ms, ..kept }).unwrap();
    write(dir.path(), &model, &old).unwrap();
    let (next, _) = Fixture::default().hub();
    drop(open(dir.path(), &next));
    assert_eq!(next.still_expected(), []);
    assert_eq!((next.learned().held, next.held()), (0.33, hub.held()));
}

#[tokio::test]
async fn a_file_that_cannot_be_used_is_counted_and_costs_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let (hub, _) = Fixture::default().hub();
    let cold = hub.learned();
    std::fs::write(file::path(dir.path(), hub.model()), b"weir state of some kind").unwrap();
    let (keeper, tally) = open(dir.path(), &hub);
    assert_eq!((tally.unusable.load(Relaxed), hub.learned()), (1, cold));
    leave(keeper).await;
    assert!(read(dir.path(), hub.model()).unwrap().is_some(), "it is replaced");
}

#[tokio::test]
async fn another_dispatchers_folder_is_read_and_not_written() {
    let dir = tempfile::tempdir().unwrap();
    let hub = known();
    let (keeper, _) = open(dir.path(), &hub);
    leave(keeper).await;
    let mut other = Lock::default();
    assert!(other.take(dir.path()).unwrap());
    let before = std::fs::read(file::path(dir.path(), hub.model())).unwrap();
    let (next, _) = Fixture::default().hub();
    let (keeper, tally) = open(dir.path(), &next);
    assert_eq!(next.learned().held, 0.33);
    leave(keeper).await;
    assert_eq!(tally.unwritten.load(Relaxed), 0, "nothing has failed");
    assert_eq!(tally.age(1), None);
    assert_eq!(std::fs::read(file::path(dir.path(), hub.model())).unwrap(), before);
}

#[tokio::test]
async fn what_an_operator_changes_is_written_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let (hub, _) = Fixture::default().hub();
    let (keeper, tally) = open(dir.path(), &hub);
    let worker = Worker::spawn_async("test-state", move |stop| keeper.run(stop)).unwrap();
    hub.pause(Gate::Pool);
    // Long before it is written anyway; the test's own time limit ends this.
    while tally.age(1).is_none() {
        tokio::task::yield_now().await;
    }
    let kept = read(dir.path(), hub.model()).unwrap().unwrap();
    assert_eq!(kept.held, hub.held());
    drop(worker);
}

#[test]
fn a_process_is_known_again_by_its_start_or_else_by_a_count_that_has_not_fallen() {
    let goes_on = |now: Witness, before: Witness| now.goes_on_from(&before);
    assert!(goes_on(began(1000.9), began(1000.0)) && !goes_on(began(1001.1), began(1000.0)));
    assert!(goes_on(counts(8), counts(7)) && !goes_on(counts(6), counts(7)));
    assert!(!goes_on(counts(7), counts(0)), "it had done nothing");
    assert!(!goes_on(counts(7), began(1000.0)) && !goes_on(began(1000.0), counts(7)));
    let both = |at_s| Witness { started_at_s: Some(at_s), generated: Some(5) };
    assert!(!goes_on(both(2000.0), both(1000.0)), "it says so");
    assert!(!goes_on(Witness::default(), Witness::default()));
}
