//! A writer alone: the stream operations of a guest, and waits that are cancelled at every point.

use std::sync::Mutex;
use std::task::{Context, Poll, Waker};

use conclave_core::permissions::grants::{FileGrant, FileMode};
use conclave_core::permissions::manifest::CapabilityRequest;
use conclave_core::types::denial::Denial;
use conclave_core::types::ids::CallId;
use conclave_core::types::side_effect::SideEffectAnswer;
use tempfile::TempDir;

use super::*;
use crate::calls::EffectPort;
use crate::imports::testing::{core, setup};

/// Answers at the second poll, like a room that journals first.
#[derive(Default)]
struct Room(Mutex<Vec<String>>);

impl Room {
    fn says(&self, line: String) {
        self.0.lock().unwrap().push(line);
    }
}

impl EffectPort for Room {
    fn ask(
        &self,
        _: CallId,
        ordinal: u32,
        side_effect: SideEffect,
    ) -> BoxFuture<'static, Result<(), Denial>> {
        self.says(format!("{} asked {}", u64::from(ordinal) - FIRST, side_effect.target()));
        Box::pin(async {
            tokio::task::yield_now().await;
            Ok(())
        })
    }

    fn ended(&self, _: CallId, ordinal: u32, answer: SideEffectAnswer) -> BoxFuture<'static, ()> {
        let how = if matches!(answer, SideEffectAnswer::Done { .. }) { "done" } else { "not done" };
        self.says(format!("{} {how}", u64::from(ordinal) - FIRST));
        Box::pin(tokio::task::yield_now())
    }
}

struct World {
    folder: TempDir,
    core: CallCore,
    room: Arc<Room>,
}

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a"), "").unwrap();
        let mut setup = setup();
        setup.facts.manifest.asks.insert("files".to_owned(), CapabilityRequest::default());
        let dir = folder.path().to_str().unwrap().to_owned();
        let (display, at) = ("f".to_owned(), "/f".to_owned());
        setup.grants.files.push(FileGrant {
            dir,
            display_path: display,
            at,
            mode: FileMode::ReadWrite,
            bytes: 100,
            files: 10,
        });
        let (mut core, room) = (core(setup), Arc::new(Room::default()));
        core.start.effects = Arc::clone(&room) as Arc<dyn EffectPort>;
        core.replay = CallReplay::new(&core.plugin, &core.start);
        Self { folder, core, room }
    }

    fn writer(&self, offset: Option<u64>) -> FileWriter {
        let (folder, streams) =
            (CallFolder::new(&self.core.plugin.folders[0], None), FileStreams::default());
        let (rest, path) = ("a".to_owned(), "/f/a".to_owned());
        FileWriter::new(At::new(&self.core, folder, &streams, rest, path, offset))
    }

    fn text(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("a")).unwrap()
    }

    fn journal(&self) -> Vec<String> {
        self.room.0.lock().unwrap().clone()
    }
}

/// Polls once for readiness, and cancels the wait.
fn look(writer: &mut FileWriter) -> bool {
    let mut ready = writer.ready();
    matches!(ready.as_mut().poll(&mut Context::from_waker(Waker::noop())), Poll::Ready(()))
}

#[tokio::test]
async fn a_wait_that_is_given_up_loses_nothing() {
    for offset in [Some(0), None] {
        let world = World::new();
        let mut writer = world.writer(offset);
        let mut looks = 0;
        for piece in ["one ", "two"] {
            assert_eq!(writer.check_write().unwrap(), PIECE);
            writer.write(Bytes::from_static(piece.as_bytes())).unwrap();
            writer.flush().unwrap();
            assert_eq!(writer.check_write().unwrap(), 0, "no permit before it is written");
            assert!(matches!(writer.write(Bytes::from_static(b"x")), Err(StreamError::Trap(_))));
            while !look(&mut writer) {
                looks += 1;
                tokio::task::yield_now().await;
            }
        }
        assert!(looks >= 4, "{looks}");
        assert_eq!(world.text(), "one two");
        assert_eq!(world.journal(), ["0 asked /f/a", "0 done", "1 asked /f/a", "1 done"]);
    }
}

#[tokio::test]
async fn a_stream_that_is_let_go_writes_what_it_took() {
    let world = World::new();
    let mut writer = world.writer(Some(0));
    writer.write(Bytes::from_static(b"one")).unwrap();
    look(&mut writer);
    writer.cancel().await;
    drop(writer);
    assert_eq!((world.text().as_str(), world.journal().len()), ("one", 2));
}

#[tokio::test]
async fn a_failure_is_told_once_by_whatever_is_asked_next() {
    type Asks = fn(&mut FileWriter) -> StreamResult<()>;
    let asks: [Asks; 3] = [
        |writer| writer.check_write().map(drop),
        |writer| writer.flush(),
        |writer| writer.write(Bytes::from_static(b"x")),
    ];
    for ask in asks {
        let world = World::new();
        let mut writer = world.writer(Some(0));
        writer.write(Bytes::from(vec![b'x'; 101])).unwrap();
        writer.ready().await;
        let Err(StreamError::LastOperationFailed(error)) = ask(&mut writer) else {
            panic!("it failed")
        };
        assert_eq!(error.downcast_ref::<ErrorCode>(), Some(&ErrorCode::InsufficientSpace));
        for ask in asks {
            assert!(matches!(ask(&mut writer), Err(StreamError::Closed)));
        }
        writer.ready().await;
        assert_eq!(
            (world.text().as_str(), world.journal()),
            ("", vec!["0 asked /f/a".to_owned(), "0 not done".to_owned()])
        );
    }
}
