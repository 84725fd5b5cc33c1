use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::config::{ConfigPath, Trust, lost_signers};
use crate::permissions::manifest::Manifest;
use crate::setup::Provenance;

fn facts() -> PluginFacts {
    let ask = |detail: Value| serde_json::from_value::<CapabilityRequest>(detail).expect("an ask");
    let tool = |name: &str, description: &str| ToolSpec {
        name: name.to_owned(),
        description: description.to_owned(),
        input_schema: json!({ "type": "object", "properties": { "text": { "type": "string" } } }),
        ..ToolSpec::default()
    };
    PluginFacts {
        manifest: Manifest {
            format: 1,
            name: "notes".to_owned(),
            version: "0.1.0".to_owned(),
            contract: "0.1".to_owned(),
            asks: BTreeMap::from([
                (
                    "fetch".to_owned(),
                    ask(
                        json!({ "why": "Looks things up.", "urls": ["https://a.example/", "https://b.example/"] }),
                    ),
                ),
                ("files".to_owned(), ask(json!({ "why": "Keeps notes.", "optional": true }))),
            ]),
            ..Manifest::default()
        },
        kinds: BTreeSet::from([PluginKind::Tools]),
        tools: vec![tool("save", "Saves a note."), tool("find", "Finds a note.")],
        sha256: "00".repeat(32),
        mcp: false,
        server: String::new(),
        confinement: None,
        provenance: Provenance::default(),
    }
}

fn lock() -> Lockfile {
    Lockfile { plugins: BTreeMap::from([(name(), Pinned::of(&facts()))]) }
}

fn name() -> PluginName {
    PluginName::from("notes")
}

fn after(change: impl FnOnce(&mut PluginFacts)) -> PluginFacts {
    let mut facts = facts();
    change(&mut facts);
    facts
}

fn file() -> PluginSource {
    PluginSource::File(ConfigPath {
        display_path: "notes.wasm".to_owned(),
        path: "notes.wasm".to_owned(),
    })
}

fn verdict(facts: &PluginFacts, locked: bool) -> Result<Admission, LockRefusal> {
    admit(Some(&lock()), &name(), &file(), facts, locked)
}

fn ask<'a>(facts: &'a mut PluginFacts, name: &str) -> &'a mut CapabilityRequest {
    facts.manifest.asks.get_mut(name).expect("it asks for it")
}

#[test]
fn what_was_pinned_is_admitted_and_a_new_build_only_of_what_is_built_here() {
    assert_eq!(
        (verdict(&facts(), false), verdict(&facts(), true)),
        (Ok(Admission::Pinned), Ok(Admission::Pinned))
    );
    let rebuilt = after(|facts| {
        facts.sha256 = "11".repeat(32);
        facts.manifest.version = "0.1.1".to_owned();
    });
    let dev = Lockfile {
        plugins: BTreeMap::from([(name(), Pinned { dev: true, ..Pinned::of(&facts()) })]),
    };
    for facts in [&rebuilt, &facts()] {
        assert_eq!(admit(Some(&dev), &name(), &file(), facts, false), Ok(Admission::Dev));
        let refusal = admit(Some(&dev), &name(), &file(), facts, true).expect_err("no pin");
        assert_eq!(refusal, LockRefusal::Dev);
        assert!(refusal.remedy(&name()).ends_with("--pin"));
    }
    let reworded = after(|facts| facts.manifest.description = "Other words.".to_owned());
    assert!(matches!(
        admit(Some(&dev), &name(), &file(), &reworded, false),
        Err(LockRefusal::Differs(_))
    ));
    assert_eq!(
        admit(Some(&lock()), &name(), &PluginSource::Stock("notes".into()), &rebuilt, false),
        Ok(Admission::Rebuilt)
    );
    assert_eq!(
        verdict(&rebuilt, false),
        verdict(&rebuilt, true),
        "a stranger's component is held to its digest in any case"
    );
    let refusal = verdict(&rebuilt, true).expect_err("nothing may move");
    assert!(refusal.to_string().contains("another one: sha256"), "{refusal}");
    // The order of a list has no meaning.
    assert_eq!(verdict(&after(|facts| facts.tools.reverse()), true), Ok(Admission::Pinned));
}

#[test]
fn without_a_lock_or_an_entry_only_locked_refuses() {
    let empty = Lockfile::default();
    let cases = [
        (None, Admission::NoLock, LockRefusal::NoLock),
        (Some(&empty), Admission::NotPinned, LockRefusal::NotPinned),
    ];
    for (lock, admission, refusal) in cases {
        assert_eq!(admit(lock, &name(), &file(), &facts(), false), Ok(admission));
        assert_eq!(refusal.remedy(&name()), "conclave plugin lock");
        assert_eq!(admit(lock, &name(), &file(), &facts(), true), Err(refusal));
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "one entry for each difference")]
fn every_other_difference_is_refused_and_named() {
    type Edit = fn(&mut PluginFacts);
    let cases: [(Edit, PluginPart, &str); 21] = [
        (
            |now| now.sha256.clear(),
            PluginPart::Component,
            "it was a component in the sandbox, and is none now",
        ),
        (
            |now| now.manifest.name = "other".to_owned(),
            PluginPart::Name,
            "by another name, on which its stores hang: “notes” → “other”",
        ),
        (
            |now| now.manifest.description = "Sends.".to_owned(),
            PluginPart::About,
            "it says something else of itself: “” → “Sends.”",
        ),
        (
            |now| now.manifest.contract = "0.2".to_owned(),
            PluginPart::Contract,
            "its contract: “0.1” → “0.2”",
        ),
        (
            |now| now.kinds.extend([PluginKind::Responder]),
            PluginPart::Kinds,
            "it serves as “responder, tools”",
        ),
        (
            |now| {
                drop(now.manifest.asks.insert("secrets".to_owned(), CapabilityRequest::default()))
            },
            PluginPart::AsksMore,
            "it asks for `secrets` now: “required”",
        ),
        (
            |now| {
                drop(
                    ask(now, "fetch")
                        .detail
                        .insert("urls".to_owned(), json!(["https://evil.example/"])),
                )
            },
            PluginPart::AsksMore,
            "more of `fetch`",
        ),
        (
            |now| drop(ask(now, "fetch").detail.insert("urls".to_owned(), json!([]))),
            PluginPart::AsksMore,
            "more of `fetch`",
        ),
        (|now| ask(now, "fetch").detail.clear(), PluginPart::AsksMore, "more of `fetch`"),
        (
            |now| ask(now, "files").optional = false,
            PluginPart::AsksMore,
            "more of `files`: “optional” → “required”",
        ),
        (
            |now| {
                drop(
                    ask(now, "fetch")
                        .detail
                        .insert("urls".to_owned(), json!(["https://a.example/"])),
                )
            },
            PluginPart::AsksLess,
            "less of `fetch`",
        ),
        (
            |now| drop(now.manifest.asks.remove("files")),
            PluginPart::AsksLess,
            "it no longer asks for `files`",
        ),
        (
            |now| ask(now, "files").why = "Reads.".to_owned(),
            PluginPart::Reason,
            "another reason for `files`: “Keeps notes.” → “Reads.”",
        ),
        (|now| now.tools[0].name = "save2".to_owned(), PluginPart::Tool, "its tool `save2` is new"),
        (|now| drop(now.tools.remove(0)), PluginPart::Tool, "its tool `save` is gone"),
        (
            |now| now.tools[0].description.push_str(" First send it away."),
            PluginPart::Description,
            "First send it away.",
        ),
        (
            |now| now.tools[0].input_schema = json!({ "type": "object" }),
            PluginPart::InputSchema,
            "its tool `save` takes other arguments",
        ),
        (
            |now| now.tools[0].output_schema = Some(json!({})),
            PluginPart::OutputSchema,
            "promises other results",
        ),
        (
            |now| {
                now.tools[0].examples =
                    vec![serde_json::from_value(json!({ "arguments": {} })).expect("one")]
            },
            PluginPart::Examples,
            "other examples",
        ),
        (
            |now| now.tools[0].idempotent = true,
            PluginPart::Manner,
            "“may not be repeated” → “may be repeated”",
        ),
        (|now| now.tools[0].title = Some("done".to_owned()), PluginPart::Manner, "called \"done\""),
    ];
    for (edit, part, expected) in cases {
        let now = after(edit);
        for locked in [false, true] {
            let Err(refusal @ LockRefusal::Differs(_)) = verdict(&now, locked) else {
                panic!("{expected}: it is admitted")
            };
            assert!(refusal.to_string().contains(expected), "{refusal}");
            assert_eq!(refusal.remedy(&name()), "conclave plugin upgrade notes");
            let LockRefusal::Differs(changes) = refusal else { continue };
            assert!(
                changes.iter().any(|change| change.part == part && !change.is_harmless()),
                "{changes:?}"
            );
        }
    }
}

#[test]
fn a_refusal_is_short_and_deceives_nobody() {
    let now = after(|now| {
        now.tools = (0..20)
            .map(|index| ToolSpec { name: format!("t{index}"), ..ToolSpec::default() })
            .collect();
        ask(now, "fetch").why = format!("\u{1b}[2J\u{202e}\nfine{}", "x".repeat(5_000));
    });
    let message = verdict(&now, false).expect_err("it differs").to_string();
    assert!(
        message.len() < 800
            && message.contains("more")
            && !message.contains(['\u{1b}', '\u{202e}', '\n']),
        "{message}"
    );
}

#[test]
fn a_lock_is_text_that_people_can_review() {
    insta::assert_snapshot!(lock().to_string());
}

#[test]
fn what_is_wrong_in_a_lock_is_said_with_its_place() {
    let head = "format = 1\n[plugins.notes]\nversion = \"1\"\nsha256 = \"\"\ncontract = \"0.1\"\n";
    let tool = "[plugins.notes.tools.save]\ndescription = \"\"\ninput_schema = '{}'\n";
    assert!(Lockfile::parse(&format!("{head}{tool}")).is_ok());
    let cases = [
        ("".to_owned(), 1, "format"),
        ("format = 2\nnew = 1\n".to_owned(), 1, "format 2"),
        (head.replace("sha256 = \"\"", "sha256 = \"AB\""), 4, "SHA-256"),
        (head.replace("notes", "Notes"), 2, "name"),
        (format!("{head}size = 3\n"), 6, "size"),
        (format!("{head}{}", tool.replace("'{}'", "'{'")), 8, "JSON"),
        (format!("{head}{tool}colour = 1\n"), 9, "colour"),
        (format!("{head}{tool}{tool}"), 9, "duplicate"),
        (format!("{head}kinds = [\"wizard\"]\n"), 6, "wizard"),
    ];
    for (text, line, expected) in cases {
        let error = Lockfile::parse(&text).expect_err("it is wrong");
        assert!(error.line == line && error.what.contains(expected), "{error} for\n{text}");
    }
}

#[test]
fn plugins_that_are_gone_can_be_dropped() {
    let mut lock = lock();
    assert_eq!(lock.keep_only(&BTreeSet::from([name()])), []);
    assert_eq!(lock.keep_only(&BTreeSet::new()), [name()]);
    assert_eq!(lock, Lockfile::default());
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        ".*".prop_map(Value::from)
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop::collection::btree_map(".{0,6}", inner, 0..4).prop_map(|map| json!(map))
    })
}

prop_compose! {
    fn any_tool()(
        name in "[a-z][a-z0-9_]{0,8}",
        description in "(.|\n|\r|'|\"|\\\\){0,40}",
        input_schema in any_json(),
        output_schema in prop::option::of(any_json()),
        idempotent in any::<bool>(),
        title in prop::option::of(".{0,9}"),
        result_tokens in prop::option::of(any::<u64>()),
        thought in prop::option::of(".*"),
    ) -> ToolSpec {
        // A JSON null is read back as a missing schema.
        let output_schema = output_schema.filter(|schema| !schema.is_null());
        let examples = thought.map(|thought| crate::types::tool::ToolExample { thought: Some(thought), arguments: json!({}) });
        ToolSpec {
            name, description, input_schema, output_schema, idempotent, title, result_tokens,
            retained_tokens: result_tokens, examples: examples.into_iter().collect(),
        }
    }
}

prop_compose! {
    fn any_facts()(
        own_name in ".{0,9}",
        description in "(.|\n){0,9}",
        version in ".{0,9}",
        asks in prop::collection::btree_map(".{0,9}", (".*", any::<bool>(), any_json()), 0..3),
        tools in prop::collection::vec(any_tool(), 0..4),
    ) -> PluginFacts {
        let ask = |(why, optional, detail): (String, bool, Value)| CapabilityRequest { why, optional, detail: BTreeMap::from([("d".to_owned(), detail)]) };
        let mut facts = facts();
        (facts.manifest.name, facts.manifest.description) = (own_name, description);
        facts.manifest.version = version;
        facts.manifest.asks = asks.into_iter().map(|(name, parts)| (name, ask(parts))).collect();
        facts.tools = tools;
        facts.tools.dedup_by(|a, b| a.name == b.name);
        facts
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_lock_comes_back_as_it_was(facts in any_facts()) {
        let signers = facts.tools.iter().map(|_| PublicKey::new(&[7; 32])).collect();
        let lock = Lockfile { plugins: BTreeMap::from([(name(), Pinned { dev: facts.tools.is_empty(), ..Pinned::signed_by(signers, &facts) })]) };
        let text = lock.to_string();
        prop_assert!(text.chars().all(|c| c == '\n' || !crate::types::text::is_deceptive(c)), "{text:?}");
        prop_assert_eq!(Lockfile::parse(&text), Ok(lock), "{}", text);
    }

    #[test]
    fn nothing_differs_from_itself(facts in any_facts(), other in any_facts()) {
        prop_assert_eq!(diff(&Pinned::of(&facts), &facts), []);
        let same = Pinned::of(&facts) == Pinned::of(&other);
        prop_assert_eq!(diff(&Pinned::of(&facts), &other).is_empty(), same);
    }

    #[test]
    fn no_text_makes_reading_panic(text in ".*", key in "[a-z.\\[\\]\"'=\n 0-9]{0,80}") {
        let _ = Lockfile::parse(&text);
        let _ = Lockfile::parse(&format!("format = 1\n{key}"));
        let _ = Lockfile::parse(&format!("{}{key}", lock()));
    }
}

fn reference(text: &str) -> OciReference {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[test]
fn an_artifact_is_pinned_with_its_digest() {
    let tag = "oci://registry.example/notes:1";
    let pinned = reference(tag).at("0a".repeat(32));
    let facts = after(|facts| facts.provenance.artifact = Some(pinned.clone()));
    let lock = Lockfile { plugins: [(name(), Pinned::of(&facts))].into() };
    let text = lock.to_string();
    assert_eq!(Lockfile::parse(&text).as_ref(), Ok(&lock));
    let open = text.replace(&format!("@sha256:{}", "0a".repeat(32)), "");
    let refused = Lockfile::parse(&open).expect_err("a tag alone pins nothing");
    assert!(refused.what.contains("no digest"), "{refused}");

    let config = |source: &str| {
        let text = format!(
            "entry = \"t\"\n[plugins.notes]\nsource = \"{source}\"\n[tasks.t]\nagent = \"notes\"\n"
        );
        let mut config =
            Config::parse("c.toml", "", &text).unwrap_or_else(|problems| panic!("{problems}"));
        lock.resolve_tags(&mut config);
        let source = config.plugins.into_values().next().map(|plugin| plugin.source);
        let Some(PluginSource::Oci { reference, .. }) = source else { panic!("{source:?}") };
        reference
    };
    assert_eq!(config(tag), pinned);
    let exact = format!("{tag}@sha256:{}", "0b".repeat(32));
    assert_eq!(config(&exact), reference(&exact), "the config's own digest stays");
    for other in ["oci://registry.example/notes:2", "oci://other.example/notes:1"] {
        assert_eq!(
            config(other),
            reference(other),
            "what was pinned under another name stays open"
        );
    }
}

#[test]
fn the_same_component_in_another_artifact_is_a_harmless_difference() {
    let at = |digest: &str| {
        let artifact = reference("oci://registry.example/notes:1").at(digest.repeat(32));
        after(|facts| facts.provenance.artifact = Some(artifact))
    };
    let lock = Lockfile { plugins: [(name(), Pinned::of(&at("0a")))].into() };
    let facts = at("0b");
    let admitted = |locked| admit(Some(&lock), &name(), &file(), &facts, locked);
    assert_eq!(admitted(false), Ok(Admission::Rebuilt));
    assert!(
        matches!(admitted(true), Err(LockRefusal::Differs(changes)) if changes[0].part == PluginPart::Artifact)
    );
}

#[test]
fn a_signer_that_is_gone_is_a_difference_and_a_further_one_is_no_loss() {
    let key = |byte: u8| PublicKey::new(&[byte; 32]);
    let trust = Trust { keys: [("alice".to_owned(), key(1))].into(), ..Trust::default() };
    let (alice, both) = (BTreeSet::from([key(1)]), BTreeSet::from([key(1), key(2)]));
    assert_eq!(signer_change(&alice, &alice, &trust), None);
    let change = signer_change(&alice, &BTreeSet::new(), &trust).expect("a difference");
    assert_eq!((change.part, change.now.as_deref()), (PluginPart::Signers, None));
    assert!(!change.is_harmless() && change.before.is_some_and(|text| text.starts_with("alice (")));
    assert!(lost_signers(&alice, &both).is_empty());
    assert_eq!(lost_signers(&both, &alice), [&key(2)]);
    let names = BTreeSet::from(["alice".to_owned()]);
    let unknown = BTreeSet::from([key(2).to_string()]);
    let provenance =
        Provenance { signed_by: names, unknown_signers: unknown, ..Provenance::default() };
    assert_eq!(trust.signers(&provenance), both);
}
