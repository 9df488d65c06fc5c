//! What an operator asks of a pod: to take no new request, or to be emptied.
//!
//! It goes before what the breaker says and is the pool's to remember, not the pod's: it holds when the pod
//! restarts, and when it leaves and comes back under its name and address, as one does that DNS left out of an
//! answer or whose class was changed. The end of this process forgets it.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use weir_core::{Phase, Time};

/// What is asked of a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Ask {
    /// Nothing.
    #[default]
    Serve,
    /// To take no new request.
    Cordon,
    /// To take none and be emptied.
    Drain,
}

/// What is asked of one pod, and since when.
#[derive(Debug, Default)]
pub struct Cordon(Mutex<Asked>);

#[derive(Clone, Copy, Debug, Default)]
struct Asked {
    what: Ask,
    since: Time,
    /// When the ledger was first seen empty after that; what was sent before is over by then.
    empty_at: Option<Time>,
}

impl Cordon {
    /// Asks something else. Says whether that is a change; asking the same again is none.
    pub fn ask(&self, what: Ask, now: Time) -> bool {
        let mut asked = self.0.lock();
        let changes = asked.what != what;
        if changes {
            *asked = Asked { what, since: now, empty_at: None };
        }
        changes
    }

    /// What is asked, and since when.
    pub fn asked(&self) -> (Ask, Time) {
        let asked = self.0.lock();
        (asked.what, asked.since)
    }

    /// Since when nothing of this pool is on the pod, of which `left` are now.
    pub fn empty_since(&self, left: usize, now: Time) -> Option<Time> {
        let mut asked = self.0.lock();
        asked.empty_at = (left == 0).then(|| asked.empty_at.unwrap_or(now));
        asked.empty_at
    }

    /// The phase of a pod whose breaker says `own`.
    pub fn over(&self, own: Phase) -> Phase {
        match self.asked().0 {
            Ask::Serve => own,
            Ask::Cordon => Phase::Cordoned,
            Ask::Drain => Phase::Draining,
        }
    }
}

/// Pods that have left and of which something is still asked; of more, the oldest is forgotten.
const AWAY: usize = 1024;

/// What is asked of the pods of one pool, by name and address.
#[derive(Debug, Default)]
pub struct Cordons(BTreeMap<(Arc<str>, String), Arc<Cordon>>);

impl Cordons {
    /// The cordon of a pod that joins: what was asked of it before still is.
    pub fn of(&mut self, name: &Arc<str>, authority: &str) -> Arc<Cordon> {
        let key = (name.clone(), authority.to_owned());
        let cordon = self.0.entry(key).or_default().clone();
        self.forget();
        cordon
    }

    /// Keeps what somebody has, and what is asked of those that are away.
    fn forget(&mut self) {
        let is_away = |cordon: &Arc<Cordon>| Arc::strong_count(cordon) == 1;
        self.0.retain(|_, cordon| !is_away(cordon) || cordon.asked().0 != Ask::Serve);
        while self.0.values().filter(|cordon| is_away(cordon)).count() > AWAY {
            let away = self.0.iter().filter(|(_, cordon)| is_away(cordon));
            let oldest =
                away.min_by_key(|(_, cordon)| cordon.asked().1).map(|(key, _)| key.clone());
            oldest.and_then(|key| self.0.remove(&key));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_of_those_that_are_away_is_kept_within_bounds() {
        let mut cordons = Cordons::default();
        let stays = cordons.of(&"stays".into(), "a:1");
        drop(cordons.of(&"free".into(), "a:1"));
        for number in 0..AWAY as u64 + 5 {
            let cordon = cordons.of(&format!("pod-{number}").into(), "a:1");
            cordon.ask(Ask::Drain, Time::from_millis(number));
        }
        drop(cordons.of(&"one more".into(), "a:1"));
        assert_eq!(cordons.0.len(), AWAY + 2);
        assert!(Arc::ptr_eq(&stays, &cordons.of(&"stays".into(), "a:1")));
        let asked =
            |cordons: &mut Cordons, name: &str, at: &str| cordons.of(&name.into(), at).asked().0;
        assert_eq!(asked(&mut cordons, "pod-0", "a:1"), Ask::Serve, "the oldest was forgotten");
        assert_eq!(asked(&mut cordons, "pod-9", "a:1"), Ask::Drain);
        assert_eq!(asked(&mut cordons, "pod-9", "b:1"), Ask::Serve, "another address");
    }
}
