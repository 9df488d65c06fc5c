//! The built-in mix as requests of the core: objectives and bands by class, a share of them streamed.

use std::time::Duration;

use anyhow::Result;
use rand::{Rng, SeedableRng, rngs::SmallRng};
use weir_core::{Band, PromptSize, Request, RequestId, Slo, Time};

use super::SimRequest;
use crate::load::{Class, DemoMix, Planned};

/// The demo's load with a share of streams.
#[derive(Clone, Debug)]
pub struct Mix {
    /// When requests of which sizes and classes come.
    pub demo: DemoMix,
    /// Share of the requests whose response is streamed, 0 to 1.
    pub streamed: f64,
}

impl Mix {
    /// The requests. Two mixes that differ only in the share of streams have the same requests otherwise. They share no
    /// prefix.
    ///
    /// # Errors
    /// When a rate of the mix is not above zero.
    pub fn requests(&self) -> Result<Vec<SimRequest>> {
        // A generator of its own: the share must not move any other draw.
        let mut rng = SmallRng::seed_from_u64(!self.demo.seed);
        let planned = self.demo.requests()?;
        let one = |(number, planned): (u64, &Planned)| {
            let streamed = rng.random::<f64>() < self.streamed;
            let class = self.demo.classes.get(planned.class);
            SimRequest {
                request: request(number, planned, class, streamed),
                class: planned.class,
                input_tokens: planned.input_tokens,
                output_tokens: planned.output_tokens,
                blocks_with_answer: None,
                after: None,
            }
        };
        Ok((0..).zip(&planned).map(one).collect())
    }
}

fn request(number: u64, planned: &Planned, class: Option<&Class>, streamed: bool) -> Request {
    let objective = |ms: fn(&Class) -> f64| {
        class.and_then(|class| Duration::try_from_secs_f64(ms(class) / 1000.0).ok())
    };
    Request {
        slo: Slo { ttft: objective(|class| class.ttft_ms), tpot: objective(|class| class.tpot_ms) },
        band: band(class),
        body_bytes: planned.input_tokens.saturating_mul(4),
        streamed,
        ..Request::new(
            RequestId(number),
            Time::ZERO.plus(planned.at),
            PromptSize::Tokens(planned.input_tokens),
        )
    }
}

/// As the default configuration has them.
fn band(class: Option<&Class>) -> Band {
    match class.map(|class| class.name.as_str()) {
        Some("interactive") => Band(1),
        Some("batch") => Band(-1),
        _ => Band(0),
    }
}
