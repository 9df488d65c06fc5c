//! What a request that is over says: of answers to come, to those who ask for it a moment later, and to the model.

use std::sync::Arc;

use weir_schema::{Sample, SampleOutcome, schema_hash};

use crate::{
    Answered, End, EndKind, PromptSize, Request, Time,
    decisions::{Ended, Outcome},
    headroom::judge,
    per_event,
    scheduler::flight::Flight,
};

impl Flight {
    /// What its whole response says of others.
    pub(super) fn answered(&self, end: &End) -> Answered {
        let bytes =
            if let PromptSize::Bytes(bytes) = self.request.prompt { Some(bytes) } else { None };
        let events = self.events.max(end.events);
        let counted = || per_event::tokens(events, self.sequences, self.tokens_per_event);
        let seen = self.request.streamed.then(counted);
        Answered {
            tenant: self.request.tenant.clone(),
            input_tokens: self.input_tokens,
            output_tokens: end.output_tokens.or(seen).map(|tokens| self.per_sequence(tokens)),
            prompt: bytes.zip(end.prompt_tokens),
        }
    }

    /// How it ended, for those who ask a moment later.
    pub(super) fn ended(&self, now: Time, end: &End) -> Ended {
        let Request { arrived, slo, streamed, .. } = *self.request.as_ref();
        let output_tokens = end.output_tokens.unwrap_or_else(|| self.tokens());
        let gaps = f64::from(self.per_sequence(output_tokens).saturating_sub(1));
        let span_ms = self.first_token.zip(end.last_token_at).map(|(a, b)| b.ms_since(a));
        let ttft_ms = self.first_token.map(|first| first.ms_since(arrived));
        let tpot_ms = span_ms.filter(|_| gaps > 0.0).map(|ms| ms / gaps);
        let wait_ms = self.sent.ms_since(arrived);
        let (ttft_slo_ms, tpot_slo_ms) = (judge::ttft_slo_ms(&slo), judge::tpot_slo_ms(&slo));
        let kept = if streamed {
            within(ttft_ms, ttft_slo_ms) && within(tpot_ms, tpot_slo_ms)
        } else {
            // All that is seen is the whole, which may take what its parts may take together.
            let rest_ms =
                if gaps > 0.0 { tpot_slo_ms.unwrap_or(f64::INFINITY) * gaps } else { 0.0 };
            within(Some(now.ms_since(arrived)), ttft_slo_ms.map(|ms| ms + rest_ms))
        };
        Ended {
            tenant: self.request.tenant.clone(),
            input_tokens: self.input_tokens,
            output_tokens,
            attempts: self.attempts(),
            pod: Some(self.pod),
            waited: self.sent.since(arrived),
            ttft_ms,
            tpot_ms,
            predicted_ttft_ms: Some(wait_ms + f64::from(self.prediction.ttft_ms.p50)),
            predicted_tpot_ms: Some(f64::from(self.prediction.tpot_ms.p50)),
            attained: kept && end.kind == EndKind::Complete,
            ..Ended::unserved(now, &self.request, Outcome::Ended(end.kind))
        }
    }

    /// The sample of a request that is over; `None` when nothing was measured, or it was decided elsewhere.
    pub(super) fn sample(
        &self,
        now: Time,
        end: &End,
        model: &Arc<str>,
        class: Arc<str>,
    ) -> Option<Sample> {
        let outcome = match end.kind {
            EndKind::Complete => SampleOutcome::Complete,
            EndKind::ClientGone => SampleOutcome::ClientGone,
            EndKind::PodFailed => SampleOutcome::PodFailed,
            EndKind::PodError | EndKind::BadRequest => return None,
        };
        if outcome != SampleOutcome::Complete && self.first_token.is_none() {
            return None;
        }
        let output_tokens = self.per_sequence(end.output_tokens.unwrap_or_else(|| self.tokens()));
        let span_ms = self.first_token.zip(end.last_token_at).map(|(a, b)| b.ms_since(a));
        let gaps = output_tokens.saturating_sub(1);
        let tpot_ms = span_ms.filter(|_| gaps > 0).map(|ms| (ms / f64::from(gaps)) as f32);
        Some(Sample {
            schema: schema_hash().into(),
            at_unix_ms: 0,
            model: model.clone(),
            pod_class: class,
            row: self.row?,
            predicted: self.prediction,
            streamed: self.request.streamed,
            outcome,
            ttft_ms: self.first_token.map(|at| at.ms_since(self.sent) as f32),
            tpot_ms,
            e2e_ms: now.ms_since(self.sent) as f32,
            wait_ms: self.sent.ms_since(self.request.arrived) as f32,
            output_tokens,
        })
    }
}

/// Whether a measured time is inside its objective. What was not measured breaks none.
fn within(measured_ms: Option<f64>, slo_ms: Option<f64>) -> bool {
    measured_ms.zip(slo_ms).is_none_or(|(measured_ms, slo_ms)| measured_ms <= slo_ms)
}
