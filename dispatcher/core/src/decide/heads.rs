//! Which head is looked at first: by band, then by the policy's order.
//!
//! Deadline, arrival and size are known on arrival and are the lanes' own rank. Slack and the
//! probability of a violation change with pods and time, so heads are sorted anew in each pass; inside
//! a lane, where requests cost alike, the earliest deadline has the least slack.

use std::cmp::Reverse;

use crate::{
    RequestId,
    decide::{Floor, pick::Fit},
    policy::Order,
    profile::{Expected, Targets, Violation},
    queue::{Head, Waiting},
};

impl Floor<'_> {
    /// The heads of all lanes, the first to be served first. The buffer is the scratch's.
    pub fn heads(&mut self) -> Vec<Head> {
        let mut heads = std::mem::take(&mut self.scratch.heads);
        self.board.heads_into(&mut heads);
        let urgency = match self.own.order {
            Order::Slack => |violation: &Violation| -violation.slack_ms,
            Order::Violation => |violation: &Violation| violation.probability,
            Order::Deadline
            | Order::HeadStart
            | Order::SloDeadline
            | Order::Fifo
            | Order::ShortestFirst => return heads,
        };
        let mut keyed: Vec<_> =
            heads.into_iter().map(|head| (self.urgency(head.1.id(), urgency), head)).collect();
        keyed.sort_by(|(a, one), (b, other)| {
            let bands = Reverse(one.0).cmp(&Reverse(other.0));
            bands.then(b.total_cmp(a)).then(Reverse(one.1).cmp(&Reverse(other.1)))
        });
        keyed.into_iter().map(|(_, head)| head).collect()
    }

    /// How near a head is to missing an objective on the pod where it is furthest from that. One
    /// without objectives is nowhere near.
    fn urgency(&mut self, id: RequestId, of: fn(&Violation) -> f64) -> f64 {
        let outlooks = self.look(id);
        let fits = self.predict(id, &outlooks);
        self.scratch.outlooks = outlooks;
        let Some(waiting) = self.board.get(id) else { return f64::NEG_INFINITY };
        let violations = fits.iter().filter_map(|fit| self.violation(waiting, fit));
        violations.map(|violation| of(&violation)).reduce(f64::min).unwrap_or(f64::NEG_INFINITY)
    }

    fn violation(&self, waiting: &Waiting, fit: &Fit) -> Option<Violation> {
        let class = self.pods.get(&fit.outlook.pod)?.spec.class;
        let own = Targets::from(&waiting.request.slo);
        let profile = self.config.profiles.get(class);
        let targets = profile.map_or(own, |profile| own.or((&profile.objectives).into()));
        let expected =
            Expected::of_prediction(&fit.prediction, waiting.input_tokens, waiting.output_tokens);
        Violation::of(&targets, &expected, self.now.ms_since(waiting.request.arrived))
    }
}
