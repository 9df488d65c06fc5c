//! Walks over what waits, in slices: a hundred thousand requests are listed and counted without holding
//! the scheduler for longer than one slice takes.
//!
//! Each call looks at a bounded number of requests and says where the next one goes on. What arrives or
//! leaves between two slices is seen or missed; a request that stays is seen once.

use std::{collections::BTreeMap, sync::Arc};

use weir_schema::StepTime;

use crate::{
    Phase, RefusalReason, Time,
    headroom::{judge, outlook},
    inspect::{
        BandView, Census, Count, Cursor, Filter, Page, QueueView, Risk, TENANTS_COUNTED,
        WaitingView,
    },
    queue::{LaneKey, Waiting},
    scheduler::Scheduler,
};

/// Share of the TTFT objective below which what is left of it is little.
const TIGHT: f64 = 0.25;

/// What a pod could do at best, for each class of pods that are ready.
struct Best(Vec<(u16, StepTime, u32)>);

impl Best {
    /// Time left until a deadline that no pod can use up before the first token; `None` without one.
    fn slack_ms(&self, now: Time, waiting: &Waiting) -> Option<f64> {
        let left_ms = waiting.request.deadline()?.ms_until(now);
        let tokens = f64::from(waiting.input_tokens);
        let best = |(_, steps, chunk): &(u16, StepTime, u32)| {
            outlook::best_ttft_ms(steps, *chunk, tokens, waiting.share)
        };
        Some(left_ms - self.0.iter().map(best).reduce(f64::min).unwrap_or(0.0))
    }
}

/// Names of lanes, made once per slice.
type LaneNames = BTreeMap<LaneKey, Arc<str>>;

impl Scheduler {
    /// What a filter leaves of what waits, oldest first from behind `after`: at most `limit`, after a look
    /// at no more than `scan`.
    pub fn waiting_page(
        &self,
        now: Time,
        after: Option<Cursor>,
        filter: &Filter,
        limit: usize,
        scan: usize,
    ) -> Page {
        let (best, mut names, mut page) = (self.best(), LaneNames::new(), Page::default());
        let band = filter.lane.map(|key| key.band()).or(filter.band);
        let mut rest = self.board.behind(band, after.map(|at| (at.arrived, at.id))).peekable();
        while let Some(waiting) = rest.next() {
            if filter.older_than.is_some_and(|age| now.since(waiting.request.arrived) < age) {
                return page;
            }
            page.scanned += 1;
            if admits(filter, waiting, || best.slack_ms(now, waiting)) {
                page.requests.push(self.waiting_view(now, waiting, &best, &mut names));
            }
            if page.scanned >= scan || page.requests.len() >= limit {
                let at = Cursor { arrived: waiting.request.arrived, id: waiting.request.id };
                page.next = rest.peek().map(|_| at);
                return page;
            }
        }
        page
    }

    /// Counts `scan` more of what waits into a census. Says where to go on; `None`: that was all.
    pub fn count(
        &self,
        now: Time,
        after: Option<Cursor>,
        scan: usize,
        census: &mut Census,
    ) -> Option<Cursor> {
        let (best, mut lanes, mut last) = (self.best(), BTreeMap::new(), None);
        let mut rest = self.board.behind(None, after.map(|at| (at.arrived, at.id)));
        for waiting in rest.by_ref().take(scan) {
            let risk = risk(waiting, best.slack_ms(now, waiting));
            let age_ms = now.ms_since(waiting.request.arrived);
            let bytes = waiting.request.body_bytes;
            census.counted += 1;
            let lane: &mut Count = lanes.entry(waiting.key()).or_default();
            add(lane, bytes, age_ms, risk);
            add(census.bands.entry(waiting.pattern.band).or_default(), bytes, age_ms, risk);
            add(tenant(census, waiting), bytes, age_ms, risk);
            last = Some(Cursor { arrived: waiting.request.arrived, id: waiting.request.id });
        }
        let more = rest.next().is_some();
        for (key, count) in lanes {
            let name = key.name(&self.config.buckets).into();
            merge(census.lanes.entry(name).or_default(), count);
        }
        last.filter(|_| more)
    }

    /// Every lane that holds something.
    pub fn lanes(&self) -> Vec<LaneKey> {
        self.board.keys().collect()
    }

    /// What is shown of some lanes; of those that emptied meanwhile, nothing.
    pub fn queue_views(&self, now: Time, lanes: &[LaneKey]) -> Vec<QueueView> {
        let view = |key: &LaneKey| {
            let lane = self.board.lane(*key)?;
            let head = lane.head()?.id();
            let waiting = self.board.get(head)?;
            let paused = self.board.paused().covers(*key);
            Some(QueueView {
                lane: key.name(&self.config.buckets).into(),
                pattern: key.words(&self.config.buckets),
                band: key.band(),
                depth: lane.len(),
                late: waiting.late,
                paused,
                head_wait_ms: now.ms_since(waiting.request.arrived),
                drain_ms: self.drain_ms(now, key.band()).filter(|_| !paused),
                reason: self.reason_of(waiting),
                head,
                request_id: waiting.request.name.clone(),
            })
        };
        lanes.iter().filter_map(view).collect()
    }

    /// Every band in which something waits or ended, the highest first.
    pub fn band_views(&self, now: Time) -> Vec<BandView> {
        let waiting = self.board.bands().map(|(band, _)| band);
        let mut bands: Vec<_> = waiting.chain(self.tallies.keys().copied()).collect();
        bands.sort_unstable();
        bands.dedup();
        let view = |band| {
            let paused = self.board.paused().covers_band(band);
            BandView {
                band,
                depth: self.board.len_of(band),
                oldest_wait_ms: self.board.oldest_of(band).map_or(0.0, |at| now.ms_since(at)),
                drain_ms: self.drain_ms(now, band),
                paused,
                tally: self.tallies.get(&band).copied().unwrap_or_default(),
            }
        };
        bands.into_iter().rev().map(view).collect()
    }

    /// How many were refused for a reason, since the start.
    pub fn refused(&self, reason: RefusalReason) -> u64 {
        self.refused.get(&reason).copied().unwrap_or_default()
    }

    /// The lane that a name means, whether or not it holds anything.
    pub fn lane_called(&self, name: &str) -> Option<LaneKey> {
        LaneKey::parse(name, &self.config.buckets)
    }

    /// What a lane is called.
    pub fn name_of(&self, key: LaneKey) -> String {
        key.name(&self.config.buckets)
    }

    fn best(&self) -> Best {
        let mut best: Vec<(u16, StepTime, u32)> = Vec::new();
        for pod in self.pods.values().filter(|pod| pod.phase == Phase::Ready) {
            if !best.iter().any(|(class, ..)| *class == pod.spec.class) {
                let steps = self.step_time(pod.spec.class);
                best.push((pod.spec.class, steps, pod.class.chunk_tokens));
            }
        }
        Best(best)
    }

    /// What is shown of one waiting request.
    pub(super) fn view_of(&self, now: Time, waiting: &Waiting) -> WaitingView {
        self.waiting_view(now, waiting, &self.best(), &mut LaneNames::new())
    }

    fn lane_name(&self, key: LaneKey, names: &mut LaneNames) -> Arc<str> {
        let made = names.entry(key).or_insert_with(|| key.name(&self.config.buckets).into());
        made.clone()
    }

    fn waiting_view(
        &self,
        now: Time,
        waiting: &Waiting,
        best: &Best,
        names: &mut LaneNames,
    ) -> WaitingView {
        let request = &waiting.request;
        WaitingView {
            id: request.id,
            request_id: request.name.clone(),
            lane: self.lane_name(waiting.key(), names),
            band: waiting.pattern.band,
            adapter: request.adapter.clone(),
            tenant: request.tenant.clone(),
            age_ms: now.ms_since(request.arrived),
            deadline_ms: request.deadline().map(|due| due.ms_until(now)),
            slack_ms: best.slack_ms(now, waiting),
            ttft_slo_ms: judge::ttft_slo_ms(&request.slo),
            tpot_slo_ms: judge::tpot_slo_ms(&request.slo),
            input_tokens: waiting.input_tokens,
            output_tokens: waiting.output_tokens,
            body_bytes: request.body_bytes,
            late: waiting.late,
            reason: self.reason_of(waiting),
            attempts: waiting.attempts(),
            streamed: request.streamed,
        }
    }
}

fn admits(filter: &Filter, waiting: &Waiting, slack_ms: impl FnOnce() -> Option<f64>) -> bool {
    filter.lane.is_none_or(|key| waiting.key() == key)
        && filter.band.is_none_or(|band| waiting.pattern.band == band)
        && filter.tenant.as_ref().is_none_or(|who| waiting.request.tenant.as_ref() == Some(who))
        // What is held back is not put behind others, however late it is.
        && filter.late.is_none_or(|late| late == (risk(waiting, slack_ms()).late > 0))
}

/// How near a request is to its objective, as one of three.
fn risk(waiting: &Waiting, slack_ms: Option<f64>) -> Risk {
    let slo_ms = judge::ttft_slo_ms(&waiting.request.slo);
    let Some((slack_ms, slo_ms)) = slack_ms.zip(slo_ms) else {
        return Risk { ok: 1, ..Risk::default() };
    };
    match slack_ms {
        slack_ms if waiting.late || slack_ms < 0.0 => Risk { late: 1, ..Risk::default() },
        slack_ms if slack_ms < TIGHT * slo_ms => Risk { tight: 1, ..Risk::default() },
        _ => Risk { ok: 1, ..Risk::default() },
    }
}

fn add(count: &mut Count, bytes: u32, age_ms: f64, risk: Risk) {
    merge(count, Count { depth: 1, bytes: bytes.into(), oldest_wait_ms: age_ms, risk });
}

/// Adds what one slice counted of a lane.
fn merge(into: &mut Count, of: Count) {
    into.depth += of.depth;
    into.bytes += of.bytes;
    into.oldest_wait_ms = into.oldest_wait_ms.max(of.oldest_wait_ms);
    into.risk.ok += of.risk.ok;
    into.risk.tight += of.risk.tight;
    into.risk.late += of.risk.late;
}

/// The count that a request's tenant has.
fn tenant<'a>(census: &'a mut Census, waiting: &Waiting) -> &'a mut Count {
    let Some(tenant) = &waiting.request.tenant else { return &mut census.no_tenant };
    if census.tenants.len() >= TENANTS_COUNTED && !census.tenants.contains_key(tenant) {
        return &mut census.other_tenants;
    }
    census.tenants.entry(tenant.clone()).or_default()
}
