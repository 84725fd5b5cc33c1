//! A task's tool list and the toolbox that results from it.

use std::collections::BTreeMap;
use std::fmt::Write;

use conclave_core::config::ProblemCode;
use conclave_core::setup::PluginFacts;
use conclave_core::tool_calls::toolbox::{TaskTool, Toolbox};
use conclave_core::types::host_tool::HostTool;
use conclave_core::types::ids::{PluginName, TaskName};
use conclave_core::types::plugin_kind::PluginKind;
use serde_json::json;

use crate::support::{Parts, RULES, assembled, by_name, misfit, plugin, refused};

fn plugins() -> BTreeMap<PluginName, PluginFacts> {
    let mut search = plugin(&[PluginKind::Tools], &[], &["find", "read"]);
    search.tools[0].title = Some("Its find".into());
    search.tools[0].result_tokens = Some(100);
    search.tools[0].retained_tokens = Some(10);
    let chat = plugin(&[PluginKind::Agent], &["tools?", "delegate?"], &[]);
    by_name([
        ("chat", chat),
        ("search", search),
        ("notes", plugin(&[PluginKind::Tools], &[], &["save"])),
    ])
}

fn text(top: &str, task: &str) -> String {
    let end =
        "[plugins.search]\nsource = \"stock:search\"\n[plugins.notes]\nsource = \"stock:notes\"";
    Parts { top, plugin: "grants.tools = [\"search.*\"]", task, end }.text()
}

fn toolbox(top: &str, task: &str) -> Toolbox {
    assembled(&text(top, task), &plugins()).setup.tasks[&TaskName::from("desk")]
        .toolbox
        .as_ref()
        .clone()
}

/// Returns a word for each tool that differs from the default toolbox: `name`, `+` offered, `!`
/// handled, `*` final.
fn changed(top: &str, task: &str) -> String {
    let usual = |tool: &TaskTool| {
        Toolbox::from(HostTool::ALL.map(TaskTool::of_host).to_vec()).iter().any(|host| host == tool)
    };
    let mark = |is: bool, mark: &'static str| if is { mark } else { "" };
    let word = |tool: &TaskTool| {
        format!(
            "{}{}{}{}",
            tool.summary.name,
            mark(tool.offered, "+"),
            mark(tool.handled, "!"),
            mark(tool.is_final, "*")
        )
    };
    toolbox(top, task).iter().filter(|tool| !usual(tool)).map(word).collect::<Vec<_>>().join(" ")
}

#[test]
fn a_list_says_what_is_offered_and_what_is_carried_out() {
    let cases = [
        ("", "search.find+! search.read+!"),
        ("tools = []", ""),
        ("tools = [\"done\"]", "done+!"),
        (
            "tools = [\"*\", \"done_tool\", \"rewind\"]",
            "search.find+! search.read+! done_tool+! rewind+!",
        ),
        ("tools = [\"recipient_message\"]", "recipient_message+! add_recipient!"),
        ("tools = [{ tool = \"recipient_message\", handle = false }]", "recipient_message+"),
        (
            "tools = [\"add_recipient\", \"recipient_message\"]",
            "recipient_message+! add_recipient+!",
        ),
        ("tools = [{ tool = \"search.find\", as = \"find\" }]", "find+!"),
        (
            "tools = [\"search.*\", { tool = \"search.find\", use = false }]",
            "search.find! search.read+!",
        ),
        ("tools = [{ tool = \"search.find\", handle = false, final = true }]", "search.find+*"),
        ("tools = [{ tool = \"pass_tool\", handle = false, use = false }]", "pass_tool"),
        ("tools = [{ tool = \"result\", use = false, as = \"outcome\" }]", "outcome!"),
        (
            "tools = [{ tool = \"search.read\", as = \"a\" }, { tool = \"search.find\", as = \"b\" }]",
            "a+! b+!",
        ),
    ];
    for (task, expected) in cases {
        assert_eq!(changed("", task), expected, "{task}");
    }
}

#[test]
fn with_langroids_defaults_the_hosts_tools_have_langroids_names() {
    let names = |task: &str| {
        toolbox("compat = \"langroid\"", task)
            .iter()
            .skip(2)
            .map(|tool| tool.summary.name.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(names(""), HostTool::ALL.map(HostTool::langroid_name));
    let mut expected = HostTool::ALL.map(HostTool::langroid_name);
    expected[0] = "finish_it";
    assert_eq!(
        names(
            "tools = [\"search.*\", \"pass\", \"send_tool\", { tool = \"done\", as = \"finish_it\" }]"
        ),
        expected
    );
}

#[test]
fn the_operators_word_holds_and_of_two_bounds_the_smaller() {
    let cases = [
        ("", (Some("Its find"), Some(100), Some(10))),
        (
            "title = \"Mine\", result_tokens = 50, retained_tokens = 20",
            (Some("Mine"), Some(50), Some(10)),
        ),
        ("result_tokens = 200", (Some("Its find"), Some(100), Some(10))),
    ];
    for (keys, expected) in cases {
        let comma = if keys.is_empty() { "" } else { "," };
        let toolbox = toolbox("", &format!("tools = [{{ tool = \"search.find\"{comma} {keys} }}]"));
        let tool = toolbox.get("search.find").unwrap();
        assert_eq!(
            (tool.title.as_deref(), tool.result_tokens, tool.retained_tokens),
            expected,
            "{keys}"
        );
    }
    let toolbox = toolbox("", "tools = [{ tool = \"search.read\", result_tokens = 5 }]");
    assert_eq!(toolbox.get("search.read").unwrap().result_tokens, Some(5));
}

#[test]
fn the_names_of_recipients_stand_in_the_schema() {
    let setup = assembled(RULES, &plugins()).setup;
    let toolbox = &setup.tasks[&TaskName::from("Desk")].toolbox;
    let schema = |tool: HostTool| toolbox.host_tool(tool).unwrap().summary.input_schema.clone();
    let recipient = json!({ "type": "string", "enum": ["answer-1", "user"], "default": "user" });
    assert_eq!(schema(HostTool::RecipientMessage)["properties"]["intended_recipient"], recipient);
    assert_eq!(schema(HostTool::RecipientMessage)["required"], json!(["content"]));
    assert_eq!(
        schema(HostTool::AddRecipient)["properties"]["intended_recipient"],
        json!({ "type": "string", "enum": ["answer-1", "user"] })
    );
    assert_eq!(schema(HostTool::AddRecipient)["required"], json!(["intended_recipient"]));
    assert_eq!(
        toolbox.host_tool(HostTool::Done).unwrap().summary.input_schema,
        HostTool::Done.input_schema()
    );
}

/// The problems of each line, in order.
fn misfits(lines: &[&str]) -> String {
    let mut report = String::new();
    for line in lines {
        writeln!(report, "{}", misfit(&text("", line), &plugins())).unwrap();
    }
    report
}

#[test]
fn two_tools_have_two_names() {
    insta::assert_snapshot!(misfits(&[
        "tools = [{ tool = \"search.find\", as = \"x\" }, { tool = \"search.read\", as = \"x\" }]",
        "tools = [\"search.*\", { tool = \"search.find\", as = \"search.read\" }]",
        "tools = [{ tool = \"search.find\", as = \"done\" }]",
        "tools = [{ tool = \"pass\", as = \"done\" }]",
        "tools = [{ tool = \"search.find\", as = \"notes.save\" }]",
    ]));
}

#[test]
fn a_task_offers_what_its_agent_may_use() {
    insta::assert_snapshot!(misfits(&[
        "tools = [{ tool = \"notes.save\", as = \"save\" }]",
        "tools = [{ tool = \"search.fnd\" }]",
        "tools = [\"search.*\", \"delegate_task\"]",
    ]));
    let text = text("", "tools = [\"delegate_task\"]")
        .replace("grants.tools", "grants.delegate = [\"desk\"]\ngrants.tools");
    assembled(&text, &plugins());
}

#[test]
fn rules_name_tools_of_the_toolbox() {
    insta::assert_snapshot!(misfits(&[
        "force_tool = \"search.fnd\"",
        "force_tool = \"done\"",
        "tools = [{ tool = \"search.find\", as = \"find\" }]\nforce_tool = \"search.find\"",
        "tools = [{ tool = \"search.find\", use = false }]\nforce_tool = \"search.find\"",
        "returns = { tool = \"done_tool\" }",
        "on_no_tool_call = { tool = \"notes.save\" }",
        "done_sequences = [\"T, A\", \"T[search.find], T[Its fnd]\"]",
    ]));
    let task = "done_sequences = [\"T[search.find]\", \"T[Its find], T[done], T[search.read]\"]\nforce_tool = \"search.read\"\nreturns = { tool = \"final_result\" }";
    assembled(&text("", task), &plugins());
}

/// Returns the toolbox's tool `search.find`, whose argument `query` the operator may describe, with
/// the warnings of the config.
fn described(line: &str) -> (TaskTool, String) {
    let mut plugins = plugins();
    let search = plugins.get_mut(&PluginName::from("search")).unwrap();
    search.tools[0].input_schema = json!({
        "type": "object",
        "properties": { "query": { "type": "string", "description": "q" }, "any": true },
    });
    let end = format!(
        "[plugins.search]\nsource = \"stock:search\"\n{line}\n[plugins.notes]\nsource = \"stock:notes\""
    );
    let text =
        Parts { top: "", plugin: "grants.tools = [\"search.*\"]", task: "", end: &end }.text();
    let assembly = assembled(&text, &plugins);
    let tool = assembly.setup.tasks[&TaskName::from("desk")].toolbox.get("search.find").cloned();
    (tool.unwrap(), assembly.warnings.to_string())
}

#[test]
fn the_operator_describes_a_tool_and_its_arguments() {
    let (plain, _) = described("");
    let (tool, warnings) = described(
        r#"describe = { find = "Finds in our wiki.", "find.query" = "Words of the title." }"#,
    );
    assert!(!warnings.contains("describe"), "{warnings}");
    assert_eq!(tool.summary.description, "Finds in our wiki.");
    let query = &tool.summary.input_schema["properties"]["query"];
    assert_eq!(query, &json!({ "type": "string", "description": "Words of the title." }));
    assert_eq!((&tool.summary.name, &tool.title), (&plain.summary.name, &plain.title));
}

#[test]
fn a_description_that_reaches_no_model_is_a_warning() {
    for (line, what) in [
        (r#"fond = "x""#, "`search` has no tool `fond`"),
        (r#""find.qeury" = "x""#, "`search.find` has no argument `qeury`"),
        (r#""find.any" = "x""#, "`search.find` has no argument `any`"),
    ] {
        let (_, warnings) = described(&format!("describe = {{ {line} }}"));
        assert!(warnings.contains(what) && warnings.contains("config/unknown-tool"), "{warnings}");
    }
}

#[test]
fn a_description_has_the_limits_of_a_plugins() {
    for (text, code, what) in [
        (" ".to_owned(), ProblemCode::InvalidValue, "is empty"),
        ("x".repeat(4_097), ProblemCode::OutOfRange, "has 4097 bytes; 4096 are allowed"),
        (
            "a\u{200b}b".to_owned(),
            ProblemCode::InvalidValue,
            "has an invisible character in it: U+200B",
        ),
    ] {
        let plugin = format!("describe = {{ find = \"{text}\" }}");
        let problems = refused(&Parts { plugin: &plugin, ..Parts::default() }.text());
        assert_eq!(problems.codes(), [code], "{problems}");
        assert!(problems.to_string().contains(what), "{problems}");
    }
}
