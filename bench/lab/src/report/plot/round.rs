//! Round numbers of a logarithmic axis: 1, 2 and 5 times powers of ten. Powers alone leave a range of less than a decade without
//! a label.

/// Labels that an axis has room for.
const MOST: usize = 9;

/// The round numbers in a range, upwards.
fn inside(low: f64, high: f64) -> Vec<f64> {
    let exponents = low.log10().floor() as i32..=high.log10().ceil() as i32;
    let all = exponents.flat_map(|exponent| [1.0, 2.0, 5.0].map(|one| one * 10_f64.powi(exponent)));
    all.filter(|one| *one >= low * (1.0 - 1e-9) && *one <= high * (1.0 + 1e-9)).collect()
}

/// A range, widened to the nearest ones where it holds fewer than two of them: one says where, and two how far.
pub(super) fn widened(low: f64, high: f64) -> (f64, f64) {
    let (mut low, mut high) = (low, high);
    while inside(low, high).len() < 2 {
        let below = inside(low / 10.0, low).into_iter().rfind(|one| *one < low * (1.0 - 1e-9));
        let above = inside(high, high * 10.0).into_iter().find(|one| *one > high * (1.0 + 1e-9));
        match (below, above) {
            (Some(below), Some(above)) if low / below <= above / high => low = below,
            (_, Some(above)) => high = above,
            _ => break,
        }
    }
    (low, high)
}

/// What an axis over a range is labelled with: powers of ten alone where there is no room for more.
pub(super) fn labels((low, high): (f64, f64)) -> Vec<f64> {
    let mut labels = inside(low, high);
    if labels.len() > MOST {
        let is_power = |one: &f64| (one.log10() - one.log10().round()).abs() < 1e-9;
        labels.retain(is_power);
    }
    labels
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_has_two_round_numbers_and_no_more_than_it_has_room_for() {
        assert_eq!(widened(33.0, 41.0), (20.0, 50.0));
        assert_eq!(widened(19.0, 21.0), (10.0, 21.0));
        assert_eq!(widened(9.0, 30.0), (9.0, 30.0));
        assert_eq!(labels((9.0, 30.0)), [10.0, 20.0]);
        assert_eq!(labels((0.8, 1500.0)), [1.0, 10.0, 100.0, 1000.0]);
        for low in [1e-6, 0.003, 1.0, 7.0, 49.9, 5e5] {
            let (from, to) = widened(low, low * 1.01);
            assert!(from <= low && to >= low * 1.01 && labels((from, to)).len() >= 2, "{low}");
        }
    }
}
