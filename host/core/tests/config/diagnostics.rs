//! One snapshot for each topic, in which every rule of the topic is broken once.

use std::fmt::Write;

use crate::support::{LIBRARY, Parts, bad, good};

/// Breaks one rule per line and returns the problems in order.
fn all(parts: impl Fn(&'static str) -> Parts<'static>, lines: &[&'static str]) -> String {
    let mut report = String::new();
    for line in lines {
        let text = bad(&parts(line).text());
        writeln!(report, "{text}").unwrap();
    }
    report
}

fn in_plugin(plugin: &'static str) -> Parts<'static> {
    Parts { plugin, ..Parts::default() }
}

fn in_task(task: &'static str) -> Parts<'static> {
    Parts { task, ..Parts::default() }
}

fn at_end(end: &'static str) -> Parts<'static> {
    Parts { end, ..Parts::default() }
}

fn at_top(top: &'static str) -> Parts<'static> {
    Parts { top, ..Parts::default() }
}

#[test]
fn unknown_keys_are_errors_with_the_nearest_one() {
    let mut report = all(
        in_plugin,
        &[
            "limits = { memmory = \"64 MiB\" }",
            "sauce = 1",
            "zzzzzz = 1",
            "grants.filez = [\"docs\"]",
            "grants.log = true",
            "grants.files = [{ dir = \"docs\", at = \"/docs\", moode = \"read\" }]",
            "grants.tools = { name = [\"chat.*\"] }",
        ],
    );
    report += &all(in_task, &["agents = \"chat\"", "on_no_tool_call = { nudge = \"x\", to = 1 }"]);
    report += &all(
        at_end,
        &[
            "[limits.run]\nturn = 4",
            "[limits.runs]",
            "[plugin.x]",
            "[models.default]\nkind = \"scripted\"\nreplies = \"r\"\nprice = 1",
        ],
    );
    insta::assert_snapshot!(report);
}

#[test]
fn what_no_grant_can_name_is_refused_with_the_reason() {
    let report = all(
        in_plugin,
        &[
            "grants.exec = [\"ls\", \"/bin/x ** y\"]",
            "grants.blobs = true",
            "grants.route = [\"reject\"]",
        ],
    );
    insta::assert_snapshot!(report);
}

#[test]
fn grants_that_reach_out_are_held_to_their_form() {
    insta::assert_snapshot!(all(
        in_plugin,
        &[
            "grants.fetch = \"https://api.met.no/*\"",
            "grants.fetch = []",
            "grants.fetch = { urls = [\"https://a.example/*\", \"https://a.example/*\"], methods = [\"FETCH\"], private = [\"home\"], timeout = \"1 h\" }",
            "grants.fetch = { requests = 3 }",
            "grants.fetch = [{ url = \"https://a.example/\", method = \"GET\" }]",
            "grants.kv = false",
            "grants.kv = { bytes = 5 }",
            "grants.secrets = [\"x\"]",
            "grants.files = [{ dir = \"notes\", at = \"/notes\", mode = \"read\", bytes = \"1 MiB\", files = 20 }]",
            "grants.files = [{ dir = \"notes\", at = \"/notes\", mode = \"write\" }]",
        ],
    ));
    insta::assert_snapshot!(
        "secrets",
        all(
            at_end,
            &[
                "[secrets.met]",
                "[secrets.met]\nfrom = \"sk-very-secret\"\nhosts = []",
                "[secrets.met]\nfrom = { env = \"A\", file = \"b\" }\nhosts = [\"a.example\"]\nplaces = [\"path\"]",
            ],
        )
    );
}

#[test]
fn a_model_server_is_described_whole_and_without_secrets() {
    const SERVER: &str =
        "[models.default]\nkind = \"openai\"\nurl = \"http://127.0.0.1:1/v1\"\nmodel = \"m\"\n";
    let with =
        |lines: &str| bad(&Parts { end: &format!("{SERVER}{lines}"), ..Parts::default() }.text());
    let report = [
        all(at_end, &["[models.default]\nkind = \"openai\""]),
        all(at_end, &["[models.default]\nkind = \"openai\"\nurl = \"http://me:secret@models.example/v1\"\nmodel = \" \""]),
        all(at_end, &["[models.default]\nkind = \"scripted\"\nreplies = \"r.json\"\nurl = \"http://127.0.0.1\"\nretries = 1"]),
        all(at_end, &["[models.default]\nkind = \"native\"\nreplies = \"r.json\""]),
        with("key = \"sk-very-secret\""),
        with("key = { env = \"A\", file = \"b\" }"),
        with("key = { command = [] }"),
        with("headers = { Authorization = \"Bearer x\", \"X y\" = \"z\", \"X-Title\" = \"tab\\there\" }"),
        with("options = { model = \"other\", stream = true }"),
        all(at_end, &["[models.default]\nkind = \"anthropic\"\nurl = \"http://127.0.0.1:1/v1\"\nmodel = \"m\"\n\
            headers = { \"X-Api-Key\" = \"x\", anthropic-beta = \"y\" }\noptions = { system = \"x\" }\nreplies = \"r.json\""]),
        with("retries = 100\nidle_timeout = \"0 s\"\nreply_size = \"0 B\"\nproxy = \"socks5://x\""),
        with("thinking = [\"<think>\"]"),
    ]
    .join("\n");
    assert!(
        !report.contains("secret"),
        "what may be a key or a password is not repeated: {report}"
    );
    insta::assert_snapshot!(report);
}

#[test]
fn rules_name_tools_callers_and_what_to_do() {
    let report = all(
        at_end,
        &[
            "[[policy]]",
            "[[policy]]\ntool = \"*\"\ndecide = \"maybe\"",
            "[[policy]]\ntool = \"nobody.save\"\ncaller = \"nobody\"\ndecide = \"deny\"\nexpires = \"1 min\"",
            "[policy]\ntool = \"*\"",
        ],
    );
    insta::assert_snapshot!(report);
}

#[test]
fn a_plugin_from_elsewhere_is_held_to_its_digest() {
    let report = all(
        at_end,
        &[
            "[plugins.x]\nsource = \"https://example.org/x.wasm\"",
            "[plugins.x]\nsource = \"https://example.org/x.wasm#sha256=00\"",
            "[plugins.x]\nsource = \"https://me@example.org/x.wasm#sha256=00\"",
            "[plugins.x]\nsource = \"oci://example.org/x\"",
            "[plugins.x]\nsource = \"oci://me@example.org/x:1\"",
            "[plugins.x]\nsource = \"oci://example.org/../x:1\"",
            "[plugins.x]\nsource = \"oci://example.org/x@sha256:00\"",
            "[plugins.x]\nsource = \"native:X\"",
        ],
    );
    insta::assert_snapshot!(report);
}

#[test]
fn what_is_trusted_is_held_to_its_form() {
    let report = all(
        at_end,
        &[
            "[trust]\nkeys = { alice = \"ed25519:00\", bob = 1 }",
            "[trust]\nkeys.alice = \"ed25519:1111111111111111111111111111111111111111111111111111111111111111\"\nkeys.twin = \"ed25519:1111111111111111111111111111111111111111111111111111111111111111\"",
            "[trust]\nrequire_signed = true",
            "[trust]\nrequire_signed = { threshold = 1 }",
            "[trust]\nkeys.alice = \"ed25519:1111111111111111111111111111111111111111111111111111111111111111\"\nrequire_signed = { threshold = 2, keys = [\"bob\"] }",
            "[trust]\nrevoked = [\"alice\", \"sha256:00\"]",
            "[plugins.x]\nsource = \"stock:x\"\nrequire_signed = { keys = [\"bob\"] }",
        ],
    );
    insta::assert_snapshot!(report);
}

#[test]
fn what_must_be_there_is_missed() {
    let report = [
        "",
        "[plugins.a]\nsource = \"stock:a\"\n[tasks.one]\nagent = \"a\"\n",
        "[plugins.a]\nsource = \"stock:a\"\n[tasks.one]\nagent = \"a\"\n[tasks.two]\nagent = \"a\"\n",
        "entry = \"desk\"\n[plugins.chat]\n[tasks.desk]\n[models.default]\n",
    ]
    .map(bad)
    .join("\n");
    let grants = [
        "grants.files = [{ }]",
        "grants.delegate = { total = 1 }",
        "grants.model = { tokens = 1 }",
    ];
    insta::assert_snapshot!(
        report + "\n" + &all(in_plugin, &grants) + &all(in_task, &["on_no_tool_call = { }"])
    );
}

#[test]
fn values_have_one_type() {
    let mut report = all(
        in_plugin,
        &[
            "limits = { memory = 64 }",
            "limits = { host_calls = \"many\" }",
            "limits = { host_calls = 1.5 }",
            "limits = []",
            "grants = \"all\"",
            "grants.tools = \"search.*\"",
            "grants.tools = [1, true]",
            "grants.files = \"docs\"",
            "grants.files = [1]",
            "config = 3",
        ],
    );
    report += &all(
        in_task,
        &[
            "interactive = \"yes\"",
            "system = 1979-05-27",
            "done_if_response = \"llm\"",
            "on_no_tool_call = 1",
        ],
    );
    report += &all(
        at_end,
        &["[models]\ndefault = \"x\"", "[[models]]\nkind = \"scripted\"", "[limits]\nrun = 5"],
    );
    report += &bad("entry = 1\nplugins = 2\ntasks = []\n");
    insta::assert_snapshot!(report);
}

#[test]
fn amounts_have_units_and_bounds() {
    let mut report = all(
        in_plugin,
        &[
            "limits = { memory = \"64\" }",
            "limits = { memory = \"64 M\" }",
            "limits = { memory = \"lots\" }",
            "limits = { memory = \"1.5 GiB\" }",
            "limits = { memory = \"2 GiB\" }",
            "limits = { memory = \"1 KiB\" }",
            "limits = { cpu = \"9 ms\" }",
            "limits = { cpu = \"5 m\" }",
            "limits = { wall = \"0 s\" }",
            "limits = { wall = \"721 h\" }",
            "limits = { output = \"0 B\" }",
            "limits = { log = \"0 B\" }",
            "limits = { read = \"0 B\" }",
            "limits = { scratch = \"2 GiB\" }",
            "limits = { host_calls = 0 }",
            "limits = { handles = -1 }",
            "limits = { at_once = 4_294_967_296 }",
            "limits = { at_once = 99999999999999999999999999999999999999999999 }",
            "limits = { at_once = -99999999999999999999999999999999999999999999 }",
            "grants.model = { names = [\"default\"], tokens = 0, calls = 0, cost_usd = 0 }\n[models.default]\nkind = \"scripted\"\nreplies = \"r\"",
            "grants.tools = { names = [\"chat.*\"], calls = 0 }",
            "grants.delegate = { tasks = [\"desk\"], at_once = 0, total = 0 }",
            "grants.delegate = { tasks = [\"desk\"], at_once = 3, total = 2 }",
            "grants.channels = { names = [\"terminal\"], messages = 0 }",
        ],
    );
    report += &all(in_task, &["turns = 0", "max_stalled_steps = 0"]);
    report += &all(
        at_end,
        &[
            "[limits.run]\nwall = \"0 s\"\nturns = 0\ntokens = 0\ncost_usd = 0.0000001\ndepth = -1",
            "[limits.run]\ncost_usd = nan",
            "[models.default]\nkind = \"scripted\"\nreplies = \"r\"\ninput_price = -1\noutput_price = 0",
            "[models.default]\nkind = \"scripted\"\nreplies = \"r\"\ninput_price = 1",
            "[models.default]\nkind = \"scripted\"\nreplies = \"r\"\ncontext = 350\nmax_output = 0",
            "[models.default]\nkind = \"scripted\"\nreplies = \"r\"\nmin_output = 9",
        ],
    );
    insta::assert_snapshot!(report);
}

#[test]
fn names_follow_the_rule_and_are_not_reserved() {
    let long = format!("[models.{}]\nkind = \"scripted\"\nreplies = \"r\"", "m".repeat(65));
    let mut report = all(
        at_end,
        &[
            "[plugins.Search]\nsource = \"stock:search\"",
            "[plugins.\"a b\"]\nsource = \"stock:search\"",
            "[plugins.9]\nsource = \"stock:search\"",
            "[plugins.\"\"]\nsource = \"stock:search\"",
            "[tasks.user]\nagent = \"chat\"",
            "[tasks.llm]\nagent = \"chat\"",
            "[tasks.agent]\nagent = \"chat\"",
            "[tasks.system]\nagent = \"chat\"",
            "[tasks.done]\nagent = \"chat\"",
            "[tasks.delegate_task]\nagent = \"chat\"",
            "[tasks.rewind]\nagent = \"chat\"",
            "[tasks.User]\nagent = \"chat\"",
            "[tasks.DONE]\nagent = \"chat\"",
            "[tasks._desk]\nagent = \"chat\"",
            "[tasks.Desk]\nagent = \"chat\"",
            "[tasks.\"desk\\u001b[2J\"]\nagent = \"chat\"",
            "[tasks.\"a\\u001b[2J\"]\nagent = \"chat\"\nsubtasks = [\"a\\u001b[2J\"]\nodd = 1",
            "[tasks]\n\"a\\u001b[2J\" = 1",
        ],
    );
    report += &bad(&Parts { end: &long, ..Parts::default() }.text());
    insta::assert_snapshot!(report);
}

#[test]
fn sources_and_paths_can_be_found() {
    let source = |line: &'static str| -> String {
        let text = Parts::default().text().replace("source = \"stock:chat\"", line);
        bad(&text)
    };
    let reports: Vec<String> = [
        "source = \"chat\"",
        "source = \"./chat.js\"",
        "source = \"stock:\"",
        "source = \"stock:Chat\"",
        "source = \"ftp://x/x.wasm\"",
        "source = \"~/x.wasm\"",
        "source = \"\"",
        "source = \"a\\u0000.wasm\"",
        "source = 1",
    ]
    .into_iter()
    .map(source)
    .collect();
    insta::assert_snapshot!(reports.join("\n"));
}

#[test]
fn directories_have_a_place_of_their_own() {
    insta::assert_snapshot!(all(
        in_plugin,
        &[
            "grants.files = []",
            "grants.files = [\"\"]",
            "grants.files = [\".\"]",
            "grants.files = [\"../..\"]",
            "grants.files = [\"docs\", \"old/docs\"]",
            "grants.files = [\"~/docs\"]",
            "grants.files = [{ dir = \"docs\", at = \"docs\" }]",
            "grants.files = [{ dir = \"docs\", at = \"/a/b\" }]",
            "grants.files = [{ dir = \"docs\", at = \"/..\" }]",
            "grants.files = [{ dir = \"docs\", at = \"/\" }]",
            "grants.files = [{ dir = \"docs\", at = '/a\\b' }]",
            "grants.files = [{ dir = \"docs\", at = \"/a\\u0000\" }]",
            "grants.files = [{ dir = \"docs\", at = \"/docs\", mode = \"write\" }]",
        ]
    ));
}

#[test]
fn lists_are_well_formed() {
    let mut report = all(
        in_plugin,
        &[
            "grants.tools = []",
            "grants.route = []",
            "grants.tools = [\"chat.*\", \"chat.*\"]",
            "grants.tools = [\"chat\"]",
            "grants.tools = [\"chat.fi*\"]",
            "grants.tools = [\"*.find\"]",
            "grants.tools = [\"done\"]",
            "grants.channels = [\"web\"]",
            "grants.channels = [\"terminl\"]",
        ],
    );
    report += &all(
        in_task,
        &[
            "tools = [\"a b\"]",
            "done_if_response = [\"system\"]",
            "done_if_no_response = [\"usr\"]",
            "on_no_tool_call = \"don\"",
            "on_no_tool_call = { nudge = \" \" }",
            "agent_responder = \"guest\"",
        ],
    );
    insta::assert_snapshot!(report);
}

#[test]
fn the_rules_of_a_task_are_strict() {
    insta::assert_snapshot!(all(
        in_task,
        &[
            "compat = \"langchain\"",
            "single_round = true\nturns = 3",
            "responders = []",
            "done_sequences = [\"T, X\", \"C[(]\", 5, \"\"]",
            "returns = \"integer\"",
            "returns = { }",
            "returns = 5",
            "tool_format = \"yaml\"",
            "overflow = \"drop\"",
            "bytes_per_token = 0",
            "loop_detection = { cycle_len = 1001, dominance = 0.5, repeats = 0, alternation = 1, waits = 1 }",
            "loop_detection = { dominance = \"2\" }",
            "text_rules = { address_prefix = \"to \", signal = true }",
            "text_rules = { address_prefix = \"@\\u200b\" }",
            "on_no_tool_call = { nudge = \"x\", tool = \"done\" }",
            "on_no_tool_call = { arguments = { at = 07:32:00 } }",
        ]
    ));
}

/// Returns the help of the first problem of a task's lines.
fn help(plugin: &str, task: &str) -> String {
    let text = bad(&Parts { plugin, task, ..Parts::default() }.text());
    text.split_once("help: ")
        .map_or(text.as_str(), |(_, help)| help)
        .lines()
        .next()
        .unwrap_or_default()
        .to_owned()
}

#[test]
fn a_sentence_instead_of_a_rule_is_taken_for_a_nudge() {
    let remedy = help("", "on_no_tool_call = \"Use a tool!\"");
    assert_eq!(
        remedy,
        "to say it to the agent write `on_no_tool_call = { nudge = \"Use a tool!\" }`"
    );
    let long = format!("on_no_tool_call = \"{}\"", "a ".repeat(200));
    assert_eq!(
        help("", &long),
        "to say it to the agent write `on_no_tool_call = { nudge = \"…\" }`"
    );
}

#[test]
fn a_tool_without_its_plugin_is_proposed_with_it() {
    let other: String = ["search", "notes", "a", "b"]
        .iter()
        .map(|name| format!("[plugins.{name}]\nsource = \"stock:{name}\"\n"))
        .collect();
    let cases = [
        ("grants.tools = [\"search.find\"]", "find", "write the plugin too: \"search.find\""),
        (
            "grants.tools = [\"search.*\", \"notes.save\"]",
            "find",
            "write the plugin too: \"search.find\"",
        ),
        (
            "grants.tools = [\"a.*\", \"b.*\"]",
            "find",
            "write the plugin too: \"a.find\" or \"b.find\"",
        ),
        (
            "grants.tools = [\"*\"]",
            "find",
            "write the plugin too, as in \"search.find\"; for all tools of a plugin write \"search.*\"",
        ),
        ("grants.tools = [\"search.*\"]", "search", "for all tools of a plugin write \"search.*\""),
    ];
    for (grant, word, expected) in cases {
        assert_eq!(
            help(&format!("{grant}\n{other}"), &format!("tools = [\"{word}\"]")),
            expected,
            "{grant} {word}"
        );
    }
}

#[test]
fn a_pattern_that_cannot_be_used_is_helped_as_what_it_is() {
    let cases = [
        ("C[(?=x)]", "without `(?=`"),
        (r"C[(a)\1]", "without `\\1`"),
        ("C[(]", "put a backslash"),
        (r"C[\w{900}]", "shorter pattern"),
    ];
    for (sequence, expected) in cases {
        let remedy = help("", &format!("done_sequences = ['{sequence}']"));
        assert!(remedy.contains(expected), "{sequence}: {remedy}");
    }
}

#[test]
fn the_tools_of_a_task_are_listed_one_by_one() {
    insta::assert_snapshot!(all(
        in_task,
        &[
            "tools = [\"chat\", \"dne\", 5]",
            "tools = [\"chat.find\", { tool = \"chat.find\" }, \"done\", \"done_tool\"]",
            "tools = [{ as = \"find\" }]",
            "tools = [{ tool = \"chat.*\", title = \" \" }]",
            "tools = [{ tool = \"chat.find\", as = \"a b\" }, { tool = \"chat.read\", as = \"\" }]",
            "tools = [\"agent_done\", \"result\", \"final_result_tool\", { tool = \"agent_send\", handle = false }]",
            "tools = [{ tool = \"done\", final = true }]",
            "tools = [{ tool = \"send\", recipients = [\"user\"], default_recipient = \"user\" }]",
            "tools = [{ tool = \"recipient_message\", recipients = [\"Desk\", \"LLM\", \"usr\"], default_recipient = \"agent\" }]",
            "tools = [{ tool = \"recipient_message\", recipients = [], default_recipient = \"system\" }]",
            "tools = [{ tool = \"chat.find\", result_tokens = 0, retained_tokens = \"many\", uze = true }]",
        ]
    ));
}

#[test]
fn names_lead_somewhere() {
    let mut report = all(
        in_plugin,
        &[
            "grants.tools = [\"serch.find\"]",
            "grants.model = [\"default\"]",
            "grants.delegate = [\"dsk\"]",
            "grants.route = [\"answer\", \"usr\", \"don\"]",
        ],
    );
    report += &all(
        in_task,
        &[
            "delivery_strategy = \"immediate\"",
            "subtasks = [\"answer\"]",
            "tools = [\"search.find\"]",
        ],
    );
    report += &bad(
        "entry = \"dek\"\n[plugins.chat]\nsource = \"stock:chat\"\n[tasks.desk]\nagent = \"char\"\n",
    );
    insta::assert_snapshot!(report);
}

#[test]
fn a_task_does_not_reach_itself_through_its_subtasks() {
    let two = "subtasks = [\"a\"]\n[tasks.a]\nagent = \"chat\"\nsubtasks = [\"b\", \"c\"]\n[tasks.b]\nagent = \"chat\"\n\
        [tasks.c]\nagent = \"chat\"\nsubtasks = [\"desk\", \"c\"]";
    insta::assert_snapshot!(all(in_task, &["subtasks = [\"desk\"]", two]));
}

#[test]
fn settings_are_json() {
    insta::assert_snapshot!(all(
        in_plugin,
        &[
            "config = { since = 1979-05-27T07:32:00Z }",
            "config = { list = [1, { at = 07:32:00 }] }",
            "config = { ratio = nan, other = -inf }",
            "config = { big = 99999999999999999999999999 }",
        ]
    ));
}

#[test]
fn all_problems_are_said_at_once_in_the_order_of_the_lines() {
    let text = "entry = \"dsk\"\n\n[plugins.chat]\nsource = \"chat\"\nlimits = { memmory = \"64 MiB\", cpu = 5 }\ngrants.fetch = []\n\n\
        [tasks.desk]\nagent = \"chat\"\nsubtask = []\nturns = 0\n";
    insta::assert_snapshot!(bad(text));
}

#[test]
fn syntax_errors_are_all_reported_and_nothing_is_missed_because_of_them() {
    // The errors of their lines hide `source` and `agent`, so their absence is not reported again.
    // `zzz` is a separate mistake.
    let text = "entry = desk\n[plugins.chat]\nsource = \"stock:chat\n[tasks.desk]\nagent = = \"chat\"\nzzz = 1\nentry = \"x\"\n\
        turns = 1\nturns = 2\n";
    insta::assert_snapshot!(bad(text));
}

#[test]
fn a_file_that_is_no_toml_gives_a_page_and_not_a_book() {
    let problems = crate::support::parse(&"}{ ][\n".repeat(10_000)).unwrap_err();
    assert_eq!(problems.0.len(), 20);
}

#[test]
fn a_long_line_is_shown_around_its_mistake() {
    let text = format!(
        "entry = \"desk\"\nplugins = {{ chat = {{ config = {{ text = \"{}\" }}, sauce = 1, end = \"{}\" }} }}\n",
        "ä".repeat(500),
        "x".repeat(500)
    );
    insta::assert_snapshot!(bad(&text));
}

#[test]
fn the_sketch_of_the_design_is_right() {
    let sketch = LIBRARY.replace(
        "grants.files = [\"./notes\"]",
        "grants.files = [{ dir = \"notes\", at = \"/notes\", mode = \"read-write\", bytes = \"1 MiB\", files = 20 }]",
    );
    let policy =
        "[[policy]]\ntool = \"notes.save\"\ndecide = \"ask\"\nexpires = \"10 min\"\n\n[limits.run]";
    good(&sketch.replace("[limits.run]", policy));
}

#[test]
fn a_key_at_the_wrong_place_is_said_to_be_there() {
    insta::assert_snapshot!(all(at_top, &["memory = \"64 MiB\"", "task = \"desk\""]));
}
