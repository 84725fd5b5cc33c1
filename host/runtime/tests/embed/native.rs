//! Native tools and agents: the same grants, checks and limits as for components, as far as they
//! apply without a sandbox.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use conclave_runtime::Capability;
use conclave_runtime::completion::{Completion, TokenUsage};
use conclave_runtime::config::ProblemCode;
use conclave_runtime::fault::FaultKind;
use conclave_runtime::native::{self, Call, Failure, Plugin, Step, Tool};
use conclave_runtime::notice::Notice;
use conclave_runtime::outcome::Status;
use conclave_runtime::subscribe::{Level, RunEvent};
use conclave_runtime::tool::{NestedAnswer, NestedError};
use conclave_runtime::{Host, HostOptions, RunOptions};
use serde_json::{Value, json};
use tokio::sync::{Notify, oneshot};

use crate::support::{Told, config, parse, prepared, refused, run};

/// Calls `app.tool` with the message as its arguments, and finishes with the answer.
fn desk() -> Plugin {
    Plugin::agent("desk", |step: Step| async move {
        Ok(match step.results() {
            [] => native::call("app.tool", serde_json::from_str(step.text())?),
            [answer, ..] => native::finish(answer.content.clone()),
        })
    })
    .may_use(Capability::Tools, "Calls what it is asked to call.")
}

fn schema() -> Value {
    json!({ "type": "object", "properties": { "number": { "type": "integer" } } })
}

fn app<F, W>(body: F) -> Plugin
where
    F: Fn(Call) -> W + Send + Sync + 'static,
    W: Future<Output = Result<String, Failure>> + Send + 'static,
{
    Plugin::tools("app", [Tool::new("tool", "Does it.", schema(), body)])
}

fn granted(limits: &str) -> String {
    config(limits, "[plugins.desk.grants]\ntools = [\"app.tool\"]")
}

#[tokio::test]
async fn a_tool_gets_its_arguments_and_its_answer_goes_back() {
    let app = app(|call: Call| async move {
        call.host.log(Level::Info, "at work\u{1b}");
        call.host.progress(1, Some(2), "half");
        assert_eq!(
            (call.task.as_str(), call.caller.as_str(), call.host.room().as_str()),
            ("desk", "desk", "test")
        );
        Ok(format!("{} doubled", call.arguments["number"]))
    });
    let recorder = Told::default();
    let prepared = prepared([desk(), app], &granted("")).await;
    assert_eq!(prepared.sources()["app"], "native");
    assert!(prepared.plugins().iter().all(|plugin| plugin.is_native));
    let outcome = run(&prepared, r#"{"number": 21}"#, recorder.options()).await;
    assert_eq!((outcome.status, outcome.content.as_deref()), (Status::Done, Some("21 doubled")));
    let whats: Vec<RunEvent> =
        recorder.happenings().into_iter().map(|happening| happening.what).collect();
    assert!(whats.iter().any(
        |what| matches!(what, RunEvent::Logged { message, .. } if message == "at work\\u{1b}")
    ));
    assert!(
        whats
            .iter()
            .any(|what| matches!(what, RunEvent::Progressed { completed: 1, total: Some(2), .. }))
    );
}

#[tokio::test]
async fn a_responder_answers_before_the_agents_step_and_leaves_the_rest_to_it() {
    let desk = || {
        Plugin::agent("desk", |step: Step| async move {
            Ok(native::finish(format!("asked about {}", step.text())))
        })
        .with_responder(|step: Step| async move {
            Ok((step.text() == "opening hours").then(|| native::finish("from nine to five")))
        })
    };
    let app = || app(|_| async { Ok(String::new()) });
    for (message, answer) in
        [("opening hours", "from nine to five"), ("prices", "asked about prices")]
    {
        let prepared = prepared([desk(), app()], &config("", "")).await;
        let outcome = run(&prepared, message, RunOptions::default()).await;
        assert_eq!(
            (outcome.status, outcome.content.as_deref(), outcome.spent.turns),
            (Status::Done, Some(answer), 1)
        );
    }
    // The operator leaves the plugin's own answers out.
    let host_alone = config("", "agent_responder = \"host\"");
    let prepared = prepared([desk(), app()], &host_alone).await;
    let outcome = run(&prepared, "opening hours", RunOptions::default()).await;
    assert_eq!(outcome.content.as_deref(), Some("asked about opening hours"));
}

#[tokio::test]
async fn arguments_that_do_not_fit_never_reach_the_closure() {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let app = app(move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
        async { Ok(String::new()) }
    });
    let outcome = run(
        &prepared([desk(), app], &granted("")).await,
        r#"{"number": "many"}"#,
        RunOptions::default(),
    )
    .await;
    assert!(
        outcome.content.as_deref().unwrap().contains("\"number\" must be a whole number"),
        "{outcome:?}"
    );
    assert_eq!(calls.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn without_a_grant_no_tool_is_called() {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let app = app(move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
        async { Ok(String::new()) }
    });
    let outcome =
        run(&prepared([desk(), app], &config("", "")).await, "{}", RunOptions::default()).await;
    assert_eq!(outcome.content.as_deref(), Some("Refused: tools app.tool."));
    assert_eq!(calls.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn a_tool_that_panics_is_a_fault() {
    let recorder = Told::default();
    let app = app(|call: Call| async move { panic!("no {}\u{1b}", call.arguments["number"]) });
    let outcome =
        run(&prepared([desk(), app], &granted("")).await, r#"{"number": 1}"#, recorder.options())
            .await;
    assert_eq!((outcome.status, recorder.fault().kind), (Status::Done, FaultKind::Panic));
    assert_eq!(recorder.fault().message, "it panicked: no 1\\u{1b}");
}

/// Sends when it is dropped.
struct Dropped(Option<oneshot::Sender<()>>);

impl Drop for Dropped {
    fn drop(&mut self) {
        let _ = self.0.take().map(|dropped| dropped.send(()));
    }
}

/// Returns a tool that never ends, a receiver that resolves when its future is dropped, and a
/// notification of its start.
fn hanging() -> (Plugin, oneshot::Receiver<()>, Arc<Notify>) {
    let (sender, dropped) = oneshot::channel();
    let (sender, began) = (std::sync::Mutex::new(Some(sender)), Arc::new(Notify::new()));
    let begins = Arc::clone(&began);
    let app = app(move |_| {
        let (guard, begins) = (Dropped(sender.lock().unwrap().take()), Arc::clone(&begins));
        async move {
            let _guard = guard;
            begins.notify_one();
            std::future::pending().await
        }
    });
    (app, dropped, began)
}

#[tokio::test]
async fn a_tool_that_hangs_is_stopped_at_its_wall_time_and_dropped() {
    let (app, dropped, _) = hanging();
    let recorder = Told::default();
    let outcome = run(
        &prepared([desk(), app], &granted("limits.wall = \"50 ms\"")).await,
        "{}",
        recorder.options(),
    )
    .await;
    assert_eq!((outcome.status, recorder.fault().kind), (Status::Done, FaultKind::Wall));
    assert_eq!(recorder.fault().message, "it took more than 50 ms (plugins.app.limits.wall)");
    dropped.await.unwrap();
}

#[tokio::test]
async fn stopping_a_run_drops_the_future() {
    let (app, dropped, began) = hanging();
    let prepared = prepared([desk(), app], &granted("")).await;
    let run = prepared.start(Some("{}".to_owned()), RunOptions::default()).unwrap();
    let handle = run.handle();
    let running = tokio::spawn(run.outcome());
    began.notified().await;
    handle.stop("enough");
    assert_eq!(running.await.unwrap().unwrap().status, Status::Kill);
    dropped.await.unwrap();
}

#[tokio::test]
async fn dropping_a_run_drops_the_future() {
    let (app, dropped, began) = hanging();
    let prepared = prepared([desk(), app], &granted("")).await;
    let running = tokio::spawn(
        prepared.start(Some("{}".to_owned()), RunOptions::default()).unwrap().outcome(),
    );
    began.notified().await;
    running.abort();
    dropped.await.unwrap();
}

/// The closure blocks its thread, so the room can only end without waiting for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tool_that_blocks_its_thread_is_given_up_all_the_same() {
    let (release, blocked) = std::sync::mpsc::channel::<()>();
    let blocked = Arc::new(std::sync::Mutex::new(blocked));
    let app = app(move |_| {
        let blocked = Arc::clone(&blocked);
        async move { Ok(format!("{:?}", blocked.lock().unwrap().recv())) }
    });
    let recorder = Told::default();
    run(
        &prepared([desk(), app], &granted("limits.wall = \"20 ms\"")).await,
        "{}",
        recorder.options(),
    )
    .await;
    assert_eq!(recorder.fault().kind, FaultKind::Wall);
    drop(release);
}

#[tokio::test]
async fn an_answer_that_is_too_large_is_a_fault() {
    let recorder = Told::default();
    let app = app(|_| async { Ok("x".repeat(2_000)) });
    run(
        &prepared([desk(), app], &granted("limits.output = \"1 KiB\"")).await,
        "{}",
        recorder.options(),
    )
    .await;
    assert_eq!(recorder.fault().kind, FaultKind::Output);
    let message = recorder.fault().message;
    let end = "more than 1 KiB at once, as the host holds the values in memory (plugins.app.limits.output)";
    assert!(message.ends_with(end), "{message}");
}

#[tokio::test]
async fn no_more_calls_run_at_once_than_may() {
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (running, seen) = (Arc::clone(&now), Arc::clone(&most));
    let app = app(move |_| {
        let (running, seen) = (Arc::clone(&running), Arc::clone(&seen));
        async move {
            seen.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
            running.fetch_sub(1, Ordering::SeqCst);
            Ok(String::new())
        }
    });
    let prepared = Arc::new(prepared([desk(), app], &granted("limits.at_once = 2")).await);
    let call = |_| {
        let prepared = Arc::clone(&prepared);
        tokio::spawn(async move {
            prepared
                .call_tool("app.tool", json!({}), RunOptions::default())
                .await
                .unwrap()
                .answer
                .unwrap()
        })
    };
    for called in (0..20).map(call).collect::<Vec<_>>() {
        called.await.unwrap();
    }
    assert_eq!(most.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn an_agent_that_fails_is_given_up_after_three_times() {
    let recorder = Told::default();
    let desk = Plugin::agent("desk", |_: Step| async { Err::<String, _>(Failure::new("no idea")) });
    let outcome = run(
        &prepared([desk, app(|_| async { Ok(String::new()) })], &config("", "")).await,
        "hello",
        recorder.options(),
    )
    .await;
    assert_eq!(outcome.status, Status::Error);
    assert!(outcome.reason.contains("no idea"), "{outcome:?}");
    assert_eq!(recorder.agent_faults(), [FaultKind::Error; 3]);
}

#[tokio::test]
async fn a_model_is_asked_only_with_a_grant() {
    let answering = |text: &'static str| {
        let usage = TokenUsage { input_tokens: 7, output_tokens: 2, ..TokenUsage::default() };
        native::model(move |_| std::future::ready(Ok(Completion { usage, ..native::answer(text) })))
    };
    let desk = || {
        Plugin::agent("desk", |step: Step| async move {
            Ok(native::finish(step.complete().await?.content.unwrap_or_default()))
        })
        .may_use(Capability::Model, "Thinks.")
    };
    let text = |grant: &str| {
        format!(
            "entry = \"desk\"\n[models.default]\nkind = \"native\"\n[plugins.desk]\nsource = \"native:desk\"\n{grant}\n[tasks.desk]\nagent = \"desk\"\n"
        )
    };
    for (grant, status, tokens) in
        [("grants.model = [\"default\"]", Status::Done, 9), ("", Status::Error, 0)]
    {
        let models = [("default".to_owned(), answering("Aye."))].into_iter().collect();
        let host =
            Host::new(HostOptions { native: vec![desk()], models, ..HostOptions::default() })
                .unwrap();
        let outcome =
            run(&host.load(&parse(&text(grant))).await.unwrap(), "Well?", RunOptions::default())
                .await;
        assert_eq!((outcome.status, outcome.spent.tokens), (status, tokens), "{outcome:?}");
    }
    let problem = refused([desk()], &text("")).await;
    assert_eq!(problem.codes(), [ProblemCode::NoClient], "{problem}");
}

#[tokio::test]
async fn what_is_not_right_is_said_when_the_config_is_prepared() {
    let tool = |name: &str, schema: Value| Tool::new(name, "", schema, |_| async { Ok("") });
    let only = |source: &str| {
        format!(
            "entry = \"a\"\n[plugins.a]\nsource = \"native:{source}\"\n[tasks.a]\nagent = \"a\"\n"
        )
    };
    let agent = |_: Step| async { Ok("") };
    let problem =
        refused([Plugin::agent("book", agent), Plugin::agent("desk", agent)], &only("dsek")).await;
    assert_eq!(problem.codes(), [ProblemCode::MissingPlugin], "{problem}");
    assert!(problem.to_string().contains("book, desk"), "{problem}");
    let problem = refused([], &only("desk")).await;
    assert_eq!(problem.codes(), [ProblemCode::MissingPlugin], "{problem}");
    let problem = refused(
        [Plugin::tools("a", [tool("t", json!({ "type": 7 }))]).with_agent(agent)],
        &only("a"),
    )
    .await;
    assert_eq!(problem.codes(), [ProblemCode::PluginRefused], "{problem}");
    assert!(problem.to_string().contains("input schema"), "{problem}");
    let problem =
        refused([Plugin::tools("a", [tool("T", json!({}))]).with_agent(agent)], &only("a")).await;
    assert_eq!(problem.codes(), [ProblemCode::InvalidPlugin], "{problem}");
    assert!(problem.to_string().contains("must have a name"), "{problem}");
    let problem = refused([Plugin::tools("a", [tool("t", json!({}))])], &only("a")).await;
    assert_eq!(problem.codes(), [ProblemCode::WrongPluginKind], "{problem}");
    let problem =
        refused([Plugin::agent("a", agent).asks(Capability::Files, "Reads.")], &only("a")).await;
    assert_eq!(problem.codes(), [ProblemCode::PluginRefused], "{problem}");
    assert!(problem.to_string().contains("needs no grant for"), "{problem}");
    let problem =
        refused([Plugin::agent("a", agent).asks(Capability::Tools, "Calls.")], &only("a")).await;
    assert_eq!(problem.codes(), [ProblemCode::MissingGrant], "{problem}");
}

#[tokio::test]
async fn settings_are_declared_and_defaults_filled_in() {
    let desk = || {
        Plugin::agent(
            "desk",
            |step: Step| async move { Ok(native::finish(step.host.config().clone())) },
        )
        .setting("units", json!({ "type": "string", "default": "celsius" }))
    };
    let text = |lines: &str| {
        format!(
            "entry = \"a\"\n[plugins.a]\nsource = \"native:desk\"\n{lines}\n[tasks.a]\nagent = \"a\"\n"
        )
    };
    let outcome = run(&prepared([desk()], &text("")).await, "?", RunOptions::default()).await;
    assert_eq!(outcome.value, Some(json!({ "units": "celsius" })));
    let problem = refused([desk()], &text("config = { unit = \"kelvin\" }")).await;
    assert_eq!(problem.codes(), [ProblemCode::InvalidSetting], "{problem}");
}

#[tokio::test]
async fn a_tool_calls_other_tools_of_its_agent_within_both_grants() {
    let app = || {
        app(|call: Call| async move {
            let names: Vec<&str> =
                call.callable.iter().map(|tool| tool.summary.name.as_str()).collect();
            let twice = |number: i64| call.call_tool("box.twice", json!({ "number": number }));
            let (one, two) = tokio::join!(twice(1), twice(2));
            let text = |answer: NestedAnswer| match answer {
                Ok(result) => result.content.unwrap_or_default(),
                Err(NestedError::Denied { .. }) => "denied".to_owned(),
                Err(NestedError::Failed { message }) => format!("failed: {message}"),
            };
            let hidden = call.call_tool("box.hidden", json!({})).await;
            Ok(format!("{names:?} {} {} {}", text(one), text(two), hidden.is_err()))
        })
        .may_use(Capability::Tools, "Calls tools in turn.")
    };
    let twice = |call: Call| async move {
        Ok((call.arguments["number"].as_i64().unwrap_or_default() * 2).to_string())
    };
    let others = || {
        Plugin::tools(
            "box",
            [
                Tool::new("twice", "Doubles.", schema(), twice),
                Tool::new("hidden", "Is not granted.", schema(), |_| async { Ok("seen") }),
            ],
        )
    };
    let agent = "[plugins.desk.grants]\ntools = [\"app.tool\", \"box.twice\"]\n\
                 [plugins.box]\nsource = \"native:box\"";
    for (grant, content, calls) in [
        ("grants.tools = [\"box.*\"]", "[\"box.twice\"] 2 4 true", 3),
        ("", "[] denied denied true", 1),
    ] {
        let recorder = Told::default();
        let prepared = prepared([desk(), app(), others()], &config(grant, agent)).await;
        let outcome = run(&prepared, "{}", recorder.options()).await;
        assert_eq!((outcome.status, outcome.content.as_deref()), (Status::Done, Some(content)));
        let called =
            recorder.notices().iter().filter(|n| matches!(n, Notice::ToolCalled { .. })).count();
        assert_eq!(called, calls, "{:?}", recorder.notices());
    }
}
