//! Weir with something left out or put in another's place: `weir:NAME`, or several as `weir:NAME+NAME`.
//!
//! What each is worth is what the figures fall by without it. Two of them know more than anybody can: `length-known` is told
//! the length of every answer when the request arrives, as its client's bound, and keeps no history; `perfect` knows in addition
//! what every step costs, without error.

use anyhow::{Context, Result, bail, ensure};
use weir_core::{
    LengthConfig, Rules, Scheduler, SchedulerConfig,
    policy::{Affinity, Hopeless, Mode, Order},
};
use weir_schema::Predict;

use super::{Contender, informed::Informed};
use crate::sim::{Oracle, Pool, SimRequest};

/// What is changed: parameters, rules, and what is known.
#[derive(Clone, Debug, Default)]
struct Change {
    parts: Vec<Part>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Part {
    Order(Order),
    Mode(Mode),
    /// Never hold.
    Push,
    NoDemotion,
    /// What cannot be in time is refused.
    Refuse,
    NoAffinity,
    /// Share of its TTFT objective after which a blocked head holds lower bands back.
    Binds(f64),
    /// Share of the pods for long prompts of late requests.
    Late(f64),
    /// Up to which share of the objectives waited a blocked head holds its own band back.
    Holds(f64),
    Margin(f64),
    /// Prompt tokens that a pod may have pending with the newcomer; `None`: any number.
    Buffer(Option<u32>),
    Quantile(f64),
    /// Residents that a prefill may cost their pace, however long its request has waited.
    Risk(f64),
    /// No pods kept for long prompts.
    Spread,
    LengthKnown,
    Perfect,
}

/// The contender `weir:` followed by `said`.
///
/// # Errors
/// When a part of it is not known.
pub(super) fn named(name: &str, said: &str) -> Result<Contender> {
    let parts = said.split('+').map(part).collect::<Result<_>>()?;
    let change = Change { parts };
    Ok(Contender::new(name, move |pool: &Pool, predictor, seed| {
        let mut config = super::configured(pool, seed, &|config| change.apply(config));
        let perfect = change.parts.contains(&Part::Perfect);
        let predictor: Box<dyn Predict> =
            if perfect { Box::new(Oracle::new(pool, 0.0, seed)) } else { predictor };
        if !perfect && !change.parts.contains(&Part::LengthKnown) {
            return Box::new(Scheduler::new(config, predictor));
        }
        know_lengths(&mut config);
        Informed::by(move |requests| {
            let lengths: Vec<u32> = requests.iter().map(output_tokens).collect();
            let tell = move |request: &mut weir_core::Request| {
                request.max_output_tokens = lengths.get(request.id.0 as usize).copied();
            };
            (Scheduler::new(config, predictor), Box::new(tell))
        })
    }))
}

fn part(said: &str) -> Result<Part> {
    let number = |of: &str| of.parse::<f64>().with_context(|| format!("{said:?} needs a number"));
    let within = |of: &str| {
        let share = number(of)?;
        // The range that the configuration of the dispatcher allows.
        ensure!((0.0..=1.0).contains(&share), "{said:?} needs a number from 0 to 1");
        Ok(share)
    };
    let part = match said {
        "order-deadline" => Part::Order(Order::Deadline),
        "order-fifo" => Part::Order(Order::Fifo),
        "order-slack" => Part::Order(Order::Slack),
        "order-violation" => Part::Order(Order::Violation),
        "strict" => Part::Mode(Mode::PullStrict),
        "reservation" => Part::Mode(Mode::PullReservation),
        "backfill" => Part::Mode(Mode::PullBackfill),
        "push" => Part::Push,
        "no-demotion" => Part::NoDemotion,
        "refuse" => Part::Refuse,
        "no-affinity" => Part::NoAffinity,
        "buffer-unbounded" => Part::Buffer(None),
        "spread" => Part::Spread,
        "length-known" => Part::LengthKnown,
        "perfect" => Part::Perfect,
        _ => match said.split_once('-') {
            Some(("margin", margin)) => Part::Margin(within(margin)?),
            Some(("binds", share)) => Part::Binds(within(share)?),
            Some(("holds", share)) => Part::Holds(within(share)?),
            Some(("late", share)) => Part::Late(within(share)?),
            Some(("quantile", quantile)) => Part::Quantile(within(quantile)?),
            Some(("risk", risk)) => Part::Risk(within(risk)?),
            Some(("buffer", tokens)) => {
                let tokens = tokens.parse().with_context(|| format!("{said:?} needs a count"))?;
                Part::Buffer(Some(tokens))
            }
            _ => bail!("there is no variant {said:?} of weir"),
        },
    };
    Ok(part)
}

impl Change {
    fn apply(&self, config: &mut SchedulerConfig) {
        let mut rules = config.rules();
        self.parts.iter().for_each(|part| part.apply(config, &mut rules));
        config.rules = Some(rules);
    }
}

impl Part {
    fn apply(self, config: &mut SchedulerConfig, rules: &mut Rules) {
        match self {
            Self::Order(order) => rules.order = order,
            Self::Mode(mode) => rules.dispatch = mode,
            Self::Push => {
                rules.dispatch = Mode::Push;
                rules.filters = Vec::new();
                rules.affinity = Affinity::None;
                rules.hopeless = Hopeless::Serve;
            }
            Self::NoDemotion => rules.hopeless = Hopeless::Serve,
            Self::Refuse => rules.hopeless = Hopeless::Refuse,
            Self::NoAffinity => rules.affinity = Affinity::None,
            Self::Margin(margin) => config.pull.tpot_margin = margin,
            Self::Binds(share) => config.pull.bind_share = share,
            Self::Holds(share) => config.pull.hold_share = share,
            Self::Late(share) => config.pull.late_share = share,
            Self::Buffer(tokens) => buffer(config, tokens),
            Self::Quantile(quantile) => config.pull.remaining_quantile = quantile,
            Self::Risk(risk) => {
                (config.pull.risk_at_once, config.pull.risk_when_due) = (risk, risk);
            }
            Self::Spread => config.pull.long_prompt_ms = f64::INFINITY,
            Self::LengthKnown | Self::Perfect => {}
        }
    }
}

/// The buffer inside the engine, for big chunks and small ones alike.
fn buffer(config: &mut SchedulerConfig, tokens: Option<u32>) {
    let tokens = tokens.unwrap_or(u32::MAX);
    let pull = &mut config.pull;
    (pull.top_band_tokens, pull.pending_tokens, pull.step_tokens) = (tokens, tokens, tokens);
    pull.pending_ms = 0.0;
}

/// Lengths are what the client's bound says: no history ever has enough to say another.
fn know_lengths(config: &mut SchedulerConfig) {
    config.length = LengthConfig {
        half_life: u32::MAX,
        enough: f32::INFINITY,
        quantile: 1.0,
        cold_tokens: u32::MAX,
    };
    config.pull.remaining_quantile = 1.0;
}

/// Tokens that a request will have been answered with.
fn output_tokens(request: &SimRequest) -> u32 {
    request.output_tokens.min(request.request.max_output_tokens.unwrap_or(u32::MAX)).max(1)
}

#[cfg(test)]
mod tests {
    use weir_core::{HeadRule, Policy, length::LengthHistory, policy::check};

    use super::*;

    fn changed(said: &str) -> SchedulerConfig {
        let parts = said.split('+').map(|said| part(said).unwrap()).collect();
        let mut config = SchedulerConfig::default();
        Change { parts }.apply(&mut config);
        config
    }

    #[test]
    fn each_variant_changes_what_it_is_called_after_and_nothing_else() {
        let plain = SchedulerConfig { rules: Some(Policy::Weir.rules()), ..Default::default() };
        let mut expected = plain.clone();
        expected.pull.tpot_margin = 1.0;
        assert_eq!(changed("margin-1.0"), expected);
        let mut expected = plain.clone();
        expected.pull.remaining_quantile = 0.25;
        assert_eq!(changed("quantile-0.25"), expected);
        let mut expected = plain.clone();
        expected.rules.as_mut().unwrap().order = Order::Fifo;
        assert_eq!(changed("order-fifo"), expected);
        let mut expected = plain.clone();
        expected.rules.as_mut().unwrap().hopeless = Hopeless::Refuse;
        assert_eq!(changed("refuse"), expected);
        let mut expected = plain.clone();
        (expected.pull.risk_at_once, expected.pull.risk_when_due) = (0.3, 0.3);
        assert_eq!(changed("risk-0.3"), expected);
        let mut expected = plain.clone();
        expected.pull.long_prompt_ms = f64::INFINITY;
        assert_eq!(changed("spread"), expected);
        let mut expected = plain.clone();
        expected.pull.hold_share = 1.0;
        assert_eq!(changed("holds-1"), expected);
        let mut expected = plain.clone();
        expected.pull.late_share = 0.25;
        assert_eq!(changed("late-0.25"), expected);
        assert_eq!(changed("length-known"), plain);
        assert_eq!(plain.pull.head_rule, HeadRule::Auto);
    }

    #[test]
    fn variants_can_be_put_together_and_unknown_ones_are_named() {
        let both = changed("strict+buffer-0");
        assert_eq!(both.rules().dispatch, Mode::PullStrict);
        assert_eq!(both.pull.pending_tokens, 0);
        assert_eq!(changed("buffer-8192").pull.pending_tokens, 8192);
        assert_eq!(changed("buffer-unbounded").pull.top_band_tokens, u32::MAX);
        let numbers = ["nan", "-1", "inf", "1.01"];
        let parts = ["binds", "holds", "late", "margin", "quantile", "risk"];
        let outside = parts.iter().flat_map(|part| numbers.map(|of| format!("{part}-{of}")));
        let outside: Vec<String> = outside.collect();
        let other = ["nonsense", "margin-much", "buffer--1", ""];
        for said in outside.iter().map(String::as_str).chain(other) {
            let error = part(said).unwrap_err().to_string();
            assert!(error.contains(&format!("{said:?}")), "{error}");
        }
    }

    #[test]
    fn the_rules_of_every_variant_make_sense() {
        for said in [
            "order-deadline",
            "order-fifo",
            "order-slack",
            "order-violation",
            "strict",
            "reservation",
            "backfill",
            "push",
            "no-demotion",
            "refuse",
            "no-affinity",
        ] {
            assert_eq!(check::problems(&changed(said).rules()), [], "{said}");
        }
    }

    #[test]
    fn a_known_length_is_what_is_expected_and_what_remains_is_the_rest_of_it() {
        let mut config = SchedulerConfig::default();
        know_lengths(&mut config);
        let mut history = LengthHistory::new(config.length, &config.buckets.input);
        for length in 1..2000 {
            history.observe(None, 500, length);
        }
        assert_eq!(history.predict(None, 500, Some(777)), 777);
        let quantile = config.pull.remaining_quantile as f32;
        assert_eq!(history.remaining(None, 500, Some(777), 700, quantile), 77);
        assert_eq!(history.remaining(None, 500, Some(100_000), 1, quantile), 99_999);
    }
}
