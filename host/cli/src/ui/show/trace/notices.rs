//! The entry of each notice in the trace of a run.

use anstyle::Style;
use conclave_core::config::TERMINAL;
use conclave_core::inspect::telling::{Subject, Telling, Tone, no_answer, tell};
use conclave_core::protocol::notice::Notice;
use conclave_core::types::action::Action;
use conclave_core::types::delivery::EndedTask;
use conclave_core::types::denial::DenialRecord;
use conclave_core::types::fault::{Fault, FaultKind};
use conclave_core::types::ids::{CallId, PluginName, RoomId, TaskName};
use conclave_core::types::message::{Message, Role, Signal};
use conclave_core::types::observed::observer_of_room;
use conclave_core::types::outcome::Status;
use serde_json::Value;

use super::calls::{TOGETHER, name_of};
use super::layout::TraceStyle;
use super::words::{cost, is_routine, progress, refusal, with_telling};
use super::{PendingText, TracePrinter};
use crate::ui::show::columns::wrap_styled;
use crate::ui::show::entry::EntryText;
use crate::ui::show::plan::summary;
use crate::ui::show::steps::Steps;
use crate::ui::show::{BAD, FAINT, GOOD, amounts, delegation, one_line, paint};

/// Columns of the names of several tools.
const CALLS_COLUMNS: usize = 80;
/// Columns of a tool's name.
const TOOL_COLUMNS: usize = 80;

impl TracePrinter {
    /// Shows a notice of a room.
    pub(super) fn show_notice(&self, room: &RoomId, seq: Option<u64>, notice: &Notice) {
        let is_parents = match notice {
            Notice::TaskStarted { task, .. } => {
                self.state().background.task_started(room, task);
                false
            }
            Notice::TaskEnded { task, status, .. } => {
                let is_background = self.state().background.task_ended(room, task, *status);
                is_background && !self.detached.contains(task)
            }
            _ => false,
        };
        if begins_work(notice) && observer_of_room(room).is_none() {
            self.flush();
        }
        let is_step = self.steps.as_ref().is_some_and(|steps| steps.show_notice(room, notice));
        if is_step || is_parents || self.is_silent(room, notice) {
            return;
        }
        match notice {
            Notice::MessagePosted { task, message, .. } => {
                self.posted(room, task, message, tell(notice));
                self.begin_batch(room, task, message);
            }
            Notice::StepStarted { call, task, .. } => {
                let mut state = self.state();
                state.explained.remove(room);
                state.calls.begin_step(room, *call, task);
            }
            Notice::StepStalled { task, stalled, of, skipped } => {
                // In a conversation the consequence is visible: it is the user's turn.
                if self.is_chat() && self.state().explained.remove(room) {
                    return;
                }
                let entry = EntryText::new(FAINT, no_answer(*stalled, *of, skipped));
                self.put(&name_of(room, task), &entry);
            }
            Notice::ToolCalled { call, task, name, arguments, within, .. } => {
                let (number, is_shown) = {
                    let mut state = self.state();
                    let number = state.calls.begin(room, *call, task);
                    let is_shown = match within {
                        Some(within) => state.calls.nest(room, *call, *within),
                        None => !state.calls.is_batched(room, task),
                    };
                    (number, is_shown)
                };
                if is_shown {
                    self.called(room, task, number, (name, arguments));
                }
            }
            Notice::ToolAnswered { task, .. } => self.answered(room, task, notice),
            Notice::PluginFaulted { call, plugin, fault } => {
                self.faulted(room, *call, plugin, fault)
            }
            Notice::Denied { call, plugin, record } => {
                self.denied(&address(room, seq), self.about(room, *call, plugin), record)
            }
            Notice::SideEffectStarted { call, plugin, .. }
            | Notice::SideEffectEnded { call, plugin, .. } => {
                let (who, entry) = self.about(room, Some(*call), plugin);
                self.put(&who, &with_telling(entry, &tell(notice)));
            }
            Notice::ModelAnswered { .. } => self.model_answered(room, notice),
            Notice::TurnStopped { .. } => {
                self.state().calls.stop(room);
                self.show_progress();
                self.put_telling(room, &without_text(notice));
            }
            Notice::PlanChanged { task, plan } => {
                let entry = EntryText::plain(tell(notice).verb);
                self.put(&name_of(room, task), &entry.cut(Style::new(), &summary(plan)));
            }
            Notice::RunPaused { .. } => {
                self.put_telling(room, &tell(notice));
                let resume = format!("`conclave resume {room}` resumes it");
                self.put("host", &EntryText::new(FAINT, resume));
            }
            Notice::Resumed { down_ms, is_exact } => {
                let target = amounts::downtime(*down_ms, *is_exact).into();
                self.put_telling(room, &Telling { target, ..tell(notice) });
            }
            Notice::BackgroundStarted { id, room: child, .. } => {
                self.state().background.begin(room, id, child);
                self.put_telling(room, &tell(notice));
            }
            Notice::BackgroundEnded { ended } => self.background_ended(room, ended),
            Notice::Delivered { .. } => self.put_telling(room, &without_text(notice)),
            notice => self.put_telling(room, &tell(notice)),
        }
    }

    /// Whether the trace shows nothing for the notice, because something else does or because it is
    /// too frequent for a line.
    fn is_silent(&self, room: &RoomId, notice: &Notice) -> bool {
        match notice {
            // The end of a run shows the question in full; in a conversation the result itself is
            // shown.
            Notice::QuestionUnanswered { .. } => !self.is_chat(),
            Notice::Delivered { .. } => self.is_chat(),
            // The approver shows the question itself.
            Notice::TopUpAsked { top_up, .. } => top_up.problem.is_none(),
            Notice::SideEffectEnded { .. } => is_routine(notice),
            Notice::ModelAnswered { .. } => tell(notice).tone == Tone::Plain,
            // Each room binds it, so its row carries no information.
            Notice::ChannelBound { channel, .. } => channel.as_str() == TERMINAL,
            // The room of an observer closes after each run.
            Notice::RoomClosed { .. } => observer_of_room(room).is_some(),
            // A user who stopped the run sees that at its end.
            Notice::TaskEnded { status: Status::Kill, .. }
                if !self.is_chat() && !is_child(room) =>
            {
                true
            }
            Notice::TaskEnded { task, status, .. } => {
                status.is_success() || self.tells_end_itself(room, task)
            }
            // Their calls, and the end of the run, have lines; `conclave show` and `--json` have
            // the rest.
            Notice::ModelCalled { .. }
            | Notice::AgentStateChanged { .. }
            | Notice::ApprovalAsked { .. }
            | Notice::ApprovalGiven { .. }
            | Notice::StepEnded { .. }
            | Notice::TaskStarted { .. }
            // The run reports it when its deliveries end.
            | Notice::ObserverStopped { .. }
            | Notice::ResultReady { .. } => true,
            _ => false,
        }
    }

    /// Shows a telling in an entry of its subject.
    fn put_telling(&self, room: &RoomId, telling: &Telling<'_>) {
        let who = match telling.subject {
            Subject::Task(task) => name_of(room, task),
            Subject::Background { id, task } => self.state().background.name(room, task, id),
            subject => subject.name().into_owned(),
        };
        self.put(&who, &with_telling(EntryText::default(), telling));
    }

    fn faulted(&self, room: &RoomId, call: CallId, plugin: &PluginName, fault: &Fault) {
        let is_explained =
            self.state().troubled.remove(&(room.clone(), call)) && fault.kind == FaultKind::Error;
        self.state().explained.insert(room.clone());
        if !is_explained {
            let is_step = self.state().calls.find(room, call).is_some();
            let (who, entry) = self.about(room, Some(call), plugin);
            let what = if is_step { "step failed" } else { "failed" };
            self.put(&who, &entry.words(BAD, what).in_full(BAD, &fault.message));
        }
    }

    /// Shows the answer of a model about which there is something to say.
    fn model_answered(&self, room: &RoomId, notice: &Notice) {
        let Notice::ModelAnswered { call, is_empty, error, trouble, fallback: None, .. } = notice
        else {
            return self.put_telling(room, &tell(notice));
        };
        if trouble.is_some() || error.is_some() {
            self.state().troubled.insert((room.clone(), *call));
        }
        if *is_empty {
            self.state().explained.insert(room.clone());
        }
        self.put_telling(room, &tell(notice));
    }

    /// Shows a call with its number.
    fn called(
        &self,
        room: &RoomId,
        task: &TaskName,
        number: u64,
        (name, arguments): (&str, &Value),
    ) {
        let entry = EntryText::plain(format!("calls #{number} {}", one_line(name, TOOL_COLUMNS)));
        self.put(&name_of(room, task), &entry.cut(FAINT, &arguments.to_string()));
    }

    fn answered(&self, room: &RoomId, task: &TaskName, notice: &Notice) {
        let Notice::ToolAnswered { call, name, arguments, content, is_error, report, .. } = notice
        else {
            return;
        };
        let (number, ended, batch, is_folded, nested) = {
            let mut state = self.state();
            let (number, ended) = call.map(|it| state.calls.end(room, it)).unwrap_or_default();
            let nested = call.and_then(|it| state.calls.take_nested(room, it));
            match call.and_then(|it| state.calls.end_nested(room, it)) {
                Some(is_shown) => (number, ended, None, !is_shown, nested),
                None => {
                    let is_batched = state.calls.is_batched(room, task);
                    let batch = state.calls.answer_batched(room, task, report);
                    (number, ended, batch, is_batched, nested)
                }
            }
        };
        if let Some(ended) = ended {
            self.show_progress();
            if !ended.is_told && !self.screen.has_status() {
                self.put(&ended.who, &progress(&ended));
            }
        }
        let who = name_of(room, task);
        let is_shown =
            (!is_folded || *is_error) && !self.state().background.take_receipt(room, content);
        if is_shown {
            let number = match (number, *is_error && call.is_none()) {
                (None, true) => {
                    // No tool was started, so the call has no number and no shown arguments yet.
                    let number = self.state().calls.count(room);
                    if let Some(arguments) = arguments.as_ref().filter(|_| !is_folded) {
                        self.called(room, task, number, (name, arguments));
                    }
                    Some(number)
                }
                (number, _) => number,
            };
            let number = number.map(|number| format!("#{number} ")).unwrap_or_default();
            let entry = EntryText::plain(format!("{number}{}", one_line(name, TOOL_COLUMNS)));
            let entry = match (is_error, call) {
                (false, Some(_)) => entry.cut(Style::new(), content),
                (false, None) => {
                    let answer = delegation::answer(content);
                    entry.cut(Style::new(), answer.as_deref().unwrap_or(content))
                }
                (true, None) => entry.words(BAD, "refused").in_full(BAD, content),
                (true, Some(_)) => entry.words(BAD, "failed").in_full(BAD, content),
            };
            let calls = nested.map(|count| format!("{count} calls of tools"));
            let tail = [cost(report)].into_iter().chain(calls).filter(|it| !it.is_empty());
            let tail: Vec<String> = tail.collect();
            self.put(&who, &entry.tail(tail.join(" · ")));
        }
        if let Some((answers, all)) = batch {
            let entry = EntryText::plain(format!("{answers} answers"));
            self.put(&who, &entry.tail(format!("{} in all", cost(&all))));
        }
    }

    /// Shows the end of a background task in one line.
    fn background_ended(&self, room: &RoomId, ended: &EndedTask) {
        let end = self.state().background.end(room, ended);
        // The steps have a line for the end of each task, and a detached task has a line of its
        // own.
        let is_failed_alone = ended.output.is_none() && self.detached.contains(&ended.worker);
        if end.is_end_known && (self.steps.is_some() || is_failed_alone) {
            return;
        }
        let took = amounts::took(ended.duration_ms);
        let entry = match (&ended.output, &ended.error) {
            (None, error) => {
                let error = error.as_deref().unwrap_or_default();
                EntryText::new(BAD, end.status).in_full(Style::new(), error)
            }
            // A strategy shows the whole result when it delivers it.
            (Some(_), _) if end.is_output_shown || self.delivered.contains(&ended.worker) => {
                EntryText::new(GOOD, end.status)
            }
            (Some(output), _) => EntryText::new(GOOD, end.status).cut(Style::new(), output),
        };
        self.put(&end.name, &entry.tail(took));
    }

    /// Whether this is the task that the user talks to.
    fn is_conversation(&self, in_room: &RoomId, with: &TaskName) -> bool {
        matches!(&self.layout.style, TraceStyle::Chat { room, task } if room == in_room && task == with)
    }

    /// Whether this task's end is shown as the end of the run or of the conversation.
    fn tells_end_itself(&self, room: &RoomId, task: &TaskName) -> bool {
        let is_entry = self.layout.entry_task() == Some(task);
        (is_entry && !is_child(room)) || self.is_conversation(room, task)
    }

    /// Whether the message is shown elsewhere, in full.
    fn is_shown(&self, room: &RoomId, task: &TaskName, message: &Message) -> bool {
        let to_user = message.recipient.as_deref().and_then(Role::from_name) == Some(Role::User);
        let is_open = message.recipient.is_none() && message.signal.is_none();
        match &self.layout.style {
            TraceStyle::Run { asking, simulated, .. } => {
                (to_user && !simulated.contains(task))
                    || (is_open && message.tool_calls.is_empty() && asking.contains(task))
            }
            // The page shows it, and this terminal does not.
            TraceStyle::Served { .. } => false,
            TraceStyle::Chat { .. } => {
                self.is_conversation(room, task) && (to_user || message.recipient.is_none())
            }
        }
    }

    fn begin_batch(&self, room: &RoomId, task: &TaskName, message: &Message) {
        if self.verbose || message.sender != Role::Llm || message.tool_calls.len() < TOGETHER {
            return;
        }
        let names = message.tool_calls.iter().map(|call| call.name.as_str());
        let calls = one_line(&counted(names), CALLS_COLUMNS);
        self.put(&name_of(room, task), &EntryText::plain(format!("calls {calls}")));
        self.state().calls.begin_batch(room, task, message.tool_calls.len());
    }

    fn posted(&self, room: &RoomId, task: &TaskName, message: &Message, telling: Telling<'_>) {
        for delegate in delegation::delegates(message) {
            let entry = EntryText::plain(format!("→ {}", one_line(&delegate.task, 30)));
            self.put(&name_of(room, task), &entry.cut(FAINT, &delegate.brief));
        }
        // In a conversation, messages among other tasks are noise: their results are shown.
        let is_talk = message.recipient.is_none() && message.signal != Some(Signal::Rejected);
        let is_aside = self.is_chat() && !self.verbose && is_talk;
        if self.is_shown(room, task, message) || is_aside {
            return;
        }
        let who = match message.sender {
            // Another task, a channel, or a user.
            Role::User => message.sender_name.clone(),
            _ => name_of(room, task),
        };
        let text = message.text();
        let has_calls = message.action.is_some() || !message.tool_calls.is_empty();
        let is_done =
            matches!(message.signal, Some(Signal::Done { .. })) && message.sender == Role::Llm;
        let telling = match (&message.signal, &message.recipient) {
            // Its result is shown.
            _ if is_done && !self.verbose => return,
            _ if is_done => Telling { text: None, ..telling },
            (Some(Signal::Rejected), _) | (_, Some(_)) => telling,
            _ if message.sender == Role::Agent || (has_calls && text.trim().is_empty()) => return,
            // The action has an entry of its own.
            _ if !matches!(message.action, None | Some(Action::Talk { .. })) => return,
            _ => {
                self.state().background.remember_text(room, text);
                telling
            }
        };
        let entry = with_telling(EntryText::default(), &telling);
        let is_entry = matches!(&self.layout.style, TraceStyle::Run { entry, .. } if entry == task);
        let is_result = is_entry && !is_child(room) && !has_calls;
        let is_said = message.signal.is_none() && message.recipient.is_none();
        // A background task can keep the run open for minutes after the last message.
        let may_be_last = !self.state().background.is_under_way();
        if is_result && is_said && may_be_last && self.steps.is_none() {
            self.flush();
            let lines = self.layout.lines(&who, &entry);
            self.state().pending = Some(PendingText { text: text.to_owned(), lines });
            return;
        }
        self.put(&who, &entry);
    }

    fn denied(&self, address: &str, (who, entry): (String, EntryText), record: &DenialRecord) {
        let denial = &record.denial;
        let entry = entry.words(BAD, "DENIED").words(Style::new(), &denial.capability);
        let entry = entry.cut(Style::new(), &denial.target);
        let address =
            if self.has_journal { format!("conclave why {address}") } else { String::new() };
        self.put(&who, &entry.tail(address));
        let width = self.steps.as_ref().map_or_else(|| self.layout.entry(), Steps::width);
        let lines = refusal(record);
        for row in lines.iter().flat_map(|line| wrap_styled(line, width)) {
            let row = paint(FAINT, row);
            match &self.steps {
                Some(steps) => steps.more(&row),
                None => self.screen.line(format_args!("{:1$}{row}", "", self.layout.margin())),
            }
        }
    }
}

/// Whether the notice begins work, behind which the run does not end at once.
fn begins_work(notice: &Notice) -> bool {
    matches!(
        notice,
        Notice::StepStarted { .. }
            | Notice::TaskStarted { .. }
            | Notice::ToolCalled { .. }
            | Notice::ModelCalled { .. }
            | Notice::ApprovalAsked { .. }
            | Notice::TopUpAsked { .. }
    )
}

/// The names with the number of each, in the order of their first: `files.list, files.read 3
/// times`.
fn counted<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let mut counts: Vec<(&str, u64)> = Vec::new();
    for name in names {
        match counts.iter_mut().find(|(known, _)| *known == name) {
            Some((_, count)) => *count += 1,
            None => counts.push((name, 1)),
        }
    }
    let one = |(name, count): &(&str, u64)| match count {
        1 => (*name).to_owned(),
        count => format!("{name} {count} times"),
    };
    counts.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// The telling without the text, which is shown elsewhere.
fn without_text(notice: &Notice) -> Telling<'_> {
    Telling { text: None, ..tell(notice) }
}

/// The address of a record's consequences: `3f2a91c0:17`.
fn address(room: &RoomId, seq: Option<u64>) -> String {
    seq.map_or_else(|| room.to_string(), |seq| format!("{room}:{seq}"))
}

/// Whether a background task works in the room.
fn is_child(room: &RoomId) -> bool {
    room.as_str().contains('/')
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use conclave_core::setup::Setup;

    use super::*;
    use crate::ui::screen::{Screen, Verbosity};

    fn trace() -> TracePrinter {
        let setup = Setup::empty("desk".into());
        TracePrinter::of_run(Screen::new(Verbosity::Silent), false, &setup)
    }

    #[test]
    fn a_speech_is_held_back_only_while_nothing_else_can_follow() {
        let (room, task) = (RoomId::from("3f2a"), TaskName::from("desk"));
        let is_held_by = |trace: &TracePrinter| {
            let content = Some("I did it.".to_owned());
            let message = Arc::new(Message { content, ..Message::new(1, Role::Llm, "desk") });
            let (task, agent) = (task.clone(), PluginName::from("desk"));
            trace.show_notice(&room, None, &Notice::MessagePosted { task, agent, message });
            trace.state().pending.is_some()
        };
        let single = trace();
        assert!(is_held_by(&single), "it may be the result");
        let (call, agent) = (CallId(7), PluginName::from("desk"));
        single.show_notice(&room, None, &Notice::StepStarted { call, task: task.clone(), agent });
        assert!(single.state().pending.is_none(), "another step begins");
        let beside = trace();
        beside.state().background.begin(&room, &"task-1".into(), &"3f2a/1".into());
        assert!(!is_held_by(&beside), "a worker is not done");
    }

    #[test]
    fn calls_are_counted_for_each_name() {
        let of = |names: &[&str]| counted(names.iter().copied());
        assert_eq!(of(&["a.b", "a.b", "a.b", "a.b"]), "a.b 4 times");
        assert_eq!(
            of(&["a.list", "a.read", "a.read", "a.list", "a.read", "a.x"]),
            "a.list 2 times, a.read 3 times, a.x"
        );
    }
}
