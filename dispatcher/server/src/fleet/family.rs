//! Which addresses of an answer are pods.
//!
//! A name of a dual-stack cluster has an A and an AAAA record for each pod, and nothing in an answer says which two
//! are one. Taken for two pods each would be believed to have twice its room. So one family counts, unless the configuration says otherwise.

use std::net::SocketAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A family of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum Family {
    /// Every address is a pod of its own.
    Any,
    /// A records.
    Ipv4,
    /// AAAA records.
    Ipv6,
}

/// What counts of an answer.
#[derive(Debug, PartialEq, Eq)]
pub struct Chosen {
    /// The pods' addresses, in order, each once.
    pub addresses: Vec<SocketAddr>,
    /// How many of the other family were left out because nobody said which counts.
    pub unasked: usize,
}

/// What counts of an answer: the family that is asked for, or else IPv4 where there is any.
pub fn choose(mut answer: Vec<SocketAddr>, family: Option<Family>) -> Chosen {
    answer.sort_unstable();
    answer.dedup();
    let all = answer.len();
    let four = answer.iter().filter(|at| at.is_ipv4()).count();
    match family {
        Some(Family::Any) => {}
        Some(Family::Ipv4) => answer.retain(SocketAddr::is_ipv4),
        Some(Family::Ipv6) => answer.retain(SocketAddr::is_ipv6),
        None if four > 0 => answer.retain(SocketAddr::is_ipv4),
        None => {}
    }
    let unasked = if family.is_none() { all - answer.len() } else { 0 };
    Chosen { addresses: answer, unasked }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_with_two_addresses_counts_once_unless_both_are_asked_for() {
        let at = |text: &str| text.parse().unwrap();
        let (four, six): (SocketAddr, SocketAddr) = (at("10.0.0.1:80"), at("[fd00::1]:80"));
        let chosen = |answer: &[SocketAddr], family| {
            let chosen = choose(answer.to_vec(), family);
            (chosen.addresses, chosen.unasked)
        };
        let both = [six, four, four];
        assert_eq!(chosen(&both, None), (vec![four], 1));
        assert_eq!(chosen(&[six], None), (vec![six], 0));
        assert_eq!(chosen(&[four], None), (vec![four], 0));
        assert_eq!(chosen(&both, Some(Family::Any)), (vec![four, six], 0));
        assert_eq!(chosen(&both, Some(Family::Ipv6)), (vec![six], 0));
        assert_eq!(chosen(&[six], Some(Family::Ipv4)), (vec![], 0));
    }
}
