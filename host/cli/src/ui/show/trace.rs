//! The live trace of a run, with an entry for each noteworthy event: its time, its task and its
//! text. Plugins' text stands behind a mark.

mod background;
mod calls;
mod layout;
mod notices;
#[cfg(feature = "serve")]
mod served;
mod words;

use std::collections::{BTreeSet, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use conclave_core::protocol::event::Record;
use conclave_core::setup::{NoTool, Setup};
use conclave_core::types::delegation::OnClose;
use conclave_core::types::ids::{CallId, PluginName, RoomId, TaskName};
use conclave_runtime::subscribe::{Level, Published, RunEvent, Subscriber};

use super::entry::EntryText;
use super::foreign;
use super::steps::Steps;
use super::{BAD, FAINT, ODD, one_line};
use crate::ui::screen::Screen;
use background::BackgroundTasks;
use calls::{CallBook, CallProgress, name_of};
use layout::{TraceLayout, TraceStyle};

#[cfg(feature = "serve")]
pub(crate) use served::ServedTrace;
pub(crate) use words::{cost, is_routine, with_telling};

/// Prints a run to stderr.
pub(crate) struct TracePrinter {
    screen: Arc<Screen>,
    layout: TraceLayout,
    verbose: bool,
    /// Whether a journal exists in which refusals can be looked up.
    has_journal: bool,
    /// Steps that are shown instead of lines about calls and answers.
    steps: Option<Steps>,
    /// Tasks whose results a strategy delivers.
    delivered: BTreeSet<TaskName>,
    /// Tasks that can outlive their parents, and then report no end.
    detached: BTreeSet<TaskName>,
    state: Mutex<TraceState>,
}

#[derive(Debug, Default)]
struct TraceState {
    calls: CallBook,
    background: BackgroundTasks,
    /// Calls with a model failure. The plugin's own failure in such a call needs no extra line.
    troubled: HashSet<(RoomId, CallId)>,
    /// Rooms in which the reason for the current step's missing answer was shown.
    explained: HashSet<RoomId>,
    /// The entry task's latest speech, which is not shown yet: if it is the result, it is shown
    /// elsewhere. Held only while nothing but the end of the run can follow.
    pending: Option<PendingText>,
}

/// A task's speech that may be the result.
#[derive(Debug)]
struct PendingText {
    text: String,
    lines: Vec<String>,
}

impl TracePrinter {
    /// The trace of a run.
    pub(crate) fn of_run(screen: Arc<Screen>, verbose: bool, setup: &Setup) -> Self {
        let asks =
            setup.tasks.iter().filter(|(_, task)| task.interactive || task.no_tool == NoTool::User);
        // A person is shown no question that a simulated user answers.
        let asks = asks.filter(|(_, task)| task.simulated_user.is_none());
        let asking = asks.map(|(name, _)| name.clone()).collect();
        let simulated = setup.tasks.iter().filter(|(_, task)| task.simulated_user.is_some());
        let simulated = simulated.map(|(name, _)| name.clone()).collect();
        let (started, entry) = (Instant::now(), setup.entry.clone());
        let style = TraceStyle::Run { started, entry, asking, simulated };
        Self::new(screen, style, verbose, setup)
    }

    /// The trace of a conversation with a task.
    pub(crate) fn of_chat(
        screen: Arc<Screen>,
        verbose: bool,
        setup: &Setup,
        room: RoomId,
        task: TaskName,
    ) -> Self {
        Self::new(screen, TraceStyle::Chat { room, task }, verbose, setup)
    }

    /// The trace of one of a server's conversations.
    #[cfg(feature = "serve")]
    fn of_served(screen: Arc<Screen>, verbose: bool, setup: &Setup, room: &RoomId) -> Self {
        // The first has the name alone, and the others a number behind it.
        let conversation = match room.as_str().rsplit_once('.') {
            Some((_, number)) => format!(".{number}"),
            None => ".1".to_owned(),
        };
        let style = TraceStyle::Served { conversation, entry: setup.entry.clone() };
        Self::new(screen, style, verbose, setup).with_addresses(true)
    }

    fn new(screen: Arc<Screen>, style: TraceStyle, verbose: bool, setup: &Setup) -> Self {
        let delivered = setup.tasks.iter().filter(|(_, task)| task.delivery_strategy.is_some());
        let detached = setup.tasks.iter().filter(|(_, task)| task.on_close == OnClose::Detach);
        Self {
            screen,
            layout: TraceLayout::new(style, setup),
            verbose,
            has_journal: false,
            steps: None,
            delivered: delivered.map(|(name, _)| name.clone()).collect(),
            detached: detached.map(|(name, _)| name.clone()).collect(),
            state: Mutex::default(),
        }
    }

    /// Shows these steps, if any, instead of lines about calls and answers. Failures are shown as
    /// usual.
    pub(crate) fn with_steps(self, steps: Option<Steps>) -> Self {
        Self { steps, ..self }
    }

    /// Takes the steps that a resumed run made before, if steps are shown.
    pub(crate) fn resume_from(&self, run: &RoomId, records: impl Fn(&RoomId) -> Vec<Record>) {
        if let Some(steps) = &self.steps {
            steps.resume_from(run, records);
        }
    }

    /// Shows the address of each refusal, if a journal exists in which it can be looked up.
    pub(crate) fn with_addresses(self, has_journal: bool) -> Self {
        Self { has_journal, ..self }
    }

    /// Prints the titles of the steps' columns, if steps are shown.
    pub(crate) fn legend(&self) {
        if let Some(steps) = &self.steps {
            steps.legend();
        }
    }

    /// Ends the trace of a run, whose result is shown elsewhere.
    pub(crate) fn end(&self, result: Option<&str>) {
        self.screen.set_progress("");
        let pending = self.state().pending.take();
        let is_other =
            |speech: &PendingText| result.is_none_or(|result| result.trim() != speech.text.trim());
        if let Some(speech) = pending.filter(is_other) {
            speech.lines.iter().for_each(|line| self.screen.line(line));
        }
    }

    fn state(&self) -> MutexGuard<'_, TraceState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Prints an entry about a task or another subject.
    fn put(&self, who: &str, entry: &EntryText) {
        self.flush();
        if let Some(steps) = &self.steps {
            let rows = entry.rows(steps.width());
            let (first, more) =
                rows.split_first().map_or(("", &[][..]), |(first, more)| (first.as_str(), more));
            steps.put_beside(&one_line(who, self.layout.who()), first);
            more.iter().for_each(|row| steps.more(row));
            return;
        }
        self.layout.lines(who, entry).iter().for_each(|line| self.screen.line(line));
    }

    /// Prints the speech that was held back.
    fn flush(&self) {
        if let Some(speech) = self.state().pending.take() {
            speech.lines.iter().for_each(|line| self.screen.line(line));
        }
    }

    fn is_chat(&self) -> bool {
        self.layout.is_chat()
    }

    /// The subject of an entry within a call: the task. The number of a tool call and the plugin
    /// precede the words. Outside of known calls the subject is the plugin.
    fn about(
        &self,
        room: &RoomId,
        call: Option<CallId>,
        plugin: &PluginName,
    ) -> (String, EntryText) {
        match call.and_then(|call| self.state().calls.find(room, call)) {
            Some((task, Some(number))) => {
                (name_of(room, &task), EntryText::plain(format!("#{number} {plugin}")))
            }
            Some((task, None)) => (name_of(room, &task), EntryText::plain(plugin.to_string())),
            None => (plugin.to_string(), EntryText::default()),
        }
    }

    fn progressed(
        &self,
        room: &RoomId,
        call: CallId,
        plugin: &PluginName,
        (done, total): (u64, Option<u64>),
        message: &str,
    ) {
        let (who, _) = self.about(room, Some(call), plugin);
        let number = self.state().calls.find(room, call).and_then(|(_, number)| number);
        let of = total.map(|total| format!(" of {total}")).unwrap_or_default();
        let number = number.map(|number| format!("#{number} ")).unwrap_or_default();
        let progress_text = format!("{number}{plugin} {done}{of}");
        let progress = CallProgress {
            who,
            amount: progress_text,
            message: message.to_owned(),
            is_told: false,
        };
        let is_first = self.state().calls.progressed(room, call, progress.clone());
        if self.screen.has_status() {
            self.show_progress();
        } else if is_first {
            self.put(&progress.who, &words::progress(&progress));
        }
    }

    /// Shows the progress of all calls in the status line.
    fn show_progress(&self) {
        let under_way = self.state().calls.under_way();
        let parts: Vec<&str> = under_way.iter().map(|progress| progress.amount.as_str()).collect();
        let message = under_way.last().map(|progress| progress.message.as_str());
        let message = message.filter(|message| !message.trim().is_empty());
        let message = message.map(|message| format!(" {}{}", foreign::MARK, one_line(message, 60)));
        self.screen.set_progress(&format!("{}{}", parts.join(" · "), message.unwrap_or_default()));
    }
}

impl Subscriber for TracePrinter {
    fn shows_text(&self) -> bool {
        false
    }

    fn on(&self, happening: &Published) {
        match &happening.what {
            RunEvent::Notice { notice } => self.show_notice(&happening.room, happening.seq, notice),
            RunEvent::Logged { call, plugin, level, message } => {
                if self.verbose || *level >= Level::Info {
                    let (who, entry) = self.about(&happening.room, Some(*call), plugin);
                    self.put(&who, &entry.words(FAINT, "log").exact(FAINT, message));
                }
            }
            RunEvent::ObserverQueueFull { observer, queued } => {
                let what = format!("the run waits: {queued} events are in its queue");
                self.put(observer.as_str(), &EntryText::new(ODD, what));
            }
            RunEvent::ObserverQueueFree { observer } => {
                self.put(observer.as_str(), &EntryText::new(FAINT, "the run no longer waits"));
            }
            RunEvent::ObserverStopped { observer, undelivered, reason } => {
                let what = format!("gets no more events; {undelivered} are waiting");
                self.put(observer.as_str(), &EntryText::new(BAD, what).in_full(FAINT, reason));
            }
            RunEvent::ModelWaiting { reason, .. } => {
                self.put("model", &EntryText::default().in_full(FAINT, reason));
            }
            RunEvent::Recorded { .. } | RunEvent::Streamed { .. } => {}
            RunEvent::Progressed { call, plugin, completed, total, message } => {
                self.progressed(&happening.room, *call, plugin, (*completed, *total), message);
            }
        }
    }
}
