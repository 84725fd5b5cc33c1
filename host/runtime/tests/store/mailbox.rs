//! Words of other processes.

use conclave_core::policy::Approval;
use conclave_runtime::ids::{CallId, RoomId};
use conclave_runtime::store::{Mail, Store, StoreError, Word};

use crate::support::{ended, run};

#[test]
fn words_are_taken_once_in_order_and_what_is_no_word_is_put_aside() {
    let temp = tempfile::tempdir().unwrap();
    let stop = |room: &str| Mail { room: RoomId::from(room), word: Word::Stop { reason: "enough".to_owned() } };
    assert!(matches!(stop("a").send(temp.path()), Err(StoreError::Missing { .. })));
    let store = Store::open(temp.path()).unwrap();
    assert_eq!(store.mail().unwrap(), []);
    let decide = Mail { room: RoomId::from("a/1"), word: Word::Decide { call: CallId(3), approval: Approval::Approved } };
    let sent = [stop("a"), decide, stop("b")];
    sent.iter().for_each(|mail| mail.send(temp.path()).unwrap());
    let folder = temp.path().join("mail");
    std::fs::write(folder.join("0-torn.json"), "{\"room\":").unwrap();
    std::fs::write(folder.join("0-deep.json"), "[".repeat(100_000)).unwrap();
    std::fs::write(folder.join("0-long.json"), vec![b' '; (1 << 20) + 1]).unwrap();
    std::fs::create_dir(folder.join("0-folder.json")).unwrap();
    std::fs::write(folder.join("9.part"), "half").unwrap();
    assert_eq!(store.mail().unwrap(), sent);
    assert_eq!(store.mail().unwrap(), []);
    assert_eq!(std::fs::read_dir(folder.join("bad")).unwrap().count(), 4);
    let long = Mail { room: RoomId::from("a"), word: Word::Stop { reason: "x".repeat(2 << 20) } };
    assert!(long.send(temp.path()).is_err());
}

#[test]
fn old_words_that_nobody_will_hear_are_forgotten() {
    let temp = tempfile::tempdir().unwrap();
    let store = Store::open(temp.path()).unwrap();
    ended(&store, "over");
    drop(run(&store, "cut-off", 2));
    let folder = temp.path().join("mail");
    let send = |room: &str| Mail { room: RoomId::from(room), word: Word::Stop { reason: "enough".to_owned() } }.send(temp.path()).unwrap();
    ["over", "cut-off", "nowhere"].into_iter().for_each(send);
    assert_eq!(store.mail_for(|_| false).unwrap(), []);
    let names = || std::fs::read_dir(&folder).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap()).collect::<Vec<_>>();
    assert_eq!(names().len(), 3, "what is new may be meant for what is about to begin");
    for name in names() {
        let (said, rest) = name.split_once('-').unwrap();
        let said = said.parse::<u64>().unwrap() - 25 * 60 * 60 * 1_000;
        std::fs::rename(folder.join(&name), folder.join(format!("{said:020}-{rest}"))).unwrap();
    }
    assert_eq!(store.mail_for(|_| false).unwrap(), []);
    assert_eq!(names().len(), 1);
    assert_eq!(store.mail().unwrap().len(), 1, "one that was cut off can be gone on with");
}
