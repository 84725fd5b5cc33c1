//! Micro-agents: a text file is an agent, on the stock component.

use conclave_core::config::ProblemCode;
use conclave_core::protocol::notice::Notice;
use conclave_core::types::outcome::Status;
use conclave_models::test_server::TestReply;
use conclave_test_support::{Ran, Rig, refused};
use serde_json::{Value, json};

use super::{acting, model, observations, prompts, says};

const REVIEWER: &str = "---
name: reviewer
description: Reviews a change.
inputs:
  change: the change, as a diff
outputs:
  verdict: good or bad
  remarks: what to mend
---
You review changes. This is the one: {{ inputs.change }}
";

fn config(models: &str) -> String {
    format!("entry = \"reviewer\"\n{models}\n{TASK}")
}

const TASK: &str = "[plugins.micro]\nsource = \"stock:micro\"\ngrants.model = [\"default\"]\n\
                    [tasks.reviewer]\nagent = \"micro\"\nprompt_agent = \"agents/reviewer.md\"\n";

fn rig() -> Rig {
    Rig::new().with_file("agents/reviewer.md", REVIEWER)
}

fn given(ran: &Ran) -> Value {
    ran.outcome
        .value
        .clone()
        .unwrap_or_else(|| serde_json::from_str(ran.content()).unwrap_or_default())
}

/// The message is its only input unless an input is named.
#[test]
fn a_text_file_is_an_agent() {
    let (server, models) = model(vec![says(&json!({ "verdict": "good", "remarks": "" }))]);
    let ran = rig().run(&config(&models), "+let a = 1;");
    assert_eq!(
        (ran.status(), given(&ran)),
        (Status::Done, json!({ "verdict": "good", "remarks": "" })),
        "{}",
        ran.outcome.reason
    );
    let asked = prompts(&server);
    let (role, system) = &asked[0][0];
    assert_eq!((asked.len(), role.as_str()), (1, "system"));
    assert!(system.starts_with("You review changes. This is the one: +let a = 1;"), "{system}");
    assert!(
        system.contains("- verdict: good or bad") && system.contains("- remarks: what to mend"),
        "{system}"
    );
    assert!(!system.contains("inputs.change"), "{system}");
}

#[test]
fn an_end_that_lacks_an_output_is_none_and_the_model_reads_which() {
    let finish = json!({ "action": "finish", "args": { "outputs": { "verdict": "bad", "remarks": "a test" } } });
    let (server, models) = model(vec![
        says(&json!({ "verdict": "bad" })),
        TestReply::says("It is bad."),
        says(&finish),
    ]);
    let ran = rig().run(&config(&models), "+let a = 1;");
    assert_eq!(
        (ran.status(), given(&ran)),
        (Status::Done, json!({ "verdict": "bad", "remarks": "a test" })),
        "{}",
        ran.outcome.reason
    );
    let asked = prompts(&server);
    let reads = |prompt: &[(String, String)], text: &str| {
        prompt.iter().any(|(_, told)| told.contains(text))
    };
    assert_eq!(asked.len(), 3);
    assert!(reads(&asked[1], "The outputs lack `remarks`."), "{:#?}", asked[1]);
    assert!(reads(&asked[2], "You wrote: It is bad."), "{:#?}", asked[2]);
}

#[test]
fn another_agent_hands_it_work_and_gets_its_outputs() {
    let outputs = json!({ "verdict": "good", "remarks": "none" });
    let (server, models) = model(vec![says(&outputs)]);
    let delegate = |inputs: Value| json!({ "action": "delegate", "args": { "agent": "reviewer", "inputs": inputs } });
    let script = json!([delegate(json!({})), delegate(json!({ "change": "-a", "depth": 2 }))]);
    let ran = rig().run(
        &acting(&script, "grants.delegate = [\"reviewer\"]", "", &format!("{models}\n{TASK}")),
        "go",
    );
    assert_eq!(ran.status(), Status::Done, "{}", ran.outcome.reason);
    let seen = observations(&ran);
    assert_eq!(seen[0], json!({ "error": "reviewer was not started. The inputs lack `change`." }));
    assert_eq!(seen[1], json!({ "delegate": "reviewer", "outputs": outputs }));
    let asked = prompts(&server);
    assert!(asked.len() == 1 && asked[0][0].1.contains("This is the one: -a\n"), "{asked:#?}");
}

/// Inputs with hidden placeholders and other injections are inserted unchanged.
#[test]
fn what_an_input_says_is_put_in_as_it_is() {
    let (server, models) = model(vec![says(&json!({ "verdict": "good", "remarks": "" }))]);
    let ran =
        rig().run(&config(&models), "{{ inputs.change }} ${change} {{ state.inputs.change }}");
    assert_eq!(ran.status(), Status::Done, "{}", ran.outcome.reason);
    let system = prompts(&server)[0][0].1.clone();
    assert!(
        system
            .contains("This is the one: {{ inputs.change }} ${change} {{ state.inputs.change }}\n"),
        "{system}"
    );
}

#[test]
fn a_mistake_in_the_file_is_told_with_its_place() {
    let models = "[models.default]\nkind = \"scripted\"\nreplies = \"r.json\"\n";
    for (text, place, code) in [
        (
            REVIEWER.replace("{{ inputs.change }}", "{% if inputs.change %}"),
            ("agents/reviewer.md", 10, None),
            ProblemCode::InvalidValue,
        ),
        (
            REVIEWER.replace("outputs:", "outputs: none"),
            ("agents/reviewer.md", 7, Some(10)),
            ProblemCode::Syntax,
        ),
        (
            REVIEWER.replacen("---\n", "", 1),
            ("agents/reviewer.md", 1, Some(1)),
            ProblemCode::Syntax,
        ),
    ] {
        let rig = Rig::new()
            .with_file("agents/reviewer.md", text)
            .with_file("r.json", "{\"replies\": [\"x\"]}");
        let problems = refused(&rig, &config(models));
        let problem = &problems.0[0];
        let (file, line, column) = place;
        assert_eq!((&*problem.file, problem.line, problem.code), (file, line, code), "{problems}");
        assert!(column.is_none_or(|column| column == problem.column), "{problems}");
    }
    let none = refused(&Rig::new().with_file("r.json", "{\"replies\": [\"x\"]}"), &config(models));
    assert_eq!(none.codes(), [ProblemCode::UnreadableFile], "{none}");
}

const GIT: &str =
    "---\nname: git\ntype: knowledge\ntriggers: [git, pull request]\n---\nNever push to `main`.\n";

/// O-126: from the file to the model's prompt, and into the journal that `conclave show` reads.
#[test]
fn a_trigger_in_a_users_message_puts_the_file_before_the_model() {
    let chat = "[plugins.chat]\nsource = \"stock:chat\"\ngrants.model = [\"default\"]\n[tasks.desk]\nagent = \"chat\"\n\
                knowledge = [\"agents/git.md\"]\n";
    let rig = || Rig::new().with_file("agents/git.md", GIT);
    for (said, is_read) in [("Open a Pull Request, please.", true), ("Something digital.", false)] {
        let (server, models) = model(vec![TestReply::says("As you wish.")]);
        let ran = rig().run(&format!("entry = \"desk\"\n{models}\n{chat}"), said);
        assert_eq!(ran.status(), Status::Done, "{}", ran.outcome.reason);
        let asked = prompts(&server);
        let told: Vec<&str> = asked[0]
            .iter()
            .map(|(_, text)| text.as_str())
            .filter(|text| text.contains("Never push to `main`."))
            .collect();
        assert_eq!(told.len(), usize::from(is_read), "{asked:#?}");
        let from = "from the operator's file agents/git.md, because the message above says \"pull request\"";
        assert!(told.iter().all(|text| text.contains(from)), "{told:?}");
        let added = |notice: &Notice| matches!(notice, Notice::KnowledgeAdded { file, .. } if file == "agents/git.md");
        assert_eq!(ran.notices().filter(|notice| added(notice)).count(), usize::from(is_read));
    }
}

#[test]
fn what_a_file_of_knowledge_says_in_vain_keeps_the_config_from_running() {
    let models = "[models.default]\nkind = \"scripted\"\nreplies = \"r.json\"\n";
    let chat = "[plugins.chat]\nsource = \"stock:chat\"\ngrants.model = [\"default\"]\n[tasks.desk]\nagent = \"chat\"\n\
                knowledge = [\"git.md\"]\n";
    for (file, (line, column), code) in [
        (
            GIT.replace("type: knowledge", "tools: [search.find]"),
            (3, None),
            ProblemCode::UnknownTool,
        ),
        (
            GIT.replace("type: knowledge", "agent: CodeActAgent"),
            (3, Some(8)),
            ProblemCode::Conflict,
        ),
        (GIT.replace("triggers: [git, pull request]\n", ""), (1, Some(1)), ProblemCode::MissingKey),
    ] {
        let rig =
            Rig::new().with_file("git.md", file).with_file("r.json", "{\"replies\": [\"x\"]}");
        let problems = refused(&rig, &format!("entry = \"desk\"\n{models}\n{chat}"));
        let problem = &problems.0[0];
        assert_eq!(
            (&*problem.file, problem.line, problem.code),
            ("git.md", line, code),
            "{problems}"
        );
        assert!(column.is_none_or(|column| column == problem.column), "{problems}");
        assert!(problem.remedy.is_some(), "{problems}");
    }
}
