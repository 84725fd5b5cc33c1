//! The files of a new plugin, by kind: its code, its manifest, a config that uses it with replies
//! from a file, and cases for `conclave plugin test`.

use conclave_core::types::wording::quoted;
use serde_json::{Map, Value, json};

use crate::args::{Language, NewKind};
use crate::state::sdk;

/// The parts that differ between kinds.
struct Parts {
    description: &'static str,
    /// Requests of the manifest, as TOML.
    asks: &'static str,
    /// The rest of the plugin's table in the config.
    grants: &'static str,
    config: &'static str,
    replies: Value,
    cases: Value,
    message: &'static str,
}

/// Returns the text of a template for a kind.
macro_rules! of_kind {
    ($kind:expr, $before:literal, $after:literal) => {
        match $kind {
            NewKind::Tool => include_str!(concat!($before, "tool", $after)),
            NewKind::Agent => include_str!(concat!($before, "agent", $after)),
            NewKind::Responder => include_str!(concat!($before, "responder", $after)),
            NewKind::Strategy => include_str!(concat!($before, "strategy", $after)),
            NewKind::Gate => include_str!(concat!($before, "gate", $after)),
            NewKind::Judge => include_str!(concat!($before, "judge", $after)),
            NewKind::SimulatedUser => include_str!(concat!($before, "simulated-user", $after)),
            NewKind::Observer => include_str!(concat!($before, "observer", $after)),
            NewKind::Condenser => include_str!(concat!($before, "condenser", $after)),
            NewKind::Memory => include_str!(concat!($before, "memory", $after)),
            NewKind::Analyzer => include_str!(concat!($before, "analyzer", $after)),
        }
    };
}

/// The path and the text of the files that depend on the language: the code first.
fn code(kind: NewKind, language: Language) -> [(&'static str, &'static str); 4] {
    match language {
        Language::Rust => [
            ("src/lib.rs", of_kind!(kind, "templates/", ".rs.in")),
            ("Cargo.toml", include_str!("templates/cargo.toml.in")),
            (".gitignore", include_str!("templates/gitignore.in")),
            ("Cargo.lock", sdk::LOCK),
        ],
        Language::Python => [
            ("app.py", of_kind!(kind, "../../../../../sdk/python/templates/", "/app.py")),
            ("test_app.py", of_kind!(kind, "../../../../../sdk/python/templates/", "/test_app.py")),
            ("pyproject.toml", include_str!("../../../../../sdk/python/templates/pyproject.toml")),
            (".gitignore", include_str!("../../../../../sdk/python/templates/gitignore")),
        ],
        Language::Js => [
            ("app.js", of_kind!(kind, "../../../../../sdk/js/templates/", "/app.js")),
            ("app.test.js", of_kind!(kind, "../../../../../sdk/js/templates/", "/app.test.js")),
            ("package.json", include_str!("../../../../../sdk/js/templates/package.json")),
            (".gitignore", include_str!("../../../../../sdk/js/templates/gitignore")),
        ],
    }
}

/// The path and the text of each file. `sdk` is the path of the SDK, and `exclude` a line of
/// a crate's workspace.
pub(super) fn files(
    kind: NewKind,
    language: Language,
    name: &str,
    sdk: &str,
    exclude: &str,
) -> Vec<(String, String)> {
    let parts = parts(kind);
    let fill = |text: &str| {
        let file = name.replace('-', "_");
        text.replace("<NAME>", name)
            .replace("<FILE>", &file)
            .replace("<TYPE>", &type_name(name, kind))
            .replace("<SDK>", sdk)
            .replace("<EXCLUDE>", exclude)
    };
    let manifest = format!(
        "[plugin]\nname = {}\nversion = \"0.1.0\"\ncontract = \"0.1\"\ndescription = {}\nlicense = \"Apache-2.0\"\n{}",
        quoted(name),
        quoted(parts.description),
        parts.asks
    );
    let source = match language {
        Language::Rust => "target/wasm32-wasip2/release/<FILE>.wasm",
        Language::Python | Language::Js => "build/<NAME>.wasm",
    };
    let config = format!(
        "# Runs without a key and without a model: the replies come from a file.\n\
         #   conclave plugin build && conclave run {}\n\
         {}\n[models.default]\nkind = \"scripted\"\nreplies = \"replies.json\"\n\n\
         [plugins.<NAME>]\nsource = \"{source}\"\n{}",
        quoted(parts.message),
        parts.config.trim_start(),
        parts.grants
    );
    let pretty = |value: &Value| format!("{value:#}\n");
    let shared = [
        ("conclave-plugin.toml", manifest),
        ("conclave.toml", fill(&config)),
        ("replies.json", fill(&pretty(&parts.replies))),
        ("cases.json", fill(&cases_text(&parts.cases))),
    ];
    let of_language = code(kind, language).map(|(path, text)| match path {
        // It is not a template, and may hold anything.
        "Cargo.lock" => (path, text.to_owned()),
        path => (path, fill(text)),
    });
    of_language.into_iter().chain(shared).map(|(path, text)| (path.to_owned(), text)).collect()
}

/// The keys of a case, in the order in which a reader expects them.
const CASE_KEYS: [&str; 7] = ["name", "tool", "run", "config", "settings", "arguments", "expect"];

/// The cases as JSON whose keys have the order of the documentation.
fn cases_text(cases: &Value) -> String {
    let place = |key: &str| CASE_KEYS.iter().position(|known| *known == key);
    let case = |fields: &Map<String, Value>| {
        let mut fields: Vec<(&String, &Value)> = fields.iter().collect();
        fields.sort_by_key(|(key, _)| place(key).unwrap_or(CASE_KEYS.len()));
        let lines = fields.iter().map(|(key, value)| {
            let value = format!("{value:#}").replace('\n', "\n    ");
            format!("    {}: {value}", Value::from(key.as_str()))
        });
        format!("  {{\n{}\n  }}", lines.collect::<Vec<_>>().join(",\n"))
    };
    let cases: Vec<String> =
        cases.as_array().into_iter().flatten().filter_map(Value::as_object).map(case).collect();
    format!("[\n{}\n]\n", cases.join(",\n"))
}

/// A message that the new config answers.
pub(super) fn message(kind: NewKind) -> &'static str {
    parts(kind).message
}

/// The name of a Rust type, which ends in the kind, or in its last word, so that it shadows
/// nothing: `word-count` is `WordCountGate`.
fn type_name(name: &str, kind: NewKind) -> String {
    let capital = |part: &str| {
        let mut chars = part.chars();
        chars.next().map(|first| first.to_uppercase().chain(chars).collect::<String>())
    };
    let mut parts: Vec<String> = name.split(['-', '_']).filter_map(capital).collect();
    let kind = kind.as_str().rsplit('-').next().and_then(capital).unwrap_or_default();
    if parts.last() != Some(&kind) {
        parts.push(kind);
    }
    let name = parts.concat();
    // The traits that the code imports.
    match name.as_str() {
        "Agent" | "Responder" | "Gate" | "Memory" | "Observer" | "Condenser"
        | "SecurityAnalyzer" | "DeliveryStrategy" | "Judge" | "SimulatedUser" => {
            format!("My{name}")
        }
        _ => name,
    }
}

fn parts(kind: NewKind) -> Parts {
    match kind {
        NewKind::Tool => tool(),
        NewKind::Agent => agent(),
        NewKind::Responder => responder(),
        NewKind::Strategy => strategy(),
        NewKind::Gate => gate(),
        NewKind::Judge => judge(),
        NewKind::SimulatedUser => simulated_user(),
        NewKind::Observer => observer(),
        NewKind::Condenser => condenser(),
        NewKind::Memory => memory(),
        NewKind::Analyzer => analyzer(),
    }
}

fn tool() -> Parts {
    Parts {
        description: "Counts the words of texts.",
        asks: "",
        grants: "",
        config: r#"
entry = "desk"

[tasks.desk]
agent = "chat"

[plugins.chat]
source = "stock:chat"
grants.model = ["default"]
grants.tools = ["<NAME>.*"]
"#,
        replies: json!({ "replies": [
            { "calls": [{ "name": "<NAME>.count", "args": { "text": "a fresh sandbox per call" } }] },
            "It has five words.",
        ] }),
        cases: json!([
            { "name": "it counts words", "tool": "count", "arguments": { "text": "a fresh sandbox per call" }, "expect": { "content": "5" } },
            { "name": "a wrong argument is told to the model", "tool": "count", "arguments": { "text": "a", "shortest": 0 }, "expect": { "error": "shortest" } },
            { "name": "a model calls it", "run": "How many words?", "expect": { "content": "It has five words.", "called": ["<NAME>.count"] } },
        ]),
        message: "How many words has “a fresh sandbox per call”?",
    }
}

fn agent() -> Parts {
    Parts {
        description: "Answers a question with a model.",
        asks: "\n[asks.model]\nwhy = \"Every answer is a model's.\"\n\n[asks.tools]\nwhy = \"The model may ask for tools; which ones is up to you.\"\noptional = true\n",
        grants: "grants.model = [\"default\"]\n",
        config: r#"
entry = "desk"

[tasks.desk]
agent = "<NAME>"
system = "You answer in one sentence."
"#,
        replies: json!({ "replies": ["It was lit in 1844."] }),
        cases: json!([
            { "name": "a model answers", "run": "When was it lit?", "expect": { "status": "DONE", "content": "It was lit in 1844." } },
        ]),
        message: "When was the Skerryvore light lit?",
    }
}

fn responder() -> Parts {
    Parts {
        description: "Answers questions with facts of its settings, and asks a model the rest.",
        asks: "\n[asks.model]\nwhy = \"A model answers what no fact does.\"\n\n[asks.tools]\nwhy = \"The model may ask for tools; which ones is up to you.\"\noptional = true\n\n[config.facts]\ntype = \"object\"\ndescription = \"Answers to the questions that contain their names.\"\n",
        grants: "grants.model = [\"default\"]\nconfig.facts = { open = \"From nine to five.\" }\n",
        config: r#"
entry = "desk"

[tasks.desk]
agent = "<NAME>"
"#,
        replies: json!({ "replies": ["It was lit in 1844."] }),
        cases: json!([
            { "name": "a fact needs no model", "run": "When do you open?", "expect": { "status": "DONE", "content": "From nine to five." } },
            { "name": "a model answers the rest", "run": "When was it lit?", "expect": { "status": "DONE", "content": "It was lit in 1844." } },
        ]),
        message: "When do you open?",
    }
}

fn strategy() -> Parts {
    Parts {
        description: "Reports results of background tasks when the channel is idle.",
        asks: "\n[asks.channels]\nwhy = \"Reports results there.\"\n",
        grants: "grants.channels = [\"phone\"]\n",
        config: r#"
entry = "desk"

[channels.phone]
kind = "voice"
simulate = "1 ms"

[tasks.desk]
agent = "chat"
tools = ["delegate_task"]

[tasks.facts]
agent = "chat"
delivery_strategy = "<NAME>"

[plugins.chat]
source = "stock:chat"
grants.model = ["default"]
grants.delegate = ["facts"]
"#,
        replies: json!({
            "rules": [{ "when": "the height of", "reply": "It is 48 metres tall." }],
            "replies": [
                { "calls": [{ "name": "delegate_task", "args": { "agent": "facts", "task": "Look up the height of the light." } }] },
                "I will tell you.",
            ],
        }),
        cases: json!([
            { "name": "the result of a background task is reported", "run": "How tall is it?", "expect": { "content": "I will tell you.", "delivered": ["It is 48 metres tall."] } },
        ]),
        message: "How tall is the light?",
    }
}

fn gate() -> Parts {
    Parts {
        description: "Blocks texts that hold certain words.",
        asks: "\n[config.words]\ntype = \"array\"\ndescription = \"Words that block a text.\"\n",
        grants: "config = { words = [\"secret\"] }\n",
        config: r#"
entry = "desk"

[[gates]]
on = "delegate"
plugin = "<NAME>"

[tasks.desk]
agent = "chat"
tools = ["delegate_task"]

[tasks.facts]
agent = "chat"

[plugins.chat]
source = "stock:chat"
grants.model = ["default"]
grants.delegate = ["facts"]
"#,
        replies: json!({ "replies": [
            { "calls": [{ "name": "delegate_task", "args": { "agent": "facts", "task": "Find out the secret." } }] },
            "I may not have that looked up.",
        ] }),
        cases: json!([
            { "name": "a word of the list does not reach a worker", "run": "What is it?", "expect": { "content": "I may not have that looked up.", "blocked": ["it holds “secret”"] } },
        ]),
        message: "What is the secret?",
    }
}

fn judge() -> Parts {
    Parts {
        description: "Takes only answers with a year, which is the result.",
        asks: "",
        grants: "",
        config: r#"
entry = "desk"

[tasks.desk]
agent = "chat"
judge = "<NAME>"

[plugins.chat]
source = "stock:chat"
grants.model = ["default"]
"#,
        replies: json!({ "replies": ["It is very old.", "It was lit in 1844."] }),
        cases: json!([
            { "name": "an answer without a year does not count", "run": "When was it lit?", "expect": { "status": "DONE", "content": "1844" } },
        ]),
        message: "When was the Skerryvore light lit?",
    }
}

fn simulated_user() -> Parts {
    Parts {
        description: "Answers questions with facts of its settings.",
        asks: "\n[config.facts]\ntype = \"object\"\ndescription = \"Answers to the questions that contain their names.\"\n",
        grants: "config.facts = { date = \"The first of June.\", guests = \"We are two.\" }\n",
        config: r#"
entry = "desk"

[tasks.desk]
agent = "chat"
tools = ["done"]
interactive = true
only_user_quits_root = false   # the agent may end the task too
simulated_user = "<NAME>"

[plugins.chat]
source = "stock:chat"
grants.model = ["default"]
"#,
        replies: json!({ "replies": [
            "For which date?",
            "For how many guests?",
            { "calls": [{ "name": "done", "args": { "content": "I have booked a table for two on the first of June." } }] },
        ] }),
        cases: json!([
            { "name": "it answers what it is asked", "run": "A table, please.", "expect": { "status": "DONE", "content": "I have booked a table for two on the first of June." } },
        ]),
        message: "I would like a table.",
    }
}

fn observer() -> Parts {
    Parts {
        description: "Logs the tasks of a run that end.",
        asks: "",
        grants: "",
        config: r#"
entry = "desk"

[[observers]]
plugin = "<NAME>"
events = ["task-ended", "denied"]

[tasks.desk]
agent = "chat"

[plugins.chat]
source = "stock:chat"
grants.model = ["default"]
"#,
        replies: json!({ "replies": ["It was lit in 1844."] }),
        cases: json!([
            { "name": "the end of a task is logged", "run": "When was it lit?", "expect": { "content": "It was lit in 1844.", "logged": ["desk ended"] } },
        ]),
        message: "When was Skerryvore lit?",
    }
}

fn condenser() -> Parts {
    Parts {
        description: "Keeps the first and the last entries of a history.",
        asks: "",
        grants: "",
        config: r#"
entry = "desk"

[tasks.desk]
agent = "chat"
condense = { plugin = "<NAME>", max_entries = 6 }

[plugins.chat]
source = "stock:chat"
grants.model = ["default"]
grants.tools = ["notes.*"]

[plugins.notes]
source = "stock:notes"
grants.kv = true
"#,
        replies: json!({ "replies": [
            { "calls": [{ "name": "notes.remember", "args": { "text": "The light is white." } }] },
            { "calls": [{ "name": "notes.remember", "args": { "text": "It flashes every ten seconds." } }] },
            { "calls": [{ "name": "notes.remember", "args": { "text": "It was lit in 1844." } }] },
            "I have noted all three.",
        ] }),
        cases: json!([
            { "name": "a history of more than six entries is shortened", "run": "Note what you know of the light.", "expect": { "content": "I have noted all three.", "condensed": 1 } },
        ]),
        message: "Note what you know of the light.",
    }
}

fn memory() -> Parts {
    Parts {
        description: "Remembers notes, and finds them by their words.",
        asks: "\n[asks.kv]\nwhy = \"The notes are stored there.\"\n",
        grants: "grants.kv = true\n",
        config: r#"
entry = "desk"

[tasks.desk]
agent = "chat"
memory = "<NAME>"

[plugins.chat]
source = "stock:chat"
grants.model = ["default"]
grants.tools = ["<NAME>.*"]
"#,
        replies: json!({ "replies": [
            { "calls": [{ "name": "<NAME>.remember", "args": { "note": "The light was lit in 1844." } }] },
            "I will remember that.",
        ] }),
        cases: json!([
            { "name": "a note is stored", "tool": "remember", "arguments": { "note": "The light was lit in 1844." }, "grants": ["kv = true"], "expect": { "content": "stored" } },
            { "name": "an agent stores a note", "run": "Remember: lit in 1844.", "expect": { "called": ["<NAME>.remember"] } },
        ]),
        message: "Remember that the light was lit in 1844.",
    }
}

fn analyzer() -> Parts {
    Parts {
        description: "Rates the risk of actions.",
        asks: "",
        grants: "",
        config: r#"
entry = "desk"

[tasks.desk]
agent = "chat"
confirm = { policy = "risky", threshold = "high", analyzer = "<NAME>" }

[plugins.chat]
source = "stock:chat"
grants.model = ["default"]
grants.tools = ["notes.*"]

[plugins.notes]
source = "stock:notes"
grants.kv = true
"#,
        replies: json!({ "replies": [
            { "calls": [{ "name": "notes.forget", "args": { "id": 7 } }] },
            "I was not allowed to remove it.",
        ] }),
        cases: json!([
            { "name": "a deletion waits for an approver", "run": "Remove note 7.", "expect": { "content": "I was not allowed to remove it.", "asked": ["high: it deletes something"] } },
        ]),
        message: "Remove note 7.",
    }
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;
    use conclave_core::config::Config;

    use super::*;

    #[test]
    fn a_type_shadows_nothing() {
        let gate = |name| type_name(name, NewKind::Gate);
        for (name, expected) in [
            ("word-count", "WordCountGate"),
            ("a_b", "ABGate"),
            ("my-gate", "MyGate"),
            ("ok", "OkGate"),
            ("gate", "MyGate"),
        ] {
            assert_eq!(gate(name), expected);
        }
        assert_eq!(type_name("delivery", NewKind::Strategy), "MyDeliveryStrategy");
        let user = |name| type_name(name, NewKind::SimulatedUser);
        assert_eq!(
            (user("guest"), user("my-simulated-user")),
            ("GuestUser".to_owned(), "MySimulatedUser".to_owned())
        );
        assert_eq!(user("simulated-user"), "MySimulatedUser");
    }

    #[test]
    fn every_kind_has_a_config_that_parses_and_no_placeholder_is_left() {
        for kind in NewKind::value_variants() {
            for language in Language::ALL {
                let files = files(*kind, language, "my-plugin", "\"sdk\"", "");
                let config = &files.iter().find(|(path, _)| path == "conclave.toml").unwrap().1;
                Config::parse("conclave.toml", "", config).unwrap_or_else(|problems| {
                    panic!("{}: {problems}", kind.as_str());
                });
                for (path, text) in &files {
                    for placeholder in ["<NAME>", "<FILE>", "<TYPE>", "<SDK>", "<EXCLUDE>"] {
                        assert!(!text.contains(placeholder), "{path}: {placeholder}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_case_is_written_in_the_order_of_the_documentation() {
        let cases =
            json!([{ "expect": { "content": "5" }, "arguments": {}, "tool": "t", "name": "n" }]);
        let text = cases_text(&cases);
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), cases);
        let positions = ["name", "tool", "arguments", "expect"].map(|key| text.find(key).unwrap());
        assert!(positions.is_sorted(), "{text}");
    }

    /// The tests of `conclave plugin new` build these files and play their cases. `UPDATE_DOCS=1`
    /// writes them into the pages.
    #[test]
    fn the_pages_of_kinds_show_what_is_written() {
        let pages =
            std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/write-plugins");
        for kind in [
            NewKind::Gate,
            NewKind::Judge,
            NewKind::SimulatedUser,
            NewKind::Condenser,
            NewKind::Memory,
            NewKind::Analyzer,
        ] {
            let name = format!("my-{}", kind.as_str());
            let files = files(kind, Language::Rust, &name, "\"sdk\"", "");
            let path = pages.join(kind.as_str()).with_extension("md");
            let mut page = std::fs::read_to_string(&path).unwrap();
            for (file, language) in [("src/lib.rs", "rust"), ("cases.json", "json")] {
                let text = &files.iter().find(|(path, _)| path == file).unwrap().1;
                let fence = format!("```{language}\n");
                let (before, rest) = page.split_once(&fence).unwrap();
                let (_, after) = rest.split_once("```").unwrap();
                let written = format!("{before}{fence}{text}```{after}");
                if std::env::var_os("UPDATE_DOCS").is_some() {
                    std::fs::write(&path, &written).unwrap();
                    page.clone_from(&written);
                }
                assert!(page == written, "{}: {file}", path.display());
            }
        }
    }
}
