//! The operator's page, in a real browser against a real dispatcher: from the board to the reason why a
//! request waits, and what is pressed is done.
//!
//! `WEIR_PICTURES=docs/images cargo test -p weir-tests --test page` writes the pictures of the documents;
//! the load then goes on for as long as the charts need to have something to show.
#![expect(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a scenario says what broke by panicking"
)]

use std::time::Duration;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::task::JoinSet;
use weir_tests::{
    Browser, Call, Echo, Load, MODEL, Plan, Reply, Screen, Stage, browser::pictures, eventually,
    wait::within,
};

/// Opens the page and waits for its first board.
async fn page(stage: &Stage) -> Option<Browser> {
    let mut browser = Browser::start().await?;
    browser.open(&format!("http://{}/", stage.weir.admin)).await;
    drawn(&mut browser).await;
    Some(browser)
}

async fn drawn(browser: &mut Browser) {
    browser.sees("the first board is drawn", "document.body.dataset.pictured === 'true'").await;
}

/// The page's script had no error, and asked nobody but its dispatcher.
fn assert_quiet(browser: &Browser, stage: &Stage) {
    assert!(browser.complaints().is_empty(), "{:#?}", browser.complaints());
    let home = format!("http://{}/", stage.weir.admin);
    let elsewhere =
        browser.asked().iter().find(|url| !url.starts_with(&home) && *url != "about:blank");
    assert_eq!(elsewhere, None);
}

/// Two pods that begin nothing any more, so that what waits goes on waiting.
async fn stuck(config: Value) -> Stage {
    let stage = Plan::default().pods(2).seats(4).config(config).raise().await;
    for pod in &stage.pods {
        pod.fault(json!({"kind": "hang"})).await;
    }
    stage
}

async fn queue(stage: &Stage, waiting: u64) -> JoinSet<Reply> {
    let calls = Call::chat(50).header("x-llm-d-inference-fairness-id", "acme");
    stage.queue_up(waiting, &calls).await
}

/// The figure of the board under such a name.
fn vital(name: &str) -> String {
    format!(
        "[...document.querySelectorAll('#vitals div')].find((el) => el.children[0].textContent === '{name}').children[1].textContent"
    )
}

async fn shows_waiting(browser: &mut Browser, count: u64) {
    let shown = format!("{} === '{count}'", vital("waiting"));
    browser.sees(&format!("{count} waiting on the board"), &shown).await;
}

#[tokio::test]
async fn two_clicks_lead_from_the_board_to_why_a_request_waits() {
    let stage = stuck(json!({})).await;
    let mut calls = queue(&stage, 11).await;
    let named = Call::chat(50).header("x-request-id", "find-me").objective("interactive");
    let address = stage.weir.api;
    calls.spawn(async move { named.to(address).await });
    stage.weir.waiting(12).await;
    let Some(mut browser) = page(&stage).await else { return };

    shows_waiting(&mut browser, 12).await;
    assert_eq!(browser.eval(&vital("pods")).await, "2/2");
    let lane = browser.text("#lane-rows .lane .why").await;
    assert!(!lane.is_empty(), "a lane says why its head waits");
    browser.click("#lane-rows .lane").await;
    browser
        .sees("the lane's requests", "document.querySelectorAll('.runway .row').length > 0")
        .await;
    browser.click(".runway .row").await;
    let because = browser.text("#panel .because").await;
    assert!(because.starts_with("Waits: "), "{because}");
    let rows = "document.querySelectorAll('#panel .looks tbody tr').length";
    assert_eq!(browser.sees("a row for each pod", rows).await, 2);
    let verdict = browser.text("#panel .looks tbody td").await;
    assert!(!verdict.is_empty() && verdict != "fits", "{verdict}");
    assert!(browser.text("#panel .timeline").await.contains("waited"));

    // By its id, with the keyboard alone.
    browser.press("Escape").await;
    browser.press("/").await;
    browser.write("find-me").await;
    browser.press("Enter").await;
    browser
        .sees(
            "the request that was looked for",
            "document.querySelector('#panel h2').textContent === 'find-me'",
        )
        .await;
    assert_quiet(&browser, &stage);
}

#[tokio::test]
async fn long_names_do_not_make_the_page_wider_than_a_phone() {
    let echo = Echo::start().await;
    let long =
        "an-organisation-with-a-long-name/a-model-with-a-longer-one-and-how-it-was-quantised";
    let pod = |name: &str| json!([{"name": name, "url": echo.url()}]);
    let pools = json!([
        {"model": long, "pods": pod("inference-vllm-of-a-long-name-7d9f8b6c5-0000")},
        {"model": MODEL, "pods": pod("another")},
    ]);
    let plan = Plan::default().upstream(echo.address).config(json!({"pools": pools}));
    let stage = plan.raise().await;
    let Some(mut browser) = page(&stage).await else { return };
    browser.show_on(Screen::PHONE).await;
    let chooses = "!document.getElementById('pool').hidden";
    browser.sees("the choice of the pool", chooses).await;
    let width = browser.eval("document.documentElement.scrollWidth").await;
    assert_eq!(width, Screen::PHONE.width, "nothing sticks out");
    assert_quiet(&browser, &stage);
}

#[tokio::test]
async fn a_pod_is_drained_and_taken_back_on_the_page() {
    let mut stage = Plan::default().pods(2).speed(1.0).raise().await;
    let mut streams = JoinSet::new();
    for _ in 0..8 {
        let (call, address) = (Call::chat(30_000), stage.weir.api);
        streams.spawn(async move { call.to(address).await });
    }
    eventually("all streams run", async || {
        let open = stage.weir.open_requests().await;
        if (open.waiting, open.in_flight) == (0, 8) { Ok(()) } else { Err(open) }
    })
    .await;
    let Some(mut browser) = page(&stage).await else { return };
    let pod = &fullest_pod(&stage).await;

    // Not by the place on the screen: the cells change places when a pod gets into trouble.
    let cell = format!("document.querySelector(\"#pod-cells a[aria-label^='{pod}:']\")");
    browser.sees("the pod's cell", &format!("{cell} !== null")).await;
    browser.eval(&format!("{cell}.click()")).await;
    browser
        .sees("what is on the pod", "document.querySelectorAll('#panel tbody tr').length > 0")
        .await;
    browser.click("#panel .acts button:nth-child(2)").await;
    let question = browser.text("#ask").await;
    assert!(question.contains(&format!("Drain {pod}?")), "{question}");
    assert_eq!(phase(&stage, pod).await, "ready", "nothing is done before it is confirmed");
    browser.click("#ask .danger").await;
    browser
        .sees(
            "the drain's progress",
            "document.querySelector('#panel .drain').innerText.includes('Draining')",
        )
        .await;
    browser
        .sees("the pod's mark", "document.querySelector('#pod-cells a[data-phase=draining]')")
        .await;
    assert_eq!(phase(&stage, pod).await, "draining");
    // A draining pod gets nothing more.
    stage.call(&Call::chat(3)).await.assert_whole();

    drop(streams);
    browser
        .sees(
            "the end of the drain",
            "document.querySelector('#panel .drain').innerText.startsWith('Drained')",
        )
        .await;
    browser.click("#panel .acts button").await;
    eventually("the pod takes requests again", async || {
        let phase = phase(&stage, pod).await;
        if phase == "ready" { Ok(()) } else { Err(phase) }
    })
    .await;
    assert_quiet(&browser, &stage);
    stage.assert_settled().await;
}

async fn pods(stage: &Stage) -> Vec<Value> {
    stage.weir.snapshot().await["pods"].as_array().unwrap().clone()
}

async fn fullest_pod(stage: &Stage) -> String {
    let pods = pods(stage).await;
    let fullest = pods.iter().max_by_key(|pod| pod["residents"].as_u64()).unwrap();
    fullest["name"].as_str().unwrap().to_owned()
}

async fn phase(stage: &Stage, pod: &str) -> Value {
    let pods = pods(stage).await;
    pods.iter().find(|one| one["name"] == pod).unwrap()["phase"].clone()
}

#[tokio::test]
async fn a_name_that_nobody_has_is_told_and_opens_nothing() {
    let stage = stuck(json!({})).await;
    let mut calls = queue(&stage, 3).await;
    let Some(mut browser) = page(&stage).await else { return };
    let search = |text: &str| {
        format!(
            "document.getElementById('query').value = '{text}'; document.getElementById('find').requestSubmit()"
        )
    };
    browser.eval(&search("zzz")).await;
    browser
        .sees(
            "that there is none",
            "document.body.innerText.includes('No request is called zzz, and nothing of a tenant')",
        )
        .await;
    assert_eq!(browser.eval("location.hash").await, "", "nothing is opened");
    let seconds = "fetch('/api/v1/history').then((reply) => reply.json()).then((of) => of.seconds.length > 2)";
    browser.sees("a past of some seconds", seconds).await;
    let drawn_anew = "(document.querySelector('#chart-ttft').firstElementChild.id = 'old', \
                      document.dispatchEvent(new Event('changed')))";
    browser.eval(drawn_anew).await;
    let anew = "!document.querySelector('#old') && document.querySelector('#chart-ttft .note')";
    browser.sees("the charts drawn anew", &format!("{anew} !== null")).await;
    let ago = browser.eval("document.querySelector('#chart-ttft .note').textContent").await;
    assert_eq!(ago, "", "no first token has come, at no time");
    browser.eval(&search("acme")).await;
    let title = "document.querySelector('#panel h2').textContent === 'Tenant acme'";
    browser.sees("what waits of a tenant", title).await;
    calls.abort_all();
}

#[tokio::test]
async fn a_lane_is_paused_and_its_requests_are_cancelled_after_a_dry_run() {
    let stage = stuck(json!({})).await;
    let mut calls = queue(&stage, 12).await;
    let Some(mut browser) = page(&stage).await else { return };

    browser.click("#lane-rows .lane").await;
    browser
        .sees("the lane's requests", "document.querySelectorAll('.runway .row').length === 12")
        .await;
    browser.press("p").await;
    browser.click("#ask .go").await;
    browser
        .sees("that the lane is paused", "document.querySelector('#lane-rows .lane[data-paused]')")
        .await;

    browser.press("x").await;
    let found = "document.querySelector('#ask .found').textContent.startsWith('12 requests match')";
    browser.sees("what would be cancelled", found).await;
    stage.weir.waiting(12).await;
    browser.click("#ask .danger").await;
    shows_waiting(&mut browser, 0).await;
    for _ in 0..12 {
        let reply = calls.join_next().await.unwrap().unwrap();
        reply.assert_error(503, "cancelled_by_operator");
        assert_eq!(reply.header("x-should-retry"), "false");
    }
    assert_quiet(&browser, &stage);
}

#[tokio::test]
async fn with_tokens_the_page_asks_for_one_and_a_reader_changes_nothing() {
    let token = json!({"name": "reader", "scope": "read", "sha256": digest("look")});
    let stage = Plan::default().config(json!({"admin": {"tokens": [token]}})).start().await;
    let Some(mut browser) = Browser::start().await else { return };
    browser.open(&format!("http://{}/", stage.weir.admin)).await;

    for (token, said) in [("wrong", "Weir wants a token"), ("look", "not one that Weir knows")] {
        let asked = format!("document.querySelector('#ask[open]').innerText.includes('{said}')");
        browser.sees("the question for a token", &asked).await;
        browser.click("#ask input").await;
        browser.write(token).await;
        browser.press("Enter").await;
    }
    drawn(&mut browser).await;
    browser.press("p").await;
    browser.click("#ask .danger").await;
    browser
        .sees(
            "that a reader may not",
            "document.querySelector('#said .late').innerText.startsWith('Not done')",
        )
        .await;
}

fn digest(token: &str) -> String {
    Sha256::digest(token).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[tokio::test]
async fn a_page_whose_dispatcher_is_gone_says_since_when_it_is_stale() {
    let mut stage = Stage::simple().await;
    let Some(mut browser) = page(&stage).await else { return };
    browser.sees("that it is live", "document.querySelector('#live').textContent === 'live'").await;
    stage.weir.program.kill();
    browser
        .sees(
            "that it is stale",
            "document.querySelector('#live').textContent.startsWith('stale since')",
        )
        .await;
    assert_eq!(browser.eval("document.body.dataset.stale").await, "true");
}

/// Seconds of load before the pictures: two thirds of a chart.
const LOAD: Duration = Duration::from_secs(200);

#[tokio::test]
async fn the_pictures_of_the_documents_are_taken_under_load() {
    if pictures().is_none() {
        return eprintln!("skipped: WEIR_PICTURES names no folder");
    }
    let plan = Plan::default().pods(6).speed(1.0).pod_argument("--max-sequences", "10");
    let config = json!({
        "classes": [{"name": "h100-qwen3-32b-tp2", "max_sequences": 10}],
        "trainer": {"run": true, "interval_s": 20, "min_samples": 300, "min_new_samples": 200, "trees": 40},
    });
    let stage = plan.config(config).raise().await;
    let load = Load::start(stage.weir.api, 78, mixed);
    let Some(mut browser) = page(&stage).await else { return };

    within(LOAD + Duration::from_secs(60), "the charts have a past", async || {
        let path = "fetch('/api/v1/history').then((reply) => reply.json()).then((of) => of.seconds.length)";
        let seconds = browser.eval(path).await;
        if seconds.as_u64() >= Some(LOAD.as_secs()) { Ok(()) } else { Err(seconds) }
    })
    .await;
    browser
        .sees("charts of the past", "document.querySelectorAll('#trend svg').length === 4")
        .await;
    for (name, screen) in [
        ("page", Screen::LAPTOP),
        ("page-dark", Screen::LAPTOP.dark()),
        ("page-phone", Screen::PHONE),
    ] {
        browser.show_on(screen).await;
        // Charts are drawn for the width that they have.
        browser.eval("new Promise((drawn) => { document.dispatchEvent(new Event('changed')); setTimeout(drawn, 500); })").await;
        browser.picture(name).await;
    }
    browser.show_on(Screen::LAPTOP).await;

    browser.click("#lane-rows .lane").await;
    browser
        .sees("the lane's requests", "document.querySelectorAll('.runway .row').length > 0")
        .await;
    browser.picture("page-lane").await;
    browser.click(".runway .row").await;
    browser.text("#panel .because").await;
    browser
        .sees(
            "the pods' verdicts",
            "document.querySelectorAll('#panel .looks tbody tr').length === 6",
        )
        .await;
    browser.picture("page-request").await;

    browser.press("Escape").await;
    browser.click("#pod-cells a[aria-label^='pod-2:']").await;
    browser.click("#panel .acts button:nth-child(2)").await;
    browser.picture("page-confirm").await;
    browser.click("#ask .danger").await;
    browser
        .sees(
            "the drain's progress",
            "document.querySelector('#panel .drain').innerText.includes('Draining')",
        )
        .await;
    browser.sees("that it gets less", "parseFloat(document.querySelector('#panel .drain').style.getPropertyValue('--part')) > 20").await;
    browser.picture("page-drain").await;
    assert_quiet(&browser, &stage);
    drop(load);
}

/// Calls of three classes and three tenants, of different sizes. What is not batch nearly fills the pods.
fn mixed(client: usize, turn: usize) -> Call {
    let objective = ["interactive", "standard", "standard", "batch"][client % 4];
    let tenant = ["acme", "globex", "initech"][client % 3];
    let tokens = [40, 120, 400, 900][(client + turn) % 4];
    let output = [80, 160, 320][(client / 2 + turn) % 3];
    Call::long_chat(tokens, output, &format!("{client}.{turn} "))
        .objective(objective)
        .header("x-llm-d-inference-fairness-id", tenant)
        .header("x-request-id", &format!("{tenant}-{client:03}-{turn}"))
}
