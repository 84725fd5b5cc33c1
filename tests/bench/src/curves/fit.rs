//! The growth of a cost, from the exponent of a power law: `cost = factor × n ^ exponent`. A fit is
//! a straight line through the logarithms.

use serde::{Deserialize, Serialize};

use super::series::Point;

/// Exponents up to this count as flat: at most 1.4 times the cost for ten times the size.
const FLAT: f64 = 0.15;
/// Exponents from this on count as straight, because a fixed part hides at small sizes.
const STRAIGHT: f64 = 0.85;
/// Exponents from this on count as steeper: at least 1.4 times more than ten times the cost for ten
/// times the size.
const STEEPER: f64 = 1.15;

/// The exponents of one series.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
pub(crate) struct Exponents {
    /// The exponent that fits all sizes best.
    pub(crate) overall: f64,
    /// The exponent between the two largest sizes, where a fixed part hides least.
    pub(crate) at_the_end: f64,
}

/// The growth of a cost with a size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Growth {
    Flat,
    /// More than flat, and less than in proportion to the size.
    LessThanStraight,
    /// In proportion to the size.
    Straight,
    SteeperThanStraight,
}

impl Exponents {
    /// Fits the points with sizes from 1 on. `None` with fewer than two of them.
    pub(super) fn of(points: &[Point]) -> Option<Self> {
        let logs: Vec<(f64, f64)> = points
            .iter()
            .filter(|point| point.n > 0)
            .map(|point| ((point.n as f64).ln(), (point.ns.max(1) as f64).ln()))
            .collect();
        let [.., before, last] = logs.as_slice() else { return None };
        Some(Self { overall: slope(&logs), at_the_end: slope(&[*before, *last]) })
    }

    pub(super) fn growth(self) -> Growth {
        match self.overall.max(self.at_the_end) {
            steep if steep >= STEEPER => Growth::SteeperThanStraight,
            straight if straight >= STRAIGHT => Growth::Straight,
            flat if flat <= FLAT => Growth::Flat,
            _ => Growth::LessThanStraight,
        }
    }
}

impl Growth {
    /// Returns the words for tables and pictures.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Flat => "flat",
            Self::LessThanStraight => "less than straight",
            Self::Straight => "straight",
            Self::SteeperThanStraight => "steeper than straight",
        }
    }
}

/// Returns the slope of the line with the least squares.
fn slope(points: &[(f64, f64)]) -> f64 {
    let count = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (x, y) = (mean(|point| point.0), mean(|point| point.1));
    let across: f64 = points.iter().map(|point| (point.0 - x).powi(2)).sum();
    let along: f64 = points.iter().map(|point| (point.0 - x) * (point.1 - y)).sum();
    along / across.max(f64::MIN_POSITIVE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exponents(cost: impl Fn(f64) -> f64) -> Exponents {
        let points: Vec<Point> =
            [1, 10, 100, 1_000].map(|n: u64| Point { n, ns: cost(n as f64) as u64 }).to_vec();
        Exponents::of(&points).unwrap()
    }

    #[test]
    fn a_power_law_has_its_exponent() {
        for exponent in [0.0, 0.5, 1.0, 2.0] {
            let found = exponents(|n| 1e6 * n.powf(exponent));
            assert!((found.overall - exponent).abs() < 1e-3, "{found:?}");
            assert!((found.at_the_end - exponent).abs() < 1e-3, "{found:?}");
        }
    }

    #[test]
    fn growth_has_four_names() {
        let growth = |cost: &dyn Fn(f64) -> f64| exponents(cost).growth();
        assert_eq!(growth(&|_| 60e3), Growth::Flat);
        assert_eq!(growth(&|n| 60e3 + 1e3 * n.log10()), Growth::Flat);
        assert_eq!(growth(&|n| 60e3 * n.sqrt()), Growth::LessThanStraight);
        assert_eq!(growth(&|n| 60e3 * n), Growth::Straight);
        assert_eq!(growth(&|n| 60e3 * n * n), Growth::SteeperThanStraight);
    }

    #[test]
    fn a_fixed_part_does_not_hide_what_comes_at_the_end() {
        let found = exponents(|n| 1e6 + 1e2 * n * n);
        assert!(found.overall < 0.85, "{found:?}");
        assert_eq!(found.growth(), Growth::SteeperThanStraight);
    }

    #[test]
    fn a_size_of_zero_has_no_logarithm() {
        let point = |n, ns| Point { n, ns };
        assert_eq!(Exponents::of(&[point(0, 5), point(1, 5)]), None);
        let found = Exponents::of(&[point(0, 5), point(1, 5), point(10, 50)]).unwrap();
        assert!((found.overall - 1.0).abs() < 1e-9);
    }
}
