//! A run's timeline in the terminal: its head, and a line for each row with a bar for its time.
//! Rows are indented below the row that contains them. The core computes the rows; `page` renders
//! them for a browser.

pub(crate) mod fold;
pub(crate) mod words;

use anstyle::Style;
use conclave_core::inspect::timeline::{Timeline, TimelineRow, Totals};
use conclave_runtime::store::RunState;

use super::amounts::{ago, money, now, thousands, took};
use super::columns::{StyledText, cell, line};
use super::{BAD, FAINT, GOOD, NAME, ODD, bytes, paint, plural};
use fold::{ShownItem, fold};
use words::{RowText, Tone, words};

/// Columns of a start and of a duration: `59 min 59 s` and the sign for an open end.
const TIME: usize = 12;
/// The terminal width below which there are no bars.
const BARS: usize = 76;
/// The depth at which deeper rows are shown.
const DEEPEST: u32 = 12;
/// Rows that are shown without folding.
const FEW: usize = 120;

/// Facts about a run besides its records.
pub(crate) struct RunFacts {
    pub(crate) state: RunState,
    pub(crate) config: Option<String>,
    pub(crate) command: String,
    pub(crate) reason: Option<String>,
}

/// Returns the word for a run's state, and its style.
pub(crate) fn run_state(of: RunState) -> (Style, String) {
    match of {
        RunState::Running => (NAME, "running".to_owned()),
        RunState::Interrupted => (ODD, "interrupted".to_owned()),
        RunState::Ended(status) => {
            let word = status.as_str().to_ascii_lowercase().replace('_', "-");
            (if status.is_success() { GOOD } else { BAD }, word)
        }
    }
}

/// Returns the lines, in `total` columns.
pub(crate) fn lines(timeline: &Timeline, about: &RunFacts, total: usize, all: bool) -> Vec<String> {
    let mut lines = head(timeline, about, total);
    lines.push(String::new());
    let few = if all { usize::MAX } else { FEW };
    for item in fold(&timeline.rows, few) {
        lines.push(match item {
            ShownItem::Row(index) => {
                row(&timeline.rows[index], words(&timeline.rows[index]), timeline.took_ms, total)
            }
            ShownItem::Together(range) => together(&timeline.rows[range], timeline.took_ms, total),
            ShownItem::More(range) => more(&timeline.rows[range], total),
        });
    }
    lines
}

fn head(timeline: &Timeline, about: &RunFacts, total: usize) -> Vec<String> {
    let (style, word) = run_state(about.state);
    let when = format!("{} · took {}", ago(timeline.started, now()), took(timeline.took_ms));
    let from = about.config.clone().map(|config| format!("conclave {} {config}", about.command));
    let mut first = vec![
        StyledText::new(NAME, format!("run {}", timeline.run)),
        StyledText::new(style, word),
        StyledText::new(FAINT, when),
    ];
    first.extend(from.map(|from| StyledText::new(FAINT, from)));
    let mut lines = vec![line(&first, total).0];
    let text = |style: Style, text: &str| {
        line(&[StyledText::new(style, format!("  {text}"))], total.saturating_sub(2)).0
    };
    let indented = |shown: String| format!("  {shown}");
    if !timeline.message.is_empty() {
        lines.push(indented(text(Style::new(), &format!("“{}”", timeline.message))));
    }
    let reason = timeline
        .ended
        .as_ref()
        .map(|ended| ended.reason.as_str())
        .or(about.reason.as_deref())
        .filter(|reason| !reason.is_empty());
    lines.extend(reason.map(|reason| indented(text(FAINT, reason))));
    for amounts in
        wrapped(&amounts(&timeline.totals, timeline.rooms.len()), total.saturating_sub(2))
    {
        lines.push(indented(paint(FAINT, amounts)));
    }
    lines
}

/// Returns the usage and the incidents of a run.
pub(crate) fn amounts(totals: &Totals, rooms: usize) -> Vec<String> {
    let some = |count: u64, words: String| (count > 0).then_some(words);
    let cached = some(
        totals.cached_input_tokens,
        format!(", {} of them cached", thousands(totals.cached_input_tokens)),
    )
    .unwrap_or_default();
    let cost = match totals.cost() {
        Some(cost) => money(cost),
        None if totals.cost_micro_usd > 0 => {
            format!("{} and some at a price that is not known", money(totals.cost_micro_usd))
        }
        None => "price not known".to_owned(),
    };
    let tokens = format!(
        "{} tokens ({} in{cached}, {} out) · {cost}",
        thousands(totals.tokens()),
        thousands(totals.input_tokens),
        thousands(totals.output_tokens)
    );
    let all = [
        Some(plural(totals.steps, "step", "steps")),
        some(totals.model_calls, plural(totals.model_calls, "model call", "model calls")),
        some(totals.tokens(), tokens),
        some(totals.tool_calls, plural(totals.tool_calls, "tool call", "tool calls")),
        some(
            totals.sandboxes,
            format!(
                "{}, {} at most, {} of computing",
                plural(totals.sandboxes, "sandbox", "sandboxes"),
                bytes(totals.memory),
                took(totals.cpu_ms)
            ),
        ),
        some(totals.side_effects, plural(totals.side_effects, "side effect", "side effects")),
        some(
            totals.approvals,
            format!(
                "{}, waited {}",
                plural(totals.approvals, "approval", "approvals"),
                took(totals.approval_ms)
            ),
        ),
        some(
            totals.top_ups,
            plural(
                totals.top_ups,
                "question for more of a budget",
                "questions for more of a budget",
            ),
        ),
        some(totals.denials, plural(totals.denials, "refusal", "refusals")),
        some(totals.faults, plural(totals.faults, "fault", "faults")),
        some(
            totals.background,
            format!(
                "{} in {}",
                plural(totals.background, "background task", "background tasks"),
                plural(rooms as u64, "room", "rooms")
            ),
        ),
        some(
            totals.resumed,
            format!(
                "went on {} after {}",
                plural(totals.resumed, "time", "times"),
                took(totals.down_ms)
            ),
        ),
        Some(plural(totals.records, "record", "records")),
    ];
    all.into_iter().flatten().collect()
}

/// Joins pieces with dots, in lines of at most `most` columns.
fn wrapped(pieces: &[String], most: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for piece in pieces {
        match lines.last_mut() {
            Some(last) if last.chars().count() + 3 + piece.chars().count() <= most => {
                last.push_str(" · ");
                last.push_str(piece);
            }
            _ => lines.push(line(&[StyledText::plain(piece.as_str())], most).0),
        }
    }
    lines
}

fn together(rows: &[TimelineRow], whole: u64, total: usize) -> String {
    let Some((one, text)) = fold::as_one(rows) else { return String::new() };
    let words = RowText { text, ..words(&one) };
    row(&one, words, whole, total)
}

fn row(row: &TimelineRow, words: RowText, whole: u64, total: usize) -> String {
    let RowText { name, text, amounts, tone } = words;
    let length = row.end_ms.map(|end| end.saturating_sub(row.start_ms));
    let long = match (length, row.start_ms) {
        (None, start) => format!("{}…", took(whole.saturating_sub(start))),
        (Some(0), _) => row
            .what
            .sandbox()
            .map(|used| super::time(std::time::Duration::from_micros(used.wall_us)))
            .unwrap_or_default(),
        (Some(ms), _) => took(ms),
    };
    let mut shown =
        format!("{} {} ", paint(FAINT, right(&took_short(row.start_ms), TIME)), right(&long, TIME));
    let mut used = 2 * TIME + 2;
    if total >= BARS {
        let wide = (total / 6).clamp(10, 32);
        shown.push_str(&paint(style_of_bar(tone), bar(row, whole, wide)));
        shown.push(' ');
        used += wide + 1;
    }
    let indent = 2 * row.depth.min(DEEPEST) as usize;
    let indent = indent.min(total.saturating_sub(used) / 3);
    shown.push_str(&" ".repeat(indent));
    let mut parts = vec![StyledText::new(style_of(tone), name)];
    parts.extend(
        [StyledText::plain(text), StyledText::new(FAINT, amounts)]
            .into_iter()
            .filter(|part| !part.text.is_empty()),
    );
    shown.push_str(&line(&parts, total.saturating_sub(used + indent)).0);
    shown.trim_end().to_owned()
}

fn more(rows: &[TimelineRow], total: usize) -> String {
    let (indent, words) =
        (2 * rows.first().map_or(0, |row| row.depth.min(DEEPEST)) as usize, fold::summary(rows));
    let words = format!("{}… {words}; --all shows them", " ".repeat(indent.min(total / 3)));
    let wide = if total >= BARS { (total / 6).clamp(10, 32) + 1 } else { 0 };
    let before = 2 * TIME + 2 + wide;
    format!(
        "{}{}",
        cell(&[], before),
        line(&[StyledText::new(FAINT, words)], total.saturating_sub(before)).0
    )
}

/// Formats a start in seconds with two decimals, as in the trace of a run.
fn took_short(ms: u64) -> String {
    match ms {
        0..600_000 => format!("{}.{:02}", ms / 1_000, ms % 1_000 / 10),
        _ => took(ms),
    }
}

fn right(text: &str, wide: usize) -> String {
    format!("{text:>wide$}")
}

/// Returns the bar that shows a row's start and duration within the run.
fn bar(row: &TimelineRow, whole: u64, wide: usize) -> String {
    const EIGHTHS: [char; 8] = ['▏', '▎', '▍', '▌', '▋', '▊', '▉', '█'];
    let whole = u128::from(whole.max(1));
    let at = |ms: u64| {
        usize::try_from(u128::from(ms) * 8 * wide as u128 / whole).unwrap_or(0).min(8 * wide)
    };
    let (from, to) = (at(row.start_ms), row.end_ms.map_or(8 * wide, at));
    let first = (from / 8).min(wide - 1);
    let eighths = to.saturating_sub(8 * first).max(1);
    let (full, rest) = (eighths / 8, eighths % 8);
    let mut shown = " ".repeat(first) + &"█".repeat(full.min(wide - first));
    if rest > 0 && first + full < wide {
        shown.push(EIGHTHS[rest - 1]);
    }
    let used = shown.chars().count();
    shown + &" ".repeat(wide.saturating_sub(used))
}

fn style_of(tone: Tone) -> Style {
    match tone {
        Tone::Plain => Style::new(),
        Tone::Name => NAME,
        Tone::Good => GOOD,
        Tone::Odd => ODD,
        Tone::Bad => BAD,
    }
}

fn style_of_bar(tone: Tone) -> Style {
    match tone {
        Tone::Plain | Tone::Name => FAINT,
        other => style_of(other),
    }
}

#[cfg(test)]
mod tests;
