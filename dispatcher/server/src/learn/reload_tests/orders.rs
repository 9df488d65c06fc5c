//! What operators order: pins, rollbacks, another look.

use super::*;

#[test]
fn an_operator_pins_unpins_and_rolls_back() {
    let folder = tempfile::tempdir().unwrap();
    let (mut loader, mut chain, shelf) = shelf(folder.path());
    publish(folder.path());
    loader.look();
    copy(folder.path(), 1, 2);
    loader.look();
    assert_eq!(served(&mut chain), 2);
    order(&mut loader, &shelf, Order::Rollback).unwrap();
    assert_eq!((served(&mut chain), shelf.pinned()), (1, Some(1)));
    copy(folder.path(), 1, 3);
    loader.look();
    assert_eq!(served(&mut chain), 1, "what is published waits while a version is pinned");
    assert_eq!(order(&mut loader, &shelf, Order::Rollback), Err(OrderError::NoPredecessor));
    assert_eq!(order(&mut loader, &shelf, Order::Pin(9)), Err(OrderError::NoBundle(9)));
    order(&mut loader, &shelf, Order::Unpin).unwrap();
    assert_eq!((served(&mut chain), shelf.pinned()), (3, None));
    order(&mut loader, &shelf, Order::Pin(2)).unwrap();
    assert_eq!(served(&mut chain), 2);
}

/// Makes a bundle one that is refused, and says what undoes that.
fn spoil(folder: &Path, version: u64) -> impl Fn() + use<> {
    let model = folder.join("bundles").join(bundle_name(version)).join(MODEL_FILE);
    let sound = fs::read(&model).unwrap();
    fs::write(&model, "spoiled").unwrap();
    move || fs::write(&model, &sound).unwrap()
}

#[test]
fn a_rollback_passes_over_what_cannot_serve() {
    let folder = tempfile::tempdir().unwrap();
    let (mut loader, mut chain, shelf) = shelf(folder.path());
    publish(folder.path());
    (2..=4).for_each(|version| copy(folder.path(), 1, version));
    loader.look();
    assert_eq!(served(&mut chain), 4);
    let restores = [3, 2].map(|version| spoil(folder.path(), version));
    order(&mut loader, &shelf, Order::Rollback).unwrap();
    assert_eq!((served(&mut chain), shelf.pinned()), (1, Some(1)));
    order(&mut loader, &shelf, Order::Pin(4)).unwrap();
    restores.into_iter().skip(1).for_each(|restore| restore());
    order(&mut loader, &shelf, Order::Rollback).unwrap();
    assert_eq!((served(&mut chain), shelf.pinned()), (2, Some(2)));
    let _restore = spoil(folder.path(), 1);
    let refused = order(&mut loader, &shelf, Order::Rollback);
    assert!(matches!(refused, Err(OrderError::Refused { version: 1, .. })), "{refused:?}");
    assert_eq!((served(&mut chain), shelf.pinned()), (2, Some(2)));
}

#[test]
fn a_reload_looks_again_at_what_was_refused_whatever_serves() {
    let (folder, mut loader, shelf) = serving(&[3]);
    let restore = spoil(folder.path(), 2);
    order(&mut loader, &shelf, Order::Pin(2)).unwrap_err();
    let refused = || shelf.bundles()[1].refused.is_some();
    order(&mut loader, &shelf, Order::Reload).unwrap();
    assert!(refused(), "it is as it was");
    restore();
    assert!(refused(), "nobody has looked");
    order(&mut loader, &shelf, Order::Reload).unwrap();
    assert!(!refused());
}

#[test]
fn a_pin_holds_in_the_next_process_and_for_all_that_take_bundles_from_the_folder() {
    let folder = tempfile::tempdir().unwrap();
    let (mut loader, mut chain, own) = shelf(folder.path());
    publish(folder.path());
    copy(folder.path(), 1, 2);
    loader.look();
    let (mut beside, mut other, others) = shelf(folder.path());
    beside.look();
    order(&mut loader, &own, Order::Rollback).unwrap();
    beside.look();
    let (mut anew, mut next, nexts) = shelf(folder.path());
    anew.look();
    assert_eq!([&mut chain, &mut other, &mut next].map(served), [1; 3]);
    assert_eq!([&own, &others, &nexts].map(Shelf::pinned), [Some(1); 3]);
    // Whoever takes it off takes it off for all.
    order(&mut anew, &nexts, Order::Unpin).unwrap();
    loader.look();
    beside.look();
    assert_eq!([&mut chain, &mut other, &mut next].map(served), [2; 3]);
    assert_eq!([&own, &others, &nexts].map(Shelf::pinned), [None; 3]);
}

#[test]
fn a_pin_that_cannot_serve_leaves_what_serves_until_it_can() {
    let folder = tempfile::tempdir().unwrap();
    let (mut loader, mut chain, shelf) = shelf(folder.path());
    publish(folder.path());
    copy(folder.path(), 1, 2);
    loader.look();
    let (pin, bundles) = (folder.path().join("bundles/pinned"), folder.path().join("bundles"));
    for said in ["v000000000007\n", "nothing", ""] {
        fs::write(&pin, said).unwrap();
        loader.look();
        copy(folder.path(), 1, 3);
        loader.look();
        assert_eq!((served(&mut chain), shelf.pinned()), (2, None), "{said:?}");
        let why = shelf.pin_failing().unwrap();
        assert_eq!(why.contains("there is no bundle v7"), said.starts_with('v'), "{why}");
        assert_eq!(loader.reload.tally.reason.lock().as_deref(), Some(why.as_str()));
    }
    fs::write(&pin, "v000000000007").unwrap();
    loader.look();
    copy(folder.path(), 1, 7);
    fs::write(bundles.join(CURRENT_FILE), bundle_name(2)).unwrap();
    loader.look();
    assert_eq!((served(&mut chain), shelf.pinned()), (7, Some(7)));
    assert_eq!((shelf.pin_failing(), loader.reload.tally.reason.lock().as_deref()), (None, None));
    // What is pinned serves on when its files go.
    fs::remove_dir_all(bundles.join(bundle_name(7))).unwrap();
    loader.look();
    assert_eq!((served(&mut chain), shelf.pinned()), (7, Some(7)));
    assert!(loader.reload.tally.missing.load(Relaxed));
    fs::remove_file(&pin).unwrap();
    loader.look();
    assert_eq!((served(&mut chain), shelf.pinned()), (2, None));
}

/// Ways in which what is pinned cannot serve: by what is done to the folder of the bundles, where version 1 is pinned.
const SPOILERS: [fn(&Path); 5] = [
    |bundles| fs::write(bundles.join(PINNED_FILE), "").unwrap(),
    |bundles| fs::write(bundles.join(PINNED_FILE), "half of a na").unwrap(),
    |bundles| {
        fs::remove_file(bundles.join(PINNED_FILE)).unwrap();
        fs::create_dir(bundles.join(PINNED_FILE)).unwrap();
    },
    |bundles| fs::remove_dir_all(bundles.join(bundle_name(1))).unwrap(),
    |bundles| fs::write(bundles.join(bundle_name(1)).join(MODEL_FILE), "spoiled").unwrap(),
];

#[test]
fn after_a_restart_the_prior_serves_and_not_what_an_operator_went_away_from() {
    for spoil in SPOILERS {
        let folder = tempfile::tempdir().unwrap();
        let bundles = folder.path().join("bundles");
        publish(folder.path());
        copy(folder.path(), 1, 2);
        fs::write(bundles.join(PINNED_FILE), bundle_name(1)).unwrap();
        spoil(&bundles);
        let (mut loader, mut chain, shelf) = shelf(folder.path());
        loader.look();
        loader.look();
        assert_eq!((served(&mut chain), shelf.pinned()), (0, None));
        let (why, said) = (shelf.pin_failing().unwrap(), chain.status().fallback_reason.unwrap());
        println!("{said}: {why}");
        assert!(said.contains("pin"), "{said}");
        assert!(loader.reload.tally.refused.load(Relaxed) < 2, "what fails is not tried again");
        order(&mut loader, &shelf, Order::Pin(2)).unwrap();
        assert_eq!((served(&mut chain), shelf.pinned()), (2, Some(2)));
        // Nothing can be written over a folder: then the pin is this process's and the file still cannot be read.
        let is_written = !bundles.join(PINNED_FILE).is_dir();
        assert_eq!(shelf.pin_failing().is_none(), is_written);
    }
}

#[test]
fn a_pin_that_fails_can_be_taken_off_and_is_tried_again_when_an_operator_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let (mut loader, mut chain, shelf) = shelf(folder.path());
    publish(folder.path());
    copy(folder.path(), 1, 2);
    let (pin, current) =
        (folder.path().join("bundles/pinned"), folder.path().join("bundles/current"));
    fs::write(&pin, "nothing").unwrap();
    fs::remove_file(&current).unwrap();
    let said = |chain: &mut Chain| (served(chain), chain.status().fallback_reason.unwrap());
    loader.look();
    assert_eq!(said(&mut chain), (0, "the pin cannot be read".to_owned()));
    fs::remove_file(&pin).unwrap();
    loader.look();
    assert_eq!(said(&mut chain), (0, "no bundle yet".to_owned()));
    fs::write(&pin, "nothing").unwrap();
    fs::write(&current, bundle_name(2)).unwrap();
    loader.look();
    order(&mut loader, &shelf, Order::Reload).unwrap();
    assert!(shelf.pin_failing().is_some());
    assert_eq!(served(&mut chain), 0);
    order(&mut loader, &shelf, Order::Unpin).unwrap();
    assert_eq!((served(&mut chain), shelf.pin_failing()), (2, None));
    assert_eq!(loader.reload.tally.reason.lock().as_deref(), None);
}

#[test]
fn where_the_folder_cannot_be_written_a_pin_holds_as_long_as_the_process() {
    let folder = tempfile::tempdir().unwrap();
    let (mut loader, mut chain, shelf) = shelf(folder.path());
    publish(folder.path());
    copy(folder.path(), 1, 2);
    loader.look();
    // A folder of that name stands in the way for any user.
    let pin = folder.path().join("bundles/pinned");
    fs::create_dir(&pin).unwrap();
    order(&mut loader, &shelf, Order::Pin(1)).unwrap();
    loader.look();
    assert_eq!((served(&mut chain), shelf.pinned()), (1, Some(1)));
    let stays = order(&mut loader, &shelf, Order::Unpin);
    assert!(matches!(stays, Err(OrderError::PinStays(_))), "{stays:?}");
    fs::remove_dir(&pin).unwrap();
    order(&mut loader, &shelf, Order::Unpin).unwrap();
    assert_eq!((served(&mut chain), shelf.pinned()), (2, None));
}

#[test]
fn the_version_before_is_the_one_before_what_a_pool_went_back_to() {
    for (serves, pinned) in [(&[3, 2][..], 1), (&[2, 0], 1), (&[3, 3], 2), (&[0], 2)] {
        let (_folder, mut loader, shelf) = serving(serves);
        order(&mut loader, &shelf, Order::Rollback).unwrap();
        assert_eq!(shelf.pinned(), Some(pinned), "{serves:?}");
    }
    let (_folder, mut loader, shelf) = serving(&[3]);
    order(&mut loader, &shelf, Order::Rollback).unwrap();
    order(&mut loader, &shelf, Order::Rollback).unwrap();
    assert_eq!(shelf.pinned(), Some(1), "the pool says that it serves 3 all the same");
}
