//! Inbound messages, ending tasks and the delivery of their results, a looping task that is
//! stopped, and a fallback for a strategy that fails.

use std::sync::Arc;
use std::time::Duration;

use conclave_core::protocol::notice::Notice;
use conclave_core::types::fault::FaultKind;
use conclave_runtime::RunOptions;
use conclave_runtime::channel::{Channels, HumanAnswer, OutgoingMessage, UnattendedChannel};
use conclave_runtime::clock::BoxFuture;
use conclave_runtime::delegation::{BackgroundState, Delegation};
use conclave_runtime::delivery::DeliveryState;
use conclave_runtime::ids::{ChannelId, TaskName};
use conclave_runtime::runner::{LocalRunner, TaskRunner};
use conclave_runtime::subscribe::{Published, RunEvent, Subscriber, Subscribers};
use conclave_test_support::block_on;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::{IMMEDIATE, host, prepared, strategy};

/// A channel that forwards messages to the test.
struct Loud(UnboundedSender<OutgoingMessage>);

impl Channels for Loud {
    fn ask(
        &self,
        channel: ChannelId,
        task: TaskName,
        prompt: String,
    ) -> BoxFuture<'static, Option<HumanAnswer>> {
        UnattendedChannel.ask(channel, task, prompt)
    }

    fn send(&self, message: OutgoingMessage) -> BoxFuture<'static, Result<(), String>> {
        let _ = self.0.send(message);
        Box::pin(std::future::ready(Ok(())))
    }
}

/// A subscriber that forwards notices to the test.
struct Notices(UnboundedSender<Notice>);

impl Subscriber for Notices {
    fn on(&self, happening: &Published) {
        if let RunEvent::Notice { notice: told } = &happening.what {
            let _ = self.0.send(told.clone());
        }
    }
}

struct Following {
    heard: UnboundedReceiver<OutgoingMessage>,
    notices: UnboundedReceiver<Notice>,
}

fn followed() -> (RunOptions, Following) {
    let ((say, heard), (tell, notices)) = (unbounded_channel(), unbounded_channel());
    let subscribers = Subscribers::new([Arc::new(Notices(tell)) as Arc<dyn Subscriber>]);
    (
        RunOptions { channels: Arc::new(Loud(say)), subscribers, ..RunOptions::default() },
        Following { heard, notices },
    )
}

fn work(agent: &str, task: &str) -> Delegation {
    Delegation { worker: agent.to_owned(), description: task.to_owned(), ..Delegation::default() }
}

#[test]
fn a_conversation_goes_on_while_its_tasks_run_and_each_result_comes_once() {
    block_on(async {
        let host = host();
        let (options, mut following) = followed();
        let (room, hosted) = prepared(&host, IMMEDIATE).await.open_room(options).expect("it opens");
        let task = room.delegate(work("echo", "Digest the folder.")).await.expect("it may");
        room.say("terminal", "Meanwhile?").await.expect("it is open");
        let ended = task.wait(None).await.expect("it ends");
        assert_eq!(
            (ended.state, ended.output.as_deref()),
            (BackgroundState::Completed, Some("Digest the folder."))
        );
        let (first, second) = (
            following.heard.recv().await.expect("said"),
            following.heard.recv().await.expect("said"),
        );
        let mut texts = [first.text.as_str(), second.text.as_str()];
        texts.sort_unstable();
        assert_eq!(texts, ["Digest the folder.", "Meanwhile?"]);
        let told = [first, second]
            .into_iter()
            .find(|message| !message.tasks.is_empty())
            .expect("one is about the task");
        assert_eq!(told.tasks, std::slice::from_ref(&task.id));
        room.close("that was all").await.expect("it is open");
        hosted.closed().await.expect("it ends");
        assert_eq!(
            room.task(&task.id).map(|record| record.delivery.state),
            Some(DeliveryState::Delivered)
        );
        assert!(following.heard.try_recv().is_err(), "nothing was said twice");
    });
}

#[test]
fn a_guest_in_a_tight_loop_is_stopped_at_once_and_its_neighbours_go_on() {
    block_on(async {
        let host = host();
        let runner = LocalRunner::new();
        let options = RunOptions { runner: Arc::new(runner.clone()), ..RunOptions::default() };
        let (room, hosted) = prepared(&host, IMMEDIATE).await.open_room(options).expect("it opens");
        let before = host.engine().live();
        let stuck = room.delegate(work("stuck", "Spin.")).await.expect("it may");
        while host.engine().live() == before {
            tokio::task::yield_now().await;
        }
        assert_eq!(
            stuck.wait(Some(Duration::ZERO)).await.map(|record| record.state).ok(),
            None,
            "it spins"
        );
        assert_eq!(stuck.cancel("it takes too long").await, Ok(true));
        assert_eq!(
            stuck.wait(None).await.map(|record| record.state),
            Ok(BackgroundState::Cancelled)
        );
        // The sandbox is freed at the next tick.
        while host.engine().live() > before {
            tokio::task::yield_now().await;
        }
        let _ = runner.wait(&stuck.room, None).await;
        assert_eq!(runner.list(), []);
        let neighbour = room.delegate(work("echo", "And you?")).await.expect("it may");
        assert_eq!(
            neighbour.wait(None).await.expect("it ends").output.as_deref(),
            Some("And you?")
        );
        room.close("that was all").await.expect("it is open");
        hosted.closed().await.expect("it ends");
    });
}

/// Checks that the result is queued for the agent and that the operator reads the reason.
fn falls_back(strategy: &str, expected: FaultKind) {
    block_on(async {
        let host = host();
        let (options, mut following) = followed();
        let (room, hosted) = prepared(&host, strategy).await.open_room(options).expect("it opens");
        let task = room.delegate(work("echo", "Digest the folder.")).await.expect("it may");
        let mut faults = Vec::new();
        loop {
            match following.notices.recv().await.expect("the room is open") {
                Notice::PluginFaulted { fault, .. } => faults.push(fault.kind),
                Notice::NotDelivered { id, .. } => {
                    assert_eq!(id, task.id);
                    break;
                }
                _ => {}
            }
        }
        assert_eq!(faults, [expected]);
        room.close("that was all").await.expect("it is open");
        hosted.closed().await.expect("it ends");
        let record = room.task(&task.id).expect("it is listed");
        assert_eq!(
            (record.state, record.delivery.state),
            (BackgroundState::Completed, DeliveryState::Inbox)
        );
        assert!(following.heard.try_recv().is_err(), "nothing was said");
    });
}

#[test]
fn a_strategy_that_spins_is_done_without() {
    falls_back(&strategy("strategy_spin", "limits = { cpu = \"50 ms\" }"), FaultKind::Cpu);
}
