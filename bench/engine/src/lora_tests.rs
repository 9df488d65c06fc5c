//! Jobs of several adapters in the scheduler.

use super::*;

fn loras(max_loras: u32) -> Rig {
    rig(|cfg| cfg.max_loras = max_loras)
}

impl Rig {
    fn add_for(
        &mut self,
        adapter: Option<u32>,
        prompt_tokens: u32,
        output_tokens: u32,
    ) -> SeqIndex {
        self.add_job(Job {
            prompt_tokens,
            blocks: vec![],
            output_tokens,
            priority: 0,
            brought_tokens: 0,
            keeps: false,
            adapter,
        })
    }

    /// Milliseconds that the engine stands still in the next step.
    fn stands_ms(&mut self) -> f64 {
        let stands_ms = self.scheduler.schedule(0.0, &mut self.rows).stands_ms;
        self.process();
        stands_ms
    }
}

#[test]
fn one_adapter_too_many_waits_and_those_behind_it_pass() {
    let mut rig = loras(2);
    let a = rig.add_for(Some(1), 10, 3);
    let b = rig.add_for(Some(2), 10, 9);
    let held = rig.add_for(Some(3), 10, 1);
    let again = rig.add_for(Some(1), 10, 1);
    let base = rig.add_for(None, 10, 1);
    assert_eq!(rig.step(), [(a, 10), (b, 10), (again, 10), (base, 10)]);
    assert_eq!(rig.scheduler.waiting.head(), Some(held));
    let late = rig.add_for(Some(2), 10, 1);
    assert_eq!(rig.step(), [(a, 1), (b, 1), (late, 10)], "overtaken as long as both are used");
    assert_eq!(rig.step(), [(a, 1), (b, 1)]);
    assert_eq!(rig.step(), [(b, 1), (held, 10)]);
}

#[test]
fn who_was_passed_over_keeps_the_place_and_goes_in_the_order_of_arrival() {
    let mut rig = loras(1);
    let a = rig.add_for(Some(1), 10, 2);
    let held: Vec<SeqIndex> = (2..5).map(|adapter| rig.add_for(Some(adapter), 10, 1)).collect();
    let behind = rig.add_for(Some(1), 10, 1);
    assert_eq!(rig.step(), [(a, 10), (behind, 10)]);
    assert_eq!(rig.step(), [(a, 1)]);
    for one in held {
        assert_eq!(rig.step(), [(one, 10)], "one adapter in each step");
    }
}

#[test]
fn one_that_does_not_fit_blocks_those_behind_it_also_behind_one_that_is_held() {
    let mut rig = rig(|cfg| {
        cfg.max_loras = 1;
        cfg.num_blocks = 9;
    });
    let a = rig.add_for(Some(1), 64, 3);
    rig.step();
    rig.add_for(Some(2), 1, 1);
    rig.add_for(Some(1), 65, 3);
    rig.add_for(Some(1), 1, 1);
    assert_eq!(rig.step(), [(a, 1)]);
}

#[test]
fn jobs_of_the_model_itself_are_never_held_and_hold_nobody() {
    let mut rig = loras(1);
    let base: Vec<SeqIndex> = (0..3).map(|_| rig.add_for(None, 10, 9)).collect();
    let a = rig.add_for(Some(7), 10, 9);
    assert_eq!(rig.step(), [(base[0], 10), (base[1], 10), (base[2], 10), (a, 10)]);
    rig.add_for(Some(8), 10, 9);
    let more = rig.add_for(None, 10, 9);
    assert_eq!(rig.step().last(), Some(&(more, 10)));
}

#[test]
fn a_job_whose_last_token_is_in_flight_holds_no_other_adapter() {
    let mut rig = loras(1);
    let a = rig.add_for(Some(1), 10, 1);
    let b = rig.add_for(Some(2), 10, 1);
    assert_eq!(rig.plan(), [(a, 10)]);
    assert_eq!(rig.plan(), [(b, 10)], "although the output of a was not seen");
}

#[test]
fn an_aborted_job_frees_its_adapter() {
    let mut rig = loras(1);
    let a = rig.add_for(Some(1), 10, 90);
    let b = rig.add_for(Some(2), 10, 1);
    rig.step();
    assert_eq!(rig.step(), [(a, 1)]);
    rig.scheduler.end(a);
    rig.scheduler.drop_ended();
    assert_eq!(rig.step(), [(b, 10)]);
}

#[test]
fn a_preempted_job_is_held_like_any_other() {
    let mut rig = rig(|cfg| {
        cfg.max_loras = 2;
        cfg.num_blocks = 8;
    });
    let a = rig.add_for(Some(1), 40, 40);
    let b = rig.add_for(Some(2), 40, 60);
    rig.step();
    while rig.seq(b).preemptions == 0 {
        rig.step();
    }
    let c = rig.add_for(Some(3), 1, 3);
    rig.scheduler.end(b);
    rig.scheduler.drop_ended();
    rig.scheduler.preempt(a);
    assert_eq!(rig.scheduler.waiting.head(), Some(a));
    let d = rig.add_for(Some(4), 1, 3);
    let planned = rig.step();
    assert_eq!(planned.iter().map(|(seq, _)| *seq).collect::<Vec<_>>(), [a, c], "and d waits");
    rig.scheduler.preempt(a);
    rig.scheduler.seqs.at_mut(a).adapter = Some(5);
    let planned = rig.step();
    assert_eq!(planned.iter().map(|(seq, _)| *seq).collect::<Vec<_>>(), [c, a]);
    assert!(matches!(rig.seq(d).phase, Phase::Waiting(_)));
}

#[test]
fn an_adapter_is_brought_once_and_stays_while_there_is_room() {
    let mut rig = rig(|cfg| (cfg.max_loras, cfg.lora_load_ms) = (2, 20.0));
    for _ in 0..2 {
        rig.add_for(Some(1), 10, 1);
    }
    assert_eq!(rig.stands_ms(), 20.0);
    rig.add_for(Some(1), 10, 2);
    assert_eq!([rig.stands_ms(), rig.stands_ms()], [0.0, 0.0], "it is still there");
    rig.add_for(None, 10, 1);
    assert_eq!(rig.stands_ms(), 0.0);
    for adapter in [2, 3] {
        rig.add_for(Some(adapter), 10, 1);
    }
    assert_eq!(rig.stands_ms(), 40.0);
    rig.add_for(Some(1), 10, 1);
    assert_eq!(rig.stands_ms(), 20.0, "it had made room");
}

#[test]
fn what_runs_and_waits_is_told_by_adapter_from_the_first_one_on() {
    let mut rig = loras(1);
    rig.add_for(None, 10, 1);
    assert_eq!(rig.scheduler.adapters(), None);
    rig.step();
    let told = |rig: &Rig| {
        let adapters = rig.scheduler.adapters().unwrap();
        (adapters.running, adapters.waiting)
    };
    for adapter in [Some(4), Some(2), None] {
        rig.add_for(adapter, 10, 1);
    }
    rig.plan();
    assert_eq!(told(&rig), (vec![4], vec![2]));
    rig.process();
    rig.step();
    assert_eq!(told(&rig), (vec![], vec![]));
}
