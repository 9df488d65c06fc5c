//! Places for connections: how many there are, and who gives way.

use super::*;

/// A plane for so many connections, whose requests are held.
fn start_bounded(max_connections: usize, threads: usize) -> (Plane, Watch, Arc<Room>) {
    let room = Room::of(max_connections);
    let (gate, watch) = gate();
    let config = PlaneConfig { room: room.clone(), ..config(threads) };
    let plane = Plane::start((config, Memory::of(0)), misread, move |_| {
        let gate = gate.clone();
        service_fn(move |request| gate.clone().pass(request))
    });
    (plane.unwrap(), watch, room)
}

#[tokio::test]
async fn connections_beyond_the_bound_wait_for_their_turn() {
    const MOST: usize = 24;
    for threads in [1, 8] {
        let (plane, mut watch, _) = start_bounded(MOST, threads);
        let mut open = Vec::new();
        for _ in 0..MOST {
            let mut client = connect(&plane).await;
            client.write_all(GET).await.unwrap();
            soon(watch.arrived.recv()).await.unwrap();
            open.push(client);
        }
        let mut further = connect(&plane).await;
        further.write_all(GET).await.unwrap();
        assert!(watch.arrived.try_recv().is_err(), "no place is left");
        drop(open.pop());
        soon(watch.arrived.recv()).await.unwrap();
    }
}

/// Ends when so many have a place: of several threads each accepts when it comes to it, and not who came first does first.
async fn have_places(room: &Room, connections: usize) {
    let all = |Census { asking, idle, silent }| asking + idle + silent;
    soon(async {
        while all(room.census()) < connections {
            yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn who_asks_nothing_gives_way_to_who_comes_when_no_place_is_left() {
    for threads in [1, 4] {
        let (plane, mut watch, room) = start_bounded(4, threads);
        let mut busy = connect(&plane).await;
        let mut asked = connect(&plane).await;
        asked.write_all(GET).await.unwrap();
        soon(watch.arrived.recv()).await.unwrap();
        watch.release.notify_one();
        soon(watch.ended.recv()).await.unwrap();
        busy.write_all(GET).await.unwrap();
        soon(watch.arrived.recv()).await.unwrap();
        let silent = connect(&plane).await;
        let mut half = connect(&plane).await;
        half.write_all(b"GET / HT").await.unwrap();
        // Whoever of these had none yet would find the others' as a newcomer does.
        have_places(&room, 4).await;
        let mut newcomers = Vec::new();
        for _ in 0..2 {
            let mut newcomer = connect(&plane).await;
            newcomer.write_all(GET).await.unwrap();
            soon(watch.arrived.recv()).await.unwrap();
            newcomers.push(newcomer);
        }
        for mut gone in [silent, half] {
            assert_eq!(soon(gone.read(&mut [0])).await.unwrap(), 0, "it has left");
        }
        assert_eq!(room.census(), Census { asking: 3, idle: 1, silent: 0 });
        asked.write_all(GET).await.unwrap();
        soon(watch.arrived.recv()).await.unwrap();
        assert!(watch.ended.try_recv().is_err(), "who has a request keeps its place");
        drop((busy, newcomers));
    }
}

#[tokio::test]
async fn a_place_goes_to_whichever_thread_has_somebody_waiting() {
    let plane = start_echo(PlaneConfig { room: Room::of(1), ..config(8) });
    // Each is let in when the one before has left, and most of them by a thread that had none.
    let mut clients = JoinSet::new();
    for _ in 0..24 {
        let mut client = connect(&plane).await;
        client.write_all(GET).await.unwrap();
        clients.spawn(async move { client.read_u8().await });
    }
    while let Some(answered) = soon(clients.join_next()).await {
        answered.unwrap().unwrap();
    }
}
