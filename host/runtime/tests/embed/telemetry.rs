//! Spans of a run, recorded by a layer on `tracing`'s own registry, which panics if a parent ends
//! before its child begins.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use conclave_runtime::Capability;
use conclave_runtime::channel::{Channels, HumanAnswer, OutgoingMessage};
use conclave_runtime::clock::BoxFuture;
use conclave_runtime::completion::{Completion, ModelError, Prompt, TokenUsage};
use conclave_runtime::ids::{ChannelId, TaskName};
use conclave_runtime::native::{self, Call, Plugin, Step, Tool};
use conclave_runtime::notice::Notice;
use conclave_runtime::subscribe::{Level, Published, RunEvent, Subscriber, Subscribers};
use conclave_runtime::telemetry::{SpanSubscriber, names};
use conclave_runtime::{Host, HostOptions, Prepared, RunOptions};
use serde_json::json;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Instrument, Subscriber as Registered};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::{LookupSpan, Registry};

use crate::support::parse;

type Fields = BTreeMap<String, String>;

/// A span as recorded at its end.
#[derive(Clone, Debug, Default)]
struct Seen {
    /// The name of the span in a trace, after those of its parents.
    path: String,
    fields: Fields,
}

/// A layer that records all spans and events.
#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Collected>>);

#[derive(Default)]
struct Collected {
    spans: BTreeMap<u64, Seen>,
    events: Vec<(String, Fields)>,
    closed: Vec<Seen>,
}

struct Into<'a>(&'a mut Fields);

impl Visit for Into<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().to_owned(), value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}"));
    }
}

impl<S: Registered + for<'a> LookupSpan<'a>> Layer<S> for Collector {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut collected = self.0.lock().unwrap();
        let mut fields = Fields::new();
        attributes.record(&mut Into(&mut fields));
        let parent =
            context.span(id).and_then(|span| span.parent().map(|parent| parent.id().into_u64()));
        let above = parent
            .map(|parent| format!("{} > ", collected.spans[&parent].path))
            .unwrap_or_default();
        let name = fields
            .get(names::SHOWN)
            .cloned()
            .unwrap_or_else(|| attributes.metadata().name().to_owned());
        collected.spans.insert(id.into_u64(), Seen { path: format!("{above}{name}"), fields });
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, _: Context<'_, S>) {
        values.record(&mut Into(
            &mut self.0.lock().unwrap().spans.get_mut(&id.into_u64()).unwrap().fields,
        ));
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut fields = Fields::new();
        event.record(&mut Into(&mut fields));
        let mut collected = self.0.lock().unwrap();
        let place = context
            .event_span(event)
            .map(|span| collected.spans[&span.id().into_u64()].path.clone())
            .unwrap_or_default();
        collected.events.push((place, fields));
    }

    fn on_close(&self, id: Id, _: Context<'_, S>) {
        let mut collected = self.0.lock().unwrap();
        // The registry reuses a number once its span has ended.
        let seen = collected.spans.remove(&id.into_u64()).unwrap();
        collected.closed.push(seen);
    }
}

impl Collector {
    /// Returns all ended spans, in the order of their ends.
    fn closed(&self) -> Vec<Seen> {
        let collected = self.0.lock().unwrap();
        assert!(
            collected.spans.values().all(|span| !span.fields.contains_key(names::SHOWN)),
            "still open: {:?}",
            collected.spans
        );
        collected.closed.clone()
    }

    fn paths(&self) -> Vec<String> {
        let mut paths: Vec<String> = self.closed().into_iter().map(|span| span.path).collect();
        paths.sort();
        paths
    }

    fn span(&self, end: &str) -> Fields {
        let found: Vec<Seen> =
            self.closed().into_iter().filter(|span| span.path.ends_with(end)).collect();
        assert_eq!(found.len(), 1, "{end}: {found:?}");
        found[0].fields.clone()
    }
}

/// Returns everything in a trace as text.
fn all_text(collector: &Collector) -> String {
    format!("{:?} {:?}", collector.closed(), collector.0.lock().unwrap().events)
}

const TEXT: &str = r#"
entry = "desk"
[models.default]
kind = "native"
[plugins.desk]
source = "native:desk"
grants.model = ["default"]
grants.tools = ["app.look"]
grants.delegate = ["digest"]
[plugins.app]
source = "native:app"
[plugins.digest]
source = "native:digest"
grants.model = ["default"]
[tasks.desk]
agent = "desk"
[tasks.digest]
agent = "digest"
"#;

/// Returns an agent that calls a model, calls a tool that may not, starts a background task and
/// ends.
async fn desk() -> Prepared {
    let desk = Plugin::agent("desk", |step: Step| async move {
        let completion = step.complete().await?;
        step.host.log(Level::Warn, "a secret log line");
        Ok(match step.view.iteration {
            0 => native::IntoTurn::into_turn(completion),
            1 => {
                native::call("delegate_task", json!({ "agent": "digest", "task": "a secret task" }))
            }
            _ => native::finish("a secret end"),
        })
    })
    .asks(Capability::Model, "Thinks.")
    .asks(Capability::Tools, "Looks.")
    .asks(Capability::Delegate, "Digests.");
    let look = Tool::new("look", "Looks.", json!({}), |call: Call| async move {
        let _ = call.host.ask(conclave_runtime::completion::ModelRequest::default()).await;
        Err::<String, _>(native::Failure::new("a secret failure"))
    });
    let digest = Plugin::agent("digest", |step: Step| async move {
        step.complete().await?;
        Ok(native::finish("a secret digest"))
    })
    .asks(Capability::Model, "Thinks.");
    let model = native::model(|prompt: Prompt| async move {
        if prompt.last_text() == "a secret task" {
            return Err(ModelError::Unavailable { retry_after_ms: None }.into());
        }
        let call = conclave_runtime::message::ToolCall {
            id: "1".into(),
            ..conclave_runtime::message::ToolCall::new("app.look", json!({ "a": "secret" }))
        };
        let usage = TokenUsage { input_tokens: 7, output_tokens: 2, ..TokenUsage::default() };
        Ok(Completion { usage, tool_calls: vec![call], ..native::answer("a secret thought") })
    });
    let native = vec![desk, Plugin::tools("app", [look]), digest];
    let host = Host::new(HostOptions {
        native,
        models: [("default".to_owned(), model)].into(),
        ..HostOptions::default()
    })
    .unwrap();
    host.load(&parse(TEXT)).await.unwrap_or_else(|error| panic!("{error}"))
}

fn options(spans: &Arc<SpanSubscriber>) -> RunOptions {
    let subscribers = Subscribers::new([Arc::clone(spans) as Arc<dyn Subscriber>]);
    RunOptions {
        ids: Arc::new(conclave_runtime::ids::RoomId::from("test")),
        subscribers,
        ..RunOptions::default()
    }
}

async fn traced(spans: SpanSubscriber) -> Collector {
    let collector = Collector::default();
    let _guard = tracing::subscriber::set_default(Registry::default().with(collector.clone()));
    let run = desk()
        .await
        .start(Some("a secret question".to_owned()), options(&Arc::new(spans)))
        .unwrap();
    run.outcome().instrument(tracing::info_span!("request")).await.unwrap();
    collector
}

#[tokio::test]
async fn spans_are_below_what_caused_them_and_all_of_them_end() {
    let collector = traced(SpanSubscriber::new().with_provider("default", "own")).await;
    assert_eq!(
        collector.paths(),
        [
            "request",
            "request > invoke_agent desk",
            "request > invoke_agent desk > invoke_agent desk",
            "request > invoke_agent desk > invoke_agent desk",
            "request > invoke_agent desk > invoke_agent desk",
            "request > invoke_agent desk > invoke_agent desk > chat default",
            "request > invoke_agent desk > invoke_agent desk > chat default",
            "request > invoke_agent desk > invoke_agent desk > chat default",
            "request > invoke_agent desk > invoke_agent desk > execute_tool app.look",
            "request > invoke_agent desk > invoke_agent desk > invoke_agent digest",
            "request > invoke_agent desk > invoke_agent desk > invoke_agent digest > chat default",
        ]
    );
}

#[tokio::test]
async fn attributes_have_the_names_of_the_conventions() {
    let collector = traced(SpanSubscriber::new().with_provider("default", "own")).await;
    let tool = collector.span("execute_tool app.look");
    assert_eq!(tool["gen_ai.operation.name"], "execute_tool");
    assert_eq!(tool["gen_ai.tool.name"], "app.look");
    assert_eq!(tool["gen_ai.agent.name"], "desk");
    assert_eq!(tool["gen_ai.conversation.id"], "test");
    assert_eq!(tool["error.type"], "_OTHER");
    assert!(tool["gen_ai.tool.call.id"].starts_with('c'));
    let chats: Vec<Seen> =
        collector.closed().into_iter().filter(|span| span.path.ends_with("chat default")).collect();
    let (answered, failed): (Vec<&Seen>, Vec<&Seen>) =
        chats.iter().partition(|span| !span.fields.contains_key("error.type"));
    assert_eq!((answered.len(), failed.len()), (3, 1));
    for span in answered {
        assert_eq!(span.fields["gen_ai.provider.name"], "own");
        assert_eq!(span.fields["gen_ai.request.model"], "default");
        assert_eq!(span.fields["gen_ai.response.model"], "native");
        assert_eq!(span.fields["gen_ai.usage.input_tokens"], "7");
        assert_eq!(span.fields["gen_ai.usage.output_tokens"], "2");
        assert!(!span.fields.contains_key("server.address"));
    }
    assert_eq!(failed[0].fields["error.type"], "_OTHER");
    let steps: Vec<Seen> = collector
        .closed()
        .into_iter()
        .filter(|span| span.path.ends_with("invoke_agent digest"))
        .collect();
    assert!(
        steps.iter().all(|step| step.fields["gen_ai.conversation.id"] == "test/1"),
        "{steps:?}"
    );
    assert_eq!(
        steps
            .iter()
            .filter(|step| step.fields.get("error.type").is_some_and(|kind| kind == "error"))
            .count(),
        1
    );
    let events = &collector.0.lock().unwrap().events;
    let denied = events
        .iter()
        .find(|(_, fields)| fields.get("message").is_some_and(|message| message == "denied"))
        .unwrap();
    assert_eq!(
        (denied.0.as_str(), denied.1["capability"].as_str()),
        ("request > invoke_agent desk > invoke_agent desk > execute_tool app.look", "model")
    );
}

#[tokio::test]
async fn content_is_recorded_only_when_it_is_asked_for() {
    let without = all_text(&traced(SpanSubscriber::new()).await);
    assert!(!without.contains("secret"), "{without}");
    let with = all_text(&traced(SpanSubscriber::new().with_content(true)).await);
    for content in
        ["a secret thought", "a secret failure", "a secret log line", "\\\"a\\\":\\\"secret\\\""]
    {
        assert!(with.contains(content), "{content}: {with}");
    }
}

#[tokio::test]
async fn a_run_that_is_dropped_leaves_nothing_open() {
    let collector = Collector::default();
    let _guard = tracing::subscriber::set_default(Registry::default().with(collector.clone()));
    let started = Arc::new(tokio::sync::Notify::new());
    let begins = Arc::clone(&started);
    let hang = Tool::new("look", "Hangs.", json!({}), move |_| {
        begins.notify_one();
        std::future::pending::<Result<String, native::Failure>>()
    });
    let desk = Plugin::agent("desk", |_| async { Ok(native::call("app.look", json!({}))) })
        .asks(Capability::Tools, "Looks.");
    let text = "entry = \"desk\"\n[plugins.desk]\nsource = \"native:desk\"\ngrants.tools = [\"app.look\"]\n[plugins.app]\nsource = \"native:app\"\n[tasks.desk]\nagent = \"desk\"\n";
    let prepared = crate::support::prepared([desk, Plugin::tools("app", [hang])], text).await;
    let spans = Arc::new(SpanSubscriber::new());
    let running =
        tokio::spawn(prepared.start(Some("go".to_owned()), options(&spans)).unwrap().outcome());
    started.notified().await;
    assert!(collector.closed_so_far().is_empty());
    running.abort();
    let _ = running.await;
    assert_eq!(
        collector.paths(),
        [
            "invoke_agent desk",
            "invoke_agent desk > invoke_agent desk",
            "invoke_agent desk > invoke_agent desk > execute_tool app.look",
        ]
    );
    assert!(format!("{spans:?}").contains("rooms: Mutex { data: {}"), "nothing is kept: {spans:?}");
}

/// A model that repeats its answer a fixed number of times, and records the number of open spans.
struct Again {
    requests: AtomicUsize,
    collector: Collector,
    open: Arc<Mutex<Vec<usize>>>,
}

impl Channels for Again {
    fn ask(&self, _: ChannelId, _: TaskName, _: String) -> BoxFuture<'static, Option<HumanAnswer>> {
        self.open.lock().unwrap().push(self.collector.0.lock().unwrap().spans.len());
        let is_over = self.requests.fetch_add(1, Ordering::SeqCst) >= 5;
        Box::pin(async move { Some(if is_over { "quit" } else { "again" }.to_owned().into()) })
    }

    fn send(&self, _: OutgoingMessage) -> BoxFuture<'static, Result<(), String>> {
        Box::pin(async { Ok(()) })
    }
}

/// Stops every turn that calls a tool.
#[derive(Default)]
struct Stops(Mutex<Option<conclave_runtime::RoomHandle>>);

impl Subscriber for Stops {
    fn on(&self, happening: &Published) {
        if let RunEvent::Notice { notice: Notice::ToolCalled { .. } } = &happening.what {
            self.0.lock().unwrap().as_ref().unwrap().stop_turn("enough");
        }
    }
}

#[tokio::test]
async fn spans_of_stopped_tools_end_with_their_turn() {
    let collector = Collector::default();
    let _guard = tracing::subscriber::set_default(Registry::default().with(collector.clone()));
    let hang = Tool::new("look", "Hangs.", json!({}), |_| {
        std::future::pending::<Result<String, native::Failure>>()
    });
    let desk = Plugin::agent("desk", |_| async { Ok(native::call("app.look", json!({}))) })
        .asks(Capability::Tools, "Looks.");
    let text = "entry = \"desk\"\n[plugins.desk]\nsource = \"native:desk\"\ngrants.tools = [\"app.look\"]\n[plugins.app]\nsource = \"native:app\"\nlimits.at_once = 100\n[tasks.desk]\nagent = \"desk\"\n";
    let prepared = crate::support::prepared([desk, Plugin::tools("app", [hang])], text).await;
    let stops = Arc::new(Stops::default());
    let subscribers = Subscribers::new([
        Arc::new(SpanSubscriber::new()) as Arc<dyn Subscriber>,
        Arc::clone(&stops) as _,
    ]);
    let open = Arc::default();
    let channels = Arc::new(Again {
        requests: AtomicUsize::new(0),
        collector: collector.clone(),
        open: Arc::clone(&open),
    });
    let options = RunOptions { channels, subscribers, ..RunOptions::default() };
    let run = prepared.for_chat().start(Some("go".to_owned()), options).unwrap();
    *stops.0.lock().unwrap() = Some(run.handle());
    run.outcome().await.unwrap();
    let tools =
        collector.paths().iter().filter(|path| path.ends_with("execute_tool app.look")).count();
    assert!(tools >= 5, "{tools}");
    // While the user is asked, the asking step may be open; no stopped span is.
    let open = open.lock().unwrap();
    assert!(open.len() > 5 && open.iter().all(|count| *count <= 1), "{open:?}");
}

impl Collector {
    fn closed_so_far(&self) -> Vec<Seen> {
        self.0.lock().unwrap().closed.clone()
    }
}
