//! `[channels.NAME]`: the capabilities of a channel, the allowed names, and the problems of invalid
//! ones.

use std::collections::BTreeMap;
use std::fmt::Write;

use conclave_core::config::ProblemCode::{
    Conflict, InvalidName, InvalidValue, MissingKey, OutOfRange, UnknownChannel, UnknownKey,
    UnknownRecipient, WrongType,
};
use conclave_core::types::channel::{Binding, ChannelAccess, ChannelKind, Visibility};
use conclave_core::types::ids::{ChannelId, PluginName};
use conclave_core::types::plugin_kind::PluginKind;

use crate::support::{Parts, assembled, by_name, good, plugin, refused};

fn with(channels: &str) -> String {
    Parts { end: channels, ..Parts::default() }.text()
}

fn channels(text: &str) -> BTreeMap<ChannelId, Binding> {
    good(&with(text)).channels
}

#[test]
fn the_terminal_is_there_without_being_written() {
    assert_eq!(channels(""), BTreeMap::from([("terminal".into(), Binding::of(ChannelKind::Text))]));
    let muted = channels("[channels.terminal]\nmuted = true");
    assert_eq!(
        muted,
        BTreeMap::from([(
            "terminal".into(),
            Binding { muted: true, ..Binding::of(ChannelKind::Text) }
        )])
    );
    assert_eq!(
        channels("[channels.terminal]\nkind = \"voice\"")[&ChannelId::from("terminal")].kind,
        ChannelKind::Voice
    );
}

#[test]
fn every_key_reaches_the_setup() {
    let text = with(
        "[channels.phone]\nkind = \"voice\"\naccess = \"write-only\"\nvisibility = [\"terminal\", \"desk\"]\nmuted = true\nrate = 5\n\
         simulate = \"40 ms\"\n[channels.page]\nkind = \"web\"\nvisibility = \"people\"\n[channels.bot]\nkind = \"agent\"",
    );
    let plugins =
        BTreeMap::from([(PluginName::from("chat"), plugin(&[PluginKind::Agent], &[], &[]))]);
    let setup = assembled(&text, &plugins).setup;
    let phone = Binding {
        access: ChannelAccess::WriteOnly,
        visibility: Visibility::Only(["terminal", "desk"].map(ChannelId::from).into()),
        muted: true,
        rate: Some(5),
        simulate_ms: Some(40),
        ..Binding::of(ChannelKind::Voice)
    };
    let page = Binding { visibility: Visibility::People, ..Binding::of(ChannelKind::Web) };
    let terminal = Binding::of(ChannelKind::Text);
    let expected = [
        ("bot", Binding::of(ChannelKind::Agent)),
        ("page", page),
        ("phone", phone),
        ("terminal", terminal),
    ];
    assert_eq!(
        *setup.channels,
        expected.map(|(name, binding)| (ChannelId::from(name), binding)).into()
    );
}

#[test]
fn a_strategy_may_be_granted_any_channel_of_the_config() {
    let text = Parts {
        plugin: "grants.channels = [\"phone\", \"terminal\"]",
        end: "[channels.phone]\nkind = \"voice\"",
        ..Parts::default()
    }
    .text();
    let plugins = by_name([("chat", plugin(&[PluginKind::Agent], &["channels?"], &[]))]);
    let assembly = assembled(&text, &plugins);
    let chat = PluginName::from("chat");
    let rights = assembly.setup.rights(&chat).expect("it is a plugin");
    assert!(rights.may_send("phone", |name| assembly.setup.channels.contains_key(name)).is_ok());
    assert!(rights.may_send("page", |name| assembly.setup.channels.contains_key(name)).is_err());
}

#[test]
fn invalid_channels_are_refused() {
    let web = |line: &str| format!("[channels.web]\nkind = \"web\"\n{line}");
    let cases = [
        ("[channels.web]".to_owned(), MissingKey),
        ("[channels.web]\nkind = \"wbe\"".to_owned(), InvalidValue),
        ("[channels.web]\nkind = 3".to_owned(), WrongType),
        (web("access = \"read_only\""), InvalidValue),
        (web("visibility = \"desk\""), InvalidValue),
        (web("visibility = \"desk, terminal\""), InvalidValue),
        (web("visibility = [\"dsk\"]"), UnknownRecipient),
        (web("visibility = []"), InvalidValue),
        (web("visibility = true"), WrongType),
        (web("muted = \"yes\""), WrongType),
        (web("rate = 0"), OutOfRange),
        (web("simulate = \"40 ms\""), Conflict),
        ("[channels.terminal]\nsimulate = \"40 ms\"".to_owned(), Conflict),
        ("[channels.web]\nkind = \"voice\"\nsimulate = \"2 h\"".to_owned(), OutOfRange),
        ("[channels.Web]\nkind = \"web\"".to_owned(), InvalidName),
        ("[channels.all]\nkind = \"web\"".to_owned(), InvalidName),
        (web("speed = 3"), UnknownKey),
        ("channels = 3".to_owned(), WrongType),
    ];
    let mut report = String::new();
    for (text, code) in cases {
        let problems = if text.starts_with('[') {
            refused(&with(&text))
        } else {
            refused(&Parts { top: &text, ..Parts::default() }.text())
        };
        assert_eq!(problems.codes(), [code], "{text}\n---\n{problems}");
        writeln!(report, "{problems}").unwrap();
    }
    insta::assert_snapshot!(report);
}

#[test]
fn all_mistakes_are_reported_at_once() {
    let text = "[channels.web]\nkind = \"wbe\"\naccess = \"rw\"\nrate = -1\n[channels.bot]\nmuted = 1\nsimulate = \"x\"";
    let problems = refused(&with(text));
    let expected =
        [InvalidValue, InvalidValue, OutOfRange, MissingKey, WrongType, Conflict, InvalidValue];
    assert_eq!(problems.codes(), expected, "{problems}");
}

#[test]
fn a_grant_for_an_absent_channel_is_refused() {
    let problems = refused(
        &Parts {
            plugin: "grants.channels = [\"phon\"]",
            end: "[channels.phone]\nkind = \"voice\"",
            ..Parts::default()
        }
        .text(),
    );
    assert_eq!(problems.codes(), [UnknownChannel], "{problems}");
    insta::assert_snapshot!(problems.to_string());
}

#[test]
fn the_channels_of_the_manual_are_right() {
    const PAGE: &str = include_str!("../../../../docs/use/background.md");
    let (_, block) = PAGE
        .split_once("## Rooms and channels\n")
        .and_then(|(_, section)| section.split_once("```toml\n"))
        .expect("the section shows a config");
    let (block, _) = block.split_once("```").expect("which has an end");
    let names: Vec<String> = channels(block).into_keys().map(|name| name.to_string()).collect();
    assert_eq!(names, ["notes", "pager", "phone", "terminal", "web"]);
}
