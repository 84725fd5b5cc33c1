//! The table of the curves for readers.

use std::fmt::{self, Display, Formatter};

use super::series::{Curves, Series};
use crate::report::spelled;

impl Display for Curves {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        for curve in &self.curves {
            writeln!(out, "{}", curve.what)?;
            for series in &curve.series {
                series.write(out)?;
            }
            if let Some(remark) = &curve.remark {
                writeln!(out, "  {remark}")?;
            }
            writeln!(out)?;
        }
        let quick = if self.quick { "; --quick: figures are rough" } else { "" };
        writeln!(
            out,
            "{} processors, {}{quick}. Times are the smallest median of several rounds.\n\
             Compare the growth between machines, not times.",
            self.processors, self.system
        )
    }
}

impl Series {
    /// Writes the cost at each size, and in relation to the smallest size.
    fn write(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let growth = self.growth.map_or("", |growth| growth.as_str());
        write!(out, "  {}: {growth}", self.does)?;
        if let Some(exponents) = self.exponents {
            let (overall, end) = (exponents.overall, exponents.at_the_end);
            write!(out, " (exponent {overall:.2}, between the largest sizes {end:.2})")?;
        }
        writeln!(out)?;
        let first = self.points.first().map_or(1, |point| point.ns).max(1) as f64;
        for point in &self.points {
            let ratio = point.ns as f64 / first;
            writeln!(out, "{:>12}  {:>9}  {ratio:>9.2} ×", size(point.n), spelled(point.ns))?;
        }
        Ok(())
    }
}

/// Returns the number in groups of three digits.
fn size(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::curves::series::{Curve, Point};

    #[test]
    fn each_size_has_a_line() {
        let points = vec![Point { n: 10, ns: 60_000 }, Point { n: 10_000, ns: 66_000 }];
        let curve = Curve {
            what: "history".to_owned(),
            axis: "messages".to_owned(),
            series: vec![Series::new("a step", points)],
            remark: Some("as far as it goes".to_owned()),
        };
        let text =
            Curves { quick: false, processors: 2, system: "linux".to_owned(), curves: vec![curve] }
                .to_string();
        let lines: Vec<&str> = text.lines().take(5).collect();
        assert_eq!(
            lines,
            [
                "history",
                "  a step: flat (exponent 0.01, between the largest sizes 0.01)",
                "          10      60 µs       1.00 ×",
                "      10 000      66 µs       1.10 ×",
                "  as far as it goes",
            ]
        );
    }
}
