//! Places between the points of an ascending axis.

/// Where a value lies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Place {
    /// Index of the point at or below it.
    pub(super) low: usize,
    /// Index of the point at or above it.
    pub(super) high: usize,
    /// Share of the way from `low` to `high`.
    pub(super) share: f64,
    /// Whether it is between the first and the last point; otherwise both are the edge.
    pub(super) inside: bool,
}

impl Place {
    /// The value between the two neighbours.
    pub(super) fn between(&self, low: f64, high: f64) -> f64 {
        low + self.share * (high - low)
    }
}

/// The place of `at`; an axis has at least one point.
pub(super) fn place(axis: &[f64], at: f64) -> Place {
    let high = axis.partition_point(|point| *point < at);
    let edge = |index| Place { low: index, high: index, share: 0.0, inside: false };
    let Some(above) = axis.get(high) else { return edge(axis.len().saturating_sub(1)) };
    if *above == at {
        return Place { inside: true, ..edge(high) };
    }
    let Some((low, below)) = high.checked_sub(1).and_then(|low| Some((low, axis.get(low)?))) else {
        return edge(0);
    };
    Place { low, high, share: (at - below) / (above - below), inside: true }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_lies_on_a_point_between_two_or_at_an_edge() {
        let axis = [1.0, 2.0, 4.0];
        let of = |at| {
            let Place { low, high, share, inside } = place(&axis, at);
            (low, high, share, inside)
        };
        assert_eq!(of(2.0), (1, 1, 0.0, true));
        assert_eq!(of(2.5), (1, 2, 0.25, true));
        assert_eq!((of(0.5), of(9.0)), ((0, 0, 0.0, false), (2, 2, 0.0, false)));
        assert_eq!((of(1.0), of(4.0)), ((0, 0, 0.0, true), (2, 2, 0.0, true)));
    }
}
