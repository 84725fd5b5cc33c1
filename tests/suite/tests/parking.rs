//! Calls that wait for a model release their sandbox. Many more calls can wait than there are
//! sandboxes, and each resumes as if it had never been suspended.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use conclave_core::config::Config;
use conclave_core::protocol::event::Event;
use conclave_core::types::fault::{CallReport, FaultKind};
use conclave_core::types::ids::RoomId;
use conclave_runtime::clock::{BoxFuture, MonotonicClock};
use conclave_runtime::completion::{Completion, Prompt, StopReason, TokenUsage};
use conclave_runtime::engine::EngineSettings;
use conclave_runtime::journal::MemoryJournals;
use conclave_runtime::models::{ModelClient, ModelFailure, TextSink};
use conclave_runtime::subscribe::{Published, RunEvent, Subscriber, Subscribers};
use conclave_runtime::{Host, HostOptions, Prepared, Run, RunOptions};
use conclave_test_support::{block_on, cache, guest, until_so as until};
use tokio::sync::Semaphore;
use tokio::sync::oneshot;

/// A model that answers when the test permits it.
pub(crate) struct Slow {
    open: Arc<Semaphore>,
    asked: Arc<Mutex<Vec<String>>>,
    /// Answers that are released one by one, by prompt.
    singly: Mutex<BTreeMap<String, oneshot::Sender<()>>>,
    is_single: bool,
}

impl Slow {
    pub(crate) fn new(is_single: bool) -> Arc<Self> {
        Arc::new(Self {
            open: Arc::new(Semaphore::new(0)),
            asked: Arc::default(),
            singly: Mutex::default(),
            is_single,
        })
    }

    pub(crate) fn asked(&self) -> usize {
        self.asked.lock().expect("nobody panics").len()
    }

    pub(crate) fn answer_all(&self) {
        self.open.add_permits(Semaphore::MAX_PERMITS / 2);
    }

    fn answer(&self, asked: &str) {
        let waits = self.singly.lock().expect("nobody panics").remove(asked).expect("it was asked");
        waits.send(()).expect("it is waited for");
    }
}

impl ModelClient for Slow {
    fn complete(
        &self,
        prompt: Prompt,
        _: Arc<dyn TextSink>,
    ) -> BoxFuture<'static, Result<Completion, ModelFailure>> {
        let asked = prompt.last_text().to_owned();
        let (sender, receiver) = oneshot::channel();
        if self.is_single {
            self.singly.lock().expect("nobody panics").insert(asked.clone(), sender);
        }
        let (open, is_single) = (Arc::clone(&self.open), self.is_single);
        self.asked.lock().expect("nobody panics").push(asked.clone());
        Box::pin(async move {
            if is_single {
                let _ = receiver.await;
            } else {
                drop(open.acquire().await);
            }
            let (id, model, usage) = ("1".to_owned(), "slow".to_owned(), TokenUsage::default());
            Ok(Completion {
                id,
                content: Some(format!("={asked}")),
                reasoning: None,
                tool_calls: Vec::new(),
                stop: StopReason::End,
                usage,
                model,
            })
        })
    }
}

/// Far above the real need: on a busy machine a call is charged for time in which it did not run.
const PATIENT: &str = "cpu = \"1 h\", wall = \"1 h\"";
const HOUR: Duration = Duration::from_secs(3_600);
/// The simulated computing time of a call of a [`ManualClock`] before it waits.
const COMPUTED: Duration = Duration::from_millis(25);

/// A clock that advances by [`COMPUTED`] with each reading. The test wakes the sleepers.
#[derive(Debug)]
struct ManualClock {
    now: Mutex<Instant>,
    /// Whether every further sleep ends at once.
    is_over: AtomicBool,
    sleeps: Mutex<Vec<(Duration, Option<oneshot::Sender<()>>)>>,
}

impl ManualClock {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            now: Mutex::new(Instant::now()),
            is_over: AtomicBool::new(false),
            sleeps: Mutex::default(),
        })
    }

    /// Returns the requested length of each sleep, including those that have ended.
    fn sleeps(&self) -> Vec<Duration> {
        self.sleeps.lock().expect("nobody panics").iter().map(|(time, _)| *time).collect()
    }

    /// Wakes those that sleep for less than an hour.
    fn wake_short(&self) {
        let mut sleeps = self.sleeps.lock().expect("nobody panics");
        let short = sleeps.iter_mut().filter(|(time, _)| *time < HOUR);
        for sleeper in short.filter_map(|(_, sleeper)| sleeper.take()) {
            // A call that was answered meanwhile no longer sleeps.
            let _ = sleeper.send(());
        }
    }

    fn wake(&self, number: usize) {
        let sleeper = self.sleeps.lock().expect("nobody panics")[number]
            .1
            .take()
            .expect("it was not woken before");
        sleeper.send(()).expect("somebody sleeps");
    }
}

impl MonotonicClock for ManualClock {
    fn now(&self) -> Instant {
        let mut now = self.now.lock().expect("nobody panics");
        *now += COMPUTED;
        *now
    }

    fn sleep(&self, time: Duration) -> BoxFuture<'static, ()> {
        if self.is_over.load(Ordering::SeqCst) {
            return Box::pin(std::future::ready(()));
        }
        let (sender, woken) = oneshot::channel();
        self.sleeps.lock().expect("nobody panics").push((time, Some(sender)));
        Box::pin(async move { drop(woken.await) })
    }
}

#[derive(Default)]
struct Lines(Mutex<Vec<String>>);

impl Subscriber for Lines {
    fn on(&self, happening: &Published) {
        if let RunEvent::Logged { message, .. } = &happening.what {
            self.0.lock().expect("nobody panics").push(message.clone());
        }
    }
}

struct World {
    host: Host,
    model: Arc<Slow>,
    folder: tempfile::TempDir,
    config: String,
    journals: MemoryJournals,
    lines: Arc<Lines>,
}

impl World {
    fn new(is_single: bool, engine: EngineSettings, settings: &str, limits: &str) -> Self {
        let model = Slow::new(is_single);
        let cache = Some(cache());
        let models = [("default".to_owned(), Arc::clone(&model) as Arc<dyn ModelClient>)].into();
        let host = Host::new(HostOptions { cache, models, engine, ..HostOptions::default() })
            .expect("the engine starts");
        let config = format!(
            "entry = \"main\"\n[models.default]\nkind = \"native\"\n[plugins.waits]\nsource = \"{}\"\ngrants.model = [\"default\"]\n\
             config = {{ {settings} }}\nlimits = {{ {limits} }}\n[tasks.main]\nagent = \"waits\"\n",
            guest("agent_waits").display()
        );
        let folder = tempfile::tempdir().expect("a test can make a folder");
        Self {
            host,
            model,
            folder,
            config,
            journals: MemoryJournals::default(),
            lines: Arc::default(),
        }
    }

    async fn prepare(&self) -> Prepared {
        let folder = self.folder.path().to_string_lossy().into_owned();
        let config = Config::parse("conclave.toml", &folder, &self.config)
            .unwrap_or_else(|problems| panic!("{problems}"));
        let prepared =
            self.host.prepare(&config, &(Arc::new(|_| {}) as conclave_runtime::Follow)).await;
        prepared.unwrap_or_else(|problems| panic!("{problems}"))
    }

    fn start(&self, prepared: &Prepared, room: &str) -> Run {
        let options = RunOptions {
            ids: Arc::new(RoomId::from(room)),
            journals: Arc::new(self.journals.clone()),
            subscribers: Subscribers::new([Arc::clone(&self.lines) as Arc<dyn Subscriber>]),
            ..RunOptions::default()
        };
        prepared.start(Some("go".to_owned()), options).expect("a journal in memory opens")
    }

    fn report(&self, room: &str) -> (CallReport, Option<FaultKind>) {
        let stepped = self.journals.records(&RoomId::from(room)).iter().find_map(|record| {
            match &record.event {
                Event::AgentStepped { answer, report, .. } => {
                    Some((report.clone(), answer.as_ref().err().map(|fault| fault.kind)))
                }
                _ => None,
            }
        });
        stepped.expect("it has stepped")
    }
}

pub(crate) fn parks() -> EngineSettings {
    EngineSettings {
        park_after: Some(Duration::from_millis(5)),
        slots: 4,
        ..EngineSettings::default()
    }
}

#[test]
fn many_more_wait_than_there_are_sandboxes() {
    const MANY: usize = 1_000;
    block_on(async {
        let world = World::new(
            false,
            EngineSettings { slots: 16, ..EngineSettings::default() },
            "asks = 2",
            PATIENT,
        );
        let prepared = world.prepare().await;
        let runs: Vec<_> = (0..MANY)
            .map(|index| tokio::spawn(world.start(&prepared, &format!("room{index}")).outcome()))
            .collect();
        until("all have asked", || world.model.asked() == MANY).await;
        until("none holds a sandbox", || world.host.engine().live() == 0).await;
        assert_eq!(world.host.engine().waiting(), MANY);
        world.model.answer_all();
        for run in runs {
            let outcome =
                run.await.expect("it does not panic").expect("a journal in memory does not fail");
            assert_eq!(outcome.content.as_deref(), Some("=0 =1"));
        }
        assert_eq!((world.host.engine().live(), world.host.engine().waiting()), (0, 0));
        assert_eq!(world.model.asked(), 2 * MANY, "nothing was asked twice");
    });
}

#[test]
fn answers_may_come_in_another_order_than_they_are_waited_for() {
    block_on(async {
        let world = World::new(true, parks(), "asks = 4, at_once = true", PATIENT);
        let prepared = world.prepare().await;
        let run = tokio::spawn(world.start(&prepared, "room").outcome());
        until("all are asked", || world.model.asked() == 4).await;
        for asked in ["0", "2", "3", "1"] {
            until("it is parked", || {
                world.host.engine().waiting() == 1 && world.host.engine().live() == 0
            })
            .await;
            world.model.answer(asked);
        }
        let outcome =
            run.await.expect("it does not panic").expect("a journal in memory does not fail");
        assert_eq!(outcome.content.as_deref(), Some("=3 =2 =1 =0"));
        assert_eq!(world.model.asked(), 4);
    });
}

/// A suspended call must have the same answer, lines and scratch as one that is not.
#[test]
fn nothing_is_told_twice() {
    let run = |engine: EngineSettings| {
        block_on(async {
            let parks = engine.park_after.is_some();
            let world = World::new(true, engine, "asks = 3", PATIENT);
            let prepared = world.prepare().await;
            let run = tokio::spawn(world.start(&prepared, "room").outcome());
            for asked in ["0", "1", "2"] {
                until("it asks", || {
                    world.model.singly.lock().expect("nobody panics").contains_key(asked)
                })
                .await;
                if parks {
                    until("it is parked", || {
                        world.host.engine().waiting() == 1 && world.host.engine().live() == 0
                    })
                    .await;
                }
                world.model.answer(asked);
            }
            let outcome =
                run.await.expect("it does not panic").expect("a journal in memory does not fail");
            let (report, fault) = world.report("room");
            assert_eq!(fault, None);
            let lines = world.lines.0.lock().expect("nobody panics").clone();
            (outcome.content.clone(), lines, report.scratch, report.denials, report.log_dropped)
        })
    };
    let parked = run(parks());
    let held = run(EngineSettings { park_after: None, ..parks() });
    assert_eq!(parked, held);
    assert_eq!(parked.1.len(), 3, "{:?}", parked.1);
}

#[test]
fn a_call_that_computed_long_keeps_its_sandbox_until_the_wait_was_worth_it() {
    block_on(async {
        let clock = ManualClock::new();
        let park_after = Duration::from_millis(5);
        let engine =
            EngineSettings { park_after: Some(park_after), park_clock: clock.clone(), ..parks() };
        let world = World::new(true, engine, "asks = 1", PATIENT);
        let prepared = world.prepare().await;
        let run = tokio::spawn(world.start(&prepared, "room").outcome());
        let held = || (world.host.engine().live(), world.host.engine().waiting());
        let mut waits = Vec::new();
        for time in [COMPUTED * 4, park_after] {
            waits.push(time);
            until("it waits on", || clock.sleeps().len() == waits.len()).await;
            assert_eq!(
                (clock.sleeps(), held()),
                (waits.clone(), (1, 0)),
                "it would have to compute as long again"
            );
            clock.wake(waits.len() - 1);
        }
        until("it is parked in the end", || held() == (0, 1) && world.model.asked() == 1).await;
        world.model.answer("0");
        assert!(run.await.expect("it does not panic").is_ok());
    });
}

#[test]
fn a_parked_call_that_is_stopped_leaves_nothing() {
    block_on(async {
        let world = World::new(true, parks(), "asks = 1", PATIENT);
        let prepared = world.prepare().await;
        let run = world.start(&prepared, "room");
        let handle = run.handle();
        let run = tokio::spawn(run.outcome());
        until("it is parked", || world.host.engine().waiting() == 1).await;
        handle.stop("enough");
        run.await.expect("it does not panic").expect("a journal in memory does not fail");
        until("nothing is left", || {
            world.host.engine().waiting() == 0 && world.host.engine().live() == 0
        })
        .await;
    });
}

#[test]
fn a_parked_call_ends_at_its_wall_limit() {
    block_on(async {
        let clock = ManualClock::new();
        let engine = EngineSettings { park_clock: clock.clone(), ..parks() };
        let world = World::new(true, engine, "asks = 1", PATIENT);
        let prepared = world.prepare().await;
        let run = tokio::spawn(world.start(&prepared, "room").outcome());
        for sleep in 0..2 {
            until("it waits on", || clock.sleeps().len() == sleep + 1).await;
            clock.wake(sleep);
        }
        until("it is parked, with a limit", || {
            world.host.engine().waiting() == 1 && clock.sleeps().len() == 3
        })
        .await;
        let left = clock.sleeps()[2];
        assert!(
            left > Duration::ZERO && left < Duration::from_secs(3600),
            "what it took before is taken off: {left:?}"
        );
        // Set for the retries of the task as well.
        clock.is_over.store(true, Ordering::SeqCst);
        clock.wake(2);
        run.await.expect("it does not panic").expect("a journal in memory does not fail");
        assert_eq!(world.report("room").1, Some(FaultKind::Wall));
        assert_eq!((world.host.engine().live(), world.host.engine().waiting()), (0, 0));
    });
}

/// Each attempt repeats all earlier computing, which counts against the same limit.
#[test]
fn a_guest_that_asks_again_and_again_computes_no_more_than_it_may() {
    block_on(async {
        let settings = "asks = 250, rounds = 3000000";
        let world = World::new(
            false,
            EngineSettings { park_after: Some(Duration::ZERO), ..parks() },
            settings,
            "cpu = \"300ms\"",
        );
        world.model.answer_all();
        let prepared = world.prepare().await;
        let outcome = world.start(&prepared, "room").outcome().await;
        assert!(outcome.is_ok());
        let (report, fault) = world.report("room");
        assert_eq!(fault, Some(FaultKind::Cpu), "{report:?}");
        assert!(report.cpu_ticks <= 31, "{report:?}");
    });
}

/// The tool that it waits for has limits of its own, and may itself wait for an approver for hours.
#[test]
fn a_call_that_waits_for_another_tool_holds_no_sandbox_and_its_time_does_not_run() {
    block_on(async {
        let clock = ManualClock::new();
        let engine = EngineSettings { park_clock: clock.clone(), ..parks() };
        let mut world = World::new(true, engine, "asks = 1", PATIENT);
        world.config = format!(
            "entry = \"main\"\n[models.default]\nkind = \"native\"\n\
             [plugins.caller]\nsource = \"{}\"\ngrants.tools = [\"nested.*\", \"asks.*\"]\n\
             config = {{ tool = \"nested.at_once\", arguments = {{ calls = [{{ tool = \"asks.wait\" }}] }} }}\n\
             [plugins.nested]\nsource = \"{}\"\ngrants.tools = [\"asks.*\"]\nlimits = {{ cpu = \"1 h\", wall = \"5 h\" }}\n\
             [plugins.asks]\nsource = \"{}\"\ngrants.model = [\"default\"]\nlimits = {{ cpu = \"1 h\", wall = \"2 h\" }}\n\
             [tasks.main]\nagent = \"caller\"\n[[policy]]\ntool = \"*\"\ndecide = \"allow\"\n",
            guest("agent_caller").display(),
            guest("nested").display(),
            guest("model_denied").display(),
        );
        let prepared = world.prepare().await;
        let run = tokio::spawn(world.start(&prepared, "room").outcome());
        until("both are parked", || {
            clock.wake_short();
            let engine = world.host.engine();
            let is_timed = clock.sleeps().iter().any(|time| *time >= HOUR);
            engine.waiting() == 2 && engine.live() == 0 && world.model.asked() == 1 && is_timed
        })
        .await;
        let walls: Vec<Duration> =
            clock.sleeps().into_iter().filter(|time| *time >= HOUR).collect();
        assert!(walls.len() == 1 && walls[0] <= HOUR * 2, "only the inner call's: {walls:?}");
        world.model.answer("Are you there?");
        let outcome =
            run.await.expect("it does not panic").expect("a journal in memory does not fail");
        assert!(outcome.content.as_deref().unwrap_or_default().contains("=Are you there?"));
        assert_eq!(world.model.asked(), 1, "no call was made again");
    });
}
