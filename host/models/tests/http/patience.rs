//! Retries, timeouts and cancellation.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use conclave_core::types::completion::{ModelDiagnosticKind, ModelError};
use conclave_models::http::{HttpModel, HttpModelSettings};
use conclave_models::test_server::{Server, TestReply};
use conclave_models::{ModelClient, TextSink};
use serde_json::json;

use crate::world::{Heard, ask, client, fails, prompt, settings};

/// A timeout that a silent server reaches, and an answering one does not, even on a busy machine.
const SOON: Duration = Duration::from_secs(3);

const PIECE: &str = r#"{"choices":[{"delta":{"content":"a"}}]}"#;

fn client_with(server: &Server, change: impl FnOnce(&mut HttpModelSettings)) -> HttpModel {
    let mut settings = settings(server);
    change(&mut settings);
    HttpModel::new(settings).unwrap()
}

#[tokio::test]
async fn what_may_pass_is_tried_again() {
    let broken = TestReply::says("never read").then_cut();
    let early = TestReply::events::<&str>(&[]).then_cut();
    let busy = TestReply::events(&[json!({"error": {"message": "overloaded", "code": 503}})]);
    for first in [
        TestReply::error(408, ""),
        TestReply::error(429, "slow down"),
        TestReply::error(500, ""),
        TestReply::error(503, "loading"),
        TestReply::hang_up(),
        broken,
        early,
        busy,
    ] {
        for stream in [false, true] {
            let server = Server::start(vec![first.clone(), TestReply::says("second")]);
            let outcome = ask(&client(&server), stream).await.0;
            assert!(outcome.is_ok(), "{first:?}: {outcome:?}");
            assert_eq!(server.requests().len(), 2, "{first:?}");
        }
    }
}

#[tokio::test]
async fn attempts_come_to_an_end() {
    let server = Server::start(vec![TestReply::error(503, "no slot is free")]);
    let (error, kind, text) = fails(&client(&server), false).await;
    assert_eq!(
        (error, kind),
        (ModelError::Unavailable { retry_after_ms: None }, ModelDiagnosticKind::Unavailable)
    );
    assert!(text.contains("no slot is free") && text.contains("tried 4 times"), "{text}");
    assert_eq!(server.requests().len(), 4);
}

#[tokio::test]
async fn a_server_that_loads_its_model_is_waited_for_with_a_notice_and_without_retries() {
    let loading = TestReply::error(503, "Loading model");
    let mut script = vec![loading; 5];
    script.push(TestReply::streams(&["ready"]));
    let server = Server::start(script);
    let client = client_with(&server, |settings| settings.retries = 0);
    let unseen = Arc::new(Unseen::default());
    let completion = client.complete(prompt(true), Arc::<Unseen>::clone(&unseen)).await.unwrap();
    assert_eq!((completion.content.as_deref(), server.requests().len()), (Some("ready"), 6));
    let waits = unseen.0.lock().unwrap();
    assert_eq!(waits.len(), 5);
    assert!(waits[0].contains("Loading model") && waits[0].contains("next attempt"), "{waits:?}");
}

#[tokio::test]
async fn a_server_that_loads_its_model_too_long_is_given_up() {
    let server =
        Server::start(vec![TestReply::error(503, "Loading model").header("retry-after", "600")]);
    let client = client_with(&server, |settings| settings.attempt_timeout = SOON);
    let (error, kind, text) = fails(&client, false).await;
    let expected = ModelError::Unavailable { retry_after_ms: Some(600_000) };
    assert_eq!((error, kind), (expected, ModelDiagnosticKind::Unavailable));
    assert!(text.contains("Loading model"), "{text}");
    assert_eq!(server.requests().len(), 1);
}

/// Nobody sees the text while it is generated; the waits are recorded.
#[derive(Default)]
struct Unseen(Mutex<Vec<String>>);

impl TextSink for Unseen {
    fn text(&self, piece: &str) {
        panic!("nobody sees {piece:?}");
    }

    fn is_shown(&self) -> bool {
        false
    }

    fn waits(&self, why: &str) {
        self.0.lock().unwrap().push(why.to_owned());
    }
}

#[tokio::test]
async fn a_stream_that_nobody_sees_can_be_asked_for_again() {
    let server = Server::start(vec![
        TestReply::events(&[PIECE]).then_cut(),
        TestReply::streams(&["second"]),
    ]);
    let unseen = Arc::new(Unseen::default());
    let completion = client(&server).complete(prompt(true), unseen).await.unwrap();
    assert_eq!((completion.content.as_deref(), server.requests().len()), (Some("second"), 2));
}

#[tokio::test]
async fn the_server_s_time_is_waited_for() {
    let server = Server::start(vec![
        TestReply::error(429, "").header("retry-after-ms", "60"),
        TestReply::says("a"),
    ]);
    let began = Instant::now();
    ask(&client(&server), false).await.0.unwrap();
    assert!(began.elapsed() >= Duration::from_millis(60));
}

#[tokio::test]
async fn a_time_that_is_too_long_is_not_waited_for_but_told() {
    let server = Server::start(vec![TestReply::error(429, "").header("retry-after", "3600")]);
    let (error, _, text) = fails(&client(&server), false).await;
    assert_eq!(error, ModelError::Unavailable { retry_after_ms: Some(3_600_000) });
    assert!(text.contains("3600s"), "{text}");
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn an_attempt_has_its_time_and_all_of_them_have_theirs() {
    let server = Server::start(vec![TestReply::silence(), TestReply::says("second")]);
    let client = client_with(&server, |settings| settings.attempt_timeout = SOON);
    assert_eq!(ask(&client, false).await.0.unwrap().content.as_deref(), Some("second"));
    let server = Server::start(vec![TestReply::silence()]);
    let client = client_with(&server, |settings| settings.timeout = SOON);
    let (error, kind, text) = fails(&client, false).await;
    assert_eq!(
        (error, kind),
        (ModelError::Unavailable { retry_after_ms: None }, ModelDiagnosticKind::Unreachable)
    );
    assert!(text.contains("3s"), "{text}");
}

#[tokio::test]
async fn a_stream_that_falls_silent_is_given_up() {
    let quiet = TestReply::bytes(200, "text/event-stream", ": hello\n\n").then_silence();
    let server = Server::start(vec![quiet, TestReply::streams(&["b"])]);
    let client = client_with(&server, |settings| settings.idle_timeout = SOON);
    assert_eq!(ask(&client, true).await.1, ["b"]);
}

#[tokio::test]
async fn text_that_was_heard_is_not_taken_back() {
    let broken = json!({"error": {"message": "overloaded", "code": 503}}).to_string();
    for answer in [
        TestReply::events(&[PIECE]).then_cut(),
        TestReply::events(&[PIECE]).then_silence(),
        TestReply::events(&[PIECE]),
        TestReply::events(&[PIECE, &broken]),
    ] {
        let server = Server::start(vec![answer.clone(), TestReply::streams(&["second"])]);
        let client = client_with(&server, |settings| settings.idle_timeout = SOON);
        let (outcome, pieces) = ask(&client, true).await;
        let failure = outcome.unwrap_err();
        assert_eq!(
            (pieces, failure.error),
            (vec!["a".to_owned()], ModelError::Unavailable { retry_after_ms: None }),
            "{answer:?}"
        );
        assert_eq!(server.requests().len(), 1, "{answer:?}");
    }
}

#[tokio::test]
async fn text_that_nobody_hears_can_be_asked_for_again() {
    let server =
        Server::start(vec![TestReply::events(&[PIECE]).then_cut(), TestReply::says("second")]);
    assert_eq!(ask(&client(&server), false).await.0.unwrap().content.as_deref(), Some("second"));
}

#[tokio::test]
async fn a_dropped_future_hangs_up_and_says_nothing_more() {
    let server = Arc::new(Server::start(vec![TestReply::events(&[PIECE]).then_silence()]));
    let sink = Arc::new(Heard::default());
    let asking = client(&server).complete(prompt(true), Arc::<Heard>::clone(&sink));
    let hearing = async {
        while sink.pieces().is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        _ = asking => panic!("the server says no more than a piece"),
        () = hearing => {}
    }
    let waited = Arc::clone(&server);
    tokio::task::spawn_blocking(move || waited.wait_for_hang_ups(1)).await.unwrap();
    assert_eq!((sink.pieces(), server.requests().len()), (vec!["a".to_owned()], 1));
}
