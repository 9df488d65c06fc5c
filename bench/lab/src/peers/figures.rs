//! What was measured, turn by turn, and what it comes to: medians, spread, ratios to nginx.

use serde::Serialize;

use super::peer::Peer;

/// Something that is measured of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Column {
    /// Requests a second in a closed loop, bodies of 150 bytes.
    RequestsPerS,
    /// CPU time of a request in that loop, in microseconds.
    CpuUsPerRequest,
    /// The same with bodies of 32 KB.
    CpuUsPerRequest32kb,
    /// The same with small bodies at a rate far below what is possible.
    CpuUsPerRequestAt500Rps,
    /// CPU time of a token of a stream with its part of the request, in microseconds.
    CpuUsPerChunk,
    /// Time to first token, less than that without a peer between, in microseconds.
    AddedTtftP50Us,
    AddedTtftP99Us,
    /// Memory of the process, in MB, with this many idle streams.
    PssMb1000Streams,
    PssMb5000Streams,
    /// The difference of the two, by stream.
    KbPerIdleStream,
}

impl Column {
    pub(super) const ALL: [Self; 10] = [
        Self::RequestsPerS,
        Self::CpuUsPerRequest,
        Self::CpuUsPerRequest32kb,
        Self::CpuUsPerRequestAt500Rps,
        Self::CpuUsPerChunk,
        Self::AddedTtftP50Us,
        Self::AddedTtftP99Us,
        Self::PssMb1000Streams,
        Self::PssMb5000Streams,
        Self::KbPerIdleStream,
    ];

    /// Its heading.
    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::RequestsPerS => "req/s",
            Self::CpuUsPerRequest => "CPU us/req",
            Self::CpuUsPerRequest32kb => "us/req 32 KB",
            Self::CpuUsPerRequestAt500Rps => "us/req at 500/s",
            Self::CpuUsPerChunk => "us/chunk",
            Self::AddedTtftP50Us => "added TTFT p50 us",
            Self::AddedTtftP99Us => "p99 us",
            Self::PssMb1000Streams => "PSS MB, 1k idle",
            Self::PssMb5000Streams => "5k idle",
            Self::KbPerIdleStream => "KB/stream",
        }
    }

    pub(super) const fn decimals(self) -> usize {
        match self {
            Self::RequestsPerS | Self::AddedTtftP50Us | Self::AddedTtftP99Us => 0,
            _ => 1,
        }
    }
}

/// One figure of one peer in one round.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Turn {
    pub(super) round: usize,
    pub(super) peer: Peer,
    pub(super) column: Column,
    pub(super) value: f64,
}

/// Median and extremes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Spread {
    pub(super) median: f64,
    pub(super) min: f64,
    pub(super) max: f64,
}

impl Spread {
    /// `None` of nothing.
    pub(super) fn of(mut values: Vec<f64>) -> Option<Self> {
        values.sort_by(f64::total_cmp);
        let (min, max) = (*values.first()?, *values.last()?);
        let middle = values.len() / 2;
        let upper = *values.get(middle)?;
        let lower = if values.len().is_multiple_of(2) { *values.get(middle - 1)? } else { upper };
        Some(Self { median: f64::midpoint(lower, upper), min, max })
    }
}

/// All turns.
#[derive(Debug, Default)]
pub(super) struct Figures(Vec<Turn>);

impl Figures {
    pub(super) fn add(&mut self, round: usize, peer: Peer, column: Column, value: f64) {
        self.0.push(Turn { round, peer, column, value });
    }

    fn values(&self, peer: Peer, column: Column) -> impl Iterator<Item = &Turn> {
        self.0.iter().filter(move |turn| (turn.peer, turn.column) == (peer, column))
    }

    /// A peer's figure over all rounds.
    pub(super) fn spread(&self, peer: Peer, column: Column) -> Option<Spread> {
        Spread::of(self.values(peer, column).map(|turn| turn.value).collect())
    }

    /// Its ratio to nginx of the same round; `None` without nginx.
    pub(super) fn over_nginx(&self, peer: Peer, column: Column) -> Option<Spread> {
        let ratios = self.values(peer, column).filter_map(|turn| {
            let mut of_nginx = self.values(Peer::Nginx, column);
            let nginx = of_nginx.find(|other| other.round == turn.round)?.value;
            (nginx > 0.0).then(|| turn.value / nginx)
        });
        Spread::of(ratios.collect())
    }
}

/// The value below which this share of them is, by nearest rank; zero of none.
pub(super) fn quantile(sorted: &[f64], share: f64) -> f64 {
    let rank = (sorted.len() as f64 * share).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_is_between_the_middle_two() {
        let spread = Spread::of(vec![4.0, 1.0, 3.0, 2.0]).unwrap();
        assert_eq!(spread, Spread { median: 2.5, min: 1.0, max: 4.0 });
        assert_eq!(Spread::of(vec![]), None);
    }

    #[test]
    fn ratios_are_to_nginx_of_the_same_round() {
        let mut figures = Figures::default();
        let column = Column::CpuUsPerRequest;
        // The machine is twice as slow in the second round, and has no nginx in the third.
        for (round, peer, value) in [
            (0, Peer::Nginx, 10.0),
            (0, Peer::Weir, 11.0),
            (1, Peer::Weir, 24.0),
            (1, Peer::Nginx, 20.0),
            (2, Peer::Weir, 99.0),
        ] {
            figures.add(round, peer, column, value);
        }
        let ratio = figures.over_nginx(Peer::Weir, column).unwrap();
        assert_eq!((ratio.min, ratio.max), (1.1, 1.2));
        assert_eq!(figures.spread(Peer::Weir, column).unwrap().median, 24.0);
        assert_eq!(figures.over_nginx(Peer::Envoy, column), None);
    }

    #[test]
    fn quantiles_are_by_nearest_rank() {
        let values: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!([quantile(&values, 0.5), quantile(&values, 0.99)], [50.0, 99.0]);
        assert_eq!(quantile(&[], 0.5), 0.0);
    }
}
