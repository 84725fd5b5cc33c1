//! Control messages of other processes, as files.

use conclave_core::types::approval::Approval;
use conclave_runtime::ids::{CallId, RoomId};
use conclave_runtime::store::{ControlCommand, ControlMessage, MailState, Store, StoreError};

fn stop(room: &str) -> ControlMessage {
    ControlMessage::new(RoomId::from(room), ControlCommand::Stop { reason: "enough".to_owned() })
}

#[test]
fn messages_lie_in_order_until_they_are_taken_back() {
    let temp = tempfile::tempdir().unwrap();
    assert!(matches!(stop("a").send(temp.path()), Err(StoreError::Missing { .. })));
    let _store = Store::open(temp.path()).unwrap();
    assert_eq!(ControlMessage::pending(temp.path()).unwrap(), []);
    let decide = || {
        ControlMessage::new(
            RoomId::from("a/1"),
            ControlCommand::Decide { call: CallId(3), approval: Approval::Approved },
        )
    };
    // Two messages with the same content are distinct.
    let sent = [stop("a"), decide(), stop("b"), stop("b")];
    sent.iter().for_each(|mail| mail.send(temp.path()).unwrap());
    assert_eq!(ControlMessage::pending(temp.path()).unwrap(), sent);
    assert!(sent.iter().all(|mail| mail.state(temp.path()) == MailState::Waiting));
    let back = ControlMessage::take_back(temp.path(), |mail| mail.id == sent[2].id).unwrap();
    assert_eq!(back, sent[2..3]);
    assert_eq!(
        (sent[2].state(temp.path()), sent[3].state(temp.path())),
        (MailState::Gone, MailState::Waiting)
    );
    assert_eq!(ControlMessage::take_back(temp.path(), |mail| mail.id == sent[2].id).unwrap(), []);
    let long = ControlMessage::new(
        RoomId::from("a"),
        ControlCommand::Stop { reason: "x".repeat(2 << 20) },
    );
    assert!(long.send(temp.path()).is_err());
    assert_eq!(ControlMessage::pending(temp.path()).unwrap().len(), 3);
}
