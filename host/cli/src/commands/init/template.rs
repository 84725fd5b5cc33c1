//! The text of a new config, with a comment on every line that a new user meets.

use conclave_core::config::schema;

use super::folder::{PAGE_FILE as PAGE, ProjectFolder};
use crate::program::error::CliError;
use crate::ui::show::one_line;

/// A model and its server, in the form of `--model`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Model {
    pub(super) url: String,
    pub(super) name: String,
}

impl Model {
    /// Parses `URL#NAME`.
    ///
    /// # Errors
    /// If one part is missing.
    pub(super) fn parse(text: &str) -> Result<Self, CliError> {
        match text.split_once('#') {
            Some((url, name)) if !url.is_empty() && !name.is_empty() => {
                Ok(Self { url: url.to_owned(), name: name.to_owned() })
            }
            _ => {
                let what = format!("--model {text} does not name a server and a model");
                Err(CliError::usage(what).hint(
                    "write both as --model URL#NAME, such as --model http://127.0.0.1:11434/v1#qwen3:8b",
                ))
            }
        }
    }
}

/// The name of the script's file, which lies beside the config of this name.
pub(super) fn script(file: &str) -> String {
    format!("{}-replies.json", file.strip_suffix(".toml").unwrap_or(file))
}

/// The config.
pub(super) fn text(file: &str, folder: &ProjectFolder, model: Option<&Model>) -> String {
    let (dir, at) = (quoted(&folder.written), quoted(&folder.at()));
    // A name in a comment must not begin a new line.
    let (name, folder_label) = (&one_line(file, 80), &one_line(&folder.written, 80));
    let (command, tools, models) = match model {
        None => {
            let command = format!("run {name} \"{}\"", folder.question());
            let script = fill(SCRIPT, &[("REPLIES", &format!("{:<29}", quoted(&script(file))))]);
            (command, r#"["search.find"]"#, script)
        }
        Some(model) => {
            let (url, model) = (quoted(&model.url), quoted(&model.name));
            let server = fill(SERVER, &[("URL", &url), ("MODEL", &model)]);
            (format!("chat {name}"), r#"["search.*"]   "#, server)
        }
    };
    let values = [
        ("COMMAND", command.as_str()),
        ("DIR", &dir),
        ("AT", &at),
        ("SHOWN", folder_label),
        ("TOOLS", tools),
        ("MODELS", &models),
    ];
    format!("#:schema ./{}\n", schema::FILE) + &fill(CHAT, &values)
}

/// The replies of the script that stands for a model.
pub(super) fn replies(folder: &ProjectFolder) -> String {
    fill(REPLIES_TEXT, &[("PAGE", &format!("{}/{PAGE}", folder.at()))])
}

fn fill(template: &str, values: &[(&str, &str)]) -> String {
    let mut text = String::new();
    let mut rest = template;
    // One pass from front to back, so that inserted text is not searched again.
    while let Some((before, (name, value), after)) = next(rest, values) {
        text.push_str(before);
        text.push_str(value);
        rest = &after[name.len() + 2..];
    }
    text + rest
}

fn next<'a>(
    rest: &'a str,
    values: &[(&'a str, &'a str)],
) -> Option<(&'a str, (&'a str, &'a str), &'a str)> {
    let found = values
        .iter()
        .filter_map(|(name, value)| Some((rest.find(&format!("<{name}>"))?, (*name, *value))));
    found.min_by_key(|(at, _)| *at).map(|(at, value)| (&rest[..at], value, &rest[at..]))
}

fn quoted(text: &str) -> String {
    conclave_core::types::wording::quoted(text)
}

/// A model that needs no server. `--model` of `run` and `chat` replaces it.
const SCRIPT: &str = r#"# -- models: this one is a script, to try the config without a server; `conclave init --model URL#NAME` writes a real one
[models.default]
kind = "scripted"
replies = <REPLIES> # what it answers, in order
"#;

const SERVER: &str = r#"# -- models: only the host talks to them, and only it reads the key
[models.default]
kind = "openai"                         # Chat Completions; `anthropic` is the Messages API
url = <URL>
model = <MODEL>
# key = { env = "MY_KEY" }              # the variable that holds the key; no plugin ever sees it
# input_price = 0.25                    # US dollars for a million tokens; with both prices costs are counted,
# output_price = 2.00                   # and `cost_usd` below holds
"#;

const CHAT: &str = r#"# A chat with a model that may look things up in <SHOWN>/.
#   conclave <COMMAND>
# Paths start at this file. A key that is not known is an error, and what is not granted is not allowed.
entry = "chat"                          # the task that gets the message

<MODELS>
# -- plugins: where each comes from, and what it may touch
[plugins.chat]                          # answers with the model
source = "stock:chat"                   # stock: is inside the program; ./x.wasm is a file
# No `limits = { wall = … }` is needed: waiting for a model has the model's own time-outs.
grants.model = ["default"]              # the models that it may ask
grants.tools = <TOOLS>          # the tools that the model may call

[plugins.search]                        # finds passages in text files
source = "stock:search"
grants.files = [{ dir = <DIR>, at = <AT>, mode = "read" }]  # the one folder; it sees it at `at`
limits = { memory = "64 MiB", cpu = "5 s", wall = "10 s" }  # what one call may use up

# -- tasks: who works, with what
[tasks.chat]
agent = "chat"
system = "You are a helpful assistant. Use the search tools when you are asked about the documents."

# -- hard stops
[limits.run]
wall = "10 min"                         # of one turn in a conversation
tokens = 200_000                        # of the whole conversation
# cost_usd = 0.50
"#;

/// The first reply searches; the rule answers with what the new page says, if that was found.
const REPLIES_TEXT: &str = r#"{
  "rules": [
    { "when": "<PAGE>", "reply": "A grant is what the operator lets a plugin do, and nobody else can grant anything (<PAGE>)." }
  ],
  "replies": [
    { "calls": [{ "name": "search.find", "args": { "query": "grant" } }] },
    "This is a script: it searched once, and says this to every question. `conclave init --model URL#NAME --force` writes a config with a model."
  ]
}
"#;

#[cfg(test)]
mod tests {
    use conclave_core::config::Config;

    use super::*;

    fn folder(written: &str) -> ProjectFolder {
        ProjectFolder { path: written.into(), written: written.to_owned(), is_new: false }
    }

    #[test]
    fn a_written_config_is_valid_without_warnings() {
        let model = Model::parse("http://127.0.0.1:11434/v1#qwen3:8b").unwrap();
        for written in ["library", ".", "a \"quoted\" <DIR>", "two\nlines", "/srv/docs"] {
            for model in [None, Some(&model)] {
                let text = text("conclave.toml", &folder(written), model);
                let config = Config::parse("conclave.toml", "", &text)
                    .unwrap_or_else(|problems| panic!("{problems}\n{text}"));
                assert!(config.warnings.is_empty(), "{}", config.warnings);
                assert_eq!(config.plugins["search"].grants.files[0].display_path, written);
            }
        }
    }

    #[test]
    fn a_script_lies_beside_its_config() {
        assert_eq!(script("conclave.toml"), "conclave-replies.json");
        let text = text("de\"sk", &folder("library"), None);
        assert!(text.contains(r#"replies = "de\"sk-replies.json" "#), "{text}");
    }

    #[test]
    fn the_replies_of_the_script_are_json_whatever_the_folder_is_called() {
        for written in ["library", ".", "a \"quoted\" <PAGE>", "two\nlines", "/srv/docs"] {
            let replies = replies(&folder(written));
            serde_json::from_str::<serde_json::Value>(&replies)
                .unwrap_or_else(|error| panic!("{error}\n{replies}"));
        }
    }

    #[test]
    fn a_model_has_a_server_and_a_name() {
        for wrong in ["http://127.0.0.1/v1", "#name", "http://127.0.0.1/v1#"] {
            assert!(Model::parse(wrong).is_err(), "{wrong}");
        }
    }
}
