//! Streams whose pods fail one after the other, in whatever way: what clients are given of them.

use proptest::prelude::*;
use serde_json::Value;

use super::{
    migrating::{LATER, call, last, role, stage, token},
    scene::{DONE, END, STREAM_HEAD, chunk, read},
};
use crate::hub::fixture::assert_settled;

/// A pod's answer: so many tokens, and how it ends.
#[derive(Clone, Copy, Debug)]
struct Play {
    tokens: usize,
    ending: Ending,
    /// Whether it comes in one piece.
    at_once: bool,
}

#[derive(Clone, Copy, Debug)]
enum Ending {
    HangsUp,
    Torn,
    SaysError,
    SaysErrorAndEnds,
    Aborts,
    Whole,
    Dead,
    Refuses,
}

impl Play {
    fn words(self, number: usize) -> Vec<String> {
        (0..self.tokens).map(|at| format!("{number}.{at} ")).collect()
    }

    fn answer(self, number: usize) -> String {
        let error = "data: {\"error\":{\"message\":\"dead\",\"code\":500}}\n\n";
        let name = number.to_string();
        let status = |status| format!("HTTP/1.1 {status}\r\ncontent-length: 2\r\n\r\n{{}}");
        let ending = match self.ending {
            Ending::Dead => return status("500 Internal Server Error"),
            Ending::Refuses => return status("400 Bad Request"),
            Ending::HangsUp => String::new(),
            Ending::Torn => chunk(&token(&name, "torn")[..30]),
            Ending::SaysError => chunk(error) + &chunk(DONE),
            Ending::SaysErrorAndEnds => chunk(error) + END,
            Ending::Aborts => chunk(&(last(&name).replace("stop", "abort") + DONE)) + END,
            Ending::Whole => chunk(&(last(&name) + DONE)) + END,
        };
        let words = self.words(number);
        let events = [role(&name)].into_iter().chain(words.iter().map(|word| token(&name, word)));
        let chunks = events.map(|event| chunk(&event)).chain([ending]).collect::<Vec<_>>();
        STREAM_HEAD.to_owned() + &chunks.join(if self.at_once { "" } else { LATER })
    }
}

fn plays() -> impl Strategy<Value = Vec<Play>> {
    let ending = prop::sample::select(vec![
        Ending::HangsUp,
        Ending::Torn,
        Ending::SaysError,
        Ending::SaysErrorAndEnds,
        Ending::Aborts,
        Ending::Whole,
        Ending::Dead,
        Ending::Refuses,
    ]);
    let play = (0_usize..3, ending, any::<bool>());
    let play = play.prop_map(|(tokens, ending, at_once)| Play { tokens, ending, at_once });
    prop::collection::vec(play, 1..4)
}

/// One stream by these pods, one after the other.
async fn play(plays: Vec<Play>, limit: u32) {
    let answers: Vec<String> = plays.iter().enumerate().map(|(at, play)| play.answer(at)).collect();
    let (scene, _heard) = stage(&answers).await;
    let served = scene.serve(call(&scene, limit)).await;
    let (status, (text, error)) = match served {
        Ok(response) => (response.status().as_u16(), read(response.into_body()).await),
        // Its client is told with a status, which nobody counts here.
        Err(_) => return assert_settled(&scene.hub),
    };
    assert_settled(&scene.hub);
    let done: u64 = scene.counted("weir_requests_total", &[]);
    assert_eq!(done, 1, "{text}");
    if status != 200 {
        return assert_eq!(
            (&*text, error),
            ("{}", None),
            "of a status nothing is passed on before"
        );
    }
    let data = text.lines().filter_map(|line| line.strip_prefix("data: {"));
    let events: Vec<Value> =
        data.map(|data| serde_json::from_str(&format!("{{{data}")).unwrap()).collect();
    let said: String = events
        .iter()
        .filter_map(|event| event["choices"][0]["delta"]["content"].as_str())
        .collect();
    // Each pod that had it said everything that it had to say, once.
    let words: Vec<String> =
        plays.iter().enumerate().map(|(at, play)| play.words(at).concat()).collect();
    let streams = plays.iter().map(|play| !matches!(play.ending, Ending::Dead | Ending::Refuses));
    let all = words.iter().zip(streams).map(|(words, streams)| if streams { words } else { "" });
    let all: Vec<&str> = all.collect();
    let is_prefix =
        (0..all.len()).any(|from| (from..=all.len()).any(|to| all[from..to].concat() == said));
    assert!(is_prefix, "{said}");
    let names = events.iter().filter(|event| event.get("id").is_some()).map(|event| &event["id"]);
    assert!(names.collect::<Vec<_>>().windows(2).all(|two| two[0] == two[1]), "{text}");
    let roles = events.iter().filter(|event| event["choices"][0]["delta"]["role"].is_string());
    assert!(roles.count() <= 1, "{text}");
    // It ends with its end or with an error, never with nothing, nor with both a loss and an end.
    let (is_whole, is_lost) = (text.ends_with(DONE), text.contains("upstream_lost"));
    let says_error = events.iter().any(|event| event.get("error").is_some());
    assert!(is_whole || says_error, "{text}");
    assert_eq!(error.is_some(), is_lost, "{text}");
    assert!(!(is_whole && is_lost), "{text}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    /// However the pods that have a stream one after the other fail, its client is given what they said once, and told how it ends.
    #[test]
    fn a_stream_is_given_once_and_ends_as_it_says(plays in plays(), limit in 0_u32..3) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let within = std::time::Duration::from_secs(20);
        runtime.block_on(async {
            tokio::time::timeout(within, play(plays, limit)).await.expect("it ends");
        });
    }
}
