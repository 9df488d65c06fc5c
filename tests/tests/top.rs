//! `weir top` in a terminal, against a real dispatcher under load: the board, a lane, the reason why a
//! request waits, and a pod that is drained by its keys.
//!
//! `WEIR_PICTURES=docs/images cargo test -p weir-tests --test top` writes the pictures of the documents.
#![expect(clippy::unwrap_used, reason = "a scenario says what broke by panicking")]

use weir_tests::{Call, Load, Plan, Stage, Terminal, browser::pictures, built, eventually};

const COLUMNS: u16 = 128;
const ROWS: u16 = 34;
const ENTER: &str = "\r";
const ESCAPE: &str = "\x1b";

/// Pods that take six requests each, so that something waits.
async fn busy_stage() -> (Stage, Load) {
    let stage = Plan::default().pods(4).speed(1.0).seats(6).raise().await;
    let load = Load::start(stage.weir.api, 90, mixed);
    eventually("enough waits", async || {
        let open = stage.weir.open_requests().await;
        if open.waiting > 25 { Ok(()) } else { Err(open) }
    })
    .await;
    (stage, load)
}

/// Calls of three classes, of different sizes.
fn mixed(client: usize, turn: usize) -> Call {
    let pick = |choices: [u32; 4], number: usize| choices.get(number % 4).copied().unwrap();
    let input = pick([40, 120, 400, 900], client + turn);
    let output = pick([80, 160, 320, 160], client / 2 + turn);
    let objective = ["interactive", "standard", "batch"].get(client % 3).unwrap();
    Call::long_chat(input as usize, output, &format!("{client}.{turn} "))
        .objective(objective)
        .header("x-request-id", &format!("client-{client:02}-{turn}"))
}

fn board(stage: &Stage) -> Option<Terminal> {
    let weir = built::binary("weir");
    let command = format!("{} top --admin {}", weir.display(), stage.weir.admin);
    Terminal::start(&command, COLUMNS, ROWS)
}

/// Opens the oldest request of the lane at hand, and another where that one was sent while the key was typed: the
/// oldest is the next to go.
async fn opens_one_that_waits(top: &mut Terminal) {
    eventually("the page of a request that waits", async || {
        top.press(ENTER);
        let text = top.shows("state:").await;
        if ["waits for:", "WHY NOT", "pod-3"].iter().all(|part| text.contains(part)) {
            return Ok(());
        }
        top.press(ESCAPE);
        Err(top.shows("the oldest").await)
    })
    .await;
}

#[tokio::test]
async fn the_board_leads_to_why_a_request_waits_and_drains_a_pod() {
    let (stage, load) = busy_stage().await;
    let Some(mut top) = board(&stage) else { return };
    top.shows("WHY THE HEAD WAITS").await;
    // The last of a frame that comes in parts.
    let text = top.shows("dispatch").await;
    for part in ["waiting", "in flight", "LATE/TIGHT/OK", "pod-0", "DECISION", "dispatch"] {
        assert!(text.contains(part), "{part} is not shown:\n{text}");
    }
    if pictures().is_some() {
        top.shows("up 15s").await;
        // A frame comes in parts; this part is late where a lane has come or gone.
        top.shows("4 pods, 4 ready").await;
    }
    top.picture("top");

    top.press(ENTER);
    top.shows("the oldest").await;
    opens_one_that_waits(&mut top).await;
    top.picture("top-request");
    top.press(ESCAPE);
    top.shows("the oldest").await;
    top.press(ESCAPE);
    top.shows("WHY THE HEAD WAITS").await;

    top.press("\td");
    top.shows("drain pod-0?").await;
    top.press("y");
    top.shows("draining").await;
    assert_eq!(stage.weir.snapshot().await["pods"].as_array().unwrap().len(), 4);
    top.press("q");
    assert!(top.ends().await, "it ends as it should");
    drop(load);
}

#[tokio::test]
async fn a_board_whose_dispatcher_is_gone_keeps_its_last_picture_and_says_so() {
    let mut stage = Stage::simple().await;
    let Some(mut top) = board(&stage) else { return };
    top.shows("pod-0").await;
    stage.weir.program.kill();
    let text = top.shows("LOST").await;
    assert!(text.contains("pod-0"), "{text}");
    top.press("q");
    assert!(top.ends().await, "it ends as it should");
}
