//! The file as it is written: the parts of all modules in one shape.

use std::{collections::BTreeMap, sync::Arc};

use schemars::{JsonSchema, Schema, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use weir_core::{
    BucketEdges, NeedConfig, PullConfig, SchedulerConfig,
    decide::failover::{Place, Places},
};

use super::{Problems, RawPolicy};
use crate::{
    admin::config::RawAdmin,
    api::config::{RawApi, RawKey, RawLimits, RawObjective},
    fleet::config::{RawClass, RawDns, RawPod, RawScrape, Seat},
    learn::config::{RawModel, RawSpool, RawTrainer},
    replicas::RawReplicas,
    shutdown::RawShutdown,
    state::config::RawState,
    telemetry::{compat::RawTelemetry, log::RawLog},
    tls::{RawPodsTls, RawTls},
    upstream::RawUpstream,
};

/// Configuration of the dispatcher. Every key may be left out except `pools`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(title = "Configuration of Weir")]
#[schemars(transform = required(&["pools"]))]
pub struct RawConfig {
    /// Address of the OpenAI API.
    pub listen: String,
    /// Its certificate; absent: it is spoken to in the clear.
    pub tls: Option<RawTls>,
    /// Threads of the data plane.
    #[schemars(range(min = 1, max = 256))]
    pub threads: usize,
    /// The admin listener.
    pub admin: RawAdmin,
    /// Pod classes. A pod names its class; the first one is meant when it does not.
    pub classes: Vec<RawClass>,
    /// Models and their pods.
    // Without this a file that names no pools would get those of the default.
    #[serde(default = "Vec::<RawPool>::new")]
    pub pools: Vec<RawPool>,
    /// Objectives by name.
    pub objectives: BTreeMap<String, RawObjective>,
    /// The objective of requests that ask for none.
    pub default_objective: String,
    /// Objectives by the value of the body's `service_tier`.
    pub service_tiers: BTreeMap<String, String>,
    /// Accepted keys. Empty: everybody is let in, and headers are trusted.
    pub keys: Vec<RawKey>,
    /// Origins whose web pages may call, as browsers write them (`https://app.example`), or `*` for any. Empty: none may.
    pub cors_origins: Vec<String>,
    /// Bounds on what a client may send.
    pub limits: RawLimits,
    /// Bounds on what may wait, for each pool.
    pub queue: RawQueue,
    /// How requests are grouped into lanes.
    pub patterns: RawPatterns,
    /// Parameters of the pull loop.
    pub pull: PullConfig,
    /// How pods are scraped.
    pub scrape: RawScrape,
    /// The way to the pods.
    pub upstream: RawUpstream,
    /// Other dispatchers in front of the same pods.
    pub replicas: RawReplicas,
    /// What outlives the process.
    pub state: RawState,
    /// Where models come from.
    pub model: RawModel,
    /// Where samples go.
    pub spool: RawSpool,
    /// How models are trained.
    pub trainer: RawTrainer,
    /// What is told to those who watch.
    pub telemetry: RawTelemetry,
    /// What is logged.
    pub log: RawLog,
    /// How the dispatcher stops.
    pub shutdown: RawShutdown,
}

impl Default for RawConfig {
    /// One simulated pod on this machine: what config/weir.yaml says.
    fn default() -> Self {
        let class = "h100-qwen3-32b-tp2";
        let api = RawApi::default();
        Self {
            listen: "127.0.0.1:8080".to_owned(),
            tls: None,
            threads: 1,
            admin: RawAdmin::default(),
            classes: vec![RawClass { name: class.to_owned(), ..RawClass::default() }],
            pools: vec![RawPool::local_example(class)],
            objectives: api.objectives,
            default_objective: api.default_objective,
            service_tiers: api.service_tiers,
            keys: api.keys,
            cors_origins: api.cors_origins,
            limits: api.limits,
            queue: RawQueue::default(),
            patterns: RawPatterns::default(),
            pull: PullConfig::default(),
            scrape: RawScrape::default(),
            upstream: RawUpstream::default(),
            replicas: RawReplicas::default(),
            state: RawState::default(),
            model: RawModel::default(),
            spool: RawSpool::default(),
            trainer: RawTrainer::default(),
            telemetry: RawTelemetry::default(),
            log: RawLog::default(),
            shutdown: RawShutdown::default(),
        }
    }
}

impl RawConfig {
    /// The same without TLS, for who opens no connection: keys of certificates are for nobody else to read.
    pub fn in_the_clear(&self) -> Self {
        let mut clear = Self { tls: None, ..self.clone() };
        clear.admin.tls = None;
        for pool in &mut clear.pools {
            pool.tls = None;
            pool.pods.iter_mut().for_each(RawPod::clear);
            pool.dns.iter_mut().for_each(|dns| dns.https = false);
        }
        clear
    }

    /// The data API's part.
    pub fn api(&self) -> RawApi {
        RawApi {
            objectives: self.objectives.clone(),
            default_objective: self.default_objective.clone(),
            service_tiers: self.service_tiers.clone(),
            keys: self.keys.clone(),
            cors_origins: self.cors_origins.clone(),
            limits: self.limits.clone(),
        }
    }
}

/// The JSON schema of the file, as shipped in config/weir.schema.json.
pub fn schema() -> String {
    let text = serde_json::to_string_pretty(&whole_schema()).unwrap_or_default();
    text + "\n"
}

/// The same before it is written.
pub(super) fn whole_schema() -> Schema {
    let mut schema = schemars::schema_for!(RawConfig);
    schema.ensure_object().values_mut().for_each(shorten);
    schema
}

/// Writes numbers of 32 bits as short as people do: 0.2, and not 0.20000000298023224.
fn shorten(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(shorten),
        Value::Object(members) => members.values_mut().for_each(shorten),
        Value::Number(number) if number.is_f64() => {
            let long = number.as_f64().unwrap_or_default();
            let short = long as f32;
            if f64::from(short) == long
                && let Ok(Value::Number(shorter)) = serde_json::from_str(&format!("{short:?}"))
            {
                *number = shorter;
            }
        }
        _ => {}
    }
}

/// The pods that serve one model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(transform = required(&["model"]))]
pub struct RawPool {
    /// The model's name in requests.
    pub model: String,
    /// Further names it is asked for by.
    pub aliases: Vec<String>,
    /// LoRA adapters of the model that its pods serve, each by the name it is asked for by.
    pub adapters: Vec<String>,
    /// Tokens of a prompt and its answer together that the model takes (vLLM: --max-model-len), for clients to read in `GET
    /// /v1/models`; absent: it is not told there.
    #[schemars(range(min = 1))]
    pub max_model_len: Option<u32>,
    /// Variable of the environment that holds the key which its pods ask for (vLLM: --api-key). They get it in the place of what a
    /// request has; absent: a request's own goes on, where there are no `keys`.
    pub pods_key_env: Option<String>,
    /// Who decides: a preset, or a mapping that starts from one and replaces parts.
    pub policy: RawPolicy,
    /// Who decides on requests with the header `x-prediction-based-scheduling: true`; absent: as above.
    pub policy_by_header: Option<RawPolicy>,
    /// The objective of requests that ask for none; absent: that of all pools.
    pub default_objective: Option<String>,
    /// Requests in flight that a pod of a class without a profile carries, for policies that count
    /// capacity; above 0.
    pub default_capacity: f64,
    /// Where its prompts are computed, if other pods do that for its own (vLLM: disaggregated prefill); absent: by its pods.
    pub prefill: Option<RawPrefill>,
    /// How often a request may go on at another pod when the one that had it is lost; 0: never. A stream goes on where it was broken
    /// off (vLLM: continue_final_message).
    #[schemars(range(max = 16))]
    pub migration_limit: u32,
    /// What is asked of it by whoever starts and stops its pods: when weir_pods_needed says that there are enough.
    pub autoscale: NeedConfig,
    /// How those of its pods are spoken to that are at `https://`; absent: by what this machine trusts.
    pub tls: Option<RawPodsTls>,
    /// Pods at fixed addresses.
    pub pods: Vec<RawPod>,
    /// Pods found by DNS, instead of or beside `pods`.
    pub dns: Option<RawDns>,
}

impl Default for RawPool {
    fn default() -> Self {
        Self {
            model: String::new(),
            aliases: vec![],
            adapters: vec![],
            max_model_len: None,
            pods_key_env: None,
            policy: RawPolicy::default(),
            policy_by_header: None,
            default_objective: None,
            default_capacity: SchedulerConfig::default().default_capacity,
            prefill: None,
            migration_limit: 0,
            autoscale: NeedConfig::default(),
            tls: None,
            pods: vec![],
            dns: None,
        }
    }
}

impl RawPool {
    fn local_example(class: &str) -> Self {
        let pod = RawPod {
            name: Some("pod-0".to_owned()),
            url: "http://127.0.0.1:18001".to_owned(),
            class: Some(class.to_owned()),
            ..RawPod::default()
        };
        Self { model: "qwen3-32b".to_owned(), pods: vec![pod], ..Self::default() }
    }

    /// Where those of its pods stand that are listed, by the names of `seats`. The engines of a server stand and fall with it.
    pub fn places(&self, seats: &[Seat]) -> Places {
        let place = |seat: &Seat| {
            let server = &*seat.server;
            let pod = self.pods.iter().find(|pod| pod.shown_name() == server)?;
            let text = |text: Option<&str>| Arc::from(text.unwrap_or_default());
            let unit = pod.unit.as_deref().or(seat.is_engine().then_some(server));
            let place = Place { node: text(pod.node.as_deref()), unit: text(unit) };
            Some((seat.name.clone(), place))
        };
        seats.iter().filter_map(place).collect()
    }
}

/// The pool whose pods compute the prompts of another one. Both serve the same model, with a KV connector, and take the same names of
/// it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(transform = required(&["pool"]))]
pub struct RawPrefill {
    /// Its `model`: a name that no client asks for.
    pub pool: String,
    /// A prompt of which a pod that answers has fewer tokens to compute is computed there, and is not loaded from another.
    pub local_tokens: u32,
    /// Whether a prompt that no pod prefills at once may go to a pod that answers, where that has room for it first.
    pub overflow: bool,
}

impl Default for RawPrefill {
    fn default() -> Self {
        Self { pool: String::new(), local_tokens: weir_core::halves::LOCAL_TOKENS, overflow: true }
    }
}

/// Bounds on what may wait in a pool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RawQueue {
    /// Most requests waiting.
    #[schemars(range(min = 1))]
    pub max_requests: usize,
    /// Most body bytes waiting; not below `limits.max_body_bytes`.
    pub max_bytes: u64,
    /// Seconds a sheddable request may be predicted to wait when it arrives; less where its TTFT objective is less.
    #[schemars(range(min = 0, max = 86_400))]
    pub max_predicted_wait_s: f64,
    /// Seconds any request waits at most.
    #[schemars(range(min = 0, max = 86_400))]
    pub max_wait_s: f64,
    /// Seconds a request waits at most once it cannot be in time any more, counted from its arrival.
    #[schemars(range(min = 0, max = 86_400))]
    pub max_wait_late_s: f64,
    /// Seconds a request waits at most while no pod is ready.
    #[schemars(range(min = 0, max = 86_400))]
    pub max_wait_no_pods_s: f64,
}

impl Default for RawQueue {
    fn default() -> Self {
        let bounds = weir_core::Bounds::default();
        Self {
            max_requests: bounds.max_requests,
            max_bytes: bounds.max_bytes,
            max_predicted_wait_s: bounds.max_predicted_wait.as_secs_f64(),
            max_wait_s: bounds.max_wait.as_secs_f64(),
            max_wait_late_s: bounds.max_wait_late.as_secs_f64(),
            max_wait_no_pods_s: bounds.max_wait_no_pods.as_secs_f64(),
        }
    }
}

/// How requests are grouped: those that cost alike wait in one lane.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RawPatterns {
    /// Upper edges of the buckets of input tokens, ascending and above 0, at most 32.
    pub input_tokens: Vec<u32>,
    /// Upper edges of the buckets of predicted output tokens, ascending and above 0, at most 32.
    pub output_tokens: Vec<u32>,
}

impl Default for RawPatterns {
    fn default() -> Self {
        let BucketEdges { input, output } = BucketEdges::default();
        Self { input_tokens: input, output_tokens: output }
    }
}

impl RawPatterns {
    /// Most edges of one kind: each pair of buckets is a lane, and a pass looks at every lane's head.
    const MOST: usize = 32;

    /// The validated form.
    pub fn check(&self, problems: &mut Problems) -> BucketEdges {
        for (name, edges) in
            [("input_tokens", &self.input_tokens), ("output_tokens", &self.output_tokens)]
        {
            let ascending = edges.is_sorted_by(|one, next| one < next);
            let sane = ascending && !edges.contains(&0) && edges.len() <= Self::MOST;
            let why =
                format!("must be at most {} numbers above 0, each above the last", Self::MOST);
            problems.require(sane, &format!("patterns.{name}"), &why);
        }
        BucketEdges { input: self.input_tokens.clone(), output: self.output_tokens.clone() }
    }
}

/// Says in a mapping's schema that these keys must be there, whatever they are when they are left out.
pub fn required(names: &'static [&'static str]) -> impl FnMut(&mut Schema) {
    move |schema| {
        for name in names {
            let property = schema.pointer_mut(&format!("/properties/{name}"));
            if let Some(Value::Object(property)) = property {
                property.remove("default");
            }
        }
        schema.insert("required".to_owned(), json!(names));
    }
}

/// The schema of a text that is one of `words`.
pub fn choice(words: &[&str]) -> Schema {
    json_schema!({ "type": "string", "enum": words })
}
