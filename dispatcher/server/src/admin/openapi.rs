//! The description of the API, made from the handlers themselves: a route that is not described cannot
//! be added here, and one that is described is served.

use std::sync::Arc;

use serde_json::json;
use utoipa::{
    Modify, OpenApi,
    openapi::{
        RefOr, Schema, Type,
        extensions::Extensions,
        schema::SchemaType,
        security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme},
    },
};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{
    chart, decision, events, explain, history, model, overview, pod, queue, request, seat::Seat,
    settings, steer,
};

/// Every operation of the API.
pub fn api() -> OpenApiRouter<Arc<Seat>> {
    let api = OpenApiRouter::new()
        .routes(routes!(overview::overview))
        .routes(routes!(history::history))
        .routes(routes!(chart::chart))
        .routes(routes!(events::events))
        .routes(routes!(queue::queues))
        .routes(routes!(queue::pause))
        .routes(routes!(queue::resume))
        .routes(routes!(request::list))
        .routes(routes!(request::show))
        .routes(routes!(steer::cancel))
        .routes(routes!(steer::shift))
        .routes(routes!(steer::cancel_many, request::show_cancel))
        .routes(routes!(explain::explain))
        .routes(routes!(pod::pods))
        .routes(routes!(pod::pod))
        .routes(routes!(pod::cordon))
        .routes(routes!(pod::drain))
        .routes(routes!(pod::uncordon))
        .routes(routes!(model::models))
        .routes(routes!(model::model))
        .routes(routes!(model::reload))
        .routes(routes!(model::pin))
        .routes(routes!(model::unpin))
        .routes(routes!(model::rollback))
        .routes(routes!(decision::list))
        .routes(routes!(settings::effective))
        .routes(routes!(settings::diff))
        .routes(routes!(settings::reload));
    let mut api = OpenApiRouter::with_openapi(Description::openapi()).nest("/api/v1", api);
    // The handlers have brought their schemas with them.
    say_what_goes_together(api.get_openapi_mut());
    api
}

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Weir admin API",
        description = "What waits in Weir and why, and what an operator may do about it. Times are \
                       milliseconds unless a name says otherwise. Of several dispatchers one decides: answers \
                       of the others have the header x-weir-decided-by, POOL=ADDRESS with commas between, and \
                       hold none of what waits there.",
    ),
    components(schemas(events::Board)),
    tags(
        (name = "overview", description = "Every pool in a few figures, and the last five minutes"),
        (name = "queues", description = "Lanes, bands and tenants; pause and resume"),
        (name = "requests", description = "What waits and why; cancel and move"),
        (name = "pods", description = "What pods do; cordon and drain"),
        (name = "models", description = "What predicts"),
        (name = "decisions", description = "What was decided lately"),
        (name = "config", description = "The configuration in force"),
    ),
    modifiers(&Bearer),
)]
struct Description;

/// Every operation takes a token where tokens are configured.
struct Bearer;

impl Modify for Bearer {
    fn modify(&self, description: &mut utoipa::openapi::OpenApi) {
        let scheme = HttpBuilder::new()
            .scheme(HttpAuthScheme::Bearer)
            .description(Some("A token of admin.tokens; changes need one with scope write"))
            .build();
        let components = description.components.get_or_insert_with(Default::default);
        components.add_security_scheme("token", SecurityScheme::Http(scheme));
        let needed = SecurityRequirement::new::<_, _, String>("token", []);
        description.security = Some(vec![needed]);
    }
}

/// Which members of a body go together, and that none is `null`: what [`take::Body`](super::take::Body)
/// and the handlers ask for, in the words of JSON Schema.
fn say_what_goes_together(description: &mut utoipa::openapi::OpenApi) {
    let components = description.components.iter_mut();
    for (name, schema) in components.flat_map(|components| &mut components.schemas) {
        if let (true, RefOr::T(Schema::Object(ask))) = (name.ends_with("Ask"), schema) {
            ask.properties.values_mut().for_each(never_null);
            ask.extensions = rules(name);
        }
    }
}

fn never_null(property: &mut RefOr<Schema>) {
    let RefOr::T(Schema::Object(property)) = property else { return };
    if let SchemaType::Array(kinds) = &property.schema_type {
        let kind = kinds.iter().find(|kind| **kind != Type::Null).cloned();
        property.schema_type = kind.map_or(SchemaType::AnyValue, SchemaType::Type);
    }
}

fn rules(ask: &str) -> Option<Extensions> {
    let rule = match ask {
        "GateAsk" => ("not", json!({"required": ["lane", "band"]})),
        "CancelAsk" => {
            let one = |member| json!({"required": [member]});
            ("anyOf", steer::FILTERS.map(one).into())
        }
        _ => return None,
    };
    Some(Extensions::from_iter([rule]))
}
