//! LoRA adapters: how many run at once, and which of them have their weights on the GPU.
//!
//! Owned by the scheduler, which begins it with every step. A step has at most `max_loras` different adapters; one more has to
//! wait while they are used, and so does the job that asks for it, but not those behind it. As many have a slot on the GPU, the
//! least recently used of them makes room, and while one is brought into a slot the engine stands still. Jobs without an
//! adapter are never held. Semantics were read in vLLM (`v1/core/sched/scheduler.py`, `lora/worker_manager.py`).

use serde::Serialize;

/// The adapters of a rank.
#[derive(Debug, Clone, Default)]
pub(crate) struct Loras {
    /// Most in one step; 0: any number.
    most: usize,
    /// Whether a job has ever named one: until then nothing here costs anything.
    named: bool,
    /// Those of the step that is being planned.
    step: Vec<u32>,
    /// Those in a slot, the least recently used first.
    slots: Vec<u32>,
}

impl Loras {
    pub fn new(max_loras: u32) -> Self {
        Self { most: max_loras as usize, ..Self::default() }
    }

    /// A job has come.
    pub fn came(&mut self, adapter: Option<u32>) {
        self.named |= adapter.is_some();
    }

    pub fn named(&self) -> bool {
        self.named
    }

    /// A step has these already, each as often as jobs use it.
    pub fn begin(&mut self, used: impl Iterator<Item = u32>) {
        self.step.clear();
        if self.named {
            used.for_each(|adapter| self.join(Some(adapter)));
        }
    }

    /// Whether no other adapter may join the step.
    pub fn full(&self) -> bool {
        self.most > 0 && self.step.len() >= self.most
    }

    /// Whether a job with this one has to wait for another step.
    pub fn holds(&self, adapter: Option<u32>) -> bool {
        adapter.is_some_and(|adapter| self.full() && !self.step.contains(&adapter))
    }

    /// A job with this one is in the step.
    pub fn join(&mut self, adapter: Option<u32>) {
        let new = |adapter: &u32| !self.step.contains(adapter);
        if let Some(adapter) = adapter.filter(new) {
            self.step.push(adapter);
        }
    }

    /// Gives all of the step a slot, and returns how many had none.
    pub fn bring(&mut self) -> u32 {
        let Self { most, step, slots, .. } = self;
        let before = slots.len();
        // None of them makes room for another.
        slots.retain(|slot| !step.contains(slot));
        let found = before - slots.len();
        slots.extend_from_slice(step);
        if *most > 0 {
            slots.drain(..slots.len().saturating_sub(*most));
        }
        step.len().saturating_sub(found) as u32
    }
}

/// What vLLM's `vllm:lora_requests_info` says: the adapters of jobs that run and of jobs that wait, each once and in order. One
/// may be among both.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Adapters {
    /// Of jobs that run.
    pub running: Vec<u32>,
    /// Of jobs that wait, those in the API server included.
    pub waiting: Vec<u32>,
}

impl Adapters {
    pub(crate) fn add(&mut self, other: &Self) {
        self.running.extend(&other.running);
        self.waiting.extend(&other.waiting);
        self.sort();
    }

    pub(crate) fn sort(&mut self) {
        for list in [&mut self.running, &mut self.waiting] {
            list.sort_unstable();
            list.dedup();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(loras: &mut Loras, adapters: &[u32]) -> u32 {
        loras.begin(adapters.iter().copied());
        loras.bring()
    }

    #[test]
    fn the_least_recently_used_makes_room_and_never_one_of_the_step() {
        let mut loras = Loras::new(2);
        loras.came(Some(1));
        assert_eq!(step(&mut loras, &[1, 2, 1]), 2);
        assert_eq!(step(&mut loras, &[1]), 0);
        assert_eq!(step(&mut loras, &[1, 3]), 1, "2 goes");
        assert_eq!(step(&mut loras, &[3, 1]), 0);
        assert_eq!(step(&mut loras, &[2]), 1);
        assert_eq!(step(&mut loras, &[]), 0);
        assert_eq!(step(&mut loras, &[2, 1]), 0, "3 went, which was used no later than 1");
    }

    #[test]
    fn without_a_bound_each_is_brought_once() {
        let mut loras = Loras::new(0);
        loras.came(Some(1));
        assert_eq!(step(&mut loras, &[1, 2, 3, 4]), 4);
        assert!(!loras.full() && !loras.holds(Some(9)));
        assert_eq!(step(&mut loras, &[4, 5, 1]), 1);
    }
}
