//! One function per effect. Each starts something and comes back at once; what it starts sends the event that answers it.

use std::future::Future;
use std::sync::Arc;

use conclave_core::delivery::EndedTask;
use conclave_core::effect::Effect;
use conclave_core::event::{Event, Opening, Spent, UsedByPlugin};
use conclave_core::fault::{CallReport, Fault, FaultKind};
use conclave_core::ids::{CallId, Millis, ModelName, TimerId};
use conclave_core::model::{ModelError, Prompt};
use conclave_core::tool::ToolError;

use super::port::RoomPort;
use super::{Driver, UnderWay};
use crate::calls::{CallStart, Observer, ToolStart};
use crate::subscribe::{Happening, Level, Subscribers, What};

impl Driver {
    pub(super) fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::StepAgent { call, agent, .. } => self.step_agent(call, agent),
            Effect::AskResponder { call, agent, .. } => self.ask_responder(call, agent),
            Effect::CallTool { call, task, caller, plugin, tool, arguments } => {
                self.call_tool(call, plugin, ToolStart { task, caller, tool, arguments });
            }
            Effect::AskUser { call, task, channel, prompt } => {
                let asked = self.shared.channels.ask(channel, task, prompt);
                self.start(call, Event::UserAnswered { call, text: None }, async move { Event::UserAnswered { call, text: asked.await } });
            }
            Effect::CallModel { call, ordinal, model, prompt } => self.call_model(call, ordinal, &model, prompt),
            Effect::AnswerModel { call, ordinal, answer } => self.waiting.answer(call, ordinal, answer),
            Effect::StartBackground { call, opening, .. } => self.start_background(call, opening),
            Effect::WakeStrategy { call, strategy, wake } => {
                let Some(view) = self.room.delivery_view(call) else { return };
                let (start, plugins) = (self.call_start(call, strategy), Arc::clone(&self.shared.plugins));
                let fallback = Event::StrategyDecided { call, answer: Err(broke_off()), report: CallReport::default() };
                self.start(call, fallback, async move {
                    let (answer, report) = plugins.decide(start, wake, view).await;
                    Event::StrategyDecided { call, answer, report }
                });
            }
            Effect::Speak { call, channel, text, interrupt } => {
                let spoken = self.shared.channels.speak(channel, text, interrupt);
                let fallback = Event::Spoken { call, failure: Some("the channel broke off".to_owned()) };
                self.start(call, fallback, async move { Event::Spoken { call, failure: spoken.await.err() } });
            }
            Effect::SetTimer { timer, at } => self.set_timer(timer, at),
            Effect::AbandonCall { call } => self.abandon_call(call),
            Effect::Finish { .. } => {}
        }
    }

    /// Runs work for a call beside the loop. Should it panic, the host is at fault, and the room gets `fallback` for an answer: nobody
    /// waits for ever.
    fn start(&mut self, call: CallId, fallback: Event, work: impl Future<Output = Event> + Send + 'static) {
        let mut answering = Answering { events: self.sender.clone(), fallback: Some(fallback) };
        let task = tokio::spawn(async move {
            let answer = work.await;
            answering.fallback = None;
            // The room may be over; then nobody takes the answer.
            let _ = answering.events.send(answer);
        });
        self.under_way.insert(call, UnderWay::Work(task.abort_handle()));
    }

    fn call_start(&self, call: CallId, plugin: conclave_core::ids::PluginName) -> CallStart {
        CallStart {
            room: self.id.clone(),
            call,
            now: self.shared.clock.now(),
            scratch: self.room.scratch(call),
            models: Arc::new(RoomPort { events: self.sender.clone(), waiting: Arc::clone(&self.waiting) }),
            observer: Arc::new(Follower {
                subscribers: self.shared.subscribers.clone(),
                room: self.id.clone(),
                plugin: plugin.clone(),
                clock: Arc::clone(&self.shared.clock),
            }),
            plugin,
        }
    }

    fn step_agent(&mut self, call: CallId, agent: conclave_core::ids::PluginName) {
        let Some(view) = self.room.agent_view(call) else { return };
        let (start, plugins) = (self.call_start(call, agent), Arc::clone(&self.shared.plugins));
        let fallback = Event::AgentStepped { call, answer: Err(broke_off()), report: CallReport::default() };
        self.start(call, fallback, async move {
            let (answer, report) = plugins.step(start, view).await;
            Event::AgentStepped { call, answer, report }
        });
    }

    fn ask_responder(&mut self, call: CallId, agent: conclave_core::ids::PluginName) {
        let Some(view) = self.room.agent_view(call) else { return };
        let (start, plugins) = (self.call_start(call, agent), Arc::clone(&self.shared.plugins));
        let fallback = Event::AgentResponded { call, answer: Err(broke_off()), report: CallReport::default() };
        self.start(call, fallback, async move {
            let (answer, report) = plugins.respond(start, view).await;
            Event::AgentResponded { call, answer, report }
        });
    }

    fn call_tool(&mut self, call: CallId, plugin: conclave_core::ids::PluginName, tool: ToolStart) {
        let (start, plugins) = (self.call_start(call, plugin), Arc::clone(&self.shared.plugins));
        let fallback = Event::ToolAnswered { call, answer: Err(ToolError::Fault { fault: broke_off() }), report: CallReport::default() };
        self.start(call, fallback, async move {
            let (answer, report) = plugins.call_tool(start, tool).await;
            Event::ToolAnswered { call, answer, report }
        });
    }

    fn call_model(&mut self, call: CallId, ordinal: u32, model: &ModelName, prompt: Prompt) {
        let events = self.sender.clone();
        let client = self.shared.models.get(model).cloned();
        let name = model.to_string();
        self.beside.spawn(async move {
            let answer = match client {
                Some(client) => client.complete(prompt).await,
                None => Err(ModelError::UnknownModel { name }),
            };
            let _ = events.send(Event::ModelAnswered { call, ordinal, answer });
        });
    }

    fn set_timer(&mut self, timer: TimerId, at: Millis) {
        let (events, sleep) = (self.sender.clone(), self.shared.clock.sleep_until(at));
        self.beside.spawn(async move {
            sleep.await;
            let _ = events.send(Event::TimerFired { timer });
        });
    }

    fn start_background(&mut self, call: CallId, opening: Opening) {
        let events = self.sender.clone();
        let interrupted = move |reason: String| {
            let (ended, spent, used) = (EndedTask::interrupted(reason), Spent::default(), UsedByPlugin::new());
            Event::BackgroundEnded { call, ended, spent, used }
        };
        match Self::open(Arc::clone(&self.shared), Arc::clone(&self.setup), opening) {
            Ok(child) => {
                self.under_way.insert(call, UnderWay::Child(child.sender()));
                let run: std::pin::Pin<Box<dyn Future<Output = _> + Send>> = Box::pin(child.run());
                self.children.spawn(async move {
                    let event = match run.await {
                        Ok(outcome) => {
                            let ended = EndedTask::from_outcome(&outcome);
                            Event::BackgroundEnded { call, ended, spent: outcome.spent, used: outcome.used.clone() }
                        }
                        Err(failure) => interrupted(failure.to_string()),
                    };
                    let _ = events.send(event);
                });
            }
            Err(failure) => drop(events.send(interrupted(failure.to_string()))),
        }
    }

    fn abandon_call(&mut self, call: CallId) {
        self.waiting.forget(call);
        match self.under_way.remove(&call) {
            Some(UnderWay::Work(work)) => work.abort(),
            Some(UnderWay::Child(child)) => drop(child.send(Event::Cancelled { reason: "its parent stopped it".to_owned() })),
            None => {}
        }
    }
}

/// Answers with the fallback when the work did not.
struct Answering {
    events: tokio::sync::mpsc::UnboundedSender<Event>,
    fallback: Option<Event>,
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

/// Tells followers what a plugin does while it runs.
struct Follower {
    subscribers: Subscribers,
    room: conclave_core::ids::RoomId,
    plugin: conclave_core::ids::PluginName,
    clock: Arc<dyn crate::clock::Clock>,
}

impl Follower {
    fn tell(&self, what: What) {
        if !self.subscribers.is_empty() {
            self.subscribers.tell(&Happening { room: self.room.clone(), at: self.clock.now(), what });
        }
    }
}

impl Observer for Follower {
    fn log(&self, call: CallId, level: Level, message: &str) {
        self.tell(What::Logged { call, plugin: self.plugin.clone(), level, message: message.to_owned() });
    }

    fn progress(&self, call: CallId, done: u64, total: Option<u64>, message: &str) {
        self.tell(What::Progressed { call, plugin: self.plugin.clone(), done, total, message: message.to_owned() });
    }

    fn denied(&self, call: CallId, record: &conclave_core::grant::DenialRecord) {
        self.tell(What::Denied { call, plugin: self.plugin.clone(), record: record.clone() });
    }
}
