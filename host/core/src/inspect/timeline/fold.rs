//! The fold from records to rows. Each room is folded once; its events, effects and notices begin
//! and end rows.

mod outcomes;
mod words;

use std::collections::BTreeMap;
use std::sync::Arc;

use super::clock::HostClock;
use super::row::{RowSubject, SandboxUsage, TimelineRow};
use super::{Lane, RoomEnd, Timeline, Totals, short, tree};
use crate::inspect::telling::tell;
use crate::protocol::effect::Effect;
use crate::protocol::event::{Event, Record, RunOpening};
use crate::protocol::notice::{Notice, SkippedResponder};
use crate::room::Room;
use crate::types::fault::CallReport;
use crate::types::ids::{BackgroundId, CallId, Millis, RoomId, TaskName};
use crate::types::message::Role;
use crate::types::outcome::{Outcome, Status};

use words::{advised, kind_of, kinds, question_text, says};

/// The key of a row that has not ended.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum OpenRowKey {
    Call(CallId),
    Model(CallId, u32),
    SideEffect(CallId, u32),
    Background(BackgroundId),
}

/// A row with times of the host's clock.
struct DraftRow {
    room: RoomId,
    seq: u64,
    parent: Option<usize>,
    start: Millis,
    end: Option<Millis>,
    /// The end of the latest row directly below it.
    below: Millis,
    abandoned: bool,
    what: RowSubject,
}

struct RoomDraft {
    room: RoomId,
    entry: TaskName,
    message: String,
    start: Millis,
    end: Option<Millis>,
    records: u64,
    outcome: Option<Arc<Outcome>>,
}

/// The rooms folded so far.
#[derive(Default)]
pub(super) struct Fold {
    rows: Vec<DraftRow>,
    rooms: Vec<RoomDraft>,
    /// The row of the background task that each room belongs to.
    lanes: BTreeMap<RoomId, usize>,
    clock: HostClock,
    last: Millis,
    totals: Totals,
}

/// The room that is being folded.
struct Now<'a> {
    fold: &'a mut Fold,
    room: RoomId,
    /// The row above all rows of this room.
    lane: Option<usize>,
    /// Rows of active tasks, the innermost last.
    tasks: Vec<usize>,
    open: BTreeMap<OpenRowKey, usize>,
    seq: u64,
    at: Millis,
    /// The time at which the room was last resumed.
    resumed: Millis,
}

impl Fold {
    /// Folds all records of one room.
    pub(super) fn room(&mut self, records: Vec<Record>) {
        let Some(Event::RoomOpened { opening, .. }) = records.first().map(|record| &record.event)
        else {
            return;
        };
        let (id, start) = (opening.room.clone(), records[0].at);
        let entry = opening.entry.clone();
        let message = short(opening.content.as_deref().unwrap_or_default());
        let count = records.len() as u64;
        let lane = self.lanes.get(&id).copied();
        let mut now = Now {
            room: id.clone(),
            lane,
            tasks: Vec::new(),
            open: BTreeMap::new(),
            seq: 0,
            at: start,
            resumed: Millis(0),
            fold: &mut *self,
        };
        let (mut room, mut end) = (Room::new(), None);
        for record in records {
            now.take(&mut room, record);
            // A further run in the same room clears the outcome, and with it the end.
            end = room.outcome().map(|_| end.unwrap_or(now.at));
        }
        let outcome = room.outcome().cloned();
        self.totals.records += count;
        self.rooms.push(RoomDraft {
            room: id,
            entry,
            message,
            start,
            end,
            records: count,
            outcome,
        });
    }

    pub(super) fn into_timeline(mut self) -> Option<Timeline> {
        let root = self.rooms.first()?;
        let (run, started, entry, message) =
            (root.room.clone(), root.start, root.entry.clone(), root.message.clone());
        let ended = root.outcome.as_ref().map(|outcome| RoomEnd {
            status: outcome.status,
            reason: short(&outcome.reason),
            // For a conversation, the result would be the user's closing word.
            answer: outcome
                .content
                .as_deref()
                .filter(|_| outcome.status != Status::UserQuit)
                .map(short),
        });
        self.clock.settle();
        self.totals.down_ms = self.clock.all_down();
        let since = |at: Millis| self.clock.between(started, at);
        let lane = |room: &RoomDraft| Lane {
            room: room.room.clone(),
            entry: room.entry.clone(),
            start_ms: since(room.start),
            end_ms: room.end.map(since),
            records: room.records,
            status: room.outcome.as_ref().map(|outcome| outcome.status),
        };
        let rooms = self.rooms.iter().map(lane).collect();
        let took_ms = since(self.last);
        let parents: Vec<Option<usize>> = self.rows.iter().map(|row| row.parent).collect();
        let mut drafts: Vec<Option<DraftRow>> =
            std::mem::take(&mut self.rows).into_iter().map(Some).collect();
        let row = |(index, depth): (usize, u32)| {
            let draft = drafts[index].take()?;
            let DraftRow { room, seq, start, end, abandoned, what, .. } = draft;
            let start_ms = since(start);
            Some(TimelineRow {
                room,
                seq,
                depth,
                start_ms,
                end_ms: end.map(|end| since(end).max(start_ms)),
                abandoned,
                what,
            })
        };
        let rows = tree::order(&parents).into_iter().filter_map(row);
        let rows: Vec<TimelineRow> = rows.filter(|row| !row.says_nothing()).collect();
        let mut totals = self.totals;
        let waited = |row: &TimelineRow| match row.what {
            RowSubject::Approval { .. } => {
                row.end_ms.unwrap_or(took_ms).saturating_sub(row.start_ms)
            }
            _ => 0,
        };
        totals.approval_ms = rows.iter().map(waited).sum();
        Some(Timeline { run, started, took_ms, entry, message, ended, totals, rooms, rows })
    }
}

impl Now<'_> {
    fn take(&mut self, room: &mut Room, record: Record) {
        self.seq = record.seq;
        // The room does the same: its clock stands still when the host's goes back.
        self.at = self.at.max(record.at);
        self.fold.last = self.fold.last.max(self.at);
        if let Some(event) = room.effect_of(&record.event) {
            self.happened(event, room);
        }
        room.handle(record.event, record.at);
        while let Some(notice) = room.poll_notice() {
            self.notice(notice);
        }
        while let Some(effect) = room.poll_effect() {
            self.begin_row(effect);
        }
    }

    /// Ends the rows that an event answers, and adds those that it makes by itself.
    fn happened(&mut self, event: &Event, room: &Room) {
        match event {
            Event::AgentStepped { call, answer, report } => {
                self.end_call(*call, answer.as_ref().map(says), report);
            }
            Event::AgentResponded { call, answer, report } => {
                let words = |turn: &Option<_>| turn.as_ref().map(says).unwrap_or_default();
                self.end_call(*call, answer.as_ref().map(words), report);
            }
            Event::StrategyDecided { call, answer, report } => {
                let words = |decisions: &Vec<_>| kinds(decisions, "decision");
                self.end_call(*call, answer.as_ref().map(words), report);
            }
            Event::PluginQueried { call, answer, report } => {
                self.end_call(*call, answer.as_ref().map(advised), report);
            }
            Event::UserAnswered { call, text, passed, .. } => {
                let (reply, is_passed) = (text.as_deref().map(short), *passed);
                self.end(&OpenRowKey::Call(*call), |what| {
                    if let RowSubject::User { prompt, answer, .. } = what {
                        *answer = reply;
                        if is_passed {
                            // The prompt was never shown, so an empty prompt keeps it from becoming
                            // a row.
                            prompt.clear();
                        }
                    }
                });
            }
            Event::RunStarted { opening, .. } => self.moment(self.lane, message_of(opening)),
            Event::Resumed { down_ms, is_exact, .. } => {
                self.fold.clock.down(self.at, *down_ms);
                self.resumed = self.at;
                // Each room of a run is resumed; only the root's resumption becomes a row.
                if self.lane.is_none() && room.outcome().is_none() {
                    self.fold.totals.resumed += 1;
                    self.fold.totals.is_down_at_most |= !is_exact;
                    let resumed = RowSubject::Resumed { down_ms: *down_ms, is_exact: *is_exact };
                    self.moment(self.here(), resumed);
                }
            }
            // All rooms of a run are taken over together, so the root's row speaks for all.
            Event::Owned { host, epoch } if self.lane.is_none() => {
                let what = RowSubject::TakenOver { host: short(host), epoch: *epoch };
                self.moment(self.here(), what);
            }
            Event::TurnStopped { reason } => self.stopped(None, reason),
            Event::TaskKilled { task, reason } => self.stopped(Some(task.clone()), reason),
            Event::Cancelled { reason } => self.stopped(None, reason),
            _ => {}
        }
    }

    fn stopped(&mut self, task: Option<TaskName>, reason: &str) {
        self.moment(
            self.here(),
            RowSubject::Stopped { task, by: Role::User, reason: short(reason) },
        );
    }

    #[expect(clippy::too_many_lines, reason = "one arm for each notice")]
    fn notice(&mut self, notice: Notice) {
        match notice {
            Notice::TaskStarted { task, agent, caller } => {
                let row = self.begin(
                    self.here(),
                    RowSubject::Task { task, agent, caller, status: None, reason: String::new() },
                );
                self.tasks.push(row);
            }
            Notice::TaskEnded { task, status, reason } => self.end_task(&task, status, &reason),
            Notice::StepStarted { call, task, agent } => {
                self.fold.totals.steps += 1;
                let what = RowSubject::Step {
                    task,
                    agent,
                    says: String::new(),
                    fault: None,
                    sandbox: None,
                };
                self.open(OpenRowKey::Call(call), self.here(), what);
            }
            Notice::ModelCalled { .. } | Notice::ModelAnswered { .. } => self.model(notice),
            Notice::ToolCalled { .. } | Notice::ToolAnswered { .. } => self.tool(notice),
            Notice::SideEffectStarted { .. } | Notice::SideEffectEnded { .. } => {
                self.side_effect(notice)
            }
            Notice::ApprovalAsked { .. } | Notice::ApprovalGiven { .. } => self.approval(notice),
            Notice::Denied { call, plugin, record } => {
                self.fold.totals.denials += 1;
                let parent = call
                    .and_then(|call| self.open.get(&OpenRowKey::Call(call)).copied())
                    .or_else(|| self.here());
                let what = RowSubject::Denied {
                    plugin,
                    capability: record.denial.capability,
                    target: short(&record.denial.target),
                    layer: record.layer,
                    reason: short(&record.reason),
                    suggestion: record.suggestion,
                };
                self.moment(parent, what);
            }
            Notice::StepEnded { task, by, skipped, .. }
                if !skipped.iter().all(SkippedResponder::is_routine) =>
            {
                let by = by.into_owned();
                self.moment(self.here(), RowSubject::PassedOver { task, by, skipped });
            }
            Notice::StepStalled { task, stalled, of, skipped } => {
                self.moment(self.here(), RowSubject::Stalled { task, stalled, of, skipped })
            }
            Notice::HistoryCut { task, cut, dropped } => {
                self.moment(self.here(), RowSubject::HistoryCut { task, cut, dropped })
            }
            Notice::PluginReplaced { plugin, sha256 } => {
                self.moment(self.lane, RowSubject::Replaced { plugin, sha256 })
            }
            Notice::AttemptLost { call, model, input_tokens, cost_micro_usd, reason, .. } => {
                let totals = &mut self.fold.totals;
                totals.input_tokens = totals.input_tokens.saturating_add(input_tokens);
                totals.cost_micro_usd = totals.cost_micro_usd.saturating_add(cost_micro_usd);
                let parent = self.of_call(call);
                let tokens = input_tokens;
                let row = RowSubject::AttemptLost { model, tokens, cost_micro_usd, reason };
                self.moment(parent, row);
            }
            Notice::PriceUnknown { model, limit } => {
                self.moment(self.here(), RowSubject::PriceUnknown { model, limit })
            }
            // The approver's amount was invalid; the repeated question belongs to the same row.
            Notice::TopUpAsked { call, top_up }
                if top_up.problem.is_some() && self.open.contains_key(&OpenRowKey::Call(call)) => {}
            Notice::TopUpAsked { call, top_up } => {
                let what = RowSubject::TopUp {
                    budget: top_up.budget.key().to_owned(),
                    more: None,
                    reason: None,
                };
                // A question that was repeated after an interruption keeps its row.
                if !self.is_asked(call) {
                    self.fold.totals.top_ups += 1;
                    self.open(OpenRowKey::Call(call), self.here(), what);
                }
            }
            Notice::ToppedUp { call, more: given, reason: why, .. } => {
                self.end(&OpenRowKey::Call(call), |what| {
                    if let RowSubject::TopUp { more, reason, .. } = what {
                        (*more, *reason) = (given, why.as_deref().map(short));
                    }
                })
            }
            Notice::BackgroundStarted { .. } | Notice::BackgroundEnded { .. } => {
                self.background(notice)
            }
            Notice::Delivered { id, worker: agent, strategy, channel, text } => {
                self.moment(
                    self.lane,
                    RowSubject::Delivered {
                        id,
                        task: agent,
                        strategy,
                        channel,
                        text: short(&text),
                    },
                );
            }
            Notice::NotDelivered { id, worker: agent, reason } => {
                self.moment(
                    self.lane,
                    RowSubject::NotDelivered { id, task: agent, reason: short(&reason) },
                );
            }
            Notice::DeadLetter { id, worker: agent, reason, .. } => {
                self.moment(
                    self.lane,
                    RowSubject::NotDelivered {
                        id,
                        task: agent,
                        reason: short(&format!("dead letter: {reason}")),
                    },
                );
            }
            Notice::UserMessageRead { task, message } => {
                self.moment(self.here(), RowSubject::Message { task, text: short(message.text()) })
            }
            // Each room of a run is paused; only the root's pause becomes a row.
            Notice::RunPaused { .. } | Notice::RunUnpaused if self.lane.is_some() => {}
            Notice::ResultsRelayed { .. }
            | Notice::ResultsRead { .. }
            | Notice::UserMessageDropped { .. }
            | Notice::RunPaused { .. }
            | Notice::RunUnpaused
            | Notice::AgentStuck { .. }
            | Notice::GateBlocked { .. }
            | Notice::AnswerOverruled { .. }
            | Notice::ResultReplaced { .. }
            | Notice::ObserverRetried { .. }
            | Notice::ObserverStopped { .. }
            | Notice::HandedOff { .. }
            | Notice::HandoffRejected { .. }
            | Notice::HistoryCondensed { .. }
            | Notice::KnowledgeAdded { .. } => {
                let event = short(&tell(&notice).sentence());
                self.moment(self.here(), RowSubject::Other { event });
            }
            // Covered by their events, or without a duration.
            _ => {}
        }
    }

    /// Begins the rows of effects that have no notice.
    fn begin_row(&mut self, effect: Effect) {
        match effect {
            Effect::AskUser { call, task, channel, prompt } => {
                let what = RowSubject::User { task, channel, prompt: short(&prompt), answer: None };
                self.open(OpenRowKey::Call(call), self.here(), what);
            }
            Effect::QueryPlugin { call, task, plugin, question } => {
                let kind = question.kind();
                let what = RowSubject::PluginQuery {
                    task,
                    plugin,
                    kind,
                    asks: question_text(&question),
                    says: String::new(),
                    fault: None,
                    sandbox: None,
                };
                self.open(OpenRowKey::Call(call), self.here(), what);
            }
            Effect::WakeStrategy { call, strategy, wake } => {
                let wake = kind_of(&wake, "wake");
                let what = RowSubject::Strategy {
                    strategy,
                    wake,
                    decided: String::new(),
                    fault: None,
                    sandbox: None,
                };
                self.open(OpenRowKey::Call(call), self.lane, what);
            }
            Effect::AbandonCall { call } => self.abandon(call),
            Effect::Finish { .. } => {
                let open: Vec<usize> = std::mem::take(&mut self.open).into_values().collect();
                let tasks = std::mem::take(&mut self.tasks);
                open.into_iter().chain(tasks).for_each(|row| self.close(row, true));
            }
            _ => {}
        }
    }

    /// Whether a person has been asked about the call and has not answered.
    fn is_asked(&self, call: CallId) -> bool {
        let row = self.open.get(&OpenRowKey::Call(call)).map(|row| &self.fold.rows[*row].what);
        matches!(row, Some(RowSubject::Approval { .. } | RowSubject::TopUp { .. }))
    }

    /// The innermost task.
    fn here(&self) -> Option<usize> {
        self.tasks.last().copied().or(self.lane)
    }

    fn of_call(&self, call: CallId) -> Option<usize> {
        self.open.get(&OpenRowKey::Call(call)).copied().or_else(|| self.here())
    }

    fn begin(&mut self, parent: Option<usize>, what: RowSubject) -> usize {
        let draft = DraftRow {
            room: self.room.clone(),
            seq: self.seq,
            parent,
            start: self.at,
            end: None,
            below: Millis(0),
            abandoned: false,
            what,
        };
        self.fold.rows.push(draft);
        self.fold.rows.len() - 1
    }

    fn moment(&mut self, parent: Option<usize>, what: RowSubject) {
        let row = self.begin(parent, what);
        self.close(row, false);
    }

    fn open(&mut self, key: OpenRowKey, parent: Option<usize>, what: RowSubject) -> usize {
        let row = self.begin(parent, what);
        if let Some(before) = self.open.insert(key, row) {
            self.close(before, true);
        }
        row
    }

    fn end(&mut self, key: &OpenRowKey, change: impl FnOnce(&mut RowSubject)) {
        if let Some(row) = self.open.remove(key) {
            change(&mut self.fold.rows[row].what);
            self.close(row, false);
        }
    }

    fn close(&mut self, row: usize, abandoned: bool) {
        self.close_at(row, self.at, abandoned);
    }

    fn close_at(&mut self, row: usize, at: Millis, abandoned: bool) {
        let row = &mut self.fold.rows[row];
        if row.end.is_some() {
            return;
        }
        (row.end, row.abandoned) = (Some(at), abandoned);
        let parent = row.parent;
        if let Some(parent) = parent {
            let parent = &mut self.fold.rows[parent];
            parent.below = parent.below.max(at);
        }
    }

    /// The end of a call by its own report. Answers of parallel calls are recorded together, when
    /// the last of them arrives.
    fn end_of(&self, row: usize, report: &CallReport) -> Millis {
        let row = &self.fold.rows[row];
        // The report of a call that began before an interruption covers its last attempt only.
        if report.wall_us == 0 || self.resumed > row.start {
            return self.at;
        }
        row.start.plus(report.wall_us / 1_000).max(row.below).min(self.at)
    }

    /// Ends the row of the call and those of its requests.
    fn abandon(&mut self, call: CallId) {
        let is_of = |key: &OpenRowKey| match key {
            OpenRowKey::Call(of) | OpenRowKey::Model(of, _) | OpenRowKey::SideEffect(of, _) => {
                *of == call
            }
            OpenRowKey::Background(_) => false,
        };
        let keys: Vec<OpenRowKey> = self.open.keys().filter(|key| is_of(key)).cloned().collect();
        for key in keys {
            if let Some(row) = self.open.remove(&key) {
                self.close(row, true);
            }
        }
    }

    /// Adds a call's usage to the totals.
    fn used(&mut self, report: &CallReport) -> Option<SandboxUsage> {
        let sandbox = SandboxUsage::of(report)?;
        let totals = &mut self.fold.totals;
        totals.sandboxes += u64::from(sandbox.is_sandboxed());
        totals.memory = totals.memory.max(sandbox.memory);
        totals.cpu_ms = totals.cpu_ms.saturating_add(sandbox.cpu_ms);
        Some(sandbox)
    }
}

fn message_of(opening: &RunOpening) -> RowSubject {
    RowSubject::Message {
        task: opening.entry.clone(),
        text: short(opening.content.as_deref().unwrap_or_default()),
    }
}
