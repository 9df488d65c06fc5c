//! A plane that is spoken to by TLS.

use super::*;
use crate::tls::tests::{Authority, Client};

fn sealed(limits: Limits) -> (Plane, Client) {
    let authority = Authority::new();
    let identity = Some(authority.identity("weir"));
    let plane = start_done(PlaneConfig { identity, limits, ..config(1) });
    (plane, authority.client("weir"))
}

#[tokio::test]
async fn it_serves_drains_and_stops_as_any() {
    let (plane, client) = sealed(limits());
    let mut kept = client.to(plane.address()).await.unwrap();
    for _ in 0..3 {
        assert!(!ask(&mut kept).await.contains("connection: close"));
    }
    plane.drain();
    assert!(ask(&mut kept).await.contains("\r\nconnection: close\r\n"));
    assert_eq!(soon(kept.read(&mut [0])).await.unwrap(), 0, "it is said to be the end");
    let mut idle = client.to(plane.address()).await.unwrap();
    let greeting = connect(&plane).await;
    plane.stop();
    assert_eq!(soon(idle.read(&mut [0])).await.unwrap(), 0);
    assert_eq!(read_to_end(greeting).await, "", "nobody waits for a handshake");
    soon(plane.finished()).await;
}

#[tokio::test]
async fn who_never_ends_its_handshake_has_the_patience_of_one_that_asks_nothing() {
    let idle_timeout = Duration::from_millis(50);
    let (plane, client) = sealed(Limits { idle_timeout, ..limits() });
    let silent = connect(&plane).await;
    let mut half = connect(&plane).await;
    // A record of a handshake, of which the rest never comes.
    half.write_all(&[22, 3, 1, 2, 0, 1]).await.unwrap();
    for gone in [silent, half] {
        assert_eq!(read_to_end(gone).await, "");
    }
    ask(&mut client.to(plane.address()).await.unwrap()).await;
}

#[tokio::test]
async fn a_handshake_gives_way_to_who_comes_when_no_place_is_left() {
    let authority = Authority::new();
    let identity = Some(authority.identity("weir"));
    let plane = start_done(PlaneConfig { identity, room: Room::of(1), ..config(1) });
    let greeting = connect(&plane).await;
    let mut newcomer = soon(authority.client("weir").to(plane.address())).await.unwrap();
    ask(&mut newcomer).await;
    assert_eq!(read_to_end(greeting).await, "", "it has left");
}
