//! The meaning of a valid config.

use conclave_core::config::{Config, KEYS, ModelKind, PluginSource, Position, ProblemCode};
use conclave_core::permissions::grants::{FileMode, ToolPattern};
use conclave_core::setup::{AgentResponder, NoTool};
use conclave_core::types::completion::ModelApi;
use conclave_core::types::ids::{ModelName, PluginName, TaskName};
use conclave_core::types::limits::{PluginLimits, RunLimits, WhenUsedUp};
use conclave_core::types::message::Role;
use serde_json::json;

use crate::support::{LIBRARY, Parts, bad, good, parse, refused};

#[test]
fn the_library_is_read_whole() {
    let config = good(LIBRARY);
    assert_eq!(config.warnings.to_string(), "");
    assert_eq!(config.entry, TaskName::from("desk"));
    let limits = RunLimits {
        wall_ms: Some(300_000),
        turns: Some(40),
        cost_micro_usd: Some(500_000),
        ..RunLimits::default()
    };
    assert_eq!(config.limits, limits);

    let model = &config.models[&ModelName::from("default")];
    let ModelKind::Scripted { replies } = &model.kind else { panic!("scripted") };
    assert_eq!(
        (replies.display_path.as_str(), replies.path.as_str()),
        ("replies.json", "/home/ann/library/replies.json")
    );
    assert_eq!(
        (model.prices.input_price, model.prices.output_price),
        (Some(250_000), Some(2_000_000))
    );

    let coordinator = &config.plugins[&PluginName::from("coordinator")];
    assert_eq!(coordinator.source, PluginSource::Stock("pipeline".into()));
    let delegate = coordinator.grants.delegate.as_ref().unwrap();
    assert_eq!((delegate.at_once, delegate.total, delegate.tasks[0].as_str()), (1, 1, "digest"));
    assert_eq!(coordinator.grants.route.as_ref().unwrap().names, ["answer", "user", "done"]);

    let librarian = &config.plugins[&PluginName::from("librarian")].grants;
    let grant = librarian.model.as_ref().unwrap();
    assert_eq!(
        (grant.tokens, grant.cost_micro_usd, grant.calls),
        (Some(50_000), Some(200_000), None)
    );
    assert_eq!(
        librarian.tools.as_ref().unwrap().names,
        ["search.*", "notes.save"].map(|name| ToolPattern(name.into()))
    );

    let search = &config.plugins[&PluginName::from("search")];
    let limits = PluginLimits {
        memory: 64 << 20,
        cpu_ms: 500,
        wall_ms: 2000,
        output: 256 << 10,
        ..PluginLimits::default()
    };
    assert_eq!(search.limits, limits);
    let file = &search.grants.files[0];
    assert_eq!(
        (file.dir.as_str(), file.display_path.as_str(), file.at.as_str()),
        ("/home/ann/library/docs", "docs", "/folder")
    );
    assert_eq!(file.mode, FileMode::Read);

    let notes = &config.plugins[&PluginName::from("notes")];
    let PluginSource::File(source) = &notes.source else { panic!("{:?}", notes.source) };
    assert_eq!(
        (source.display_path.as_str(), source.path.as_str()),
        ("./notes.wasm", "/home/ann/library/notes.wasm")
    );
    assert_eq!(
        (notes.grants.files[0].dir.as_str(), notes.grants.files[0].at.as_str()),
        ("/home/ann/library/notes", "/notes")
    );
    assert_eq!(notes.config, json!({ "greeting": "hello" }));

    let text = "entry = 't'\n[tasks.t]\nagent = 'p'\n[plugins.p]\nsource = 'stock:p'\n\
                grants.files = [{ dir = 'src', at = '/src', mode = 'overlay', bytes = '1 MiB' }]\n";
    let overlay = Config::parse("c.toml", "/home/ann", text).unwrap();
    let grant = &overlay.plugins[&PluginName::from("p")].grants.files[0];
    assert_eq!((grant.mode, grant.bytes, grant.files), (FileMode::Overlay, 1 << 20, 1_000));
    assert!(grant.mode.writes());

    let digest = config.plugins[&PluginName::from("digest")].grants.tools.as_ref().unwrap();
    assert_eq!(digest.calls, Some(10));
    let rooms = config.plugins[&PluginName::from("immediate")].grants.channels.as_ref().unwrap();
    assert_eq!((rooms.channels[0].as_str(), rooms.messages), ("terminal", Some(5)));
    assert_eq!(
        config.tasks[&TaskName::from("digest")].setup.delivery_strategy,
        Some(PluginName::from("immediate"))
    );
}

#[test]
fn every_limit_has_its_key() {
    let all = "limits = { memory = \"1 GiB\", cpu = \"10 ms\", wall = \"1 ms\", output = \"1 MB\", log = \"2 kB\", host_calls = 3, handles = 4, \
        read = \"5 B\", scratch = \"6 B\", at_once = 7, table_elements = 8, instances = 9, arguments = \"10 B\", list = 11, component = \"12 B\", \
        compile_time = \"13 ms\", compile_memory = \"14 B\", blobs = \"15 B\" }";
    let run = "[limits.run]\nwall = \"1 h\"\nturns = 2\ntokens = 3\ncost_usd = 4\ndepth = 0\ntask_turns = 5\n\
        model_calls = 6\ntool_calls = 7\nhistory = \"11 MiB\"\ncpu = \"8 s\"\ntasks = 9\ntasks_at_once = 10\nwhen_used_up = \"ask\"";
    let config = good(&Parts { plugin: all, end: run, ..Parts::default() }.text());
    let limits = PluginLimits {
        memory: 1 << 30,
        cpu_ms: 10,
        wall_ms: 1,
        output: 1_000_000,
        log: 2000,
        host_calls: 3,
        handles: 4,
        read: 5,
        scratch: 6,
        at_once: 7,
        table_elements: 8,
        instances: 9,
        arguments: 10,
        list: 11,
        component: 12,
        compile_ms: 13,
        compile_memory: 14,
        blobs: 15,
    };
    assert_eq!(config.plugins[&PluginName::from("chat")].limits, limits);
    let limits = RunLimits {
        turns: Some(2),
        wall_ms: Some(3_600_000),
        tokens: Some(3),
        cost_micro_usd: Some(4_000_000),
        model_calls: Some(6),
        tool_calls: Some(7),
        history: Some(11 << 20),
        cpu_ms: Some(8_000),
        tasks: Some(9),
        tasks_at_once: Some(10),
        depth: 0,
        task_turns: Some(5),
        when_used_up: WhenUsedUp::Ask,
    };
    assert_eq!(config.limits, limits);
}

/// A limit above its maximum could not be enforced.
#[test]
fn every_limit_has_a_maximum() {
    for limit in [
        "memory = \"2 GiB\"",
        "cpu = \"721 h\"",
        "wall = \"721 h\"",
        "output = \"2 GiB\"",
        "log = \"2 GiB\"",
        "scratch = \"2 GiB\"",
        "blobs = \"2 GiB\"",
        "read = \"2000 GiB\"",
        "host_calls = 1_000_000_001",
        "handles = 1_000_001",
        "at_once = 100_001",
        "table_elements = 100_001",
        "instances = 121",
        "arguments = \"65 MiB\"",
        "list = 1_000_001",
        "component = \"65 MiB\"",
        "compile_time = \"61 min\"",
        "compile_memory = \"65 GiB\"",
    ] {
        let text = Parts { plugin: &format!("limits = {{ {limit} }}"), ..Parts::default() }.text();
        let problems = parse(&text).expect_err(limit);
        assert_eq!(problems.codes(), [ProblemCode::OutOfRange], "{limit}: {problems}");
    }
}

#[test]
fn what_is_not_written_has_its_default() {
    let config = good(&Parts::default().text());
    let task = &config.tasks[&TaskName::from("desk")];
    assert_eq!(
        (
            task.setup.max_stalled_steps,
            task.setup.turns,
            task.setup.interactive,
            task.setup.allow_null_result,
        ),
        (5, None, false, false)
    );
    assert_eq!(
        (task.tools.as_ref(), task.setup.agent_responder, &task.setup.no_tool),
        (None, AgentResponder::HostThenComponent, &NoTool::Done)
    );
    let plugin = &config.plugins[&PluginName::from("chat")];
    assert_eq!((&plugin.limits, &plugin.config), (&PluginLimits::default(), &json!({})));
    assert_eq!(config.limits, RunLimits::default());
    let short = good(&Parts { plugin: "grants.delegate = [\"desk\"]", ..Parts::default() }.text());
    let delegate = short.plugins[&PluginName::from("chat")].grants.delegate.clone().unwrap();
    assert_eq!((delegate.at_once, delegate.total), (1, 8));
}

#[test]
fn a_rule_of_the_agent_role_needs_that_responder() {
    let mut report = String::new();
    let cases = [
        ("responders = [\"llm\"]", true),
        ("responders = [\"llm\", \"user\"]", true),
        ("responders = [\"llm\"]\non_no_tool_call = \"done\"", true),
        ("responders = [\"llm\"]\non_no_tool_call = { nudge = \"Go on.\" }\nturns = 3", true),
        ("responders = [\"llm\", \"user\"]\ninteractive = true\non_no_tool_call = \"user\"", true),
        ("responders = [\"llm\"]\nsingle_round = true", false),
        ("responders = [\"llm\"]\ndone_if_response = [\"llm\"]", false),
        ("responders = [\"llm\"]\non_no_tool_call = \"nothing\"", false),
        ("responders = [\"llm\", \"agent\"]", false),
        ("responders = [\"user\"]", false),
    ];
    for (task, expected) in cases {
        let warnings = good(&Parts { task, ..Parts::default() }.text()).warnings;
        let codes = if expected { vec![ProblemCode::NoEffect] } else { Vec::new() };
        assert_eq!(warnings.codes(), codes, "{task}: {warnings}");
        report += &warnings.to_string();
    }
    insta::assert_snapshot!(report);
}

#[test]
fn a_key_that_can_have_no_effect_is_a_warning() {
    let sub = "[tasks.sub]\nagent = \"chat\"\n";
    let delegates = "grants.delegate = [\"sub\"]";
    let model = "[models.default]\nkind = \"scripted\"\nreplies = \"r.json\"\n";
    let asks = "grants.model = [\"default\"]";
    let of_sub = |line: &str| format!("{sub}{line}\n");
    // The key, the parts in which it has no effect, and those in which it has one.
    let cases: Vec<(&str, [String; 3], [String; 3])> = vec![
        (
            "deadline",
            parts("", "deadline = \"2 min\"", ""),
            parts(delegates, "", &of_sub("deadline = \"2 min\"")),
        ),
        (
            "on_close",
            parts("", "on_close = \"detach\"", ""),
            parts(delegates, "", &of_sub("on_close = \"detach\"")),
        ),
        (
            "structured_retries",
            parts("", "structured_retries = 3", ""),
            parts(delegates, "", &of_sub("structured_retries = 3")),
        ),
        (
            "result_delivery",
            parts("", "result_delivery = \"text\"", ""),
            parts(delegates, "", &of_sub("result_delivery = \"text\"")),
        ),
        (
            "budget",
            parts("", "budget = { turns = 4 }", ""),
            parts(delegates, "", &of_sub("budget = { turns = 4 }")),
        ),
        (
            "background",
            parts("", "background = { wait = true }", ""),
            parts(delegates, "background = { wait = true }", sub),
        ),
        (
            "handoff",
            parts("", "handoff = [\"user\"]", ""),
            parts(
                "grants.route = [\"user\"]",
                "handoff = [\"user\"]\ntools = [\"handoff_conversation\"]",
                "",
            ),
        ),
        (
            "overflow",
            parts(asks, "overflow = \"truncate\"", model),
            parts(asks, "overflow = \"truncate\"", &format!("{model}context = 9000")),
        ),
        (
            "only_user_quits_root",
            parts("", "only_user_quits_root = false", ""),
            parts("", "only_user_quits_root = false\ninteractive = true", ""),
        ),
        (
            "respond_tools_only",
            parts("", "respond_tools_only = true", ""),
            parts("", "subtasks = [\"sub\"]", &of_sub("respond_tools_only = true")),
        ),
        (
            "restart_as_subtask",
            parts("", "restart_as_subtask = true", ""),
            parts("", "subtasks = [\"sub\"]", &of_sub("restart_as_subtask = true")),
        ),
        (
            "erase_substeps",
            parts("", "erase_substeps = true", ""),
            parts("", "erase_substeps = true\nsubtasks = [\"sub\"]", sub),
        ),
        (
            "allow_multiple_tools",
            parts("", "allow_multiple_tools = false\ntool_format = \"off\"", ""),
            parts("", "allow_multiple_tools = false", ""),
        ),
        (
            "access",
            parts("", "", "[channels.web]\nkind = \"web\"\naccess = \"none\""),
            parts("", "", "[channels.web]\nkind = \"web\"\naccess = \"read-only\""),
        ),
    ];
    for (key, idle, at_work) in cases {
        for ([plugin, task, end], expected) in [(idle, true), (at_work, false)] {
            let text = Parts { plugin: &plugin, task: &task, end: &end, ..Parts::default() }.text();
            let warnings = good(&text).warnings;
            let is_warned = warnings.codes().contains(&ProblemCode::NoEffect);
            assert_eq!(is_warned, expected, "{key}: {text}{warnings}");
        }
    }
}

fn parts(plugin: &str, task: &str, end: &str) -> [String; 3] {
    [plugin, task, end].map(str::to_owned)
}

#[test]
fn a_message_without_a_tool_call_is_done_where_nobody_comes_next() {
    let sub = "[tasks.sub]\nagent = \"chat\"";
    let cases = [
        ("", "", NoTool::Done),
        ("interactive = true", "", NoTool::Nothing),
        ("subtasks = [\"sub\"]", sub, NoTool::Nothing),
        ("subtasks = [\"sub\"]\non_no_tool_call = \"done\"", sub, NoTool::Done),
        ("on_no_tool_call = \"nothing\"", "", NoTool::Nothing),
        ("on_no_tool_call = \"user\"", "", NoTool::User),
        ("on_no_tool_call = { nudge = \"Go on.\" }", "", NoTool::Nudge("Go on.".into())),
    ];
    for (task, end, expected) in cases {
        let config = good(&Parts { task, end, ..Parts::default() }.text());
        assert_eq!(config.tasks[&TaskName::from("desk")].setup.no_tool, expected, "{task}");
    }
}

#[test]
fn a_task_says_how_it_works_and_ends() {
    let task = "description = \"D\"\nsystem = \"S\"\ninteractive = true\nturns = 3\nmax_stalled_steps = 2\nagent_responder = \"component\"\n\
        allow_null_result = true\ndone_if_response = [\"llm\", \"user\"]\ndone_if_no_response = [\"agent\"]\ntools = []";
    let config = good(&Parts { task, ..Parts::default() }.text());
    let task = &config.tasks[&TaskName::from("desk")];
    assert_eq!(
        (
            task.setup.description.as_str(),
            &*task.setup.system,
            task.setup.turns,
            task.setup.max_stalled_steps
        ),
        ("D", "S", Some(3), 2)
    );
    assert_eq!(
        (task.setup.interactive, task.setup.allow_null_result, task.setup.agent_responder),
        (true, true, AgentResponder::Component)
    );
    assert_eq!(task.setup.done_if_response, [Role::Llm.into(), Role::User.into()].into());
    assert_eq!(task.setup.done_if_no_response, [Role::Agent.into()].into());
    assert_eq!(task.tools, Some(vec![]));
    let host = good(&Parts { task: "agent_responder = \"host\"", ..Parts::default() }.text());
    assert_eq!(host.tasks[&TaskName::from("desk")].setup.agent_responder, AgentResponder::Host);
}

#[test]
fn settings_keep_their_shape() {
    let plugin = "[plugins.chat.config]\nlist = [1, -2.5, 0xff, 1_000]\nflag = true\nsub.sub = \"x\"\nbig = 9223372036854775807";
    let config = good(&Parts { plugin, ..Parts::default() }.text());
    let expected = json!({ "list": [1, -2.5, 255, 1000], "flag": true, "sub": { "sub": "x" }, "big": i64::MAX });
    assert_eq!(config.plugins[&PluginName::from("chat")].config, expected);
}

#[test]
fn what_nobody_uses_is_a_warning() {
    let end = "[tasks.idle]\nagent = \"other\"\nsubtasks = [\"idler\"]\n[tasks.idler]\nagent = \"chat\"\n\
        [plugins.other]\nsource = \"stock:other\"\ngrants.tools = [\"tool.*\"]\n[plugins.tool]\nsource = \"stock:tool\"\n\
        [models.default]\nkind = \"scripted\"\nreplies = \"r.json\"";
    insta::assert_snapshot!(good(&Parts { end, ..Parts::default() }.text()).warnings.to_string());
}

#[test]
fn a_star_uses_every_plugin_and_a_grant_to_delegate_every_task() {
    let end = "[tasks.idle]\nagent = \"chat\"\n[plugins.tool]\nsource = \"stock:tool\"";
    let plugin = "grants.tools = [\"*\"]\ngrants.delegate = [\"idle\"]";
    assert_eq!(good(&Parts { plugin, end, ..Parts::default() }.text()).warnings.to_string(), "");
}

fn served(url: &str, more: &str) -> Config {
    served_by("openai", url, more)
}

fn served_by(kind: &str, url: &str, more: &str) -> Config {
    let end =
        format!("[models.default]\nkind = \"{kind}\"\nurl = \"{url}\"\nmodel = \"m\"\n{more}");
    good(&Parts { plugin: "grants.model = [\"default\"]", end: &end, ..Parts::default() }.text())
}

#[test]
fn a_key_that_crosses_a_network_in_the_clear_is_a_warning() {
    let key = "key = { env = \"K\" }";
    let cases = [
        ("http://127.0.0.1:80/v1", "", false),
        ("https://models.example/v1", "proxy = \"http://proxy.example:3128\"", false),
        ("http://models.example/v1", "", true),
        ("http://localhost.example/v1", "", true),
        ("http://127.0.0.1:80/v1", "proxy = \"http://proxy.example:3128\"", true),
        ("http://models.example/v1", "proxy = \"http://127.0.0.1:3128\"", false),
    ];
    for (url, proxy, warns) in cases {
        let warnings = served(url, &format!("{proxy}\n{key}")).warnings;
        let codes = if warns { vec![ProblemCode::Insecure] } else { Vec::new() };
        assert_eq!(warnings.codes(), codes, "{url} {proxy}: {warnings}");
        assert_eq!(
            served(url, proxy).warnings.to_string(),
            "",
            "without a key there is nothing to read"
        );
    }
}

#[test]
fn the_kind_of_a_server_is_its_api_and_its_keys_are_the_same() {
    for (kind, expected) in [
        ("openai", ModelApi::ChatCompletions),
        ("openai-responses", ModelApi::Responses),
        ("anthropic", ModelApi::Messages),
    ] {
        let keys = "key = { env = \"K\" }\nheaders = { anthropic-beta = \"x\" }\nretries = 7\n\
            context = 8_000\noptions = { max_tokens = 900 }";
        let config = served_by(kind, "https://models.example/v1", keys);
        let model = &config.models["default"];
        let ModelKind::Server(server) = &model.kind else { panic!("a server") };
        assert_eq!((server.api, server.retries, server.headers.len()), (expected, 7, 1));
        assert!(server.key.is_some());
        assert_eq!((model.prices.api, model.prices.max_output), (expected, Some(900)));
        assert_eq!(model.prices.reached_at.as_deref(), Some("models.example"));
    }
    // The key of Chat Completions has another header.
    served_by("openai", "https://models.example/v1", "headers = { X-Api-Key = \"x\" }");
}

#[test]
fn thinking_has_the_marks_of_its_model_or_none() {
    for (written, expected) in [
        ("", Some(("<think>", "</think>"))),
        ("thinking = true", Some(("<think>", "</think>"))),
        ("thinking = [\"[THINK]\", \"[/THINK]\"]", Some(("[THINK]", "[/THINK]"))),
        ("thinking = [\"\", \"</think>\"]", Some(("", "</think>"))),
        ("thinking = false", None),
        ("thinking = []", None),
    ] {
        let config = served_by("openai", "https://models.example/v1", written);
        let ModelKind::Server(server) = &config.models["default"].kind else { panic!("a server") };
        let marks = server.thinking.as_ref().map(|marks| (&*marks.open, &*marks.close));
        assert_eq!(marks, expected, "{written}");
    }
}

#[test]
fn whoever_gets_the_prompts_is_named_a_proxy_too() {
    let reached = |more: &str| {
        served("https://models.example:8443/v1", more).models["default"].prices.reached_at.clone()
    };
    assert_eq!(reached("").as_deref(), Some("models.example:8443"));
    assert_eq!(
        reached("proxy = \"http://proxy.example:3128\"").as_deref(),
        Some("models.example:8443 through proxy.example:3128")
    );
}

#[test]
fn a_cost_limit_without_a_price_is_a_warning() {
    let plugin = "grants.model = { names = [\"default\"], cost_usd = 0.10 }";
    let end =
        "[models.default]\nkind = \"scripted\"\nreplies = \"r.json\"\n[limits.run]\ncost_usd = 1";
    insta::assert_snapshot!(
        good(&Parts { plugin, end, ..Parts::default() }.text()).warnings.to_string()
    );
}

#[test]
fn a_key_is_found_at_its_line_and_what_is_not_there_at_what_is_above_it() {
    let config = good(LIBRARY);
    let cases = [
        ("plugins.search", (20, 10)),
        ("plugins.search.grants.files", (22, 8)),
        ("plugins.search.grants.files[0]", (22, 17)),
        ("plugins.search.grants.files[0].at", (22, 33)),
        ("plugins.search.grants.files[7].at", (22, 8)),
        ("plugins.search.grants.model", (22, 1)),
        ("plugins.coordinator.limits.cpu", (10, 10)),
        ("tasks.answer.tools[1]", (43, 25)),
        ("policy", (1, 1)),
    ];
    for (path, (line, column)) in cases {
        assert_eq!(config.locate(path), Position { line, column }, "{path}");
    }
    let problem = config
        .problem(ProblemCode::UnreadableFile, "plugins.notes.source", "there is no such file")
        .help("build it first");
    insta::assert_snapshot!(problem.to_string());
}

#[test]
fn every_available_example_is_accepted_where_it_belongs() {
    let parts = |table: &str, line: &'static str| match table {
        "plugins.NAME.limits" | "plugins.NAME.grants" => {
            Some(Parts { plugin: line, ..Parts::default() })
        }
        // Each model of a task is granted.
        "tasks.NAME" if line.starts_with("model = ") => {
            let plugin = "grants.model = [\"fast\", \"strong\"]";
            Some(Parts { task: line, plugin, ..Parts::default() })
        }
        "tasks.NAME" => Some(Parts { task: line, ..Parts::default() }),
        "limits.run" => Some(Parts { end: line, ..Parts::default() }),
        _ => None,
    };
    let more = "[secrets.met_token]\nfrom = { env = \"T\" }\nhosts = [\"api.example.org\"]\n[plugins.search]\nsource = \"stock:search\"\n[plugins.immediate]\nsource = \"stock:i\"\n[plugins.workspace]\nsource = \"stock:w\"\n\
        [plugins.browser]\nsource = \"stock:b\"\n[plugins.notes]\nsource = \"stock:n\"\n[plugins.recent]\nsource = \"stock:r\"\n[plugins.grader]\nsource = \"stock:g\"\n[plugins.customer]\nsource = \"stock:c\"\n[plugins.librarian]\n\
        source = \"stock:l\"\n[tasks.answer]\nagent = \"chat\"\n[tasks.billing]\nagent = \"chat\"\n[tasks.digest]\nagent = \"chat\"\n[models.default]\n\
        kind = \"scripted\"\nreplies = \"r.json\"\n[models.fast]\nkind = \"native\"\n[models.strong]\nkind = \"native\"\n";
    for key in KEYS.iter().filter(|key| key.name != "agent") {
        let Some(parts) = parts(key.table, key.example) else { continue };
        let text = match key.table {
            "plugins.NAME.limits" => {
                parts.text().replace(key.example, &format!("limits.{}", key.example))
            }
            "limits.run" => {
                parts.text().replace(key.example, &format!("[limits.run]\n{}", key.example))
            }
            _ => parts.text(),
        };
        assert!(
            parse(&format!("{text}{more}")).is_ok(),
            "{}",
            parse(&format!("{text}{more}")).unwrap_err()
        );
    }
}

#[test]
fn a_length_among_the_options_is_what_an_answer_takes_where_histories_are_cut() {
    let limits = |lines: &str| {
        let model = format!(
            "[models.default]\nkind = \"openai\"\nurl = \"http://127.0.0.1:1/v1\"\nmodel = \"m\"\n{lines}"
        );
        let config = good(&Parts { end: &model, ..Parts::default() }.text());
        let prices = &config.models[&ModelName::from("default")].prices;
        (prices.context, prices.max_output, prices.min_output)
    };
    let options = "options = { max_tokens = 900 }";
    assert_eq!(limits(options), (None, None, None));
    assert_eq!(
        limits(&format!("{options}\ncontext = 8_000\nmin_output = 9")),
        (Some(8_000), Some(900), Some(9))
    );
    assert_eq!(
        limits(&format!("{options}\ncontext = 351\nmax_output = 70")),
        (Some(351), Some(70), None)
    );
}

#[test]
fn a_task_names_its_models_in_their_order() {
    const END: &str = "[models.fast]\nkind = \"native\"\n[models.strong]\nkind = \"native\"";
    let plugin = "grants.model = [\"fast\", \"strong\"]";
    let text = |task| Parts { plugin, task, end: END, ..Parts::default() }.text();
    for (task, expected) in [
        ("", &[][..]),
        ("model = \"strong\"", &["strong"]),
        ("model = [\"strong\", \"fast\"]", &["strong", "fast"]),
    ] {
        let config = good(&text(task));
        let models: Vec<&str> =
            config.tasks["desk"].setup.models.iter().map(ModelName::as_str).collect();
        assert_eq!(models, expected);
    }
    for (task, expected) in [
        ("model = []", "names no model"),
        ("model = [\"fast\", \"strong\", \"fast\"]", "names the model `fast` once more"),
        ("model = [\"fast\", \"stron\"]", "which is not in this config"),
        ("model = 7", "model"),
    ] {
        let problems = bad(&text(task));
        assert!(problems.contains(expected) && problems.contains("help:"), "{problems}");
    }
}

#[test]
fn each_model_of_a_task_must_be_granted_and_in_its_scope() {
    const END: &str = "[models.fast]\nkind = \"native\"\n[models.strong]\nkind = \"native\"";
    let problem = |plugin, task| {
        let problems = refused(&Parts { plugin, task, end: END, ..Parts::default() }.text());
        assert_eq!(problems.codes(), [ProblemCode::NotGranted], "{problems}");
        problems.to_string()
    };
    let missing = problem("grants.model = [\"fast\"]", "model = [\"fast\", \"strong\"]");
    assert!(missing.contains("the agent `chat` may not ask the model `strong`"), "{missing}");
    let grant = "write `grants.model = [\"fast\", \"strong\"]` in [plugins.chat]";
    assert!(missing.contains(grant), "{missing}");
    let narrowed = problem(
        "grants.model = [\"fast\", \"strong\"]",
        "model = [\"fast\", \"strong\"]\nscope = { model = [\"fast\"] }",
    );
    assert!(
        narrowed.contains("`scope` of the task `desk` leaves out the model `strong`"),
        "{narrowed}"
    );
}
