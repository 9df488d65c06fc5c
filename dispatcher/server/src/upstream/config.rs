//! Timeouts and limits on the way to the pods.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::Problems;

/// The `upstream` section of the configuration file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RawUpstream {
    /// Longest time to open a connection to a pod, in milliseconds. Then another pod is tried.
    #[schemars(range(min = 1, max = 86_400_000))]
    pub connect_timeout_ms: u64,
    /// Longest time from sending a streamed request to its first bytes and to its first token, in
    /// seconds. While events come that hold nothing of the answer, only `stall_timeout_s` bounds it.
    #[schemars(range(min = 1, max = 86_400))]
    pub first_token_timeout_s: u64,
    /// Longest time without an event inside a stream, in seconds. Comments are no events.
    #[schemars(range(min = 1, max = 86_400))]
    pub stall_timeout_s: u64,
    /// Longest time from sending a request that is not streamed to the end of its response, or to `buffer_bytes` of it, in
    /// seconds.
    #[schemars(range(min = 1, max = 86_400))]
    pub unstreamed_timeout_s: u64,
    /// How long an unused connection is kept, in milliseconds. Below the 5 s after which vLLM's web
    /// server closes it, or requests are lost in the race.
    #[schemars(range(min = 0, max = 86_400_000))]
    pub idle_timeout_ms: u64,
    /// Most unused connections kept per pod and thread.
    pub max_idle_per_pod: usize,
    /// Bytes of a response that is not streamed which are held back until it is complete, so that
    /// a pod lost on the way can still be answered with an error. A longer one is passed on as it
    /// comes.
    pub buffer_bytes: usize,
    /// Most bytes of responses that are held at a time, over all connections, beside the first 64 KiB of each: those that are held
    /// back (`buffer_bytes`), and what clients have not taken yet. Beyond it nothing is held back, and pods are read as fast as
    /// clients read.
    pub max_buffered_bytes: usize,
    /// Deliveries tried before a request is refused.
    #[schemars(range(min = 1))]
    pub max_attempts: u32,
    /// Whether a `priority` from band and slack is written into the body, for engines that run with
    /// vLLM's `--scheduling-policy priority`.
    pub inject_priority: bool,
}

impl Default for RawUpstream {
    fn default() -> Self {
        Self {
            connect_timeout_ms: 1000,
            first_token_timeout_s: 120,
            stall_timeout_s: 60,
            unstreamed_timeout_s: 600,
            idle_timeout_ms: 4000,
            max_idle_per_pod: 256,
            buffer_bytes: 4 << 20,
            max_buffered_bytes: 256 << 20,
            max_attempts: 3,
            inject_priority: false,
        }
    }
}

/// Timeouts and limits, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpstreamConfig {
    /// See [`RawUpstream::connect_timeout_ms`].
    pub connect_timeout: Duration,
    /// See [`RawUpstream::first_token_timeout_s`].
    pub first_token_timeout: Duration,
    /// See [`RawUpstream::stall_timeout_s`].
    pub stall_timeout: Duration,
    /// See [`RawUpstream::unstreamed_timeout_s`].
    pub unstreamed_timeout: Duration,
    /// See [`RawUpstream::idle_timeout_ms`].
    pub idle_timeout: Duration,
    /// See [`RawUpstream::max_idle_per_pod`].
    pub max_idle_per_pod: usize,
    /// See [`RawUpstream::buffer_bytes`].
    pub buffer_bytes: usize,
    /// See [`RawUpstream::max_buffered_bytes`].
    pub max_buffered_bytes: usize,
    /// See [`RawUpstream::max_attempts`]; the scheduler counts them.
    pub max_attempts: u32,
    /// See [`RawUpstream::inject_priority`].
    pub inject_priority: bool,
}

impl UpstreamConfig {
    /// The time a pod has for the first token of a stream, or for a whole response.
    pub(super) const fn answer_limit(&self, streamed: bool) -> Duration {
        if streamed { self.first_token_timeout } else { self.unstreamed_timeout }
    }
}

impl TryFrom<RawUpstream> for UpstreamConfig {
    type Error = Problems;

    /// Every value that cannot be used is a problem.
    fn try_from(raw: RawUpstream) -> Result<Self, Problems> {
        let mut problems = Problems::default();
        for (name, value) in [
            ("connect_timeout_ms", raw.connect_timeout_ms),
            ("first_token_timeout_s", raw.first_token_timeout_s),
            ("stall_timeout_s", raw.stall_timeout_s),
            ("unstreamed_timeout_s", raw.unstreamed_timeout_s),
            ("max_attempts", raw.max_attempts.into()),
        ] {
            problems.require(value > 0, &format!("upstream.{name}"), "must be at least 1");
        }
        // A day: what is far longer is no time that a clock can count to.
        for (name, value, most) in [
            ("connect_timeout_ms", raw.connect_timeout_ms, 86_400_000),
            ("first_token_timeout_s", raw.first_token_timeout_s, 86_400),
            ("stall_timeout_s", raw.stall_timeout_s, 86_400),
            ("unstreamed_timeout_s", raw.unstreamed_timeout_s, 86_400),
            ("idle_timeout_ms", raw.idle_timeout_ms, 86_400_000),
        ] {
            let key = format!("upstream.{name}");
            problems.require(value <= most, &key, &format!("must be at most {most}"));
        }
        problems.none_or(Self {
            connect_timeout: Duration::from_millis(raw.connect_timeout_ms),
            first_token_timeout: Duration::from_secs(raw.first_token_timeout_s),
            stall_timeout: Duration::from_secs(raw.stall_timeout_s),
            unstreamed_timeout: Duration::from_secs(raw.unstreamed_timeout_s),
            idle_timeout: Duration::from_millis(raw.idle_timeout_ms),
            max_idle_per_pod: raw.max_idle_per_pod,
            buffer_bytes: raw.buffer_bytes,
            max_buffered_bytes: raw.max_buffered_bytes,
            max_attempts: raw.max_attempts,
            inject_priority: raw.inject_priority,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_of_zero_is_named() {
        let raw = RawUpstream { stall_timeout_s: 0, max_attempts: 0, ..RawUpstream::default() };
        let problems = UpstreamConfig::try_from(raw).unwrap_err();
        let want = [
            "upstream.stall_timeout_s: must be at least 1",
            "upstream.max_attempts: must be at least 1",
        ];
        assert_eq!(problems.lines(), want);
    }

    #[test]
    fn a_timeout_of_more_than_a_day_is_named() {
        let most = u64::MAX;
        let raw = RawUpstream {
            connect_timeout_ms: most,
            first_token_timeout_s: most,
            stall_timeout_s: most,
            unstreamed_timeout_s: most,
            idle_timeout_ms: most,
            ..RawUpstream::default()
        };
        let problems = UpstreamConfig::try_from(raw).unwrap_err();
        let bounded = |line: &&str| line.contains("must be at most 86400");
        assert_eq!(problems.lines().iter().map(|line| &**line).filter(bounded).count(), 5);
    }

    #[test]
    fn unused_connections_are_dropped_before_the_pod_drops_them() {
        let config = UpstreamConfig::try_from(RawUpstream::default()).unwrap();
        assert!(config.idle_timeout < Duration::from_secs(5));
    }
}
