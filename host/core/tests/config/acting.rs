//! What a task says of an agent that acts: executors, time-outs, memory, confirmation, condensing, stuck detection, micro-agents.

use std::collections::BTreeMap;

use conclave_core::consult::Risk;
use conclave_core::control::confirm::{ConfirmPolicy, ConfirmRules};
use conclave_core::control::stuck::{Recovery, StuckRules};
use conclave_core::ids::{PluginName, TaskName};
use conclave_core::setup::{CondenseRules, PluginFacts, PluginKind, TaskSetup};

use crate::support::{Parts, assembled, bad, good, misfit, named, plugin};

const OTHERS: &str = "[plugins.workspace]\nsource = \"stock:workspace\"\n[plugins.notes]\nsource = \"stock:notes\"\n\
    [plugins.patterns]\nsource = \"stock:patterns\"\n[plugins.recent]\nsource = \"stock:recent\"\n";

fn plugins() -> BTreeMap<PluginName, PluginFacts> {
    named([
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
        "executors = [\"workspace\"]\naction_timeout = \"2 min\"\nmemory = \"notes\"\n\
         confirm = { policy = \"risky\", threshold = \"medium\", unknown = false, analyzer = \"patterns\" }\n\
         condense = { plugin = \"recent\", over = 50 }\n\
         stuck = { repeats = 5, errors = 6, alternations = 8, messages = 4, recovery = \"restart\" }",
    );
    assert_eq!(task.executors, [PluginName::from("workspace")]);
    assert_eq!(task.action_timeout_ms, Some(120_000));
    assert_eq!(task.memory, Some("notes".into()));
    let policy = ConfirmPolicy::Risky { threshold: Risk::Medium, unknown: false };
    assert_eq!(task.confirm, ConfirmRules { policy, analyzer: Some("patterns".into()) });
    assert_eq!(task.condense, Some(CondenseRules { plugin: "recent".into(), over: 50 }));
    let stuck = StuckRules { on: true, repeats: 5, errors: 6, alternations: 8, messages: 4, recovery: Recovery::Restart };
    assert_eq!(task.stuck, stuck);
}

#[test]
fn short_forms_and_defaults_say_the_usual() {
    let plain = desk("");
    assert_eq!((plain.confirm, plain.condense, plain.stuck), (ConfirmRules::default(), None, StuckRules::default()));
    assert_eq!(desk("confirm = \"always\"").confirm.policy, ConfirmPolicy::Always);
    let risky = ConfirmPolicy::Risky { threshold: Risk::High, unknown: true };
    assert_eq!(desk("confirm = \"risky\"").confirm.policy, risky);
    assert_eq!(desk("confirm = { policy = \"risky\" }").confirm.policy, risky);
    assert!(!desk("stuck = false").stuck.on);
    assert_eq!(desk("condense = { plugin = \"recent\" }").condense.map(|rules| rules.over), Some(CondenseRules::OVER));
    assert!(!desk("compat = \"langroid\"").stuck.on, "it has rules of its own");
}

#[test]
fn what_does_not_fit_together_is_said_with_a_way_out() {
    let cases = [
        ("confirm = \"sometimes\"", "`confirm` cannot be `sometimes`"),
        ("confirm = { threshold = \"low\" }", "`policy` is missing in [tasks.desk] confirm"),
        ("confirm = { policy = \"always\", threshold = \"low\" }", "goes with `policy = \"risky\"` only"),
        ("confirm = { policy = \"risky\", threshold = \"unknown\" }", "`confirm.threshold` cannot be `unknown`"),
        ("condense = { plugin = \"recent\", over = 3 }", "`condense.over`"),
        ("condense = { over = 30 }", "`plugin` is missing in [tasks.desk] condense"),
        ("stuck = { repeats = 1 }", "`stuck.repeats`"),
        ("stuck = { recovery = \"panic\" }", "`stuck.recovery` cannot be `panic`"),
        ("executors = [\"workspce\"]", "names the plugin `workspce`, which is not in this config"),
        ("memory = \"note\"", "names the plugin `note`, which is not in this config"),
        ("action_timeout = \"1 ms\"", "`action_timeout`"),
        ("system = \"S\"\nmicro = \"a.md\"", "both say what the agent's prompt is"),
        ("micro = \"\"", "`micro` is empty"),
    ];
    for (task, expected) in cases {
        let said = bad(&text(task));
        assert!(said.contains(expected), "{task}: {said}");
    }
}

#[test]
fn a_plugin_of_another_kind_is_refused_with_those_that_would_do() {
    let cases = [
        ("executors = [\"recent\"]", "exports no `tools`", "`workspace`"),
        ("memory = \"workspace\"", "exports no `memory`", "`notes`"),
        ("confirm = { policy = \"always\", analyzer = \"notes\" }", "exports no `security-analyzer`", "`patterns`"),
        ("condense = { plugin = \"patterns\" }", "exports no `condenser`", "`recent`"),
    ];
    for (task, expected, others) in cases {
        let said = misfit(&text(task), &plugins());
        assert!(said.contains(expected) && said.contains(others), "{task}: {said}");
    }
}

#[test]
fn an_executor_that_the_agent_may_not_call_is_a_warning() {
    let text = text("executors = [\"notes\"]").replace("workspace.*\"]", "workspace.read\"]");
    let warnings = good(&text).warnings.to_string();
    assert!(warnings.contains("the executor `notes` carries out nothing: `chat` may call none of its tools"), "{warnings}");
    assert!(warnings.contains("write `grants.tools = [\"notes.*\"]` in [plugins.chat]"), "{warnings}");
}

const MICRO: &str = "---\nname: reviewer\ndescription: Reviews.\ninputs:\n  change: a diff\noutputs:\n  verdict: good or bad\n---\nReview {{ inputs.change }}.\n";

#[test]
fn a_micro_agents_file_is_its_task() {
    let mut config = good(&text("micro = \"agents/reviewer.md\""));
    let files: Vec<_> = config.micro_files().map(|(task, file)| (task.to_string(), file.path.clone())).collect();
    assert_eq!(files, [("desk".to_owned(), "/home/ann/library/agents/reviewer.md".to_owned())]);
    let warnings = config.take_micro(&TaskName::from("desk"), MICRO).expect("it is right");
    assert_eq!(warnings.to_string(), "");
    let task = &config.tasks[&TaskName::from("desk")];
    assert_eq!((task.description.as_str(), task.system.as_ref()), ("Reviews.", "Review {{ inputs.change }}."));
    let micro = task.micro.as_ref().expect("it was read");
    assert_eq!(micro.inputs["change"], "a diff");
    assert_eq!(micro.outputs["verdict"], "good or bad");
    let problems = config.take_micro(&TaskName::from("desk"), "---\nnmae: x\n---\n").expect_err("it is wrong");
    assert!(problems.to_string().contains("agents/reviewer.md:2"), "{problems}");
}
