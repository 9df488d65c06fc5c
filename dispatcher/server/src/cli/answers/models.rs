//! `GET /models`, `GET /models/{version}`.

use serde::Deserialize;

/// The models of every pool.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Models {
    /// One per model that is served.
    pub(crate) pools: Vec<Model>,
}

/// What predicts for one pool.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Model {
    /// The pool.
    pub(crate) pool: String,
    /// The version in service; none before the first bundle.
    pub(crate) serving: Option<u64>,
    /// The version that an operator chose.
    pub(crate) pinned: Option<u64>,
    /// Why what is pinned cannot be read or cannot serve.
    pub(crate) pin_failing: Option<String>,
    /// Which evaluator serves.
    pub(crate) evaluator: String,
    /// Why nothing better serves.
    pub(crate) fallback: String,
    /// Every version that is known.
    pub(crate) versions: Vec<Version>,
}

/// One version.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Version {
    /// Its number.
    pub(crate) version: u64,
    /// `serving`, `loaded`, `available`, `gone`, `rolled_back` or `refused`.
    pub(crate) state: String,
    /// When it was trained.
    pub(crate) age_s: Option<f64>,
    /// Rows that it was trained on.
    pub(crate) rows: Option<f64>,
    /// Its errors on the rows held out.
    pub(crate) holdout: Option<Errors>,
    /// Its errors in service.
    pub(crate) live: Option<Errors>,
    /// How much each feature adds.
    pub(crate) features: Option<Vec<Feature>>,
    /// Why it is not used.
    pub(crate) refused: Option<String>,
}

/// Errors of a version.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Errors {
    /// Mean relative error of TTFT.
    pub(crate) mape_ttft: Option<f64>,
    /// Mean relative error of TPOT.
    pub(crate) mape_tpot: Option<f64>,
    /// Share of outcomes under the stated 90th percentile of TTFT.
    pub(crate) coverage_ttft: Option<f64>,
    /// The same of TPOT.
    pub(crate) coverage_tpot: Option<f64>,
    /// Outcomes that they are from.
    pub(crate) rows: Option<f64>,
}

/// One feature of a version.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Feature {
    /// Its name.
    pub(crate) name: String,
    /// Share of the gain in the trees of TTFT.
    pub(crate) gain_ttft: Option<f64>,
    /// The same of TPOT.
    pub(crate) gain_tpot: Option<f64>,
}
