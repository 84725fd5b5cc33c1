//! The meaning of a task's rules, from the text to the setup.

use std::collections::BTreeMap;
use std::sync::Arc;

use conclave_core::config::ProblemCode;
use conclave_core::permissions::task_scope::TaskScope;
use conclave_core::setup::{
    AgentResponder, LoopRules, NoTool, PluginFacts, ResponderName, ReturnType, TaskSetup, TextRules,
};
use conclave_core::tool_calls::sequence::Sequence;
use conclave_core::types::completion::ToolFormat;
use conclave_core::types::ids::{PluginName, TaskName};
use conclave_core::types::message::{Role, ToolCall};
use conclave_core::types::plugin_kind::PluginKind;
use conclave_core::types::stuck_rules::StuckRules;
use conclave_core::types::task_options::Overflow;
use serde_json::json;

use crate::support::{Parts, RULES, assembled, by_name, good, parse, plugin, refused};

fn plugins() -> BTreeMap<PluginName, PluginFacts> {
    by_name([
        ("chat", plugin(&[PluginKind::Agent], &["tools?"], &[])),
        ("search", plugin(&[PluginKind::Tools], &[], &["find", "read"])),
    ])
}

/// Returns the task `desk` with these lines and all rules except the toolbox.
fn desk(top: &str, task: &str) -> TaskSetup {
    let end = "[plugins.search]\nsource = \"stock:search\"";
    let text = Parts { top, plugin: "grants.tools = [\"search.*\"]", task, end }.text();
    let setup = assembled(&text, &plugins()).setup;
    TaskSetup { toolbox: Arc::default(), ..setup.tasks[&TaskName::from("desk")].as_ref().clone() }
}

#[test]
fn every_rule_of_a_task_reaches_its_setup() {
    let setup = assembled(RULES, &plugins()).setup;
    let task = setup.tasks[&TaskName::from("Desk")].as_ref();
    let expected = TaskSetup {
        agent: "chat".into(),
        description: "D".into(),
        system: "S".into(),
        subtasks: vec!["Answer-1".into()],
        scope: TaskScope {
            route: Some(vec!["user".into()]),
            read_only: true,
            ..TaskScope::default()
        },
        toolbox: Arc::clone(&task.toolbox),
        force_tool: Some("find".into()),
        delivery_strategy: None,
        interactive: true,
        turns: Some(2),
        max_stalled_steps: 2,
        done_if_response: [Role::Llm.into(), ResponderName::from("Answer-1")].into(),
        done_if_no_response: [Role::Agent.into()].into(),
        done_if_tool: true,
        done_sequences: ["T[find], A", "C[a,b]"]
            .map(|text| Sequence::parse(text).unwrap())
            .to_vec(),
        no_tool: NoTool::Call(ToolCall::new("find", json!({ "query": "q", "n": 1 }))),
        agent_responder: AgentResponder::Host,
        responders: [Role::Llm, Role::Agent].into(),
        allow_null_result: true,
        tool_format: ToolFormat::Xml,
        only_user_quits_root: false,
        default_human_response: Some("H".into()),
        user_message: Some("M".into()),
        restart: false,
        restart_as_subtask: true,
        erase_substeps: true,
        loop_detection: LoopRules { cycle_len: 4, dominance: 2.0, wait: 3, alternation: false },
        text_rules: TextRules {
            signals: true,
            recipients: true,
            prefix: "|@|".into(),
            calls: true,
            system_word: true,
        },
        allow_multiple_tools: false,
        respond_tools_only: true,
        allow_subtask_multi_tools: false,
        returns: Some(ReturnType::Tool("search.read".into())),
        overflow: Overflow::DropTurns,
        as_langroid: false,
        bytes_per_token: 3,
        ..TaskSetup::default()
    };
    assert_eq!(*task, expected);
}

#[test]
fn a_task_without_rules_has_the_defaults() {
    let expected =
        TaskSetup { agent: "chat".into(), no_tool: NoTool::Done, ..TaskSetup::default() };
    assert_eq!(desk("", ""), expected);
    assert_eq!(desk("", "user_message = \"\"\ntext_rules = { }\nloop_detection = { }"), expected);
}

/// Returns a task whose words have their meaning in Langroid.
fn langroid() -> TaskSetup {
    TaskSetup {
        agent: "chat".into(),
        text_rules: TextRules {
            signals: true,
            recipients: true,
            prefix: String::new(),
            calls: true,
            system_word: true,
        },
        no_tool: NoTool::Nothing,
        as_langroid: true,
        stuck_detection: StuckRules { on: false, ..StuckRules::default() },
        ..TaskSetup::default()
    }
}

#[test]
fn compat_changes_what_is_not_written() {
    let top = "compat = \"langroid\"";
    assert_eq!(desk(top, ""), langroid());
    assert_eq!(desk("", top), langroid());
    let written = "text_rules = { signals = false, calls = false }\non_no_tool_call = \"done\"\ninteractive = true";
    let text_rules = TextRules { signals: false, calls: false, ..langroid().text_rules };
    assert_eq!(
        desk(top, written),
        TaskSetup { text_rules, no_tool: NoTool::Done, interactive: true, ..langroid() }
    );
    let both = good(
        &Parts { task: top, end: "[tasks.other]\nagent = \"chat\"", ..Parts::default() }.text(),
    );
    assert_eq!(
        both.tasks[&TaskName::from("other")].setup.no_tool,
        NoTool::Done,
        "only the task that says so"
    );
}

#[test]
fn each_word_of_a_rule_means_one_thing() {
    let cases = [
        ("single_round = true", TaskSetup { turns: Some(1), ..desk("", "") }),
        ("single_round = true\nllm_delegate = true", TaskSetup { turns: Some(2), ..desk("", "") }),
        ("single_round = false\nturns = 7", TaskSetup { turns: Some(7), ..desk("", "") }),
        ("returns = \"text\"", TaskSetup { returns: Some(ReturnType::Text), ..desk("", "") }),
        ("returns = \"int\"", TaskSetup { returns: Some(ReturnType::Int), ..desk("", "") }),
        ("returns = \"float\"", TaskSetup { returns: Some(ReturnType::Float), ..desk("", "") }),
        ("returns = \"bool\"", TaskSetup { returns: Some(ReturnType::Bool), ..desk("", "") }),
        (
            "returns = \"any_tool\"",
            TaskSetup { returns: Some(ReturnType::AnyTool), ..desk("", "") },
        ),
        ("tool_format = \"json\"", TaskSetup { tool_format: ToolFormat::Json, ..desk("", "") }),
        (
            "tool_format = \"off\"\nresponders = [\"user\"]",
            TaskSetup {
                tool_format: ToolFormat::Off,
                responders: [Role::User].into(),
                ..desk("", "")
            },
        ),
        (
            "on_no_tool_call = { tool = \"pass\" }",
            TaskSetup { no_tool: NoTool::Call(ToolCall::new("pass", json!({}))), ..desk("", "") },
        ),
        (
            "loop_detection = { cycle_len = 0 }",
            TaskSetup {
                loop_detection: LoopRules { cycle_len: 0, ..LoopRules::default() },
                ..desk("", "")
            },
        ),
        (
            "text_rules.address_prefix = \"@\"",
            TaskSetup {
                text_rules: TextRules { prefix: "@".into(), ..TextRules::default() },
                ..desk("", "")
            },
        ),
    ];
    for (line, expected) in cases {
        assert_eq!(desk("", line), expected, "{line}");
    }
}

#[test]
fn the_help_for_a_pattern_goes_by_what_is_wrong_with_it_and_not_by_its_words() {
    let help = |pattern: &str| {
        let text =
            Parts { task: &format!("done_sequences = ['C[{pattern}]']"), ..Parts::default() }
                .text();
        parse(&text).unwrap_err().to_string()
    };
    for (pattern, expected) in [
        ("a(?=b)", "write the pattern without `(?=`"),
        (r"(a)\1", "name what may come again"),
        ("(?:a{1000}){1000}", "write a shorter pattern"),
        ("look-around(", "put a backslash before a sign"),
        ("backreference(", "put a backslash before a sign"),
        ("when compiled(", "put a backslash before a sign"),
    ] {
        assert!(help(pattern).contains(expected), "{pattern}: {}", help(pattern));
    }
}

#[test]
fn a_responder_that_ends_a_task_takes_part_in_it() {
    for (name, help) in [
        ("LLM", "did you mean `llm`?"),
        ("system", "write `llm`, `agent` or `user`"),
        ("other", "write `llm`, `agent` or `user`"),
    ] {
        let line = format!("done_if_response = [\"{name}\"]");
        let end = "[tasks.other]\nagent = \"chat\"\n[tasks.main]\nagent = \"chat\"\nsubtasks = [\"other\"]";
        let problems = refused(&Parts { task: &line, end, ..Parts::default() }.text());
        assert_eq!(problems.codes(), [ProblemCode::InvalidValue], "{problems}");
        assert!(problems.to_string().contains(help), "{problems}");
    }
}

#[test]
fn a_rule_that_does_nothing_is_a_warning() {
    let config = good(&Parts { task: "llm_delegate = true", ..Parts::default() }.text());
    assert_eq!(config.warnings.codes(), [ProblemCode::NoEffect], "{}", config.warnings);
    let of_entry = good(RULES).warnings;
    assert_eq!(of_entry.codes(), [ProblemCode::NoEffect; 2], "it is no sub-task: {of_entry}");
}

#[test]
fn one_plugin_or_one_text_answers_as_the_user_of_a_task_that_has_one() {
    let end = "[plugins.customer]\nsource = \"stock:scripted-user\"";
    let text = |more: &str| {
        let task = format!("simulated_user = \"customer\"\n{more}");
        Parts { task: &task, end, ..Parts::default() }.text()
    };
    assert_eq!(good(&text("")).warnings.to_string(), "");
    let problems = refused(&text("default_human_response = \"Go on.\""));
    assert_eq!(problems.codes(), [ProblemCode::Conflict], "{problems}");
    let warnings = good(&text("responders = [\"llm\", \"agent\"]")).warnings;
    assert_eq!(warnings.codes(), [ProblemCode::NoEffect], "{warnings}");
    let warning = warnings.to_string();
    assert!(warning.contains("the user takes no part in this task"), "{warning}");
    assert!(warning.contains("add \"user\" to `responders`"), "{warning}");
}

#[test]
fn tasks_are_named_as_people_like() {
    for name in ["Desk2", "2nd", "My_Desk-1"] {
        let text = Parts {
            task: &format!("subtasks = [\"{name}\"]"),
            end: &format!("[tasks.{name}]\nagent = \"chat\""),
            ..Parts::default()
        };
        assert!(parse(&text.text()).is_ok(), "{name}");
    }
}
