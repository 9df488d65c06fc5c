//! The same requests through the simulation.

use anyhow::Result;

use crate::{
    contender::Contender,
    real::{Got, Prediction, Slice},
    sim::{Outcome, Pool, Served, drive},
    study::Knowledge,
};

/// What each request got, in a run for each seed of the engines' noise.
pub(super) fn run(
    slice: &Slice,
    pool: &Pool,
    prediction: Prediction,
    seeds: &[u64],
) -> Result<Vec<Vec<Got>>> {
    let model = pool.pods.first().map_or("", |pod| pod.engine.hardware.model);
    let requests = slice.sim_requests(model)?;
    let weir = Contender::named("weir")?;
    let knowledge = match prediction {
        Prediction::Fitted => Knowledge::Fitted,
        Prediction::Trained => Knowledge::Trained(Box::default()),
    };
    let one = |seed: &u64| {
        let dispatcher = knowledge.dispatcher(&weir, pool, *seed)?;
        let run = drive(&pool.seeded(*seed), pool.scrape_every, dispatcher, &requests);
        let both = requests.iter().zip(&run.outcomes);
        Ok(both.map(|(asked, outcome)| got(asked.class, outcome)).collect())
    };
    seeds.iter().map(one).collect()
}

fn got(class: usize, outcome: &Outcome) -> Got {
    let served = match outcome {
        Outcome::Served(served) => Some(served),
        Outcome::Refused(_) | Outcome::Rejected => None,
    };
    let tpot_ms = served.and_then(|served| served.tpot_ms);
    Got { class, ttft_ms: served.map(Served::ttft_from_arrival_ms), tpot_ms }
}
