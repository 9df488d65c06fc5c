//! The body behind a real HTTP server: what a client's socket sees.

use std::{convert::Infallible, net::SocketAddr, sync::Arc};

use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use super::scene::{DONE, END, FakePod, STREAM_HEAD, Scene, TOKEN, chunk};
use crate::hub::fixture::{assert_settled, until};

/// Serves every request on every connection through the scene, as a stream.
async fn front(scene: &Arc<Scene>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let scene = scene.clone();
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let scene = scene.clone();
            let service = service_fn(move |_| {
                let scene = scene.clone();
                async move { Ok::<_, Infallible>(scene.serve(scene.call(1)).await.unwrap()) }
            });
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(socket), service));
        }
    });
    address
}

async fn ask(address: SocketAddr) -> TcpStream {
    let mut client = TcpStream::connect(address).await.unwrap();
    client.write_all(b"GET / HTTP/1.1\r\nhost: weir\r\n\r\n").await.unwrap();
    client
}

#[tokio::test]
async fn a_broken_stream_reaches_the_client_with_its_error_and_without_an_end() {
    let failing = FakePod::new(|mut line, _| async move {
        line.hear().await;
        line.say(&format!("{STREAM_HEAD}{}", chunk(TOKEN))).await;
    })
    .await;
    let scene = Arc::new(Scene::new(&[&failing.authority]));
    let mut client = ask(front(&scene).await).await;
    let mut heard = Vec::new();
    // Ends when the server hangs up, though the connection was to be kept.
    let _ = client.read_to_end(&mut heard).await;
    let heard = String::from_utf8(heard).unwrap();
    assert!(heard.contains("\"code\":\"upstream_lost\""), "{heard}");
    assert!(!heard.ends_with(END), "{heard}");
    assert_settled(&scene.hub);
}

#[tokio::test]
async fn a_stream_reaches_the_client_chunked_and_ended() {
    let parts = [TOKEN, DONE].map(chunk).concat();
    let pod = FakePod::saying(format!("{STREAM_HEAD}{parts}{END}")).await;
    let scene = Arc::new(Scene::new(&[&pod.authority]));
    let mut client = ask(front(&scene).await).await;
    let mut heard = String::new();
    while !heard.ends_with(END) {
        let mut part = [0; 4096];
        let read = client.read(&mut part).await.unwrap();
        assert!(read > 0, "{heard}");
        heard.push_str(std::str::from_utf8(&part[..read]).unwrap());
    }
    assert!(heard.contains("transfer-encoding: chunked\r\n"), "{heard}");
    assert_settled(&scene.hub);
}

#[tokio::test]
async fn a_client_that_hangs_up_on_a_silent_stream_is_noticed() {
    let (gone, sees) = async_channel::bounded(1);
    let pod = FakePod::new(move |mut line, _| {
        let gone = gone.clone();
        async move {
            line.hear().await;
            line.say(&format!("{STREAM_HEAD}{}", chunk(TOKEN))).await;
            line.hung_up().await;
            let _ = gone.send(()).await;
        }
    })
    .await;
    let scene = Arc::new(Scene::new(&[&pod.authority]));
    let mut client = ask(front(&scene).await).await;
    let mut part = [0; 4096];
    assert!(client.read(&mut part).await.unwrap() > 0);
    assert!(!scene.hub.idle());
    drop(client);
    sees.recv().await.unwrap();
    until("the ledger", || scene.hub.idle()).await;
    assert_settled(&scene.hub);
    assert_eq!(scene.hub.snapshot().counters.client_gone, 1);
}
