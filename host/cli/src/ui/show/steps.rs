//! The output of `--trace`: a line in columns for each finished step of each task, with its
//! responder, sender, recipient, tools and content (L-200). The module follows the rooms only to
//! know each task's depth; `trace` reports failures outside of steps.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anstyle::{AnsiColor, Style};
use conclave_core::inspect::telling::{no_answer, not_asked, passed_over, tell};
use conclave_core::protocol::event::Record;
use conclave_core::protocol::notice::{Notice, SkippedResponder};
use conclave_core::room::Room;
use conclave_core::setup::Setup;
use conclave_core::types::ids::{RoomId, TaskName};
use conclave_core::types::message::{Message, Role};

use super::columns::{StyledText, cell, cut, line, width, wrap};
use super::foreign::reading_rows;
use super::{FAINT, GOOD, NAME, ODD, paint, pending, style_of};
use crate::args::Detail;
use crate::ui::screen::{Screen, total_columns};

/// Columns of a step's number.
const NUMBER: usize = 4;
/// Blanks between columns.
const GAP: usize = 2;
/// Columns of the longest status, which is not cut: `NOT_ADDRESSED`.
const STATUS: usize = 13;
/// The depth at which deeper tasks are shown.
const DEEPEST: usize = 8;
/// Columns of the pending message, at least.
const LEAST: usize = 4;
/// Columns of a task's name that stay if the responder's name is long.
const SHORT: usize = 6;
/// The separator between a task and its responder.
const ANSWERED: &str = " › ";
/// The sign before the name of a background task.
const BACKGROUND: &str = "& ";

/// The steps of a run, or of one of many runs.
pub(crate) struct Steps {
    screen: Arc<Screen>,
    is_full: bool,
    widest: Widest,
    /// The prefix of this run's lines, if there are several runs.
    label: String,
    state: Mutex<StepsState>,
}

/// Columns that would suffice for every name in the config.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Widest {
    label: usize,
    who: usize,
    way: usize,
}

/// Columns of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct StepLayout {
    label: usize,
    who: usize,
    way: usize,
    content: usize,
}

#[derive(Debug, Default)]
struct StepsState {
    /// Open tasks of each room, the innermost last.
    open: HashMap<RoomId, Vec<OpenStep>>,
    background: HashSet<RoomId>,
}

#[derive(Debug)]
struct OpenStep {
    task: TaskName,
    depth: usize,
    steps: u32,
    stalled: Option<StalledStep>,
}

/// A step without a valid answer.
#[derive(Debug)]
struct StalledStep {
    /// The number of such steps in a row.
    count: u32,
    limit: u32,
    skipped: Vec<SkippedResponder>,
}

impl Steps {
    /// Creates the steps of a run of this config.
    pub(crate) fn of_run(screen: Arc<Screen>, detail: Detail, setup: &Setup) -> Self {
        Self {
            screen,
            is_full: detail == Detail::Full,
            widest: widest(setup),
            label: String::new(),
            state: Mutex::default(),
        }
    }

    /// Creates the steps of one of many runs, with this prefix. The widest prefix takes `columns`
    /// columns.
    pub(crate) fn of_item(
        screen: Arc<Screen>,
        detail: Detail,
        setup: &Setup,
        label: String,
        columns: usize,
    ) -> Self {
        let steps = Self::of_run(screen, detail, setup);
        Self { widest: Widest { label: columns, ..steps.widest }, label, ..steps }
    }

    /// Takes the steps that an interrupted run and its background tasks made before, so that their
    /// numbers and depths continue. `records` returns the records of a room. Prints nothing.
    pub(crate) fn resume_from(&self, run: &RoomId, records: impl Fn(&RoomId) -> Vec<Record>) {
        let mut rooms = vec![run.clone()];
        while let Some(id) = rooms.pop() {
            let mut room = Room::new();
            for record in records(&id) {
                room.handle(record.event, record.at);
                while let Some(notice) = room.poll_notice() {
                    if let Notice::BackgroundStarted { room: child, .. } = &notice {
                        rooms.push(child.clone());
                    }
                    self.state().follow(&id, &notice);
                }
                // The fold performs no effects; undrained queues would grow with the journal.
                while room.poll_task().is_some() {}
                while room.poll_effect().is_some() {}
            }
        }
    }

    /// Prints the column titles.
    pub(crate) fn legend(&self) {
        let layout = self.layout();
        let part = |text: &str| [StyledText::plain(text)];
        let who = cell(&part("task › who"), layout.who);
        let row = self.row(layout, "step", &who, &part("from → to"), &part("what is pending now"));
        self.put(&paint(FAINT, anstream::adapter::strip_str(&row)));
    }

    /// Prints something outside of the steps.
    pub(crate) fn put_beside(&self, who: &str, text: &str) {
        let layout = self.layout();
        let blank = " ".repeat(NUMBER + GAP);
        self.put(&format!(
            "{}{blank}{}  {text}",
            self.label(layout),
            cell(&[StyledText::new(NAME, who)], layout.who)
        ));
    }

    /// Prints a line that belongs to the one before.
    pub(crate) fn more(&self, text: &str) {
        let layout = self.layout();
        self.put(&format!(
            "{}{}{text}",
            self.label(layout),
            " ".repeat(NUMBER + GAP + layout.who + GAP)
        ));
    }

    /// The columns for the text of [`Steps::put_beside`].
    pub(crate) fn width(&self) -> usize {
        let layout = self.layout();
        layout.way + GAP + layout.content
    }

    /// Shows a notice about a step. Returns false if the notice is shown elsewhere.
    pub(crate) fn show_notice(&self, room: &RoomId, notice: &Notice) -> bool {
        match notice {
            Notice::TaskStarted { task, .. } => {
                self.state().follow(room, notice);
                if self.is_full {
                    let telling = tell(notice);
                    let facts = StyledText::new(FAINT, telling.facts_text());
                    self.about(room, task, StyledText::new(FAINT, telling.verb), facts);
                }
            }
            Notice::StepStalled { .. } => self.state().follow(room, notice),
            Notice::StepEnded { task, by, message, skipped } => {
                let is_stalled =
                    self.state().find(room, task).is_some_and(|open| open.stalled.is_some());
                self.step(room, task, by, message.as_deref());
                // A step without an answer has named them.
                if self.is_full && !is_stalled && !skipped.is_empty() {
                    let way = [StyledText::new(FAINT, "passed over")];
                    let content = StyledText::new(FAINT, passed_over(skipped));
                    let rows = self.head(self.layout(), "", Vec::new(), &way, &content);
                    self.put(&rows.join("\n"));
                }
            }
            Notice::TaskEnded { task, reason, .. } => {
                let telling = tell(notice);
                let status = StyledText::new(style_of(telling.tone), telling.verb);
                self.about(room, task, status, StyledText::plain(reason));
                self.state().follow(room, notice);
            }
            Notice::BackgroundStarted { .. } => {
                self.state().follow(room, notice);
                return false;
            }
            // Shown by the step that they are part of.
            Notice::MessagePosted { .. }
            | Notice::ToolCalled { .. }
            | Notice::ToolAnswered { .. }
            | Notice::StepStarted { .. } => {}
            _ => return false,
        }
        true
    }

    fn step(&self, room: &RoomId, task: &TaskName, by: &str, message: Option<&Message>) {
        let (layout, (depth, steps, stalled)) = (self.layout(), self.state().count(room, task));
        let number = format!("{steps:>NUMBER$}");
        if let Some(stalled) = stalled {
            let mut what = no_answer(stalled.count, stalled.limit, &[]);
            if message.is_some_and(Message::says_do_not_know) {
                what.push_str(", which counts as DO-NOT-KNOW");
            }
            what.push_str(&not_asked(&stalled.skipped));
            let (way, what) = ([StyledText::new(ODD, "stalled")], StyledText::new(FAINT, what));
            if self.is_full {
                let who = self.whole_who(layout, room, task, depth, None);
                self.put(&self.head(layout, &number, who, &way, &what).join("\n"));
            } else {
                let who = self.who(layout, room, task, depth, None);
                self.put(&self.row(layout, &number, &who, &way, &[what]));
            }
            return;
        }
        let who = self.who(layout, room, task, depth, Some(by));
        let Some(message) = message else {
            self.put(&self.row(
                layout,
                &number,
                &who,
                &[],
                &[StyledText::new(FAINT, "nothing is pending")],
            ));
            return;
        };
        if !self.is_full {
            self.put(&self.row(layout, &number, &who, &way(message), &pending::line(message)));
            return;
        }
        let facts = StyledText::new(FAINT, pending::facts(message, task, by));
        let mut lines = self.head(
            layout,
            &number,
            self.whole_who(layout, room, task, depth, Some(by)),
            &way(message),
            &facts,
        );
        let margin =
            format!("{}{}{} ", self.label(layout), " ".repeat(NUMBER + GAP), paint(FAINT, "│"));
        // A row wider than the terminal would wrap into a row without a mark.
        let total = layout.total().min(total_columns());
        let columns = total.saturating_sub(layout.label + NUMBER + GAP + 2);
        for block in pending::blocks(message, columns) {
            lines.extend(
                reading_rows(&block.text, columns)
                    .iter()
                    .map(|row| format!("{margin}{}", paint(block.style, row.trim_end()))),
            );
        }
        self.put(&lines.join("\n"));
    }

    /// Prints a line about a task as a whole.
    fn about(&self, room: &RoomId, task: &TaskName, what: StyledText, content: StyledText) {
        let layout = self.layout();
        let depth = self.state().find(room, task).map_or(0, |open| open.depth);
        let lines = if self.is_full {
            self.head(
                layout,
                "",
                self.whole_who(layout, room, task, depth, None),
                &[what],
                &content,
            )
        } else {
            vec![self.row(
                layout,
                "",
                &self.who(layout, room, task, depth, None),
                &[what],
                &[content],
            )]
        };
        self.put(&lines.join("\n"));
    }

    /// A row whose columns continue below it if they do not fit, so that nothing is cut.
    fn head(
        &self,
        layout: StepLayout,
        number: &str,
        who: Vec<String>,
        way: &[StyledText],
        content: &StyledText,
    ) -> Vec<String> {
        let fits = way.iter().map(|part| width(&part.text) + 1).sum::<usize>() <= layout.way + 1;
        let broken = || {
            way.iter().flat_map(|part| styled(part, layout.way)).map(|part| vec![part]).collect()
        };
        let ways: Vec<Vec<StyledText>> = if fits { vec![way.to_vec()] } else { broken() };
        let contents = styled(content, layout.content);
        let rows = who.len().max(ways.len()).max(contents.len());
        let row = |index: usize| {
            let who = who.get(index).map(String::as_str).unwrap_or_default();
            let way = ways.get(index).map(Vec::as_slice).unwrap_or_default();
            self.row(
                layout,
                if index == 0 { number } else { "" },
                who,
                way,
                contents.get(index..=index).unwrap_or_default(),
            )
        };
        (0..rows).map(row).collect()
    }

    /// The text of [`Steps::who`], in several lines if it is too long for one.
    fn whole_who(
        &self,
        layout: StepLayout,
        room: &RoomId,
        task: &TaskName,
        depth: usize,
        by: Option<&str>,
    ) -> Vec<String> {
        let sign = if self.state().background.contains(room) { BACKGROUND } else { "" };
        let start = (2 * depth.min(DEEPEST)).min(layout.who / 3);
        let needed = start
            + width(sign)
            + width(task.as_str())
            + by.map_or(0, |by| width(ANSWERED) + width(by));
        if needed <= layout.who {
            return vec![self.who(layout, room, task, depth, by)];
        }
        let name =
            StyledText::plain(format!("{sign}{task}{}", by.map_or("", |_| ANSWERED.trim_end())));
        let parts = [Some(name), by.map(|by| StyledText::new(of_name(by), by))];
        let indent = " ".repeat(start);
        let rows = parts.iter().flatten().flat_map(|part| styled(part, layout.who - start));
        rows.map(|row| format!("{indent}{}", cell(&[row], layout.who - start))).collect()
    }

    /// A task, indented by its depth, and its responder. If both are too long, the task's name is
    /// cut first.
    fn who(
        &self,
        layout: StepLayout,
        room: &RoomId,
        task: &TaskName,
        depth: usize,
        by: Option<&str>,
    ) -> String {
        let sign = if self.state().background.contains(room) { BACKGROUND } else { "" };
        let indent = (2 * depth.min(DEEPEST)).min(layout.who / 3);
        let start = format!("{}{sign}", " ".repeat(indent));
        let columns = layout.who.saturating_sub(start.len());
        let Some(by) = by else {
            return format!("{start}{}", cell(&[StyledText::plain(task.as_str())], columns));
        };
        let most = columns
            .saturating_sub(width(task.as_str()))
            .max(columns.saturating_sub(SHORT))
            .saturating_sub(width(ANSWERED));
        let (style, answered) = (of_name(by), cut(by, most));
        let columns = columns.saturating_sub(width(ANSWERED) + answered.columns);
        let task = cut(task.as_str(), columns);
        let blanks = " ".repeat(columns.saturating_sub(task.columns));
        format!(
            "{start}{}{}{}{blanks}",
            task.text,
            paint(FAINT, ANSWERED),
            paint(style, answered.text)
        )
    }

    fn row(
        &self,
        layout: StepLayout,
        number: &str,
        who: &str,
        way: &[StyledText],
        content: &[StyledText],
    ) -> String {
        let (label, who) = (
            self.label(layout),
            if who.is_empty() { " ".repeat(layout.who) } else { who.to_owned() },
        );
        let row = format!(
            "{label}{number:>NUMBER$}  {who}  {}  {}",
            cell(way, layout.way),
            line(content, layout.content).0
        );
        row.trim_end().to_owned()
    }

    fn label(&self, layout: StepLayout) -> String {
        if layout.label == 0 {
            String::new()
        } else {
            format!("{}  ", cell(&[StyledText::new(FAINT, &self.label)], layout.label - GAP))
        }
    }

    fn layout(&self) -> StepLayout {
        StepLayout::of(self.widest, total_columns())
    }

    /// Printed even if the event stream goes to stdout.
    fn put(&self, text: &str) {
        self.screen.notice(text);
    }

    fn state(&self) -> MutexGuard<'_, StepsState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StepLayout {
    /// Divides a line of this width into columns. The pending message gets most of it.
    fn of(widest: Widest, total: usize) -> Self {
        let label = if widest.label == 0 { 0 } else { widest.label.min(total / 6).max(4) + GAP };
        let columns = total.saturating_sub(label);
        let who = widest.who.min((columns * 3 / 10).max(12));
        let way = widest.way.min(columns / 5).max(STATUS);
        let content = columns.saturating_sub(NUMBER + GAP + who + GAP + way + GAP).max(LEAST);
        Self { label, who, way, content }
    }

    fn total(self) -> usize {
        self.label + NUMBER + GAP + self.who + GAP + self.way + GAP + self.content
    }
}

impl StepsState {
    /// Takes a notice of a room, without its line.
    fn follow(&mut self, room: &RoomId, notice: &Notice) {
        match notice {
            Notice::TaskStarted { task, caller, .. } => self.begin(room, task, caller.as_ref()),
            Notice::StepStalled { task, stalled, of, skipped } => {
                if let Some(open) = self.find(room, task) {
                    let skipped = skipped.clone();
                    open.stalled = Some(StalledStep { count: *stalled, limit: *of, skipped });
                }
            }
            Notice::StepEnded { task, .. } => drop(self.count(room, task)),
            Notice::TaskEnded { task, .. } => self.end(room, task),
            Notice::BackgroundStarted { room, .. } => {
                self.background.insert(room.clone());
            }
            _ => {}
        }
    }

    fn begin(&mut self, room: &RoomId, task: &TaskName, caller: Option<&TaskName>) {
        let open = self.open.entry(room.clone()).or_default();
        let above = caller.and_then(|caller| open.iter().rev().find(|open| open.task == *caller));
        let depth = above.map_or(0, |above| above.depth + 1);
        open.push(OpenStep { task: task.clone(), depth, steps: 0, stalled: None });
    }

    fn find(&mut self, room: &RoomId, task: &TaskName) -> Option<&mut OpenStep> {
        self.open.get_mut(room)?.iter_mut().rev().find(|open| open.task == *task)
    }

    /// Counts a step. Returns the task's depth, its number of steps, and this one if it has no
    /// answer.
    fn count(&mut self, room: &RoomId, task: &TaskName) -> (usize, u32, Option<StalledStep>) {
        self.find(room, task).map_or((0, 1, None), |open| {
            open.steps = open.steps.saturating_add(1);
            (open.depth, open.steps, open.stalled.take())
        })
    }

    fn end(&mut self, room: &RoomId, task: &TaskName) {
        let Some(open) = self.open.get_mut(room) else { return };
        let ended = open.iter().rposition(|open| open.task == *task).map(|last| open.remove(last));
        // A hard end of the outermost task also ends those below it, and is reported once.
        if open.is_empty() || ended.is_some_and(|ended| ended.depth == 0) {
            self.open.remove(room);
        }
    }
}

/// The part in lines of at most `columns` columns.
fn styled(part: &StyledText, columns: usize) -> Vec<StyledText> {
    wrap(&part.text, columns).into_iter().map(|row| StyledText::new(part.style, row)).collect()
}

/// The sender, and the recipient if there is one.
fn way(message: &Message) -> Vec<StyledText> {
    let mut way = vec![StyledText::new(of_role(message.sender), message.sender.as_str())];
    if let Some(recipient) = &message.recipient {
        way.extend([StyledText::plain("→"), StyledText::new(of_name(recipient), recipient)]);
    }
    way
}

fn of_role(role: Role) -> Style {
    match role {
        Role::Llm => GOOD,
        Role::User => AnsiColor::Blue.on_default(),
        Role::Agent => ODD,
        Role::System => AnsiColor::Magenta.on_default(),
    }
}

/// The style of a role's or a task's name.
fn of_name(name: &str) -> Style {
    if name == Role::System.as_str() {
        of_role(Role::System)
    } else {
        Role::from_name(name).map_or(NAME, of_role)
    }
}

/// Measures each task at its place in the config: below the entry task, or in the background.
fn widest(setup: &Setup) -> Widest {
    let subtasks = |task: &TaskName| {
        setup.tasks.get(task).map(|task| task.subtasks.as_slice()).unwrap_or_default()
    };
    let mut who = 0;
    let mut see = |depth: usize, start: usize, task: &TaskName| {
        let by = subtasks(task)
            .iter()
            .map(|by| width(by.as_str()))
            .fold(width(Role::System.as_str()), usize::max);
        who = who.max(2 * depth + start + width(task.as_str()) + width(ANSWERED) + by);
    };
    let mut level: BTreeSet<&TaskName> = BTreeSet::from([&setup.entry]);
    for depth in 0..=DEEPEST {
        level.iter().for_each(|task| see(depth, 0, task));
        level = level.into_iter().flat_map(subtasks).collect();
    }
    let in_background = setup
        .plugins
        .values()
        .filter_map(|plugin| plugin.grants.delegate.as_ref())
        .flat_map(|grant| &grant.tasks);
    in_background.for_each(|task| see(0, BACKGROUND.len(), task));
    let to = setup
        .tasks
        .keys()
        .map(|task| width(task.as_str()))
        .fold(width(Role::System.as_str()), usize::max);
    Widest { label: 0, who, way: width(Role::System.as_str()) + width(" → ") + to }
}

#[cfg(test)]
mod tests {
    use super::{StepLayout, Widest};

    #[test]
    fn columns_share_the_line_and_content_gets_most_of_it() {
        let usual = Widest { label: 0, who: 20, way: 16 };
        assert_eq!(
            StepLayout::of(usual, 100),
            StepLayout { label: 0, who: 20, way: 16, content: 54 }
        );
        assert_eq!(
            StepLayout::of(usual, 60),
            StepLayout { label: 0, who: 18, way: 13, content: 19 }
        );
        assert_eq!(
            StepLayout::of(Widest { label: 3, ..usual }, 100),
            StepLayout { label: 6, who: 20, way: 16, content: 48 }
        );
        for total in 60..200 {
            for widest in [
                usual,
                Widest { label: 40, who: 200, way: 90 },
                Widest { label: 0, who: 10, way: 10 },
            ] {
                assert_eq!(StepLayout::of(widest, total).total(), total, "{widest:?}");
            }
        }
    }
}
