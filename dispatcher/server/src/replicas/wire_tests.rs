use std::{sync::Arc, time::Duration};

use futures_util::FutureExt;
use proptest::{
    collection::vec,
    prelude::{any, proptest},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use weir_core::{
    Answered, Band, EndKind, PromptSize, RefusalReason, RequestId, Slo,
    prefix::{Cached, Part, Reply, Turn},
};
use weir_schema::Prediction;
use xxhash_rust::xxh3::xxh3_64;

use super::{Asks, Out, Says, Values, Welcome, Why};
use crate::{
    fleet::{Ask, Failing},
    hub::{
        errand::{
            Charge, Ended, Errand, Facts, Given, Lore, Missed, Onward, Refused, Steps, Strides,
            Word,
        },
        fixture::learned,
        held::Held,
    },
    replicas::{
        MISSED,
        rank::Rank,
        seal::{SEAL, Seals, Side, proof},
        wire,
    },
};

const NONCE: [u8; 32] = [7; 32];

/// Every kind of errand.
fn errands() -> Vec<Errand> {
    let id = RequestId(300);
    let second = Duration::from_millis(1001);
    let facts = Facts {
        id,
        ask: 200,
        age: second,
        prompt: PromptSize::Bytes(1000),
        max_output_tokens: Some(1),
        sequences: 2,
        slo: Slo { ttft: Some(second), tpot: None },
        band: Band(-1),
        tenant: Some(Arc::from("t")),
        body_bytes: 9,
        blocks: Arc::from([1, u64::MAX]),
        turn: Turn { name: 7, reply: Some(Reply { to: 300, from: 1, end: 200 }) },
        streamed: true,
        expires_in: None,
        immediate: false,
        by_header: true,
        prefilled: true,
        adapter: Some(Arc::from("l")),
        name: Arc::from("n"),
    };
    let steps = vec![Steps { pod: "10.0.0.1:8000".to_owned(), count: 2, age: second }];
    let ended = Ended {
        id,
        kind: EndKind::PodFailed,
        output_tokens: Some(3),
        prompt_tokens: None,
        events: 4,
        last_token_age: Some(second),
    };
    vec![
        Errand::Admit(Box::new(facts.clone())),
        Errand::Adopt(Box::new(Onward {
            facts: facts.clone(),
            pod: "10.0.0.1:8000".to_owned(),
            age: second,
            uncached_tokens: 9.5,
            first_token_age: Some(second),
            events: 7,
            prediction: Prediction::default(),
            tokens_per_event: 1.0,
        })),
        Errand::Part(id),
        Errand::Retry(Box::new(facts), Missed::Full),
        Errand::Decline(id, 200),
        Errand::Hold(Held { version: 3, ..Held::default() }),
        Errand::Teach,
        Errand::Cancel(id),
        Errand::FirstToken(id),
        Errand::Progress(Strides { events: vec![(id, 5)], steps }),
        Errand::End(ended),
        Errand::HoldAgainst(Charge {
            pod: "10.0.0.1:8000".to_owned(),
            failing: Failing::Badly { begun: true },
        }),
        Errand::HoldAgainst(Charge {
            pod: "10.0.0.1:8000".to_owned(),
            failing: Failing::Unwilling,
        }),
    ]
}

/// Every kind of verdict.
fn words() -> Vec<Word> {
    let id = RequestId(300);
    let pod = "10.0.0.1:8000".to_owned();
    let prediction = Prediction { model_ttft_ms: Some(1.5), ..Prediction::default() };
    vec![
        Word::Give(Given {
            id,
            ask: 200,
            pod,
            attempt: 1,
            uncached_tokens: 9.5,
            prediction,
            tokens_per_event: 1.0,
        }),
        Word::Refuse(Refused {
            id,
            ask: 200,
            reason: RefusalReason::Cancelled,
            retry_after: Duration::from_secs(1),
        }),
    ]
}

#[test]
fn what_travels_is_what_belongs_to_the_protocol() {
    let mut bytes = Vec::new();
    let rank = Rank { started_unix_ms: 1, lot: 2 };
    let hello = wire::Hello { protocol: 5, nonce: NONCE, model: "m".to_owned() };
    wire::put(&hello, &mut bytes).unwrap();
    for why in [Why::Protocol(1), Why::Secret, Why::Model, Why::Leaving] {
        wire::put(&Welcome::Stay(why), &mut bytes).unwrap();
    }
    wire::put(&Welcome::Prove { nonce: NONCE, proof: [8; 32] }, &mut bytes).unwrap();
    wire::put(&Welcome::Come(rank), &mut bytes).unwrap();
    let asks = [Asks::Beat].into_iter().chain(errands().into_iter().map(Asks::Errand));
    asks.for_each(|asks| wire::put(&asks, &mut bytes).unwrap());
    let pods = [("10.0.0.1:8000".to_owned(), Ask::Drain)].into();
    let sent = Lore::Sent { pod: "10.0.0.1:8000".to_owned(), blocks: Arc::from([u64::MAX]) };
    let answered = Lore::Answered(Answered {
        tenant: Some(Arc::from("t")),
        input_tokens: 5,
        output_tokens: Some(6),
        prompt: None,
    });
    let names = Part::Prompt(Arc::from([1, 2]));
    let cached = Cached(vec![names, Part::Answer { to: 300, blocks: 4, held: 2 }]);
    let cached = Lore::Cached { pod: "10.0.0.1:8000".to_owned(), cached };
    let held = Held { version: 2, gates: ["b0".to_owned()].into(), pods };
    let says = [
        Says::Beat,
        Says::Done,
        Says::Farewell,
        Says::Held(held),
        Says::Lore(sent),
        Says::Lore(answered),
        Says::Lore(cached),
        Says::Lore(Lore::Learned(Box::new(learned()))),
    ];
    let says = says.into_iter().chain(words().into_iter().map(Says::Word));
    says.for_each(|says| wire::put(&says, &mut bytes).unwrap());
    // Whoever changes a value makes the number of the protocol another one, and this digest with it.
    assert_eq!(
        (wire::PROTOCOL, xxh3_64(&bytes)),
        (10, 14_006_288_329_212_725_845),
        "{} bytes",
        bytes.len()
    );
}

#[test]
fn a_proof_is_the_keyed_digest_of_the_side_and_both_numbers() {
    // HMAC-SHA-256 as Python's `hmac` has it: key 07.., message 00 then 32 bytes 01 and 32 bytes 02.
    let said = proof(&[7; 32], Side::Caller, [&[1; 32], &[2; 32]]);
    let hex: String = said.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, "bf8c8647d2b007991f66acf929812a5aaed8d349b9f72f086fa24979057784a4");
    assert_ne!(said, proof(&[7; 32], Side::Called, [&[1; 32], &[2; 32]]));
}

#[test]
fn what_a_side_says_has_seals_of_its_own_one_after_the_other() {
    // As Python's `hmac` has it: the session's key is that of `session`, 00 and both numbers, and signs a count of 8 bytes and the value.
    let mut seals = Seals::new(&[7; 32], Side::Caller, [&[1; 32], &[2; 32]]);
    let hex = |seal: [u8; SEAL]| seal.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    assert_eq!(hex(seals.next(b"value")), "a6dbe0c1de2c1821434c484fafaa0b56");
    assert_eq!(hex(seals.next(b"value")), "5d38e97a43c11cbfd288648cc238a664");
}

/// What one side of a call seals, one value after the other.
fn sealed(side: Side, values: &[Asks]) -> Vec<Vec<u8>> {
    let mut out = Out::default();
    out.seal(Seals::new(&[7; 32], side, [&NONCE, &[9; 32]]));
    let put = |value| {
        out.put(value).unwrap();
        std::mem::take(&mut out.bytes)
    };
    values.iter().map(put).collect()
}

/// How many of these the other side takes.
async fn taken(values: &[Vec<u8>]) -> usize {
    let bytes = values.concat();
    let mut values = Values::new(&bytes[..]);
    values.seal(Seals::new(&[7; 32], Side::Caller, [&NONCE, &[9; 32]]));
    let mut taken = 0;
    while values.next::<Asks>().await.is_ok() {
        taken += 1;
    }
    taken
}

#[tokio::test]
async fn who_passes_values_on_can_neither_change_nor_repeat_nor_leave_out_nor_return_one() {
    let said: Vec<Asks> = errands().into_iter().map(Asks::Errand).collect();
    let values = sealed(Side::Caller, &said);
    let all = values.len();
    assert_eq!(taken(&values).await, all);
    for at in 0..all {
        let mut repeated = values.clone();
        repeated.insert(at, values[at].clone());
        assert_eq!(taken(&repeated).await, at + 1);
        let mut left_out = values.clone();
        left_out.remove(at);
        assert_eq!(taken(&left_out).await, at);
        for byte in 4..values[at].len() {
            let mut changed = values.clone();
            changed[at][byte] ^= 1;
            assert_eq!(taken(&changed).await, at, "byte {byte} of {:?}", said[at]);
        }
    }
    assert_eq!(taken(&sealed(Side::Called, &said)).await, 0, "it says so itself");
    let mut plain = Vec::new();
    wire::put(&Asks::Beat, &mut plain).unwrap();
    assert_eq!(taken(&[plain, vec![0; SEAL]]).await, 0);
}

#[tokio::test]
async fn values_come_whole_however_they_are_cut() {
    let mut bytes = Vec::new();
    wire::put(&Asks::Beat, &mut bytes).unwrap();
    wire::put(&"text".to_owned(), &mut bytes).unwrap();
    let cut = byte_by_byte(bytes);
    let mut values = Values::new(cut);
    assert_eq!(values.next::<Asks>().await.unwrap(), Asks::Beat);
    assert_eq!(values.next::<String>().await.unwrap(), "text");
    assert!(values.next::<String>().await.is_err(), "the end");

    let mut values = Values::new(&[255, 255, 255, 255, 0][..]);
    assert!(values.next::<String>().await.is_err(), "no value is so long");
    let mut values = Values::new(&[1, 0, 0, 0, 99][..]);
    assert!(values.next::<Asks>().await.is_err(), "no such value");
}

#[tokio::test]
async fn only_who_knows_the_secret_says_something_long() {
    let mut bytes = Vec::new();
    wire::put(&"m".repeat(4000), &mut bytes).unwrap();
    assert!(Values::new(&bytes[..]).next::<String>().await.is_ok(), "as long as a name may be");
    let announced = 5000_u32.to_le_bytes();
    let refused = Values::new(&announced[..]).next::<String>().await.unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::InvalidData, "what comes is not waited for");
    let mut out = Out::default();
    let seals = || Seals::new(&[7; 32], Side::Caller, [&NONCE, &[9; 32]]);
    out.seal(seals());
    out.put(&"m".repeat(1_000_000)).unwrap();
    let mut values = Values::new(&out.bytes[..]);
    values.seal(seals());
    assert_eq!(values.next::<String>().await.unwrap().len(), 1_000_000);
}

proptest! {
    #[test]
    fn whatever_comes_ends_in_a_value_or_an_error(bytes in vec(any::<u8>(), 0..400)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let mut values = Values::new(&bytes[..]);
            while values.next::<Asks>().await.is_ok() {}
            let mut framed = (bytes.len() as u32).to_le_bytes().to_vec();
            framed.extend(&bytes);
            let _ = Values::new(&framed[..]).next::<Asks>().await;
            let _ = Values::new(&framed[..]).next::<Says>().await;
        });
    }
}

/// Gives a byte at a time.
fn byte_by_byte(bytes: Vec<u8>) -> impl AsyncRead + Unpin {
    let (mut to, from) = tokio::io::duplex(1);
    tokio::spawn(async move {
        let _ = to.write_all(&bytes).await;
    });
    from
}

#[tokio::test]
async fn who_takes_a_little_at_a_time_is_not_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let to = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (mut peer, _) = listener.accept().await.unwrap();
    let (_from, mut to) = to.into_split();
    let mut out = Out::default();
    assert!(out.has_room() && !out.is_due());
    (0..64).for_each(|_| out.put(&vec![0_u8; 1 << 19]).unwrap());
    assert!(!out.has_room());
    let all = out.bytes.len();
    out.write(&mut to).await.unwrap();
    out.offer(&to).unwrap();
    assert!(out.is_due(), "no connection holds as much");
    (0..MISSED).for_each(|_| out.beat().unwrap());
    let mut half = vec![0; (all - out.bytes.len()) / 2];
    peer.read_exact(&mut half).await.unwrap();
    out.write(&mut to).await.unwrap();
    (0..MISSED).for_each(|_| out.beat().expect("it took some"));
    assert!(out.is_due());
    out.beat().unwrap_err();
}

#[tokio::test]
async fn a_part_of_a_value_is_a_sign_of_life() {
    let (mut to, from) = tokio::io::duplex(64);
    let mut values = Values::new(from);
    (0..MISSED).for_each(|_| values.beat().unwrap());
    values.beat().unwrap_err();
    to.write_all(&[9]).await.unwrap();
    assert!(values.next::<u8>().now_or_never().is_none());
    values.beat().unwrap();
}
