//! What pods are judged by.

use smallvec::SmallVec;
use weir_schema::StepTime;

use crate::Band;

/// What all pods are judged by.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Basis {
    pub(super) steps: SmallVec<[StepTime; 4]>,
    pub(super) tightest_tpot_ms: Option<f64>,
    pub(super) top_band: Band,
    /// Classes of the pods that take requests, each once.
    pub(super) open_classes: SmallVec<[u16; 4]>,
}
