//! LoRA adapters behind names of their own.

use super::*;

fn of_two(max_loras: u32) -> PodThread {
    let mut engine = EngineConfig::for_hardware(hardware("h100-llama-3.1-8b-tp1").unwrap());
    engine.max_loras = max_loras;
    PodThread::start(PodPlan {
        count: 1,
        port: 0,
        ranks_per_port: None,
        model: "m".to_owned(),
        adapters: vec!["a".to_owned(), "b".to_owned()],
        engine,
        speed: SPEED,
        max_model_len: 4096,
    })
    .unwrap()
}

fn ask_for(model: &str, more: Value) -> Value {
    let mut body = ask(more);
    body["model"] = json!(model);
    body
}

/// What the metric says runs and waits, the latest first.
async fn told(client: &mut Client) -> Vec<(String, String)> {
    let text = client.get("/metrics").await;
    let start = "vllm:lora_requests_info{max_lora=\"1\",running_lora_adapters=\"";
    let mut said: Vec<(f64, String, String)> = text
        .lines()
        .filter_map(|line| line.strip_prefix(start))
        .map(|line| {
            let (labels, at) = line.split_once("\"} ").unwrap();
            let (running, waiting) = labels.split_once("\",waiting_lora_adapters=\"").unwrap();
            (at.parse().unwrap(), running.to_owned(), waiting.to_owned())
        })
        .collect();
    assert_eq!(
        said.len(),
        text.lines().filter(|line| line.contains("lora_requests_info{")).count()
    );
    said.sort_by(|one, other| other.0.total_cmp(&one.0));
    said.into_iter().map(|(_, running, waiting)| (running, waiting)).collect()
}

/// Returns once the metric says so.
async fn until(client: &mut Client, running: &str, waiting: &str) -> Vec<(String, String)> {
    let seen = async {
        loop {
            let said = told(client).await;
            if said.first().is_some_and(|(runs, waits)| (&**runs, &**waits) == (running, waiting)) {
                return said;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(60), seen).await.unwrap()
}

#[tokio::test]
async fn adapters_are_listed_with_their_model_and_answer_under_their_names() {
    let pods = of_two(1);
    let mut client = Client::to(&pods).await;
    let models: Value = serde_json::from_str(&client.get("/v1/models").await).unwrap();
    let listed: Vec<_> = [0, 1, 2].iter().map(|place: &usize| &models["data"][*place]).collect();
    let ids: Vec<_> = listed.iter().map(|model| (&model["id"], &model["parent"])).collect();
    let (m, a, b, none) = (json!("m"), json!("a"), json!("b"), Value::Null);
    assert_eq!(ids, [(&m, &none), (&a, &m), (&b, &m)]);
    for name in ["a", "b", "m"] {
        let whole = parsed(client.post(CHAT, &ask_for(name, json!({}))).await).await;
        assert_eq!(
            (&whole["model"], &whole["usage"]["completion_tokens"]),
            (&json!(name), &json!(5))
        );
    }
    let refused = client.post(CHAT, &ask_for("c", json!({}))).await;
    assert_eq!(refused.status(), StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn adapters_that_do_not_run_together_wait_and_the_metric_says_so_from_the_first_on() {
    let pods = of_two(1);
    let mut looks = Client::to(&pods).await;
    text(looks.post(CHAT, &ask(json!({}))).await).await;
    assert_eq!(told(&mut looks).await, [], "nobody has asked for one");

    let mut first = Client::to(&pods).await;
    first.output_tokens = 3000;
    let running = first.post(CHAT, &ask_for("a", json!({"stream": true}))).await;
    until(&mut looks, "a", "").await;
    let mut second = Client::to(&pods).await;
    let body = ask_for("b", json!({}));
    let ends_first = async {
        until(&mut looks, "a", "b").await;
        drop((running, first));
        until(&mut looks, "", "").await
    };
    let (answer, said) = tokio::join!(second.post(CHAT, &body), ends_first);
    assert_eq!(answer.status(), StatusCode::OK);
    assert_eq!(said.len(), 2, "what is and what was before it: {said:?}");
}

#[tokio::test]
async fn an_adapter_finds_nothing_of_what_its_model_has_cached() {
    let pods = of_two(2);
    let mut client = Client::to(&pods).await;
    let hits = "vllm:prefix_cache_hits_total{";
    for (name, found) in [("m", 0.0), ("m", 96.0), ("a", 96.0), ("b", 96.0), ("a", 192.0)] {
        text(client.post(CHAT, &ask_for(name, json!({}))).await).await;
        assert_eq!(client.metric(hits).await, found, "{name}");
    }
}
