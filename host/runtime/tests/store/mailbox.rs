//! Control messages of other processes, as files.

use conclave_core::types::approval::Approval;
use conclave_runtime::ids::{CallId, RoomId};
use conclave_runtime::store::{ControlCommand, ControlMessage, Mail, MailState, Store, StoreError};

fn stop(room: &str) -> ControlMessage {
    ControlMessage::new(RoomId::from(room), ControlCommand::Stop { reason: "enough".to_owned() })
}

#[test]
fn messages_lie_in_order_until_they_are_taken_back() {
    let temp = tempfile::tempdir().unwrap();
    assert!(matches!(
        Mail::in_folder(temp.path()).send(&stop("a")),
        Err(StoreError::Missing { .. })
    ));
    let _store = Store::open(temp.path()).unwrap();
    assert_eq!(Mail::in_folder(temp.path()).pending().unwrap(), []);
    let decide = || {
        ControlMessage::new(
            RoomId::from("a/1"),
            ControlCommand::Decide { call: CallId(3), approval: Approval::Approved },
        )
    };
    // Two messages with the same content are distinct.
    let sent = [stop("a"), decide(), stop("b"), stop("b")];
    sent.iter().for_each(|mail| Mail::in_folder(temp.path()).send(mail).unwrap());
    assert_eq!(Mail::in_folder(temp.path()).pending().unwrap(), sent);
    assert!(
        sent.iter()
            .all(|mail| Mail::in_folder(temp.path()).state(mail).unwrap() == MailState::Waiting)
    );
    let back = Mail::in_folder(temp.path()).take_back(|mail| mail.id == sent[2].id).unwrap();
    assert_eq!(back, sent[2..3]);
    assert_eq!(
        (
            Mail::in_folder(temp.path()).state(&sent[2]).unwrap(),
            Mail::in_folder(temp.path()).state(&sent[3]).unwrap()
        ),
        (MailState::Gone, MailState::Waiting)
    );
    assert_eq!(Mail::in_folder(temp.path()).take_back(|mail| mail.id == sent[2].id).unwrap(), []);
    let long = ControlMessage::new(
        RoomId::from("a"),
        ControlCommand::Stop { reason: "x".repeat(2 << 20) },
    );
    assert!(Mail::in_folder(temp.path()).send(&long).is_err());
    assert_eq!(Mail::in_folder(temp.path()).pending().unwrap().len(), 3);
}
