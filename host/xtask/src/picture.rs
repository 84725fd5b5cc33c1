//! `cargo xtask picture`: the README's picture, drawn from what `conclave run docs/examples/hostile.toml` really prints.

use std::fmt::Write as _;
use std::fs;
use std::process::{Command, ExitCode, Stdio};

use crate::components;
use crate::failure::Failure;
use crate::needs;
use crate::phase::{self, Phases};
use crate::place::Place;

const QUESTION: &str = "How warm is it in Oslo?";
const PICTURE: &str = "docs/demo.svg";
/// Characters of a line; longer ones are cut, as in a terminal of this width.
const COLUMNS: usize = 132;
const FONT: f64 = 13.0;
const LINE: f64 = 18.0;

pub(crate) fn run(place: Place, arguments: &[String]) -> Result<ExitCode, Failure> {
    if let Some(word) = arguments.first() {
        return Err(Failure::usage(format!("cargo xtask picture takes nothing, and `{word}` came")));
    }
    needs::check(&place)?;
    let mut phases = Phases::new(&place, 3, false);
    components::build_stock(&place, &mut phases)?;
    components::build_some_guests(&place, &mut phases, &["agent_hostile_tour", "weather"])?;
    components::build_conclave(&place, &mut phases, false)?;
    // The first run compiles the plugins, which is no part of the picture.
    output(&place)?;
    let output = output(&place)?;
    let path = place.root.join(PICTURE);
    fs::write(&path, draw(&output)).map_err(|error| Failure::io("write", &path, &error))?;
    eprintln!("{PICTURE}");
    Ok(ExitCode::SUCCESS)
}

/// What a person at a terminal would see, colors included.
fn output(place: &Place) -> Result<String, Failure> {
    let mut command = Command::new(place.conclave());
    command.args(["run", "docs/examples/hostile.toml", QUESTION]).current_dir(&place.root).env("CLICOLOR_FORCE", "1").stdin(Stdio::null());
    let output = command.output().map_err(|error| phase::not_started(&command, &error))?;
    let mut seen = format!("$ conclave run docs/examples/hostile.toml \"{QUESTION}\"\n");
    seen.push_str(&String::from_utf8_lossy(&output.stderr));
    // On a terminal the answer stands before the line that sums up.
    let answer = String::from_utf8_lossy(&output.stdout).into_owned();
    if let Some(at) = seen.trim_end().rfind("\n\n") {
        seen.insert_str(at + 1, &answer);
    }
    Ok(seen)
}

fn draw(output: &str) -> String {
    let lines: Vec<&str> = output.trim_end().lines().collect();
    let (width, height) = (COLUMNS as f64 * FONT * 0.602 + 32.0, lines.len() as f64 * LINE + 32.0);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" font-family=\"ui-monospace, SFMono-Regular, \
         Menlo, Consolas, 'DejaVu Sans Mono', monospace\" font-size=\"{FONT}\">\n<title>A hostile plugin, stopped six ways</title>\n\
         <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#16181d\"/>\n"
    );
    for (number, line) in lines.iter().enumerate() {
        let y = 28.0 + number as f64 * LINE;
        let _ = write!(svg, "<text x=\"16\" y=\"{y:.0}\" xml:space=\"preserve\">");
        for (style, text) in spans(line) {
            let _ = write!(svg, "<tspan {style}>{}</tspan>", text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;"));
        }
        svg.push_str("</text>\n");
    }
    svg.push_str("</svg>\n");
    svg
}

/// The parts of a line with their looks, cut at the last column.
fn spans(line: &str) -> Vec<(&'static str, String)> {
    let mut spans = Vec::new();
    let mut style = "fill=\"#d5d8de\"";
    let mut left = COLUMNS;
    for (index, part) in line.split("\u{1b}[").enumerate() {
        let text = match part.split_once('m') {
            Some((code, rest)) if index > 0 => {
                style = look(code, style);
                rest
            }
            _ => part,
        };
        let shown: String = text.chars().take(left).collect();
        left -= shown.chars().count();
        if !shown.is_empty() {
            spans.push((style, shown));
        }
    }
    spans
}

/// The look of an SGR code; codes add up, so bold before a color changes nothing here.
fn look(code: &str, before: &'static str) -> &'static str {
    match code {
        "0" => "fill=\"#d5d8de\"",
        "2" => "fill=\"#7d8590\"",
        "31" => "fill=\"#ff6b68\" font-weight=\"bold\"",
        "32" => "fill=\"#7ee787\"",
        "33" => "fill=\"#e3b341\"",
        "36" => "fill=\"#79c0ff\"",
        _ => before,
    }
}

#[cfg(test)]
mod tests {
    use super::{COLUMNS, draw, spans};

    #[test]
    fn colors_become_looks_and_long_lines_are_cut() {
        let looks: Vec<_> =
            spans("a\u{1b}[1m\u{1b}[31mDENIED\u{1b}[0m b").into_iter().map(|(style, text)| (style.contains("ff6b68"), text)).collect();
        assert_eq!(looks, [(false, "a".to_owned()), (true, "DENIED".to_owned()), (false, " b".to_owned())]);
        assert_eq!(spans(&"x".repeat(500))[0].1.len(), COLUMNS);
    }

    #[test]
    fn text_cannot_leave_its_element() {
        assert!(draw("<script>&").contains("&lt;script&gt;&amp;"));
    }
}
