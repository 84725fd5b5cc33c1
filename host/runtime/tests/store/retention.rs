//! The runs and blobs that retention removes, and those that it never removes.

use conclave_runtime::event::{Event, Principal};
use conclave_runtime::ids::{CallId, Millis, RoomId};
use conclave_runtime::outcome::Status;
use conclave_runtime::store::{Durability, Retention, RunFilter, RunOrigin, Store, StoreReader};

use crate::support::{
    StorePlace, about, append, damage, end, ended, message_record, opened, opened_in, record,
    records, run,
};

#[test]
fn only_what_has_ended_goes_and_the_chain_stays_whole() {
    let place = StorePlace::new();
    let store = Store::open(place.address()).unwrap();
    for room in ["a", "b", "c"] {
        ended(&store, room);
    }
    let going = run(&store, "d", 2);
    let head = StoreReader::open(place.address()).unwrap().verify(&[]).unwrap().heads.remove(0);
    let dry =
        store.collect(&Retention { runs: Some(2), dry: true, ..Retention::default() }).unwrap();
    let names = |runs: &[RoomId]| runs.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!((names(&dry.runs), dry.records), (vec!["a".to_owned(), "b".to_owned()], 6));
    let reader = StoreReader::open(place.address()).unwrap();
    assert_eq!(reader.runs(&RunFilter::default()).unwrap().len(), 4, "a dry run removes nothing");
    assert!(store.collect(&Retention::default()).unwrap().runs.is_empty());
    assert!(
        store
            .collect(&Retention { before: Some(Millis(1)), ..Retention::default() })
            .unwrap()
            .runs
            .is_empty()
    );
    let both = Retention { before: Some(Millis(u64::MAX)), runs: Some(3), ..Retention::default() };
    assert_eq!(names(&store.collect(&both).unwrap().runs), ["a"]);
    let all = Retention { runs: Some(0), ..Retention::default() };
    assert_eq!(names(&store.collect(&all).unwrap().runs), ["b", "c"]);
    assert_eq!(reader.runs(&RunFilter::default()).unwrap().len(), 1, "what goes on stays");
    let checked = reader.verify(&[&head]).unwrap();
    assert_eq!(damage(&checked), Vec::<String>::new());
    // A run that nobody removed is one that somebody took out.
    let removed: Vec<RoomId> = checked.removed_runs.iter().map(|it| it.run.clone()).collect();
    assert_eq!(names(&removed), ["a", "b", "c"]);
    assert!(checked.removed_runs.iter().all(|it| it.at > Millis(0)));
    assert!(damage(&reader.check().unwrap()).is_empty());
    assert!(reader.audit(1, 1, 100).unwrap().iter().take(9).all(|line| line.record.is_none()));
    // The name of a removed run can be reused, and a record missing from the new run is still
    // detected.
    ended(&store, "a");
    drop((going, store));
    place.change("DELETE FROM events WHERE room = 'a' AND seq = 1");
    let problems = damage(&StoreReader::open(place.address()).unwrap().verify(&[]).unwrap());
    assert!(
        problems
            .iter()
            .any(|problem| problem.contains("record 1 of room a") && problem.contains("taken out")),
        "{problems:?}"
    );
}

#[test]
fn the_runs_of_one_config_go_the_oldest_first_and_no_more_at_once_than_the_caller_allows() {
    let place = StorePlace::new();
    let store = Store::open(place.address()).unwrap();
    for room in ["a", "b", "c", "d"] {
        ended(&store, room);
    }
    let other = RunOrigin { config: Some("/work/other.toml".into()), ..about() };
    let mut foreign = opened_in(&*store.journals(Durability::Group, other), "x").unwrap();
    append(&mut *foreign, &[opened("x", "Good morning")]).unwrap();
    end(&mut *foreign, message_record(1, "bye"), Status::Done);
    drop(foreign);
    let keep = |config: &str| Retention {
        config: Some(config.into()),
        runs: Some(1),
        most: Some(2),
        ..Retention::default()
    };
    let names = |runs: &[RoomId]| runs.iter().map(ToString::to_string).collect::<Vec<_>>();
    let collect = |config| names(&store.collect(&keep(config)).unwrap().runs);
    assert_eq!(collect("/work/desk.toml"), ["a", "b"]);
    assert_eq!(collect("/work/desk.toml"), ["c"], "the newest stays, and so does the other's");
    assert_eq!(collect("/work/other.toml"), [""; 0], "it is the newest of its config");
    let reader = StoreReader::open(place.address()).unwrap();
    let removed = reader.removed_runs().unwrap();
    assert_eq!(removed.iter().map(|it| it.run.as_str()).collect::<Vec<_>>(), ["a", "b", "c"]);
    assert_eq!(reader.runs(&RunFilter::default()).unwrap().len(), 2);
    assert!(damage(&reader.verify(&[]).unwrap()).is_empty());
}

#[test]
fn what_a_principal_spent_is_that_of_its_runs_of_one_config_since_a_time() {
    let place = StorePlace::new();
    let store = Store::open(place.address()).unwrap();
    ended(&store, "a");
    ended(&store, "b");
    let reader = StoreReader::open(place.address()).unwrap();
    let of = |config: &str, principal: &str, since: u64| {
        let principal = Principal(principal.into());
        reader.spent_since(config.as_ref(), &principal, Millis(since)).unwrap()
    };
    let mut spent = of("/work/desk.toml", "ada", 0);
    spent.sort_by_key(|run| run.run.clone());
    let runs: Vec<_> = spent.iter().map(|run| (run.run.as_str(), run.started)).collect();
    assert_eq!(runs, [("a", Millis(1_000)), ("b", Millis(1_000))]);
    assert!(spent.iter().all(|run| (run.spent.tokens, run.spent.cost_micro_usd) == (40, 500)));
    assert_eq!(of("/work/desk.toml", "ada", 1_003).len(), 0, "their last record is older");
    assert_eq!(of("/work/desk.toml", "ada", 1_002).len(), 2);
    assert_eq!(of("/work/other.toml", "ada", 0).len() + of("/work/desk.toml", "bob", 0).len(), 0);
}

#[test]
fn a_run_that_has_ended_and_is_still_under_way_stays() {
    let place = StorePlace::new();
    let store = Store::open(place.address()).unwrap();
    let mut session = run(&store, "a", 2);
    end(&mut *session, message_record(2, "so far"), Status::Done);
    ended(&store, "b");
    ended(&store, "b/1");
    let all = Retention { runs: Some(0), ..Retention::default() };
    assert_eq!(store.collect(&all).unwrap().runs, [RoomId::from("b")]);
    append(&mut *session, &[message_record(3, "and on")]).unwrap();
    drop(session);
    assert_eq!(records(place.address(), "a").len(), 4);
    assert_eq!(store.collect(&all).unwrap().runs, [RoomId::from("a")]);
}

#[test]
fn blobs_go_when_nothing_refers_to_them_any_more() {
    let place = StorePlace::new();
    let store = Store::open(place.address()).unwrap();
    let keep = |bytes: &[u8]| store.blobs().keep(bytes, "text/plain", None).unwrap();
    let (used, deep, unused) = (keep(b"used"), keep(b"deep"), keep(b"unused"));
    let mut journal = run(&store, "a", 1);
    let text = format!("{}\"{}\"", "x".repeat(40_000), deep.sha256);
    let answered = Event::UserAnswered {
        call: CallId(1),
        text: Some(text),
        attachments: vec![used.clone()],
        passed: false,
    };
    append(&mut *journal, &[record(1, 2, answered)]).unwrap();
    assert_eq!(
        store.collect(&Retention::default()).unwrap().blobs,
        0,
        "a record may refer to it in a moment"
    );
    drop((journal, store));
    let store = Store::open(place.address()).unwrap();
    let collected = store.collect(&Retention::default()).unwrap();
    assert_eq!((collected.blobs, collected.bytes), (1, 6));
    let reader = StoreReader::open(place.address()).unwrap();
    let is_there =
        |blob: &conclave_runtime::blobs::Blob| reader.blob(&blob.sha256).unwrap().is_some();
    assert!(is_there(&used) && is_there(&deep) && !is_there(&unused));
}
