//! A room as seen from outside: its notices, its journal and its messages, each in order.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use conclave_runtime::channel::{Channels, HumanAnswer, OutgoingMessage};
use conclave_runtime::clock::BoxFuture;
use conclave_runtime::delivery::{Decision, EndedTask};
use conclave_runtime::event::{Event, RunOpening};
use conclave_runtime::ids::{ChannelId, PluginName, RoomId, TaskName};
use conclave_runtime::notice::Notice;
use conclave_runtime::request::RoomRequest;
use conclave_runtime::subscribe::{Published, RunEvent, Subscriber};
use tokio::sync::watch;

use super::agents::lock;

/// A background task that was started.
#[derive(Clone, Debug)]
pub(super) struct Started {
    pub(super) parent: RoomId,
    pub(super) id: String,
    pub(super) room: RoomId,
}

/// A background task that ended, and the observations up to its end.
#[derive(Clone, Debug)]
pub(super) struct Ended {
    pub(super) parent: RoomId,
    pub(super) task: EndedTask,
    pub(super) order: usize,
}

/// All observations.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    /// The events by name and in order. They belong to the top room unless the name says otherwise.
    pub(super) order: Vec<String>,
    pub(super) started: Vec<Started>,
    pub(super) ended: Vec<Ended>,
    /// The opening of each room.
    pub(super) openings: BTreeMap<RoomId, RunOpening>,
    /// Delivered results, with the strategies that delivered them.
    pub(super) delivered: Vec<(String, PluginName)>,
    /// Undelivered results, with the reasons.
    pub(super) not_delivered: Vec<(String, String)>,
    /// The decisions of strategies.
    pub(super) decided: Vec<Vec<Decision>>,
    pub(super) said: Vec<OutgoingMessage>,
    /// The host's messages about results to agents of the top room.
    pub(super) relayed: Vec<String>,
    /// The number of messages that agents of the top room posted.
    pub(super) posted: usize,
    /// Messages that gates blocked, with the reasons.
    pub(super) blocked: Vec<String>,
    /// Failures of plugins.
    pub(super) faults: Vec<(RoomId, PluginName, String)>,
    /// The number of events of each room.
    pub(super) events: BTreeMap<RoomId, u64>,
    /// Rooms whose entry task has ended.
    pub(super) finished: Vec<RoomId>,
}

impl Seen {
    pub(super) fn ended(&self, parent: &RoomId, id: &str) -> Option<&Ended> {
        self.ended.iter().find(|ended| ended.parent == *parent && ended.task.id.as_str() == id)
    }

    /// Returns the number of the host's messages about results, to channels and to agents.
    pub(super) fn inbound(&self) -> usize {
        self.relayed.len() + self.said.iter().filter(|message| is_about_results(message)).count()
    }
}

/// A follower of a room and its descendants. Also answers as their users.
pub(super) struct Follower {
    seen: Mutex<Seen>,
    changed: watch::Sender<u64>,
    /// The number of messages that its channels reject at first.
    deaf: Mutex<u32>,
    /// Whether messages are never answered.
    is_stuck: bool,
}

impl Follower {
    pub(super) fn new(deaf: u32, is_stuck: bool) -> Arc<Self> {
        Arc::new(Self {
            seen: Mutex::default(),
            changed: watch::Sender::new(0),
            deaf: Mutex::new(deaf),
            is_stuck,
        })
    }

    pub(super) fn seen(&self) -> Seen {
        lock(&self.seen).clone()
    }

    /// Waits until `find` returns a value. `None` if the room ends first.
    pub(super) async fn until<T>(&self, find: impl Fn(&Seen) -> Option<T>) -> Option<T> {
        let mut changes = self.changed.subscribe();
        loop {
            changes.mark_unchanged();
            if let Some(found) = find(&lock(&self.seen)) {
                return Some(found);
            }
            if changes.changed().await.is_err() {
                return None;
            }
        }
    }

    pub(super) fn note(&self, name: &str) -> usize {
        self.change(|seen| {
            seen.order.push(name.to_owned());
            seen.order.len()
        })
    }

    fn change<T>(&self, change: impl FnOnce(&mut Seen) -> T) -> T {
        let done = change(&mut lock(&self.seen));
        self.changed.send_modify(|count| *count += 1);
        done
    }

    fn noticed(seen: &mut Seen, room: &RoomId, told: &Notice) {
        let is_child = room.as_str().contains('/');
        let name = |word: &str| if is_child { format!("child:{word}") } else { word.to_owned() };
        match told {
            Notice::BackgroundStarted { id, room: child, .. } => {
                seen.order.push(name("on_task_delegated"));
                let id = id.to_string();
                seen.started.push(Started { parent: room.clone(), id, room: child.clone() });
            }
            Notice::BackgroundEnded { ended } => {
                seen.order.push(name("on_task_completed"));
                let order = seen.order.len();
                seen.ended.push(Ended { parent: room.clone(), task: ended.clone(), order });
            }
            Notice::Delivered { id, strategy: Some(strategy), .. } => {
                seen.delivered.push((id.to_string(), strategy.clone()))
            }
            Notice::NotDelivered { id, reason, .. } => {
                seen.not_delivered.push((id.to_string(), reason.clone()))
            }
            Notice::PluginFaulted { plugin, fault, .. } => {
                seen.faults.push((room.clone(), plugin.clone(), fault.message.clone()))
            }
            Notice::ResultReady { .. } => seen.finished.push(room.clone()),
            Notice::ResultsRelayed { message, .. } if !is_child => {
                seen.order.push("process_inbound".to_owned());
                seen.relayed.push(message.text().to_owned());
            }
            Notice::MessagePosted { .. } if !is_child => seen.posted += 1,
            Notice::GateBlocked { reason, .. } => seen.blocked.push(reason.clone()),
            _ => {}
        }
    }

    fn recorded(seen: &mut Seen, room: &RoomId, event: &Event) {
        *seen.events.entry(room.clone()).or_default() += 1;
        match event {
            Event::RoomOpened { opening, .. } => {
                seen.openings.insert(room.clone(), opening.clone());
            }
            Event::Requested { what: RoomRequest::Delegate { .. }, .. } => {
                seen.order.push("delegate_asked".to_owned())
            }
            Event::StrategyDecided { answer: Ok(decisions), .. } => {
                if decisions
                    .iter()
                    .any(|decision| matches!(decision, Decision::Deliver { interrupt: true, .. }))
                {
                    seen.order.push("interrupt_all".to_owned());
                }
                if decisions.iter().any(|decision| matches!(decision, Decision::Wait { .. })) {
                    seen.order.push("wait_playback_done".to_owned());
                }
                seen.decided.push(decisions.clone());
            }
            _ => {}
        }
    }
}

impl Subscriber for Follower {
    fn on(&self, happening: &Published) {
        match &happening.what {
            RunEvent::Notice { notice: told } => {
                self.change(|seen| Self::noticed(seen, &happening.room, told))
            }
            RunEvent::Recorded { record } => {
                self.change(|seen| Self::recorded(seen, &happening.room, &record.event))
            }
            _ => {}
        }
    }
}

impl Channels for Follower {
    fn ask(&self, _: ChannelId, _: TaskName, _: String) -> BoxFuture<'static, Option<HumanAnswer>> {
        Box::pin(std::future::ready(None))
    }

    fn send(&self, message: OutgoingMessage) -> BoxFuture<'static, Result<(), String>> {
        let mut deaf = lock(&self.deaf);
        if *deaf > 0 {
            *deaf -= 1;
            return Box::pin(std::future::ready(Err("the channel takes nothing now".to_owned())));
        }
        drop(deaf);
        self.change(|seen| {
            if is_about_results(&message) {
                seen.order.push("process_inbound".to_owned());
            }
            seen.said.push(message);
        });
        if self.is_stuck {
            Box::pin(std::future::pending())
        } else {
            Box::pin(std::future::ready(Ok(())))
        }
    }
}

/// Returns whether a message is about results. An agent's answers, which the room also speaks, are
/// not.
fn is_about_results(message: &OutgoingMessage) -> bool {
    !message.tasks.is_empty()
}
