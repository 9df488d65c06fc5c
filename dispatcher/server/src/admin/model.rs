//! Model versions: which one predicts, how well, why another one does not; reload, pin, roll back.

use std::sync::{Arc, atomic::Ordering::Relaxed};

use axum::{Json, extract::State};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use weir_schema::{FeatureGain, Rollback, Status, VersionQuality};

use super::{
    audit::{self, Change},
    fault::{ErrorBody, Fault},
    guard::Caller,
    history::PoolQuery,
    seat::{Pool, Seat},
    take::{Body, Name, Query, whole},
};
use crate::{
    clock::Clock,
    learn::{BundleView, Order, OrderError, versions::VersionView},
};

/// The models of all pools.
#[derive(Debug, Serialize, ToSchema)]
pub struct Models {
    /// One per pool.
    pub pools: Vec<PoolModels>,
}

/// What predicts in a pool, and what could.
#[derive(Debug, Serialize, ToSchema)]
pub struct PoolModels {
    /// The pool.
    pub pool: String,
    /// Version of the bundle that predicts; `null`: none does.
    pub serving: Option<u64>,
    /// The version that an operator has pinned.
    pub pinned: Option<u64>,
    /// Why what the file `pinned` says cannot be read or cannot serve; nothing that is published is taken meanwhile.
    pub pin_failing: Option<String>,
    /// What serves: onnx, forest, profile or prior; both if TTFT and TPOT have different ones.
    pub evaluator: String,
    /// Why nothing better serves.
    pub fallback: Option<String>,
    /// Every version on disk or in service lately, newest first.
    pub versions: Vec<Version>,
}

/// A version.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Version {
    /// Its number.
    pub version: u64,
    /// Where it stands.
    pub state: Standing,
    /// When it was trained, in milliseconds since 1970.
    pub created_unix_ms: Option<u64>,
    /// Seconds since then.
    pub age_s: Option<f64>,
    /// Rows it was trained on: the more of those for TTFT and for TPOT.
    pub rows: Option<usize>,
    /// Its errors on the newest slice, which it was not trained on.
    pub holdout: Option<HoldoutErrors>,
    /// Its errors in service lately.
    pub live: Option<LiveErrors>,
    /// What each feature brings, the most first; `null` when the bundle does not say.
    pub features: Option<Vec<FeatureShare>>,
    /// Why it is, or would be, refused, or was rolled back.
    pub refused: Option<String>,
}

/// Where a version stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// It predicts.
    Serving,
    /// It was handed over and does not predict: it is new, or the one before does better.
    Loaded,
    /// It is on disk.
    Available,
    /// It is not on disk any more. Its errors in service are still known.
    Gone,
    /// It did worse in service than the one before, or failed, and was taken out: the last that was.
    RolledBack,
    /// It cannot be used.
    Refused,
}

/// Errors on the holdout: mean absolute relative errors, as fractions.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct HoldoutErrors {
    /// Of TTFT.
    pub mape_ttft: f64,
    /// Of TPOT.
    pub mape_tpot: f64,
    /// Of TTFT, by what there is without a model.
    pub prior_mape_ttft: f64,
    /// Of TPOT, by what there is without a model.
    pub prior_mape_tpot: f64,
}

/// Errors in service, as fractions.
#[derive(Clone, Debug, Default, Serialize, ToSchema)]
pub struct LiveErrors {
    /// Mean absolute relative error of its median TTFT.
    pub mape_ttft: Option<f64>,
    /// Mean absolute relative error of its median TPOT.
    pub mape_tpot: Option<f64>,
    /// Share of outcomes at or below the stated 90th percentile of TTFT, while it served.
    pub coverage_ttft: Option<f64>,
    /// The same of TPOT.
    pub coverage_tpot: Option<f64>,
    /// Outcomes behind them.
    pub rows: u64,
}

/// What a feature brings.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct FeatureShare {
    /// Its name.
    pub name: String,
    /// Share of the gain in the trees of TTFT.
    pub gain_ttft: f64,
    /// Share of the gain in the trees of TPOT.
    pub gain_tpot: f64,
}

/// Every version of every pool's model.
#[utoipa::path(
    get, path = "/models", tag = "models", operation_id = "models", params(PoolQuery),
    responses((status = 200, body = Models), (status = "4XX", body = ErrorBody))
)]
pub(super) async fn models(
    State(seat): State<Arc<Seat>>,
    Query(query): Query<PoolQuery>,
) -> Result<Json<Models>, Fault> {
    seat.aside(move |seat| all(seat, query.pool.as_deref()).map(Json)).await
}

/// One version, in every pool.
#[utoipa::path(
    get, path = "/models/{version}", tag = "models", operation_id = "model",
    params(("version" = u64, Path, description = "Its number", minimum = 0)),
    responses((status = 200, body = Models), (status = "4XX", body = ErrorBody))
)]
pub(super) async fn model(
    State(seat): State<Arc<Seat>>,
    Name(name): Name,
) -> Result<Json<Models>, Fault> {
    let one = move |seat: &Seat| {
        let version: u64 = name.parse().map_err(|_| {
            Fault::parameter("version", "must be a number, as GET /models has them")
        })?;
        let mut all = all(seat, None)?;
        for pool in &mut all.pools {
            pool.versions.retain(|one| one.version == version);
        }
        all.pools.retain(|pool| !pool.versions.is_empty());
        if all.pools.is_empty() { Err(Fault::not_found("version", name)) } else { Ok(Json(all)) }
    };
    seat.aside(one).await
}

fn all(seat: &Seat, pool: Option<&str>) -> Result<Models, Fault> {
    let bundles = seat.watched().shelf.bundles();
    let pools = seat.pools(pool)?.into_iter();
    Ok(Models { pools: pools.map(|pool| of(seat, pool, &bundles)).collect() })
}

fn of(seat: &Seat, pool: Pool<'_>, bundles: &[BundleView]) -> PoolModels {
    let watched = seat.watched();
    let status = pool.hub.predictor();
    let serving = Some(status.model_version).filter(|version| *version > 0);
    let lately = watched.versions.of(pool.name());
    let on_disk = bundles.iter().map(|bundle| bundle.version);
    let mut numbers: Vec<u64> =
        on_disk.chain(lately.iter().map(|one| one.version)).chain(serving).collect();
    numbers.sort_unstable();
    numbers.dedup();
    let loaded = watched.reload.version.load(Relaxed);
    let version = |number: u64| {
        let bundle = bundles.iter().find(|bundle| bundle.version == number);
        let standing = standing(number, bundle, &status, loaded);
        let live = lately.iter().find(|one| one.version == number);
        let stated = status.versions.iter().find(|one| one.version == number);
        one(number, standing, bundle, live_errors(live, stated), watched.clock)
    };
    PoolModels {
        pool: pool.name().to_owned(),
        serving,
        pinned: watched.shelf.pinned(),
        pin_failing: watched.shelf.pin_failing(),
        evaluator: evaluator(&status),
        fallback: status.fallback_reason.clone(),
        versions: numbers.into_iter().rev().map(version).collect(),
    }
}

fn evaluator(status: &Status) -> String {
    let (ttft, tpot) = (status.ttft_source.name(), status.tpot_source.name());
    if ttft == tpot { ttft.to_owned() } else { format!("{ttft} for TTFT, {tpot} for TPOT") }
}

/// Where a version stands in a pool, and why it is not used.
fn standing(
    version: u64,
    bundle: Option<&BundleView>,
    status: &Status,
    loaded: u64,
) -> (Standing, Option<String>) {
    let refused = bundle.and_then(|bundle| bundle.refused.clone());
    let back = status.last_rollback.as_ref().filter(|back| back.from == version);
    match (refused, back) {
        (refused, _) if status.model_version == version => (Standing::Serving, refused),
        (Some(refused), _) => (Standing::Refused, Some(refused)),
        (None, Some(Rollback { to, reason, .. })) => {
            (Standing::RolledBack, Some(format!("rolled back to v{to}: {reason}")))
        }
        (None, None) if loaded == version => (Standing::Loaded, None),
        (None, None) if bundle.is_none() => (Standing::Gone, None),
        (None, None) => (Standing::Available, None),
    }
}

fn one(
    version: u64,
    (state, refused): (Standing, Option<String>),
    bundle: Option<&BundleView>,
    live: Option<LiveErrors>,
    clock: Clock,
) -> Version {
    let created = bundle.and_then(|bundle| bundle.trained_at_unix_ms);
    let age_s = |at: u64| clock.unix_ms().saturating_sub(at) as f64 / 1000.0;
    let holdout = bundle.and_then(|bundle| bundle.holdout);
    Version {
        version,
        state,
        created_unix_ms: created,
        age_s: created.map(age_s),
        rows: bundle.map(|bundle| bundle.rows[0].max(bundle.rows[1])),
        holdout: holdout.map(|holdout| HoldoutErrors {
            mape_ttft: holdout.ttft.mape,
            mape_tpot: holdout.tpot.mape,
            prior_mape_ttft: holdout.ttft.prior_mape,
            prior_mape_tpot: holdout.tpot.prior_mape,
        }),
        live,
        features: bundle.and_then(|bundle| features(&bundle.gains)),
        refused,
    }
}

fn live_errors(live: Option<&VersionView>, stated: Option<&VersionQuality>) -> Option<LiveErrors> {
    if live.is_none() && stated.is_none() {
        return None;
    }
    let grade = |pick: fn(&weir_schema::Grades) -> Option<weir_schema::Grade>| {
        let grade = pick(&stated?.grades)?;
        Some(f64::from(grade.coverage))
    };
    Some(LiveErrors {
        mape_ttft: live.and_then(|live| live.mape_ttft),
        mape_tpot: live.and_then(|live| live.mape_tpot),
        coverage_ttft: grade(|grades| grades.ttft),
        coverage_tpot: grade(|grades| grades.tpot),
        rows: live.map_or(0, |live| live.rows_ttft.max(live.rows_tpot)),
    })
}

fn features(gains: &[FeatureGain]) -> Option<Vec<FeatureShare>> {
    let share = |gain: &FeatureGain| FeatureShare {
        name: gain.feature.clone(),
        gain_ttft: gain.ttft,
        gain_tpot: gain.tpot,
    };
    let mut shares: Vec<_> = gains.iter().map(share).collect();
    let total = |one: &FeatureShare| one.gain_ttft + one.gain_tpot;
    shares.sort_by(|a, b| total(b).total_cmp(&total(a)));
    (!shares.is_empty()).then_some(shares)
}

/// Nothing needs to be said.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NothingAsk {}

/// The version that is to serve.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PinAsk {
    /// Its number.
    #[serde(deserialize_with = "whole")]
    #[schema(minimum = 0, maximum = 9_007_199_254_740_992_u64)]
    pub version: u64,
}

/// Look for bundles now, and try again what was refused.
#[utoipa::path(
    post, path = "/models/reload", tag = "models", operation_id = "reload_models",
    request_body = NothingAsk,
    responses(
        (status = 200, body = Models),
        (status = 409, body = ErrorBody, description = "It cannot be done now"),
        (status = "4XX", body = ErrorBody),
    )
)]
pub(super) async fn reload(
    State(seat): State<Arc<Seat>>,
    caller: Caller,
    Body(NothingAsk {}): Body<NothingAsk>,
) -> Result<Json<Models>, Fault> {
    seat.aside(move |seat| order(seat, &caller, "reload_model", Order::Reload)).await
}

/// Serve one version until it is unpinned, whatever is published.
#[utoipa::path(
    post, path = "/models/pin", tag = "models", operation_id = "pin_model", request_body = PinAsk,
    responses(
        (status = 200, body = Models),
        (status = 409, body = ErrorBody, description = "It cannot be done now"),
        (status = "4XX", body = ErrorBody),
    )
)]
pub(super) async fn pin(
    State(seat): State<Arc<Seat>>,
    caller: Caller,
    Body(ask): Body<PinAsk>,
) -> Result<Json<Models>, Fault> {
    seat.aside(move |seat| order(seat, &caller, "pin", Order::Pin(ask.version))).await
}

/// Serve what is published again.
#[utoipa::path(
    post, path = "/models/unpin", tag = "models", operation_id = "unpin_model",
    request_body = NothingAsk,
    responses(
        (status = 200, body = Models),
        (status = 409, body = ErrorBody, description = "It cannot be done now"),
        (status = "4XX", body = ErrorBody),
    )
)]
pub(super) async fn unpin(
    State(seat): State<Arc<Seat>>,
    caller: Caller,
    Body(NothingAsk {}): Body<NothingAsk>,
) -> Result<Json<Models>, Fault> {
    seat.aside(move |seat| order(seat, &caller, "unpin", Order::Unpin)).await
}

/// Pin the newest version before the one that serves.
#[utoipa::path(
    post, path = "/models/rollback", tag = "models", operation_id = "roll_back_model",
    request_body = NothingAsk,
    responses(
        (status = 200, body = Models),
        (status = 409, body = ErrorBody, description = "There is no version before, or it cannot be done now"),
        (status = "4XX", body = ErrorBody),
    )
)]
pub(super) async fn rollback(
    State(seat): State<Arc<Seat>>,
    caller: Caller,
    Body(NothingAsk {}): Body<NothingAsk>,
) -> Result<Json<Models>, Fault> {
    seat.aside(move |seat| order(seat, &caller, "rollback", Order::Rollback)).await
}

fn order(
    seat: &Seat,
    caller: &Caller,
    action: &'static str,
    order: Order,
) -> Result<Json<Models>, Fault> {
    let what = match order {
        Order::Pin(version) => format!("v{version}"),
        _ => "models".to_owned(),
    };
    audit::change(seat, caller, Change { action, pool: "", what: &what }, || {
        seat.watched().shelf.order(order).map_err(|error| match error {
            OrderError::NoBundle(version) => {
                missing(version, &seat.watched().shelf.bundles(), served(seat, version))
            }
            other => Fault::Conflict(other.to_string()),
        })?;
        Ok((Json(all(seat, None)?), 1))
    })
}

/// A version without a bundle: one that never was, or whose bundle the trainer has removed. Bundles are the newest first.
fn missing(version: u64, bundles: &[BundleView], served: bool) -> Fault {
    // Versions are counted from 1, so whatever is below the newest was there.
    let newest = bundles.first().map_or(0, |bundle| bundle.version);
    let was = served || (1..newest).contains(&version);
    if was { Fault::NotKept(version) } else { Fault::not_found("version", version.to_string()) }
}

/// Whether a version has served in this process.
fn served(seat: &Seat, version: u64) -> bool {
    let watched = seat.watched();
    let mut lately = watched.hubs.iter().flat_map(|hub| watched.versions.of(hub.model()));
    lately.any(|one| one.version == version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_that_was_rolled_back_says_so_until_it_serves_again() {
        let back = Rollback { from: 5, to: 4, reason: "it is worse".into() };
        let mut status =
            Status { model_version: 4, last_rollback: Some(back), ..Status::default() };
        let of = |version, status: &Status| standing(version, None, status, 5);
        let why = "rolled back to v4: it is worse".to_owned();
        assert_eq!(of(5, &status), (Standing::RolledBack, Some(why)));
        assert_eq!(of(4, &status), (Standing::Serving, None));
        assert_eq!(of(3, &status), (Standing::Gone, None), "it is known by its errors alone");
        status.model_version = 5;
        assert_eq!(of(5, &status), (Standing::Serving, None), "an operator has pinned it");
    }

    #[test]
    fn a_version_whose_bundle_was_removed_is_not_one_that_never_was() {
        let bundles = [9, 8].map(|version| BundleView { version, ..BundleView::default() });
        let never = |version: u64| Fault::not_found("version", version.to_string());
        assert_eq!(missing(7, &bundles, false), Fault::NotKept(7));
        assert_eq!(missing(10, &bundles, false), never(10));
        assert_eq!(missing(0, &bundles, false), never(0));
        assert_eq!(missing(3, &[], false), never(3));
        assert_eq!(missing(3, &[], true), Fault::NotKept(3));
        assert!(Fault::NotKept(3).to_string().contains("trainer.keep_bundles"));
    }
}
