//! A call's way from its head to the pool that serves it.
//!
//! Order: path and method, key, rate, body, facts, pool, terms, [`serve`](crate::upstream::serve()). The cheap
//! refusals come first, and nothing of a body is kept for a client that is not let in.

mod door;

use std::{convert::Infallible, io, ops::Range, rc::Rc, sync::Arc};

use arc_swap::ArcSwap;
use bytes::Bytes;
use door::Door;
use futures_util::FutureExt;
use governor::clock::MonotonicClock;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use http_body_util::{Either, Full};
use hyper::service::service_fn;
use weir_core::{Request as CoreRequest, RequestId, Time};

use super::{
    auth::Key,
    config::ApiConfig,
    cors::Cors,
    endpoint::Endpoint,
    error::ApiError,
    headers::{REQUEST_ID, RequestIds},
    limit::{Limiter, Standing},
    models::{Catalogue, NameTaken, Names, Served},
    objective::{self, House},
    peek::{Peek, Unreadable, peek},
    plane::{Plane, PlaneConfig},
    reading::Reading,
    wait,
};
use crate::{
    budget::Memory,
    clock::Clock,
    hub::Hub,
    telemetry::{Metrics, spans::Tracer},
    upstream::{Dialect, Prefill, RelayBody, Upstream, UpstreamConfig},
};

/// The body of an answer: a pod's, or one of our own.
pub type AnswerBody = Either<RelayBody, Full<Bytes>>;

/// A pool of the configuration.
pub struct Pool {
    /// Its hub; it knows the model.
    pub hub: Arc<Hub>,
    /// Further names of the model.
    pub aliases: Vec<Arc<str>>,
    /// Adapters of the model.
    pub adapters: Vec<Arc<str>>,
    /// Tokens that the model takes, as clients are told.
    pub max_model_len: Option<u32>,
    /// What it says of the terms of its requests.
    pub house: House,
    /// What its pods are told in `Authorization`; `None`: what a request has.
    pub pods_key: Option<HeaderValue>,
    /// Who computes its prompts; `None`: its pods do.
    pub prefill: Option<Arc<Prefill>>,
    /// How often a request may go on at another pod when its own is lost.
    pub migration_limit: u32,
    /// Whether it computes those of another pool, and nobody else asks it for anything.
    pub prefills: bool,
}

/// What all threads of the data plane share.
pub struct Api {
    /// Replaced as a whole: a call goes by one of them from its head to its verdict.
    settings: ArcSwap<Settings>,
    ids: RequestIds,
    clock: Clock,
    metrics: Arc<Metrics>,
    /// When the models came to be, for their list.
    created_unix_s: u64,
    tracer: Tracer,
    /// What large bodies take while they are being read, before they count for a queue.
    reading: Reading,
}

/// What a reload of the configuration may change.
struct Settings {
    config: ApiConfig,
    catalogue: Catalogue,
    pools: Vec<Place>,
    limiter: Limiter,
}

/// Where a pool's requests go, and on what terms.
struct Place {
    hub: Arc<Hub>,
    house: House,
    pods_key: Option<HeaderValue>,
    prefill: Option<Arc<Prefill>>,
    migration_limit: u32,
}

impl Settings {
    fn new(
        config: ApiConfig,
        pools: Vec<Pool>,
        created_unix_s: u64,
        before: Option<&Limiter>,
    ) -> Result<Self, NameTaken> {
        let names = |pool: &Pool| Names {
            model: pool.hub.model().clone(),
            aliases: pool.aliases.clone(),
            adapters: pool.adapters.clone(),
            max_model_len: pool.max_model_len,
            hidden: pool.prefills,
        };
        let names: Vec<Names> = pools.iter().map(names).collect();
        let catalogue = Catalogue::new(&names, created_unix_s)?;
        let own_rates = config.keys.iter().filter_map(|key| key.rate);
        let (rate, most) = (config.limits.rate, config.limits.max_tenants);
        let limiter = Limiter::following(before, rate, own_rates, most, MonotonicClock);
        let place = |pool: Pool| {
            let Pool { hub, house, pods_key, prefill, migration_limit, .. } = pool;
            Place { hub, house, pods_key, prefill, migration_limit }
        };
        let pools = pools.into_iter().map(place).collect();
        Ok(Self { config, catalogue, pools, limiter })
    }

    /// Lets a call in, by its head alone.
    fn admit(&self, headers: &HeaderMap) -> Result<Guest<'_>, ApiError> {
        let key = self.config.keys.admit(headers)?;
        let tenant = objective::tenant(headers, key);
        let standing = self.limiter.count(key.and_then(|key| key.rate), tenant.as_ref())?;
        Ok(Guest { settings: self, key, tenant, standing })
    }

    /// Where a model is served, or what names none.
    fn serving(&self, model: Option<&str>) -> Result<(&Place, &Served), ApiError> {
        let served = model.map_or_else(|| self.catalogue.only(), |name| self.catalogue.find(name));
        let place = served.and_then(|served| Some((self.pools.get(served.pool)?, served)));
        place.ok_or_else(|| match model {
            Some(name) => ApiError::UnknownModel(shown(name)),
            None => Unreadable::NoModel.into(),
        })
    }
}

/// Starts the data plane.
///
/// # Errors
/// See [`Plane::start`].
pub fn start(plane: PlaneConfig, api: &Arc<Api>, upstream: UpstreamConfig) -> io::Result<Plane> {
    let api = api.clone();
    let misread = {
        let api = api.clone();
        move |status| api.misread(status)
    };
    let memory = Memory::of(upstream.max_buffered_bytes);
    Plane::start((plane, memory.clone()), misread, move |closing| {
        let way = Upstream::new(upstream, api.metrics.clone())
            .until(closing.clone())
            .within(memory.clone());
        let way = Arc::new(way);
        let cors = Cors::of(&api.settings.load().config.cors_origins);
        let door = Rc::new(Door { api: api.clone(), upstream: way, cors });
        service_fn(move |request| door.answer(request).map(Ok::<_, Infallible>))
    })
}

/// Before the name of a model.
const MODEL: &str = "/v1/models/";

/// What a path is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Route {
    Serve(Endpoint),
    Models,
    /// The model whose name follows the path, as it stands in the URL.
    Model,
    Health,
    /// A browser asks whether a page may call.
    Preflight,
}

fn route(method: &Method, path: &str) -> Result<Route, ApiError> {
    let (route, allowed) = match path {
        "/v1/models" => (Route::Models, "GET, HEAD"),
        "/health" => (Route::Health, "GET, HEAD"),
        _ if path.starts_with(MODEL) => (Route::Model, "GET, HEAD"),
        _ => (Route::Serve(Endpoint::of(path).ok_or(ApiError::NoSuchPath)?), "POST"),
    };
    if allowed.split(", ").any(|allowed| method.as_str() == allowed) {
        Ok(route)
    } else {
        Err(ApiError::WrongMethod(allowed))
    }
}

/// A call that was let in.
struct Guest<'a> {
    settings: &'a Settings,
    key: Option<&'a Key>,
    tenant: Option<Arc<str>>,
    standing: Option<Standing>,
}

/// A call whose body was read: where it goes and on what terms.
struct Admission {
    hub: Arc<Hub>,
    objective: Arc<str>,
    request: CoreRequest,
    /// What the pod is told in `Authorization`, if that is not the request's own.
    pods_key: Option<HeaderValue>,
    /// Who may compute its prompt for the pod that answers.
    prefill: Option<Arc<Prefill>>,
    /// How often it may go on at another pod.
    migration_limit: u32,
    /// The body that goes on.
    body: Bytes,
    /// Whether it has a priority of its own.
    own_priority: bool,
}

impl Guest<'_> {
    /// The body that goes on if it is another one, and whether it has a priority of its own: the client's, whose
    /// key allows it. Any other is cut out, or its client would decide who goes first in the engine; and so is where a prompt is to be
    /// loaded from, or its client could have others' prompts.
    fn onward(&self, endpoint: Endpoint, body: &Bytes, facts: &Peek<'_>) -> (Option<Bytes>, bool) {
        let transfer = facts.kv_transfer.clone();
        let cut = transfer.filter(|_| self.key.is_some_and(|key| !key.trust_headers));
        let cut = cut.map(|place| without(body, place));
        let priority = match &cut {
            Some(cut) => peek(endpoint, cut).ok().and_then(|facts| facts.priority),
            None => facts.priority.clone(),
        };
        match priority {
            Some(_) if self.key.is_some_and(|key| key.allow_priority) => (cut, true),
            Some(place) => (Some(without(cut.as_ref().unwrap_or(body), place)), false),
            None => (cut, false),
        }
    }
}

/// A body without some of its bytes.
fn without(body: &Bytes, place: Range<usize>) -> Bytes {
    let before = body.get(..place.start).unwrap_or_default();
    let after = body.get(place.end..).unwrap_or_default();
    [before, after].concat().into()
}

impl Api {
    /// An API over these pools.
    ///
    /// # Errors
    /// When two pools share a name.
    pub fn new(
        config: ApiConfig,
        pools: Vec<Pool>,
        clock: Clock,
        metrics: Arc<Metrics>,
    ) -> Result<Self, NameTaken> {
        let created_unix_s = clock.unix_ms() / 1000;
        let settings = ArcSwap::from_pointee(Settings::new(config, pools, created_unix_s, None)?);
        let (ids, tracer) = (RequestIds::new(), Tracer::default());
        let reading = Reading::default();
        Ok(Self { settings, ids, clock, metrics, created_unix_s, tracer, reading })
    }

    /// The same, with traces of requests by this.
    #[must_use]
    pub fn with_tracer(self, tracer: Tracer) -> Self {
        Self { tracer, ..self }
    }

    /// Goes by another configuration from the next call on. Rates that it has too go on counting.
    ///
    /// # Errors
    /// When two pools share a name; then nothing changes.
    pub fn adopt(&self, config: ApiConfig, pools: Vec<Pool>) -> Result<(), NameTaken> {
        let before = self.settings.load_full();
        let after = Settings::new(config, pools, self.created_unix_s, Some(&before.limiter))?;
        self.settings.store(Arc::new(after));
        Ok(())
    }

    /// Reads a body's facts and settles the terms.
    fn consider(
        &self,
        endpoint: Endpoint,
        headers: &HeaderMap,
        guest: &Guest<'_>,
        body: Bytes,
        (number, name): (u64, &HeaderValue),
    ) -> Result<Admission, ApiError> {
        let arrived = self.clock.now();
        let facts = peek(endpoint, &body)?;
        let settings = guest.settings;
        let (place, served) = settings.serving(facts.model.as_deref())?;
        let Place { hub, house, pods_key, prefill, migration_limit } = place;
        let tier = facts.service_tier.as_deref();
        let terms = settings.config.objectives.terms(headers, tier, guest.key, house)?;
        if terms.unknown {
            self.metrics.unknown_objective(hub.model());
        }
        let wait = wait::asked(headers)?;
        let (cut, own_priority) = guest.onward(endpoint, &body, &facts);
        let (blocks, turn) = facts.named_as(&served.cached_as);
        let request = CoreRequest {
            id: RequestId(number),
            arrived,
            prompt: facts.prompt,
            max_output_tokens: facts.max_output_tokens,
            sequences: facts.sequences,
            slo: terms.slo,
            band: terms.band,
            tenant: guest.tenant.clone(),
            body_bytes: u32::try_from(cut.as_ref().unwrap_or(&body).len()).unwrap_or(u32::MAX),
            blocks,
            turn,
            streamed: facts.streamed,
            expires: wait.ttl.map_or(Time::NEVER, |ttl| arrived.plus(ttl)),
            immediate: wait.immediate,
            by_header: terms.by_header,
            prefilled: false,
            adapter: served.adapter.clone(),
            name: Arc::from(name.to_str().unwrap_or_default()),
        };
        let (hub, objective, body) = (hub.clone(), terms.objective, cut.unwrap_or(body));
        let pods_key = pods_key.clone();
        let apart = endpoint.answers_apart() && request.sequences == 1;
        let prefill = prefill.clone().filter(|_| apart);
        // What was said before is known by its name to the pod that said it.
        let migration_limit = if endpoint == Endpoint::Responses { 0 } else { *migration_limit };
        Ok(Admission {
            hub,
            objective,
            request,
            pods_key,
            prefill,
            migration_limit,
            body,
            own_priority,
        })
    }

    /// Turns a call that failed before its model was known into its answer.
    fn reject(&self, error: &ApiError, number: u64, dialect: Dialect) -> Response<Full<Bytes>> {
        self.refuse(error, (number, dialect), NONE, NONE)
    }

    /// The answer to what could not be read as a request.
    fn misread(&self, status: StatusCode) -> Response<Full<Bytes>> {
        let number = self.ids.number();
        let mut response = self.reject(&ApiError::Misread(status), number, Dialect::Other);
        response.headers_mut().insert(REQUEST_ID, self.ids.name(&HeaderMap::new(), number));
        response
    }

    /// Counts a call that failed, and turns it into its answer.
    fn refuse(
        &self,
        error: &ApiError,
        (number, dialect): (u64, Dialect),
        model: &str,
        objective: &str,
    ) -> Response<Full<Bytes>> {
        let status = error.status().as_u16();
        self.metrics.request_done(model, objective, error.outcome(), status);
        error.response(self.ids.jitter(number), dialect)
    }
}

/// The label of a call that was refused before its model or objective was known.
const NONE: &str = "none";

/// Longest name of an unknown model that is repeated to the client.
const SHOWN_CHARS: usize = 100;

fn shown(model: &str) -> String {
    model.chars().take(SHOWN_CHARS).collect()
}

#[cfg(test)]
mod tests;
