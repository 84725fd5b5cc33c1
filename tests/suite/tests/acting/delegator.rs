//! The delegator of the examples: study, work, verify; repeated if the work is not good, up to a
//! limit.

use conclave_core::types::outcome::Status;
use conclave_test_support::{Ran, Rig, guest};
use serde_json::{Value, json};

use super::{model, prompts, says};

/// Runs it. Its three workers are micro-agents with models of their own prompts, all on one server
/// that answers in order.
fn run(rounds: u32, replies: &[Value]) -> (Ran, Vec<Vec<(String, String)>>) {
    let (server, models) = model(replies.iter().map(says).collect());
    let file = |inputs: &str, outputs: &str, prompt: &str| {
        format!("---\ninputs:\n{inputs}outputs:\n{outputs}---\n{prompt}\n")
    };
    let rig = Rig::new()
        .with_file(
            "study.md",
            file(
                "  task: what is wanted\n",
                "  summary: what there is\n",
                "Study: {{ inputs.task }}",
            ),
        )
        .with_file(
            "work.md",
            file(
                "  task: what is wanted\n  reason: why again\n",
                "  diff: the change\n",
                "Work: {{ inputs.task }} {{ inputs.reason }}",
            ),
        )
        .with_file(
            "verify.md",
            file(
                "  task: what is wanted\n  result: what was done\n",
                "  completed: true or false\n",
                "Verify: {{ inputs.result }}",
            ),
        );
    let worker =
        |name: &str| format!("[tasks.{name}]\nagent = \"micro\"\nprompt_agent = \"{name}.md\"\n");
    let config = format!(
        "entry = \"main\"\n{models}\n[plugins.micro]\nsource = \"stock:micro\"\ngrants.model = [\"default\"]\n\
         [plugins.delegator]\nsource = \"{delegator}\"\ngrants.delegate = [\"study\", \"work\", \"verify\"]\nconfig = {{ rounds = {rounds} }}\n\
         [tasks.main]\nagent = \"delegator\"\n{}{}{}",
        worker("study"),
        worker("work"),
        worker("verify"),
        delegator = guest("delegator").display(),
    );
    let ran = rig.run(&config, "Mend the wall.");
    (ran, prompts(&server))
}

fn text(prompt: &[(String, String)]) -> String {
    prompt.iter().map(|(_, text)| text.as_str()).collect::<Vec<_>>().join("\n")
}

#[test]
fn work_that_is_good_is_the_result() {
    let replies =
        [json!({ "summary": "a hole" }), json!({ "diff": "+stone" }), json!({ "completed": true })];
    let (ran, asked) = run(3, &replies);
    assert_eq!(ran.status(), Status::Done, "{}", ran.outcome.reason);
    let given = ran
        .outcome
        .value
        .clone()
        .unwrap_or_else(|| serde_json::from_str(ran.content()).unwrap_or_default());
    assert_eq!(given, json!({ "diff": "+stone" }));
    assert_eq!(asked.len(), 3);
    assert!(text(&asked[0]).contains("Study: Mend the wall."), "{:#?}", asked[0]);
    assert!(text(&asked[1]).contains("Work: Mend the wall."), "{:#?}", asked[1]);
    assert!(text(&asked[2]).contains("Verify: {\"diff\":\"+stone\"}"), "{:#?}", asked[2]);
}

#[test]
fn work_that_is_not_good_is_done_again_with_the_reason() {
    let replies = [
        json!({ "summary": "a hole" }),
        json!({ "diff": "+sand" }),
        json!({ "completed": false, "reason": "sand washes away" }),
        json!({ "diff": "+stone" }),
        json!({ "completed": "yes" }),
    ];
    let (ran, asked) = run(3, &replies);
    assert_eq!(ran.status(), Status::Done, "{}", ran.outcome.reason);
    assert!(
        ran.outcome
            .value
            .clone()
            .map_or_else(|| ran.content().to_owned(), |value| value.to_string())
            .contains("+stone")
    );
    assert_eq!(asked.len(), 5);
    let again = "Work: Mend the wall. sand washes away";
    assert!(!text(&asked[1]).contains("washes") && text(&asked[3]).contains(again), "{asked:#?}");
}

#[test]
fn work_that_is_never_good_is_rejected_after_its_rounds() {
    let mut replies = vec![json!({ "summary": "a hole" })];
    for _ in 0..5 {
        replies.extend([
            json!({ "diff": "+sand" }),
            json!({ "completed": false, "reason": "sand washes away" }),
        ]);
    }
    let (ran, asked) = run(2, &replies);
    assert_eq!(ran.status(), Status::Rejected, "{}", ran.outcome.reason);
    let told = format!("{} {}", ran.outcome.reason, ran.content());
    assert!(told.contains("The work was done 2 times and is not good: sand washes away"), "{told}");
    assert_eq!(asked.len(), 5, "one to study, two to work, two to verify");
}
