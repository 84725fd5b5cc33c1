//! The files of a new plugin, by kind: its code, its manifest, a config that uses it with replies
//! from a file, and cases for `conclave plugin test`. The templates have a folder for each kind.

use crate::args::{Language, NewKind};
use crate::state::sdk;

/// The text of a template for a kind.
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
            NewKind::Channel => include_str!(concat!($before, "channel", $after)),
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
            ("src/lib.rs", of_kind!(kind, "templates/", "/lib.rs.in")),
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
    let file = name.replace('-', "_");
    let component = match language {
        Language::Rust => format!("target/wasm32-wasip2/release/{file}.wasm"),
        Language::Python | Language::Js => format!("build/{name}.wasm"),
    };
    let type_name = type_name(name, kind);
    let fill = |text: &str| {
        text.replace("<NAME>", name)
            .replace("<FILE>", &file)
            .replace("<TYPE>", &type_name)
            .replace("<COMPONENT>", &component)
            .replace("<SDK>", sdk)
            .replace("<EXCLUDE>", exclude)
    };
    let texts = code(kind, language).into_iter().chain(shared(kind));
    let files = texts.map(|(path, text)| match path {
        // It is not a template, and may hold anything.
        "Cargo.lock" => (path.to_owned(), text.to_owned()),
        path => (path.to_owned(), fill(text)),
    });
    files.collect()
}

/// The path and the text of the files that are the same in all languages.
fn shared(kind: NewKind) -> [(&'static str, &'static str); 4] {
    [
        ("conclave-plugin.toml", of_kind!(kind, "templates/", "/conclave-plugin.toml.in")),
        ("conclave.toml", config(kind)),
        ("replies.json", of_kind!(kind, "templates/", "/replies.json.in")),
        ("cases.json", of_kind!(kind, "templates/", "/cases.json.in")),
    ]
}

fn config(kind: NewKind) -> &'static str {
    of_kind!(kind, "templates/", "/conclave.toml.in")
}

/// The command that plays the cases of a new plugin. Those of a channel may send requests, which a
/// person agrees to.
pub(super) fn test_command(kind: NewKind) -> &'static str {
    match kind {
        NewKind::Channel => "conclave plugin test --yes",
        _ => "conclave plugin test",
    }
}

/// A message that the new config answers: the one of the command in its second line.
pub(super) fn message(kind: NewKind) -> &'static str {
    let command = config(kind).lines().nth(1).unwrap_or_default();
    command.split('"').nth(1).unwrap_or_default()
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
        "Agent" | "Responder" | "Gate" | "Memory" | "Observer" | "Channel" | "Condenser"
        | "SecurityAnalyzer" | "DeliveryStrategy" | "Judge" | "SimulatedUser" => {
            format!("My{name}")
        }
        _ => name,
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
                    for placeholder in
                        ["<NAME>", "<FILE>", "<TYPE>", "<COMPONENT>", "<SDK>", "<EXCLUDE>"]
                    {
                        assert!(!text.contains(placeholder), "{path}: {placeholder}");
                    }
                }
            }
        }
    }

    #[test]
    fn every_config_begins_with_a_command_that_holds_its_message() {
        for kind in NewKind::value_variants() {
            let (message, config) = (message(*kind), config(*kind));
            let command = format!("#   conclave plugin build && conclave run \"{message}\"\n");
            assert!(!message.is_empty() && config.contains(&command), "{config}");
        }
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
            NewKind::Channel,
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
