//! The figures of the curves, and how they are collected from several rounds.

use std::fs;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::fit::{Exponents, Growth};
use crate::BenchError;
use crate::measure::Times;

/// All curves of one run, with the facts needed to compare it with another run.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Curves {
    pub(crate) quick: bool,
    pub(crate) processors: usize,
    pub(crate) system: String,
    pub(crate) curves: Vec<Curve>,
}

/// Costs that grow with the same size.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Curve {
    pub(crate) what: String,
    /// The meaning of the sizes, for the axis.
    pub(crate) axis: String,
    pub(crate) series: Vec<Series>,
    /// A remark about the measurement, such as why it ended early.
    pub(crate) remark: Option<String>,
}

/// One cost at several sizes.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Series {
    pub(crate) does: String,
    pub(crate) points: Vec<Point>,
    /// Computed from the points; `None` with fewer than two sizes from 1 on.
    pub(crate) exponents: Option<Exponents>,
    pub(crate) growth: Option<Growth>,
}

/// The cost at one size.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
pub(crate) struct Point {
    pub(crate) n: u64,
    pub(crate) ns: u64,
}

impl Curves {
    pub(super) fn new(quick: bool, curves: Vec<Curve>) -> Self {
        let processors = std::thread::available_parallelism().map_or(0, usize::from);
        let system = format!("{} {}", std::env::consts::OS, std::env::consts::ARCH);
        Self { quick, processors, system, curves }
    }

    /// Reads the figures of an earlier run.
    pub(crate) fn read_json(path: &Path) -> Result<Self, BenchError> {
        let failed = |cause| BenchError::Component { path: path.to_owned(), cause };
        let text = fs::read_to_string(path).map_err(failed)?;
        serde_json::from_str(&text).map_err(|error| failed(error.into()))
    }

    /// Writes the figures as JSON.
    pub(crate) fn write_json(&self, path: &Path) -> Result<(), BenchError> {
        let text = serde_json::to_string_pretty(self).expect("curves are plain data");
        write(path, &format!("{text}\n"))
    }

    /// Writes the picture.
    pub(crate) fn write_svg(&self, path: &Path) -> Result<(), BenchError> {
        write(path, &super::chart::draw(&self.curves))
    }
}

/// Writes a text. Creates the folder if it is missing.
fn write(path: &Path, text: &str) -> Result<(), BenchError> {
    let failed = |cause| BenchError::Write { path: path.to_owned(), cause };
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(failed)?;
    }
    fs::write(path, text).map_err(failed)
}

impl Series {
    pub(super) fn new(does: &str, points: Vec<Point>) -> Self {
        let exponents = Exponents::of(&points);
        let growth = exponents.map(Exponents::growth);
        Self { does: does.to_owned(), points, exponents, growth }
    }
}

/// Collects one series. Of several rounds the smallest median counts: other work on the machine
/// only ever adds time.
pub(super) struct Rounds {
    does: &'static str,
    points: Vec<Point>,
}

impl Rounds {
    pub(super) fn new(does: &'static str) -> Self {
        Self { does, points: Vec::new() }
    }

    /// Adds the times of one round at size `n`.
    pub(super) fn take(&mut self, n: u64, times: Vec<Duration>) {
        let ns = Times::of(times).median_ns;
        match self.points.iter_mut().find(|point| point.n == n) {
            Some(point) => point.ns = point.ns.min(ns),
            None => self.points.push(Point { n, ns }),
        }
    }

    pub(super) fn series(mut self) -> Series {
        self.points.sort_by_key(|point| point.n);
        Series::new(self.does, self.points)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_several_rounds_the_smallest_median_counts() {
        let mut rounds = Rounds::new("a step");
        let micros = |times: [u64; 3]| times.map(Duration::from_micros).to_vec();
        rounds.take(10, micros([9, 7, 100]));
        rounds.take(1, micros([1, 2, 3]));
        rounds.take(10, micros([8, 1, 8]));
        let series = rounds.series();
        assert_eq!(series.points, [Point { n: 1, ns: 2_000 }, Point { n: 10, ns: 8_000 }]);
    }
}
