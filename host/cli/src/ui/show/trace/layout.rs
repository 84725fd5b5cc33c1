//! The layout of a trace's lines. This module knows nothing of their contents.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::time::Instant;

use conclave_core::setup::Setup;
use conclave_core::types::ids::{RoomId, TaskName};

use crate::ui::screen::total_columns;
use crate::ui::show::amounts::{now, time_of_day};
use crate::ui::show::entry::EntryText;
use crate::ui::show::{FAINT, NAME, foreign, one_line, paint};

/// Columns of a line: a longer one is hard to read.
const COLUMNS_MAX: usize = 140;
/// Columns of an entry that the names of tasks leave, at least.
const ENTRY_COLUMNS_MIN: usize = 20;
/// Columns of the time of a run.
const TIME: usize = 6;
/// Columns of a time of day.
const TIME_OF_DAY: usize = 8;
/// Columns of a conversation's name.
const CONVERSATION: usize = 4;
/// Columns of a task's name, at least and at most.
const WHO: RangeInclusive<usize> = 11..=22;

/// Columns of a task's name on the narrowest terminal.
const WHO_MIN: usize = 4;

/// The subject of a trace, which decides the look of its lines.
pub(super) enum TraceStyle {
    /// A run, with the time since its start. Speeches of the tasks in `asking` are shown in full
    /// where the user is asked. The tasks in `simulated` ask no person.
    Run {
        started: Instant,
        entry: TaskName,
        asking: BTreeSet<TaskName>,
        simulated: BTreeSet<TaskName>,
    },
    /// A conversation of a server, one of several in the same output: each line has the time of day
    /// and the conversation. Nothing is shown elsewhere on this terminal but the ends of turns.
    #[cfg_attr(not(feature = "serve"), expect(dead_code, reason = "only a server has them"))]
    Served { conversation: String, entry: TaskName },
    /// A conversation. This task's speeches and the ends of background tasks are shown elsewhere.
    Chat { room: RoomId, task: TaskName },
}

/// The columns of a trace.
pub(super) struct TraceLayout {
    pub(super) style: TraceStyle,
    /// Columns that the names of all tasks need.
    widest: usize,
}

impl TraceLayout {
    pub(super) fn new(style: TraceStyle, setup: &Setup) -> Self {
        Self { style, widest: widest(setup) }
    }

    pub(super) fn is_chat(&self) -> bool {
        matches!(self.style, TraceStyle::Chat { .. })
    }

    /// The columns of a task's name. There are fewer on a narrow terminal, since a line wider than
    /// it would wrap into a row without a mark.
    pub(super) fn who(&self) -> usize {
        let columns = total_columns().saturating_sub(self.before_who() + 1 + ENTRY_COLUMNS_MIN);
        self.widest.min(columns.max(WHO_MIN))
    }

    fn before_who(&self) -> usize {
        match &self.style {
            TraceStyle::Chat { .. } => 2,
            TraceStyle::Run { .. } => TIME + 1,
            TraceStyle::Served { .. } => TIME_OF_DAY + 1 + CONVERSATION + 1,
        }
    }

    /// The entry task. Its end is shown as the end of the run, or of the turn.
    pub(super) fn entry_task(&self) -> Option<&TaskName> {
        match &self.style {
            TraceStyle::Run { entry, .. } | TraceStyle::Served { entry, .. } => Some(entry),
            TraceStyle::Chat { .. } => None,
        }
    }

    /// The columns in front of an entry.
    pub(super) fn margin(&self) -> usize {
        self.before_who() + self.who() + 1
    }

    /// The columns of an entry.
    pub(super) fn entry(&self) -> usize {
        total_columns().min(COLUMNS_MAX).saturating_sub(self.margin())
    }

    /// The lines of an entry: its time, its task and its text, with further rows below the text.
    pub(super) fn lines(&self, who: &str, entry: &EntryText) -> Vec<String> {
        let columns = self.who();
        let who = one_line(who, columns);
        let blanks = " ".repeat(columns.saturating_sub(foreign::width(&who)));
        let first = match &self.style {
            TraceStyle::Run { started, .. } => {
                let at = started.elapsed().as_secs_f64();
                let at = paint(FAINT, format_args!("{at:>TIME$.2}"));
                format!("{at} {}{blanks} ", paint(NAME, who))
            }
            TraceStyle::Served { conversation, .. } => {
                let at = paint(FAINT, time_of_day(now()));
                let which = one_line(conversation, CONVERSATION);
                let which = paint(FAINT, format_args!("{which:<CONVERSATION$}"));
                format!("{at} {which} {}{blanks} ", paint(NAME, who))
            }
            TraceStyle::Chat { .. } => format!("  {}{blanks} ", paint(FAINT, who)),
        };
        let rows = entry.rows(self.entry());
        let styled = |row: &String| if self.is_chat() { faint(row) } else { row.clone() };
        let margins = std::iter::once(first).chain(std::iter::repeat(" ".repeat(self.margin())));
        rows.iter().zip(margins).map(|(row, margin)| format!("{margin}{}", styled(row))).collect()
    }
}

/// The columns that the names of all tasks would need.
fn widest(setup: &Setup) -> usize {
    let delegated = |task: &TaskName| {
        let plugins = setup.plugins.values();
        let grants = plugins.filter_map(|plugin| plugin.grants.delegate.as_ref());
        grants.flat_map(|grant| &grant.tasks).any(|granted| granted == task)
    };
    let suffix = |task: &TaskName| if delegated(task) { " (task-1)".len() } else { 0 };
    let width = |task: &TaskName| foreign::width(task.as_str()) + suffix(task);
    setup.tasks.keys().map(width).fold(*WHO.start(), usize::max).min(*WHO.end())
}

/// The text faint, also behind a style that ends within it.
fn faint(text: &str) -> String {
    let end = format!("{FAINT:#}");
    paint(FAINT, text.replace(&end, &format!("{end}{FAINT}")))
}
