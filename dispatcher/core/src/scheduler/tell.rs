//! In plain words: why a request waits, how it runs, how it ended, and what happened to it.

use std::{sync::Arc, time::Duration};

use crate::{
    EndKind, PodId, Reason, RequestId, Time,
    decisions::{Decision, Ended, Outcome, Verdict},
    explain::span,
    headroom::judge,
    inspect::{Look, Moment},
    queue::Waiting,
    scheduler::{Scheduler, flight::Flight},
};

/// Most others of a name that are told.
const NAMESAKES: usize = 5;

impl Scheduler {
    pub(super) fn explain_waiting(&self, now: Time, waiting: &Waiting, looks: &[Look]) -> String {
        let request = &waiting.request;
        let age_ms = now.ms_since(request.arrived);
        let lane = waiting.key().name(&self.config.buckets);
        let due = match request.deadline().map(|due| due.ms_until(now)) {
            None => "It has no objective for its first token.".to_owned(),
            Some(left_ms) if left_ms >= 0.0 => {
                format!("Its first token is due in {}.", span(left_ms))
            }
            Some(left_ms) => format!("Its first token was due {} ago.", span(-left_ms)),
        };
        let reason = self.reason_of(waiting);
        let why = reason.text(|id| self.called(id));
        let called = self.called(request.id);
        let mut text =
            format!("{called} has waited {} in lane {lane}. {due} It waits: {why}.", span(age_ms));
        if let Some(first) = self.before(waiting, reason) {
            let why = self.reason_of(first).text(|id| self.called(id));
            text += &format!(" Before it, {} waits: {why}.", self.called(first.request.id));
        }
        if reason != Reason::Paused {
            text += &would_fit(looks);
        }
        let left = span(self.refused_in_ms(now, waiting));
        let unless = if self.no_pod_since.is_some() { "no pod is ready" } else { "it still waits" };
        text + &format!(" It is refused if {unless} in {left}.{}", self.namesakes(waiting))
    }

    /// A sentence, after a blank: which others that wait are called as this one is, the youngest first.
    fn namesakes(&self, waiting: &Waiting) -> String {
        let (id, name) = (waiting.request.id, &waiting.request.name);
        let others = self.waiting_called(name).filter(|other| *other != id);
        let numbers: Vec<String> =
            others.take(NAMESAKES).map(|other| format!("#{}", other.0)).collect();
        if numbers.is_empty() {
            return String::new();
        }
        format!(" Of those that wait, others are called so too: {}.", numbers.join(", "))
    }

    /// The waiting request that a reason points to: the head of its lane, or the head that is first.
    fn before(&self, waiting: &Waiting, reason: Reason) -> Option<&Waiting> {
        let first = match reason {
            Reason::BehindItsLane => self.board.lane(waiting.key())?.head()?.id(),
            Reason::BehindHead { head } => head,
            _ => return None,
        };
        self.board.get(first).filter(|first| first.request.id != waiting.request.id)
    }

    pub(super) fn explain_running(&self, now: Time, flight: &Flight, decoding: bool) -> String {
        let (request, pod) = (&flight.request, self.pod_name(flight.pod));
        let wait_ms = flight.sent.ms_since(request.arrived);
        let view = flight.view(now, decoding);
        let promised = |slo_ms: Option<f64>| {
            slo_ms.map_or_else(|| "nothing promised".to_owned(), |ms| span(ms) + " promised")
        };
        let mut text = format!(
            "{} waited {} and went to {pod}, where its first token was predicted after {}.",
            self.called(request.id),
            span(wait_ms),
            span(view.predicted_ttft_ms.into()),
        );
        match flight.first_token {
            Some(first) => {
                let ttft_ms = first.ms_since(request.arrived);
                let slo = promised(view.ttft_slo_ms);
                text += &format!(" It came {} after the arrival ({slo}).", span(ttft_ms));
            }
            None if request.streamed => text += " It has not come yet.",
            None => text += " The response is not streamed, so that nothing is seen until its end.",
        }
        if let Some(tpot_ms) = view.tpot_ms {
            let slo = promised(view.tpot_slo_ms);
            text +=
                &format!(" {} tokens so far, one every {} ({slo}).", view.tokens, span(tpot_ms));
        }
        text
    }

    /// What happened to a request, as far as it is remembered.
    pub(super) fn history(&self, now: Time, id: RequestId) -> Vec<Moment> {
        let mut moments = Vec::new();
        let mut add = |at: Time, what: String| moments.push((at, what));
        let flight = self.flights.get(&id);
        let waiting = self.board.get(id).map(|waiting| waiting.request.arrived);
        let running = flight.map(|flight| flight.request.arrived);
        let ended = self.ended.newest().find(|(_, ended)| ended.id == id).map(|(_, ended)| ended);
        let arrived = waiting.or(running).or_else(|| Some(ended?.arrived));
        arrived.into_iter().for_each(|at| add(at, "arrived".to_owned()));
        let mut sent = false;
        for (_, decision) in self.decisions.newest().filter(|(_, one)| one.id == id) {
            sent |= matches!(decision.verdict, Verdict::Dispatch | Verdict::Spread);
            add(decision.at, told(decision, |pod| self.pod_name(pod)));
        }
        if let Some(flight) = flight {
            if !sent {
                let (pod, attempt) = (self.pod_name(flight.pod), flight.attempts());
                add(flight.sent, format!("sent to {pod}, attempt {attempt}"));
            }
            flight.first_token.into_iter().for_each(|at| add(at, "first token".to_owned()));
        }
        if let Some(ended) = ended.filter(|ended| matches!(ended.outcome, Outcome::Ended(_))) {
            if let Some(ttft_ms) = ended.ttft_ms {
                let first = Duration::from_secs_f64(ttft_ms.max(0.0) / 1e3);
                add(ended.arrived.plus(first), "first token".to_owned());
            }
            add(ended.at, format!("ended: {}", ended.outcome.name()));
        }
        moments.sort_by_key(|(at, _)| *at);
        let moment = |(at, what): (Time, String)| Moment { at_ms: Some(now.ms_since(at)), what };
        moments.into_iter().map(moment).collect()
    }
}

/// A sentence, after a blank: on how many pods a request fits, each taken by itself.
pub(super) fn would_fit(looks: &[Look]) -> String {
    let open = looks.iter().filter(|look| look.fits).count();
    match (open, looks.len()) {
        (_, 0) => String::new(),
        (0, 1) => " The only pod would not take it now.".to_owned(),
        (_, 1) => " By itself it would fit on the only pod.".to_owned(),
        (0, all) => format!(" None of {all} pods would take it now."),
        (open, all) => format!(" By itself it would fit on {open} of {all} pods."),
    }
}

/// A decision in words.
fn told(decision: &Decision, name: impl Fn(PodId) -> Arc<str>) -> String {
    let pod = decision.pod.map(name);
    let pod = pod.as_deref().unwrap_or("a pod");
    match decision.verdict {
        Verdict::Dispatch => format!("sent to {pod}"),
        Verdict::Spread => {
            format!("sent to {pod}, so that the prompt it shares with others is there too")
        }
        Verdict::Refuse(reason) => format!("refused: {}", reason.text()),
        Verdict::Demote => "put behind those that can still make it".to_owned(),
        Verdict::Cancel => "its client left".to_owned(),
        Verdict::Requeue => format!("nothing of it reached {pod}; back in its lane"),
        Verdict::Move => format!("moved to band {} by an operator", decision.band.0),
    }
}

pub(super) fn explain_ended(now: Time, ended: &Ended, name: impl Fn(PodId) -> Arc<str>) -> String {
    let ago = span(now.ms_since(ended.at));
    let waited = span(ended.waited.as_secs_f64() * 1e3);
    let called = if ended.name.is_empty() {
        format!("request {}", ended.id.0)
    } else {
        format!("request {}", ended.name)
    };
    let pod = ended.pod.map(name);
    let pod = pod.as_deref().unwrap_or("a pod");
    let kind = match ended.outcome {
        Outcome::Refused(reason) => {
            return format!("{called} was refused {ago} ago after {waited}: {}.", reason.text());
        }
        Outcome::Cancelled => {
            return format!("{called}: its client left {ago} ago, while it waited ({waited}).");
        }
        Outcome::Ended(kind) => kind,
    };
    let how = match kind {
        EndKind::Complete => "was served completely by",
        EndKind::ClientGone => "lost its client during the response of",
        EndKind::PodError => "was answered with an error by",
        EndKind::BadRequest => "was refused as wrong by",
        EndKind::PodFailed => "was lost by",
    };
    let mut text = format!("{called} {how} {pod}; it ended {ago} ago. It waited {waited}.");
    if let Some(ttft_ms) = ended.ttft_ms {
        let slo = judge::ttft_slo_ms(&ended.slo);
        text += &format!(" First token after {}{}.", span(ttft_ms), promised(slo));
    }
    if let Some(tpot_ms) = ended.tpot_ms {
        let slo = judge::tpot_slo_ms(&ended.slo);
        text += &format!(" One token every {}{}.", span(tpot_ms), promised(slo));
    }
    text
}

fn promised(slo_ms: Option<f64>) -> String {
    slo_ms.map_or_else(String::new, |slo_ms| format!(" ({} promised)", span(slo_ms)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Band, Slo};

    fn ended(kind: EndKind) -> Ended {
        Ended {
            at: Time::ZERO,
            id: RequestId(7),
            name: "st1".into(),
            band: Band(0),
            tenant: None,
            arrived: Time::ZERO,
            slo: Slo { ttft: None, tpot: None },
            outcome: Outcome::Ended(kind),
            input_tokens: 0,
            output_tokens: 0,
            attempts: 1,
            pod: Some(PodId(0)),
            waited: Duration::ZERO,
            ttft_ms: None,
            tpot_ms: None,
            predicted_ttft_ms: None,
            predicted_tpot_ms: None,
            attained: false,
        }
    }

    #[test]
    fn how_a_request_ended_is_a_sentence_that_names_its_pod() {
        for (kind, how) in [
            (EndKind::Complete, "was served completely by pod-0"),
            (EndKind::ClientGone, "lost its client during the response of pod-0"),
            (EndKind::PodError, "was answered with an error by pod-0"),
            (EndKind::BadRequest, "was refused as wrong by pod-0"),
            (EndKind::PodFailed, "was lost by pod-0"),
        ] {
            let text = explain_ended(Time::ZERO, &ended(kind), |_| "pod-0".into());
            assert!(text.starts_with(&format!("request st1 {how}; it ended ")), "{text}");
        }
    }
}
