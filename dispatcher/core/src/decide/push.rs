//! Round-robin and least-request: a request goes at once, whatever the pods are doing.

use crate::{
    PodId, Policy,
    decide::{Choice, Floor, filter},
    explain::Reason,
};

/// One pass of a push policy: the first head that has a pod. `last` is the pod of the pass before.
pub fn pass(floor: &mut Floor<'_>, last: &mut Option<PodId>) -> Option<Choice> {
    for (_, _, id) in floor.board.heads() {
        let Some(waiting) = floor.board.get_mut(id) else { continue };
        let usable = floor.pods.values().filter(|pod| filter::usable(pod, waiting));
        let pod = match floor.config.policy {
            Policy::LeastRequest => {
                usable.min_by_key(|pod| (pod.ledger.len(), pod.dispatched)).map(|pod| pod.spec.id)
            }
            Policy::RoundRobin | Policy::Weir => {
                let ids: Vec<PodId> = usable.map(|pod| pod.spec.id).collect();
                let next = ids.iter().find(|pod| last.is_none_or(|last| **pod > last));
                next.or(ids.first()).copied()
            }
        };
        let Some(pod) = pod else {
            waiting.reason = Reason::NoPodReady;
            continue;
        };
        *last = Some(pod);
        let outlooks: Vec<_> = floor.look(id).into_iter().filter(|one| one.pod == pod).collect();
        return floor.predict(id, &outlooks).first().map(|fit| fit.choice(id));
    }
    None
}
