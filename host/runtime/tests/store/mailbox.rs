//! Control messages of other processes, as files or as rows.

use conclave_core::types::approval::Approval;
use conclave_runtime::ids::{CallId, RoomId};
use conclave_runtime::store::{
    ControlCommand, ControlMessage, Mail, MailState, Store, StoreError, StoreReader,
};

use crate::support::{StorePlace, run};

fn stop(room: &str) -> ControlMessage {
    ControlMessage::new(RoomId::from(room), ControlCommand::Stop { reason: "enough".to_owned() })
}

#[test]
fn messages_lie_in_order_until_they_are_withdrawn() {
    let place = StorePlace::new();
    assert!(matches!(
        StoreReader::open(place.address()).map(drop),
        Err(StoreError::Missing { .. })
    ));
    let store = Store::open(place.address()).unwrap();
    // A database takes only messages to rooms that are there.
    let _journals = ["a", "a/1", "b"].map(|room| run(&store, room, 1));
    let reader = StoreReader::open(place.address()).unwrap();
    let mail = || reader.mail();
    assert_eq!(mail().pending().unwrap(), []);
    let decide = || {
        ControlMessage::new(
            RoomId::from("a/1"),
            ControlCommand::Decide {
                call: CallId(3),
                approval: Approval::Approved,
                arguments_sha256: None,
            },
        )
    };
    // Two messages with the same content are distinct.
    let sent = [stop("a").under_key("f"), decide(), stop("b").under_key("0"), stop("b")];
    for message in &sent {
        match message.word.settles() {
            Some(_) => drop(mail().send_decision(message, || Ok(true)).unwrap()),
            None => mail().send(message).unwrap(),
        }
    }
    assert_eq!(mail().pending().unwrap(), sent);
    assert!(sent.iter().all(|message| mail().state(message).unwrap() == MailState::Waiting));
    assert_eq!(mail().of_run(&RoomId::from("a")).unwrap(), sent[..2]);
    assert_eq!(mail().decisions().unwrap(), sent[1..2]);
    assert_eq!(mail().decision(&sent[1].room, CallId(3)).unwrap(), Some(sent[1].clone()));
    assert_eq!(mail().decision(&sent[1].room, CallId(4)).unwrap(), None);
    assert!(mail().withdraw(&sent[2]).unwrap());
    assert_eq!(
        (mail().state(&sent[2]).unwrap(), mail().state(&sent[3]).unwrap()),
        (MailState::Gone, MailState::Waiting)
    );
    assert!(!mail().withdraw(&sent[2]).unwrap());
    let long = ControlMessage::new(
        RoomId::from("a"),
        ControlCommand::Stop { reason: "x".repeat(2 << 20) },
    );
    assert!(mail().send(&long).is_err());
    assert_eq!(mail().pending().unwrap().len(), 3);
}

mod files {
    use super::*;

    #[test]
    fn a_message_to_a_folder_without_a_store_is_refused() {
        let temp = tempfile::tempdir().unwrap();
        let sent = Mail::in_folder(temp.path()).send(&stop("a"));
        assert!(matches!(sent, Err(StoreError::Missing { .. })));
    }
}
