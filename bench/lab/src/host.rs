//! What the host took of the processors' time: on a virtual machine others may run where this one was to.

use std::fs;

/// From this share on what was late may have been so for want of a processor.
const MUCH: f64 = 0.05;

/// Time of all processors since the system started, in ticks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct HostTime {
    all: u64,
    stolen: u64,
}

impl HostTime {
    /// By now; `None` where the system does not tell.
    pub(crate) fn now() -> Option<Self> {
        Self::parse(&fs::read_to_string("/proc/stat").ok()?)
    }

    /// The first line of `/proc/stat`: user, nice, system, idle, waiting, interrupts, soft interrupts, stolen; what follows is
    /// part of the first two.
    fn parse(stat: &str) -> Option<Self> {
        let times = stat.lines().next()?.strip_prefix("cpu ")?.split_whitespace();
        let times: Vec<u64> = times.take(8).map_while(|time| time.parse().ok()).collect();
        Some(Self { all: times.iter().sum(), stolen: *times.get(7)? })
    }

    /// Share of the time since then that the host took.
    pub(crate) fn stolen_since(self, then: Self) -> f64 {
        let all = self.all.saturating_sub(then.all).max(1);
        self.stolen.saturating_sub(then.stolen) as f64 / all as f64
    }
}

/// Whether that share is enough to be late by.
pub(crate) fn is_much(stolen_share: f64) -> bool {
    stolen_share >= MUCH
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_host_took_is_the_eighth_number_of_the_first_line() {
        let then = HostTime::parse("cpu  100 0 50 800 0 0 0 50 7 7\ncpu0 1 2\n").unwrap();
        let now = HostTime::parse("cpu  150 0 60 920 0 0 0 70 9 9\n").unwrap();
        assert_eq!(now.stolen_since(then), 0.1);
        assert_eq!(then.stolen_since(then), 0.0);
        assert_eq!(HostTime::parse("cpu  1 2 3\n"), None);
        assert_eq!(HostTime::parse("intr 1 2 3 4 5 6 7 8 9\n"), None);
    }

    #[test]
    fn linux_tells() {
        assert_eq!(HostTime::now().is_some(), cfg!(target_os = "linux"));
    }
}
