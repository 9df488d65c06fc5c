//! Who may ask.

use serde::{Serialize, de::DeserializeOwned};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

use super::*;

#[tokio::test]
async fn without_the_secret_nobody_is_asked() {
    let all = addresses::<2>();
    let elder = Member::start(0, &all, SECRET);
    let stranger = Member::start(1, &all, [8; 32]);
    let mut ticket = stranger.admit(1);
    stranger.hub.add_pod(pods());
    assert!(ticket.verdict().await.is_ok(), "it decides for itself");
    assert_eq!((elder.circle.view().others, stranger.circle.view().others), (0, 0));
}

#[tokio::test]
async fn who_may_not_ask_is_told_why() {
    let all = addresses::<1>();
    let member = Member::start(0, &all, SECRET);
    let told = async |protocol, model: &str, secret| {
        let stream = TcpStream::connect(all[0]).await.unwrap();
        let (from, mut to) = stream.into_split();
        let mut says = wire::Values::new(from);
        let mut bytes = Vec::new();
        let hello = wire::Hello { protocol, nonce: [1; 32], model: model.to_owned() };
        wire::put(&hello, &mut bytes).unwrap();
        to.write_all(&bytes).await.unwrap();
        match says.next::<Welcome>().await.unwrap() {
            Welcome::Prove { nonce, proof: said } => {
                let nonces = [&[1; 32], &nonce];
                assert_eq!(said, proof(&SECRET, Side::Called, nonces), "it knows it");
                bytes.clear();
                wire::put(&proof(&secret, Side::Caller, nonces), &mut bytes).unwrap();
                to.write_all(&bytes).await.unwrap();
                if secret == SECRET {
                    says.seal(Seals::new(&secret, Side::Called, nonces));
                }
                says.next::<Welcome>().await.unwrap()
            }
            said => said,
        }
    };
    let (ours, model) = (wire::PROTOCOL, member.hub.model().to_string());
    let rank = Rank { started_unix_ms: 0, lot: 0 };
    assert_eq!(told(ours, &model, SECRET).await, Welcome::Come(rank));
    assert_eq!(told(ours + 1, &model, SECRET).await, Welcome::Stay(Why::Protocol(ours)));
    assert_eq!(told(ours, &model, [8; 32]).await, Welcome::Stay(Why::Secret));
    assert_eq!(told(ours, "another", SECRET).await, Welcome::Stay(Why::Model));
    member.life.move_on(Stage::Draining);
    assert_eq!(told(ours, &model, SECRET).await, Welcome::Stay(Why::Leaving));
}

#[tokio::test]
async fn who_does_not_know_the_secret_is_not_followed_and_learns_nothing_of_it() {
    let comes = Welcome::Come(Rank { started_unix_ms: 0, lot: 0 });
    for welcome in [comes, Welcome::Prove { nonce: [2; 32], proof: [3; 32] }] {
        let all = addresses::<2>();
        let impostor = tokio::net::TcpListener::bind(all[0]).await.unwrap();
        let member = Member::start(1, &all, SECRET);
        let (stream, _) = impostor.accept().await.unwrap();
        let (from, mut to) = stream.into_split();
        let mut asks = wire::Values::new(from);
        asks.next::<wire::Hello>().await.unwrap();
        let mut bytes = Vec::new();
        wire::put(&welcome, &mut bytes).unwrap();
        to.write_all(&bytes).await.unwrap();
        assert!(asks.next::<[u8; 32]>().await.is_err(), "it has nothing more to say");
        assert_eq!(member.circle.view().others, 0);
    }
}

/// Passes a value on as it came.
async fn pass<T: Serialize + DeserializeOwned>(
    from: &mut wire::Values<OwnedReadHalf>,
    to: &mut OwnedWriteHalf,
) {
    let value: T = from.next().await.unwrap();
    say(&value, to).await;
}

async fn say<T: Serialize>(value: &T, to: &mut OwnedWriteHalf) {
    let mut bytes = Vec::new();
    wire::put(value, &mut bytes).unwrap();
    to.write_all(&bytes).await.unwrap();
}

#[tokio::test]
async fn who_has_a_dispatcher_prove_the_secret_to_itself_is_not_followed() {
    let all = addresses::<2>();
    let impostor = tokio::net::TcpListener::bind(all[0]).await.unwrap();
    let member = Member::start(1, &all, SECRET);
    // It is called, and calls back with the same number.
    let (asks, mut to) = impostor.accept().await.unwrap().0.into_split();
    let (answers, mut back) = TcpStream::connect(all[1]).await.unwrap().into_split();
    let (mut asks, mut answers) = (wire::Values::new(asks), wire::Values::new(answers));
    pass::<wire::Hello>(&mut asks, &mut back).await;
    pass::<Welcome>(&mut answers, &mut to).await;
    pass::<[u8; 32]>(&mut asks, &mut back).await;
    say(&Welcome::Come(Rank { started_unix_ms: 0, lot: 0 }), &mut to).await;
    to.write_all(&[0; SEAL]).await.unwrap();
    assert!(asks.next::<wire::Asks>().await.is_err(), "it has nothing to say to that");
    assert_eq!(member.circle.view().others, 0);
}

#[tokio::test]
async fn who_passes_on_what_a_dispatcher_says_to_itself_is_that_dispatcher() {
    let all = addresses::<2>();
    let between = tokio::net::TcpListener::bind(all[0]).await.unwrap();
    let member = Member::start(1, &all, SECRET);
    let (mut call, _) = between.accept().await.unwrap();
    let mut back = TcpStream::connect(all[1]).await.unwrap();
    let passed = tokio::io::copy_bidirectional(&mut call, &mut back).await.unwrap();
    assert!(passed.0 > 64 && passed.1 > 64, "both proved that they know it: {passed:?}");
    assert_eq!(member.circle.view().others, 0);
}

#[tokio::test]
async fn nothing_is_kept_of_what_a_stranger_says_at_length() {
    let all = addresses::<1>();
    let _member = Member::start(0, &all, SECRET);
    let mut stranger = TcpStream::connect(all[0]).await.unwrap();
    stranger.write_all(&(1_u32 << 20).to_le_bytes()).await.unwrap();
    // Long before it would be given up as silent.
    let end = tokio::time::timeout(SILENT / 2, stranger.read_u8()).await.expect("the call is over");
    assert!(end.is_err());
}
