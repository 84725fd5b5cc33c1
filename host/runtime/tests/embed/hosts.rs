//! Several hosts in one process, and the replaceable parts of a run: clock, ids, attachments, the
//! end of a run.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use conclave_runtime::Capability;
use conclave_runtime::clock::{BoxFuture, Clock};
use conclave_runtime::completion::Prompt;
use conclave_runtime::ids::{Millis, RoomId};
use conclave_runtime::journal::MemoryJournals;
use conclave_runtime::native::{self, Plugin, Step};
use conclave_runtime::outcome::Status;
use conclave_runtime::subscribe::{Published, Subscriber, Subscribers};
use conclave_runtime::{Host, HostOptions, Prepared, RunInput, RunOptions};

use crate::support::{Told, parse, prepared};

/// The state of a clock that stands still until it is set.
#[derive(Default)]
struct Still(AtomicU64, tokio::sync::Notify);

impl Still {
    fn at(millis: u64) -> Arc<Self> {
        Arc::new(Self(AtomicU64::new(millis), tokio::sync::Notify::new()))
    }

    fn set(&self, millis: u64) {
        self.0.store(millis, Ordering::SeqCst);
        self.1.notify_waiters();
    }
}

/// A clock with shared state.
struct Hands(Arc<Still>);

impl Clock for Hands {
    fn now(&self) -> Millis {
        Millis(self.0.0.load(Ordering::SeqCst))
    }

    fn sleep_until(&self, at: Millis) -> BoxFuture<'static, ()> {
        let still = Arc::clone(&self.0);
        Box::pin(async move {
            loop {
                let set = still.1.notified();
                tokio::pin!(set);
                set.as_mut().enable();
                if still.0.load(Ordering::SeqCst) >= at.0 {
                    return;
                }
                set.await;
            }
        })
    }
}

const TEXT: &str = "entry = \"desk\"\n[models.default]\nkind = \"native\"\n[plugins.desk]\nsource = \"native:desk\"\ngrants.model = [\"default\"]\n[tasks.desk]\nagent = \"desk\"\n";

/// Returns a host whose model answers with one word, and whose agent appends the time.
fn host_saying(word: &'static str) -> Host {
    let desk = Plugin::agent("desk", |step: Step| async move {
        let text = step.complete().await?.content.unwrap_or_default();
        Ok(native::finish(format!("{text} at {}", step.host.now().0)))
    })
    .asks(Capability::Model, "Answers.");
    let model = native::model(move |_: Prompt| async move { Ok(native::answer(word)) });
    let models = [("default".to_owned(), model)].into();
    Host::new(HostOptions { native: vec![desk], models, ..HostOptions::default() }).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hosts_know_nothing_of_each_other() {
    let (aye, nay) = (host_saying("aye"), host_saying("nay"));
    let turns = format!("{TEXT}[limits.run]\nturns = 1\n");
    let (aye, nay) =
        (aye.load(&parse(TEXT)).await.unwrap(), nay.load(&parse(&turns)).await.unwrap());
    let journals = MemoryJournals::default();
    let ask = |prepared: &Prepared, millis: u64| {
        let options = RunOptions {
            clock: Arc::new(Hands(Still::at(millis))),
            journals: Arc::new(journals.clone()),
            ..RunOptions::default()
        };
        tokio::spawn(prepared.start(Some("Well?".to_owned()), options).unwrap().outcome())
    };
    let runs: Vec<_> = (0..50)
        .flat_map(|time| {
            [(time, "aye", ask(&aye, time)), (time + 100, "nay", ask(&nay, time + 100))]
        })
        .collect();
    for (time, word, run) in runs {
        assert_eq!(run.await.unwrap().unwrap().content, Some(format!("{word} at {time}")));
    }
    assert_eq!(journals.rooms().len(), 100, "every run has a name of its own");
}

#[tokio::test]
async fn on_a_clock_that_stands_still_nothing_is_over() {
    let (started, release) =
        (Arc::new(tokio::sync::Notify::new()), Arc::new(tokio::sync::Notify::new()));
    let (begins, released) = (Arc::clone(&started), Arc::clone(&release));
    let desk = Plugin::agent("desk", move |_| {
        let (begins, released) = (Arc::clone(&begins), Arc::clone(&released));
        async move {
            begins.notify_one();
            released.notified().await;
            Ok(native::finish("in time"))
        }
    });
    let text = "entry = \"a\"\n[plugins.a]\nsource = \"native:desk\"\n[tasks.a]\nagent = \"a\"\n[limits.run]\nwall = \"1 ms\"\n";
    let prepared = prepared([desk], text).await;
    let (recorder, still) = (Told::default(), Still::at(7));
    let start = || {
        let options =
            RunOptions { clock: Arc::new(Hands(Arc::clone(&still))), ..recorder.options() };
        tokio::spawn(prepared.start(Some("go".to_owned()), options).unwrap().outcome())
    };
    let running = start();
    started.notified().await;
    release.notify_one();
    assert_eq!(running.await.unwrap().unwrap().content.as_deref(), Some("in time"));
    assert!(recorder.happenings().iter().all(|happening| happening.at == Millis(7)));
    let running = start();
    started.notified().await;
    still.set(8);
    assert_eq!(running.await.unwrap().unwrap().status, Status::Timeout);
}

#[tokio::test]
async fn what_is_attached_reaches_the_model_by_its_digest() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let keeps = Arc::clone(&seen);
    let model = native::model(move |prompt: Prompt| {
        let text = serde_json::to_string(&prompt).unwrap();
        keeps.lock().unwrap().push(text);
        async { Ok(native::answer("a chart")) }
    });
    let desk = Plugin::agent("desk", |step: Step| async move {
        Ok(native::finish(step.complete().await?.content.unwrap_or_default()))
    })
    .asks(Capability::Model, "Looks.");
    let options = HostOptions {
        native: vec![desk],
        models: [("default".to_owned(), model)].into(),
        ..HostOptions::default()
    };
    let host = Host::new(options).unwrap();
    let blob = host.keep_blob(b"\x89PNG", "image/png", Some("chart.png")).unwrap();
    let prepared = host.load(&parse(TEXT)).await.unwrap();
    let input = RunInput { attachments: vec![blob.clone()], ..RunInput::from("What is it?") };
    let outcome = prepared.start(input, RunOptions::default()).unwrap().outcome().await.unwrap();
    assert_eq!(outcome.content.as_deref(), Some("a chart"));
    assert!(seen.lock().unwrap()[0].contains(&blob.sha256));
    assert_eq!(host.blobs().read(&blob.sha256).unwrap().as_deref(), Some(&b"\x89PNG"[..]));
}

/// A subscriber that counts the ends of runs.
#[derive(Default)]
struct Ends(AtomicUsize);

impl Subscriber for Ends {
    fn on(&self, _: &Published) {}

    fn over(&self, room: &RoomId) {
        assert_eq!(room.as_str(), "test");
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn every_run_is_over_once_however_it_ends() {
    let ends = Arc::new(Ends::default());
    let desk = Plugin::agent("desk", |_| async { Ok(native::finish("done")) });
    let prepared = prepared(
        [desk],
        "entry = \"a\"\n[plugins.a]\nsource = \"native:desk\"\n[tasks.a]\nagent = \"a\"\n",
    )
    .await;
    let start = || {
        let subscribers = Subscribers::new([Arc::clone(&ends) as Arc<dyn Subscriber>]);
        let options = RunOptions {
            ids: Arc::new(RoomId::from("test")),
            subscribers,
            ..RunOptions::default()
        };
        prepared.start(Some("go".to_owned()), options).unwrap()
    };
    start().outcome().await.unwrap();
    assert_eq!(ends.0.load(Ordering::SeqCst), 1);
    drop(start());
    assert_eq!(ends.0.load(Ordering::SeqCst), 2);
    drop(start().outcome());
    assert_eq!(ends.0.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn where_native_code_sends_data_is_not_known_and_said() {
    let prepared = host_saying("aye").load(&parse(TEXT)).await.unwrap();
    let destinations = conclave_core::inspect::permission_summary::data_can_leave(prepared.setup());
    assert_eq!(
        destinations,
        "wherever the native plugin desk sends it, wherever this program's client sends it (model default)"
    );
}
