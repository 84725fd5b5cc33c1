//! The keys of an acting agent's task: executors, timeouts, memory, confirmation, condensing, stuck
//! detection, micro-agents.

use std::collections::BTreeMap;
use std::fmt::Write;

use conclave_core::config::ProblemCode::{
    Conflict, Duplicate, InvalidValue, MissingKey, NoEffect, OutOfRange, UnknownPlugin,
    UnknownTool, Unused, WrongPluginKind,
};
use conclave_core::config::assemble::assemble;
use conclave_core::config::{Config, Problems};
use conclave_core::setup::{CondenseRules, PluginFacts, TaskSetup};
use conclave_core::types::confirm::{ConfirmPolicy, ConfirmRules};
use conclave_core::types::ids::{PluginName, TaskName};
use conclave_core::types::plugin_kind::PluginKind;
use conclave_core::types::risk::Risk;
use conclave_core::types::stuck_rules::{Recovery, StuckRules};

use crate::support::{Parts, assembled, by_name, good, plugin, refused, unfit};

const OTHERS: &str = "[plugins.workspace]\nsource = \"stock:workspace\"\n[plugins.notes]\nsource = \"stock:notes\"\n\
    [plugins.patterns]\nsource = \"stock:patterns\"\n[plugins.recent]\nsource = \"stock:recent\"\n";

fn plugins() -> BTreeMap<PluginName, PluginFacts> {
    by_name([
        ("chat", plugin(&[PluginKind::Agent], &["tools?"], &[])),
        ("workspace", plugin(&[PluginKind::Tools], &[], &["read", "write"])),
        ("notes", plugin(&[PluginKind::Memory, PluginKind::Tools], &[], &["remember"])),
        ("patterns", plugin(&[PluginKind::SecurityAnalyzer], &[], &[])),
        ("recent", plugin(&[PluginKind::Condenser], &[], &[])),
    ])
}

fn text(task: &str) -> String {
    Parts { top: "", plugin: "grants.tools = [\"workspace.*\"]", task, end: OTHERS }.text()
}

fn desk(task: &str) -> TaskSetup {
    assembled(&text(task), &plugins()).setup.tasks[&TaskName::from("desk")].as_ref().clone()
}

#[test]
fn every_rule_of_an_agent_that_acts_reaches_its_setup() {
    let task = desk(
        "action_plugins = [\"workspace\"]\naction_timeout = \"2 min\"\nmemory = \"notes\"\n\
         confirm = { policy = \"risky\", threshold = \"medium\", unknown = false, analyzer = \"patterns\" }\n\
         condense = { plugin = \"recent\", max_entries = 50 }\n\
         stuck_detection = { repeats = 5, errors = 6, alternations = 8, messages = 4, recovery = \"restart\" }",
    );
    assert_eq!(task.action_plugins, [PluginName::from("workspace")]);
    assert_eq!(task.action_timeout_ms, Some(120_000));
    assert_eq!(task.memory, Some("notes".into()));
    let policy = ConfirmPolicy::Risky { threshold: Risk::Medium, unknown: false };
    assert_eq!(task.confirm, ConfirmRules { policy, analyzer: Some("patterns".into()) });
    assert_eq!(task.condense, Some(CondenseRules { plugin: "recent".into(), over: 50 }));
    let stuck = StuckRules {
        on: true,
        repeats: 5,
        errors: 6,
        alternations: 8,
        messages: 4,
        recovery: Recovery::Restart,
    };
    assert_eq!(task.stuck_detection, stuck);
}

#[test]
fn short_forms_and_defaults_say_the_usual() {
    let plain = desk("");
    assert_eq!(
        (plain.confirm, plain.condense, plain.stuck_detection),
        (ConfirmRules::default(), None, StuckRules::default())
    );
    assert_eq!(desk("confirm = \"always\"").confirm.policy, ConfirmPolicy::Always);
    let risky = ConfirmPolicy::Risky { threshold: Risk::High, unknown: true };
    assert_eq!(desk("confirm = \"risky\"").confirm.policy, risky);
    assert_eq!(desk("confirm = { policy = \"risky\" }").confirm.policy, risky);
    assert!(!desk("stuck_detection = false").stuck_detection.on);
    assert_eq!(
        desk("condense = { plugin = \"recent\" }").condense.map(|rules| rules.over),
        Some(CondenseRules::OVER)
    );
    assert!(!desk("compat = \"langroid\"").stuck_detection.on, "it has rules of its own");
    for written in ["stuck_detection = true", "stuck_detection = { recovery = \"stop\" }"] {
        let task = desk(&format!("compat = \"langroid\"\n{written}"));
        assert!(task.stuck_detection.on, "what is written takes precedence: {written}");
    }
}

#[test]
fn values_that_do_not_fit_together_are_refused() {
    let cases = [
        ("confirm = \"sometimes\"", InvalidValue),
        ("confirm = { threshold = \"low\" }", MissingKey),
        ("confirm = { policy = \"always\", threshold = \"low\" }", Conflict),
        (
            "confirm = { policy = \"risky\", threshold = \"unknown\", analyzer = \"recent\" }",
            InvalidValue,
        ),
        ("confirm = { policy = \"risky\", unknown = false }", MissingKey),
        ("condense = { plugin = \"recent\", max_entries = 3 }", OutOfRange),
        ("condense = { max_entries = 30 }", MissingKey),
        ("stuck_detection = { repeats = 1 }", OutOfRange),
        ("stuck_detection = { recovery = \"panic\" }", InvalidValue),
        ("action_plugins = [\"workspce\"]", UnknownPlugin),
        ("memory = \"note\"", UnknownPlugin),
        ("action_timeout = \"1 ms\"", OutOfRange),
        ("system = \"S\"\nprompt_agent = \"a.md\"", Conflict),
        ("prompt_agent = \"\"", InvalidValue),
    ];
    let mut report = String::new();
    for (task, code) in cases {
        let problems = refused(&text(task));
        assert_eq!(problems.codes(), [code], "{task}: {problems}");
        writeln!(report, "{problems}").unwrap();
    }
    insta::assert_snapshot!(report);
}

#[test]
fn a_plugin_of_another_kind_is_refused_with_the_suitable_ones() {
    let cases = [
        "action_plugins = [\"recent\"]",
        "memory = \"workspace\"",
        "confirm = { policy = \"always\", analyzer = \"notes\" }",
        "condense = { plugin = \"patterns\" }",
    ];
    let mut report = String::new();
    for task in cases {
        let problems = unfit(&text(task), &plugins());
        assert_eq!(problems.codes(), [WrongPluginKind], "{task}: {problems}");
        writeln!(report, "{problems}").unwrap();
    }
    insta::assert_snapshot!(report);
}

#[test]
fn an_executor_that_the_agent_may_not_call_is_a_warning() {
    let text = text("action_plugins = [\"notes\"]").replace("workspace.*\"]", "workspace.read\"]");
    let warnings = good(&text).warnings;
    assert_eq!(warnings.codes(), [NoEffect, Unused, Unused], "{warnings}");
    insta::assert_snapshot!(warnings.0[0].to_string());
}

const MICRO: &str = "---\nname: reviewer\ndescription: Reviews.\ninputs:\n  change: a diff\noutputs:\n  verdict: good or bad\n---\nReview {{ inputs.change }}.\n";

#[test]
fn a_micro_agents_file_is_its_task() {
    let mut config = good(&text("prompt_agent = \"agents/reviewer.md\""));
    let files: Vec<_> =
        config.micro_files().map(|(task, file)| (task.to_string(), file.path.clone())).collect();
    assert_eq!(files, [("desk".to_owned(), "/home/ann/library/agents/reviewer.md".to_owned())]);
    let warnings = config.take_micro(&TaskName::from("desk"), MICRO).expect("it is right");
    assert_eq!(warnings.to_string(), "");
    let task = &config.tasks[&TaskName::from("desk")];
    assert_eq!(
        (task.setup.description.as_str(), task.setup.system.as_ref()),
        ("Reviews.", "Review {{ inputs.change }}.")
    );
    let micro = task.setup.prompt_agent.as_ref().expect("it was read");
    assert_eq!(micro.inputs["change"], "a diff");
    assert_eq!(micro.outputs["verdict"], "good or bad");
    let problems =
        config.take_micro(&TaskName::from("desk"), "---\nnmae: x\n---\n").expect_err("it is wrong");
    assert!(problems.to_string().contains("agents/reviewer.md:2"), "{problems}");
}

const GIT: &str = "---\nname: git\ntype: knowledge\ntriggers: [git, pull request]\n---\nNever push to main. ${{ x }} {% y %}\n";

/// Loads the task `desk` of an agent `chat`, with the file under the key.
fn with_file(key: &str, file: &str) -> Result<(Config, Problems), Problems> {
    let list = if key == "knowledge" { "[\"a.md\"]" } else { "\"a.md\"" };
    let mut config = good(&text(&format!("{key} = {list}")));
    let desk = TaskName::from("desk");
    let result = if key == "knowledge" {
        config.take_knowledge(&desk, 0, file)
    } else {
        config.take_micro(&desk, file)
    };
    result.map(|warnings| (config, warnings))
}

#[test]
fn knowledge_is_a_text_that_triggers_call_for() {
    let config = good(&text("knowledge = [\"agents/git.md\", \"docker.md\"]"));
    let files: Vec<_> = config
        .knowledge_files()
        .map(|(task, index, file)| (task.to_string(), index, file.display_path.clone()))
        .collect();
    let desk = "desk".to_owned();
    assert_eq!(
        files,
        [(desk.clone(), 0, "agents/git.md".to_owned()), (desk, 1, "docker.md".to_owned())]
    );
    let (config, warnings) = with_file("knowledge", GIT).expect("it is right");
    assert!(warnings.is_empty(), "its text is no template: {warnings}");
    let known = &config.tasks[&TaskName::from("desk")].setup.knowledge[0];
    assert_eq!((known.file.as_str(), known.name.as_deref()), ("a.md", Some("git")));
    assert_eq!(known.triggers, ["git", "pull request"]);
    assert_eq!(known.text, "Never push to main. ${{ x }} {% y %}");
    let assembly = assemble(&config, &plugins()).expect("it fits");
    assert_eq!(assembly.setup.tasks["desk"].knowledge[0].text, known.text);
    let twice = refused(&text("knowledge = [\"a.md\", \"a.md\"]"));
    assert_eq!(twice.codes(), [Duplicate], "{twice}");
}

/// Every key of a file must have an effect or be refused.
#[test]
fn a_key_of_a_file_without_effect_is_refused_at_its_line() {
    let cases = [
        ("prompt_agent", "---\nname: a\ntriggers: [git]\n---\nDo it.\n", (3, 1), Conflict),
        ("prompt_agent", "---\nagent: CodeActAgent\n---\nDo it.\n", (2, 8), Conflict),
        ("knowledge", "---\nname: a\n---\nKnow it.\n", (1, 1), MissingKey),
        ("knowledge", "---\ntriggers: [a]\ninputs: {b: c}\n---\nKnow it.\n", (3, 1), Conflict),
        ("knowledge", "---\ntriggers: [a]\noutputs: {b: c}\n---\nKnow it.\n", (3, 1), Conflict),
        ("knowledge", "---\ntriggers: [a]\nagent: other\n---\nKnow it.\n", (3, 8), Conflict),
        ("knowledge", "---\ntriggers: [a]\n---\n \n", (3, 4), MissingKey),
    ];
    let mut report = String::new();
    for (key, file, place, code) in cases {
        let problems = with_file(key, file).expect_err(file);
        assert_eq!(problems.codes(), [code], "{file}: {problems}");
        let [problem] = &problems.0[..] else { panic!("{problems}") };
        assert_eq!((problem.line, problem.column), place, "{problems}");
        assert!(problem.remedy.is_some(), "{problems}");
        writeln!(report, "{problems}").unwrap();
    }
    insta::assert_snapshot!(report);
    for agent in ["chat", "desk"] {
        let file = format!("---\nagent: {agent}\n---\nDo it.\n");
        assert!(with_file("prompt_agent", &file).is_ok(), "{agent} is this task's");
    }
}

#[test]
fn tools_that_a_file_wants_must_be_the_tasks_and_are_no_grant() {
    for key in ["prompt_agent", "knowledge"] {
        let triggers = if key == "knowledge" { "triggers: [a]\n" } else { "" };
        let file =
            |tool: &str| format!("---\n{triggers}tools: [workspace.read, {tool}]\n---\nDo it.\n");
        let (config, _) = with_file(key, &file("workspace.read")).expect("it is right");
        assert!(assemble(&config, &plugins()).is_ok(), "the agent has it");
        let (config, _) =
            with_file(key, &file("notes.save")).expect("what the task has is not known yet");
        let problems = assemble(&config, &plugins()).expect_err("it is not granted");
        assert_eq!(problems.codes(), [UnknownTool], "{problems}");
        assert_eq!(problems.0[0].line, if key == "knowledge" { 3 } else { 2 }, "{problems}");
    }
}
