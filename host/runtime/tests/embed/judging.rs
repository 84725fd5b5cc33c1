//! A task whose answers a native judge rules on, and whose questions a native simulated user
//! answers.

use std::sync::{Arc, Mutex};

use conclave_runtime::RunOptions;
use conclave_runtime::native::{self, AnswerAsUser, Conclude, Failure, Plugin, Rule, Step};
use conclave_runtime::notice::Notice;
use conclave_runtime::outcome::{Outcome, Status};
use conclave_runtime::plugin_query::{Ruling, TaskResult};
use serde_json::json;

use crate::support::{Told, config, prepared};

/// An agent that asks about each message.
fn asking() -> Plugin {
    Plugin::agent("desk", |step: Step| async move {
        Ok(native::say(format!("{}, really?", step.text())))
    })
}

/// Runs `desk` in an interactive task, with `app` as these lines of the task say.
async fn talk(app: Plugin, task: &str, recorder: &Told) -> Outcome {
    let text = config("", &format!("interactive = true\n{task}"));
    let prepared = prepared([asking(), app], &text).await;
    let run = prepared.start(Some("forty".to_owned()), recorder.options()).unwrap();
    Arc::unwrap_or_clone(run.outcome().await.unwrap())
}

#[tokio::test]
async fn a_judge_ends_a_conversation_with_a_simulated_user_and_names_its_result() {
    let (queries, recorder) = (Arc::new(Mutex::new(Vec::new())), Told::default());
    let app = Plugin::simulated_user("app", {
        let queries = Arc::clone(&queries);
        move |ask: AnswerAsUser| {
            let mut queries = queries.lock().unwrap();
            queries.push((ask.question, ask.view.task.to_string()));
            let number = 39 + queries.len();
            async move { Ok(Some(number.to_string())) }
        }
    })
    .with_judge(|ask: Rule| async move {
        let text = ask.answer.message.text();
        // What the user says is no end; the agent's question about 41 is.
        let is_done = ask.answer.responder == "llm" && text.contains("41");
        Ok(Ruling { is_done: is_done.then_some(true), ..Ruling::default() })
    })
    .with_conclusion(|ask: Conclude| async move {
        let text = ask.ending.result.text.replace(", really?", "");
        let value = Some(json!({ "status": ask.ending.status.as_str() }));
        Ok(Some(TaskResult { text, value }))
    });
    let outcome = talk(app, "judge = \"app\"\nsimulated_user = \"app\"", &recorder).await;
    assert_eq!((outcome.status, outcome.content.as_deref()), (Status::Done, Some("41")));
    assert_eq!(outcome.value, Some(json!({ "status": "DONE" })));
    let question = |text: &str| (text.to_owned(), "desk".to_owned());
    let questions = [question("forty, really?"), question("40, really?")];
    assert_eq!(*queries.lock().unwrap(), questions);
    let notices = recorder.notices();
    let overruled = notices.iter().filter(|notice| {
        matches!(notice, Notice::AnswerOverruled { responder, ruling, .. }
            if responder == "llm" && *ruling == Ruling { is_done: Some(true), ..Ruling::default() })
    });
    assert_eq!(overruled.count(), 1, "{notices:?}");
    assert!(notices.iter().any(|notice| matches!(notice, Notice::ResultReplaced { .. })));
}

#[tokio::test]
async fn a_judge_or_a_simulated_user_that_fails_ends_its_task() {
    let user = || {
        Plugin::simulated_user("app", |_: AnswerAsUser| async {
            Err(Failure::new("it lost its voice"))
        })
    };
    let judge = || Plugin::judge("app", |_: Rule| async { panic!("no law") });
    let conclusion = || {
        Plugin::tools("app", [])
            .with_conclusion(|_: Conclude| async { Err(Failure::new("it found no end")) })
    };
    for (app, task, why) in [
        (user(), "simulated_user = \"app\"", "it lost its voice"),
        (judge(), "judge = \"app\"", "it panicked: no law"),
        (conclusion(), "judge = \"app\"\nturns = 1", "it found no end"),
    ] {
        let outcome = talk(app, task, &Told::default()).await;
        assert_eq!((outcome.status, &outcome.content), (Status::Error, &None), "{task}");
        assert!(outcome.reason.contains(why), "{task}: {}", outcome.reason);
    }
}

#[tokio::test]
async fn a_judge_rules_in_each_run_of_a_session() {
    let judge = Plugin::tools("app", []).with_conclusion(|ask: Conclude| async move {
        let text = format!("{} in {}", ask.ending.result.text, ask.view.task);
        Ok(Some(TaskResult { text, value: None }))
    });
    let echo =
        Plugin::agent(
            "desk",
            |step: Step| async move { Ok(native::finish(step.text().to_owned())) },
        );
    let prepared = prepared([echo, judge], &config("", "judge = \"app\"")).await;
    let mut session = prepared.session(RunOptions::default()).unwrap();
    for text in ["one", "two"] {
        let outcome = session.run(text).await.unwrap();
        assert_eq!(outcome.content, Some(format!("{text} in desk")));
    }
}
