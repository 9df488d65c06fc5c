//! Requests per minute, per tenant.
//!
//! A GCRA bucket per tenant and rate (governor). What is tracked is bounded: once `max_tenants`
//! tenants are tracked, those whose bucket is full again are forgotten, and newcomers beyond the
//! bound share one bucket, so that a client that invents tenants gains nothing.

use std::{
    collections::HashMap,
    num::NonZeroU32,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};

use governor::{
    Quota, RateLimiter,
    clock::{Clock, MonotonicClock},
    middleware::{StateInformationMiddleware, StateSnapshot},
    nanos::Nanos,
    state::{StateStore, keyed::ShrinkableKeyedStateStore},
};
use parking_lot::Mutex;

/// How often a tenant may call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rate {
    /// Requests per minute in the long run.
    pub per_minute: NonZeroU32,
    /// Requests at once.
    pub burst: NonZeroU32,
}

/// Where a tenant stands with its rate, for the `x-ratelimit-*` headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Requests per minute.
    pub limit: u32,
    /// Requests that would be let through now.
    pub remaining: u32,
    /// Time until as many as ever are let through again.
    pub reset: Duration,
}

/// The tenant has used up its rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many requests: the limit is {} per minute", .standing.limit)]
pub struct RateExceeded {
    /// Where it stands.
    pub standing: Standing,
    /// When the next request would be let through.
    pub retry_after: Duration,
}

/// The rates of all tenants.
pub struct Limiter<C: Clock = MonotonicClock> {
    default: Option<Rate>,
    buckets: HashMap<Rate, Arc<Buckets<C>>>,
    max_tenants: usize,
    /// Requests seen while the tracked tenants were at their bound.
    crowded: AtomicU32,
    /// The tenant of requests without one.
    nobody: Arc<str>,
    clock: C,
}

type Buckets<C> = RateLimiter<Arc<str>, Tracked, C, StateInformationMiddleware>;

/// Forgetting looks at every tenant, so it is tried once in this many requests while crowded.
const FORGET_EVERY: u32 = 1024;

impl<C: Clock + Clone> Limiter<C> {
    /// A limiter for tenants at the default rate, if any, and at the given rates of their own.
    pub fn new(
        default: Option<Rate>,
        own: impl Iterator<Item = Rate>,
        max_tenants: usize,
        clock: C,
    ) -> Self {
        Self::following(None, default, own, max_tenants, clock)
    }

    /// The same, in the place of another: at rates that both have, tenants stand where they stood.
    pub fn following(
        before: Option<&Self>,
        default: Option<Rate>,
        own: impl Iterator<Item = Rate>,
        max_tenants: usize,
        clock: C,
    ) -> Self {
        let before = before.filter(|before| before.max_tenants == max_tenants);
        let buckets = |rate: Rate| {
            let kept = before.and_then(|before| before.buckets.get(&rate)).cloned();
            let fresh = || {
                let quota = Quota::per_minute(rate.per_minute).allow_burst(rate.burst);
                let tracked = Tracked::new(max_tenants);
                Arc::new(Buckets::<C>::new(quota, tracked, clock.clone()))
            };
            (rate, kept.unwrap_or_else(fresh))
        };
        let buckets = default.into_iter().chain(own).map(buckets).collect();
        let nobody = Arc::from("");
        Self { default, buckets, max_tenants, crowded: AtomicU32::new(0), nobody, clock }
    }

    /// Counts a request of `tenant` at its own rate or else the default one. `None`: no limit.
    ///
    /// # Errors
    /// When the rate is used up.
    pub fn count(
        &self,
        own: Option<Rate>,
        tenant: Option<&Arc<str>>,
    ) -> Result<Option<Standing>, RateExceeded> {
        let Some(rate) = own.or(self.default) else { return Ok(None) };
        let Some(buckets) = self.buckets.get(&rate) else { return Ok(None) };
        if buckets.len() >= self.max_tenants
            && self.crowded.fetch_add(1, Relaxed).is_multiple_of(FORGET_EVERY)
        {
            buckets.retain_recent();
        }
        match buckets.check_key(tenant.unwrap_or(&self.nobody)) {
            Ok(state) => Ok(Some(standing(rate, &state))),
            Err(wait) => {
                let retry_after = wait.wait_time_from(self.clock.now());
                let reset = retry_after + interval(rate) * (rate.burst.get() - 1);
                let standing = Standing { limit: rate.per_minute.get(), remaining: 0, reset };
                Err(RateExceeded { standing, retry_after })
            }
        }
    }
}

fn standing(rate: Rate, state: &StateSnapshot) -> Standing {
    let remaining = state.remaining_burst_capacity().min(rate.burst.get());
    let reset = interval(rate) * (rate.burst.get() - remaining);
    Standing { limit: rate.per_minute.get(), remaining, reset }
}

/// Time in which one request more is let through.
fn interval(rate: Rate) -> Duration {
    Duration::from_secs(60) / rate.per_minute.get()
}

/// Buckets by tenant, of which at most `most` are kept apart.
#[derive(Debug)]
struct Tracked {
    most: usize,
    buckets: Mutex<Apart>,
}

#[derive(Debug, Default)]
struct Apart {
    by_tenant: HashMap<Arc<str>, Nanos>,
    /// The bucket of everybody else.
    others: Option<Nanos>,
}

impl Tracked {
    fn new(most: usize) -> Self {
        Self { most, buckets: Mutex::default() }
    }
}

impl StateStore for Tracked {
    type Key = Arc<str>;

    fn measure_and_replace<T, F, E>(&self, tenant: &Arc<str>, decide: F) -> Result<T, E>
    where
        F: Fn(Option<Nanos>) -> Result<(T, Nanos), E>,
    {
        let mut buckets = self.buckets.lock();
        if let Some(bucket) = buckets.by_tenant.get_mut(tenant) {
            let (outcome, after) = decide(Some(*bucket))?;
            *bucket = after;
            return Ok(outcome);
        }
        if buckets.by_tenant.len() >= self.most {
            let (outcome, after) = decide(buckets.others)?;
            buckets.others = Some(after);
            return Ok(outcome);
        }
        let (outcome, after) = decide(None)?;
        buckets.by_tenant.insert(tenant.clone(), after);
        Ok(outcome)
    }
}

impl ShrinkableKeyedStateStore<Arc<str>> for Tracked {
    fn retain_recent(&self, drop_below: Nanos) {
        self.buckets.lock().by_tenant.retain(|_, bucket| *bucket > drop_below);
    }

    fn len(&self) -> usize {
        self.buckets.lock().by_tenant.len()
    }

    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use governor::clock::FakeRelativeClock;

    use super::*;

    fn rate(per_minute: u32, burst: u32) -> Rate {
        let [per_minute, burst] = [per_minute, burst].map(|n| NonZeroU32::new(n).unwrap());
        Rate { per_minute, burst }
    }

    fn limiter(
        default: Option<Rate>,
        own: &[Rate],
    ) -> (Limiter<FakeRelativeClock>, FakeRelativeClock) {
        let clock = FakeRelativeClock::default();
        (Limiter::new(default, own.iter().copied(), 3, clock.clone()), clock)
    }

    fn named(name: &str) -> Arc<str> {
        Arc::from(name)
    }

    #[test]
    fn without_a_rate_nothing_is_counted() {
        let (limiter, _clock) = limiter(None, &[]);
        assert_eq!(limiter.count(None, Some(&named("a"))), Ok(None));
    }

    #[test]
    fn a_tenant_stands_where_its_requests_left_it() {
        let (limiter, clock) = limiter(Some(rate(60, 2)), &[]);
        let seconds = Duration::from_secs;
        let first = limiter.count(None, None).unwrap().unwrap();
        assert_eq!(first, Standing { limit: 60, remaining: 1, reset: seconds(1) });
        assert_eq!(limiter.count(None, None).unwrap().unwrap().remaining, 0);
        let refused = limiter.count(None, None).unwrap_err();
        assert_eq!(refused.retry_after, seconds(1));
        assert_eq!(refused.standing, Standing { limit: 60, remaining: 0, reset: seconds(2) });
        clock.advance(seconds(1));
        assert!(limiter.count(None, None).is_ok());
    }

    #[test]
    fn tenants_do_not_use_up_each_others_rate() {
        let (limiter, _clock) = limiter(Some(rate(1, 1)), &[]);
        assert!(limiter.count(None, Some(&named("a"))).is_ok());
        assert!(limiter.count(None, Some(&named("a"))).is_err());
        assert!(limiter.count(None, Some(&named("b"))).is_ok());
    }

    #[test]
    fn a_rate_of_its_own_goes_before_the_default() {
        let own = rate(1, 3);
        let (limiter, _clock) = limiter(Some(rate(1, 1)), &[own]);
        let passed = (0..5).filter(|_| limiter.count(Some(own), Some(&named("a"))).is_ok());
        assert_eq!(passed.count(), 3);
    }

    #[test]
    fn invented_tenants_beyond_the_bound_share_one_bucket() {
        let (limiter, _clock) = limiter(Some(rate(1, 1)), &[]);
        let passed =
            (0..5000).filter(|n| limiter.count(None, Some(&named(&n.to_string()))).is_ok());
        assert_eq!(passed.count(), 3 + 1);
        assert!(limiter.buckets.values().all(|buckets| buckets.len() <= 3));
    }

    #[test]
    fn tenants_whose_bucket_is_full_again_make_room() {
        let (limiter, clock) = limiter(Some(rate(1, 1)), &[]);
        for name in ["a", "b", "c"] {
            assert!(limiter.count(None, Some(&named(name))).is_ok());
        }
        clock.advance(Duration::from_secs(121));
        assert!(limiter.count(None, Some(&named("d"))).is_ok());
        assert_eq!(limiter.buckets.values().map(|buckets| buckets.len()).sum::<usize>(), 1);
    }
}
