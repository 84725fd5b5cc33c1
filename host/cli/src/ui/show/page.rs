//! A run's timeline as one self-contained HTML page: no script, no network, no font, only its own
//! style, enforced by its content security policy. Texts on it come from plugins and models. Each
//! goes through [`escape`], and none stands in an unquoted attribute, in the style, or in an
//! address.

mod html;
mod row;

use std::fmt::Write as _;

use conclave_core::inspect::timeline::groups::{RowGroup, group, span};
use conclave_core::inspect::timeline::row_text::{tooltip, words};
use conclave_core::inspect::timeline::{Lane, Timeline, TimelineRow};
use conclave_runtime::store::RunState;

use super::amounts::{moment, took};
use super::prompts::{PagePrompts, RunPrompts};
use super::run_state::run_state;
use super::timeline::fold::{ShownItem, as_one, fold, summary};
use super::timeline::{RunFacts, amounts};
use html::{escape, source_of, tag_of};
use row::row as row_html;

/// The beginning of a page. The program overwrites only files that begin so.
pub(crate) const BEGIN: &str = "<!doctype html>\n<!-- a run of Conclave -->\n";

const STYLE: &str = include_str!("page/style.css");
/// Rows of one level above which similar ones are folded.
const FEW: usize = 400;
/// Rows of a page. A page with many more is slow on a phone.
const ROWS: usize = 6_000;
/// Bars of the lanes.
const BARS: usize = 4_000;

/// The page.
pub(crate) fn page(
    timeline: &Timeline,
    about: &RunFacts,
    plans: &[(String, Vec<String>)],
    prompts: &RunPrompts,
) -> String {
    let mut out = String::with_capacity(64 << 10);
    head(&mut out, timeline);
    header(&mut out, timeline, about);
    out.push_str("<main>\n");
    trees(&mut out, plans);
    lanes(&mut out, timeline);
    filters(&mut out, &timeline.rows);
    rows(&mut out, timeline, prompts);
    out.push_str("</main>\n");
    let _ = write!(
        out,
        "<footer>Run {} of Conclave {}, {} records. Times are the run's own, from {} UTC; those in which no host ran are left out. \
         This page holds what was said in the run: give it to nobody who may not read that.</footer>\n</body>\n</html>\n",
        escape(timeline.run.as_str()),
        env!("CARGO_PKG_VERSION"),
        timeline.totals.records,
        moment(timeline.started),
    );
    out
}

fn head(out: &mut String, timeline: &Timeline) {
    // No scripts and no style attributes: only this style, identified by its hash.
    let policy = format!(
        "default-src 'none'; style-src '{}'; base-uri 'none'; form-action 'none'",
        source_of(STYLE)
    );
    let _ = write!(
        out,
        "{BEGIN}<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">\n\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n<meta name=\"referrer\" content=\"no-referrer\">\n\
         <title>Run {}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n",
        escape(timeline.run.as_str()),
    );
}

fn header(out: &mut String, timeline: &Timeline, about: &RunFacts) {
    let (_, word) = run_state(about.state, &about.command);
    let tone = tag_of(about.state);
    let _ = write!(
        out,
        "<header>\n<h1>Run <code>{}</code> <span class=\"badge {tone}\">{}</span></h1>\n",
        escape(timeline.run.as_str()),
        escape(&word)
    );
    if !timeline.message.is_empty() {
        let _ = writeln!(out, "<p class=\"asked\">{}</p>", escape(&timeline.message));
    }
    let from = about
        .config
        .as_ref()
        .map(|config| format!(" · conclave {} {}", about.command, config))
        .unwrap_or_default();
    let _ = writeln!(
        out,
        "<p class=\"sub\">{} UTC · took {} · task {}{}</p>",
        moment(timeline.started),
        took(timeline.took_ms),
        escape(timeline.entry.as_str()),
        escape(&from)
    );
    let reason =
        timeline.ended.as_ref().map(|ended| ended.reason.as_str()).or(about.reason.as_deref());
    let reason = reason.filter(|reason| !reason.is_empty());
    let failed = matches!(about.state, RunState::Ended(status) if !status.is_success());
    if let Some(reason) = reason.filter(|_| !failed) {
        let _ = writeln!(out, "<p class=\"sub\">{}</p>", escape(reason));
    }
    out.push_str("<ul class=\"cards\">");
    for amount in amounts(timeline) {
        let _ = write!(out, "<li>{}</li>", escape(&amount));
    }
    out.push_str("</ul>\n");
    let answer = timeline
        .ended
        .as_ref()
        .and_then(|ended| ended.answer.as_deref())
        .filter(|answer| !answer.is_empty());
    if failed {
        let why = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
        let _ = write!(
            out,
            "<div class=\"answer bad\"><b>Ended as {}{}</b>",
            escape(&word),
            escape(&why)
        );
        let _ = writeln!(
            out,
            "{}</div>",
            answer.map(|answer| format!("\n{}", escape(answer))).unwrap_or_default()
        );
    } else if let Some(answer) = answer {
        let _ = writeln!(out, "<div class=\"answer\">{}</div>", escape(answer));
    }
    out.push_str("</header>\n");
}

/// Appends the agents' plans, as the terminal draws them.
fn trees(out: &mut String, plans: &[(String, Vec<String>)]) {
    if plans.is_empty() {
        return;
    }
    out.push_str("<h2>Plans</h2>\n<dl>\n");
    for (whose, tree) in plans {
        let _ = writeln!(out, "<dt>{}</dt><dd>{}</dd>", escape(whose), escape(&tree.join("\n")));
    }
    out.push_str("</dl>\n");
}

/// Appends a lane for each room, with bars for its activity over time.
fn lanes(out: &mut String, timeline: &Timeline) {
    let mut bars = BARS;
    out.push_str("<h2>Rooms</h2>\n<div class=\"lanes\">\n");
    for lane in &timeline.rooms {
        let of = timeline
            .rows
            .iter()
            .filter(|row| row.room == lane.room && group(&row.what) != RowGroup::Task);
        let of: Vec<&TimelineRow> = of.take(bars).collect();
        bars = bars.saturating_sub(of.len());
        lane_html(out, lane, &of, timeline.took_ms);
    }
    let _ = write!(
        out,
        "<div class=\"lane\"><span></span><span class=\"axis\"><span>0</span><span>{}</span></span></div>\n</div>\n",
        took(timeline.took_ms)
    );
}

fn lane_html(out: &mut String, lane: &Lane, rows: &[&TimelineRow], span_ms: u64) {
    let title = format!("{} · {} · {} records", lane.room, lane.entry, lane.records);
    let _ = write!(
        out,
        "<div class=\"lane\"><span title=\"{0}\">{1} <span class=\"faint\">{2}</span></span><svg viewBox=\"0 0 1000 22\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"{0}\">",
        escape(&title),
        escape(lane.room.as_str()),
        escape(lane.entry.as_str()),
    );
    let (x, wide) = span(lane.start_ms, lane.end_ms, span_ms);
    let _ = write!(
        out,
        "<rect class=\"track\" x=\"{x}\" y=\"0\" width=\"{wide}\" height=\"22\" rx=\"2\"/>"
    );
    for row in rows {
        let (x, wide) = span(row.start_ms, row.end_ms, span_ms);
        let (y, high) = group(&row.what).place();
        let class = group(&row.what).class();
        let _ = write!(
            out,
            "<rect class=\"k-{class}\" x=\"{x}\" y=\"{y}\" width=\"{wide}\" height=\"{high}\"><title>{}</title></rect>",
            escape(&tooltip(row))
        );
    }
    out.push_str("</svg></div>\n");
}

/// Appends checkboxes that hide rows of a kind. The style implements them, without a script.
fn filters(out: &mut String, rows: &[TimelineRow]) {
    out.push_str("<h2>What happened</h2>\n<form>\n");
    for kind in RowGroup::ALL {
        let count = rows.iter().filter(|row| group(&row.what) == kind).count();
        if count > 0 {
            let class = kind.class();
            let _ = writeln!(
                out,
                "<label><input type=\"checkbox\" id=\"f-{class}\" checked><i><svg viewBox=\"0 0 9 9\"><rect class=\"k-{class}\" width=\"9\" height=\"9\"/></svg></i>{} <span class=\"faint\">{count}</span></label>",
                kind.name()
            );
        }
    }
    out.push_str("<label class=\"only\"><input type=\"checkbox\" id=\"f-only\">only what stands out <span class=\"faint\">refusals, failures, approvals, background</span></label>\n</form>\n");
}

fn rows(out: &mut String, timeline: &Timeline, prompts: &RunPrompts) {
    out.push_str("<div class=\"rows\">\n");
    let mut rows_left = ROWS;
    let mut prompts = PagePrompts::new(prompts);
    let mut row_html = |out: &mut String, row: &TimelineRow| {
        row_html(out, row, timeline.took_ms, prompts.take(row));
    };
    for item in fold(&timeline.rows, FEW) {
        match item {
            ShownItem::Row(index) => {
                rows_left = rows_left.saturating_sub(1);
                row_html(out, &timeline.rows[index]);
            }
            ShownItem::Together(range) => {
                let Some((one, text)) = as_one(&timeline.rows[range.clone()]) else { continue };
                let _ = writeln!(
                    out,
                    "<details class=\"more g-tool\"><summary>{} {}, {} in all</summary>",
                    escape(&words(&one).name),
                    escape(&text),
                    took(one.end_ms.unwrap_or(one.start_ms).saturating_sub(one.start_ms))
                );
                rows_left = rows_left.saturating_sub(range.len());
                timeline.rows[range].iter().for_each(|row| row_html(out, row));
                out.push_str("</details>\n");
            }
            ShownItem::More(range) => {
                let hidden = &timeline.rows[range];
                let _ = writeln!(
                    out,
                    "<details class=\"more\"><summary>… {}</summary>",
                    escape(&summary(hidden))
                );
                for row in hidden.iter().take(rows_left) {
                    row_html(out, row);
                }
                if hidden.len() > rows_left {
                    let rest = hidden.len() - rows_left;
                    let _ = writeln!(
                        out,
                        "<p class=\"faint\">{rest} more are not on this page; <code>conclave show {} --json</code> has all.</p>",
                        escape(timeline.run.as_str())
                    );
                }
                rows_left = rows_left.saturating_sub(hidden.len());
                out.push_str("</details>\n");
            }
        }
    }
    out.push_str("</div>\n");
}

#[cfg(test)]
pub(crate) mod tests;
