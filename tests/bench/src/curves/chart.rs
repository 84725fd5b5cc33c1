//! The picture of the curves: a panel for each, with logarithmic axes and a dashed line for
//! straight growth. Written as text; its colours follow the reader's light or dark scheme.

use std::fmt::Write as _;

use super::series::{Curve, Point, Series};

const WIDTH: f64 = 900.0;
const COLUMNS: usize = 3;
const PANEL: (f64, f64) = (292.0, 262.0);
/// The outer margin of the picture.
const MARGIN: f64 = 12.0;
const HEAD: f64 = 62.0;
/// The plot within its panel: left, top, width and height.
const PLOT: (f64, f64, f64, f64) = (54.0, 84.0, 222.0, 132.0);
/// The place of size 0 on the axis, in decades left of 1.
const ZERO: f64 = -0.7;
/// Growth looks steeper than it is when an axis has few decades.
const LEAST_DECADES: f64 = 3.0;

const STYLE: &str = "\
.page{fill:#ffffff}.frame{fill:#f6f8fa;stroke:#d0d7de}.text{fill:#1f2328}.quiet{fill:#59636e}\
.grid{stroke:#d8dee4}.straight{stroke:#59636e;stroke-dasharray:5 4;fill:none}\
.line{fill:none;stroke-width:2}.a{stroke:#0550ae}.b{stroke:#bc4c00}.c{stroke:#6639ba}\
.fill-a{fill:#0550ae}.fill-b{fill:#bc4c00}.fill-c{fill:#6639ba}\
@media (prefers-color-scheme:dark){\
.page{fill:#0d1117}.frame{fill:#161b22;stroke:#30363d}.text{fill:#e6edf3}.quiet{fill:#9198a1}\
.grid{stroke:#2d333b}.straight{stroke:#9198a1}.a{stroke:#58a6ff}.b{stroke:#f0883e}\
.c{stroke:#d2a8ff}.fill-a{fill:#58a6ff}.fill-b{fill:#f0883e}.fill-c{fill:#d2a8ff}}";

const TITLE: &str = "How cost grows";
const SUBTITLE: &str = "The time of one step, call, task or list, as the size below grows. Both \
                        axes are logarithmic.";
/// The lines of the panel that explains the others.
const LEGEND: [&str; 6] = [
    "A level line is flat growth: at ten times the size",
    "the cost is the same.",
    "Dashes are straight growth: at ten times the size",
    "the cost is tenfold. They begin at the first point",
    "of the blue line.",
    "A line that rises faster than dashes is steeper.",
];

/// The classes and markers of the series of a panel.
const LOOKS: [(&str, Marker); 3] =
    [("a", Marker::Circle), ("b", Marker::Square), ("c", Marker::Triangle)];

/// The shape of points, so that series differ without colours too.
#[derive(Clone, Copy)]
enum Marker {
    Circle,
    Square,
    Triangle,
}

/// Returns the picture as SVG.
pub(super) fn draw(curves: &[Curve]) -> String {
    // One more panel explains the others.
    let rows = (curves.len() + 1).div_ceil(COLUMNS);
    let height = HEAD + rows as f64 * PANEL.1 + MARGIN;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         width=\"{WIDTH}\" height=\"{height}\" role=\"img\" font-size=\"11\" \
         font-family=\"system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif\">\n<title>{TITLE}</title>\n\
         <style>{STYLE}</style>\n<rect class=\"page\" width=\"100%\" height=\"100%\" rx=\"8\"/>\n"
    );
    text(&mut svg, (20.0, 30.0), "text", "font-size=\"18\" font-weight=\"600\"", TITLE);
    text(&mut svg, (20.0, 50.0), "quiet", "font-size=\"12\"", SUBTITLE);
    for (index, curve) in curves.iter().map(Some).chain([None]).enumerate() {
        let left = MARGIN + (index % COLUMNS) as f64 * PANEL.0;
        let top = HEAD + (index / COLUMNS) as f64 * PANEL.1;
        let _ = writeln!(svg, "<g transform=\"translate({left} {top})\">");
        match curve {
            Some(curve) => panel(&mut svg, index, curve),
            None => legend(&mut svg),
        }
        svg.push_str("</g>\n");
    }
    svg.push_str("</svg>\n");
    svg
}

/// Draws the panel that explains the others.
fn legend(svg: &mut String) {
    text(svg, (14.0, 24.0), "text", "font-size=\"13\" font-weight=\"600\"", "How to read it");
    let _ = writeln!(svg, "<path class=\"line a\" d=\"M14 52 L44 52\"/>");
    mark(svg, Marker::Circle, "a", (29.0, 52.0));
    let _ = writeln!(svg, "<path class=\"straight\" d=\"M14 98 L44 80\"/>");
    for (line, y) in LEGEND.iter().zip([49.0, 63.0, 85.0, 99.0, 113.0, 135.0]) {
        text(svg, (54.0, y), "text", "", line);
    }
}

fn panel(svg: &mut String, index: usize, curve: &Curve) {
    let (width, height) = (PANEL.0 - 8.0, PANEL.1 - 8.0);
    let _ = writeln!(
        svg,
        "<rect class=\"frame\" x=\"4\" y=\"4\" width=\"{width}\" height=\"{height}\" rx=\"6\"/>"
    );
    text(svg, (14.0, 24.0), "text", "font-size=\"13\" font-weight=\"600\"", &begun(&curve.what));
    for (number, (series, (class, marker))) in curve.series.iter().zip(LOOKS).enumerate() {
        let y = 41.0 + number as f64 * 14.0;
        mark(svg, marker, class, (19.0, y - 4.0));
        let growth = series.growth.map_or(String::new(), |growth| format!(": {}", growth.as_str()));
        text(svg, (28.0, y), "text", "", &format!("{}{growth}", series.does));
    }
    let Some(scale) = Scale::of(curve) else { return };
    scale.axes(svg, &curve.axis);
    let (left, top, width, height) = PLOT;
    let _ = writeln!(
        svg,
        "<clipPath id=\"p{index}\"><rect x=\"{left}\" y=\"{top}\" width=\"{width}\" \
         height=\"{height}\"/></clipPath>"
    );
    if let Some(first) = curve.series.first().and_then(Series::first) {
        let (from, to) = (scale.point(first), scale.straight_end(first));
        let _ = writeln!(
            svg,
            "<path class=\"straight\" clip-path=\"url(#p{index})\" d=\"M{} L{}\"/>",
            place(from),
            place(to)
        );
    }
    for (series, (class, marker)) in curve.series.iter().zip(LOOKS) {
        let points: Vec<(f64, f64)> =
            series.points.iter().map(|point| scale.point(*point)).collect();
        let path: Vec<String> = points.iter().map(|point| place(*point)).collect();
        let _ = writeln!(svg, "<path class=\"line {class}\" d=\"M{}\"/>", path.join(" L"));
        points.into_iter().for_each(|point| mark(svg, marker, class, point));
    }
}

/// The logarithmic axes of a panel, in decades.
struct Scale {
    left: f64,
    right: f64,
    bottom: f64,
    top: f64,
}

impl Scale {
    /// Returns axes of whole decades around all points; `None` without points.
    fn of(curve: &Curve) -> Option<Self> {
        let points = || curve.series.iter().flat_map(|series| &series.points);
        let (xs, ys) = (|| points().map(|point| across(point.n)), || points().map(up));
        let least = |values: &mut dyn Iterator<Item = f64>| values.reduce(f64::min);
        let most = |values: &mut dyn Iterator<Item = f64>| values.reduce(f64::max);
        let (left, right) = (least(&mut xs())?, most(&mut xs())?);
        let bottom = least(&mut ys())?.floor();
        let top = most(&mut ys())?.ceil().max(bottom + LEAST_DECADES);
        Some(Self { left: left - 0.15, right: right.max(left + 1.0) + 0.15, bottom, top })
    }

    fn x(&self, decades: f64) -> f64 {
        PLOT.0 + (decades - self.left) / (self.right - self.left) * PLOT.2
    }

    fn y(&self, decades: f64) -> f64 {
        PLOT.1 + (self.top - decades) / (self.top - self.bottom) * PLOT.3
    }

    fn point(&self, point: Point) -> (f64, f64) {
        (self.x(across(point.n)), self.y(up(&point)))
    }

    /// Returns where a cost in proportion to the size ends, from its first point on.
    fn straight_end(&self, first: Point) -> (f64, f64) {
        (self.x(self.right), self.y(up(&first) + self.right - across(first.n)))
    }

    /// Draws the grid, the numbers at both axes, and the meaning of the sizes.
    fn axes(&self, svg: &mut String, axis: &str) {
        let (left, top, width, height) = PLOT;
        let (right, bottom) = (left + width, top + height);
        for decade in self.bottom as i32..=self.top as i32 {
            let y = self.y(f64::from(decade));
            line(svg, (left, y), (right, y));
            let label = time(decade);
            text(svg, (left - 5.0, y + 4.0), "quiet", "text-anchor=\"end\"", &label);
        }
        if self.left < ZERO {
            let x = self.x(ZERO);
            text(svg, (x, bottom + 15.0), "quiet", "text-anchor=\"middle\"", "0");
        }
        for decade in (self.left.ceil().max(0.0) as u32)..=(self.right.floor().max(0.0) as u32) {
            let x = self.x(f64::from(decade));
            line(svg, (x, top), (x, bottom));
            text(svg, (x, bottom + 15.0), "quiet", "text-anchor=\"middle\"", &size(decade));
        }
        let middle = (left + width / 2.0, bottom + 31.0);
        text(svg, middle, "quiet", "text-anchor=\"middle\"", axis);
    }
}

impl Series {
    /// Returns the first point with a size from 1 on.
    fn first(&self) -> Option<Point> {
        self.points.iter().copied().find(|point| point.n > 0)
    }
}

fn across(n: u64) -> f64 {
    if n == 0 { ZERO } else { (n as f64).log10() }
}

fn up(point: &Point) -> f64 {
    (point.ns.max(1) as f64).log10()
}

/// Returns a power of ten of nanoseconds.
fn time(decade: i32) -> String {
    let (unit, below) = match decade {
        ..3 => ("ns", 0),
        3..6 => ("µs", 3),
        6..9 => ("ms", 6),
        _ => ("s", 9),
    };
    format!("{} {unit}", 10_u64.pow(decade.saturating_sub(below).max(0).unsigned_abs()))
}

/// Returns a power of ten of a size.
fn size(decade: u32) -> String {
    let (unit, below) = match decade {
        ..3 => ("", 0),
        3..6 => (" k", 3),
        _ => (" M", 6),
    };
    format!("{}{unit}", 10_u64.pow(decade - below))
}

/// Returns the text with a capital letter at its beginning.
fn begun(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

fn line(svg: &mut String, from: (f64, f64), to: (f64, f64)) {
    let _ = writeln!(svg, "<path class=\"grid\" d=\"M{} L{}\"/>", place(from), place(to));
}

fn mark(svg: &mut String, marker: Marker, class: &str, (x, y): (f64, f64)) {
    let _ = match marker {
        Marker::Circle => {
            writeln!(svg, "<circle class=\"fill-{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\"/>")
        }
        Marker::Square => writeln!(
            svg,
            "<rect class=\"fill-{class}\" x=\"{:.1}\" y=\"{:.1}\" width=\"6.4\" height=\"6.4\"/>",
            x - 3.2,
            y - 3.2
        ),
        Marker::Triangle => writeln!(
            svg,
            "<path class=\"fill-{class}\" d=\"M{} L{} L{} Z\"/>",
            place((x, y - 4.4)),
            place((x + 4.2, y + 3.2)),
            place((x - 4.2, y + 3.2))
        ),
    };
}

fn place((x, y): (f64, f64)) -> String {
    format!("{x:.1} {y:.1}")
}

fn text(svg: &mut String, (x, y): (f64, f64), class: &str, attributes: &str, content: &str) {
    let space = if attributes.is_empty() { "" } else { " " };
    let content = content.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let _ = writeln!(
        svg,
        "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\"{space}{attributes}>{content}</text>"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(what: &str, points: &[(u64, u64)]) -> Curve {
        let points = points.iter().map(|(n, ns)| Point { n: *n, ns: *ns }).collect();
        Curve {
            what: what.to_owned(),
            axis: "messages".to_owned(),
            series: vec![Series::new("a step", points)],
            remark: None,
        }
    }

    /// Returns the names of elements that are open at the end, and panics at a wrong end tag.
    fn open_elements(svg: &str) -> Vec<&str> {
        let mut open = Vec::new();
        for tag in svg.split('<').skip(1) {
            let (tag, content) = tag.split_once('>').unwrap();
            assert!(!content.contains('>'), "{content}");
            assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
            match tag.strip_prefix('/') {
                Some(name) => assert_eq!(open.pop(), Some(name)),
                None if tag.ends_with('/') => {}
                None => open.extend(tag.split_whitespace().next()),
            }
        }
        open
    }

    #[test]
    fn every_element_is_closed_and_texts_stay_texts() {
        let hostile = curve("<script>&\"", &[(0, 5), (1, 5_000), (1_000, 5_000_000)]);
        let svg = draw(&[hostile, curve("rooms", &[(10, 1)]), curve("none", &[])]);
        assert_eq!(open_elements(&svg), [""; 0]);
        assert!(svg.contains("&lt;script&gt;&amp;\""), "{svg}");
        assert!(!svg.contains("<script") && !svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }

    #[test]
    fn straight_growth_lies_on_the_dashed_line() {
        let straight = curve("rooms", &[(10, 1_000), (10_000, 1_000_000)]);
        let scale = Scale::of(&straight).unwrap();
        let first = straight.series[0].points[0];
        let (from, last) = (scale.point(first), scale.point(straight.series[0].points[1]));
        let end = scale.straight_end(first);
        let slope = |to: (f64, f64)| (to.1 - from.1) / (to.0 - from.0);
        assert!((slope(last) - slope(end)).abs() < 1e-9);
    }

    #[test]
    fn decades_have_units() {
        let times: Vec<String> = [0, 3, 4, 6, 8, 9, 10].map(time).to_vec();
        assert_eq!(times, ["1 ns", "1 µs", "10 µs", "1 ms", "100 ms", "1 s", "10 s"]);
        let sizes: Vec<String> = [0, 3, 4, 5, 6, 7].map(size).to_vec();
        assert_eq!(sizes, ["1", "1 k", "10 k", "100 k", "1 M", "10 M"]);
    }

    #[test]
    fn every_point_is_within_the_plot() {
        let scale = Scale::of(&curve("s", &[(0, 40_000), (1, 41_000), (100, 90_000)])).unwrap();
        for (n, ns) in [(0, 40_000), (100, 90_000)] {
            let (x, y) = scale.point(Point { n, ns });
            assert!((PLOT.0..=PLOT.0 + PLOT.2).contains(&x), "{x}");
            assert!((PLOT.1..=PLOT.1 + PLOT.3).contains(&y), "{y}");
        }
    }
}
