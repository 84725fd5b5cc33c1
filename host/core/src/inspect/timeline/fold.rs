//! The fold from records to rows. Each record is folded once; its event, effects and notices begin
//! and end rows.

mod messages;
mod outcomes;
mod rows;
mod words;

use std::collections::BTreeMap;

use super::clock::HostClock;
use super::row::{RowSubject, TimelineRow};
use super::{Lane, RoomEnd, Timeline, Totals, short, tree};
use crate::inspect::telling::tell;
use crate::journal::ownership::OneHistory;
use crate::protocol::effect::Effect;
use crate::protocol::event::{Event, Record, RunOpening};
use crate::protocol::notice::{Notice, SkippedResponder};
use crate::room::Room;
use crate::types::ids::{BackgroundId, CallId, Millis, RoomId, TaskName};
use crate::types::message::Role;
use crate::types::outcome::Status;
use crate::types::request::{RequestId, RoomRequest};

use words::{advised, kind_of, kinds, question_text, says};

/// The key of a row that has not ended.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum OpenRowKey {
    Call(CallId),
    Model(CallId, u32),
    SideEffect(CallId, u32),
    Background(BackgroundId),
    /// A message from a channel, until its sender has a reply.
    Inbound(RequestId),
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

/// A room of the run, as far as its records are folded.
struct FoldedRoom {
    id: RoomId,
    room: Room,
    /// The epochs of the records, which decide whether a further one counts.
    history: OneHistory,
    entry: TaskName,
    message: String,
    start: Millis,
    end: Option<Millis>,
    records: u64,
    /// The row above all rows of this room.
    lane: Option<usize>,
    /// Rows of active tasks, the innermost last.
    tasks: Vec<usize>,
    open: BTreeMap<OpenRowKey, usize>,
    /// The notice of a message from a channel, until the reply to its sender says which it is.
    arrival: Option<Notice>,
    seq: u64,
    at: Millis,
    /// The time at which the room was last resumed.
    resumed: Millis,
}

/// The rows of all rooms.
#[derive(Default)]
struct Drafts {
    rows: Vec<DraftRow>,
    /// The row of the background task that each room belongs to.
    lanes: BTreeMap<RoomId, usize>,
    clock: HostClock,
    last: Millis,
    totals: Totals,
}

/// The fold of a run's records to its timeline. The records of different rooms may alternate, but a
/// room begins after the record that started its task, and the root before all others.
#[derive(Default)]
pub struct TimelineFold {
    drafts: Drafts,
    rooms: Vec<FoldedRoom>,
    /// The index of each room among them.
    indices: BTreeMap<RoomId, usize>,
}

/// The record that is being folded.
struct Now<'a> {
    drafts: &'a mut Drafts,
    of: &'a mut FoldedRoom,
}

impl TimelineFold {
    /// Folds the next record of a room. Records that no opening precedes are left out.
    pub fn take(&mut self, id: &RoomId, record: Record) {
        let index = match (self.indices.get(id), &record.event) {
            (Some(index), _) => *index,
            (None, Event::RoomOpened { opening, .. }) => {
                let lane = self.drafts.lanes.get(id).copied();
                self.rooms.push(FoldedRoom::new(opening, record.at, lane));
                self.indices.insert(id.clone(), self.rooms.len() - 1);
                self.rooms.len() - 1
            }
            (None, _) => return,
        };
        let of = &mut self.rooms[index];
        if of.history.counts(record.epoch) {
            Now { drafts: &mut self.drafts, of }.take(record);
        }
    }

    /// The rooms, as their records lead to them, the root first.
    pub fn rooms(&self) -> impl Iterator<Item = &Room> {
        self.rooms.iter().map(|of| &of.room)
    }

    /// The timeline up to here; `None` if the root's records do not begin with an opening.
    #[must_use]
    pub fn timeline(&self) -> Option<Timeline> {
        let root = self.rooms.first()?;
        let ended = root.room.outcome().map(|outcome| RoomEnd {
            status: outcome.status,
            reason: short(&outcome.reason),
            // For a conversation, the result would be the user's closing word.
            answer: outcome
                .content
                .as_deref()
                .filter(|_| outcome.status != Status::UserQuit)
                .map(short),
        });
        let Drafts { rows: drafts, clock, last, totals, .. } = &self.drafts;
        let clock = clock.settled();
        let since = |at: Millis| clock.between(root.start, at);
        let lane = |of: &FoldedRoom| Lane {
            room: of.id.clone(),
            entry: of.entry.clone(),
            start_ms: since(of.start),
            end_ms: of.end.map(since),
            records: of.records,
            status: of.room.outcome().map(|outcome| outcome.status),
        };
        let took_ms = since(*last);
        let parents: Vec<Option<usize>> = drafts.iter().map(|row| row.parent).collect();
        let row = |(index, depth): (usize, u32)| {
            let draft = &drafts[index];
            let start_ms = since(draft.start);
            TimelineRow {
                room: draft.room.clone(),
                seq: draft.seq,
                depth,
                start_ms,
                end_ms: draft.end.map(|end| since(end).max(start_ms)),
                abandoned: draft.abandoned,
                what: draft.what.clone(),
            }
        };
        let rows = tree::order(&parents).into_iter().map(row);
        let rows: Vec<TimelineRow> = rows.filter(|row| !row.says_nothing()).collect();
        let waited = |row: &TimelineRow| match row.what {
            RowSubject::Approval { .. } => {
                row.end_ms.unwrap_or(took_ms).saturating_sub(row.start_ms)
            }
            _ => 0,
        };
        let approval_ms = rows.iter().map(waited).sum();
        Some(Timeline {
            run: root.id.clone(),
            started: root.start,
            took_ms,
            entry: root.entry.clone(),
            message: root.message.clone(),
            ended,
            totals: Totals { down_ms: clock.all_down(), approval_ms, ..*totals },
            rooms: self.rooms.iter().map(lane).collect(),
            rows,
        })
    }
}

impl FoldedRoom {
    fn new(opening: &RunOpening, start: Millis, lane: Option<usize>) -> Self {
        Self {
            id: opening.room.clone(),
            room: Room::new(),
            history: OneHistory::default(),
            entry: opening.entry.clone(),
            message: short(opening.content.as_deref().unwrap_or_default()),
            start,
            end: None,
            records: 0,
            lane,
            tasks: Vec::new(),
            open: BTreeMap::new(),
            arrival: None,
            seq: 0,
            at: start,
            resumed: Millis(0),
        }
    }
}

impl Now<'_> {
    fn take(&mut self, record: Record) {
        self.of.records += 1;
        self.drafts.totals.records += 1;
        self.of.seq = record.seq;
        // The room does the same: its clock stands still when the host's goes back.
        self.of.at = self.of.at.max(record.at);
        self.drafts.last = self.drafts.last.max(self.of.at);
        if let Some(event) = self.of.room.effect_of(&record.event) {
            self.happened(event);
        }
        self.of.room.handle(record.event, record.at);
        while let Some(notice) = self.of.room.poll_notice() {
            self.notice(notice);
        }
        while let Some(effect) = self.of.room.poll_effect() {
            self.begin_row(effect);
        }
        // A further run in the same room clears the outcome, and with it the end.
        let end = self.of.end.unwrap_or(self.of.at);
        self.of.end = self.of.room.outcome().map(|_| end);
    }

    /// Ends the rows that an event answers, and adds those that it makes by itself.
    fn happened(&mut self, event: &Event) {
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
            Event::RunStarted { opening, .. } => self.moment(self.of.lane, message_of(opening)),
            Event::Resumed { down_ms, is_exact, .. } => {
                self.drafts.clock.down(self.of.at, *down_ms);
                self.of.resumed = self.of.at;
                // Each room of a run is resumed; only the root's resumption becomes a row.
                if self.of.lane.is_none() && self.of.room.outcome().is_none() {
                    self.drafts.totals.resumed += 1;
                    self.drafts.totals.is_down_at_most |= !is_exact;
                    let resumed = RowSubject::Resumed { down_ms: *down_ms, is_exact: *is_exact };
                    self.moment(self.here(), resumed);
                }
            }
            // All rooms of a run are taken over together, so the root's row speaks for all.
            Event::Owned { host, epoch } if self.of.lane.is_none() => {
                let what = RowSubject::TakenOver { host: short(host), epoch: *epoch };
                self.moment(self.here(), what);
            }
            Event::Requested { request, what: RoomRequest::Inbound { inbound } } => {
                self.begin_inbound(*request, inbound);
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
                self.of.tasks.push(row);
            }
            Notice::TaskEnded { task, status, reason } => self.end_task(&task, status, &reason),
            Notice::StepStarted { call, task, agent } => {
                self.drafts.totals.steps += 1;
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
                self.drafts.totals.denials += 1;
                let parent = call
                    .and_then(|call| self.of.open.get(&OpenRowKey::Call(call)).copied())
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
                self.moment(self.of.lane, RowSubject::Replaced { plugin, sha256 })
            }
            Notice::AttemptLost { call, model, input_tokens, cost_micro_usd, reason, .. } => {
                let totals = &mut self.drafts.totals;
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
                if top_up.problem.is_some()
                    && self.of.open.contains_key(&OpenRowKey::Call(call)) => {}
            Notice::TopUpAsked { call, top_up } => {
                let what = RowSubject::TopUp {
                    budget: top_up.budget.key().to_owned(),
                    more: None,
                    reason: None,
                };
                // A question that was repeated after an interruption keeps its row.
                if !self.is_asked(call) {
                    self.drafts.totals.top_ups += 1;
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
                    self.of.lane,
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
                    self.of.lane,
                    RowSubject::NotDelivered { id, task: agent, reason: short(&reason) },
                );
            }
            Notice::DeadLetter { id, worker: agent, reason, .. } => {
                self.moment(
                    self.of.lane,
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
            Notice::Inbound { .. } | Notice::InboundRefused { .. } => {
                self.of.arrival = Some(notice);
            }
            // Each room of a run is paused; only the root's pause becomes a row.
            Notice::RunPaused { .. } | Notice::RunUnpaused if self.of.lane.is_some() => {}
            Notice::ResultsRelayed { .. }
            | Notice::ResultsRead { .. }
            | Notice::UserMessageDropped { .. }
            | Notice::RunPaused { .. }
            | Notice::RunUnpaused
            | Notice::AgentStuck { .. }
            | Notice::GateBlocked { .. }
            | Notice::ChannelRefused { .. }
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
                self.open(OpenRowKey::Call(call), self.of.lane, what);
            }
            Effect::Reply { request, reply } => self.end_inbound(request, reply),
            Effect::AbandonCall { call } => self.abandon(call),
            Effect::Finish { .. } => {
                let open: Vec<usize> = std::mem::take(&mut self.of.open).into_values().collect();
                let tasks = std::mem::take(&mut self.of.tasks);
                open.into_iter().chain(tasks).for_each(|row| self.close(row, true));
            }
            _ => {}
        }
    }
}

fn message_of(opening: &RunOpening) -> RowSubject {
    RowSubject::Message {
        task: opening.entry.clone(),
        text: short(opening.content.as_deref().unwrap_or_default()),
    }
}
