//! The entry of each notice in the trace of a run.

use anstyle::Style;
use conclave_core::config::TERMINAL;
use conclave_core::policy::budget::Budget;
use conclave_core::protocol::notice::Notice;
use conclave_core::setup::plugin_query::Ruling;
use conclave_core::types::action::Action;
use conclave_core::types::completion::StopReason;
use conclave_core::types::delivery::EndedTask;
use conclave_core::types::denial::DenialRecord;
use conclave_core::types::fault::FaultKind;
use conclave_core::types::ids::{BackgroundId, RoomId, TaskName};
use conclave_core::types::message::{Message, Role, Signal};
use conclave_core::types::observed::observer_of_room;
use conclave_core::types::outcome::Status;
use conclave_core::types::side_effect::SideEffectAnswer;
use conclave_core::types::text::show_duration;
use serde_json::Value;

use super::calls::{TOGETHER, name_of};
use super::layout::TraceStyle;
use super::words::{cost, progress, refusal, told_answer, told_side_effect};
use super::{PendingText, TracePrinter};
use crate::ui::show::columns::wrap_styled;
use crate::ui::show::entry::EntryText;
use crate::ui::show::plan::summary;
use crate::ui::show::steps::Steps;
use crate::ui::show::{
    BAD, FAINT, GOOD, ODD, amounts, delegation, not_asked, one_line, paint, plural,
};

/// Columns of the names of several tools.
const CALLS_COLUMNS: usize = 80;
/// Columns of a tool's name.
const TOOL_COLUMNS: usize = 80;

impl TracePrinter {
    /// Shows a notice of a room.
    #[expect(clippy::too_many_lines, reason = "one arm for each notice")]
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
        if self.steps.as_ref().is_some_and(|steps| steps.told(room, notice)) || is_parents {
            return;
        }
        let of = |task: &TaskName| name_of(room, task);
        match notice {
            Notice::MessagePosted { task, message, .. } => {
                self.posted(room, task, message);
                self.begin_batch(room, task, message);
            }
            Notice::StepStarted { call, task, .. } => {
                let mut state = self.state();
                state.explained.remove(room);
                state.calls.begin_step(room, *call, task);
            }
            Notice::StepStalled { task, stalled, of: most, skipped } => {
                // In a conversation the consequence is visible: it is the user's turn.
                if self.is_chat() && self.state().explained.remove(room) {
                    return;
                }
                let text = format!(
                    "no answer counted ({stalled} of {most} tries){}",
                    not_asked(skipped)
                );
                self.put(&of(task), &EntryText::new(FAINT, text));
            }
            // The end of a run shows the question in full.
            Notice::QuestionUnanswered { task, question } if self.is_chat() => {
                let entry = EntryText::plain("asks its user, and there is none")
                    .cut(Style::new(), question);
                self.put(&of(task), &entry);
            }
            Notice::QuestionUnanswered { .. } => {}
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
                let is_told = self.state().troubled.remove(&(room.clone(), *call))
                    && fault.kind == FaultKind::Error;
                self.state().explained.insert(room.clone());
                if !is_told {
                    let is_step = self.state().calls.find(room, *call).is_some();
                    let (who, entry) = self.about(room, Some(*call), plugin);
                    let what = if is_step { "step failed" } else { "failed" };
                    self.put(&who, &entry.words(BAD, what).whole(BAD, &fault.message));
                }
            }
            Notice::Denied { call, plugin, record } => {
                self.denied(&address(room, seq), self.about(room, *call, plugin), record)
            }
            Notice::SideEffectStarted { call, plugin, side_effect, overlay, .. } => {
                let (who, entry) = self.about(room, Some(*call), plugin);
                let (what, target) = told_side_effect(side_effect, *overlay);
                self.put(&who, &entry.words(Style::new(), what).cut(Style::new(), &target));
            }
            Notice::SideEffectEnded { call, plugin, answer, .. } => {
                let (who, entry) = self.about(room, Some(*call), plugin);
                match answer {
                    SideEffectAnswer::Failed { message, .. } => {
                        self.put(&who, &entry.words(BAD, "that failed").whole(FAINT, message))
                    }
                    answer => {
                        if let Some(text) = told_answer(answer) {
                            self.put(&who, &entry.words(FAINT, text));
                        }
                    }
                }
            }
            Notice::ModelAnswered { error, trouble, fallback: Some(next), .. } => {
                let why = trouble.as_ref().map(|trouble| &trouble.text).or(error.as_ref());
                let what = format!("{next} is asked instead:");
                let why = why.map_or("", String::as_str);
                self.put("model", &EntryText::new(ODD, what).whole(FAINT, why));
            }
            Notice::ModelAnswered { call, stop, is_empty, error, trouble, .. } => {
                if let Some(text) = trouble.as_ref().map(|trouble| &trouble.text).or(error.as_ref())
                {
                    self.state().troubled.insert((room.clone(), *call));
                    self.put("model", &EntryText::default().whole(BAD, text));
                } else if *stop == Some(StopReason::Length) {
                    self.put(
                        "model",
                        &EntryText::new(FAINT, "the server cut the answer at its limit"),
                    );
                } else if *stop == Some(StopReason::ContentFilter) {
                    let what = "the provider's filter cut or refused the answer";
                    self.put("model", &EntryText::new(ODD, what));
                } else if *stop == Some(StopReason::Other) {
                    let what = "the server ended the answer for an unusual reason: it may be cut";
                    self.put("model", &EntryText::new(ODD, what));
                } else if *is_empty {
                    self.put("model", &EntryText::new(ODD, "the model said nothing"));
                }
                if *is_empty {
                    self.state().explained.insert(room.clone());
                }
            }
            Notice::TurnStopped { task, .. } => {
                self.state().calls.stop(room);
                self.show_progress();
                self.put(&of(task), &EntryText::new(ODD, "stopped"));
            }
            Notice::HistoryCut { task, cut, dropped } => {
                let what =
                    if *dropped > 0 { format!("left out {dropped}") } else { format!("cut {cut}") };
                self.put(
                    &of(task),
                    &EntryText::new(
                        ODD,
                        format!(
                            "its history is too long for the model: {what} of its older messages"
                        ),
                    ),
                );
            }
            Notice::GateBlocked { point, plugin, reason } => {
                self.put(
                    plugin.as_str(),
                    &EntryText::new(BAD, format!("blocked ({})", point.as_str()))
                        .whole(Style::new(), reason),
                );
            }
            Notice::GateModified { point, plugin } => {
                self.put(
                    plugin.as_str(),
                    &EntryText::new(FAINT, format!("changed the text ({})", point.as_str())),
                );
            }
            Notice::AnswerOverruled { task, plugin, responder, ruling } => {
                let what = format!("{plugin}: {}", ruled(responder, ruling));
                self.put(&of(task), &EntryText::new(ODD, what));
            }
            Notice::ResultReplaced { task, plugin } => {
                let what = format!("{plugin} replaced the result");
                self.put(&of(task), &EntryText::new(FAINT, what));
            }
            Notice::ObserverRetried { observer, attempts, of, pause_ms, reason } => {
                let pause = show_duration(*pause_ms);
                let what = format!("failed ({attempts} of {of} calls); again in {pause}");
                self.put(observer.as_str(), &EntryText::new(ODD, what).whole(FAINT, reason));
            }
            Notice::HandedOff { from, to, reason, .. } => {
                let to = to.as_ref().map_or("its user", |to| to.as_str());
                self.put(
                    &of(from),
                    &EntryText::plain(format!("hands the conversation to {to}"))
                        .whole(FAINT, reason),
                );
            }
            Notice::HandoffRejected { from, refusal, .. } => {
                self.put(
                    &of(from),
                    &EntryText::new(ODD, "does not hand the conversation over")
                        .whole(FAINT, &refusal.message),
                );
            }
            Notice::HistoryCondensed { task, forgotten, masked, summarised } => {
                let summary = if *summarised { ", with a summary in its place" } else { "" };
                let what = format!(
                    "its history was condensed: {forgotten} of its messages left out, {masked} masked{summary}"
                );
                self.put(&of(task), &EntryText::new(FAINT, what));
            }
            Notice::KnowledgeAdded { task, file, trigger } => {
                self.put(
                    &of(task),
                    &EntryText::new(
                        FAINT,
                        format!("reads {}, which the message names", one_line(file, 60)),
                    )
                    .cut(FAINT, trigger),
                );
            }
            Notice::PlanChanged { task, plan } => {
                self.put(&of(task), &EntryText::plain("plans").cut(Style::new(), &summary(plan)));
            }
            Notice::AgentStuck { task, reason, .. } => {
                self.put(&of(task), &EntryText::new(ODD, "stuck").whole(Style::new(), reason))
            }
            Notice::RunPaused { reason } => {
                self.put("host", &EntryText::new(ODD, "paused").cut(Style::new(), reason));
                self.put(
                    "host",
                    &EntryText::new(FAINT, format!("`conclave resume {room}` resumes it")),
                );
            }
            Notice::RunUnpaused => self.put("host", &EntryText::plain("resumes")),
            Notice::UserMessageRead { task, message } => {
                self.put(
                    &of(task),
                    &EntryText::plain("reads what was said").cut(Style::new(), message.text()),
                );
            }
            Notice::UserMessageDropped { task, reason, .. } => {
                self.put(
                    &of(task),
                    &EntryText::new(ODD, "what was said is not read").whole(FAINT, reason),
                );
            }
            Notice::Resumed { down_ms, is_exact } => {
                let down = amounts::downtime(*down_ms, *is_exact);
                let what = format!("resumes where it was interrupted; no host ran for {down}");
                self.put("host", &EntryText::plain(what));
            }
            // The approver shows the question itself.
            Notice::TopUpAsked { top_up, .. } => {
                if let Some(problem) = &top_up.problem {
                    self.put("budget", &EntryText::new(ODD, "not so").whole(FAINT, problem));
                }
            }
            Notice::ToppedUp { budget, more: Some(more), .. } => {
                self.put(
                    "budget",
                    &EntryText::plain(format!("{} more for {}", budget.show(*more), budget.key())),
                );
            }
            Notice::ToppedUp { budget, more: None, reason, .. } => {
                let entry = EntryText::new(ODD, format!("no more for {}", budget.key()));
                self.put("budget", &entry.whole(FAINT, reason.as_deref().unwrap_or_default()));
            }
            Notice::PriceUnknown { model, limit } => {
                let what = format!(
                    "the price of the model {model} is not known: {limit} does not hold it back, only a limit on tokens does"
                );
                self.put("budget", &EntryText::new(ODD, what));
            }
            Notice::AttemptLost { model, reason: Some(reason), .. } => {
                let what = format!("the run is left without an answer of {model}: {reason}");
                self.put("host", &EntryText::new(ODD, what));
            }
            Notice::AttemptLost { model, input_tokens, .. } => {
                let tokens = Budget::Tokens.show(*input_tokens);
                let what = format!(
                    "a request to the model {model} has no answer; {tokens} that it sent are counted"
                );
                self.put("host", &EntryText::new(ODD, what));
            }
            Notice::Inbound { channel, sender, text, .. } => {
                let who = if sender.is_empty() { String::new() } else { format!("{sender}: ") };
                self.put(
                    channel.as_str(),
                    &EntryText::default().cut(Style::new(), &format!("{who}{text}")),
                );
            }
            Notice::InboundRefused { channel, reason, .. } => {
                self.put(channel.as_str(), &EntryText::new(ODD, "not taken").whole(FAINT, reason))
            }
            Notice::ChannelRefused { channel, reason, .. } => self
                .put(channel.as_str(), &EntryText::new(ODD, "was not told").whole(FAINT, reason)),
            // Each room binds it, so its row carries no information.
            Notice::ChannelBound { channel, .. } if channel.as_str() == TERMINAL => {}
            Notice::ChannelBound { channel, binding } => {
                let muted = if binding.muted { ", muted" } else { "" };
                self.put(
                    channel.as_str(),
                    &EntryText::plain(format!("joined the room ({}{muted})", binding.kind.as_str())),
                );
            }
            Notice::ChannelUnbound { channel } => {
                self.put(channel.as_str(), &EntryText::plain("left the room"))
            }
            // The room of an observer closes after each run.
            Notice::RoomClosed { .. } if observer_of_room(room).is_some() => {}
            Notice::RoomClosed { reason } => {
                self.put("host", &EntryText::plain("the room is closed").cut(FAINT, reason))
            }
            Notice::PluginReplaced { plugin, .. } => {
                self.put(plugin.as_str(), &EntryText::plain("was built anew"))
            }
            Notice::InvariantViolated { reason, .. } => {
                self.put("host", &EntryText::default().whole(BAD, reason))
            }
            Notice::BackgroundStarted { id, task, room: child, by, brief } => {
                self.state().background.begin(room, id, child);
                let who = by.as_ref().map_or_else(|| "host".to_owned(), of);
                self.put(&who, &EntryText::plain(format!("→ {task} ({id})")).cut(FAINT, brief));
            }
            Notice::BackgroundEnded { ended } => self.background_ended(room, ended),
            // In a conversation the result itself is shown.
            Notice::Delivered { .. } if self.is_chat() => {}
            Notice::Delivered { id, worker: agent, strategy, channel, .. } => {
                let by = strategy.as_ref().map(|strategy| format!(" by {strategy}"));
                let what = format!("delivered{} on {channel}", by.unwrap_or_default());
                self.put(&self.background_name(room, agent, id), &EntryText::plain(what));
            }
            Notice::NotDelivered { id, worker: agent, reason } => {
                let entry = EntryText::new(ODD, "not delivered").whole(FAINT, reason);
                self.put(&self.background_name(room, agent, id), &entry);
            }
            Notice::DeadLetter { id, worker: agent, attempts, reason } => {
                let entry = EntryText::new(BAD, format!("not delivered, tried {attempts} times"));
                self.put(&self.background_name(room, agent, id), &entry.whole(FAINT, reason));
            }
            Notice::ResultsRelayed { task, ids, .. } | Notice::ResultsRead { task, ids } => {
                let results = plural(ids.len() as u64, "background result", "background results");
                self.put(&of(task), &EntryText::plain(format!("reads {results}")));
            }
            // A user who stopped the run sees that at its end.
            Notice::TaskEnded { status: Status::Kill, .. }
                if !self.is_chat() && !is_child(room) => {}
            Notice::TaskEnded { task, status, reason }
                if !status.is_success() && !self.tells_end_itself(room, task) =>
            {
                self.put(
                    &of(task),
                    &EntryText::new(BAD, status.as_str()).whole(Style::new(), reason),
                );
            }
            // Their calls, and the end of the run, have lines. The rest is too frequent for a
            // trace; `conclave show` and `--json` have it.
            Notice::ModelCalled { .. }
            | Notice::AgentStateChanged { .. }
            | Notice::ApprovalAsked { .. }
            | Notice::ApprovalGiven { .. }
            | Notice::StepEnded { .. }
            | Notice::TaskStarted { .. }
            | Notice::TaskEnded { .. }
            // The run reports it when its deliveries end.
            | Notice::ObserverStopped { .. }
            | Notice::ResultReady { .. } => {}
        }
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
                (true, None) => entry.words(BAD, "refused").whole(BAD, content),
                (true, Some(_)) => entry.words(BAD, "failed").whole(BAD, content),
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
                EntryText::new(BAD, end.status).whole(Style::new(), error)
            }
            // A strategy shows the whole result when it delivers it.
            (Some(_), _) if end.is_output_shown || self.delivered.contains(&ended.worker) => {
                EntryText::new(GOOD, end.status)
            }
            (Some(output), _) => EntryText::new(GOOD, end.status).cut(Style::new(), output),
        };
        self.put(&end.name, &entry.tail(took));
    }

    fn background_name(&self, room: &RoomId, agent: &TaskName, id: &BackgroundId) -> String {
        self.state().background.name(room, agent, id)
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

    fn posted(&self, room: &RoomId, task: &TaskName, message: &Message) {
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
        let (text, plain) = (message.text(), Style::new());
        let has_calls = message.action.is_some() || !message.tool_calls.is_empty();
        let is_done =
            matches!(message.signal, Some(Signal::Done { .. })) && message.sender == Role::Llm;
        let entry = match (&message.signal, &message.recipient) {
            // Its result is shown.
            _ if is_done && !self.verbose => return,
            _ if is_done => EntryText::new(GOOD, "is done"),
            (Some(Signal::Rejected), _) => EntryText::new(ODD, "gives up").cut(plain, text),
            (_, Some(recipient)) => {
                EntryText::plain(format!("→ {}", one_line(recipient, 30))).cut(FAINT, text)
            }
            _ if message.sender == Role::Agent || (has_calls && text.trim().is_empty()) => return,
            // The action has an entry of its own.
            _ if !matches!(message.action, None | Some(Action::Talk { .. })) => return,
            _ => {
                self.state().background.shown(room, text);
                EntryText::plain("says").cut(FAINT, text)
            }
        };
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

/// Returns what a judge decided otherwise than the host: `the model's answer does not count`, or
/// `the answer of user counts and ends the task`.
fn ruled(responder: &str, ruling: &Ruling) -> String {
    let answer = match Role::from_name(responder) {
        Some(Role::Llm) => "the model's answer".to_owned(),
        _ => format!("the answer of {}", one_line(responder, 30)),
    };
    let valid = ruling.valid.map(|valid| if valid { "counts" } else { "does not count" });
    let done =
        ruling.is_done.map(|done| if done { "ends the task" } else { "does not end the task" });
    let decided: Vec<&str> = valid.into_iter().chain(done).collect();
    let decided = if decided.is_empty() { "stays refused".into() } else { decided.join(" and ") };
    let feedback = ruling.feedback.as_deref().map(|words| format!(": {}", one_line(words, 200)));
    format!("{answer} {decided}{}", feedback.unwrap_or_default())
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
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use conclave_core::permissions::policy_rules::Policy;
    use conclave_core::setup::Setup;
    use conclave_core::types::ids::{CallId, PluginName};
    use conclave_core::types::limits::RunLimits;

    use super::*;
    use crate::ui::screen::{Screen, Verbosity};

    fn trace() -> TracePrinter {
        let setup = Setup {
            entry: "desk".into(),
            tasks: BTreeMap::new(),
            plugins: BTreeMap::new(),
            models: BTreeMap::new(),
            channels: Arc::default(),
            gates: Vec::new(),
            observers: Vec::new(),
            policy: Policy::default(),
            policy_now: None,
            limits: RunLimits::default(),
        };
        TracePrinter::of_run(Screen::new(Verbosity::Silent), false, &setup)
    }

    #[test]
    fn a_speech_is_held_back_only_while_nothing_else_can_follow() {
        let (room, task) = (RoomId::from("3f2a"), TaskName::from("desk"));
        let is_held_by = |trace: &TracePrinter| {
            let content = Some("I did it.".to_owned());
            let message = Message { content, ..Message::new(1, Role::Llm, "desk") };
            trace.posted(&room, &task, &message);
            trace.state().pending.is_some()
        };
        let alone = trace();
        assert!(is_held_by(&alone), "it may be the result");
        let (call, agent) = (CallId(7), PluginName::from("desk"));
        alone.show_notice(&room, None, &Notice::StepStarted { call, task: task.clone(), agent });
        assert!(alone.state().pending.is_none(), "another step begins");
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
