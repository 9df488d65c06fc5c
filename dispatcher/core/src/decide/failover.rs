//! Failure domains: which pods are not trusted because one beside them failed.
//!
//! The four domains are those of Llumnix. A pod without a node or unit shares none: an empty name is
//! not the name of a place where all such pods stand together.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{Phase, PodId, fleet::Pods};

/// How far a failure reaches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Domain {
    /// The pod itself.
    Instance,
    /// Every pod on its node.
    Node,
    /// Every pod of its unit (a data-parallel group, which stands and falls together).
    #[default]
    InstanceUnit,
    /// Every pod on its node, and of every unit that has a pod there.
    NodeUnit,
}

/// Where a pod stands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// The machine; empty when it is not known.
    pub node: Arc<str>,
    /// The group it stands and falls with; empty when there is none.
    pub unit: Arc<str>,
}

/// Places by the pods' names.
pub type Places = BTreeMap<Arc<str>, Place>;

/// Every pod that a failure reaches. `failed` says whether a pod itself failed.
pub fn reached(
    domain: Domain,
    pods: &Pods,
    places: &Places,
    failed: impl Fn(PodId) -> bool,
) -> BTreeSet<PodId> {
    let place = |id: &PodId| pods.get(id).and_then(|pod| places.get(&pod.spec.name));
    let node = |id: &PodId| place(id).map(|place| &*place.node).filter(|node| !node.is_empty());
    let unit = |id: &PodId| place(id).map(|place| &*place.unit).filter(|unit| !unit.is_empty());
    let mut reached: BTreeSet<PodId> = pods.keys().copied().filter(|id| failed(*id)).collect();
    if matches!(domain, Domain::Node | Domain::NodeUnit) {
        let nodes: BTreeSet<&str> = reached.iter().filter_map(node).collect();
        let on_them = |id: &PodId| node(id).is_some_and(|node| nodes.contains(node));
        reached.extend(pods.keys().copied().filter(on_them).collect::<Vec<_>>());
    }
    if matches!(domain, Domain::InstanceUnit | Domain::NodeUnit) {
        let units: BTreeSet<&str> = reached.iter().filter_map(unit).collect();
        let of_them = |id: &PodId| unit(id).is_some_and(|unit| units.contains(unit));
        reached.extend(pods.keys().copied().filter(of_them).collect::<Vec<_>>());
    }
    reached
}

/// Whether a pod failed: its breaker is open. One that an operator cordons or drains did not.
pub fn is_broken(pods: &Pods, id: PodId) -> bool {
    pods.get(&id).is_some_and(|pod| pod.phase == Phase::Broken)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PodClass, PodSpec, fleet::PodState};

    /// Pods 0 and 1 on node a, 2 and 3 on node b, 4 and 5 nowhere; 1 and 2 are one unit.
    fn world() -> (Pods, Places) {
        let name = |id: u32| -> Arc<str> { Arc::from(format!("pod-{id}")) };
        let pod = |id| {
            let spec = PodSpec { id: PodId(id), name: name(id), class: 0, group: None };
            PodState::new(spec, PodClass::default())
        };
        let place = |id, node: &str, unit: &str| {
            (name(id), Place { node: Arc::from(node), unit: Arc::from(unit) })
        };
        let places = [
            place(0, "a", ""),
            place(1, "a", "u"),
            place(2, "b", "u"),
            place(3, "b", ""),
            place(4, "", ""),
        ];
        ((0..6).map(pod).collect(), places.into())
    }

    fn reached_from(domain: Domain, failed: u32) -> Vec<u32> {
        let (pods, places) = world();
        let reached = reached(domain, &pods, &places, |id| id == PodId(failed));
        reached.into_iter().map(|id| id.0).collect()
    }

    /// Llumnix, failoverFilter: instance | node | instance-unit | node-unit.
    #[test]
    fn a_failure_reaches_as_far_as_its_domain() {
        assert_eq!(reached_from(Domain::Instance, 1), [1]);
        assert_eq!(reached_from(Domain::Node, 1), [0, 1]);
        assert_eq!(reached_from(Domain::InstanceUnit, 1), [1, 2]);
        assert_eq!(reached_from(Domain::NodeUnit, 0), [0, 1, 2], "1 drags its unit along");
    }

    #[test]
    fn pods_without_a_place_share_none() {
        for domain in [Domain::Instance, Domain::Node, Domain::InstanceUnit, Domain::NodeUnit] {
            assert_eq!(reached_from(domain, 4), [4], "an empty name");
            assert_eq!(reached_from(domain, 5), [5], "no entry");
        }
    }

    #[test]
    fn a_cordoned_or_draining_pod_is_no_failure() {
        let (mut pods, _) = world();
        for (phase, broken) in
            [(Phase::Cordoned, false), (Phase::Draining, false), (Phase::Broken, true)]
        {
            pods.get_mut(&PodId(0)).unwrap().phase = phase;
            assert_eq!(is_broken(&pods, PodId(0)), broken);
        }
    }
}
