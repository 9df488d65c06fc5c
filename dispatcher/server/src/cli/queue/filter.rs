//! Which waiting requests are meant.

use std::time::Duration;

use clap::Args;
use serde_json::{Map, Value};

use crate::cli::remote::path::Path;

/// Members that all hold.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Filter")]
pub(super) struct FilterArgs {
    /// Those in this lane, as `weir queue ls` names it
    #[arg(long)]
    pub(super) lane: Option<String>,
    /// Those of this band
    #[arg(long, allow_negative_numbers = true)]
    pub(super) band: Option<i8>,
    /// Those of this tenant
    #[arg(long)]
    pub(super) tenant: Option<String>,
    /// Those that can no longer meet their objective
    #[arg(long)]
    pub(super) late: bool,
    /// Those that have waited longer: 500ms, 30s, 5m, 1h
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(super) older_than: Option<Duration>,
    /// Model whose pool is meant
    #[arg(long, value_name = "MODEL")]
    pub(super) pool: Option<String>,
}

impl FilterArgs {
    /// Whether it names anything besides the pool.
    pub(super) const fn is_empty(&self) -> bool {
        self.lane.is_none()
            && self.band.is_none()
            && self.tenant.is_none()
            && !self.late
            && self.older_than.is_none()
    }

    fn older_than_ms(&self) -> Option<f64> {
        self.older_than.map(|time| time.as_secs_f64() * 1e3)
    }

    /// As members of a query.
    pub(super) fn query(&self, path: Path) -> Path {
        path.with("pool", self.pool.as_ref())
            .with("lane", self.lane.as_ref())
            .with("band", self.band)
            .with("tenant", self.tenant.as_ref())
            .with("late", self.late.then_some(true))
            .with("older_than_ms", self.older_than_ms())
    }

    /// As the body of a call.
    pub(super) fn body(&self, dry_run: bool) -> Value {
        let members = [
            ("pool", self.pool.clone().map(Value::from)),
            ("lane", self.lane.clone().map(Value::from)),
            ("band", self.band.map(Value::from)),
            ("tenant", self.tenant.clone().map(Value::from)),
            ("late", self.late.then_some(Value::Bool(true))),
            ("older_than_ms", self.older_than_ms().map(Value::from)),
            ("dry_run", Some(Value::Bool(dry_run))),
        ];
        let set = members.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
        Value::Object(set.collect::<Map<_, _>>())
    }
}

/// Reads `500ms`, `30s`, `5m`, `1h`; a bare number is seconds.
///
/// # Errors
/// When it is none.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = text.get(number.len()..).unwrap_or_default();
    let seconds = match unit {
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return Err("a time is a number and ms, s, m or h, such as 30s".to_owned()),
    };
    let number: f64 = number.parse().map_err(|_| "a time is a number and a unit, such as 30s")?;
    Duration::try_from_secs_f64(number * seconds).map_err(|_| "a time is not negative".to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_time_has_a_unit_and_is_seconds_without() {
        let ms = |text| duration(text).map(|time| time.as_millis());
        assert_eq!(ms("500ms"), Ok(500));
        assert_eq!(ms("30s"), Ok(30_000));
        assert_eq!(ms("30"), Ok(30_000));
        assert_eq!(ms("1.5m"), Ok(90_000));
        assert_eq!(ms("1h"), Ok(3_600_000));
        for wrong in ["", "s", "-1s", "5 parsecs", "1d"] {
            assert!(ms(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_filter_is_the_same_as_a_query_and_as_a_body() {
        let filter = FilterArgs {
            band: Some(-10),
            tenant: Some("acme".to_owned()),
            late: true,
            older_than: Some(Duration::from_secs(30)),
            ..FilterArgs::default()
        };
        let query = filter.query(Path::new("/requests"));
        assert_eq!(query.as_str(), "/requests?band=-10&tenant=acme&late=true&older_than_ms=30000");
        assert_eq!(
            filter.body(true),
            json!({"band": -10, "tenant": "acme", "late": true, "older_than_ms": 30000.0, "dry_run": true})
        );
        assert!(!filter.is_empty() && FilterArgs::default().is_empty());
    }
}
