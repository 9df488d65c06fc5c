//! The evaluator of any graph: through ONNX Runtime.
//!
//! One evaluator owns one session and belongs to one chain, for a session may not run twice at once
//! (`ort` takes `&mut self` on purpose). It runs on the calling thread only: with a second thread a
//! batch of 100 rows gains nothing, and spinning workers cost the data plane its tail.

use ort::logging::LogLevel;
use ort::session::Session;
use ort::value::{Outlet, TensorElementType, TensorRef, ValueType};
use weir_schema::manifest::{INPUT_NAME, OUTPUT_NAME};
use weir_schema::{FEATURE_COUNT, PredictError, Row};

use crate::{BundleError, Runtime};

/// Columns of the output: TTFT, TPOT.
const OUTPUTS: usize = 2;

/// One session with its output buffer.
#[derive(Debug)]
pub struct OnnxEvaluator {
    session: Session,
    /// Reused by every batch.
    medians: Vec<[f32; OUTPUTS]>,
}

impl OnnxEvaluator {
    /// Builds a session from the bytes of a graph and checks its inputs and outputs.
    ///
    /// # Errors
    /// [`BundleError::Session`] when ONNX Runtime refuses the graph, [`BundleError::Signature`] when
    /// it has other inputs or outputs than the contract in [`weir_schema::manifest`].
    pub fn new(runtime: &Runtime, model: &[u8]) -> Result<Self, BundleError> {
        let session = build(runtime, model)?;
        check_signature(session.inputs(), "input", INPUT_NAME, FEATURE_COUNT)?;
        check_signature(session.outputs(), "output", OUTPUT_NAME, OUTPUTS)?;
        Ok(Self { session, medians: Vec::new() })
    }

    /// Median TTFT and TPOT of each row, in milliseconds and as the graph gave them: not checked for
    /// being finite or sane. Allocates per batch inside ONNX Runtime, never per row.
    ///
    /// # Errors
    /// When ONNX Runtime fails or answers in another shape.
    pub fn evaluate(&mut self, rows: &[Row]) -> Result<&[[f32; OUTPUTS]], PredictError> {
        self.medians.clear();
        if rows.is_empty() {
            return Ok(&self.medians);
        }
        let failed = |error: ort::Error| PredictError::Evaluator(error.to_string());
        let shape = [rows.len(), FEATURE_COUNT];
        let input = TensorRef::from_array_view((shape, rows.as_flattened())).map_err(failed)?;
        let outputs = self.session.run(ort::inputs![input]).map_err(failed)?;
        let missing = || PredictError::Evaluator(format!("no output {OUTPUT_NAME}"));
        let output = outputs.get(OUTPUT_NAME).ok_or_else(missing)?;
        let (_, values) = output.try_extract_tensor::<f32>().map_err(failed)?;
        let (pairs, rest) = values.as_chunks::<OUTPUTS>();
        if pairs.len() != rows.len() || !rest.is_empty() {
            let (got, want) = (values.len(), rows.len() * OUTPUTS);
            return Err(PredictError::Evaluator(format!("{got} values instead of {want}")));
        }
        self.medians.extend_from_slice(pairs);
        Ok(&self.medians)
    }
}

fn build(runtime: &Runtime, model: &[u8]) -> Result<Session, BundleError> {
    Session::builder(runtime.environment())
        .map_err(refused)?
        .with_intra_threads(1)
        .map_err(refused)?
        .with_inter_threads(1)
        .map_err(refused)?
        .with_intra_op_spinning(false)
        .map_err(refused)?
        .with_inter_op_spinning(false)
        .map_err(refused)?
        .with_log_level(LogLevel::Error)
        .map_err(refused)?
        // What was scanned is ONNX; bytes that could also be read as ORT's own format must not be.
        .with_config_entry("session.load_model_format", "ONNX")
        .map_err(refused)?
        .commit_from_memory(model)
        .map_err(refused)
}

fn refused<R>(error: ort::Error<R>) -> BundleError {
    BundleError::Session { detail: error.to_string() }
}

fn check_signature(
    outlets: &[Outlet],
    side: &'static str,
    name: &str,
    columns: usize,
) -> Result<(), BundleError> {
    let fits = |outlet: &Outlet| {
        let ValueType::Tensor { ty: TensorElementType::Float32, shape, .. } = outlet.dtype() else {
            return false;
        };
        outlet.name() == name && matches!(shape[..], [-1, width] if width == columns as i64)
    };
    if let [only] = outlets
        && fits(only)
    {
        return Ok(());
    }
    let found: Vec<String> =
        outlets.iter().map(|outlet| format!("{}: {}", outlet.name(), outlet.dtype())).collect();
    let detail = format!(
        "{side} must be {name}: f32 [-1, {columns}], found {}",
        if found.is_empty() { "none".to_owned() } else { found.join(", ") }
    );
    Err(BundleError::Signature { detail })
}
