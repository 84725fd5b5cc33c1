//! An approval from another process whose receiver is killed at each step between receiving the
//! message and deleting its file. The approval is neither lost nor applied twice.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use conclave_runtime::Capability;
use conclave_runtime::ControlInbox;
use conclave_runtime::approval::{Approval, ApprovalAnswer, ApprovalRequest};
use conclave_runtime::approve::Approver;
use conclave_runtime::clock::BoxFuture;
use conclave_runtime::config::Config;
use conclave_runtime::event::Event;
use conclave_runtime::fail_points;
use conclave_runtime::ids::{CallId, RoomId};
use conclave_runtime::native::{self, Call, Plugin, Step, Tool};
use conclave_runtime::store::{
    ControlCommand, ControlMessage, Durability, MailState, RunState, Store, StoreAddress,
    StoreReader,
};
use conclave_runtime::{Host, HostOptions, Prepared, RunOptions};
use serde_json::json;

use crate::support::{StorePlace, about, records};

/// The variable with the child's arguments; [`the_child`] does nothing without it.
const WORDS: &str = "CONCLAVE_CONTROL_CHILD";
const ROOM: &str = "bells";

const CONFIG: &str = "entry = 'desk'\n[plugins.desk]\nsource = 'native:desk'\ngrants.tools = ['bell.*']\n[plugins.bell]\n\
                      source = 'native:bell'\n[tasks.desk]\nagent = 'desk'\n[[policy]]\ntool = 'bell.ring'\ndecide = 'ask'\n";

/// Leaves the decision to other processes.
struct Elsewhere;

impl Approver for Elsewhere {
    fn decide(&self, _: ApprovalRequest) -> BoxFuture<'static, ApprovalAnswer> {
        Box::pin(std::future::pending())
    }
}

/// Returns an agent whose only call must be approved, and a bell that writes down each ring.
async fn prepared(folder: &Path) -> (Arc<Host>, Prepared) {
    let rings = folder.join("rings");
    let ring = Tool::new("ring", "Rings.", json!({ "type": "object" }), move |_: Call| {
        let rings = rings.clone();
        async move {
            let mut file =
                std::fs::OpenOptions::new().append(true).create(true).open(rings).unwrap();
            file.write_all(b"ding\n").unwrap();
            Ok("Ding.")
        }
    });
    let desk = Plugin::agent("desk", |step: Step| async move {
        Ok(match step.results() {
            [] => native::call("bell.ring", json!({})),
            [answer, ..] => native::finish(answer.content.clone()),
        })
    });
    let native = vec![desk.asks(Capability::Tools, "Rings."), Plugin::tools("bell", [ring])];
    let host = Arc::new(Host::new(HostOptions { native, ..HostOptions::default() }).unwrap());
    let prepared = host.load(&Config::parse("bells.toml", "", CONFIG).unwrap()).await.unwrap();
    (host, prepared)
}

/// Begins or resumes the run, and receives messages until it has ended.
async fn live(folder: &Path, address: &StoreAddress, kill: Option<&str>) {
    let (host, prepared) = prepared(folder).await;
    let store = Store::open(address).unwrap();
    let room = RoomId::from(ROOM);
    let options = || RunOptions {
        ids: Arc::new(room.clone()),
        journals: store.journals(Durability::Group, about()),
        approver: Arc::new(Elsewhere),
        ..RunOptions::default()
    };
    let running = match prepared.reopen(&room, options()).await {
        Ok(mut session) => tokio::spawn(async move { drop(session.resume().await.unwrap()) }),
        Err(_) => {
            let run = prepared.start(Some("Ring.".to_owned()), options()).unwrap();
            tokio::spawn(async move { drop(run.outcome().await.unwrap()) })
        }
    };
    let is_of_control = kill.is_some_and(|kill| fail_points::OF_CONTROL.contains(&kill));
    if let Some(kill) = kill.filter(|_| is_of_control) {
        fail_points::arm(kill, 1);
    }
    let inbox = ControlInbox::new(&store, &host);
    while !running.is_finished() {
        inbox
            .receive(|_| {
                // The next commit is that of the message's record: on this single thread its room
                // has not handled it yet.
                if let Some(kill) = kill.filter(|_| !is_of_control) {
                    fail_points::arm(kill, 1);
                }
            })
            .await;
        tokio::task::yield_now().await;
    }
    running.await.unwrap();
    // The message that ended the run is deleted too.
    let reader = StoreReader::open(address).unwrap();
    while !reader.mail().pending().unwrap().is_empty() {
        inbox.receive(|_| {}).await;
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_message_of_this_process_is_received_without_the_wait_for_those_of_others() {
    let folder = tempfile::tempdir().unwrap();
    let (host, _) = prepared(folder.path()).await;
    let address = StoreAddress::from(folder.path().join("store"));
    let store = Store::open(&address).unwrap();
    let mut inbox = ControlInbox::new(&store, &host);
    // An hour is the time for messages of others.
    let most = std::time::Duration::from_secs(3_600);
    inbox.receive_next(most, |_| {}).await;
    let word = ControlCommand::Stop { reason: "enough".to_owned() };
    let message = ControlMessage::new(RoomId::from("none"), word);
    let reader = StoreReader::open(&address).unwrap();
    reader.mail().send(&message).unwrap();
    inbox.receive_next(most, |_| {}).await;
}

/// Not a test of its own: the process that the other test starts and kills.
#[test]
fn the_child() {
    let Ok(words) = std::env::var(WORDS) else { return };
    let (folder, store, kill): (PathBuf, String, Option<String>) =
        serde_json::from_str(&words).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(live(&folder, &store.parse().unwrap(), kill.as_deref()));
}

fn start(folder: &Path, place: &StorePlace, kill: Option<&str>) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["controls::the_child", "--exact", "--nocapture", "--test-threads=1"]);
    command.env(WORDS, serde_json::to_string(&(folder, place.word(), kill)).unwrap());
    command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Returns the call that waits for an approval.
fn wait_for_approval(store: &StoreAddress, child: &mut Child) -> CallId {
    loop {
        let waits =
            StoreReader::open(store).and_then(|reader| reader.approvals(None)).unwrap_or_default();
        let call = waits.iter().find_map(|wait| wait.wait.key.call());
        if let Some(call) = call {
            return call;
        }
        assert!(child.try_wait().unwrap().is_none(), "it ended before it asked");
        std::thread::yield_now();
    }
}

#[test]
fn an_approval_is_neither_lost_nor_applied_twice_wherever_its_receiver_is_killed() {
    // The fail points in the order in which the message passes them, with whether its room has it
    // then and whether its file exists.
    let points = [
        ("before-control-delivered", false, true),
        ("before-commit", false, true),
        ("after-commit", true, true),
        ("before-control-deleted", true, true),
        ("after-control-deleted", true, false),
    ];
    for (point, is_journalled, is_there) in points {
        let (temp, place) = (tempfile::tempdir().unwrap(), StorePlace::new());
        let mut child = start(temp.path(), &place, Some(point));
        let call = wait_for_approval(place.address(), &mut child);
        let reader = StoreReader::open(place.address()).unwrap();
        let mail = ControlMessage::new(
            RoomId::from(ROOM),
            ControlCommand::Decide { call, approval: Approval::Approved, arguments_sha256: None },
        );
        reader.mail().send(&mail).unwrap();
        let killed = child.wait_with_output().unwrap();
        assert!(
            killed.status.code().is_none(),
            "{point}: {}",
            String::from_utf8_lossy(&killed.stderr)
        );
        place.end_leases();
        let has_it = || reader.has_received(&mail.room, &mail.id).unwrap();
        assert_eq!(has_it(), is_journalled, "{point}");
        let state = if is_there { MailState::Taken } else { MailState::Gone };
        assert_eq!(
            reader.mail().state(&mail).unwrap(),
            state,
            "{point}: its sender learns that it was taken only once it is journalled"
        );

        let ended = start(temp.path(), &place, None).wait_with_output().unwrap();
        assert!(ended.status.success(), "{point}: {}", String::from_utf8_lossy(&ended.stderr));
        assert!(has_it() && reader.mail().state(&mail).unwrap() == MailState::Gone, "{point}");
        let all = records(place.address(), ROOM);
        let received = all
            .iter()
            .filter(|record| matches!(record.event, Event::ControlReceived { .. }))
            .count();
        let approved =
            |event: &Event| matches!(event, Event::Decided { approval: Approval::Approved, .. });
        let approved = all.iter().filter(|record| approved(record.event.effective())).count();
        assert_eq!((received, approved), (1, 1), "{point}");
        let row = reader.rooms(&RoomId::from(ROOM)).unwrap().remove(0);
        assert!(matches!(row.state, RunState::Ended(_)), "{point}");
        // A call that was in flight when its host was killed is not repeated.
        let rings = std::fs::read_to_string(temp.path().join("rings")).unwrap_or_default();
        assert!(
            rings == "ding\n" || (is_journalled && rings.is_empty()),
            "{point}: what was approved happens once: {rings:?}"
        );
    }
}
