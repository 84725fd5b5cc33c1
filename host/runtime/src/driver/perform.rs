//! One function per effect. Each starts the work and returns at once; the work sends the event that
//! answers it. The plugin call that began last is polled once by the loop itself.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use conclave_core::journal::recovery::Start;
use conclave_core::policy::budget::LimitIncrease;
use conclave_core::protocol::effect::Effect;
use conclave_core::protocol::event::Event;
use conclave_core::types::approval::{Approval, ApprovalAnswer, ApprovalAuthor};
use conclave_core::types::completion::{ModelError, Prompt};
use conclave_core::types::denial::DenialRecord;
use conclave_core::types::fault::{Fault, FaultKind};
use conclave_core::types::ids::{
    CHANNEL_PREFIX, CallId, ChannelId, ModelName, PluginName, Principal,
};
use conclave_models::{ModelFailure, TextSink};

use super::approving::ApproverQueue;
use super::port::RoomPort;
use super::side_effects::{EffectStep, SideEffectPort};
use super::{CallWork, Driver, UnderWay};
use crate::calls::{
    CallStart, NoSignatures, Observer, PluginAnswer, PluginCall, PluginOutput, ToolInput,
};
use crate::driver::approve::Approver;
use crate::driver::channel::{HumanAnswer, OutgoingMessage};
use crate::driver::event_queue::EventSender;
use crate::driver::outgoing::{FailureKind, IdentifiedMessage, PluginCaller};
use crate::driver::runner::{Progressing, TaskProgress};
use crate::imports::folder::RunOverlays;
use crate::observe::subscribe::{FollowGate, Level, Publisher, RunEvent};
use crate::support::fail_points::kill_point;

impl Driver {
    pub(super) fn perform(&mut self, effect: Effect, start: Option<Start>) {
        match effect {
            Effect::StepAgent { call, agent, .. } => {
                self.call_plugin(call, agent, start, |start| {
                    Some(PluginCall::Step { view: start.agent.take()? })
                })
            }
            Effect::AskResponder { call, agent, .. } => {
                self.call_plugin(call, agent, start, |start| {
                    Some(PluginCall::Respond { view: start.agent.take()? })
                })
            }
            Effect::CallTool { call, task, caller, plugin, tool, arguments } => {
                self.call_plugin(call, plugin, start, |start| {
                    let (conversation, callable) =
                        (start.conversation.take(), start.callable.take());
                    let input = ToolInput { task, caller, tool, arguments, conversation, callable };
                    Some(PluginCall::Tool(input))
                });
            }
            Effect::QueryPlugin { call, plugin, question: query, .. } => {
                self.call_plugin(call, plugin, start, |start| {
                    Some(PluginCall::Query { query, view: start.agent.take() })
                })
            }
            Effect::WakeStrategy { call, strategy, wake } => {
                self.call_plugin(call, strategy, start, |start| {
                    Some(PluginCall::Decide { wake, view: start.delivery.take()? })
                })
            }
            Effect::AskApproval { call, request } => {
                let asking = ApproverQueue::new(&self.shared, &self.setup);
                self.start(call, approver_broke_off(call), async move {
                    decided(call, asking.decide(request).await)
                });
            }
            Effect::AskTopUp { call, top_up } => {
                let approver = Arc::clone(&self.shared.approver);
                self.start(call, approver_broke_off(call), async move {
                    decided(call, asked_for_more(&*approver, top_up).await)
                });
            }
            Effect::AskUser { call, task, channel, prompt } => {
                let channels = Arc::clone(&self.shared.channels);
                let answered = move |answer: Option<HumanAnswer>| {
                    let HumanAnswer { text, attachments, passed } = answer?;
                    Some(Event::UserAnswered { call, text: Some(text), attachments, passed })
                };
                // Also the fallback: a channel that panics counts as one without a person.
                let no_answer = move || Event::UserAnswered {
                    call,
                    text: None,
                    attachments: Vec::new(),
                    passed: false,
                };
                self.start(call, no_answer(), async move {
                    answered(channels.ask(channel, task, prompt).await).unwrap_or_else(no_answer)
                });
            }
            Effect::CallModel { call, ordinal, model, prompt } => {
                self.call_model(call, ordinal, &model, prompt)
            }
            Effect::AnswerModel { call, ordinal, answer } => {
                self.waiting.models.answer(call, ordinal, answer)
            }
            Effect::AnswerTools { call, ordinal, answers } => {
                self.waiting.tools.answer(call, ordinal, answers)
            }
            Effect::AllowSideEffect { call, ordinal, leave } => {
                self.side_effects.answer(call, ordinal, EffectStep::Asked, leave)
            }
            Effect::ConfirmSideEffect { call, ordinal } => {
                kill_point!("before-side-effect-told");
                self.side_effects.answer(call, ordinal, EffectStep::Ended, Ok(()));
            }
            Effect::StartBackground { call, id, opening } => {
                self.start_background(call, id, opening, false)
            }
            Effect::Send { call, message } => self.send_message(call, *message),
            Effect::Reply { request, reply } => self.clients.requests.answer(request, reply),
            Effect::TellTask { call, id, text } => self.report_child(call, &id, &text),
            Effect::DetachTask { call } => self.detach_child(call),
            Effect::SetTimer { timer, at } => self.timers.set(timer, at),
            Effect::AbandonCall { call } => self.abandon_call(call),
            // The loop takes the outcome from the room.
            Effect::Finish { .. } => {}
        }
    }

    fn send_message(&mut self, call: CallId, message: OutgoingMessage) {
        let broke_off = Some("the channel broke off".to_owned());
        if self.shared.endpoints.serves(&message.channel) {
            let endpoints = Arc::clone(&self.shared.endpoints);
            let conversation = conversation_of(&self.shared.principal, &message.channel);
            let caller = self.channel_caller(call, &message.channel);
            let secret = self.room.secret().unwrap_or(&self.secret);
            let message = IdentifiedMessage {
                conversation,
                ..IdentifiedMessage::new(secret, self.id.clone(), message)
            };
            let fallback = Event::Sent { call, failure: broke_off, unknown: true };
            self.start(call, fallback, async move {
                let failure = endpoints.send(&message, caller).await.err();
                let unknown = failure.as_ref().is_some_and(|it| it.kind == FailureKind::Unknown);
                Event::Sent { call, failure: failure.map(|failure| failure.reason), unknown }
            });
            return;
        }
        let channels = Arc::clone(&self.shared.channels);
        let fallback = Event::Sent { call, failure: broke_off, unknown: false };
        self.start(call, fallback, async move {
            // A journal can hold a channel that was served where the room began.
            let failure = match channels.serves(&message.channel) {
                true => channels.send(message).await.err(),
                false => Some(format!("nobody serves {} here", message.channel)),
            };
            Event::Sent { call, failure, unknown: false }
        });
    }

    /// The caller of the plugin that delivers the messages of a channel; `None` if none does, or the
    /// run began without it.
    fn channel_caller(&mut self, call: CallId, channel: &ChannelId) -> Option<PluginCaller> {
        let plugin = self.shared.endpoints.plugin(channel)?.clone();
        let setup = self.room.setup();
        let of_room = setup.channels.get(channel)?.plugin.as_ref();
        let facts = &setup.plugins.get(&plugin).filter(|_| of_room == Some(&plugin))?.facts;
        let is_sandboxed = !facts.is_native() && !facts.mcp;
        // After a restart the numbers go on from those of the log.
        let earlier = self.traces.get(&call).map(|trace| trace.side_effects.keys().max().copied());
        let effects = earlier.flatten().map_or(0, |last| last.saturating_add(1));
        let (at, scratch) = (self.now(), Arc::default());
        let start =
            Start { at, scratch, agent: None, delivery: None, conversation: None, callable: None };
        let start = self.call_start(call, plugin, start);
        let plugins = Arc::clone(&self.shared.plugins);
        Some(PluginCaller { plugins, start, is_sandboxed, effects })
    }

    /// Runs the work of a call beside the loop. If the work panics, the room gets `fallback` as the
    /// answer, so that no call waits for ever.
    fn start(
        &mut self,
        call: CallId,
        fallback: Event,
        work: impl Future<Output = Event> + Send + 'static,
    ) {
        let mut answering = Answering { events: self.sender.clone(), fallback: Some(fallback) };
        let task = tokio::spawn(async move {
            answering.answer(work.await);
        });
        self.under_way.insert(call, UnderWay::Work(task.abort_handle()));
    }

    fn call_start(&mut self, call: CallId, plugin: PluginName, start: Start) -> CallStart {
        let (shared, run) = (Arc::clone(&self.shared), self.id.run());
        let epoch = self.journal().map_or(0, |journal| journal.epoch());
        let open = || shared.journals.overlays(&run, epoch).map(RunOverlays::of);
        let overlays = shared.overlays.get_or_init(open).clone();
        let port =
            Arc::new(RoomPort { events: self.sender.clone(), waiting: Arc::clone(&self.waiting) });
        CallStart {
            room: self.id.clone(),
            secret: self.room.secret().unwrap_or(&self.secret).clone(),
            call,
            now: start.at,
            scratch: start.scratch,
            trace: self.traces.remove(&call).unwrap_or_default(),
            task: self.room.works_on(call).and_then(|task| {
                let setup = Arc::clone(self.setup.tasks.get(&task)?);
                Some((task, setup))
            }),
            models: port.clone(),
            tools: port,
            effects: Arc::new(SideEffectPort {
                events: self.sender.clone(),
                waiting: Arc::clone(&self.side_effects),
                survives_power_cuts: self.shared.journals.survive_power_cuts(),
                overlays,
            }),
            signatures: Arc::new(NoSignatures),
            observer: Arc::new(Follower {
                gate: Arc::clone(&self.follow),
                // Log lines of the call wait for this commit, which contains the record that began
                // it.
                commit: self.buffer.last_commit(),
                events: self.sender.clone(),
                progressing: self.progressing.clone(),
                plugin: plugin.clone(),
            }),
            setup: self.room.setup().plugins.get(&plugin).cloned(),
            plugin,
        }
    }

    /// Begins a plugin call, which [`poll_begun`](Self::poll_begun) or a task carries on. However it
    /// ends, one event answers it. `input` returns
    /// `None` if the room has no view for the call.
    fn call_plugin(
        &mut self,
        id: CallId,
        plugin: PluginName,
        start: Option<Start>,
        input: impl FnOnce(&mut Start) -> Option<PluginCall>,
    ) {
        let Some(mut start) = start else { return };
        let Some(call) = input(&mut start) else { return };
        let (kind, plugins) = (call.kind(), Arc::clone(&self.shared.plugins));
        let start = self.call_start(id, plugin, start);
        let fallback = answered(id, kind.failed(broke_off()).into());
        let mut answering = Answering { events: self.sender.clone(), fallback: Some(fallback) };
        let work = Box::pin(async move {
            let answer = answered(id, plugins.call(start, call).await);
            answering.answer(answer);
        });
        if let Some((earlier, work)) = self.started_call.replace((id, work)) {
            self.continue_beside(earlier, work);
        }
    }

    /// Polls the call that began last. Most calls end at once, and a task of their own would cost
    /// them a change of threads; one that does not end continues beside the loop, as earlier calls
    /// do. A guest returns within a tick.
    pub(super) fn poll_begun(&mut self) {
        let Some((call, mut work)) = self.started_call.take() else { return };
        // The task polls again before it waits for a wake-up, so none is lost.
        let mut context = Context::from_waker(Waker::noop());
        let poll = || work.as_mut().poll(&mut context);
        // A panic drops the work, which sends its fallback.
        if let Ok(Poll::Pending) = catch_unwind(AssertUnwindSafe(poll)) {
            self.continue_beside(call, work);
        }
    }

    fn continue_beside(&mut self, call: CallId, work: CallWork) {
        let task = tokio::spawn(work);
        self.under_way.insert(call, UnderWay::Work(task.abort_handle()));
    }

    fn call_model(&mut self, call: CallId, ordinal: u32, model: &ModelName, prompt: Prompt) {
        let client = self.shared.models.get(model).cloned();
        let name = model.to_string();
        let was_shown = AtomicBool::new(false);
        let sink = Arc::new(StreamedText {
            publisher: self.publisher.clone(),
            call,
            ordinal,
            model: model.clone(),
            was_shown,
        });
        // The fallback answers for a client that panics, and for a request that is aborted.
        let broke_off = ModelError::Other {
            message: "no answer came: the request was given up, or its client broke off".to_owned(),
        };
        let fallback = Event::ModelAnswered {
            call,
            ordinal,
            answer: Err(broke_off),
            trouble: None,
            was_shown: false,
        };
        let mut answering = Answering { events: self.sender.clone(), fallback: Some(fallback) };
        let asking = self.beside.spawn(async move {
            let answer = match client {
                Some(client) => client.complete(prompt, Arc::<StreamedText>::clone(&sink)).await,
                None => Err(ModelError::UnknownModel { name }.into()),
            };
            let (answer, trouble) = match answer {
                Ok(completion) => (Ok(completion), None),
                Err(ModelFailure { error, trouble }) => (Err(error), trouble),
            };
            kill_point!("after-model-answer");
            let was_shown = answer.is_err() && sink.was_shown.load(Ordering::Relaxed);
            answering.answer(Event::ModelAnswered { call, ordinal, answer, trouble, was_shown });
        });
        // Keeps the list as short as the number of requests in flight.
        self.asking.retain(|(_, asking)| !asking.is_finished());
        self.asking.push((call, asking));
    }

    fn abandon_call(&mut self, call: CallId) {
        self.waiting.forget(call);
        self.drop_held_work(call);
        // The host has no use for the answer, so the server can stop. A plugin that ends first
        // still pays for its requests.
        self.asking.iter().filter(|(of, _)| *of == call).for_each(|(_, asking)| asking.abort());
        // A call that was never polled has nothing to abort.
        self.started_call.take_if(|(started, _)| *started == call);
        match self.under_way.remove(&call) {
            Some(UnderWay::Work(work)) => work.abort(),
            Some(UnderWay::Child(child)) => {
                self.shared.runner.cancel(child.room(), "its parent stopped it");
            }
            None => {}
        }
    }
}

/// The address of a conversation at the other side of a channel, if it began there.
fn conversation_of(principal: &Principal, channel: &ChannelId) -> Option<String> {
    let of_channel = principal.0.strip_prefix(CHANNEL_PREFIX)?.strip_prefix(channel.as_str())?;
    of_channel.strip_prefix('/').map(str::to_owned)
}

/// The event that answers a plugin call.
fn answered(call: CallId, PluginAnswer { output, report }: PluginAnswer) -> Event {
    match output {
        PluginOutput::Step(answer) => Event::AgentStepped { call, answer, report },
        PluginOutput::Respond(answer) => Event::AgentResponded { call, answer, report },
        PluginOutput::Tool(answer) => Event::ToolAnswered { call, answer, report },
        PluginOutput::Query(answer) => Event::PluginQueried { call, answer, report },
        PluginOutput::Decide(answer) => Event::StrategyDecided { call, answer, report },
    }
}

/// The number of times an approver is asked; a program could return invalid amounts for ever.
const TRIES: u32 = 16;

/// Asks until the answer holds a valid amount.
async fn asked_for_more(approver: &dyn Approver, mut top_up: LimitIncrease) -> ApprovalAnswer {
    for _ in 0..TRIES {
        let answer = approver.top_up(top_up.clone()).await;
        let Approval::Edited { arguments } = &answer.approval else { return answer };
        match top_up.amount(arguments) {
            Ok(_) => return answer,
            // The room ignores an invalid amount and would wait on.
            Err(problem) => top_up.problem = Some(problem.to_string()),
        }
    }
    Approval::Refused { reason: top_up.problem.unwrap_or_default() }.by(ApprovalAuthor::Nobody)
}

fn decided(call: CallId, ApprovalAnswer { approval, author }: ApprovalAnswer) -> Event {
    Event::Decided { call, approval, author, arguments_sha256: None }
}

/// The answer for an approver whose future ends without one.
fn approver_broke_off(call: CallId) -> Event {
    let refused = Approval::Refused { reason: "the approver broke off".to_owned() };
    decided(call, refused.by(ApprovalAuthor::Nobody))
}

/// Sends the fallback when the work sent no answer.
struct Answering {
    events: EventSender,
    fallback: Option<Event>,
}

impl Answering {
    /// Sends the answer instead of the fallback.
    fn answer(&mut self, answer: Event) {
        self.fallback = None;
        // The room may be over and its receiver gone.
        let _ = self.events.send(answer);
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        if let Some(fallback) = self.fallback.take() {
            let _ = self.events.send(fallback);
        }
    }
}

fn broke_off() -> Fault {
    Fault::new(FaultKind::Abandoned, "the call broke off inside the host; its log has the reason")
}

/// Publishes the text of a model while it streams.
struct StreamedText {
    publisher: Publisher,
    call: CallId,
    ordinal: u32,
    model: ModelName,
    /// Whether a user saw some of it.
    was_shown: AtomicBool,
}

impl TextSink for StreamedText {
    fn text(&self, piece: &str) {
        if self.is_shown() {
            self.was_shown.store(true, Ordering::Relaxed);
        }
        self.publisher.tell(|| RunEvent::Streamed {
            call: self.call,
            ordinal: self.ordinal,
            text: piece.to_owned(),
        });
    }

    fn is_shown(&self) -> bool {
        self.publisher.shows_text()
    }

    fn waits(&self, why: &str) {
        self.publisher.tell(|| RunEvent::ModelWaiting {
            call: self.call,
            ordinal: self.ordinal,
            model: self.model.clone(),
            reason: why.to_owned(),
        });
    }
}

/// Publishes the activity of a plugin while it runs.
struct Follower {
    gate: Arc<FollowGate>,
    /// The number of the commit that began the call.
    commit: u64,
    events: EventSender,
    progressing: Option<Progressing>,
    plugin: PluginName,
}

impl Observer for Follower {
    fn log(&self, call: CallId, level: Level, message: &str) {
        self.gate.tell(self.commit, || RunEvent::Logged {
            call,
            plugin: self.plugin.clone(),
            level,
            message: message.to_owned(),
        });
    }

    fn progress(&self, call: CallId, completed: u64, total: Option<u64>, message: &str) {
        if let Some(progressing) = &self.progressing {
            progressing.tell(|| TaskProgress { completed, total, message: message.to_owned() });
        }
        self.gate.tell(self.commit, || RunEvent::Progressed {
            call,
            plugin: self.plugin.clone(),
            completed,
            total,
            message: message.to_owned(),
        });
    }

    fn denied(&self, call: CallId, record: &DenialRecord) {
        // If the room is over, the report of the call has the record.
        let _ = self.events.send(Event::Refused {
            call,
            plugin: self.plugin.clone(),
            record: record.clone(),
        });
    }
}
