//! Many runs of one config: their order, their rooms, their effects on each other, and their
//! number.

use std::sync::Arc;

use conclave_runtime::batch::{Batch, BatchError, ItemEnd, OnError};
use conclave_runtime::ids::RoomId;
use conclave_runtime::journal::MemoryJournals;
use conclave_runtime::limits::RunLimits;
use conclave_runtime::native::{self, Failure, Plugin, Step};
use conclave_runtime::outcome::Status;
use conclave_runtime::{Prepared, RunInput, RunOptions};

use crate::support::{Told, prepared};

const TEXT: &str =
    "entry = \"desk\"\n[plugins.desk]\nsource = \"native:desk\"\n[tasks.desk]\nagent = \"desk\"\n";

async fn desk() -> Prepared {
    let desk = Plugin::agent("desk", |step: Step| async move {
        match step.text() {
            text if text.contains("fail") => Err(Failure::new("no")),
            "wait" => std::future::pending().await,
            text => Ok(native::finish(format!("{text}, {}", step.view.inputs))),
        }
    });
    prepared([desk], TEXT).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_runs_end_in_the_order_of_what_was_asked() {
    let (journals, recorder) = (MemoryJournals::default(), Told::default());
    let options = RunOptions {
        journals: Arc::new(journals.clone()),
        ids: Arc::new(RoomId::from("many")),
        ..recorder.options()
    };
    let asks = (0..1_000).map(|number| RunInput {
        inputs: serde_json::json!({ "n": number }),
        ..RunInput::from(format!("ask {number}"))
    });
    let ended =
        desk().await.batch(asks, options, &Batch { concurrency: 16, ..Batch::default() }).await;
    let contents: Vec<Option<String>> = ended
        .items
        .iter()
        .map(|item| item.value().and_then(|outcome| outcome.content.clone()))
        .collect();
    let expected: Vec<Option<String>> =
        (0..1_000).map(|number| Some(format!("ask {number}, {{\"n\":{number}}}"))).collect();
    assert_eq!(contents, expected);
    assert_eq!(journals.rooms().len(), 1_000);
    assert!(!journals.records(&RoomId::from("many.999")).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn every_run_begins_the_script_of_its_model_anew() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("replies.json");
    std::fs::write(&script, r#"{ "replies": ["one", "two", "three"] }"#).unwrap();
    let desk = Plugin::agent("desk", |step: Step| async move {
        let first = step.complete().await?.content.unwrap_or_default();
        // Lets the other runs ask in between.
        tokio::task::yield_now().await;
        let second = step.complete().await?.content.unwrap_or_default();
        Ok(native::finish(format!("{first}, {second}")))
    })
    .asks(conclave_runtime::Capability::Model, "Answers.");
    let config = format!(
        "entry = 'desk'\n[models.default]\nkind = 'scripted'\nreplies = {:?}\n[plugins.desk]\n\
         source = 'native:desk'\ngrants.model = ['default']\n[tasks.desk]\nagent = 'desk'\n",
        script.to_str().unwrap()
    );
    let policy = Batch { concurrency: 16, ..Batch::default() };
    let asks = (0..100).map(|number| format!("ask {number}"));
    let ended = prepared([desk], &config).await.batch(asks, RunOptions::default(), &policy).await;
    for item in &ended.items {
        let answer = item.value().and_then(|outcome| outcome.content.as_deref());
        assert_eq!(answer, Some("one, two"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_stands_in_its_place_or_ends_the_batch() {
    let report = Batch { concurrency: 2, on_error: OnError::Report, ..Batch::default() };
    let ended = desk().await.batch(["one", "fail", "three"], RunOptions::default(), &report).await;
    let [ItemEnd::Value(_), ItemEnd::Failed(BatchError::Ended(failed)), ItemEnd::Value(_)] =
        &ended.items[..]
    else {
        panic!("{:?}", ended.items)
    };
    assert_eq!((failed.status, ended.ended_by), (Status::Error, None));
    let stop = Batch { concurrency: 3, ..Batch::default() };
    let ended = desk()
        .await
        .batch(["wait", "fail", "wait", "never begun"], RunOptions::default(), &stop)
        .await;
    assert_eq!(ended.ended_by, Some(1));
    assert!(
        matches!(
            &ended.items[..],
            [ItemEnd::Cancelled, ItemEnd::Failed(_), ItemEnd::Cancelled, ItemEnd::Cancelled]
        ),
        "{:?}",
        ended.items
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn every_run_has_the_limits_of_the_batch_unless_it_brings_its_own() {
    let wall = |wall_ms| Some(RunLimits { wall_ms: Some(wall_ms), ..RunLimits::default() });
    let batch =
        Batch { concurrency: 2, on_error: OnError::Report, limits: wall(1), ..Batch::default() };
    let own = RunInput { limits: wall(60_000), ..RunInput::from("one") };
    let ended =
        desk().await.batch([RunInput::from("wait"), own], RunOptions::default(), &batch).await;
    let [ItemEnd::Failed(BatchError::Ended(late)), ItemEnd::Value(_)] = &ended.items[..] else {
        panic!("{:?}", ended.items)
    };
    assert_eq!(late.status, Status::Timeout);
}
