//! How long predictions take: a stopwatch around a predictor, only there when the series are on.
//!
//! One call predicts both latencies of one request on every pod that may serve it, so both series get
//! the same time. A request that waits is predicted again whenever something may have freed room, and
//! every call counts.

use std::{sync::Arc, time::Instant};

use weir_schema::{
    FirstToken, Predict, PredictError, Prediction, Row, Sample, Status, StepTime, StepsLearned,
    Stride,
};

use super::{Compat, PLUGIN};

/// A predictor that is timed.
pub struct Timed<P> {
    inner: P,
    compat: Arc<Compat>,
    model: Arc<str>,
}

impl<P: Predict> Timed<P> {
    /// Times `inner`, which predicts for `model`.
    pub fn new(inner: P, compat: Arc<Compat>, model: Arc<str>) -> Self {
        Self { inner, compat, model }
    }
}

impl<P: Predict> Predict for Timed<P> {
    fn predict(&mut self, rows: &[Row], out: &mut [Prediction]) -> Result<(), PredictError> {
        let start = Instant::now();
        let predicted = self.inner.predict(rows, out);
        let seconds = start.elapsed().as_secs_f64();
        let (model, compat) = (&*self.model, &self.compat);
        let (plugin, names) = ([PLUGIN, PLUGIN, model, model], [model, model]);
        compat.ttft_prediction.observe(&plugin, &names, seconds);
        compat.tpot_prediction.observe(&plugin, &names, seconds);
        compat.last(model, "ttft_prediction_duration", seconds);
        compat.last(model, "tpot_prediction_duration", seconds);
        predicted
    }

    fn take_up(&mut self) {
        self.inner.take_up();
    }

    fn step_time(&self, pod_class: u16) -> StepTime {
        self.inner.step_time(pod_class)
    }

    fn observe_stride(&mut self, stride: &Stride) {
        self.inner.observe_stride(stride);
    }

    fn observe_first_token(&mut self, first: &FirstToken) {
        self.inner.observe_first_token(first);
    }

    fn doubt_steps(&mut self, pod_class: u16) {
        self.inner.doubt_steps(pod_class);
    }

    fn observe_sample(&mut self, sample: &Sample) {
        self.inner.observe_sample(sample);
    }

    fn steps_learned(&self, pod_class: u16) -> Option<StepsLearned> {
        self.inner.steps_learned(pod_class)
    }

    fn recall_steps(&mut self, pod_class: u16, learned: &StepsLearned) -> bool {
        self.inner.recall_steps(pod_class, learned)
    }

    fn status(&self) -> Status {
        self.inner.status()
    }
}

#[cfg(test)]
mod tests {
    use weir_predict::Chain;

    use super::*;
    use crate::telemetry::Metrics;

    #[test]
    fn what_steps_take_goes_through_to_what_is_timed_and_back() {
        let metrics = Metrics::with_compat(1).unwrap();
        let compat = metrics.compat().unwrap().clone();
        let mut timed = Timed::new(Chain::new(), compat, "m".into());
        timed.observe_first_token(&FirstToken { pod_class: 2, measured_ms: 60.0, steps_ms: 40.0 });
        let learned = timed.steps_learned(2).unwrap();
        assert!(timed.recall_steps(0, &learned));
        assert_eq!(timed.steps_learned(0), Some(learned));
        let mut stride = Stride { pod_class: 0, ..Stride::default() };
        (stride.steps, stride.busy_ms) = (10.0, 200.0);
        timed.observe_stride(&stride);
        timed.doubt_steps(0);
        assert_eq!(timed.steps_learned(0).map(|learned| learned.strides), Some(0));
    }
}
