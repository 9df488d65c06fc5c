//! One thread's way of a call: from its head to its answer.

use std::{future::ready, rc::Rc, sync::Arc};

use bytes::Bytes;
use futures_util::FutureExt;
use http::{
    HeaderMap, HeaderValue, Request, Response,
    header::{AUTHORIZATION, CONTENT_TYPE},
    request::Parts,
    uri::PathAndQuery,
};
use http_body::Body;
use http_body_util::{Either, Full};
use percent_encoding::percent_decode_str;
use weir_core::RequestId;

use super::{Admission, AnswerBody, Api, MODEL, Route, route, shown};
use crate::{
    api::{
        body,
        cors::{self, Cors},
        endpoint::Endpoint,
        error::{ApiError, add_standing},
        headers::{self, REQUEST_ID},
        limit::Standing,
    },
    h1::PodRequest,
    hub::Hub,
    telemetry::{spans::span, trace::Known},
    upstream::{self, Call, Dialect, Migrates, Unserved, Upstream},
};

/// A call that was read.
struct Received {
    id: HeaderValue,
    standing: Option<Standing>,
    /// Who serves it and what is served, or its answer.
    call: Result<(Arc<Hub>, Call), Response<AnswerBody>>,
}

/// One thread's side of the API.
pub(super) struct Door {
    pub(super) api: Arc<Api>,
    pub(super) upstream: Arc<Upstream>,
    /// Which web pages may call; `None`: none.
    pub(super) cors: Option<Cors>,
}

impl Door {
    /// Answers a call.
    ///
    /// No `async fn`, which would keep the request beside what becomes of it: what it takes to read the call is boxed and
    /// gone when the wait for a pod begins.
    pub(super) fn answer<B>(
        self: &Rc<Self>,
        request: Request<B>,
    ) -> impl Future<Output = Response<AnswerBody>> + use<B>
    where
        B: Body<Data = Bytes>,
    {
        let door = self.clone();
        let page = self.cors.as_ref().and_then(|cors| cors.origin(request.headers()));
        let receiving = Box::pin(self.clone().receive(request));
        async move {
            let Received { id, standing, call } = receiving.await;
            let mut response = door.respond(call).await;
            if let Some(standing) = standing {
                add_standing(response.headers_mut(), standing);
            }
            response.headers_mut().insert(REQUEST_ID, id);
            if door.cors.is_some() {
                cors::show(response.headers_mut(), page);
            }
            response
        }
    }

    /// Reads a call, or answers it at once. No `async fn`, which would keep the request beside its parts.
    fn receive<B>(self: Rc<Self>, request: Request<B>) -> impl Future<Output = Received> + use<B>
    where
        B: Body<Data = Bytes>,
    {
        let (mut head, body) = request.into_parts();
        async move {
            let number = self.api.ids.number();
            let id = self.api.ids.name(&head.headers, number);
            let mut standing = None;
            let dialect = Dialect::of(head.uri.path());
            let is_preflight = |cors: &Cors| cors.is_preflight(&head.method, &head.headers);
            let route = match self.cors.as_ref().is_some_and(is_preflight) {
                true => Ok(Route::Preflight),
                false => route(&head.method, head.uri.path()),
            };
            let call = match route {
                Ok(Route::Serve(endpoint)) => {
                    let name = (number, &id);
                    let taken = self.take(endpoint, &mut head, body, name, &mut standing).await;
                    taken.map_err(|error| self.api.reject(&error, number, dialect))
                }
                Ok(route @ (Route::Models | Route::Model)) => {
                    body::discard(&head.headers, body).await;
                    let name = (route == Route::Model).then(|| head.uri.path());
                    let answer = self.models(&head.headers, name);
                    Err(answer.unwrap_or_else(|error| self.api.reject(&error, number, dialect)))
                }
                Ok(Route::Health) => Err(Response::default()),
                Ok(Route::Preflight) => Err(cors::preflight(&head.headers)),
                Err(error) => {
                    body::discard(&head.headers, body).await;
                    Err(self.api.reject(&error, number, dialect))
                }
            };
            Received { id, standing, call: call.map_err(|answer| answer.map(Either::Right)) }
        }
    }

    /// All models, or the one of a path.
    pub(super) fn models(
        &self,
        headers: &HeaderMap,
        path: Option<&str>,
    ) -> Result<Response<Full<Bytes>>, ApiError> {
        let settings = self.api.settings.load();
        settings.config.keys.admit(headers)?;
        let json = match path.and_then(|path| path.strip_prefix(MODEL)) {
            None => settings.catalogue.json(),
            Some(name) => {
                // A name may have a slash, which clients write as it is or encoded.
                let name = percent_decode_str(name).decode_utf8_lossy();
                let served = settings.catalogue.find(&name);
                served.ok_or_else(|| ApiError::UnknownModel(shown(&name)))?.json.clone()
            }
        };
        let mut response = Response::new(Full::new(json));
        let json = HeaderValue::from_static("application/json");
        response.headers_mut().insert(CONTENT_TYPE, json);
        Ok(response)
    }

    /// Reads the body and everything in it that matters. The standing of a client that was let in is told whatever
    /// becomes of the rest.
    async fn take<B>(
        &self,
        endpoint: Endpoint,
        head: &mut Parts,
        body: B,
        name: (u64, &HeaderValue),
        standing: &mut Option<Standing>,
    ) -> Result<(Arc<Hub>, Call), ApiError>
    where
        B: Body<Data = Bytes>,
    {
        let settings = self.api.settings.load_full();
        let admitted = if headers::has_one_host(&head.headers, head.version) {
            settings.admit(&head.headers)
        } else {
            Err(ApiError::Hosts)
        };
        let guest = match admitted {
            Ok(guest) => guest,
            Err(error) => {
                body::discard(&head.headers, body).await;
                return Err(error);
            }
        };
        *standing = guest.standing;
        let (limits, reading) = (&settings.config.limits, &self.api.reading);
        let body = body::read(&head.headers, body, limits, reading).await?;
        let admission = self.api.consider(endpoint, &head.headers, &guest, body, name)?;
        Ok(self.call(head, admission, !settings.config.keys.is_empty()))
    }

    /// What is to be served, and by which pool.
    fn call(
        &self,
        head: &mut Parts,
        admission: Admission,
        keys_are_ours: bool,
    ) -> (Arc<Hub>, Call) {
        let Admission {
            hub,
            objective,
            request,
            pods_key,
            prefill,
            migration_limit: limit,
            body,
            own_priority,
        } = admission;
        let own = (self.api.ids.random(), request.id.0);
        let trace = self.api.tracer.of(&mut head.headers, own, || span::Call {
            method: head.method.clone(),
            path: head.uri.path().into(),
            model: hub.model().clone(),
            objective: objective.clone(),
            request_id: request.name.clone(),
            arrived: request.arrived,
        });
        let path = head.uri.path_and_query().map_or("/", PathAndQuery::as_str);
        let pods_key = pods_key.as_ref().map(|key| (AUTHORIZATION.as_str(), key.as_bytes()));
        let keys_stay = keys_are_ours || pods_key.is_some();
        let headers = headers::onward(&head.headers, keys_stay).chain(pods_key);
        let call = Call {
            onward: PodRequest::new(&head.method, path, headers, body),
            dialect: Dialect::of(head.uri.path()),
            own_priority,
            known: Known { request_id: request.name.clone(), trace },
            request,
            objective,
            prefill: prefill.map(|by| (by, RequestId(self.api.ids.number()))),
            migrates: (limit > 0)
                .then(|| Migrates { limit, first: RequestId(self.api.ids.numbers(limit)) }),
        };
        (hub, call)
    }

    /// Has a call served that was not answered at once. Given away as a whole, it leaves nothing in who waits.
    fn respond(
        &self,
        call: Result<(Arc<Hub>, Call), Response<AnswerBody>>,
    ) -> impl Future<Output = Response<AnswerBody>> + use<'_> {
        match call {
            Ok((hub, call)) => self.dispatch(hub, call).left_future(),
            Err(answer) => ready(answer).right_future(),
        }
    }

    /// Has the pool serve it.
    fn dispatch(
        &self,
        hub: Arc<Hub>,
        call: Call,
    ) -> impl Future<Output = Response<AnswerBody>> + use<'_> {
        let dialect = call.dialect;
        upstream::serve(&hub, &self.upstream, call).map(move |served| match served {
            Ok(response) => response.map(Either::Left),
            Err(unserved) => {
                let Unserved { fault, id, mut known, objective, hub } = *unserved;
                let request_id = &*known.request_id;
                tracing::debug!(request_id, trace_id = known.trace(), %fault, "not served");
                let error = ApiError::of_fault(&fault);
                if let Some(mut span) = known.take_span() {
                    span.failed(error.code());
                    span.end(error.outcome(), error.status().as_u16());
                }
                let id = (id.0, dialect);
                self.api.refuse(&error, id, hub.model(), &objective).map(Either::Right)
            }
        })
    }
}
