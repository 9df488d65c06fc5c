//! The demo's sequence.

use std::{cell::RefCell, time::Duration};

use anyhow::{Context, Result};
use tokio::time::Instant;

use super::{
    admin::{self, PoolView},
    args::DemoArgs,
    config,
    narrate::Narrator,
    pool::{Group, addresses, model},
    stage::Stage,
    summary::{Evidence, Plan, Summary},
};
use crate::{
    host::HostTime,
    load::{self, Class, DemoMix, LoadPlan, LoadReport, MaxTokens, MixMeans, Tally, parse_classes},
    results::say,
};

/// Half interactive, a fifth standard, the rest batch; objectives are those of Weir's default configuration.
const CLASSES: [&str; 3] = ["interactive:0.5", "standard:0.2", "batch:0.3"];
/// Requests over which the mix's means are measured.
const MEASURED: (f64, f64) = (100.0, 300.0);
/// How long Weir has to account for the last request after the load has its answer.
const SETTLE: Duration = Duration::from_secs(10);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(300);

/// Runs the demo to its verdict: what is still up, and whether every check holds.
pub(super) async fn play(args: &DemoArgs) -> Result<(Stage, bool)> {
    let groups = args.groups()?;
    let classes = parse_classes(&CLASSES.map(str::to_owned), &[])?;
    let plan = plan(args, &groups, &classes)?;
    say!(
        "Starting simulated pods ({}) and Weir in front of them, policy {}.",
        groups.iter().map(said).collect::<Vec<_>>().join(", "),
        args.policy.name()
    )?;
    let mut stage =
        Stage::set(&args.place(), &groups, |dir| config::yaml(args, &groups, dir)).await?;
    say!("Ready. Configuration, logs and results are in {}.", stage.dir.display())?;
    say!(
        "The pods can hold about {:.1} requests per second of this mix at {:.0} ms per token.",
        plan.capacity_rps,
        plan.tpot_ms
    )?;
    say!(
        "Sending {:.1} per second for {:.0} s, then {:.1} per second for {:.0} s.",
        plan.low_rps,
        plan.stretch_s,
        plan.high_rps,
        plan.stretch_s
    )?;
    let before = HostTime::now();
    let sent = send(args, model(&groups), &plan, &classes, &mut stage).await?;
    let stolen_share = HostTime::now().zip(before).map(|(now, then)| now.stolen_since(then));
    stage.check()?;
    let evidence = evidence(args, &groups, sent, stolen_share).await?;
    let summary = Summary::new(args.policy, plan, &classes, &evidence);
    let path = stage.dir.join("summary.json");
    std::fs::write(&path, serde_json::to_vec_pretty(&summary)?)
        .with_context(|| format!("cannot write {}", path.display()))?;
    say!("\n{}", summary.for_people())?;
    say!("Written to {}.", path.display())?;
    Ok((stage, summary.passed))
}

fn said(group: &Group) -> String {
    format!("{} of {}", group.pods.len(), group.class())
}

fn plan(args: &DemoArgs, groups: &[Group], classes: &[Class]) -> Result<Plan> {
    let tightest = classes.iter().map(|class| class.tpot_ms).fold(f64::INFINITY, f64::min);
    let mix = DemoMix { stretches: vec![MEASURED], classes: classes.to_vec(), seed: args.seed };
    let means = MixMeans::of(&mix.requests()?);
    let each = groups.iter().map(|group| group.capacity_rps(&means, tightest));
    let capacity_rps = each.sum::<Result<f64>>()?;
    Ok(Plan {
        capacity_rps,
        tpot_ms: tightest,
        stretch_s: args.stretch,
        low_rps: args.low * capacity_rps,
        high_rps: args.high * capacity_rps,
    })
}

async fn send(
    args: &DemoArgs,
    model: &str,
    plan: &Plan,
    classes: &[Class],
    stage: &mut Stage,
) -> Result<(LoadReport, Option<PoolView>)> {
    let mix = DemoMix {
        stretches: vec![(plan.low_rps, plan.stretch_s), (plan.high_rps, plan.stretch_s)],
        classes: classes.to_vec(),
        seed: args.seed,
    };
    let load = LoadPlan {
        target: args.api().into(),
        model: model.to_owned(),
        classes: classes.to_vec(),
        requests: mix.requests()?,
        timeout: REQUEST_TIMEOUT,
        max_tokens: MaxTokens::Unsaid,
        run: args.seed,
    };
    let (tally, loaded) = (RefCell::new(Tally::default()), RefCell::new(None));
    let step = (plan.stretch_s, plan.high_rps);
    let narrator = Narrator { admin: args.admin(), classes, tally: &tally, loaded: &loaded, step };
    let report = tokio::select! {
        report = load::run(load, |now| tally.borrow_mut().clone_from(now)) => report,
        ended = narrator.narrate(stage) => match ended? {},
    };
    Ok((report, loaded.into_inner()))
}

/// Asks Weir and the pods, once Weir has nothing left or had long enough.
async fn evidence(
    args: &DemoArgs,
    groups: &[Group],
    (report, loaded): (LoadReport, Option<PoolView>),
    stolen_share: Option<f64>,
) -> Result<Evidence> {
    let start = Instant::now();
    let mut pool = PoolView::read(args.admin()).await?;
    while !pool.idle() && start.elapsed() < SETTLE {
        tokio::time::sleep(Duration::from_millis(100)).await;
        pool = PoolView::read(args.admin()).await?;
    }
    let samples = admin::samples(args.admin()).await?;
    let double_starts = admin::double_starts(&addresses(groups)).await?;
    let loaded = loaded.unwrap_or_else(|| pool.clone());
    Ok(Evidence { report, loaded, pool, samples, double_starts, stolen_share })
}
