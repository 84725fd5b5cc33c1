//! The doc comments of a component's functions, from the custom section `package-docs`, in which
//! WIT tools keep them. They are texts for the model, and of its author: nothing trusts them. A
//! section that cannot be read has no comments.

use std::collections::BTreeMap;

use serde_json::Value;
use wasmparser::{Parser, Payload};

use crate::support::escape::excerpt;

/// The custom section.
const SECTION: &str = "package-docs";
/// Bytes of all such sections of a component together.
const SECTIONS: usize = 256 << 10;
/// The versions of the section that are read; its first byte.
const VERSIONS: [u8; 2] = [0, 1];
/// Characters of one comment.
const COMMENT: usize = 2_000;

/// The comments of functions, by interface and function. The interface of a function of the
/// component itself is empty.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct FunctionDocs(BTreeMap<(String, String), String>);

impl FunctionDocs {
    /// Reads the comments of a component, which was checked before.
    pub(crate) fn read(bytes: &[u8]) -> Self {
        let (mut docs, mut remaining) = (Self::default(), SECTIONS);
        let mut modules: Vec<bool> = Vec::new();
        for payload in Parser::new(0).parse_all(bytes) {
            match payload {
                Ok(Payload::Version { encoding, .. }) => {
                    modules.push(encoding == wasmparser::Encoding::Module)
                }
                Ok(Payload::End(_)) => drop(modules.pop()),
                Ok(Payload::CustomSection(section)) if section.name() == SECTION => {
                    let is_in_module = modules.last().copied().unwrap_or(true);
                    let Some(rest) = remaining.checked_sub(section.data().len()) else { break };
                    remaining = rest;
                    if !is_in_module {
                        docs.add(section.data());
                    }
                }
                Ok(_) => {}
                Err(_) => break,
            }
        }
        docs
    }

    /// The comment of a function, if it has one.
    pub(crate) fn get(&self, interface: &str, function: &str) -> Option<&str> {
        // Of the name of an interface only the last part counts, because a section does not name
        // its package.
        let (_, name) = interface.rsplit_once('/').unwrap_or(("", interface));
        let name = name.split('@').next().unwrap_or(name);
        self.0.get(&(name.to_owned(), function.to_owned())).map(String::as_str)
    }

    fn add(&mut self, section: &[u8]) {
        let Some((version, json)) = section.split_first() else { return };
        let Ok(package) = serde_json::from_slice::<Value>(json) else { return };
        if !VERSIONS.contains(version) {
            return;
        }
        self.add_interfaces(&package["interfaces"]);
        for world in objects(&package["worlds"]).map(|(_, world)| world) {
            // Both keys hold exports; the first holds imports too, which no export is named like.
            for key in ["interfaces", "interface_exports"] {
                self.add_interfaces(&world[key]);
            }
            for key in ["funcs", "func_exports"] {
                self.add_functions("", &world[key]);
            }
        }
    }

    fn add_interfaces(&mut self, interfaces: &Value) {
        for (name, interface) in objects(interfaces) {
            self.add_functions(name, &interface["funcs"]);
        }
    }

    fn add_functions(&mut self, interface: &str, functions: &Value) {
        for (name, function) in objects(functions) {
            // In version 0 a comment is a text, in version 1 one of several keys.
            let comment = function.as_str().or_else(|| function["docs"].as_str());
            if let Some(comment) = comment.filter(|comment| !comment.trim().is_empty()) {
                let key = (interface.to_owned(), name.clone());
                self.0.entry(key).or_insert_with(|| plain_text(comment.trim()));
            }
        }
    }
}

/// A comment without characters that could deceive its reader; its lines stay.
fn plain_text(comment: &str) -> String {
    let short: String = comment.chars().take(COMMENT).collect();
    let cut = if short.len() < comment.len() { "…" } else { "" };
    let lines: Vec<String> = short.lines().map(|line| excerpt(line.trim_end(), COMMENT)).collect();
    lines.join("\n") + cut
}

fn objects(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use wasm_encoder::{Component, CustomSection};

    use super::*;

    fn component(sections: &[(u8, Value)]) -> Vec<u8> {
        let mut component = Component::new();
        for (version, json) in sections {
            let data = [&[*version], json.to_string().as_bytes()].concat();
            component.section(&CustomSection { name: SECTION.into(), data: data.into() });
        }
        component.finish()
    }

    #[test]
    fn comments_of_both_versions_are_found_by_interface_and_function() {
        let old = json!({ "interfaces": { "calc": { "funcs": { "add": "Adds two numbers." } } } });
        let new = json!({
            "worlds": { "app": {
                "func_exports": { "greet": { "docs": "Says hello." } },
                "interface_exports": { "time": { "funcs": { "now": { "docs": "  " } } } },
            } },
            "interfaces": { "text": { "funcs": { "upper": { "docs": "In capitals." } } } },
        });
        let docs = FunctionDocs::read(&component(&[(0, old), (1, new)]));
        assert_eq!(docs.get("acme:math/calc@1.0.0", "add"), Some("Adds two numbers."));
        assert_eq!(docs.get("acme:text/text", "upper"), Some("In capitals."));
        assert_eq!(docs.get("", "greet"), Some("Says hello."));
        assert_eq!(docs.get("time", "now"), None, "it says nothing");
        assert_eq!(docs.get("calc", "sub"), None);
    }

    #[test]
    fn a_section_that_is_no_such_table_has_no_comments() {
        let good = json!({ "interfaces": { "a": { "funcs": { "b": "c" } } } });
        for section in [(7, good), (1, json!([1])), (1, json!({ "interfaces": { "a": 3 } }))] {
            assert_eq!(FunctionDocs::read(&component(&[section])), FunctionDocs::default());
        }
        assert_eq!(FunctionDocs::read(b"no component"), FunctionDocs::default());
        let large = json!({ "docs": "x".repeat(SECTIONS) });
        assert_eq!(FunctionDocs::read(&component(&[(1, large)])), FunctionDocs::default());
    }

    #[test]
    fn a_long_comment_is_cut() {
        let long = json!({ "interfaces": { "a": { "funcs": { "b": "x".repeat(5 * COMMENT) } } } });
        let docs = FunctionDocs::read(&component(&[(0, long)]));
        assert!(docs.get("a", "b").is_some_and(|text| text.chars().count() <= COMMENT + 1));
    }
}
