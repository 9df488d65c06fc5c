//! Prompts that the pods of another pool compute, and the pods of this one load: vLLM's disaggregated prefill.
//!
//! A request is served twice. First its prompt, by the pool that prefills: the client's body for one token, not streamed, with
//! `kv_transfer_params` that ask the engine to keep what it computes. What the engine says of where that is goes into the client's
//! body as it came, and with it the request is served as any other, by a pod that loads the prompt in place of computing it. Each of the
//! two waits in the queue of its pool, and has a lease there: that of the first is held until the first token came from the second,
//! for so long the engine keeps the prompt.
//!
//! A prompt that no pod prefills at once waits in both queues: where a pod that answers has room for all of the request first, it goes
//! there as it is. So it is the objectives that say how much is computed where: pods that answer take prompts as far as those that they
//! answer to bear it.
//!
//! # Promises
//! - Where the pods that prefill cannot say where a prompt is, or none of them is ready or reached, the pods that answer compute it.
//! - What a pod that prefills answers in place of a prompt (that it is too long) is the answer; one that is lost is answered for, as
//!   any pod is: no request is computed twice.

use std::{
    collections::BTreeMap,
    future::poll_fn,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderName, HeaderValue, StatusCode};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::value::{RawValue, to_raw_value};
use tokio::time::{Sleep, sleep};
use weir_core::{EndKind, Handover, Phase, Request, RequestId, Time};

use super::{
    Call, Fault, Upstream,
    account::{Facts, Held},
    headers,
    migration::Migration,
    serve::{How, Served, Waiting},
    splice::{spliced, without_mark},
    usage::Usage,
};
use crate::{
    h1::PodRequest,
    hub::{Hub, Lease},
    telemetry::trace::Known,
};

/// The pod that computed the prompt.
const PREFILL_POD: HeaderName = HeaderName::from_static("x-weir-prefill-pod");

/// Where an engine is told what becomes of a prompt, and says where it is.
pub(super) const PARAMS: &str = "kv_transfer_params";

/// Where a prompt was computed: by a pod that prefills, by the pod that answers, or by both, for the first did not say where it is.
const ELSEWHERE: &str = "prefill";
const LOCAL: &str = "local";
const LOST: &str = "lost";

/// The engine is to keep the prompt for another one.
const KEEP: &str = r#"{"do_remote_decode":true,"do_remote_prefill":false,"remote_engine_id":null,"remote_block_ids":null,"remote_host":null,"remote_port":null}"#;

/// What is not asked for where nothing but the prompt is computed.
const OF_THE_ANSWER: [&str; 2] = ["stream", "stream_options"];

/// How many tokens an answer has at most.
const MOST_TOKENS: &str = "max_tokens";

/// The same by another name, which counts before it, and how many it has at least: they are not there unless somebody asks for that.
const OTHER_BOUNDS: [&str; 3] = ["max_completion_tokens", "min_tokens", "min_completion_tokens"];

/// Time that another dispatcher has to say that a pod takes a prompt at once: asked for both at the same moment it would give two pods,
/// of which one is given back.
const ANSWERED: Duration = Duration::from_millis(20);

/// The pool that computes the prompts of another one.
#[derive(Debug)]
pub struct Prefill {
    hub: Arc<Hub>,
    /// A prompt of which a pod that answers has fewer tokens to compute goes there at once.
    local_tokens: u32,
    /// Whether one that no pod here takes at once may go to a pod that answers with room for it.
    overflow: bool,
    handover: Mutex<Handover>,
    /// Whether it was said that an engine does not say where prompts are.
    told: AtomicBool,
}

impl Prefill {
    /// By the pods of this pool.
    pub fn new(hub: Arc<Hub>, local_tokens: u32, overflow: bool) -> Self {
        let (handover, told) = (Mutex::default(), AtomicBool::default());
        Self { hub, local_tokens, overflow, handover, told }
    }

    /// Whether the prompt of a request that `hub` serves is to be computed here.
    fn computes(&self, hub: &Hub, request: &Request) -> bool {
        let is_ready = self.hub.pods().iter().any(|pod| pod.phase() == Phase::Ready);
        is_ready && !hub.takes_whole(request, self.local_tokens.into())
    }

    fn says_nothing_of_prompts(&self, pod: &Option<HeaderValue>) {
        if !self.told.swap(true, Relaxed) {
            tracing::warn!(
                pod = pod.as_ref().and_then(|pod| pod.to_str().ok()),
                "a pod that prefills did not say where it keeps a prompt, which the pod that answers computes again; if it never does, start it with a KV connector"
            );
        }
    }
}

/// A prompt that was computed.
pub(super) struct Computed {
    /// What the engine said.
    pub said: Bytes,
    /// The claim on its pod, which keeps it.
    pub lease: Box<Lease>,
    /// Tokens that the engine counted.
    pub usage: Usage,
}

/// The claim on the pod that keeps a prompt. It ends when the prompt is loaded, or by being dropped.
#[derive(Debug)]
pub struct Kept {
    lease: Option<(Box<Lease>, Usage)>,
    by: Arc<Prefill>,
    /// When it was computed.
    at: Time,
    /// How long the request had a pod until then.
    took: Duration,
}

impl Kept {
    fn of(computed: Computed, arrived: Time, by: Arc<Prefill>) -> Self {
        let Computed { lease, usage, .. } = computed;
        let at = lease.clock().now();
        let took = at.since(arrived).saturating_sub(lease.dispatch().waited);
        Self { lease: Some((lease, usage)), by, at, took }
    }

    /// How much of the time since its request came was no wait.
    pub(super) const fn took(&self) -> Duration {
        self.took
    }

    /// The first token came from the pod that answers, which has loaded it.
    pub(super) fn loaded(self, now: Time) {
        if self.lease.is_some() {
            self.by.handover.lock().took(now.since(self.at));
        }
    }

    /// Nobody will see when it is loaded, or it will not be.
    pub(super) fn let_go(&mut self) {
        if let Some((lease, usage)) = self.lease.take() {
            lease.end(EndKind::Complete, usage.completion_tokens, usage.prompt_tokens);
        }
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.let_go();
    }
}

/// Who computes the prompt of a call, if it is not the pod that answers.
pub(super) fn asked(
    hub: &Hub,
    upstream: &Upstream,
    call: &mut Call,
) -> Option<(Arc<Prefill>, RequestId)> {
    let prefill = call.prefill.take()?;
    let computes = prefill.0.computes(hub, &call.request);
    if !computes {
        upstream.metrics().prefilled(hub.model(), LOCAL);
    }
    computes.then_some(prefill)
}

/// Serves a request in two parts; or as it is, by a pod that answers, where such a one has room for all of it before one that prefills.
pub(super) async fn in_parts(
    hub: Arc<Hub>,
    upstream: &Arc<Upstream>,
    call: Call,
    (prefill, second_number): (Arc<Prefill>, RequestId),
) -> Served {
    let Call { mut onward, dialect, own_priority, request, known, objective, migrates, .. } = call;
    let how = How { dialect, own_priority, prefills: false };
    let migration = |request: &Request, onward: &PodRequest| {
        Migration::of((upstream, &hub), (request, onward), how, migrates)
    };
    let name = Known { request_id: known.request_id.clone(), trace: None };
    let names = (known, objective.clone());
    let facts = Facts::of((upstream, &hub), (&request, onward.body.len()), names);
    let Some(prompt) = prompt_alone(&onward.body) else {
        upstream.metrics().prefilled(hub.model(), LOCAL);
        let migration = migration(&request, &onward);
        let whole = Waiting::enter((upstream, &hub), (request, onward), how, facts);
        return finish(whole.with(migration)).await;
    };
    let mut held = Held::new(upstream, hub.clone(), facts);
    let half = request.prefill_half(prefill.handover.lock().expected());
    let facts = Facts::of((upstream, &prefill.hub), (&half, prompt.len()), (name, objective));
    let half = (half, onward.with_body(prompt));
    let prefills = How { prefills: true, ..how };
    let again = Migration::of((upstream, &prefill.hub), (&half.0, &half.1), prefills, migrates);
    let mut either = Either {
        prompt: Some(Waiting::enter((upstream, &prefill.hub), half, prefills, facts).with(again)),
        whole: None,
        waits_for_one: !prefill.overflow,
        asks_after: prefill.hub.lead().map(|_| Box::pin(sleep(ANSWERED))),
    };
    let whole = |facts| {
        let whole = Request { id: second_number, ..request.clone() };
        let migration = migration(&whole, &onward);
        Waiting::enter((upstream, &hub), (whole, onward.clone()), how, facts).with(migration)
    };
    let first = match poll_fn(|cx| either.poll(cx, &mut held, whole)).await {
        Taken::Prompt(going) => going.await,
        Taken::Whole(going) => {
            upstream.metrics().prefilled(hub.model(), LOCAL);
            return going.await;
        }
        Taken::Refused(fault, id) => return Err(held.unserved(fault, id)),
    };
    let mut first = match first {
        Ok(first) => first,
        // Nothing of it has reached a pod.
        Err(unserved) if matches!(unserved.fault, Fault::Refused(_)) => {
            upstream.metrics().prefilled(hub.model(), LOCAL);
            let migration = migration(&request, &onward);
            let whole = Waiting::enter((upstream, &hub), (request, onward), how, held.take());
            return finish(whole.with(migration)).await;
        }
        Err(unserved) => return Err(held.unserved(unserved.fault, unserved.id)),
    };
    if first.status() != StatusCode::OK {
        held.answered(first.status());
        return Ok(first);
    }
    let pod = first.headers().get(headers::POD).cloned();
    let computed = first.body_mut().take_computed();
    let params = computed.as_ref().and_then(|computed| place_of(&computed.said));
    upstream.metrics().prefilled(hub.model(), if params.is_some() { ELSEWHERE } else { LOST });
    let (mut facts, mut request) = (held.take(), request);
    let migration = migration(&request, &onward);
    if let Some(params) = &params {
        onward.body = spliced(&onward.body, PARAMS, params.get());
        request = request.decode_half();
    } else {
        prefill.says_nothing_of_prompts(&pod);
    }
    if let Some(computed) = computed {
        let mut kept = Kept::of(computed, request.arrived, prefill);
        if params.is_none() {
            kept.let_go();
        }
        facts.kept = Some(Box::new(kept));
    }
    let answer = Waiting::enter((upstream, &hub), (request, onward), how, facts);
    let mut served = finish(answer.with(migration)).await?;
    if let Some(pod) = pod.filter(|_| params.is_some()) {
        served.headers_mut().insert(PREFILL_POD, pod);
    }
    Ok(served)
}

/// Serves what has no choice any more.
async fn finish(mut waiting: Waiting<'_>) -> Served {
    match poll_fn(|cx| waiting.poll(cx)).await {
        Ok(given) => waiting.go(given).await,
        Err(refused) => Err(refused.unserved()),
    }
}

type Going<'a> = Pin<Box<dyn Future<Output = Served> + Send + 'a>>;

/// A request that waits for a pod that prefills and, where none took its prompt at once, for one that answers: whichever is first.
struct Either<'a> {
    prompt: Option<Waiting<'a>>,
    whole: Option<Waiting<'a>>,
    /// Whether it waits for no other pod than it does now.
    waits_for_one: bool,
    /// When it asks for one, if it is not at once.
    asks_after: Option<Pin<Box<Sleep>>>,
}

/// What came of that.
enum Taken<'a> {
    /// A pod that prefills takes its prompt.
    Prompt(Going<'a>),
    /// A pod that answers takes all of it.
    Whole(Going<'a>),
    /// Nobody will take it.
    Refused(Fault, RequestId),
}

impl<'a> Either<'a> {
    /// What is known of the request is held while nothing but its prompt waits.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        held: &mut Held<'a>,
        whole: impl Fn(Facts) -> Waiting<'a>,
    ) -> Poll<Taken<'a>> {
        if let Some(taken) = self.poll_prompt(cx, held) {
            return Poll::Ready(taken);
        }
        let mut asks_after = self.asks_after.iter_mut();
        if !self.waits_for_one && asks_after.all(|time| time.as_mut().poll(cx).is_ready()) {
            self.waits_for_one = true;
            self.whole = Some(whole(held.take()));
        }
        self.poll_whole(cx, held).map_or(Poll::Pending, Poll::Ready)
    }

    fn poll_prompt(&mut self, cx: &mut Context<'_>, held: &mut Held<'a>) -> Option<Taken<'a>> {
        let Poll::Ready(verdict) = self.prompt.as_mut()?.poll(cx) else { return None };
        let prompt = self.prompt.take()?;
        match verdict {
            Ok(given) => {
                held.give_back(self.whole.take().and_then(Waiting::withdraw));
                Some(Taken::Prompt(prompt.go(given)))
            }
            Err(_) if self.whole.is_some() || !self.waits_for_one => {
                self.asks_after = None;
                None
            }
            Err(refused) => {
                let (_, fault, id) = refused.told();
                Some(Taken::Refused(fault, id))
            }
        }
    }

    fn poll_whole(&mut self, cx: &mut Context<'_>, held: &mut Held<'a>) -> Option<Taken<'a>> {
        let Poll::Ready(verdict) = self.whole.as_mut()?.poll(cx) else { return None };
        let whole = self.whole.take()?;
        match verdict {
            Ok(given) => {
                self.prompt.take().and_then(Waiting::withdraw);
                Some(Taken::Whole(whole.go(given)))
            }
            Err(refused) if self.prompt.is_some() => {
                held.give_back(Some(refused.facts()));
                None
            }
            Err(refused) => {
                let (facts, fault, id) = refused.told();
                held.give_back(Some(facts));
                Some(Taken::Refused(fault, id))
            }
        }
    }
}

/// The body of a call for its prompt alone. `None` where it says itself where its prompt is, or is no object.
fn prompt_alone(body: &[u8]) -> Option<Bytes> {
    let mut members: BTreeMap<String, &RawValue> =
        serde_json::from_slice(without_mark(body)).ok()?;
    let own = members.get(PARAMS).is_some_and(|own| own.get() != "null");
    let (one, keep) = (to_raw_value(&1).ok()?, RawValue::from_string(KEEP.to_owned()).ok()?);
    members.retain(|name, _| !OF_THE_ANSWER.contains(&name.as_str()));
    members.insert(MOST_TOKENS.to_owned(), &one);
    let others = members.iter_mut().filter(|(name, _)| OTHER_BOUNDS.contains(&name.as_str()));
    others.for_each(|(_, bound)| *bound = &one);
    members.insert(PARAMS.to_owned(), &keep);
    let alone = serde_json::to_vec(&members).ok()?;
    (!own).then(|| alone.into())
}

/// Where an engine says that it keeps a prompt.
fn place_of(answer: &[u8]) -> Option<Box<RawValue>> {
    #[derive(Deserialize)]
    struct Answer<'a> {
        #[serde(borrow)]
        kv_transfer_params: Option<&'a RawValue>,
    }
    let answer: Answer<'_> = serde_json::from_slice(answer).ok()?;
    answer.kv_transfer_params.filter(|place| place.get().starts_with('{')).map(ToOwned::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn alone(body: &str) -> Option<Value> {
        Some(serde_json::from_slice(&prompt_alone(body.as_bytes())?).unwrap())
    }

    #[test]
    fn a_prompt_is_asked_for_with_one_token_that_is_not_streamed() {
        let asked = alone(
            "\u{feff}{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"caf\\u00e9\"}],\"stream\":true,\"min_tokens\":5,\
             \"stream_options\":{\"include_usage\":true},\"max_completion_tokens\":700}",
        );
        let keep: Value = serde_json::from_str(KEEP).unwrap();
        let want = json!({
            "model": "m",
            "messages": [{"role": "user", "content": "caf\u{e9}"}],
            "max_tokens": 1,
            "max_completion_tokens": 1,
            "min_tokens": 1,
            "kv_transfer_params": keep,
        });
        assert_eq!(asked, Some(want));
        let short = alone(r#"{"prompt":"a","max_tokens":90,"kv_transfer_params":null}"#);
        let want = json!({"prompt": "a", "max_tokens": 1, "kv_transfer_params": keep});
        assert_eq!(short, Some(want));
    }

    #[test]
    fn who_says_where_the_prompt_is_has_it_computed_nowhere() {
        assert_eq!(
            alone(r#"{"prompt":"a","kv_transfer_params":{"do_remote_prefill":true}}"#),
            None
        );
        assert_eq!(alone("[1]"), None);
    }

    #[test]
    fn where_a_prompt_is_passes_as_the_engine_says_it() {
        let place = |answer: &str| place_of(answer.as_bytes()).map(|place| place.get().to_owned());
        let said =
            r#"{"id":"x","kv_transfer_params":{"remote_block_ids":[1, 2], "remote_port":5600}}"#;
        let want = r#"{"remote_block_ids":[1, 2], "remote_port":5600}"#;
        assert_eq!(place(said).as_deref(), Some(want));
        for nowhere in [
            r#"{"id":"x"}"#,
            r#"{"kv_transfer_params":null}"#,
            r#"{"kv_transfer_params":7}"#,
            "<html>",
        ] {
            assert_eq!(place(nowhere), None, "{nowhere}");
        }
    }
}
