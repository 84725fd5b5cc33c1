//! A thousand parallel tasks in one room. Each result is delivered once, also when the process is
//! killed in the middle.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};

use conclave_runtime::channel::{Channels, HumanAnswer, OutgoingMessage, UnattendedChannel};
use conclave_runtime::clock::BoxFuture;
use conclave_runtime::delegation::{BackgroundState, Delegation};
use conclave_runtime::ids::{ChannelId, RoomId, TaskName};
use conclave_runtime::limits::RunLimits;
use conclave_runtime::store::{Durability, RunOrigin, Store, StoreAddress};
use conclave_runtime::{RunInput, RunOptions, fail_points};
use conclave_test_support::{Rig, block_on};
use tokio::sync::watch;

use super::{IMMEDIATE, host, prepared};

const TASKS: usize = 1_000;
/// The environment variable with the child process's arguments. Without it [`the_child`] does
/// nothing.
const WORDS: &str = "CONCLAVE_ROOM_CHILD";

/// A channel with a service behind it. It stores the messages that it accepted, also across a
/// crash, and accepts each key once.
struct Service {
    taken: Mutex<Taken>,
    /// The number of tasks whose results were delivered.
    told: watch::Sender<usize>,
}

struct Taken {
    file: std::fs::File,
    keys: BTreeSet<String>,
    tasks: usize,
}

/// Returns the accepted keys, each with the tasks that its message reports.
fn taken(file: &Path) -> Vec<(String, Vec<String>)> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    // Text behind the last line break was interrupted while it was written, so it was not accepted.
    let whole = text.rfind('\n').map_or("", |end| &text[..=end]);
    whole.lines().map(|line| serde_json::from_str(line).expect("a whole line")).collect()
}

impl Service {
    fn open(file: &Path) -> Self {
        let before = taken(file);
        let tasks = before.iter().map(|(_, tasks)| tasks.len()).sum();
        let whole = before
            .iter()
            .map(|line| serde_json::to_string(line).expect("it is text").len() + 1)
            .sum::<usize>();
        let file = std::fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(file)
            .expect("the file opens");
        file.set_len(whole as u64).expect("a torn line is cut off");
        let taken = Taken { file, keys: before.into_iter().map(|(key, _)| key).collect(), tasks };
        Self { taken: Mutex::new(taken), told: watch::Sender::new(tasks) }
    }
}

impl Channels for Service {
    fn ask(
        &self,
        channel: ChannelId,
        task: TaskName,
        prompt: String,
    ) -> BoxFuture<'static, Option<HumanAnswer>> {
        UnattendedChannel.ask(channel, task, prompt)
    }

    fn send(&self, message: OutgoingMessage) -> BoxFuture<'static, Result<(), String>> {
        let mut taken = self.taken.lock().expect("nobody panicked");
        if !message.tasks.is_empty() && taken.keys.insert(message.key.clone()) {
            let line =
                serde_json::to_string(&(&message.key, &message.tasks)).expect("it is text") + "\n";
            taken.file.write_all(line.as_bytes()).expect("it is written");
            taken.tasks += message.tasks.len();
            self.told.send_replace(taken.tasks);
        }
        Box::pin(std::future::ready(Ok(())))
    }
}

/// Opens or resumes the room, starts all tasks, and closes the room once all results are delivered.
fn live(folder: &Path, store: &StoreAddress) {
    block_on(async {
        let host = host();
        let prepared = prepared(&host, IMMEDIATE).await;
        let store = Store::open(store).expect("the store opens");
        let service = Arc::new(Service::open(&folder.join("said")));
        let id = RoomId::from("r");
        let options = || RunOptions {
            ids: Arc::new(id.clone()),
            channels: service.clone(),
            journals: store.journals(Durability::Group, RunOrigin::default()),
            ..RunOptions::default()
        };
        let (room, hosted) = match prepared.reopen(&id, options()).await {
            Ok(session) => session.resume_room(),
            Err(_) => {
                // Each task reserves half of the remaining limit, so a thousand tasks cannot share
                // a finite one.
                let limits = RunLimits {
                    turns: None,
                    wall_ms: None,
                    tool_calls: None,
                    ..RunLimits::default()
                };
                prepared
                    .session(options())
                    .expect("it opens")
                    .open_room(RunInput { limits: Some(limits), ..RunInput::default() })
            }
        };
        // A request before the kill may not have got its reply, so all are repeated. The key makes
        // it the same task.
        let asked = (0..TASKS).map(|number| {
            let room = room.clone();
            tokio::spawn(async move {
                let key = Some(format!("task {number}"));
                let delegation = Delegation {
                    worker: "quick".to_owned(),
                    description: format!("part {number}"),
                    key,
                    ..Delegation::default()
                };
                room.delegate(delegation)
                    .await
                    .expect("it may")
                    .wait(None)
                    .await
                    .expect("it ends")
                    .state
            })
        });
        for ended in asked.collect::<Vec<_>>() {
            assert_eq!(ended.await.expect("nobody panicked"), BackgroundState::Completed);
        }
        service
            .told
            .subscribe()
            .wait_for(|told| *told >= TASKS)
            .await
            .expect("the channel is there");
        room.close("that was all").await.expect("it is open");
        hosted.closed().await.expect("it ends");
    });
}

/// Checks that each task is in one message, and that each message was accepted once.
fn each_was_told_once(folder: &Path) {
    let said = taken(&folder.join("said"));
    let keys: BTreeSet<&String> = said.iter().map(|(key, _)| key).collect();
    assert_eq!(keys.len(), said.len(), "a key was taken twice");
    let mut times: BTreeMap<&String, usize> = BTreeMap::new();
    said.iter().flat_map(|(_, tasks)| tasks).for_each(|task| *times.entry(task).or_default() += 1);
    let twice: Vec<_> = times.iter().filter(|(_, times)| **times > 1).collect();
    assert!(twice.is_empty(), "told more than once: {twice:?}");
    assert_eq!(times.len(), TASKS);
}

#[test]
fn a_thousand_tasks_at_once_are_each_told_once() {
    let rig = Rig::new();
    live(rig.folder(), &rig.store(rig.folder()));
    each_was_told_once(rig.folder());
}

/// Not a test of its own: the process that [`nor_does_a_kill_in_the_middle_lose_or_repeat_any`]
/// starts and kills.
#[test]
fn the_child() {
    let Ok(words) = std::env::var(WORDS) else { return };
    let (folder, store, kill): (PathBuf, String, Option<(String, u64)>) =
        serde_json::from_str(&words).expect("the parent's words");
    if let Some((name, nth)) = kill {
        fail_points::arm(&name, nth);
    }
    live(&folder, &store.parse().expect("the address of a store"));
}

#[test]
fn nor_does_a_kill_in_the_middle_lose_or_repeat_any() {
    let rig = Rig::new();
    let run = |kill: Option<(&str, u64)>| {
        let mut command = Command::new(std::env::current_exe().expect("a test runs from a file"));
        command.args(["rooms::killed::the_child", "--exact", "--nocapture", "--test-threads=1"]);
        let words = (rig.folder(), rig.store_word(rig.folder()), kill);
        let words = serde_json::to_string(&words).expect("it is text");
        let output = command.env(WORDS, words).output().expect("it runs");
        rig.end_leases();
        output
    };
    // One kill while tasks are started, one while they end, one while results are delivered.
    for kill in [("before-child-opened", 400), ("after-child-ended", 300), ("before-append", 60)] {
        let killed = run(Some(kill));
        assert!(
            !killed.status.success() && killed.status.code().is_none(),
            "{kill:?}: {}",
            String::from_utf8_lossy(&killed.stderr)
        );
    }
    let ended = run(None);
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    each_was_told_once(rig.folder());
}
