//! Ways that are narrow, or do not lead everywhere.

use super::*;

#[tokio::test]
async fn who_does_not_reach_the_one_that_decides_is_seen_to_be_decided_for_by_another() {
    let all = addresses::<3>();
    let [_elder, middle] = [0, 1].map(|place| Member::start(place, &all[..2], SECRET));
    middle.follows(Some(all[0])).await;
    let far = Member::start_among(2, all[2], &all[1..], SECRET);
    far.follows(Some(all[1])).await;
    middle.hub.add_pod(pods());
    far.hub.add_pod(pods());
    let elsewhere = || {
        let scrape = Scrape { running: 5, ..Scrape::default() };
        middle.hub.post(Event::Scraped(PodId(1), scrape));
        middle.hub.snapshot().pods[0].elsewhere
    };
    assert_eq!((middle.circle.view().decides, elsewhere()), (false, 0));
    let mut ticket = far.admit(1);
    let lease = ticket.verdict().await.unwrap();
    assert_eq!(middle.circle.view().lead, Some(all[0].to_string()));
    assert!(middle.circle.view().decides, "for one that asks it");
    assert!(elsewhere() > 0, "the first in rank has sent something that is in no books here");
    lease.end(EndKind::Complete, None, None);
    until("it decides for nobody any more", || !middle.circle.view().decides).await;
    assert!(!far.circle.view().decides);
}
