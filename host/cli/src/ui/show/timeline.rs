//! A run's timeline in the terminal: its head, and a line for each row with a bar for its time.
//! Rows are indented below the row that contains them, and their texts begin in one column. The
//! core computes the rows; `page` renders them for a browser.

pub(crate) mod fold;

use anstyle::Style;
use conclave_core::inspect::telling::Tone;
use conclave_core::inspect::timeline::row_text::{RowText, words};
use conclave_core::inspect::timeline::{Timeline, TimelineRow, Totals};
use conclave_runtime::overlay::ChangeDecision;
use conclave_runtime::store::RunState;

use super::amounts::{ago, computing, downtime, money, now, thousands, took};
use super::columns::{StyledText, line, width};
use super::run_state::run_state;
use super::{FAINT, NAME, ODD, bytes, foreign, paint, plural, printable, show_path, style_of};
use fold::{ShownItem, fold};

/// Blanks between a row's name and its text. Without colors, they separate the two.
const GAP: usize = 2;
/// The terminal width below which there are no bars: the text needs the columns.
const BARS: usize = 100;
/// The depth at which deeper rows are shown.
const DEEPEST: u32 = 12;
/// Rows of the message and of the reason, at most.
const ROWS: usize = 6;
/// Rows that are shown without folding.
const FEW: usize = 120;

/// Facts about a run besides its records.
pub(crate) struct RunFacts {
    pub(crate) state: RunState,
    pub(crate) config: Option<String>,
    pub(crate) command: String,
    pub(crate) reason: Option<String>,
    /// The number of files that wait in overlays.
    pub(crate) pending_changes: usize,
    /// Those of them that cannot be applied as they are.
    pub(crate) blocked_changes: usize,
    /// What persons decided about its changes.
    pub(crate) change_decisions: Vec<ChangeDecision>,
}

/// `, 1 of them in conflict`, for changes that cannot be applied as they are.
fn blocked(changes: usize) -> String {
    if changes == 0 { String::new() } else { format!(", {changes} of them in conflict") }
}

/// `2 changed files of project applied by operator 5 min ago`; `… applied in part by …` after an
/// interruption.
pub(crate) fn decided(decision: &ChangeDecision) -> String {
    let ChangeDecision { at, principal, kind, folder, files, is_begin } = decision;
    let files = match files.as_slice() {
        [one] => show_path(one),
        files => plural(files.len() as u64, "changed file", "changed files"),
    };
    let (folder, word, principal) = (show_path(folder), kind.as_str(), printable(principal));
    let part = if *is_begin { " in part" } else { "" };
    format!("{files} of {folder} {word}{part} by {principal} {}", ago(*at, now()))
}

/// The lines, in `total` columns.
pub(crate) fn lines(timeline: &Timeline, about: &RunFacts, total: usize, all: bool) -> Vec<String> {
    let mut lines = head(timeline, about, total);
    lines.push(String::new());
    let few = if all { usize::MAX } else { FEW };
    let span_ms = timeline.took_ms;
    let items = fold(&timeline.rows, few).into_iter().filter_map(|item| match item {
        ShownItem::Row(index) => {
            let row = &timeline.rows[index];
            Some(ShownRow::of(row, words(row), span_ms, total))
        }
        ShownItem::Together(range) => together(&timeline.rows[range], span_ms, total),
        ShownItem::More(range) => Some(more(&timeline.rows[range], total)),
    });
    let rows: Vec<ShownRow> = items.collect();
    let widths = Widths::of(&rows, total);
    lines.extend(rows.iter().map(|row| row.line(widths)));
    lines
}

/// A line below the head.
struct ShownRow {
    start: String,
    length: String,
    bar: String,
    indent: usize,
    words: RowText,
}

/// The columns that all rows share.
#[derive(Clone, Copy)]
struct Widths {
    start: usize,
    length: usize,
    /// Columns of the indent and the name.
    name: usize,
    total: usize,
}

impl Widths {
    fn of(rows: &[ShownRow], total: usize) -> Self {
        let widest = |of: fn(&ShownRow) -> usize| rows.iter().map(of).max().unwrap_or_default();
        Self {
            start: widest(|row| width(&row.start)),
            length: widest(|row| width(&row.length)),
            // A longer name moves its own text only.
            name: widest(ShownRow::name_width).min(total / 3),
            total,
        }
    }
}

fn head(timeline: &Timeline, about: &RunFacts, total: usize) -> Vec<String> {
    let (style, word) = run_state(about.state, &about.command);
    let when = format!("· {} · took {}", ago(timeline.started, now()), took(timeline.took_ms));
    let from = about.config.clone().map(|config| format!("conclave {} {config}", about.command));
    let first = [
        StyledText::new(NAME, format!("run {}", timeline.run)),
        StyledText::new(style, word),
        StyledText::new(FAINT, when),
    ];
    let (mut first, used) = line(&first, total);
    let mut lines = Vec::new();
    match from.map(|from| StyledText::new(FAINT, format!("· {from}"))) {
        Some(from) if used + 1 + width(&from.text) <= total => {
            first.push_str(&format!(" {}", line(&[from], total).0));
            lines.push(first);
        }
        from => {
            lines.push(first);
            lines.extend(from.map(|from| format!("  {}", line(&[from], total - 2).0)));
        }
    }
    // Behind marks, so that no row of it can be taken for the program's own.
    let text = |style: Style, text: &str| {
        let block = foreign::block(text, style, 2, total);
        let more = block.lines().nth(ROWS).map(|_| "  …".to_owned());
        block.lines().take(ROWS).map(str::to_owned).chain(more).collect::<Vec<_>>()
    };
    if !timeline.message.is_empty() {
        lines.extend(text(Style::new(), &format!("“{}”", timeline.message)));
    }
    let reason = timeline
        .ended
        .as_ref()
        .map(|ended| ended.reason.as_str())
        .or(about.reason.as_deref())
        .filter(|reason| !reason.is_empty());
    lines.extend(reason.into_iter().flat_map(|reason| text(FAINT, reason)));
    for amounts in wrapped(&amounts(timeline), total.saturating_sub(2)) {
        lines.push(format!("  {}", paint(FAINT, amounts)));
    }
    if about.pending_changes > 0 {
        let files = plural(about.pending_changes as u64, "changed file", "changed files");
        let blocked = blocked(about.blocked_changes);
        let what = format!("{files} to apply or drop{blocked}: conclave diff {}", timeline.run);
        lines.push(format!("  {}", paint(ODD, what)));
    }
    let decisions = about.change_decisions.iter();
    lines.extend(decisions.map(|decision| format!("  {}", paint(FAINT, decided(decision)))));
    lines
}

/// The usage and the incidents of a run.
pub(crate) fn amounts(timeline: &Timeline) -> Vec<String> {
    let (totals, rooms) = (&timeline.totals, timeline.rooms.len());
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
        some(totals.sandboxes, sandboxes(totals, timeline.took_ms)),
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
        some(totals.denials, plural(totals.denials, "denial", "denials")),
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
                downtime(totals.down_ms, !totals.is_down_at_most)
            ),
        ),
        Some(plural(totals.records, "record", "records")),
    ];
    all.into_iter().flatten().collect()
}

/// `9 sandboxes, 2.1 MiB at most, 1.2 s of computing`.
fn sandboxes(totals: &Totals, took_ms: u64) -> String {
    let computing = computing(totals.cpu_ms, took_ms).map(|time| format!(", {time} of computing"));
    format!(
        "{}, {} at most{}",
        plural(totals.sandboxes, "sandbox", "sandboxes"),
        bytes(totals.memory),
        computing.unwrap_or_default()
    )
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

impl ShownRow {
    fn of(row: &TimelineRow, words: RowText, span_ms: u64, total: usize) -> Self {
        let length = row.end_ms.map(|end| end.saturating_sub(row.start_ms));
        let length = match (length, row.start_ms) {
            (None, start) => format!("{}…", took(span_ms.saturating_sub(start))),
            (Some(0), _) => row
                .what
                .sandbox()
                .map(|used| super::time(std::time::Duration::from_micros(used.wall_us)))
                .unwrap_or_default(),
            (Some(ms), _) => took(ms),
        };
        Self {
            start: took_short(row.start_ms),
            length,
            bar: if total < BARS { String::new() } else { bar(row, span_ms, bar_width(total)) },
            indent: indent(row.depth, total),
            words,
        }
    }

    fn name_width(&self) -> usize {
        self.indent + width(&self.words.name)
    }

    fn line(&self, widths: Widths) -> String {
        let RowText { name, text, amounts, tone } = &self.words;
        let mut display = format!(
            "{} {:>2$} ",
            paint(FAINT, right(&self.start, widths.start)),
            self.length,
            widths.length
        );
        let mut used = widths.start + widths.length + 2;
        if !self.bar.is_empty() {
            display.push_str(&paint(style_of_bar(*tone), &self.bar));
            display.push(' ');
            used += width(&self.bar) + 1;
        }
        display.push_str(&" ".repeat(self.indent));
        used += self.indent;
        let (name, columns) =
            line(&[StyledText::new(style_of(*tone), name)], widths.total.saturating_sub(used));
        display.push_str(&name);
        used += columns;
        let gap = widths.name.saturating_sub(self.indent + columns) + GAP;
        let amounts = if amounts.is_empty() { String::new() } else { format!("({amounts})") };
        let parts = [StyledText::plain(text), StyledText::new(FAINT, amounts)];
        let parts: Vec<StyledText> =
            parts.into_iter().filter(|part| !part.text.is_empty()).collect();
        let columns = widths.total.saturating_sub(used + gap);
        if columns > 0 {
            display.push_str(&" ".repeat(gap));
            display.push_str(&line(&parts, columns).0);
        }
        display.trim_end().to_owned()
    }
}

fn together(rows: &[TimelineRow], span_ms: u64, total: usize) -> Option<ShownRow> {
    let (one, text) = fold::as_one(rows)?;
    let words = RowText { text, ..words(&one) };
    Some(ShownRow::of(&one, words, span_ms, total))
}

/// The row in place of rows that are left out.
fn more(rows: &[TimelineRow], total: usize) -> ShownRow {
    let text = format!("{}; --all shows them", fold::summary(rows));
    let words = RowText { name: "…".to_owned(), text, amounts: String::new(), tone: Tone::Plain };
    ShownRow {
        start: String::new(),
        length: String::new(),
        bar: if total < BARS { String::new() } else { " ".repeat(bar_width(total)) },
        indent: indent(rows.first().map_or(0, |row| row.depth), total),
        words,
    }
}

fn bar_width(total: usize) -> usize {
    (total / 6).clamp(10, 32)
}

fn indent(depth: u32, total: usize) -> usize {
    (2 * depth.min(DEEPEST) as usize).min(total / 6)
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

/// The bar that shows a row's start and duration within the run.
fn bar(row: &TimelineRow, span_ms: u64, wide: usize) -> String {
    const EIGHTHS: [char; 8] = ['▏', '▎', '▍', '▌', '▋', '▊', '▉', '█'];
    let span_ms = u128::from(span_ms.max(1));
    let at = |ms: u64| {
        usize::try_from(u128::from(ms) * 8 * wide as u128 / span_ms).unwrap_or(0).min(8 * wide)
    };
    let (from, to) = (at(row.start_ms), row.end_ms.map_or(8 * wide, at));
    let first = (from / 8).min(wide - 1);
    let eighths = to.saturating_sub(8 * first).max(1);
    let (full, rest) = (eighths / 8, eighths % 8);
    let mut bar = " ".repeat(first) + &"█".repeat(full.min(wide - first));
    if rest > 0 && first + full < wide {
        bar.push(EIGHTHS[rest - 1]);
    }
    let used = bar.chars().count();
    bar + &" ".repeat(wide.saturating_sub(used))
}

fn style_of_bar(tone: Tone) -> Style {
    match tone {
        Tone::Plain | Tone::Faint | Tone::Name => FAINT,
        other => style_of(other),
    }
}

#[cfg(test)]
mod tests;
