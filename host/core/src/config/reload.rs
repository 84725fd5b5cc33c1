//! The decision whether a rebuilt component may replace the admitted one during a run. The operator
//! and the model rely on what they saw: tools, schemas and settings must be equal, and requests not
//! larger.

use crate::setup::PluginFacts;

/// Compares the admitted component with the rebuilt one.
///
/// # Errors
/// The difference, in words for the author; only a new start can admit it.
pub fn may_replace(admitted: &PluginFacts, rebuilt: &PluginFacts) -> Result<(), String> {
    if admitted.kinds != rebuilt.kinds {
        return Err("it exports other interfaces now".to_owned());
    }
    let (before, now) = (&admitted.manifest, &rebuilt.manifest);
    for (capability, ask) in &now.asks {
        match before.asks.get(capability) {
            None => return Err(format!("it asks for `{capability}` now")),
            Some(previous)
                if previous.detail != ask.detail || (previous.optional && !ask.optional) =>
            {
                return Err(format!("it asks for `{capability}` in another way now"));
            }
            Some(_) => {}
        }
    }
    if before.config != now.config {
        return Err("it declares other settings now".to_owned());
    }
    for tool in &rebuilt.tools {
        match admitted.tools.iter().find(|known| known.name == tool.name) {
            None => return Err(format!("its tool `{}` is new", tool.name)),
            Some(known) if known.input_schema != tool.input_schema => {
                return Err(format!("its tool `{}` takes other arguments now", tool.name));
            }
            Some(known) if known.idempotent != tool.idempotent => {
                return Err(format!(
                    "its tool `{}` says something else now about being repeated",
                    tool.name
                ));
            }
            Some(_) => {}
        }
    }
    match admitted
        .tools
        .iter()
        .find(|known| rebuilt.tools.iter().all(|tool| tool.name != known.name))
    {
        Some(missing) => Err(format!("its tool `{}` is gone", missing.name)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use serde_json::json;

    use super::*;
    use crate::permissions::manifest::{CapabilityRequest, Manifest};
    use crate::setup::Provenance;
    use crate::types::plugin_kind::PluginKind;
    use crate::types::tool::ToolSpec;

    fn facts() -> PluginFacts {
        let ask = CapabilityRequest {
            why: "Reads notes.".to_owned(),
            optional: false,
            detail: BTreeMap::new(),
        };
        let tool = ToolSpec {
            name: "save".to_owned(),
            description: "Saves.".to_owned(),
            input_schema: json!({ "type": "object" }),
            ..ToolSpec::default()
        };
        PluginFacts {
            manifest: Manifest {
                name: "notes".to_owned(),
                asks: BTreeMap::from([("files".to_owned(), ask)]),
                ..Manifest::default()
            },
            kinds: BTreeSet::from([PluginKind::Tools]),
            tools: vec![tool],
            sha256: "00".repeat(32),
            mcp: false,
            server: String::new(),
            confinement: None,
            provenance: Provenance::default(),
        }
    }

    #[test]
    fn what_was_shown_must_stay_true() {
        type Change = fn(&mut PluginFacts);
        let changes: [(Change, Option<&str>); 9] = [
            (|now| now.sha256 = "11".repeat(32), None),
            (|now| now.tools[0].description = "Saves a note.".to_owned(), None),
            (|now| now.manifest.asks.clear(), None),
            (
                |now| now.tools[0].input_schema = json!({ "type": "object", "required": ["a"] }),
                Some("its tool `save` takes other arguments now"),
            ),
            (|now| now.tools[0].name = "store".to_owned(), Some("its tool `store` is new")),
            (|now| now.tools.clear(), Some("its tool `save` is gone")),
            (|now| now.kinds.extend([PluginKind::Agent]), Some("it exports other interfaces now")),
            (
                |now| {
                    now.manifest
                        .asks
                        .extend([("model".to_owned(), facts().manifest.asks["files"].clone())])
                },
                Some("it asks for `model` now"),
            ),
            (
                |now| {
                    drop(
                        now.manifest.config.insert("units".to_owned(), json!({ "type": "string" })),
                    )
                },
                Some("it declares other settings now"),
            ),
        ];
        for (change, expected) in changes {
            let mut now = facts();
            change(&mut now);
            assert_eq!(may_replace(&facts(), &now).err().as_deref(), expected);
        }
    }
}
