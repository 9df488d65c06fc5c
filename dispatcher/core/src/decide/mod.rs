//! The loop that gives requests to pods, one decision at a time.
//!
//! - [`pull`]: the pass over the heads: dispatch, claim, hold; [`heads`]: which one comes first; [`late`]: those that are late
//! - [`score`]: pods looked at for one head; [`grounds`]: what that begins with; [`filter`]: those that may be used at all
//! - [`pick`]: from those to the one it gets, by the rules of the policy; [`plain`]: the same for Weir's own, in one walk
//! - [`sift`]: the filters of a policy; [`margins`], [`saturation`], [`failover`]: what they ask
//! - [`affinity`]: what each pod has cached of a prompt, and what that is worth
//! - [`scorer`], [`picker`]: which pod is better, and which one is taken
//! - [`delay`]: what a request without objectives costs on a pod
//! - [`admission`]: who is refused on arrival; [`scratch`]: memory that is used again;
//!   [`standing`]: pods that need not be looked at again; [`warm`]: waits for the pod that has the prompt, [`company`]: with others;
//!   [`further`]: a further pod for what many share
//!
//! A pass changes nothing but notes (reasons and claims) on the board; the scheduler books its
//! choice and calls again until there is none.

pub mod admission;
pub mod affinity;
pub mod company;
pub mod delay;
pub mod failover;
pub mod filter;
pub mod further;
pub mod grounds;
pub mod heads;
pub mod late;
pub mod margins;
pub mod pick;
pub mod picker;
pub mod plain;
pub mod pull;
pub mod saturation;
pub mod score;
pub mod scorer;
pub mod scratch;
pub mod sift;
pub mod standing;
#[cfg(test)]
mod tests;
pub mod warm;

use smallvec::SmallVec;
use weir_schema::{Predict, Prediction, Row, StepTime};

use self::scratch::Scratch;
use crate::{
    Band, PodId, RequestId, SchedulerConfig, Time,
    decisions::Losers,
    fleet::{PodState, Pods},
    policy::{Dice, Rules},
    queue::{Board, Waiting},
    regrets::{Regret, Regrets},
};

/// Everything a pass reads.
pub struct Floor<'a> {
    /// The pool's configuration.
    pub config: &'a SchedulerConfig,
    /// The policy of the request at hand.
    pub rules: &'a Rules,
    /// The pool's own policy, which orders what waits.
    pub own: &'a Rules,
    /// The policy of requests that ask for it by header.
    pub by_header: &'a Rules,
    /// What it draws with.
    pub dice: &'a mut Dice,
    /// The pod that was picked last.
    pub last: &'a mut Option<PodId>,
    /// The pods that lost when one was picked last.
    pub losers: &'a mut Losers,
    /// Its pods.
    pub pods: &'a Pods,
    /// What waits.
    pub board: &'a mut Board,
    /// What it has cost that prompts are on too few pods.
    pub regrets: &'a Regrets,
    /// Who predicts.
    pub predictor: &'a mut dyn Predict,
    /// Its step times of the classes of the configuration, in their order.
    pub steps: SmallVec<[StepTime; 4]>,
    /// Whether every pod is looked at for every head, whatever is known already.
    pub thorough: bool,
    /// Memory that passes use again.
    pub scratch: &'a mut Scratch,
    /// The moment.
    pub now: Time,
    /// The smallest TPOT objective alive in the pool, in milliseconds.
    pub tightest_tpot_ms: Option<f64>,
    /// The stall for which pods are kept, in milliseconds; `None` while no long prompt comes.
    pub kept_for_ms: Option<f64>,
    /// Mean share of their TTFT objectives that requests had waited when they left the queue.
    pub strain: f64,
    /// How many times as long as a step a token to come is thought to take, for what prompts will take of the pods.
    pub slower: f64,
    /// When a request that had an objective for its first token, and was not late, last went to a pod.
    pub in_time_at: Option<Time>,
    /// The highest band alive in the pool.
    pub top_band: Band,
    /// Classes of the pods that take requests, each once.
    pub open_classes: &'a [u16],
}

impl Floor<'_> {
    /// Turns to a request: from here on the policy is its own.
    pub fn turn_to(&mut self, id: RequestId) {
        let asked = self.board.get(id).is_some_and(|waiting| waiting.request.by_header);
        self.rules = if asked { self.by_header } else { self.own };
    }

    /// The step-time model of a pod class.
    pub fn steps_of(&self, class: u16) -> StepTime {
        let known = self.steps.get(usize::from(class)).copied();
        known.unwrap_or_else(|| self.predictor.step_time(class))
    }

    /// Share of a pod's profiled capacity that a request takes; `None` when it cannot serve it.
    pub fn load_of(&self, waiting: &Waiting, pod: &PodState) -> Option<f64> {
        self.config.load(pod.spec.class, waiting.input_tokens, waiting.output_tokens)
    }
}

/// A request and the pod it goes to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choice {
    /// Which request.
    pub id: RequestId,
    /// To which pod.
    pub pod: PodId,
    /// Prompt tokens the pod has to compute.
    pub uncached_tokens: f64,
    /// The row it was decided with.
    pub row: Row,
    /// What was predicted.
    pub prediction: Prediction,
    /// What has been lost by the prompt not being on a further pod.
    pub regret: Option<Regret>,
    /// Whether it starts cold so that the prompt is on a further pod for several.
    pub spreads: bool,
}

impl Choice {
    /// One that is for several.
    pub const fn for_others(self) -> Self {
        Self { spreads: true, ..self }
    }
}
