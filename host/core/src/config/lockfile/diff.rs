//! The differences between a plugin's entry in the lock and its current state. Each has both texts,
//! so that a person can compare them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Serialize;
use serde_json::Value;

use super::Pinned;
use crate::config::{PublicKey, Trust};
use crate::permissions::manifest::CapabilityRequest;
use crate::setup::PluginFacts;
use crate::types::oci::OciReference;
use crate::types::text::cut_chars;
use crate::types::tool::ToolSpec;
use crate::types::wording::{code, plain};

/// The part of a plugin that differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PluginPart {
    /// The keys that signed it.
    Signers,
    /// Its bytes, and nothing else that is pinned.
    Component,
    /// The artifact of a registry that it came from.
    Artifact,
    /// The name in its manifest, which decides on its stores.
    Name,
    /// Its description of itself.
    About,
    Version,
    Contract,
    /// Its kinds.
    Kinds,
    /// It requests more.
    AsksMore,
    /// It requests less.
    AsksLess,
    /// The reason of a request.
    Reason,
    /// A tool was added or removed.
    Tool,
    Description,
    InputSchema,
    OutputSchema,
    Examples,
    /// Other properties of a tool: whether it may be repeated, its title, the limits of its
    /// results.
    Manner,
}

/// One difference.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LockChange {
    pub part: PluginPart,
    /// The capability or tool concerned; empty for the plugin as a whole.
    pub of: String,
    /// The pinned text; `None` if it was absent.
    pub before: Option<String>,
    /// The current text; `None` if it is absent.
    pub now: Option<String>,
}

impl LockChange {
    /// Whether all texts for people and models are equal: its author only rebuilt it.
    #[must_use]
    pub fn is_harmless(&self) -> bool {
        // A tool server in place of a component has no digest, and no sandbox either.
        let both = || {
            [&self.before, &self.now]
                .into_iter()
                .all(|digest| digest.as_ref().is_some_and(|digest| !digest.is_empty()))
        };
        match self.part {
            PluginPart::Component => both(),
            // The component has a digest of its own.
            part => matches!(part, PluginPart::Version | PluginPart::Artifact),
        }
    }
}

/// Whether every difference is at most a new build.
#[must_use]
pub fn is_harmless(changes: &[LockChange]) -> bool {
    changes.iter().all(LockChange::is_harmless)
}

/// Every difference, capabilities first, then tools in order of name; the digest comes last.
#[must_use]
pub fn diff(pinned: &Pinned, facts: &PluginFacts) -> Vec<LockChange> {
    let now = Pinned::of(facts);
    let mut changes = Vec::new();
    let mut compare = |part: PluginPart, before: String, now: String| {
        changes.extend(changed(part, "", before, now))
    };
    compare(PluginPart::Name, pinned.name.clone(), now.name.clone());
    compare(PluginPart::About, pinned.description.clone(), now.description.clone());
    compare(PluginPart::Contract, pinned.contract.clone(), now.contract.clone());
    compare(PluginPart::Kinds, kinds(pinned), kinds(&now));
    asks(&pinned.asks, &now.asks, &mut changes);
    diff_tools(&pinned.tools, &now.tools, &mut changes);
    changes.extend(changed(PluginPart::Version, "", pinned.version.clone(), now.version));
    let artifact = |pinned: &Option<OciReference>| {
        pinned.as_ref().map(ToString::to_string).unwrap_or_default()
    };
    let (before, after) = (artifact(&pinned.artifact), artifact(&now.artifact));
    changes.extend(changed(PluginPart::Artifact, "", before, after));
    changes.extend(changed(PluginPart::Component, "", pinned.sha256.clone(), now.sha256));
    changes
}

/// The difference of the keys that signed a plugin; `None` if they are the same.
#[must_use]
pub fn signer_change(
    before: &BTreeSet<PublicKey>,
    now: &BTreeSet<PublicKey>,
    trust: &Trust,
) -> Option<LockChange> {
    let key_lines = |keys: &BTreeSet<PublicKey>| {
        keys.iter().map(|key| trust.describe_key(key)).collect::<Vec<_>>().join("\n")
    };
    (before != now).then(|| LockChange {
        part: PluginPart::Signers,
        of: String::new(),
        before: (!before.is_empty()).then(|| key_lines(before)),
        now: (!now.is_empty()).then(|| key_lines(now)),
    })
}

fn changed(part: PluginPart, of: &str, before: String, now: String) -> Option<LockChange> {
    (before != now).then(|| LockChange {
        part,
        of: of.to_owned(),
        before: Some(before),
        now: Some(now),
    })
}

fn kinds(pinned: &Pinned) -> String {
    pinned.kinds.iter().map(|kind| kind.as_str()).collect::<Vec<_>>().join(", ")
}

fn asks(
    before: &BTreeMap<String, CapabilityRequest>,
    now: &BTreeMap<String, CapabilityRequest>,
    changes: &mut Vec<LockChange>,
) {
    for (name, old) in before {
        let Some(new) = now.get(name) else {
            changes.push(LockChange {
                part: PluginPart::AsksLess,
                of: name.clone(),
                before: Some(shown_ask(old)),
                now: None,
            });
            continue;
        };
        if (old.optional, &old.detail) != (new.optional, &new.detail) {
            let part =
                if is_narrower(old, new) { PluginPart::AsksLess } else { PluginPart::AsksMore };
            changes.push(LockChange {
                part,
                of: name.clone(),
                before: Some(shown_ask(old)),
                now: Some(shown_ask(new)),
            });
        }
        changes.extend(changed(PluginPart::Reason, name, old.why.clone(), new.why.clone()));
    }
    for (name, new) in now.iter().filter(|(name, _)| !before.contains_key(*name)) {
        changes.push(LockChange {
            part: PluginPart::AsksMore,
            of: name.clone(),
            before: None,
            now: Some(shown_ask(new)),
        });
        changes.extend(changed(PluginPart::Reason, name, String::new(), new.why.clone()));
    }
}

/// `required {"urls":["https://…"]}`.
fn shown_ask(ask: &CapabilityRequest) -> String {
    let need = if ask.optional { "optional" } else { "required" };
    if ask.detail.is_empty() { need.to_owned() } else { format!("{need} {}", json_of(&ask.detail)) }
}

fn json_of(detail: &BTreeMap<String, Value>) -> String {
    serde_json::to_string(detail).unwrap_or_default()
}

/// Whether the request has the same details, or shorter lists of them; details that cannot be
/// compared count as more.
fn is_narrower(before: &CapabilityRequest, now: &CapabilityRequest) -> bool {
    let is_less = |before: &Value, now: &Value| match (before.as_array(), now.as_array()) {
        // An empty list may mean that there is no limit.
        (Some(before), Some(now)) => {
            !now.is_empty() && now.iter().all(|item| before.contains(item))
        }
        _ => before == now,
    };
    let same_keys = before.detail.keys().eq(now.detail.keys());
    let all_less = before
        .detail
        .iter()
        .all(|(key, value)| now.detail.get(key).is_some_and(|now| is_less(value, now)));
    (now.optional || !before.optional) && same_keys && all_less
}

fn diff_tools(
    before: &BTreeMap<String, ToolSpec>,
    now: &BTreeMap<String, ToolSpec>,
    changes: &mut Vec<LockChange>,
) {
    for (name, old) in before {
        match now.get(name) {
            Some(new) => diff_tool(name, old, new, changes),
            None => changes.push(LockChange {
                part: PluginPart::Tool,
                of: name.clone(),
                before: Some(old.description.clone()),
                now: None,
            }),
        }
    }
    for (name, new) in now.iter().filter(|(name, _)| !before.contains_key(*name)) {
        changes.push(LockChange {
            part: PluginPart::Tool,
            of: name.clone(),
            before: None,
            now: Some(new.description.clone()),
        });
        changes.push(LockChange {
            part: PluginPart::InputSchema,
            of: name.clone(),
            before: None,
            now: Some(pretty(&new.input_schema)),
        });
    }
}

/// Adds the differences of a tool. Destructured without `..`, so that a new field does not compile
/// before it is compared here.
fn diff_tool(name: &str, old: &ToolSpec, new: &ToolSpec, changes: &mut Vec<LockChange>) {
    let ToolSpec {
        name: _,
        description,
        input_schema,
        output_schema,
        idempotent: _,
        title: _,
        result_tokens: _,
        retained_tokens: _,
        examples,
    } = old;
    changes.extend(changed(
        PluginPart::Description,
        name,
        description.clone(),
        new.description.clone(),
    ));
    if *input_schema != new.input_schema {
        changes.extend(forced(
            PluginPart::InputSchema,
            name,
            pretty(input_schema),
            pretty(&new.input_schema),
        ));
    }
    if *output_schema != new.output_schema {
        let (before, now) =
            (output_schema.as_ref().map(pretty), new.output_schema.as_ref().map(pretty));
        changes.push(LockChange {
            part: PluginPart::OutputSchema,
            of: name.to_owned(),
            before,
            now,
        });
    }
    if *examples != new.examples {
        changes.extend(forced(PluginPart::Examples, name, pretty(examples), pretty(&new.examples)));
    }
    changes.extend(changed(PluginPart::Manner, name, manner(old), manner(new)));
}

/// A difference of values, even if their texts are equal.
fn forced(part: PluginPart, of: &str, before: String, now: String) -> Option<LockChange> {
    Some(LockChange { part, of: of.to_owned(), before: Some(before), now: Some(now) })
}

/// Returns JSON on several lines, for a comparison line by line.
fn pretty(value: &impl Serialize) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default()
}

fn manner(tool: &ToolSpec) -> String {
    let title = tool.title.as_ref().map(|title| format!("called {title:?}"));
    let bound =
        |what: &str, tokens: Option<u64>| tokens.map(|tokens| format!("{what} {tokens} tokens"));
    let parts = [
        Some(if tool.idempotent { "may be repeated" } else { "may not be repeated" }.to_owned()),
        title,
        bound("results of", tool.result_tokens),
        bound("of which stay", tool.retained_tokens),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

impl fmt::Display for LockChange {
    /// Writes one line without deceptive characters; long texts are cut to their first difference.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = code(&self.of);
        let (before, now) = excerpts(
            self.before.as_deref().unwrap_or_default(),
            self.now.as_deref().unwrap_or_default(),
        );
        match (self.part, self.before.is_some(), self.now.is_some()) {
            (PluginPart::Signers, true, false) => {
                write!(out, "it is no longer signed by {before}")
            }
            (PluginPart::Signers, false, _) => write!(out, "it is signed by {now} now"),
            (PluginPart::Signers, ..) => {
                write!(out, "other keys signed it: {before} → {now}")
            }
            // A tool server has no component, so its digest is empty.
            (PluginPart::Component, ..) if self.now.as_deref() == Some("") => {
                write!(out, "it was a component in the sandbox, and is none now")
            }
            (PluginPart::Component, ..) if self.before.as_deref() == Some("") => {
                write!(out, "it was no component, and is one now: sha256 {now}")
            }
            (PluginPart::Component, ..) => {
                write!(out, "its component is another one: sha256 {before} → {now}")
            }
            (PluginPart::Artifact, ..) => {
                write!(out, "it comes from another artifact: {before} → {now}")
            }
            (PluginPart::Name, ..) => write!(
                out,
                "its manifest calls it by another name, on which its stores hang: {before} → {now}"
            ),
            (PluginPart::About, ..) => {
                write!(out, "it says something else of itself: {before} → {now}")
            }
            (PluginPart::Version, ..) => write!(out, "its version: {before} → {now}"),
            (PluginPart::Contract, ..) => write!(out, "its contract: {before} → {now}"),
            (PluginPart::Kinds, ..) => write!(out, "it serves as {now}, not {before}"),
            (PluginPart::AsksMore, false, _) => write!(out, "it asks for {of} now: {now}"),
            (PluginPart::AsksMore, ..) => write!(out, "it asks for more of {of}: {before} → {now}"),
            (PluginPart::AsksLess, _, false) => write!(out, "it no longer asks for {of}"),
            (PluginPart::AsksLess, ..) => write!(out, "it asks for less of {of}: {before} → {now}"),
            (PluginPart::Reason, ..) => {
                write!(out, "it gives another reason for {of}: {before} → {now}")
            }
            (PluginPart::Tool, false, _) => write!(out, "its tool {of} is new: {now}"),
            (PluginPart::Tool, ..) => write!(out, "its tool {of} is gone"),
            (PluginPart::Description, ..) => {
                write!(out, "its tool {of} has another description: {before} → {now}")
            }
            (PluginPart::InputSchema, ..) => {
                write!(out, "its tool {of} takes other arguments: {before} → {now}")
            }
            (PluginPart::OutputSchema, ..) => {
                write!(out, "its tool {of} promises other results: {before} → {now}")
            }
            (PluginPart::Examples, ..) => {
                write!(out, "its tool {of} has other examples: {before} → {now}")
            }
            (PluginPart::Manner, ..) => write!(out, "its tool {of}: {before} → {now}"),
        }
    }
}

/// The number of characters shown before the first difference, and of each text in all.
const BEFORE: usize = 20;
const SHOWN: usize = 80;

fn excerpts(before: &str, now: &str) -> (String, String) {
    let same = before.chars().zip(now.chars()).take_while(|(a, b)| a == b).count();
    let skipped = same.saturating_sub(BEFORE);
    (excerpt(before, skipped), excerpt(now, skipped))
}

fn excerpt(text: &str, skipped: usize) -> String {
    let before = if skipped > 0 { "…" } else { "" };
    let rest: String = text.chars().skip(skipped).collect();
    let printable = |c| if c == '\n' { ' ' } else { plain(c) };
    let quote: String = cut_chars(&rest, SHOWN).chars().map(printable).collect();
    format!("“{before}{quote}”")
}
