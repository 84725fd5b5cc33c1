use std::sync::atomic::{AtomicUsize, Ordering};

use conclave_core::protocol::event::{Event, RunOpening};
use conclave_core::types::delivery::BackgroundStatus;
use conclave_core::types::ids::{BackgroundId, TaskName};
use conclave_core::types::usage::{Spent, UsedByPlugin};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::super::{Child, EndReporter, Progressing, TaskEnd};
use super::*;
use crate::driver::event_queue::{EventQueue, event_queue};
use crate::driver::room_handle::{RoomClients, RoomHandle};
use crate::support::clock::SystemClock;

/// A task whose work is a future of a test, and the ends that its parent received.
struct Task {
    submission: Submission,
    ends: UnboundedReceiver<TaskEnd>,
}

fn ended(status: BackgroundStatus, why: &str) -> TaskEnd {
    let task = EndedTask { status, ..EndedTask::interrupted(why.to_owned()) };
    TaskEnd { task, spent: Spent::default(), used: UsedByPlugin::new() }
}

fn task<F: Future<Output = TaskEnd> + Send + 'static>(
    room: &str,
    work: impl FnOnce(EventQueue) -> F,
) -> Task {
    let (events, received) = event_queue();
    let (tell, ends): (UnboundedSender<TaskEnd>, _) = unbounded_channel();
    let opening = Box::new(RunOpening {
        room: RoomId::from(room),
        entry: TaskName::from("worker"),
        ..RunOpening::default()
    });
    let (parent, id, progressing) =
        (RoomId::from("r"), BackgroundId::from(room), Progressing::default());
    let place = EndReporter::new(Spent { turns: 7, ..Spent::default() }, move |ended| {
        drop(tell.send(ended))
    });
    let clients = Arc::new(RoomClients::new(Arc::new(LocalRunner::new()), Arc::new(SystemClock)));
    let handle = RoomHandle::new(opening.room.clone(), &events, clients);
    let child = Child { parent, id, opening, handle, progressing };
    let work = work(received);
    let run = async move {
        // A handle keeps no room open; its loop does.
        let _events = events;
        work.await
    };
    Task { submission: Submission::new(child, Box::pin(run), place), ends }
}

/// Returns a task that works until it is cancelled.
fn endless(room: &str) -> Task {
    task(room, |mut events| async move {
        loop {
            match events.recv().await {
                Some(Event::Cancelled { reason }) => {
                    return ended(BackgroundStatus::Cancelled, &reason);
                }
                Some(_) => {}
                None => std::future::pending().await,
            }
        }
    })
}

fn quick(room: &str) -> Task {
    task(room, |_| std::future::ready(ended(BackgroundStatus::Completed, "")))
}

impl Task {
    /// Returns the only end that the parent received.
    async fn end(&mut self) -> TaskEnd {
        let first = self.ends.recv().await.expect("the parent is told");
        assert!(self.ends.recv().await.is_none(), "and only once");
        first
    }
}

/// Submits a task and returns it with the ends that its parent receives.
fn submit(runner: &LocalRunner, task: Task) -> Task {
    let Task { submission, ends } = task;
    runner.submit(submission);
    // Only the ends are read from here on, so a placeholder replaces the submission.
    let Task { submission, .. } = quick("unused");
    Task { submission, ends }
}

fn limited(at_once: usize) -> LocalRunner {
    LocalRunner::with_limit(NonZeroUsize::new(at_once).unwrap())
}

fn states(runner: &LocalRunner) -> Vec<(String, BackgroundState)> {
    runner.list().into_iter().map(|task| (task.room.to_string(), task.state)).collect()
}

#[tokio::test]
async fn however_a_task_ends_its_parent_is_told_once() {
    let runner = LocalRunner::new();
    let mut quick = submit(&runner, quick("r/1"));
    assert_eq!(quick.end().await.task.status, BackgroundStatus::Completed);

    let mut panicked = submit(&runner, task("r/2", |_| async { panic!("a fault of the host's") }));
    let end = panicked.end().await;
    assert_eq!(
        (end.task.status, end.spent.turns),
        (BackgroundStatus::Interrupted, 7),
        "all that was set aside counts"
    );

    let Task { submission, ends } = endless("r/3");
    drop(submission);
    let mut dropped = Task { ends, ..endless("unused") };
    assert_eq!(dropped.end().await.task.status, BackgroundStatus::Interrupted);

    let Task { submission, ends } = endless("r/4");
    submission.finish(ended(BackgroundStatus::Completed, "elsewhere"));
    let mut finished = Task { ends, ..endless("unused") };
    assert_eq!(finished.end().await.task.status, BackgroundStatus::Completed);
    assert_eq!(runner.list(), [], "none is left");
}

#[tokio::test]
async fn no_more_run_at_once_than_may_and_the_first_comes_first() {
    let runner = limited(2);
    let mut tasks: Vec<Task> =
        (1..=4).map(|n| submit(&runner, endless(&format!("r/{n}")))).collect();
    // The workers begin with the next turn of the executor.
    tokio::task::yield_now().await;
    let (running, pending) = (BackgroundState::Running, BackgroundState::Pending);
    let expected = |list: &[(&str, BackgroundState)]| {
        list.iter().map(|(room, state)| ((*room).to_owned(), *state)).collect::<Vec<_>>()
    };
    assert_eq!(
        states(&runner),
        expected(&[("r/1", running), ("r/2", running), ("r/3", pending), ("r/4", pending)])
    );
    assert!(runner.cancel(&RoomId::from("r/2"), "enough"));
    assert_eq!(tasks[1].end().await.task.error.as_deref(), Some("enough"));
    tokio::task::yield_now().await;
    assert_eq!(states(&runner), expected(&[("r/1", running), ("r/3", running), ("r/4", pending)]));
    // A queued task is stopped before it begins, so its usage is zero.
    assert!(runner.cancel(&RoomId::from("r/4"), "not needed"));
    let stopped = tasks[3].end().await;
    assert_eq!(
        (stopped.task.status, stopped.spent),
        (BackgroundStatus::Cancelled, Spent::default())
    );
    assert!(!runner.cancel(&RoomId::from("r/4"), "again"), "it is not here any more");
    assert_eq!(states(&runner), expected(&[("r/1", running), ("r/3", running)]));
}

#[tokio::test]
async fn a_panic_leaves_its_place_to_the_next() {
    let runner = limited(1);
    let mut first = submit(&runner, task("r/1", |_| async { panic!("a fault of the host's") }));
    let mut second = submit(&runner, quick("r/2"));
    assert_eq!(first.end().await.task.status, BackgroundStatus::Interrupted);
    assert_eq!(second.end().await.task.status, BackgroundStatus::Completed);
}

#[tokio::test]
async fn waiting_leaves_a_task_alone() {
    let runner = LocalRunner::new();
    let room = RoomId::from("r/1");
    assert_eq!(runner.wait(&room, None).await, Err(WaitError::Unknown));
    let mut task = submit(&runner, endless("r/1"));
    assert_eq!(runner.wait(&room, Some(Duration::ZERO)).await, Err(WaitError::TimedOut));
    assert!(runner.inspect(&room).is_some() && runner.message(&room, &"told".into(), "hurry"));
    let waits = runner.wait(&room, None);
    runner.cancel(&room, "enough");
    assert_eq!(waits.await.unwrap().status, BackgroundStatus::Cancelled);
    assert_eq!(task.end().await.task.status, BackgroundStatus::Cancelled);
    assert!(!runner.message(&room, &"told".into(), "too late") && runner.progress(&room).is_none());
}

#[tokio::test]
async fn a_runner_that_closes_leaves_nothing_behind() {
    let runner = limited(2);
    let mut tasks: Vec<Task> =
        (1..=3).map(|n| submit(&runner, endless(&format!("r/{n}")))).collect();
    tokio::task::yield_now().await;
    let closed = runner.close("the program ends");
    tasks.push(submit(&runner, endless("r/4")));
    closed.await;
    assert_eq!(runner.list(), []);
    for task in &mut tasks {
        let end = task.end().await.task;
        assert_eq!(
            (end.status, end.error.as_deref()),
            (BackgroundStatus::Cancelled, Some("the program ends"))
        );
    }
    runner.close("twice").await;
}

/// A program may drop the executor that the tasks ran on and continue with another.
#[test]
fn tasks_of_an_executor_that_is_gone_hold_no_place() {
    let runner = limited(1);
    let executor = || tokio::runtime::Builder::new_current_thread().build().unwrap();
    let first = executor();
    let mut orphan = first.block_on(async {
        let orphan = submit(&runner, endless("r/1"));
        tokio::task::yield_now().await;
        orphan
    });
    drop(first);
    executor().block_on(async {
        assert_eq!(orphan.end().await.task.status, BackgroundStatus::Interrupted);
        assert_eq!(
            submit(&runner, quick("r/2")).end().await.task.status,
            BackgroundStatus::Completed
        );
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousands_of_tasks_end_each_once() {
    let (runner, at_work, most) =
        (limited(8), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let mut tasks = Vec::new();
    for n in 0..5_000 {
        let (at_work, most) = (Arc::clone(&at_work), Arc::clone(&most));
        tasks.push(submit(
            &runner,
            task(&format!("r/{n}"), |_| async move {
                most.fetch_max(at_work.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                tokio::task::yield_now().await;
                at_work.fetch_sub(1, Ordering::SeqCst);
                ended(BackgroundStatus::Completed, "")
            }),
        ));
    }
    for task in &mut tasks {
        assert_eq!(task.end().await.task.status, BackgroundStatus::Completed);
    }
    assert!(most.load(Ordering::SeqCst) <= 8);
}
