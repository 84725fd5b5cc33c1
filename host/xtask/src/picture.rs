//! `cargo xtask picture`: draws the pictures of the README and of docs/use/trace.md from real
//! output of `conclave`; with `--pages` those of the server's pages.

mod pages;

use std::fmt::Write as _;
use std::process::{Command, ExitCode, Stdio};

use crate::arguments;
use crate::components::{self, Optimised};
use crate::failure::XtaskFailure;
use crate::files;
use crate::needs;
use crate::phase::{self, Phases};
use crate::place::Checkout;

/// A picture: its command and its file.
struct Picture {
    file: &'static str,
    title: &'static str,
    options: &'static [&'static str],
    config: &'static str,
    question: &'static str,
    /// The maximum number of characters of a line; longer ones are cut, as in a terminal of this
    /// width.
    columns: usize,
    /// Whether the speeches of strategies on the terminal are left out.
    is_without_speech: bool,
}

const PICTURES: [Picture; 2] = [
    Picture {
        file: "docs/demo.svg",
        title: "A hostile plugin, stopped six ways",
        options: &[],
        config: "docs/examples/hostile.toml",
        question: "How warm is it in Oslo?",
        columns: 132,
        is_without_speech: false,
    },
    Picture {
        file: "docs/trace.svg",
        title: "The steps of two tasks, and of one in the background",
        options: &["--trace"],
        config: "docs/examples/demo.toml",
        question: "How does a plugin get its grants?",
        columns: 110,
        is_without_speech: true,
    },
];
/// The components that the configs name, besides the stock plugins.
const GUESTS: [&str; 5] = ["agent_hostile_tour", "weather", "coordinator", "librarian", "digest"];
const FONT: f64 = 13.0;
const LINE: f64 = 18.0;

pub(crate) fn run(place: &Checkout, arguments: &[String]) -> Result<ExitCode, XtaskFailure> {
    let [is_of_pages] = arguments::flags("picture", ["--pages"], arguments)?;
    needs::check(place)?;
    if is_of_pages {
        pages::run(place)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut phases = Phases::new(place, 3, false);
    components::build_stock(place, &mut phases, Optimised::Fully)?;
    components::build_some_guests(place, &mut phases, &GUESTS)?;
    components::build_conclave(place, &mut phases, false)?;
    for picture in &PICTURES {
        // The first run compiles the plugins, which does not belong in the picture.
        output(place, picture)?;
        let output = output(place, picture)?;
        let path = place.root.join(picture.file);
        files::write(&path, draw(&output, picture.title, picture.columns))?;
        eprintln!("{}", picture.file);
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the output as on a terminal, with colors.
fn output(place: &Checkout, picture: &Picture) -> Result<String, XtaskFailure> {
    let mut command = Command::new(place.conclave());
    command
        .arg("run")
        .args(picture.options)
        .args([picture.config, picture.question])
        .current_dir(&place.root)
        .stdin(Stdio::null());
    command.env("CLICOLOR_FORCE", "1").env("COLUMNS", picture.columns.to_string());
    let output = phase::output(&mut command)?;
    let options: String = picture.options.iter().map(|option| format!("{option} ")).collect();
    let mut seen = format!("$ conclave run {options}{} \"{}\"\n", picture.config, picture.question);
    let stderr = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        // An error message is no picture.
        return Err(XtaskFailure::new(format!("{seen}{stderr}")));
    }
    let is_speech = |line: &str| picture.is_without_speech && line.starts_with("      \u{1b}[2m│");
    stderr.lines().filter(|line| !is_speech(line)).for_each(|line| seen.extend([line, "\n"]));
    // On a terminal the answer precedes the summary line.
    let answer = if picture.is_without_speech {
        String::new()
    } else {
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    if let Some(at) = seen.trim_end().rfind("\n\n") {
        seen.insert_str(at + 1, &answer);
    }
    Ok(seen)
}

fn draw(output: &str, title: &str, columns: usize) -> String {
    let lines: Vec<&str> = output.trim_end().lines().collect();
    let (width, height) = (columns as f64 * FONT * 0.602 + 32.0, lines.len() as f64 * LINE + 32.0);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" font-family=\"ui-monospace, SFMono-Regular, \
         Menlo, Consolas, 'DejaVu Sans Mono', monospace\" font-size=\"{FONT}\">\n<title>{title}</title>\n\
         <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#16181d\"/>\n"
    );
    for (number, line) in lines.iter().enumerate() {
        let y = 28.0 + number as f64 * LINE;
        let _ = write!(svg, "<text x=\"16\" y=\"{y:.0}\" xml:space=\"preserve\">");
        for (style, text) in spans(line, columns) {
            let _ = write!(
                svg,
                "<tspan {style}>{}</tspan>",
                text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
            );
        }
        svg.push_str("</text>\n");
    }
    svg.push_str("</svg>\n");
    svg
}

/// Returns the parts of a line with their styles, cut at the last column.
fn spans(line: &str, columns: usize) -> Vec<(&'static str, String)> {
    let mut spans = Vec::new();
    let mut style = "fill=\"#d5d8de\"";
    for (index, part) in line.split("\u{1b}[").enumerate() {
        let text = match part.split_once('m') {
            Some((code, rest)) if index > 0 => {
                style = look(code, style);
                rest
            }
            _ => part,
        };
        if !text.is_empty() {
            spans.push((style, text.to_owned()));
        }
    }
    cut(spans, columns)
}

/// Returns at most this number of characters; the last one marks a cut.
fn cut(spans: Vec<(&'static str, String)>, columns: usize) -> Vec<(&'static str, String)> {
    let all: usize = spans.iter().map(|(_, text)| text.chars().count()).sum();
    if all <= columns {
        return spans;
    }
    let mut remaining = columns.saturating_sub(1);
    let mut cut_spans = Vec::new();
    for (style, text) in spans {
        let mut part: String = text.chars().take(remaining).collect();
        remaining -= part.chars().count();
        if part.chars().count() < text.chars().count() {
            part.push('…');
            cut_spans.push((style, part));
            break;
        }
        cut_spans.push((style, part));
    }
    cut_spans
}

/// Returns the style of an SGR code. Codes add up, so bold before a color changes nothing here.
fn look(code: &str, before: &'static str) -> &'static str {
    match code {
        "0" => "fill=\"#d5d8de\"",
        "1" => "fill=\"#d5d8de\" font-weight=\"bold\"",
        "2" => "fill=\"#7d8590\"",
        "31" => "fill=\"#ff6b68\" font-weight=\"bold\"",
        "32" => "fill=\"#7ee787\"",
        "33" => "fill=\"#e3b341\"",
        "34" => "fill=\"#6ea8fe\"",
        "35" => "fill=\"#d2a8ff\"",
        "36" => "fill=\"#79c0ff\"",
        _ => before,
    }
}

#[cfg(test)]
mod tests {
    use super::{draw, spans};

    #[test]
    fn colors_become_looks_and_long_lines_are_cut() {
        let looks: Vec<_> = spans("a\u{1b}[1m\u{1b}[31mDENIED\u{1b}[0m b", 80)
            .into_iter()
            .map(|(style, text)| (style.contains("ff6b68"), text))
            .collect();
        assert_eq!(
            looks,
            [(false, "a".to_owned()), (true, "DENIED".to_owned()), (false, " b".to_owned())]
        );
        let text =
            |line: &str| spans(line, 80).into_iter().map(|(_, text)| text).collect::<String>();
        assert_eq!(text(&"x".repeat(80)), "x".repeat(80));
        assert_eq!(
            text(&format!("{}\u{1b}[31m{}", "x".repeat(79), "y".repeat(500))),
            format!("{}…", "x".repeat(79))
        );
    }

    #[test]
    fn text_cannot_leave_its_element() {
        assert!(draw("<script>&", "", 80).contains("&lt;script&gt;&amp;"));
    }
}
