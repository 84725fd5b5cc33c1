//! Open rooms from the view of a program: messages, background tasks and their ends, a close, and a
//! host that stops.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use conclave_core::protocol::event::Event;
use conclave_core::types::ids::Millis;
use conclave_runtime::binding::{Activity, Binding, ChannelKind};
use conclave_runtime::channel::{Channels, HumanAnswer, OutgoingMessage, UnattendedChannel};
use conclave_runtime::clock::{BoxFuture, Clock};
use conclave_runtime::delegation::{BackgroundState, Delegation, OnClose};
use conclave_runtime::ids::{BackgroundId, ChannelId, ControlId, RoomId, TaskName};
use conclave_runtime::journal::{
    Journal, JournalBatch, JournalFailure, Journals, Keeping, MemoryJournals, Opening, Reopening,
};
use conclave_runtime::native::{self, Failure, Plugin, Step};
use conclave_runtime::outcome::Status;
use conclave_runtime::request::{Inbound, RefusalCode, RoomRequest};
use conclave_runtime::runner::{LocalRunner, TaskProgress, TaskRunner};
use conclave_runtime::{
    Host, HostOptions, Prepared, RoomHandle, RunInput, RunOptions, SessionError, WaitError,
};
use tokio::sync::{Notify, mpsc, watch};

use crate::support::{Told, parse};

const TEXT: &str = r#"
entry = "desk"
[plugins.desk]
source = "native:desk"
[plugins.worker]
source = "native:worker"
[tasks.desk]
agent = "desk"
restart = false
[tasks.worker]
agent = "worker"
"#;

/// The state shared by the tests and the worker.
#[derive(Clone, Default)]
struct Bench {
    /// The texts that workers began with.
    started: Arc<Mutex<Vec<String>>>,
    begins: Arc<Notify>,
    /// Whether waiting workers may end.
    goes_on: Arc<watch::Sender<bool>>,
}

impl Bench {
    /// Waits until a worker has begun, so that its call is in the journal.
    async fn wait_started(&self) {
        self.begins.notified().await;
    }

    fn go_on(&self) {
        self.goes_on.send_replace(true);
    }

    /// An agent: `never` waits for ever, and `wait` waits for the test and then reads its messages
    /// in the next step. Any other text ends at once.
    fn worker(&self) -> Plugin {
        let bench = self.clone();
        Plugin::agent("worker", move |step: Step| {
            let bench = bench.clone();
            async move {
                let text = step.text().to_owned();
                if !step.results().is_empty() {
                    let user_text = step
                        .view
                        .latest_user_message
                        .as_deref()
                        .map(|message| message.text().to_owned());
                    return Ok(native::finish(format!("done: {}", user_text.unwrap_or_default())));
                }
                if text.starts_with("never") || text.starts_with("wait") {
                    step.host.progress(1, Some(2), "half of it");
                    bench.started.lock().unwrap().push(text.clone());
                    bench.begins.notify_one();
                }
                if text.starts_with("never") {
                    std::future::pending::<()>().await;
                }
                if text.starts_with("wait") {
                    let _ = bench.goes_on.subscribe().wait_for(|goes_on| *goes_on).await;
                }
                match text.as_str() {
                    // No such tool exists; the error is an answer too, so the next step follows.
                    "wait for a word" => Ok(native::call("nothing", serde_json::json!({}))),
                    "say nothing" => Ok(native::finish("")),
                    text => Ok::<_, Failure>(native::finish(format!("done: {text}"))),
                }
            }
        })
    }

    fn host(&self) -> Host {
        let desk = Plugin::agent("desk", |step: Step| async move {
            Ok(native::finish(format!("{} ({})", step.text(), step.view.history.len())))
        });
        Host::new(HostOptions { native: vec![desk, self.worker()], ..HostOptions::default() })
            .unwrap()
    }

    async fn prepared(&self, more: &str) -> Prepared {
        self.host()
            .load(&parse(&format!("{TEXT}{more}")))
            .await
            .unwrap_or_else(|error| panic!("{error}"))
    }
}

/// A channel that passes on each message.
struct Loud(mpsc::UnboundedSender<OutgoingMessage>);

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

fn loud() -> (Arc<Loud>, mpsc::UnboundedReceiver<OutgoingMessage>) {
    let (sender, receiver) = mpsc::unbounded_channel();
    (Arc::new(Loud(sender)), receiver)
}

fn work(text: &str) -> Delegation {
    Delegation {
        worker: "worker".to_owned(),
        description: text.to_owned(),
        ..Delegation::default()
    }
}

/// A clock that stands still until it is set.
#[derive(Default)]
struct Hands(AtomicU64, Arc<watch::Sender<u64>>, Arc<Notify>);

impl Hands {
    fn set(&self, millis: u64) {
        self.0.store(millis, Ordering::SeqCst);
        self.1.send_replace(millis);
    }
}

impl Clock for Hands {
    fn now(&self) -> Millis {
        Millis(self.0.load(Ordering::SeqCst))
    }

    fn sleep_until(&self, at: Millis) -> BoxFuture<'static, ()> {
        let mut moved = self.1.subscribe();
        self.2.notify_one();
        Box::pin(async move {
            let _ = moved.wait_for(|now| *now >= at.0).await;
        })
    }
}

#[tokio::test]
async fn what_comes_in_is_answered_on_the_channel_and_the_room_stays_open() {
    let (channels, mut spoken) = loud();
    let prepared = Bench::default().prepared("").await;
    let (room, hosted) =
        prepared.open_room(RunOptions { channels, ..RunOptions::default() }).unwrap();
    let first = room.say("terminal", "one").await.unwrap();
    let reply = spoken.recv().await.unwrap();
    assert_eq!((reply.channel.as_str(), reply.text.as_str()), ("terminal", "one (1)"));
    let keyed = Inbound { key: Some("k".to_owned()), ..Inbound::new("terminal", "two") };
    let second = room.inbound(keyed.clone()).await.unwrap();
    assert_eq!(spoken.recv().await.unwrap().text, "two (3)", "it remembers");
    assert_eq!((first.index, second.index, second.duplicate), (0, 1, false));
    let duplicate = room.inbound(keyed).await.unwrap();
    assert_eq!((duplicate.index, duplicate.duplicate), (1, true));
    let refused = room.say("phone", "three").await.unwrap_err();
    assert_eq!(
        (refused.error, refused.allowed),
        (RefusalCode::UnknownChannel, vec!["terminal".to_owned()])
    );
    assert!(!hosted.is_over());
    room.close("that was all").await.unwrap();
    let outcome = hosted.closed().await.unwrap();
    assert_eq!(outcome.content.as_deref(), Some("two (3)"));
    assert_eq!(room.say("terminal", "four").await.unwrap_err().error, RefusalCode::RoomClosed);
    assert_eq!(room.close("again").await, Ok(()), "it is closed");
    assert!(spoken.try_recv().is_err(), "each answer was said once");
}

#[tokio::test]
async fn a_wait_that_is_given_up_leaves_its_task_alone() {
    let (bench, clock) = (Bench::default(), Arc::new(Hands::default()));
    let options = RunOptions { clock: clock.clone(), ..RunOptions::default() };
    let (room, hosted) = bench.prepared("").await.open_room(options).unwrap();
    let task = room.delegate(work("wait a little")).await.unwrap();
    assert_eq!((task.worker.as_str(), task.from_cache), ("worker", false));
    bench.wait_started().await;
    let patience = tokio::spawn({
        let (room, id) = (room.clone(), task.id.clone());
        async move { room.wait(&id, Some(Duration::from_secs(1))).await }
    });
    while !patience.is_finished() {
        clock.set(clock.now().0 + 1_000);
        tokio::task::yield_now().await;
    }
    assert_eq!(patience.await.unwrap(), Err(WaitError::TimedOut));
    let record = room.task(&task.id).unwrap();
    assert_eq!(
        (record.state, record.room.clone(), record.description.as_str()),
        (BackgroundState::Running, task.room.clone(), "wait a little")
    );
    bench.go_on();
    let ended = task.wait(None).await.unwrap();
    assert_eq!(
        (ended.state, ended.output.as_deref()),
        (BackgroundState::Completed, Some("done: wait a little"))
    );
    assert_eq!(
        task.wait(Some(Duration::ZERO)).await.unwrap(),
        ended,
        "it has ended, so no time is needed"
    );
    assert_eq!(room.wait(&BackgroundId::from("task-99"), None).await, Err(WaitError::Unknown));
    let failed = room.delegate(work("say nothing")).await.unwrap().wait(None).await.unwrap();
    assert_eq!(failed.state, BackgroundState::Failed);
    assert!(failed.error.is_some() && failed.output.is_none(), "{failed:?}");
    let states: Vec<_> =
        room.tasks().iter().map(|task| (task.id.to_string(), task.state)).collect();
    assert_eq!(
        states,
        [
            ("task-1".to_owned(), BackgroundState::Completed),
            ("task-2".to_owned(), BackgroundState::Failed)
        ]
    );
    room.close("enough").await.unwrap();
    hosted.closed().await.unwrap();
    assert_eq!(room.tasks().len(), 2, "readable after the room is over");
}

#[tokio::test]
async fn what_cannot_be_delegated_is_refused_with_a_word() {
    let prepared = Bench::default().prepared("").await;
    let (room, _hosted) = prepared.open_room(RunOptions::default()).unwrap();
    let unknown = room
        .delegate(Delegation { worker: "plumber".to_owned(), ..work("mend it") })
        .await
        .unwrap_err();
    assert_eq!(unknown.error, RefusalCode::UnknownAgent);
    assert!(unknown.allowed.contains(&"worker".to_owned()), "{unknown:?}");
    assert_eq!(room.delegate(work("  ")).await.unwrap_err().error, RefusalCode::EmptyTask);
    assert_eq!(
        room.delegate_for("desk", work("mend it")).await.unwrap_err().error,
        RefusalCode::NotGranted
    );
    assert!(room.tasks().is_empty());
}

#[tokio::test]
async fn a_task_is_stopped_and_its_neighbours_go_on() {
    let bench = Bench::default();
    let runner = LocalRunner::new();
    let options = RunOptions { runner: Arc::new(runner.clone()), ..RunOptions::default() };
    let (room, hosted) = bench.prepared("").await.open_room(options).unwrap();
    let stuck = room.delegate(work("never")).await.unwrap();
    bench.wait_started().await;
    let neighbour = room.delegate(work("wait")).await.unwrap();
    bench.wait_started().await;
    assert_eq!(runner.list().len(), 2);
    assert_eq!(room.cancel(&stuck.id, "it takes too long").await, Ok(true));
    let ended = stuck.wait(None).await.unwrap();
    assert_eq!(
        (ended.state, ended.error.as_deref()),
        (BackgroundState::Cancelled, Some("cancelled: it takes too long"))
    );
    assert_eq!(stuck.cancel("again").await, Ok(false), "it has ended");
    assert_eq!(room.cancel(&BackgroundId::from("task-99"), "").await, Ok(false));
    assert_eq!(room.tell(&stuck.id, "hello?").await.unwrap_err().error, RefusalCode::TaskEnded);
    // The task's loop is gone too.
    let _ = runner.wait(&stuck.room, None).await;
    let remaining: Vec<RoomId> = runner.list().into_iter().map(|task| task.room).collect();
    assert_eq!(remaining, std::slice::from_ref(&neighbour.room));
    bench.go_on();
    assert_eq!(neighbour.wait(None).await.unwrap().state, BackgroundState::Completed);
    room.close("enough").await.unwrap();
    hosted.closed().await.unwrap();
}

#[tokio::test]
async fn a_running_task_reads_what_it_is_told() {
    let bench = Bench::default();
    let (room, _hosted) = bench.prepared("").await.open_room(RunOptions::default()).unwrap();
    let task = room.delegate(work("wait for a word")).await.unwrap();
    bench.wait_started().await;
    let mut progress = room.progress(&task.id).expect("it is at work");
    room.tell(&task.id, "hurry").await.unwrap();
    bench.go_on();
    let ended = task.wait(None).await.unwrap();
    assert_eq!(ended.output.as_deref(), Some("done: hurry"));
    assert_eq!(progress.next().await, None, "it has ended");
    assert!(room.progress(&task.id).is_none());
}

#[tokio::test]
async fn the_progress_of_a_task_can_be_followed() {
    let bench = Bench::default();
    let hold = Arc::new(Notify::new());
    let (room, _hosted) = bench
        .prepared("")
        .await
        .open_room(RunOptions { runner: Arc::new(Held::new(&hold)), ..RunOptions::default() })
        .unwrap();
    let task = room.delegate(work("never")).await.unwrap();
    let mut progress = room.progress(&task.id).expect("it is here");
    hold.notify_one();
    assert_eq!(
        progress.next().await,
        Some(TaskProgress { completed: 1, total: Some(2), message: "half of it".to_owned() })
    );
}

/// A runner of the program: each task waits for a notification before it begins.
struct Held {
    inner: LocalRunner,
    word: Arc<Notify>,
    waiting: Arc<Mutex<BTreeMap<RoomId, conclave_runtime::runner::TaskControl>>>,
}

impl Held {
    fn new(word: &Arc<Notify>) -> Self {
        Self { inner: LocalRunner::new(), word: Arc::clone(word), waiting: Arc::default() }
    }
}

impl TaskRunner for Held {
    fn submit(&self, submission: conclave_runtime::runner::Submission) {
        let (inner, word, waiting) =
            (self.inner.clone(), Arc::clone(&self.word), Arc::clone(&self.waiting));
        waiting.lock().unwrap().insert(submission.room().clone(), submission.control());
        tokio::spawn(async move {
            word.notified().await;
            inner.submit(submission);
        });
    }

    fn cancel(&self, room: &RoomId, reason: &str) -> bool {
        self.waiting.lock().unwrap().get(room).map(|control| control.cancel(reason)).is_some()
    }

    fn message(&self, room: &RoomId, id: &ControlId, text: &str) -> bool {
        self.waiting.lock().unwrap().get(room).map(|control| control.tell(id, text)).is_some()
    }

    fn wait(
        &self,
        room: &RoomId,
        at_most: Option<Duration>,
    ) -> BoxFuture<'static, Result<Arc<conclave_runtime::delivery::EndedTask>, WaitError>> {
        self.inner.wait(room, at_most)
    }

    fn list(&self) -> Vec<conclave_runtime::runner::Submitted> {
        self.inner.list()
    }

    fn inspect(&self, room: &RoomId) -> Option<conclave_runtime::runner::Submitted> {
        self.inner.inspect(room)
    }

    fn progress(&self, room: &RoomId) -> Option<conclave_runtime::runner::ProgressStream> {
        self.waiting.lock().unwrap().get(room).map(conclave_runtime::runner::TaskControl::progress)
    }

    fn detach(&self, room: &RoomId) -> bool {
        self.inner.detach(room)
    }

    fn close(&self, reason: &str) -> BoxFuture<'static, ()> {
        self.inner.close(reason)
    }
}

#[tokio::test]
async fn no_more_tasks_run_at_once_than_the_runner_lets() {
    let bench = Bench::default();
    let runner = LocalRunner::with_limit(1.try_into().unwrap());
    let options = RunOptions { runner: Arc::new(runner.clone()), ..RunOptions::default() };
    let (room, _hosted) = bench.prepared("").await.open_room(options).unwrap();
    let first = room.delegate(work("wait 1")).await.unwrap();
    let second = room.delegate(work("wait 2")).await.unwrap();
    let third = room.delegate(work("wait 3")).await.unwrap();
    bench.wait_started().await;
    assert_eq!(*bench.started.lock().unwrap(), ["wait 1"]);
    // A task that has not begun can be stopped too.
    assert_eq!(second.cancel("not needed").await, Ok(true));
    bench.go_on();
    assert_eq!(first.wait(None).await.unwrap().state, BackgroundState::Completed);
    assert_eq!(third.wait(None).await.unwrap().state, BackgroundState::Completed);
    assert_eq!(second.wait(None).await.unwrap().state, BackgroundState::Cancelled);
    assert_eq!(*bench.started.lock().unwrap(), ["wait 1", "wait 3"]);
}

#[tokio::test]
async fn a_handle_does_not_hold_its_room_open() {
    let bench = Bench::default();
    let journals = MemoryJournals::default();
    let options = RunOptions {
        journals: Arc::new(journals.clone()),
        ids: Arc::new(RoomId::from("r")),
        ..RunOptions::default()
    };
    let (room, hosted) = bench.prepared("").await.open_room(options).unwrap();
    let task = room.delegate(work("never")).await.unwrap();
    bench.wait_started().await;
    let waits = tokio::spawn({
        let task = task.clone();
        async move { task.wait(None).await }
    });
    drop(hosted);
    let ended = waits.await.unwrap();
    assert!(
        matches!(&ended, Err(WaitError::RoomOver))
            || ended.is_ok_and(|record| record.state == BackgroundState::Cancelled)
    );
    // A request during the stop still gets a reply, at least `room_closed`.
    while room.say("terminal", "hello?").await.is_ok() {
        tokio::task::yield_now().await;
    }
    assert_eq!(room.say("terminal", "hello?").await.unwrap_err().error, RefusalCode::RoomClosed);
    let stopped = |record: &Arc<conclave_runtime::event::Record>| {
        matches!(record.event, Event::Cancelled { .. })
    };
    assert!(
        journals.records(&RoomId::from("r")).iter().any(stopped),
        "the journal says that it was stopped"
    );
}

#[tokio::test]
async fn a_session_is_asked_only_while_a_run_goes_on() {
    let mut session = Bench::default().prepared("").await.session(RunOptions::default()).unwrap();
    let room = session.handle();
    assert_eq!(
        room.say("terminal", "hello?").await.unwrap_err().error,
        RefusalCode::RoomClosed,
        "no run goes on"
    );
    session.run(RunInput::from("one")).await.unwrap();
    assert_eq!(
        room.say("terminal", "hello?").await.unwrap_err().error,
        RefusalCode::RoomClosed,
        "none goes on any more"
    );
    let (_, hosted) = session.open_room(RunInput::from("two"));
    room.close("that was all").await.unwrap();
    assert_eq!(
        hosted.closed().await.unwrap().content.as_deref(),
        Some("two (3)"),
        "the handle of before speaks to the next run too"
    );
}

#[tokio::test]
async fn a_room_with_an_unknown_entry_says_so_when_it_is_waited_for() {
    let session = Bench::default().prepared("").await.session(RunOptions::default()).unwrap();
    let (room, hosted) = session
        .open_room(RunInput { entry: Some(TaskName::from("nobody")), ..RunInput::default() });
    assert!(matches!(hosted.closed().await, Err(SessionError::UnknownTask { .. })));
    assert_eq!(room.say("terminal", "hello?").await.unwrap_err().error, RefusalCode::RoomClosed);
}

#[tokio::test]
async fn a_task_that_is_let_go_comes_to_its_end_after_its_room() {
    let bench = Bench::default();
    let (journals, runner) = (MemoryJournals::default(), LocalRunner::new());
    let options = RunOptions {
        journals: Arc::new(journals.clone()),
        runner: Arc::new(runner.clone()),
        ..RunOptions::default()
    };
    let (room, hosted) = bench.prepared("").await.open_room(options).unwrap();
    let detached = room
        .delegate(Delegation { on_close: Some(OnClose::Detach), ..work("wait alone") })
        .await
        .unwrap();
    bench.wait_started().await;
    let with_it = room.delegate(work("never")).await.unwrap();
    bench.wait_started().await;
    room.close("that was all").await.unwrap();
    hosted.closed().await.unwrap();
    assert_eq!(room.task(&with_it.id).unwrap().state, BackgroundState::Cancelled);
    assert!(room.task(&detached.id).unwrap().detached);
    assert_eq!(detached.wait(None).await, Err(WaitError::RoomOver), "nobody here learns its end");
    let remaining = runner.inspect(&detached.room).unwrap();
    assert!(remaining.is_detached);
    let waits = runner.wait(&detached.room, None);
    bench.go_on();
    assert_eq!(waits.await.unwrap().output.as_deref(), Some("done: wait alone"));
    let folded = conclave_core::journal::record::fold(
        journals.records(&detached.room).iter().map(|record| (**record).clone()),
    );
    assert_eq!(
        folded.outcome().and_then(|outcome| outcome.content.clone()).as_deref(),
        Some("done: wait alone")
    );
    assert_eq!(runner.list(), []);
}

#[tokio::test]
async fn a_host_that_stops_everything_stops_what_was_let_go_too() {
    let (bench, runner) = (Bench::default(), LocalRunner::new());
    let host = bench.host();
    let prepared = host.load(&parse(TEXT)).await.unwrap_or_else(|error| panic!("{error}"));
    let options = RunOptions { runner: Arc::new(runner.clone()), ..RunOptions::default() };
    let (room, hosted) = prepared.open_room(options).unwrap();
    let detached = room
        .delegate(Delegation { on_close: Some(OnClose::Detach), ..work("never") })
        .await
        .unwrap();
    bench.wait_started().await;
    room.close("that was all").await.unwrap();
    hosted.closed().await.unwrap();
    let waits = runner.wait(&detached.room, None);
    assert_eq!(host.stop_all("the program ends"), 1);
    assert_eq!(waits.await.unwrap().error.as_deref(), Some("the program ends"));
}

#[tokio::test]
async fn a_runner_that_closes_stops_the_tasks_of_its_rooms() {
    let (bench, runner) = (Bench::default(), LocalRunner::new());
    let options = RunOptions { runner: Arc::new(runner.clone()), ..RunOptions::default() };
    let (room, _hosted) = bench.prepared("").await.open_room(options).unwrap();
    let stuck = room.delegate(work("never")).await.unwrap();
    bench.wait_started().await;
    runner.close("the program ends").await;
    assert_eq!(stuck.wait(None).await.unwrap().state, BackgroundState::Cancelled);
    let late = room.delegate(work("never")).await.unwrap();
    assert_eq!(
        late.wait(None).await.unwrap().state,
        BackgroundState::Cancelled,
        "it takes no more"
    );
}

#[tokio::test]
async fn a_held_room_that_was_cut_off_goes_on() {
    let (bench, room_id) = (Bench::default(), RoomId::from("r"));
    let prepared = bench.prepared("").await;
    let stored = {
        let journals = MemoryJournals::default();
        let options = RunOptions {
            journals: Arc::new(journals.clone()),
            ids: Arc::new(room_id.clone()),
            ..RunOptions::default()
        };
        let (room, _hosted) = prepared.open_room(options).unwrap();
        room.bind("desk", Binding::of(ChannelKind::Web)).await.unwrap();
        room.delegate(work("wait a little")).await.unwrap();
        bench.wait_started().await;
        // The records that were written before the power loss.
        journals
    };
    let cut_off = MemoryJournals::default();
    for room in stored.rooms() {
        let records = stored.records(&room);
        // The `Cancelled` comes from the end of the block above.
        let records = records
            .into_iter()
            .take_while(|record| !matches!(record.event, Event::Cancelled { .. }));
        put(&cut_off, &room, records);
    }
    let options = RunOptions { journals: Arc::new(cut_off.clone()), ..RunOptions::default() };
    let session = prepared.reopen(&room_id, options).await.unwrap();
    assert!(session.is_cut_off());
    let (room, hosted) = session.resume_room();
    let tasks = room.tasks();
    assert_eq!(tasks.len(), 1);
    assert_eq!(
        tasks[0].state,
        BackgroundState::Running,
        "the list is there before anything happens"
    );
    assert!(room.bindings().contains_key("desk"), "{:?}", room.bindings());
    bench.go_on();
    assert_eq!(
        room.wait(&tasks[0].id, None).await.unwrap().output.as_deref(),
        Some("done: wait a little")
    );
    // Replies go to the present requests, never to those of the earlier host.
    room.say("desk", "still there?").await.unwrap();
    room.close("that was all").await.unwrap();
    hosted.closed().await.unwrap();
    let numbers = cut_off
        .records(&room_id)
        .iter()
        .filter_map(|record| match record.event {
            Event::Requested { request, .. } => Some(request),
            _ => None,
        })
        .collect::<Vec<_>>();
    assert_eq!(numbers.len(), 4);
    assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]), "{numbers:?}");
}

#[tokio::test]
async fn what_a_task_was_told_right_before_its_host_stopped_is_read_once() {
    // The two cases differ only in whether the child room's record was durable.
    for is_kept in [false, true] {
        let (bench, room_id) = (Bench::default(), RoomId::from("r"));
        let prepared = bench.prepared("").await;
        let stored = {
            let journals = MemoryJournals::default();
            let options = RunOptions {
                journals: Arc::new(journals.clone()),
                ids: Arc::new(room_id.clone()),
                ..RunOptions::default()
            };
            let (room, _hosted) = prepared.open_room(options).unwrap();
            let task = room.delegate(work("wait for a word")).await.unwrap();
            bench.wait_started().await;
            room.tell(&task.id, "hurry").await.unwrap();
            journals
        };
        let cut_off = MemoryJournals::default();
        let is_user_message =
            |event: &Event| matches!(event.effective(), Event::UserMessageSent { .. });
        for room in stored.rooms() {
            let records = stored.records(&room).into_iter();
            let before = records.take_while(|record| {
                !matches!(record.event, Event::Cancelled { .. })
                    && (is_kept || !is_user_message(&record.event))
            });
            put(&cut_off, &room, before);
        }
        let options = RunOptions { journals: Arc::new(cut_off.clone()), ..RunOptions::default() };
        let (room, _hosted) = prepared.reopen(&room_id, options).await.unwrap().resume_room();
        let task = room.tasks()[0].id.clone();
        bench.go_on();
        let ended = room.wait(&task, None).await.unwrap();
        assert_eq!(ended.output.as_deref(), Some("done: hurry"), "kept by the child: {is_kept}");
        let child = cut_off.records(&RoomId::from("r/1"));
        assert_eq!(
            child.iter().filter(|record| is_user_message(&record.event)).count(),
            1,
            "kept by the child: {is_kept}"
        );
    }
}

/// Puts records into journals as an interrupted host leaves them.
pub(crate) fn put(
    journals: &MemoryJournals,
    room: &RoomId,
    records: impl Iterator<Item = Arc<conclave_runtime::event::Record>>,
) {
    let records: Vec<_> = records.collect();
    let mut journal = futures_executor::block_on(journals.open(room).unwrap()).unwrap();
    let spent = conclave_core::types::usage::Spent::default();
    journal
        .append(&JournalBatch { records: &records, waits: &[], outcome: None, spent })
        .map(drop)
        .unwrap();
}

#[tokio::test]
async fn channels_are_told_of_the_room_that_they_serve() {
    /// Sends a message as soon as the room is open.
    struct Eager(Arc<Mutex<Vec<RoomId>>>);

    impl Channels for Eager {
        fn ask(
            &self,
            channel: ChannelId,
            task: TaskName,
            prompt: String,
        ) -> BoxFuture<'static, Option<HumanAnswer>> {
            UnattendedChannel.ask(channel, task, prompt)
        }

        fn send(&self, message: OutgoingMessage) -> BoxFuture<'static, Result<(), String>> {
            UnattendedChannel.send(message)
        }

        fn opened(&self, room: &RoomHandle) {
            self.0.lock().unwrap().push(room.room().clone());
            let room = room.clone();
            tokio::spawn(async move {
                room.say("terminal", "hello").await.unwrap();
                room.delegate(work("mend it")).await.unwrap().wait(None).await.unwrap();
                room.close("that was all").await.unwrap();
            });
        }
    }

    let opened = Arc::new(Mutex::new(Vec::new()));
    let options = RunOptions {
        channels: Arc::new(Eager(opened.clone())),
        ids: Arc::new(RoomId::from("r")),
        ..RunOptions::default()
    };
    let (_room, hosted) = Bench::default().prepared("").await.open_room(options).unwrap();
    assert_eq!(hosted.closed().await.unwrap().content.as_deref(), Some("hello (1)"));
    assert_eq!(*opened.lock().unwrap(), [RoomId::from("r")], "the room, and not those below it");
}

#[tokio::test]
async fn a_simulated_voice_keeps_its_channel_busy() {
    let (channels, mut spoken) = loud();
    let (clock, recorder) = (Arc::new(Hands::default()), Told::default());
    let options = RunOptions { channels, clock: clock.clone(), ..recorder.options() };
    let prepared = Bench::default()
        .prepared("[channels.phone]\nkind = \"voice\"\nsimulate = \"100 ms\"\n")
        .await;
    let (room, hosted) = prepared.open_room(options).unwrap();
    assert_eq!(room.bindings().get("phone").and_then(|binding| binding.simulate_ms), Some(100));
    room.say("phone", "one").await.unwrap();
    loop {
        let reply = spoken.recv().await.unwrap();
        if reply.channel.as_str() == "phone" {
            break;
        }
    }
    clock.2.notified().await;
    clock.set(1_000);
    room.close("that was all").await.unwrap();
    hosted.closed().await.unwrap();
    let activities: Vec<Activity> = recorder
        .happenings()
        .into_iter()
        .filter_map(|happening| match happening.what {
            conclave_runtime::subscribe::RunEvent::Recorded { record } => match &record.event {
                Event::Requested { what: RoomRequest::Activity { activity, .. }, .. } => {
                    Some(*activity)
                }
                _ => None,
            },
            _ => None,
        })
        .collect();
    assert_eq!(activities, [Activity::Speaking, Activity::Idle]);
}

#[tokio::test]
async fn a_run_that_is_not_held_can_be_spoken_to_while_it_works() {
    let bench = Bench::default();
    let mut session = bench.prepared("").await.session(RunOptions::default()).unwrap();
    let room = session.handle();
    let run = session.run(RunInput {
        entry: Some(TaskName::from("worker")),
        ..RunInput::from("wait for a word")
    });
    let ((), outcome) = tokio::join!(
        async {
            bench.wait_started().await;
            room.say("terminal", "hurry").await.unwrap();
            bench.go_on();
        },
        run
    );
    let outcome = outcome.unwrap();
    assert_eq!((outcome.status, outcome.content.as_deref()), (Status::Done, Some("done: hurry")));
}

/// Journals in memory; those of child rooms can be opened, reopened and appended to only once the
/// gate is open.
#[derive(Clone)]
struct Gated {
    journals: MemoryJournals,
    gate: watch::Sender<bool>,
    /// Notified when a child's journal waits at the gate.
    waits: Arc<Notify>,
    /// Whether they wait when they open, or at their first record.
    at_open: bool,
}

struct GatedOne(Gated, Box<dyn Journal>);

impl Gated {
    fn new(journals: MemoryJournals, at_open: bool) -> Self {
        Self { journals, gate: watch::Sender::new(false), waits: Arc::default(), at_open }
    }

    async fn pass(&self) {
        self.waits.notify_one();
        let _ = self.gate.subscribe().wait_for(|is_open| *is_open).await;
    }
}

fn is_child(room: &RoomId) -> bool {
    room.as_str().contains('/')
}

impl Journals for Gated {
    fn open(&self, room: &RoomId) -> Result<Opening, JournalFailure> {
        let (gated, opening) = (self.clone(), self.journals.open(room)?);
        if !is_child(room) {
            return Ok(opening);
        }
        Ok(Box::pin(async move {
            if gated.at_open {
                gated.pass().await;
                return opening.await;
            }
            let journal: Box<dyn Journal> = Box::new(GatedOne(gated, opening.await?));
            Ok(journal)
        }))
    }

    fn reopen(&self, room: &RoomId, now: Millis) -> Reopening {
        let (gated, reopening, is_child) =
            (self.clone(), self.journals.reopen(room, now), is_child(room));
        Box::pin(async move {
            if is_child {
                gated.pass().await;
            }
            reopening.await
        })
    }
}

impl Journal for GatedOne {
    fn ready(&mut self) -> BoxFuture<'_, Result<(), JournalFailure>> {
        Box::pin(async {
            self.0.pass().await;
            Ok(())
        })
    }

    fn append(&mut self, entry: &JournalBatch<'_>) -> Result<Keeping, JournalFailure> {
        self.1.append(entry)
    }
}

#[tokio::test(flavor = "current_thread")]
async fn a_room_goes_on_while_its_childs_journal_is_opened_or_full() {
    for at_open in [true, false] {
        let (bench, journals) = (Bench::default(), Gated::new(MemoryJournals::default(), at_open));
        let options = RunOptions { journals: Arc::new(journals.clone()), ..RunOptions::default() };
        let (room, hosted) = bench.prepared("").await.open_room(options).unwrap();
        let task = room.delegate(work("quick")).await.unwrap();
        journals.waits.notified().await;
        // The single thread is free, and so is the parent's loop: it journals requests and replies.
        room.bind("desk", Binding::of(ChannelKind::Web)).await.unwrap();
        room.say("desk", "still there?").await.unwrap();
        assert!(journals.journals.records(&task.room).is_empty() && !*journals.gate.borrow());
        journals.gate.send_replace(true);
        assert_eq!(task.wait(None).await.unwrap().output.as_deref(), Some("done: quick"));
        // A task that is stopped meanwhile ends as cancelled.
        journals.gate.send_replace(false);
        let stopped = room.delegate(work("never")).await.unwrap();
        journals.waits.notified().await;
        assert!(stopped.cancel("no longer needed").await.unwrap());
        journals.gate.send_replace(true);
        assert_eq!(stopped.wait(None).await.unwrap().state, BackgroundState::Cancelled);
        room.close("that was all").await.unwrap();
        hosted.closed().await.unwrap();
    }
}

#[tokio::test(flavor = "current_thread")]
async fn a_room_that_is_resumed_goes_on_while_its_childs_journal_is_read() {
    let (bench, room_id) = (Bench::default(), RoomId::from("r"));
    let prepared = bench.prepared("").await;
    let stored = {
        let journals = MemoryJournals::default();
        let options = RunOptions {
            journals: Arc::new(journals.clone()),
            ids: Arc::new(room_id.clone()),
            ..RunOptions::default()
        };
        let (room, _hosted) = prepared.open_room(options).unwrap();
        room.delegate(work("wait a little")).await.unwrap();
        bench.wait_started().await;
        journals
    };
    let cut_off = MemoryJournals::default();
    for room in stored.rooms() {
        let records = stored.records(&room);
        put(
            &cut_off,
            &room,
            records
                .into_iter()
                .take_while(|record| !matches!(record.event, Event::Cancelled { .. })),
        );
    }
    let journals = Gated::new(cut_off, true);
    let options = RunOptions { journals: Arc::new(journals.clone()), ..RunOptions::default() };
    let (room, hosted) = prepared.reopen(&room_id, options).await.unwrap().resume_room();
    journals.waits.notified().await;
    room.bind("desk", Binding::of(ChannelKind::Web)).await.unwrap();
    room.say("desk", "still there?").await.unwrap();
    journals.gate.send_replace(true);
    bench.go_on();
    let task = room.tasks().remove(0);
    assert_eq!(
        room.wait(&task.id, None).await.unwrap().output.as_deref(),
        Some("done: wait a little")
    );
    room.close("that was all").await.unwrap();
    hosted.closed().await.unwrap();
}
