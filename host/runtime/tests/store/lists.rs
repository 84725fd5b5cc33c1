//! The lists of runs, rooms and their pending work.

use std::sync::Arc;

use conclave_core::journal::pending_work::{PendingWork, WaitChange, WaitKey};
use conclave_core::types::ids::TimerId;
use conclave_runtime::config::Config;
use conclave_runtime::event::{Event, HistoryChange, Principal};
use conclave_runtime::event::{RULES, Record};
use conclave_runtime::ids::{CallId, Millis, RoomId, TaskName};
use conclave_runtime::journal::JournalBatch;
use conclave_runtime::native::{Failure, Plugin, Step};
use conclave_runtime::outcome::Status;
use conclave_runtime::store::{
    ControlCommand, ControlMessage, Durability, Retention, RunFilter, RunListPlace, RunMatch,
    RunRow, RunState, RunTotals, Store, StoreReader,
};
use conclave_runtime::usage::Spent;
use conclave_runtime::{Host, HostOptions, RunOptions};

use crate::support::{
    StorePlace, about, append, copied, end, ended, message_record, of_epoch, open, opened, record,
    reopen, reopened_in, run, settle,
};

fn started_wait(key: WaitKey, kind: &str, at: Option<u64>) -> WaitChange {
    WaitChange::Begun(PendingWork {
        key,
        kind: kind.to_owned(),
        target: "t".to_owned(),
        at: at.map(Millis),
        request: None,
    })
}

#[test]
fn a_run_is_listed_as_it_stands() {
    let place = StorePlace::new();
    let store = Store::open(place.address()).unwrap();
    ended(&store, "aa1");
    let going = run(&store, "ab2", 2);
    drop(run(&store, "ab2/1", 1));
    let reader = StoreReader::open(place.address()).unwrap();
    let runs = reader.runs(&RunFilter::default()).unwrap();
    let state: Vec<_> =
        runs.iter().map(|run| (run.run.as_str(), run.state, run.rooms, run.records)).collect();
    assert_eq!(
        state,
        [("ab2", RunState::Running, 2, 3), ("aa1", RunState::Ended(Status::Done), 1, 3)]
    );
    let run = &runs[1];
    assert_eq!((run.turns, run.tokens, run.cost_micro_usd), (3, 40, 500));
    assert_eq!(
        (run.entry.as_str(), run.message.as_str(), run.principal.as_str(), run.command.as_str()),
        ("desk", "Good morning", "ada", "run")
    );
    assert!(run.locked && run.reason.is_some() && run.ended == Some(Millis(1_002)));
    assert_eq!(reader.rooms(&RoomId::from("ab2")).unwrap().len(), 2);
    let one = |filter: RunFilter| reader.runs(&filter).unwrap().len();
    assert_eq!(one(RunFilter { status: Some("done".to_owned()), ..RunFilter::default() }), 1);
    assert_eq!(one(RunFilter { status: Some("running".to_owned()), ..RunFilter::default() }), 1);
    assert_eq!(
        one(RunFilter { text: Some("GOOD".to_owned()), most: Some(1), ..RunFilter::default() }),
        1
    );
    assert_eq!(one(RunFilter { cost: Some(501), ..RunFilter::default() }), 0);
    assert_eq!(one(RunFilter { agent: Some("nobody".to_owned()), ..RunFilter::default() }), 0);
    assert_eq!(reader.find("aa").unwrap(), RunMatch::One(RoomId::from("aa1")));
    assert_eq!(reader.find("ab/1").unwrap(), RunMatch::One(RoomId::from("ab2/1")));
    assert!(matches!(reader.find("a").unwrap(), RunMatch::Several(several) if several.len() == 2));
    for nothing in ["", "%", "b", "/1"] {
        assert_eq!(reader.find(nothing).unwrap(), RunMatch::Nothing, "{nothing}");
    }
    drop((going, store));
    let runs = reader.runs(&RunFilter::default()).unwrap();
    assert_eq!(runs[0].state, RunState::Interrupted);
}

#[test]
fn records_of_a_run_come_in_the_order_of_their_commits_over_all_its_rooms() {
    let place = StorePlace::new();
    let store = Store::open(place.address()).unwrap();
    let mut root = run(&store, "aa1", 2);
    drop(run(&store, "other", 3));
    let child = run(&store, "aa1/1", 2);
    append(&mut *root, &[message_record(2, "after the child's")]).unwrap();
    let reader = StoreReader::open(place.address()).unwrap();
    let run = RoomId::from("aa1");
    let order = |after| -> Vec<(String, u64)> {
        let records = reader.run_records(&run, after, 100).unwrap();
        records.iter().map(|next| (next.room.to_string(), next.record.seq)).collect()
    };
    let all = [("aa1", 0), ("aa1", 1), ("aa1/1", 0), ("aa1/1", 1), ("aa1", 2)];
    assert_eq!(order(None), all.map(|(room, seq)| (room.to_owned(), seq)));
    let second = reader.run_records(&run, None, 2).unwrap()[1].position;
    assert_eq!(order(Some(second)), order(None)[2..]);
    assert!(order(reader.run_end(&run).unwrap()).is_empty());
    drop((root, child));
}

#[test]
fn a_list_of_runs_goes_on_behind_a_run_and_only_runs_of_its_config_and_principal_count() {
    let place = StorePlace::new();
    let store = Store::open(place.address()).unwrap();
    let names: Vec<String> = (10..75).map(|number| format!("r{number}")).collect();
    names.iter().for_each(|name| drop(run(&store, name, 1)));
    let reader = StoreReader::open(place.address()).unwrap();
    let page = |filter: RunFilter| -> Vec<String> {
        reader.runs(&filter).unwrap().iter().map(|row| row.run.to_string()).collect()
    };
    let (mut listed, mut after) = (Vec::new(), None);
    loop {
        let filter = RunFilter { after, most: Some(20), ..RunFilter::default() };
        let next = reader.runs(&filter).unwrap();
        let Some(RunRow { started, run, .. }) = next.last().cloned() else { break };
        // As a client writes the cursor and sends it back.
        after = Some(RunListPlace { started, run }.to_string().parse().unwrap());
        listed.extend(next.iter().map(|row| row.run.to_string()));
    }
    assert_eq!(listed, names.iter().rev().cloned().collect::<Vec<_>>());
    // Behind a run that retention has removed, those come that started before it.
    let behind = |started: u64| {
        let place = RunListPlace { started: Millis(started), run: "gone".into() };
        page(RunFilter { after: Some(place), ..RunFilter::default() }).len()
    };
    let started = reader.run(&"r10".into()).unwrap().expect("a run").started.0;
    let last = reader.run(&"r74".into()).unwrap().expect("a run").started.0;
    assert_eq!([behind(last + 1), behind(started - 1)], [65, 0]);
    // More than the engine is asked for at once, of which none is returned.
    let text = Some("no such text".to_owned());
    assert!(page(RunFilter { text, most: Some(1), ..RunFilter::default() }).is_empty());
    let of_config = |config: &str, principal: &str| {
        let (config, principal) = (Some(config.into()), Some(Principal(principal.into())));
        page(RunFilter { config, principal, ..RunFilter::default() }).len()
    };
    assert_eq!(of_config("/work/desk.toml", "ada"), 65);
    assert_eq!(of_config("/work/desk.toml", "bob"), 0);
    assert_eq!(of_config("/work/other.toml", "ada"), 0);
    let totals = reader.run_totals("/work/desk.toml".as_ref()).unwrap();
    assert_eq!((totals.states.values().sum::<u64>(), totals.records), (65, 65));
    assert_eq!(reader.run_totals("/work/other.toml".as_ref()).unwrap(), RunTotals::default());
}

#[test]
fn a_room_that_was_let_go_or_left_by_another_process_is_cut_off_until_it_is_reopened() {
    let place = StorePlace::new();
    let store = Store::open(place.address()).unwrap();
    drop(run(&store, "a", 2));
    drop(store);
    let store = Store::open(place.address()).unwrap();
    let state = || {
        StoreReader::open(place.address()).unwrap().runs(&RunFilter::default()).unwrap()[0].state
    };
    assert_eq!(state(), RunState::Interrupted);
    let mut reopened = reopen(&store, "a");
    // A store that hosts share has recorded the take-over too.
    let next = reopened.records.len() as u64;
    append(&mut *reopened.journal, &[message_record(next, "x")]).unwrap();
    assert_eq!(state(), RunState::Running);
    end(&mut *reopened.journal, message_record(next + 1, "x"), Status::MaxTurns);
    assert_eq!(state(), RunState::Ended(Status::MaxTurns));
}

/// Whoever reopens a run may leave a child room as it is.
#[test]
fn a_child_room_is_cut_off_until_it_is_reopened_itself() {
    let place = StorePlace::new();
    let store = Store::open(place.address()).unwrap();
    drop((run(&store, "a", 2), run(&store, "a/1", 1)));
    drop(store);
    let store = Store::open(place.address()).unwrap();
    let states = || {
        let rooms = StoreReader::open(place.address()).unwrap().rooms(&RoomId::from("a")).unwrap();
        rooms.iter().map(|row| row.state).collect::<Vec<_>>()
    };
    assert_eq!(states(), [RunState::Interrupted; 2]);
    // A barrier of the second reopening commits the first.
    let root = reopen(&store, "a");
    assert!(reopened_in(&*store.journals(Durability::Group, about()), "a/2").unwrap().is_none());
    assert_eq!(states(), [RunState::Running, RunState::Interrupted]);
    let child = reopen(&store, "a/1");
    assert!(reopened_in(&*store.journals(Durability::Group, about()), "a/2").unwrap().is_none());
    assert_eq!(states(), [RunState::Running; 2]);
    drop((root, child));
}

#[test]
fn what_a_room_waits_for_is_listed_until_it_is_over() {
    let place = StorePlace::new();
    let store = Store::open(place.address()).unwrap();
    let mut journal = open(&store, "a");
    let (call, model, timer) =
        (WaitKey::Call(CallId(1)), WaitKey::Model(CallId(1), 0), WaitKey::Timer(TimerId(4)));
    let mut take = |record, waits: &[WaitChange]| {
        let records = of_epoch(&*journal, &[record]);
        let entry =
            JournalBatch { records: &records, waits, outcome: None, spent: Spent::default() };
        settle(journal.append(&entry).unwrap()).unwrap();
        let waits =
            StoreReader::open(place.address()).unwrap().waits(Some(&RoomId::from("a"))).unwrap();
        waits.into_iter().map(|wait| (wait.wait.key, wait.is_live)).collect::<Vec<_>>()
    };
    let waits = [
        started_wait(call, "step", None),
        started_wait(model, "model", None),
        started_wait(timer, "timer", Some(7)),
    ];
    assert_eq!(take(opened("a", "x"), &waits), [(timer, true), (call, true), (model, true)]);
    assert_eq!(
        take(message_record(1, "x"), &[WaitChange::Over(model)]),
        [(timer, true), (call, true)]
    );
    assert_eq!(
        take(message_record(2, "x"), &[waits[1].clone(), WaitChange::Abandoned(CallId(1))]),
        [(timer, true)]
    );
    assert_eq!(take(message_record(3, "x"), &[waits[0].clone(), WaitChange::Finished]), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_nobody_goes_on_with_gets_an_end() {
    let temp = tempfile::tempdir().unwrap();
    let (folder, cut_off) = (temp.path().join("store"), temp.path().join("cut-off"));
    let desk =
        Plugin::agent("desk", |_: Step| std::future::pending::<Result<&'static str, Failure>>());
    let text = "entry = \"desk\"\n[plugins.desk]\nsource = \"native:desk\"\n[tasks.desk]\nagent = \"desk\"\n";
    let config =
        Config::parse("desk.toml", "", text).unwrap_or_else(|problems| panic!("{problems}"));
    let host = Host::new(HostOptions { native: vec![desk], ..HostOptions::default() }).unwrap();
    let store = Store::open(&folder).unwrap();
    let journals = store.journals(Durability::Group, about());
    let options =
        RunOptions { journals, ids: Arc::new(RoomId::from("a")), ..RunOptions::default() };
    let run = host.load(&config).await.unwrap().start(Some("Wait".to_owned()), options).unwrap();
    let going = tokio::spawn(run.outcome());
    // The room waits for its agent soon.
    while StoreReader::open(&folder).unwrap().waits(None).unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    assert!(store.give_up(&RoomId::from("a"), "x").is_err(), "this process has it under way");
    // A copy of the files as after a power loss at this point.
    copied(&folder, &cut_off);
    going.abort();
    let store = Store::open(&cut_off).unwrap();
    let reader = StoreReader::open(&cut_off).unwrap();
    let before = reader.records(&RoomId::from("a")).unwrap().len();
    assert_eq!(reader.runs(&RunFilter::default()).unwrap()[0].state, RunState::Interrupted);
    assert!(store.give_up(&RoomId::from("nothing"), "x").is_err());
    let word = ControlCommand::Stop { reason: "no longer wanted".to_owned() };
    let stop = ControlMessage {
        by: Some(Principal("olga".into())),
        ..ControlMessage::new(RoomId::from("a"), word)
    };
    for _ in 0..2 {
        store.give_up_for(&stop).unwrap();
        let run = reader.runs(&RunFilter::default()).unwrap().remove(0);
        assert_eq!(run.state, RunState::Ended(Status::Kill));
        assert_eq!(
            (run.reason.as_deref(), run.agents),
            (Some("no longer wanted"), vec!["desk".to_owned()])
        );
        assert_eq!(
            reader.records(&RoomId::from("a")).unwrap().len(),
            before + 2,
            "what has ended stays as it is"
        );
    }
    let last = reader.records(&RoomId::from("a")).unwrap().pop().unwrap();
    assert_eq!(last.event.sender(), stop.by.as_ref(), "{last:?}");
    assert!(reader.has_received(&RoomId::from("a"), &stop.id).unwrap());
    assert!(reader.waits(None).unwrap().is_empty());
}

/// The room's history was changed, but no run ever began in it.
#[test]
fn a_room_that_was_never_opened_can_be_given_up() {
    let place = StorePlace::new();
    let store = Store::open(place.address()).unwrap();
    let changed = Event::HistoryChanged {
        task: TaskName::from("desk"),
        change: HistoryChange::Clear { start: 0 },
    };
    append(&mut *open(&store, "a"), &[record(0, 1_000, changed)]).unwrap();
    store.give_up(&RoomId::from("a"), "it is over").unwrap();
    let reader = StoreReader::open(place.address()).unwrap();
    let runs = reader.runs(&RunFilter::default()).unwrap();
    assert_eq!(runs[0].state, RunState::Ended(Status::Kill));
    assert_eq!(runs[0].reason.as_deref(), Some("it is over"));
    assert_eq!(reader.check().unwrap().problems, Vec::<String>::new());
}

#[test]
fn a_run_of_other_rules_can_be_given_up_and_then_removed() {
    let place = StorePlace::new();
    let store = Store::open(place.address()).unwrap();
    let older =
        |record: Arc<Record>| Arc::new(Record { rules: RULES - 1, ..Arc::unwrap_or_clone(record) });
    append(&mut *open(&store, "a"), &[older(opened("a", "x")), older(message_record(1, "y"))])
        .unwrap();
    let reader = StoreReader::open(place.address()).unwrap();
    store.give_up(&RoomId::from("a"), "of an older host").unwrap();
    let run = reader.runs(&RunFilter::default()).unwrap().remove(0);
    assert_eq!(run.state, RunState::Ended(Status::Kill));
    assert_eq!(run.reason.as_deref(), Some("of an older host"));
    let all_runs = Retention { runs: Some(0), ..Retention::default() };
    assert_eq!(store.collect(&all_runs).unwrap().runs, [RoomId::from("a")]);
    assert!(reader.runs(&RunFilter::default()).unwrap().is_empty());
}
