//! The configuration in force, what the file says otherwise, and taking the file over.

use std::sync::Arc;

use axum::{Json, extract::State};
use serde::Serialize;
use serde_json::Value;
use serde_yaml_ng::Value as Yaml;
use utoipa::ToSchema;

use super::{
    audit,
    fault::{ErrorBody, Fault},
    guard::Caller,
    model::NothingAsk,
    seat::Seat,
    take::Body,
};
use crate::config::{Origin, Problems, RawConfig, Reloader, keys, reload::NO_FILE};

/// The configuration in force, and where it is from.
#[derive(Clone, Default)]
pub struct Settings {
    /// What was in force at the start.
    pub written: Arc<RawConfig>,
    /// Where it is from.
    pub origin: Origin,
    /// Knows what is in force now and takes the file over; `None`: nothing can be taken over.
    pub reloader: Option<Arc<Reloader>>,
}

/// The configuration in force.
#[derive(Debug, Serialize, ToSchema)]
pub struct Effective {
    /// As YAML, with everything that overrides the file. Digests of keys and tokens are left out.
    pub effective: String,
    /// The file; `null` when the built-in one is in force.
    pub file: Option<String>,
    /// What it was made of: the file or the built-in one, and what overrides it.
    pub origin: String,
}

/// What differs between the configuration in force and the file.
#[derive(Debug, Serialize, ToSchema)]
pub struct Differences {
    /// The keys that differ, by name.
    pub changes: Vec<Difference>,
}

/// A key that differs.
#[derive(Debug, PartialEq, Serialize, ToSchema)]
pub struct Difference {
    /// The key by its path in the file.
    pub key: String,
    /// Its value in force; `null` when there is none. Digests are left out.
    #[schema(value_type = Option<Value>)]
    pub running: Value,
    /// Its value in the file; `null` when there is none. Digests are left out.
    #[schema(value_type = Option<Value>)]
    pub file: Value,
    /// Whether a reload brings it into force or only a restart.
    pub applies: Applies,
}

/// What brings a change into force.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Applies {
    /// POST /config/reload.
    Reload,
    /// Only a restart.
    Restart,
}

/// What a reload came to.
#[derive(Debug, Serialize, ToSchema)]
pub struct Reloaded {
    /// Keys that count now.
    pub applied: Vec<String>,
    /// Keys that differ and count after a restart.
    pub needs_restart: Vec<String>,
}

/// The configuration in force.
#[utoipa::path(
    get, path = "/config", tag = "config", operation_id = "config",
    responses((status = 200, body = Effective), (status = "4XX", body = ErrorBody))
)]
pub(super) async fn effective(State(seat): State<Arc<Seat>>) -> Result<Json<Effective>, Fault> {
    seat.aside(|seat| seat.settings().effective().map(Json)).await
}

/// What the file says now and is not in force.
#[utoipa::path(
    get, path = "/config/diff", tag = "config", operation_id = "config_diff",
    responses(
        (status = 200, body = Differences),
        (status = 400, body = ErrorBody, description = "The file cannot be used; every problem is told"),
        (status = 409, body = ErrorBody, description = "There is no file"),
        (status = "4XX", body = ErrorBody),
    )
)]
pub(super) async fn diff(State(seat): State<Arc<Seat>>) -> Result<Json<Differences>, Fault> {
    seat.aside(|seat| seat.settings().diff().map(Json)).await
}

/// Take the file over. One that cannot be used changes nothing.
#[utoipa::path(
    post, path = "/config/reload", tag = "config", operation_id = "reload_config",
    request_body = NothingAsk,
    responses(
        (status = 200, body = Reloaded),
        (status = 400, body = ErrorBody, description = "The file cannot be used; every problem is told"),
        (status = 409, body = ErrorBody, description = "There is no file"),
        (status = "4XX", body = ErrorBody),
    )
)]
pub(super) async fn reload(
    State(seat): State<Arc<Seat>>,
    caller: Caller,
    Body(NothingAsk {}): Body<NothingAsk>,
) -> Result<Json<Reloaded>, Fault> {
    let reload = move |seat: &Seat| {
        let change = audit::Change { action: "reload_config", pool: "", what: "config" };
        audit::change(seat, &caller, change, || {
            let done = seat.settings().reloader()?.reload().map_err(problems)?;
            let count = done.applied.len();
            let done = Reloaded { applied: done.applied, needs_restart: done.needs_restart };
            Ok((Json(done), count))
        })
    };
    seat.aside(reload).await
}

fn problems(problems: Problems) -> Fault {
    Fault::Problems(problems.lines())
}

/// Written in place of what nobody needs to see.
const HIDDEN: &str = "(hidden)";

impl Settings {
    /// The reloader of a process that was started with a file.
    fn reloader(&self) -> Result<&Reloader, Fault> {
        let reloader = self.reloader.as_deref().filter(|reloader| reloader.file().is_some());
        reloader.ok_or_else(|| Fault::Conflict(NO_FILE.to_owned()))
    }

    /// What is in force now.
    fn running(&self) -> Arc<RawConfig> {
        self.reloader.as_ref().map_or_else(|| self.written.clone(), |reloader| reloader.running())
    }

    fn effective(&self) -> Result<Effective, Fault> {
        let said = |error: serde_yaml_ng::Error| Fault::Conflict(error.to_string());
        let shown = hidden(serde_yaml_ng::to_value(&*self.running()).map_err(said)?);
        let effective = serde_yaml_ng::to_string(&shown).map_err(said)?;
        let file = self.origin.file.as_ref().map(|file| file.display().to_string());
        Ok(Effective { effective, origin: self.origin(), file })
    }

    fn origin(&self) -> String {
        let Origin { file, listen, admin_listen, policy } = &self.origin;
        let mut origin = if file.is_some() { "file" } else { "built in" }.to_owned();
        for (what, over) in [
            ("listen", listen.clone()),
            ("admin.listen", admin_listen.clone()),
            ("policy", policy.map(|policy| policy.name().to_owned())),
        ] {
            if let Some(value) = over {
                origin.push_str(&format!(", {what} = {value}"));
            }
        }
        origin
    }

    fn diff(&self) -> Result<Differences, Fault> {
        let unusable = |problems: Problems| Fault::Unusable(problems.lines());
        let changes = self.reloader()?.diff().map_err(unusable)?;
        Ok(Differences { changes: changes.into_iter().map(difference).collect() })
    }

    /// The objective of a band, if one alone has it.
    pub fn objective_of(&self, band: i8) -> Option<String> {
        let running = self.running();
        let mut of = running.objectives.iter().filter(|(_, objective)| objective.band == band);
        let only = of.next().map(|(name, _)| name.clone());
        only.filter(|_| of.next().is_none())
    }
}

fn difference(change: keys::Change) -> Difference {
    let secret = is_secret(&change.key);
    let shown = |value: Yaml| match hidden(value) {
        Yaml::String(_) if secret => HIDDEN.into(),
        value => serde_json::to_value(value).unwrap_or_default(),
    };
    Difference {
        running: shown(change.running),
        file: shown(change.file),
        applies: match change.applies {
            keys::Applies::Reload => Applies::Reload,
            keys::Applies::Restart => Applies::Restart,
        },
        key: change.key,
    }
}

fn is_secret(key: &str) -> bool {
    key == "sha256" || key.ends_with(".sha256")
}

/// Without digests, wherever they stand.
fn hidden(value: Yaml) -> Yaml {
    match value {
        Yaml::Mapping(members) => {
            let hide = |(name, member): (Yaml, Yaml)| {
                let secret = name.as_str().is_some_and(is_secret)
                    && member.as_str().is_some_and(|digest| !digest.is_empty());
                let member = if secret { HIDDEN.into() } else { hidden(member) };
                (name, member)
            };
            Yaml::Mapping(members.into_iter().map(hide).collect())
        }
        Yaml::Sequence(items) => Yaml::Sequence(items.into_iter().map(hidden).collect()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::config::RawKey;

    #[test]
    fn digests_are_not_shown() {
        let key = RawKey { sha256: "ab".repeat(32), ..RawKey::default() };
        let written = RawConfig { keys: vec![key], ..RawConfig::default() };
        let settings = Settings { written: Arc::new(written), ..Settings::default() };
        let shown = settings.effective().unwrap();
        assert!(shown.effective.contains(HIDDEN) && !shown.effective.contains("abab"), "{shown:?}");
        assert_eq!((shown.file, shown.origin.as_str()), (None, "built in"));
        assert!(matches!(settings.diff(), Err(Fault::Conflict(_))), "there is no file to differ");
    }

    #[test]
    fn an_objective_is_named_where_one_alone_has_the_band() {
        let mut written = RawConfig::default();
        let settings = |written: &RawConfig| Settings {
            written: Arc::new(written.clone()),
            ..Settings::default()
        };
        assert_eq!(settings(&written).objective_of(1).as_deref(), Some("interactive"));
        let twin = written.objectives["interactive"].clone();
        written.objectives.insert("twin".to_owned(), twin);
        assert_eq!(settings(&written).objective_of(1), None);
    }
}
