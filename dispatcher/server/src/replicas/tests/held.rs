//! What an operator holds.

use super::*;

#[tokio::test]
async fn what_an_operator_holds_is_held_by_whoever_decides_next() {
    let [mut elder, middle, younger] = Member::several().await;
    for member in [&elder, &middle, &younger] {
        member.hub.add_pod(pods());
        member.hub.add_pod(pod(2, "10.0.0.2:8000"));
    }
    elder.hub.pause(Gate::Band(Band(0)));
    elder.hub.pause(Gate::Pool);
    elder.hub.ask_pod("pod-2", Ask::Drain).unwrap();
    let held = elder.hub.held();
    assert_eq!((held.gates.len(), held.pods.len()), (2, 1));
    until("all hold it", || middle.hub.held() == held && younger.hub.held() == held).await;
    elder.hub.resume(Gate::Pool);
    elder.hub.pause(Gate::Band(Band(0)));
    until("the pool goes on, and the band is held", || {
        let only = |member: &Member| member.hub.held().gates.iter().eq(["b0"]);
        only(&middle) && only(&younger)
    })
    .await;
    elder.vanish();
    middle.follows(None).await;
    let mut ticket = younger.admit(1);
    until("it waits where it is decided now", || middle.waiting() == 1).await;
    middle.hub.resume(Gate::Pool);
    let lease = ticket.verdict().await.unwrap();
    assert_eq!(&*lease.pod().name, "pod-1", "the other one is being drained");
    lease.end(EndKind::Complete, None, None);
    // What it heard last of a decider before that decided may be a beat old.
    until("and here nothing is paused any more, and the pod is drained", || {
        let phase = younger.hub.pod_seen("pod-2").unwrap().detail.view.phase;
        younger.hub.held().gates.is_empty() && phase == Phase::Draining
    })
    .await;
}

#[tokio::test]
async fn what_an_operator_did_meanwhile_is_not_undone_by_one_that_comes_back() {
    let [mut elder, younger] = Member::several().await;
    for member in [&elder, &younger] {
        member.hub.add_pod(pods());
    }
    elder.hub.pause(Gate::Band(Band(1)));
    until("both hold it", || younger.hub.held() == elder.hub.held()).await;
    elder.vanish();
    younger.follows(None).await;
    younger.hub.resume(Gate::Band(Band(1)));
    younger.hub.pause(Gate::Band(Band(0)));
    younger.hub.ask_pod("pod-1", Ask::Drain).unwrap();
    let held = younger.hub.held();
    elder.appear();
    younger.follows(Some(elder.config.listen)).await;
    until("the elder holds what was asked meanwhile", || elder.hub.held() == held).await;
    assert_eq!(younger.hub.held(), held);
    // And whoever learns of a pod later asks the same of it.
    elder.hub.ask_pod("pod-1", Ask::Cordon).unwrap();
    until("it is told", || younger.hub.held() == elder.hub.held()).await;
    elder.hub.add_pod(pod(2, "10.0.0.2:8000"));
    elder.hub.ask_pod("pod-2", Ask::Cordon).unwrap();
    until("it is told", || younger.hub.held() == elder.hub.held()).await;
    younger.hub.add_pod(pod(7, "10.0.0.2:8000"));
    assert_eq!(younger.hub.pod_seen("pod-7").unwrap().detail.view.phase, Phase::Cordoned);
}
