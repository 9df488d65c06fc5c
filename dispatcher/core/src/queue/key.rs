//! Names of lanes: stable text that people and scripts use to speak of one lane of a pool.
//!
//! `b0/i512/o256` is band 0, at most 512 input tokens, at most 256 predicted output tokens; `max` stands
//! for sizes above the last edge. Suffixes: `/w7` for prompts that pod 7 has cached, `/h` for requests
//! that chose their policy by header, `/p` for those that not every pod takes (`/p2` for those that two sizes of caches
//! are too small for), `/a` and a number for those for one LoRA adapter (pods run only so many of them at once), `/r12` for request 12 alone, after a delivery of it failed.
//! `b0/late` holds what band 0 can no longer serve in time.

use crate::{AdapterId, Band, BucketEdges, PodId, RequestId, pattern::Pattern};

/// A lane of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LaneKey {
    /// Requests of a pattern that can still make it.
    Open {
        /// Their pattern.
        pattern: Pattern,
        /// Whether they chose their policy by header.
        by_header: bool,
        /// Which pods do not take them; 0: every pod takes them. Those of one lane go to the same pods.
        picky: u8,
        /// The LoRA adapter that they ask for, where pods run only so many of them.
        adapter: Option<AdapterId>,
        /// The one request that has the lane to itself, after a delivery of it failed.
        alone: Option<RequestId>,
    },
    /// Requests of a band that can no longer make it.
    Late {
        /// Their band.
        band: Band,
        /// Which pods do not take them; 0: every pod takes them. Those of one lane go to the same pods.
        picky: u8,
        /// The LoRA adapter that they ask for, where pods run only so many of them.
        adapter: Option<AdapterId>,
        /// The one request that has the lane to itself, after a delivery of it failed.
        alone: Option<RequestId>,
    },
}

impl LaneKey {
    /// The band of everything in the lane.
    pub const fn band(&self) -> Band {
        match self {
            Self::Open { pattern, .. } => pattern.band,
            Self::Late { band, .. } => *band,
        }
    }

    /// The lane that its requests would share if none of them had one to itself, and every pod took them.
    pub const fn shared(self) -> Self {
        match self {
            Self::Open { pattern, by_header, adapter, .. } => {
                Self::Open { pattern, by_header, picky: 0, adapter, alone: None }
            }
            Self::Late { band, adapter, .. } => Self::Late { band, picky: 0, adapter, alone: None },
        }
    }

    /// The adapter that its requests ask for.
    pub const fn adapter(&self) -> Option<AdapterId> {
        match self {
            Self::Open { adapter, .. } | Self::Late { adapter, .. } => *adapter,
        }
    }

    /// The lane of its kind for all adapters together, as where pods run any number of them.
    pub const fn of_all_adapters(self) -> Self {
        match self {
            Self::Open { pattern, by_header, picky, alone, .. } => {
                Self::Open { pattern, by_header, picky, adapter: None, alone }
            }
            Self::Late { band, picky, alone, .. } => {
                Self::Late { band, picky, adapter: None, alone }
            }
        }
    }

    /// Its name, unique within the pool.
    pub fn name(&self, edges: &BucketEdges) -> String {
        let (mut name, picky, adapter, alone) = match self {
            Self::Late { band, picky, adapter, alone } => {
                (format!("b{}/late", band.0), picky, adapter, alone)
            }
            Self::Open { pattern, by_header, picky, adapter, alone } => {
                let input = edge(&edges.input, pattern.input);
                let output = edge(&edges.output, pattern.output);
                let mut name = format!("b{}/i{input}/o{output}", pattern.band.0);
                if let Some(pod) = pattern.warm {
                    name.push_str(&format!("/w{}", pod.0));
                }
                if *by_header {
                    name.push_str("/h");
                }
                (name, picky, adapter, alone)
            }
        };
        match picky {
            0 => {}
            1 => name.push_str("/p"),
            more => name.push_str(&format!("/p{more}")),
        }
        if let Some(adapter) = adapter {
            name.push_str(&format!("/a{adapter}"));
        }
        if let Some(id) = alone {
            name.push_str(&format!("/r{}", id.0));
        }
        name
    }

    /// What its requests have in common, in words.
    pub fn words(&self, edges: &BucketEdges) -> String {
        match self {
            Self::Open { pattern, .. } => pattern.name(edges),
            Self::Late { band, .. } => format!("band {} all sizes", band.0),
        }
    }

    /// The lane of a name, whether or not anything is in it; `None` when no lane can have that name.
    pub fn parse(name: &str, edges: &BucketEdges) -> Option<Self> {
        let mut parts = name.split('/').peekable();
        let band = Band(parts.next()?.strip_prefix('b')?.parse().ok()?);
        if parts.next_if_eq(&"late").is_some() {
            let picky = picky(parts.next_if(|part| part.starts_with('p')))?;
            let adapter = adapter(parts.next_if(|part| part.starts_with('a')))?;
            let alone = alone(parts.next())?;
            return parts.next().is_none().then_some(Self::Late { band, picky, adapter, alone });
        }
        let input = bucket(&edges.input, parts.next()?.strip_prefix('i')?)?;
        let output = bucket(&edges.output, parts.next()?.strip_prefix('o')?)?;
        let warm = match parts.next_if(|part| part.starts_with('w')) {
            Some(pod) => Some(PodId(pod.get(1..)?.parse().ok()?)),
            None => None,
        };
        let by_header = parts.next_if_eq(&"h").is_some();
        let picky = picky(parts.next_if(|part| part.starts_with('p')))?;
        let adapter = adapter(parts.next_if(|part| part.starts_with('a')))?;
        let alone = alone(parts.next())?;
        let pattern = Pattern { band, input, output, warm };
        let key = Self::Open { pattern, by_header, picky, adapter, alone };
        parts.next().is_none().then_some(key)
    }
}

fn edge(edges: &[u32], index: u8) -> String {
    edges.get(usize::from(index)).map_or_else(|| "max".to_owned(), u32::to_string)
}

fn bucket(edges: &[u32], name: &str) -> Option<u8> {
    let index = if name == "max" {
        edges.len()
    } else {
        let value: u32 = name.parse().ok()?;
        edges.iter().position(|edge| *edge == value)?
    };
    u8::try_from(index).ok()
}

/// The suffix of those that not every pod takes.
fn picky(part: Option<&str>) -> Option<u8> {
    match part {
        None => Some(0),
        Some("p") => Some(1),
        Some(part) => part.strip_prefix('p')?.parse().ok().filter(|more| *more > 1),
    }
}

/// The suffix of those for an adapter.
fn adapter(part: Option<&str>) -> Option<Option<AdapterId>> {
    let Some(part) = part else { return Some(None) };
    Some(Some(AdapterId::parse(part.strip_prefix('a')?)?))
}

/// The last suffix: none, or the request that is alone.
fn alone(part: Option<&str>) -> Option<Option<RequestId>> {
    let Some(part) = part else { return Some(None) };
    Some(Some(RequestId(part.strip_prefix('r')?.parse().ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_lane_is_found_by_its_name() {
        let edges = BucketEdges { input: vec![64, 512], output: vec![16] };
        let mut names = Vec::new();
        for band in [Band(-1), Band(3)] {
            for (picky, alone) in [
                (0, None),
                (1, None),
                (2, None),
                (0, Some(RequestId(12))),
                (1, Some(RequestId(12))),
                (255, Some(RequestId(12))),
            ] {
                let adapter = alone
                    .or(Some(RequestId(9)))
                    .filter(|_| picky != 1)
                    .map(|id| AdapterId::of(&id.0.to_string()));
                let mut keys = vec![LaneKey::Late { band, picky, adapter, alone }];
                for (input, output) in [(0, 0), (1, 1), (2, 0)] {
                    for warm in [None, Some(PodId(7))] {
                        for by_header in [false, true] {
                            let pattern = Pattern { band, input, output, warm };
                            keys.push(LaneKey::Open { pattern, by_header, picky, adapter, alone });
                        }
                    }
                }
                for key in keys {
                    let name = key.name(&edges);
                    assert_eq!(LaneKey::parse(&name, &edges), Some(key), "{name}");
                    names.push(name);
                }
            }
        }
        assert!(names.contains(&"b-1/i512/omax/w7/h/p/r12".to_owned()), "{names:?}");
        let all = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), all, "no two lanes share a name");
    }

    #[test]
    fn late_requests_have_no_size_in_common() {
        let edges = BucketEdges { input: vec![64], output: vec![16] };
        let pattern = Pattern { band: Band(2), input: 0, output: 1, warm: None };
        let open =
            LaneKey::Open { pattern, by_header: false, picky: 0, adapter: None, alone: None };
        assert_eq!(open.words(&edges), pattern.name(&edges));
        let late = LaneKey::Late { band: Band(2), picky: 0, adapter: None, alone: None };
        assert_eq!(late.words(&edges), "band 2 all sizes");
    }

    #[test]
    fn what_names_no_lane_is_none() {
        let edges = BucketEdges { input: vec![64], output: vec![16] };
        for name in [
            "",
            "b",
            "b0",
            "b0/i64",
            "b0/i63/o16",
            "b0/i64/o16/",
            "b0/i64/o16/x",
            "b0/late/w1",
            "b0/late/r1/p",
            "b0/i64/o16/w",
            "b0/i64/o16/r1/r2",
            "b300/late",
            "0/late",
            "b0/i64/o16/r",
        ] {
            assert_eq!(LaneKey::parse(name, &edges), None, "{name}");
        }
    }
}
