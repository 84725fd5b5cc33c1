//! A complete host over a store: a disk that fills up during a run, a clock that jumps, and the
//! resumption afterwards.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use conclave_runtime::action::Action;
use conclave_runtime::clock::{BoxFuture, Clock, SteadyClock};
use conclave_runtime::completion::{Completion, Prompt, StopReason, TokenUsage};
use conclave_runtime::config::Config;
use conclave_runtime::event::Event;
use conclave_runtime::ids::{Millis, RoomId};
use conclave_runtime::models::{ModelClient, ModelFailure, TextSink};
use conclave_runtime::native::{self, IntoTurn, Plugin, Step};
use conclave_runtime::outcome::{Outcome, Status};
use conclave_runtime::store::{Durability, RunState, Store, StoreOptions, StoreReader};
use conclave_runtime::{Host, HostOptions, Prepared, RunOptions, SessionError};

use crate::support::StorePlace;

/// A model with long answers that counts its requests.
#[derive(Default)]
struct Talker(AtomicU64);

impl ModelClient for Talker {
    fn complete(
        &self,
        _: Prompt,
        _: Arc<dyn TextSink>,
    ) -> BoxFuture<'static, Result<Completion, ModelFailure>> {
        let count = self.0.fetch_add(1, Ordering::SeqCst);
        // The answers differ, because equal ones would share a blob.
        let content = format!("{count} ").repeat(8_000);
        let usage = TokenUsage { input_tokens: 10, output_tokens: 10, ..TokenUsage::default() };
        let (id, model) = (count.to_string(), "talker".to_owned());
        Box::pin(async move {
            Ok(Completion {
                id,
                content: Some(content),
                reasoning: None,
                tool_calls: Vec::new(),
                stop: StopReason::End,
                usage,
                model,
            })
        })
    }
}

const CONFIG: &str = "entry = 'desk'\n[models.default]\nkind = 'native'\n[plugins.desk]\nsource = 'native:desk'\ngrants.model = ['default']\n\
                      [tasks.desk]\nagent = 'desk'\n";

/// Returns an agent that calls its model twenty times in one step, and finishes with the total
/// length.
async fn prepared(talker: &Arc<Talker>) -> Prepared {
    let desk = Plugin::agent("desk", |step: Step| async move {
        let mut length = 0;
        for _ in 0..20 {
            length += step.complete().await?.content.unwrap_or_default().len();
        }
        Ok(native::finish(format!("{}", length > 0)))
    })
    .asks(conclave_runtime::Capability::Model, "Talks.");
    let models = [("default".to_owned(), Arc::clone(talker) as Arc<dyn ModelClient>)].into();
    let host =
        Host::new(HostOptions { native: vec![desk], models, ..HostOptions::default() }).unwrap();
    host.load(&Config::parse("desk.toml", "", CONFIG).unwrap()).await.unwrap()
}

fn options(store: &Store) -> RunOptions {
    RunOptions {
        ids: Arc::new(RoomId::from("talk")),
        journals: store.journals(Durability::Group, crate::support::about()),
        ..RunOptions::default()
    }
}

#[tokio::test]
async fn a_run_that_met_a_full_disk_goes_on_once_there_is_space() {
    let temp = tempfile::tempdir().unwrap();
    let talker = Arc::new(Talker::default());
    let prepared = prepared(&talker).await;
    let store = Store::open_with(
        temp.path(),
        &StoreOptions { most_bytes: Some(300 << 10), ..StoreOptions::default() },
    )
    .unwrap();
    let failure = prepared
        .start(Some("Talk.".to_owned()), options(&store))
        .unwrap()
        .outcome()
        .await
        .unwrap_err();
    let SessionError::Journal(failure) = failure else { panic!("{failure}") };
    assert_eq!(failure.cause.kind(), std::io::ErrorKind::StorageFull, "{failure}");
    let bought = talker.0.load(Ordering::SeqCst);
    assert!(bought > 1 && bought < 20, "the disk was full in the middle: {bought}");
    drop(store);

    let reader = StoreReader::open(temp.path()).unwrap();
    assert_eq!(
        reader.runs(&conclave_runtime::store::RunFilter::default()).unwrap()[0].state,
        RunState::Interrupted
    );
    drop(reader);
    let store = Store::open(temp.path()).unwrap();
    let mut session = prepared.reopen(&RoomId::from("talk"), options(&store)).await.unwrap();
    assert!(session.is_cut_off());
    let outcome = session.resume().await.unwrap();
    assert_eq!((outcome.status, outcome.content.as_deref()), (Status::Done, Some("true")));
    // Only the request whose answer could not be stored is sent again.
    let bought = talker.0.load(Ordering::SeqCst);
    assert!((20..=21).contains(&bought), "{bought}");
    assert!(StoreReader::open(temp.path()).unwrap().check().unwrap().problems.is_empty());
}

/// A clock that is set by hand; a sleep until a past time ends at once. If the second field is
/// true, sessions use a steady clock.
#[derive(Default)]
struct Jumping(Mutex<u64>, bool);

impl Clock for Jumping {
    fn now(&self) -> Millis {
        Millis(*self.0.lock().unwrap())
    }

    fn sleep_until(&self, at: Millis) -> BoxFuture<'static, ()> {
        let is_over = at <= self.now();
        Box::pin(async move {
            if !is_over {
                std::future::pending::<()>().await;
            }
        })
    }

    fn steady(&self) -> Option<Arc<dyn Clock>> {
        self.1.then(|| Arc::new(SteadyClock::new(self.now())) as Arc<dyn Clock>)
    }
}

/// A model that moves the clock at each request.
struct Mover(Arc<Jumping>, Vec<i64>, AtomicU64);

impl ModelClient for Mover {
    fn complete(
        &self,
        prompt: Prompt,
        sink: Arc<dyn TextSink>,
    ) -> BoxFuture<'static, Result<Completion, ModelFailure>> {
        let count = self.2.fetch_add(1, Ordering::SeqCst);
        let by = self.1.get(usize::try_from(count).unwrap()).copied().unwrap_or_default();
        let mut now = self.0.0.lock().unwrap();
        *now = now.saturating_add_signed(by);
        drop(now);
        Talker::default().complete(prompt, sink)
    }
}

#[tokio::test]
async fn a_clock_that_jumps_costs_nothing_and_owes_nothing() {
    const HOUR: i64 = 3_600_000;
    let place = StorePlace::new();
    let clock = Arc::new(Jumping(Mutex::new(1_000_000_000_000), false));
    let mover =
        Mover(Arc::clone(&clock), vec![-HOUR, 60_000, -2 * HOUR, 24 * HOUR], AtomicU64::default());
    let desk = Plugin::agent("desk", |step: Step| async move {
        for _ in 0..4 {
            step.complete().await?;
        }
        Ok(native::finish("well"))
    })
    .asks(conclave_runtime::Capability::Model, "Talks.");
    let models = [("default".to_owned(), Arc::new(mover) as Arc<dyn ModelClient>)].into();
    let host =
        Host::new(HostOptions { native: vec![desk], models, ..HostOptions::default() }).unwrap();
    let prepared = host.load(&Config::parse("desk.toml", "", CONFIG).unwrap()).await.unwrap();
    let store = Store::open(place.address()).unwrap();
    let options = RunOptions { clock: Arc::clone(&clock) as Arc<dyn Clock>, ..options(&store) };
    let outcome =
        prepared.start(Some("Talk.".to_owned()), options).unwrap().outcome().await.unwrap();
    assert_eq!(outcome.status, Status::Done, "{}", outcome.reason);
    drop(store);
    let reader = StoreReader::open(place.address()).unwrap();
    let records = reader.records(&RoomId::from("talk")).unwrap();
    let times: Vec<u64> = records.iter().map(|record| record.at.0).collect();
    // A room's own time never goes back, so no duration is negative.
    assert!(times.is_sorted(), "{times:?}");
    let room = conclave_core::journal::record::fold(records);
    assert_eq!(room.now().0, *times.iter().max().unwrap());
    assert!(reader.verify(&[]).unwrap().problems.is_empty());
}

/// Returns the outcome of a run whose model sets the machine's clock at each request, and the times
/// of its records.
async fn ran_while_the_clock_was_set(by: Vec<i64>, is_steady: bool) -> (Arc<Outcome>, Vec<u64>) {
    let clock = Arc::new(Jumping(Mutex::new(1_000_000_000_000), is_steady));
    let steps = by.len();
    let mover = Mover(Arc::clone(&clock), by, AtomicU64::default());
    let requests = Arc::new(AtomicUsize::new(0));
    let desk = Plugin::agent("desk", move |step: Step| {
        let is_last = requests.fetch_add(1, Ordering::SeqCst) + 1 >= steps;
        async move {
            step.complete().await?;
            Ok(if is_last {
                native::finish("well")
            } else {
                Action::Think { thought: "on".to_owned() }.into_turn()
            })
        }
    })
    .asks(conclave_runtime::Capability::Model, "Talks.");
    let models = [("default".to_owned(), Arc::new(mover) as Arc<dyn ModelClient>)].into();
    let host =
        Host::new(HostOptions { native: vec![desk], models, ..HostOptions::default() }).unwrap();
    let config = format!("{CONFIG}\n[limits.run]\nwall = \"10 min\"\n");
    let prepared = host.load(&Config::parse("desk.toml", "", &config).unwrap()).await.unwrap();
    let place = StorePlace::new();
    let store = Store::open(place.address()).unwrap();
    let options = RunOptions { clock: Arc::clone(&clock) as Arc<dyn Clock>, ..options(&store) };
    let outcome =
        prepared.start(Some("Talk.".to_owned()), options).unwrap().outcome().await.unwrap();
    drop(store);
    let records =
        StoreReader::open(place.address()).unwrap().records(&RoomId::from("talk")).unwrap();
    (outcome, records.iter().map(|record| record.at.0).collect())
}

/// B22: 400 days forward within a run whose `limits.run.wall` is ten minutes, and back.
#[tokio::test]
async fn a_clock_that_is_set_forward_ends_no_run() {
    const DAY: i64 = 24 * 3_600_000;
    for by in [vec![400 * DAY, 0, 0], vec![400 * DAY, -800 * DAY, 1], vec![-DAY, 2 * DAY, 0]] {
        let (outcome, times) = ran_while_the_clock_was_set(by.clone(), true).await;
        assert_eq!(
            (outcome.status, outcome.content.as_deref()),
            (Status::Done, Some("well")),
            "{by:?}: {}",
            outcome.reason
        );
        let took = times[times.len() - 1] - times[0];
        assert!(times.is_sorted() && took < 600_000, "{by:?}: {times:?}");
    }
    // Without the steady clock the deadline would have passed.
    let (outcome, _) = ran_while_the_clock_was_set(vec![400 * DAY, 0, 0], false).await;
    assert_eq!(outcome.status, Status::Timeout, "{}", outcome.reason);
}

/// B22: between two processes the clock was set back by a day. The later run has its ten minutes,
/// and its records come after the others.
#[tokio::test]
async fn a_clock_that_was_set_back_between_two_processes_holds_up_no_deadline() {
    let place = StorePlace::new();
    let desk = || Plugin::agent("desk", |_: Step| async move { Ok(native::finish("well")) });
    let config =
        CONFIG.replace("grants.model = ['default']\n", "") + "\n[limits.run]\nwall = '10 min'\n";
    let config = Config::parse("desk.toml", "", &config).unwrap();
    for (now, is_first) in [(1_000_086_400_000, true), (1_000_000_000_000, false)] {
        let models =
            [("default".to_owned(), Arc::new(Talker::default()) as Arc<dyn ModelClient>)].into();
        let host =
            Host::new(HostOptions { native: vec![desk()], models, ..HostOptions::default() })
                .unwrap();
        let prepared = host.load(&config).await.unwrap();
        let store = Store::open(place.address()).unwrap();
        let clock = Arc::new(Jumping(Mutex::new(now), false));
        let options = RunOptions { clock: clock as Arc<dyn Clock>, ..options(&store) };
        let mut session = match is_first {
            true => prepared.session(options).unwrap(),
            false => prepared.reopen(&RoomId::from("talk"), options).await.unwrap(),
        };
        let outcome = session.run("Talk.").await.unwrap();
        assert_eq!(outcome.status, Status::Done, "{}", outcome.reason);
    }
    let records =
        StoreReader::open(place.address()).unwrap().records(&RoomId::from("talk")).unwrap();
    let times: Vec<u64> = records.iter().map(|record| record.at.0).collect();
    assert!(times.is_sorted(), "{times:?}");
    let deadlines: Vec<u64> = records
        .iter()
        .filter_map(|record| match &record.event {
            Event::RoomOpened { opening, .. } | Event::RunStarted { opening, .. } => {
                opening.deadline
            }
            _ => None,
        })
        .map(|deadline| deadline.0)
        .collect();
    assert_eq!(deadlines, [1_000_086_400_000 + 600_000; 2]);
}

/// A host took the run, by a clock that is ahead, and ended before it did anything. The next one has
/// a clock that is behind.
#[tokio::test]
async fn records_come_after_those_of_a_host_whose_clock_was_ahead() {
    const BEHIND: u64 = 1_000_000_000_000;
    let place = StorePlace::new();
    let store = Store::open(place.address()).unwrap();
    let desk = Plugin::agent("desk", |_: Step| async move { Ok(native::finish("well")) });
    let host = Host::new(HostOptions { native: vec![desk], ..HostOptions::default() }).unwrap();
    let config =
        "entry = 'desk'\n[plugins.desk]\nsource = 'native:desk'\n[tasks.desk]\nagent = 'desk'\n";
    let prepared = host.load(&Config::parse("desk.toml", "", config).unwrap()).await.unwrap();
    let room = RoomId::from("talk");
    let options = || {
        let clock = Arc::new(Jumping(Mutex::new(BEHIND), false));
        RunOptions { clock: clock as Arc<dyn Clock>, ..options(&store) }
    };
    prepared.start(Some("Talk.".to_owned()), options()).unwrap().outcome().await.unwrap();
    let ahead = options().journals.reopen(&room, Millis(BEHIND + 5_000)).await.unwrap();
    drop(ahead.unwrap());
    let mut session = prepared.reopen(&room, options()).await.unwrap();
    session.run("Talk.").await.unwrap();
    let records = StoreReader::open(place.address()).unwrap().records(&room).unwrap();
    let times: Vec<u64> = records.iter().map(|record| record.at.0).collect();
    assert!(times.is_sorted(), "{times:?}");
    assert_eq!(times[0], BEHIND);
}
