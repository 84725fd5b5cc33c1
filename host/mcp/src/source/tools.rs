//! Conversion of a server's tools to plugin tools: names in our form and short descriptions. Other
//! statements of the server are dropped.

use std::collections::BTreeMap;

use rmcp::model::Tool;
use serde_json::{Map, Value};

use crate::text::{cut, shown};

/// Maximum bytes of a description; a longer one is truncated. Its contents are checked later, like
/// those of all plugins.
const DESCRIPTION: usize = 4 << 10;
/// Maximum tools of one server.
pub(super) const MOST: usize = 256;

/// An admitted tool.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Admitted {
    /// The name in Conclave.
    pub(super) name: String,
    /// The name at the server.
    pub(super) original: String,
    pub(super) description: String,
    pub(super) schema: Value,
}

/// Converts a server's tool list.
///
/// # Errors
/// If two tools would have the same name, or one would have none.
pub(super) fn admitted(tools: &[Tool]) -> Result<Vec<Admitted>, String> {
    let mut names: BTreeMap<String, &str> = BTreeMap::new();
    let mut admitted = Vec::with_capacity(tools.len());
    for tool in tools {
        let name = name_here(&tool.name);
        let original = shown(&tool.name, 80);
        if !name.bytes().any(|byte| byte.is_ascii_alphanumeric()) {
            return Err(format!("its tool {original:?} has no name that could be written here"));
        }
        if let Some(other) = names.insert(name.clone(), &tool.name) {
            return Err(format!(
                "its tools {:?} and {original:?} would both be called `{name}` here",
                shown(other, 80)
            ));
        }
        let description =
            cut(tool.description.as_deref().unwrap_or_default(), DESCRIPTION).to_owned();
        admitted.push(Admitted {
            name,
            original: tool.name.to_string(),
            description,
            schema: schema(&tool.input_schema),
        });
    }
    Ok(admitted)
}

/// Returns the name in snake case: `getSum` and `get-sum` become `get_sum`.
fn name_here(name: &str) -> String {
    let mut here = String::new();
    let mut was_lower = false;
    for c in name.chars() {
        if c.is_ascii_uppercase() && was_lower {
            here.push('_');
        }
        was_lower = c.is_ascii_lowercase() || c.is_ascii_digit();
        here.push(if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' });
    }
    here
}

/// Returns the schema without `$schema`. Tools only use what the dialects have in common, and a
/// dialect other than ours would be refused.
fn schema(schema: &Map<String, Value>) -> Value {
    let mut schema = schema.clone();
    schema.remove("$schema");
    schema.entry("type").or_insert_with(|| Value::String("object".to_owned()));
    Value::Object(schema)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_ours() {
        for (theirs, ours) in [
            ("get-sum", "get_sum"),
            ("getSum", "get_sum"),
            ("echo", "echo"),
            ("HTTP", "http"),
            ("a.b/c", "a_b_c"),
            ("é", "_"),
        ] {
            assert_eq!(name_here(theirs), ours);
        }
    }

    #[test]
    fn two_tools_of_one_name_are_refused() {
        let tool = |name: &'static str| Tool::new(name, "Does.", Map::new());
        assert!(
            admitted(&[tool("get-sum"), tool("getSum")])
                .unwrap_err()
                .contains("would both be called `get_sum`")
        );
        assert!(admitted(&[tool("\u{202e}é")]).is_err());
        assert_eq!(admitted(&[tool("a"), tool("b")]).unwrap().len(), 2);
    }
}
