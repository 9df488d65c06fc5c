//! Patterns: requests that cost alike share a lane.
//!
//! A pattern is the model (one scheduler serves one), the bucket of input tokens, the bucket of
//! predicted output tokens, the band, and the pod that has most of the prompt cached. The last one
//! keeps a warm request from waiting behind a cold one of the same size.

use serde::{Deserialize, Serialize};

use crate::{Band, BucketEdges, PodId};

/// Share of the prompt that a pod must have cached to name the pattern.
pub const WARM_SHARE: f64 = 0.5;

/// A class of requests that cost alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Pattern {
    /// Its priority class.
    pub band: Band,
    /// Index of the bucket of input tokens.
    pub input: u8,
    /// Index of the bucket of predicted output tokens.
    pub output: u8,
    /// The pod that has at least half of the prompt cached.
    pub warm: Option<PodId>,
}

impl Pattern {
    /// The pattern of a request.
    pub fn of(
        edges: &BucketEdges,
        band: Band,
        input_tokens: u32,
        output_tokens: u32,
        warm: Option<PodId>,
    ) -> Self {
        Self {
            band,
            input: bucket(&edges.input, input_tokens),
            output: bucket(&edges.output, output_tokens),
            warm,
        }
    }

    /// A name for people: band, upper edges of both buckets, and whether a pod is warm.
    pub fn name(&self, edges: &BucketEdges) -> String {
        let input = edge_name(&edges.input, self.input);
        let output = edge_name(&edges.output, self.output);
        let warm = if self.warm.is_some() { " warm" } else { "" };
        format!("band {} in {input} out {output}{warm}", self.band.0)
    }
}

/// Index of the first edge that is not below `value`; past the last edge, their number.
pub fn bucket(edges: &[u32], value: u32) -> u8 {
    u8::try_from(edges.partition_point(|edge| *edge < value)).unwrap_or(u8::MAX)
}

fn edge_name(edges: &[u32], index: u8) -> String {
    match (edges.get(usize::from(index)), edges.last()) {
        (Some(edge), _) => format!("<={edge}"),
        (None, Some(last)) => format!(">{last}"),
        (None, None) => "any".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_edge_belongs_to_the_bucket_below_it() {
        let edges = [64, 128, 256];
        assert_eq!([1, 64, 65, 128, 256, 257].map(|n| bucket(&edges, n)), [0, 0, 1, 1, 2, 3]);
        assert_eq!(bucket(&[], 7), 0);
    }

    #[test]
    fn a_name_tells_band_sizes_and_warmth() {
        let edges = BucketEdges { input: vec![64], output: vec![16] };
        let pattern = Pattern::of(&edges, Band(-1), 65, 3, Some(PodId(1)));
        assert_eq!(pattern.name(&edges), "band -1 in >64 out <=16 warm");
    }
}
