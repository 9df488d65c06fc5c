//! CPU time and memory of a process and its children, as the kernel counts them.

use std::{
    collections::BTreeMap,
    fs,
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result};

/// A process with all below it, as they were found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Family(Vec<u32>);

impl Family {
    /// The family of a process at this moment.
    pub(super) fn of(root: u32) -> Self {
        let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        for pid in pids {
            // One that has ended meanwhile is nobody's child.
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            if let Some(parent) = parent(&stat) {
                children.entry(parent).or_default().push(pid);
            }
        }
        Self(below(root, &children))
    }

    /// Ends all of it: one that loses its parent may go on for ever.
    pub(super) fn end(&self) {
        let pids = self.0.iter().map(u32::to_string);
        let mut kill = Command::new("kill");
        // Some have ended by the time that it is their turn.
        let _ = kill.arg("-KILL").args(pids).stderr(Stdio::null()).status();
    }

    /// The time that its threads were on a CPU, to the nanosecond. A thread that ends takes its own with it.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub(super) fn cpu(&self) -> Result<Duration> {
        self.cpu_of("")
    }

    /// The same of those threads whose name begins so.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub(super) fn cpu_of(&self, name: &str) -> Result<Duration> {
        let mut total = Duration::ZERO;
        for pid in &self.0 {
            let threads = fs::read_dir(format!("/proc/{pid}/task"));
            for thread in threads.with_context(|| format!("process {pid} has ended"))?.flatten() {
                let told = |file| fs::read_to_string(thread.path().join(file)).unwrap_or_default();
                if told("comm").starts_with(name) {
                    total += on_cpu(&told("schedstat"));
                }
            }
        }
        Ok(total)
    }

    /// Its memory in KB: private pages, and its part of those shared with others.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub(super) fn pss_kb(&self) -> Result<u64> {
        let mut total = 0;
        for pid in &self.0 {
            let told = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))
                .with_context(|| format!("memory of process {pid}"))?;
            total += pss(&told).context("no Pss in smaps_rollup")?;
        }
        Ok(total)
    }
}

fn below(root: u32, children: &BTreeMap<u32, Vec<u32>>) -> Vec<u32> {
    let mut found = vec![root];
    let mut next = 0;
    while let Some(pid) = found.get(next) {
        found.extend(children.get(pid).into_iter().flatten().copied().collect::<Vec<_>>());
        next += 1;
    }
    found
}

/// The parent in `/proc/PID/stat`. The program's name before it may have anything in it but a last parenthesis.
fn parent(stat: &str) -> Option<u32> {
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// The first figure of `schedstat`: nanoseconds on a CPU.
fn on_cpu(schedstat: &str) -> Duration {
    let first = schedstat.split_ascii_whitespace().next();
    Duration::from_nanos(first.and_then(|nanos| nanos.parse().ok()).unwrap_or(0))
}

fn pss(rollup: &str) -> Option<u64> {
    let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn what_the_kernel_tells_is_read() {
        assert_eq!(parent("7 (a) b) S 5 7 7 0 -1"), Some(5));
        assert_eq!(on_cpu("1652252 17 1\n"), Duration::from_nanos(1_652_252));
        assert_eq!(pss("Rss: 10 kB\nPss:                 812 kB\nPss_Dirty: 4 kB"), Some(812));
    }

    #[test]
    fn a_family_is_a_process_and_all_below_it() {
        let children = BTreeMap::from([(1, vec![2, 3]), (3, vec![4]), (9, vec![10])]);
        assert_eq!(below(1, &children), [1, 2, 3, 4]);
    }

    #[test]
    fn a_family_ends_as_a_whole() {
        let mut parent = Command::new("sh").args(["-c", "sleep 600 & sleep 600"]).spawn().unwrap();
        let family = loop {
            let family = Family::of(parent.id());
            if family.0.len() == 3 {
                break family;
            }
        };
        family.end();
        parent.wait().unwrap();
        // A zombie is over as well, until whoever has inherited it looks.
        let runs = |pid: &u32| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.starts_with(" Z"))
        };
        while family.0.iter().any(runs) {
            std::thread::yield_now();
        }
    }

    #[test]
    fn work_costs_cpu_and_memory() {
        // Not this process: what other tests have started ends while it is looked at.
        let mut busy = Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        let family = Family::of(busy.id());
        let before = family.cpu().unwrap();
        let began = Instant::now();
        while family.cpu().unwrap() < before + Duration::from_millis(5) {
            assert!(began.elapsed() < Duration::from_secs(60));
        }
        assert!(family.cpu_of("no thread is called so").unwrap().is_zero());
        assert!(family.pss_kb().unwrap() > 100);
        busy.kill().unwrap();
        busy.wait().unwrap();
    }
}
