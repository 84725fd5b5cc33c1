//! The JSON Schema and the parser know the same keys. Every config of these tests is checked with
//! both.

use std::path::Path;
use std::sync::LazyLock;

use conclave_core::config::schema::json_schema;
use conclave_core::config::{
    Config, ConfigKey, KEYS, KeyDefault, ProblemCode, Problems, ValueShape,
};
use jsonschema::Validator;
use serde_json::{Value, json};

static SCHEMA: LazyLock<Validator> =
    LazyLock::new(|| jsonschema::draft202012::new(&json_schema()).unwrap());

/// Checks that the schema accepts every config that the parser accepts, and rejects a key that the
/// parser does not know.
pub(crate) fn agrees(text: &str, parsed: &Result<Config, Problems>) {
    let unknown = match parsed {
        Ok(_) => None,
        Err(problems) => {
            match problems.0.iter().find(|problem| problem.code == ProblemCode::UnknownKey) {
                None => return,
                unknown => unknown,
            }
        }
    };
    let Ok(value) = toml::from_str::<Value>(text) else { return };
    match unknown {
        Some(problem) => {
            assert!(!SCHEMA.is_valid(&value), "the schema lets this pass: {problem}\n{text}")
        }
        None => assert!(SCHEMA.is_valid(&value), "{}\n{text}", complaints(&value)),
    }
}

fn complaints(value: &Value) -> String {
    SCHEMA
        .iter_errors(value)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect::<Vec<_>>()
        .join("\n")
}

#[test]
fn every_example_line_of_a_key_is_valid_in_its_table() {
    for key in KEYS.iter().filter(|key| !key.example.is_empty()) {
        let mut schema = json_schema();
        // The line of a grant begins at its plugin.
        let table = if key.example.starts_with("grants.") { "plugins.NAME" } else { key.table };
        if !table.is_empty() {
            schema["$ref"] = json!(format!("#/$defs/{}", table.replace("[]", "")));
            schema.as_object_mut().unwrap().retain(|name, _| name.starts_with('$'));
        }
        let validator = jsonschema::draft202012::new(&schema).unwrap();
        let line: Value = toml::from_str(key.example).unwrap();
        assert!(validator.is_valid(&line), "{key:?}");
        let misspelt: Value = toml::from_str(&key.example.replacen(key.name, "zzz", 1)).unwrap();
        assert!(!validator.is_valid(&misspelt), "{key:?}");
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the configs of the repository are what is tested")]
fn every_example_config_is_valid() {
    let mut seen = 0;
    for folder in ["../../docs/examples", "../../tests/data"] {
        for file in std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(folder))
            .unwrap()
            .flatten()
            .map(|entry| entry.path())
        {
            if file.extension().is_some_and(|ending| ending == "toml") {
                let value: Value =
                    toml::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
                assert!(SCHEMA.is_valid(&value), "{}: {}", file.display(), complaints(&value));
                seen += 1;
            }
        }
    }
    assert!(seen >= 3, "{seen}");
}

/// A config with only this key in its table. The parser continues past the missing keys.
fn config_with(key: &ConfigKey, value: &str) -> String {
    let name = key.table.replace("NAME", "some");
    let header = match name.strip_suffix("[]") {
        Some(list) => format!("[[{list}]]\n"),
        None if name.is_empty() => String::new(),
        None => format!("[{name}]\n"),
    };
    // The keys of a model depend on its kind.
    let kind = match (key.table, key.name) {
        ("models.NAME", "kind") => "",
        ("models.NAME", "replies") => "kind = \"scripted\"\n",
        ("models.NAME", _) => "kind = \"openai\"\n",
        ("plugins.NAME.source.mcp", "key") => "url = \"http://127.0.0.1:1/mcp\"\n",
        ("plugins.NAME.source.mcp", "command" | "url") => "",
        ("plugins.NAME.source.mcp", _) => "command = [\"x\"]\n",
        ("plugins.NAME.source.mcp.key", _) => {
            return format!(
                "[plugins.some.source.mcp]\nurl = \"http://127.0.0.1:1/mcp\"\n{header}{} = {value}\n",
                key.name
            );
        }
        ("channels.NAME", "kind" | "access" | "visibility" | "muted" | "rate" | "simulate") => "",
        ("channels.NAME", "plugin" | "senders") => "kind = \"plugin\"\n",
        ("channels.NAME", _) => "kind = \"webhook\"\n",
        ("channels.NAME.secret", _) => {
            return format!(
                "[channels.some]\nkind = \"webhook\"\n{header}{} = {value}\n",
                key.name
            );
        }
        ("models.NAME.key", _) => {
            return format!("[models.some]\nkind = \"openai\"\n{header}{} = {value}\n", key.name);
        }
        _ => "",
    };
    format!("{header}{kind}{} = {value}\n", key.name)
}

/// Checks that the parser and the schema either both accept the value or both reject it.
fn same(key: &ConfigKey, value: &str) {
    let text = config_with(key, value);
    use ProblemCode::{InvalidValue, OutOfRange, Unavailable, WrongType};
    let is_about =
        |code: ProblemCode| [InvalidValue, OutOfRange, Unavailable, WrongType].contains(&code);
    let problems = Config::parse("conclave.toml", "", &text)
        .map_or_else(|problems| problems.0, |_| Vec::new());
    let problem = problems
        .iter()
        .find(|problem| problem.line == text.lines().count() && is_about(problem.code));
    let is_valid = SCHEMA.is_valid(&toml::from_str(&text).unwrap());
    assert_eq!(problem.is_none(), is_valid, "{text}{problem:?}");
}

#[test]
fn the_reader_and_the_schema_agree_about_every_form() {
    for key in KEYS.iter() {
        let values: Vec<String> = match key.shape {
            ValueShape::Choice(words) => words
                .iter()
                .copied()
                .chain(["zzz"])
                .map(|word| format!("{word:?}"))
                .chain(["5".to_owned()])
                .collect(),
            // TOML has no integers above 64 bits.
            ValueShape::Whole { least, most } => {
                [i128::from(least) - 1, least.into(), most.into(), i128::from(most) + 1]
                    .into_iter()
                    .filter(|number| *number <= i128::from(i64::MAX))
                    .map(|number| number.to_string())
                    .chain(["1.5".to_owned()])
                    .collect()
            }
            ValueShape::Size { .. } => {
                ["\"1 MiB\"", "\"64\"", "\"5 s\"", "64"].map(str::to_owned).to_vec()
            }
            ValueShape::Duration { .. } => {
                ["\"1 min\"", "\"5\"", "\"5 MiB\"", "5"].map(str::to_owned).to_vec()
            }
            ValueShape::Dollars => ["0", "0.5", "2", "-1", "\"1\""].map(str::to_owned).to_vec(),
            ValueShape::Spending => ["0", "0.5", "2", "-1", "\"1\""].map(str::to_owned).to_vec(),
            ValueShape::Factor => {
                ["1", "1.5", "1000", "0.9", "1001", "\"2\""].map(str::to_owned).to_vec()
            }
            ValueShape::Flag => ["true", "\"yes\""].map(str::to_owned).to_vec(),
            ValueShape::Text => ["5", "[]"].map(str::to_owned).to_vec(),
            ValueShape::List(_)
            | ValueShape::Either(_)
            | ValueShape::Table(_)
            | ValueShape::Named(_)
            | ValueShape::Texts
            | ValueShape::Free => vec!["5".to_owned()],
        };
        values.iter().for_each(|value| same(key, value));
    }
}

#[test]
fn a_value_of_another_form_is_refused() {
    let wrong = [
        "entry = 5",
        "[plugins.Desk]",
        "[plugins.a]\nlimits = { memory = \"64\" }",
        "[plugins.a]\nlimits = { memory = 64 }",
        "[plugins.a]\nlimits = { wall = \"2 MiB\" }",
        "[plugins.a]\nlimits = { handles = 0 }",
        "[plugins.a]\ngrants.tools = \"search.find\"",
        "[plugins.a]\ngrants.files = [{ dir = \"docs\", at = \"/docs\", mode = \"write\" }]",
        "[plugins.a]\ngrants.fetch = \"https://models.example/*\"",
        "[plugins.a]\ngrants.exec = \"/bin/ls\"",
        "[tasks.a]\nresponders = [\"nobody\"]",
        "[tasks.a]\ninteractive = \"yes\"",
        "[tasks.a]\non_no_tool_call = \"never\"",
        "[tasks._a]",
        "[tasks.a]\ntools = [5]",
        "[tasks.a]\ntools = [{ tool = \"a.b\", alias = \"c\" }]",
        "[tasks.a]\nreturns = \"list\"",
        "[tasks.a]\nloop_detection = { cycle_len = 1001 }",
        "[[policy]]\ndecide = \"maybe\"",
        "[limits.run]\nturns = 1.5",
    ];
    for text in wrong {
        assert!(!SCHEMA.is_valid(&toml::from_str(text).unwrap()), "{text}");
    }
}

/// A config with every table, and in each only the keys that are required.
const EVERY_TABLE: &str = r#"entry = "some"
[models.default]
kind = "openai"
url = "http://127.0.0.1:1/v1"
model = "m"
[models.default.key]
env = "K"
[secrets.token]
from = { env = "T" }
hosts = ["a.example"]
[plugins.chat]
source = "stock:chat"
[plugins.chat.limits]
[plugins.chat.grants]
[plugins.chat.grants.tools]
names = ["chat.*"]
[plugins.chat.grants.model]
names = ["default"]
[plugins.chat.grants.delegate]
tasks = ["some"]
[plugins.chat.grants.channels]
names = ["terminal"]
[plugins.chat.grants.fetch]
urls = ["https://a.example/*"]
[plugins.chat.grants.kv]
[[plugins.chat.grants.files]]
dir = "docs"
at = "/docs"
[plugins.served.source.mcp]
command = ["server"]
[tasks.some]
agent = "chat"
[tasks.some.background]
[tasks.some.budget]
[tasks.some.scope]
[tasks.some.confirm]
policy = "risky"
analyzer = "chat"
[tasks.some.condense]
plugin = "chat"
[tasks.some.stuck_detection]
[tasks.some.returns]
tool = "find"
[tasks.some.loop_detection]
[tasks.some.text_rules]
[tasks.some.on_no_tool_call]
tool = "find"
[[tasks.some.tools]]
tool = "delegate_task"
[channels.page]
kind = "web"
[channels.post]
kind = "webhook"
url = "https://hooks.example.org/"
secret = { env = "HOOK" }
[[gates]]
on = "inbound"
plugin = "chat"
[[policy]]
tool = "chat.find"
decide = "ask"
[limits.run]
"#;

/// Returns the header of a table in `EVERY_TABLE`; `None` for the top level, and for tables without
/// a header of their own.
fn header(table: &str) -> Option<String> {
    let name = match table {
        "models.NAME" => "[models.default]",
        "models.NAME.key" => "[models.default.key]",
        "secrets.NAME" => "[secrets.token]",
        "plugins.NAME.source.mcp" => "[plugins.served.source.mcp]",
        "plugins.NAME.grants.files[]" => "[[plugins.chat.grants.files]]",
        "tasks.NAME.tools[]" => "[[tasks.some.tools]]",
        "channels.NAME" => "[channels.page]",
        "gates[]" => "[[gates]]",
        "policy[]" => "[[policy]]",
        other => {
            let name = other.replace("plugins.NAME", "plugins.chat").replace("NAME", "some");
            return EVERY_TABLE.contains(&format!("\n[{name}]\n")).then(|| format!("[{name}]\n"));
        }
    };
    Some(format!("{name}\n"))
}

/// Returns all that a config says, without the positions of its keys.
fn meaning(text: &str) -> String {
    let config = Config::parse("c.toml", "", text).unwrap_or_else(|problems| panic!("{problems}"));
    let policy: Vec<_> = config.policy.iter().map(|rule| (&rule.only, &rule.expires_ms)).collect();
    format!(
        "{:#?}",
        (
            (config.models, config.secrets, config.plugins, config.tasks),
            (
                (config.channels, config.endpoints),
                config.gates,
                policy,
                config.limits,
                config.prices
            ),
            config.durability.unwrap_or_default()
        )
    )
}

#[test]
fn a_default_that_is_written_changes_nothing() {
    let usual = meaning(EVERY_TABLE);
    let mut written = 0;
    for key in KEYS.iter() {
        let Some(default) = key.default.written() else { continue };
        let line = format!("{} = {default}\n", key.name);
        // The keys of an endpoint are those of a kind that has one.
        let is_endpoints = ["attempts", "timeout", "deduplicates"].contains(&key.name);
        let header = match header(key.table) {
            Some(_) if key.table == "channels.NAME" && is_endpoints => {
                Some("[channels.post]\n".to_owned())
            }
            header => header,
        };
        let text = match header {
            Some(header) => EVERY_TABLE.replacen(&header, &format!("{header}{line}"), 1),
            None if key.table.is_empty() => format!("{line}{EVERY_TABLE}"),
            None => continue,
        };
        // A short form stands where `EVERY_TABLE` has the table.
        let table = format!("[{}.{}]\n", key.table.replace("NAME", "some"), key.name);
        let text = match text.split_once(&table) {
            Some((before, rest)) => {
                let after = rest.find("\n[").map_or("", |end| &rest[end + 1..]);
                let without = format!("{before}{after}");
                let bare = without.replacen(&line, "", 1);
                assert_eq!(meaning(&without), meaning(&bare), "{key:?}");
                written += 1;
                continue;
            }
            None => text,
        };
        assert_eq!(meaning(&text), usual, "{key:?}");
        written += 1;
    }
    assert!(written > 70, "{written} defaults were written");
}

#[test]
fn what_is_required_and_only_that_must_be_written() {
    for key in KEYS.iter().filter(|key| key.default == KeyDefault::Required) {
        let Some(header) = header(key.table) else { continue };
        let (before, rest) = EVERY_TABLE.split_once(&header).expect("the table is there");
        let line = rest.lines().find(|line| line.starts_with(&format!("{} = ", key.name)));
        let line = line.unwrap_or_else(|| panic!("{key:?} is not in its table"));
        let text = format!("{before}{header}{}", rest.replacen(&format!("{line}\n"), "", 1));
        let problems = Config::parse("c.toml", "", &text).expect_err(key.name);
        assert!(problems.codes().contains(&ProblemCode::MissingKey), "{key:?}: {problems}");
    }
}
