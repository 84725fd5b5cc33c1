//! `[channels.NAME]`: the capabilities of a channel, the allowed names, and the problems of invalid
//! ones.

use std::collections::BTreeMap;

use conclave_core::setup::PluginKind;
use conclave_core::types::channel::{Binding, ChannelAccess, ChannelKind, Visibility};
use conclave_core::types::ids::{ChannelId, PluginName};

use crate::support::{Parts, assembled, bad, good, named, plugin};

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
         simulate = \"40 ms\"\n[channels.page]\nkind = \"web\"\nvisibility = \"transport\"\n[channels.bot]\nkind = \"agent\"",
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
    let page = Binding { visibility: Visibility::Transport, ..Binding::of(ChannelKind::Web) };
    let terminal = Binding::of(ChannelKind::Text);
    let expected = [
        ("bot", Binding::of(ChannelKind::Agent)),
        ("page", page),
        ("phone", phone),
        ("terminal", terminal),
    ];
    assert_eq!(
        setup.channels,
        expected.map(|(name, binding)| (ChannelId::from(name), binding)).into()
    );
}

#[test]
fn a_strategy_may_be_granted_any_channel_of_the_config() {
    let text = Parts {
        plugin: "grants.rooms = [\"phone\", \"terminal\"]",
        end: "[channels.phone]\nkind = \"voice\"",
        ..Parts::default()
    }
    .text();
    let plugins = named([("chat", plugin(&[PluginKind::Agent], &["rooms?"], &[]))]);
    let assembly = assembled(&text, &plugins);
    let chat = PluginName::from("chat");
    let rights = assembly.setup.rights(&chat).expect("it is a plugin");
    assert!(rights.may_speak("phone", |name| assembly.setup.channels.contains_key(name)).is_ok());
    assert!(rights.may_speak("page", |name| assembly.setup.channels.contains_key(name)).is_err());
}

#[test]
fn what_is_wrong_is_said_with_a_way_out() {
    let cases = [
        ("[channels.web]", "`kind` is missing in [channels.web]", "write `kind = \"voice\"`"),
        ("[channels.web]\nkind = \"wbe\"", "`kind` cannot be `wbe`", "did you mean `web`?"),
        ("[channels.web]\nkind = 3", "`kind` must be a string", "write `kind"),
        (
            "[channels.web]\nkind = \"web\"\naccess = \"read_only\"",
            "`access` cannot be `read_only`",
            "did you mean `read-only`?",
        ),
        (
            "[channels.web]\nkind = \"web\"\nvisibility = \"desk\"",
            "`visibility` cannot be `desk`",
            "write `visibility = [\"desk\"]`",
        ),
        (
            "[channels.web]\nkind = \"web\"\nvisibility = \"desk, terminal\"",
            "cannot be",
            "write `visibility = [\"desk\", \"terminal\"]`",
        ),
        (
            "[channels.web]\nkind = \"web\"\nvisibility = [\"dsk\"]",
            "names `dsk`, which is no channel of this config, nor a task",
            "`desk`",
        ),
        (
            "[channels.web]\nkind = \"web\"\nvisibility = []",
            "is an empty list",
            "visibility = \"none\"",
        ),
        (
            "[channels.web]\nkind = \"web\"\nvisibility = true",
            "must be a word or a list of names",
            "write",
        ),
        (
            "[channels.web]\nkind = \"web\"\nmuted = \"yes\"",
            "`muted` must be true or false",
            "write `muted = true`",
        ),
        ("[channels.web]\nkind = \"web\"\nrate = 0", "`rate` must be", "write `rate = 5`"),
        (
            "[channels.web]\nkind = \"web\"\nsimulate = \"40 ms\"",
            "`simulate` is for a voice",
            "write `kind = \"voice\"`",
        ),
        (
            "[channels.terminal]\nsimulate = \"40 ms\"",
            "`simulate` is for a voice",
            "write `kind = \"voice\"`",
        ),
        (
            "[channels.web]\nkind = \"voice\"\nsimulate = \"2 h\"",
            "`simulate` must be",
            "write `simulate",
        ),
        ("[channels.Web]\nkind = \"web\"", "Web", "web"),
        ("[channels.all]\nkind = \"web\"", "no channel can be called `all`", "call it `all-1`"),
        (
            "[channels.web]\nkind = \"web\"\nspeed = 3",
            "unknown key `speed` in [channels.web]",
            "keys here",
        ),
        ("channels = 3", "channels", "table"),
    ];
    for (text, what, help) in cases {
        let said = if text.starts_with('[') {
            bad(&with(text))
        } else {
            bad(&Parts { top: text, ..Parts::default() }.text())
        };
        assert!(said.contains(what) && said.contains(help), "{text}\n---\n{said}");
    }
}

#[test]
fn all_mistakes_are_reported_at_once() {
    let text = "[channels.web]\nkind = \"wbe\"\naccess = \"rw\"\nrate = -1\n[channels.bot]\nmuted = 1\nsimulate = \"x\"";
    let said = bad(&with(text));
    for what in
        ["`wbe`", "`rw`", "`rate`", "`kind` is missing in [channels.bot]", "`muted`", "`simulate`"]
    {
        assert!(said.contains(what), "{what}\n---\n{said}");
    }
    assert!(
        !said.contains("is for a voice") || said.matches("is for a voice").count() == 1,
        "{said}"
    );
}

#[test]
fn a_grant_for_a_channel_that_there_is_not_is_refused() {
    let said = bad(&Parts {
        plugin: "grants.rooms = [\"phon\"]",
        end: "[channels.phone]\nkind = \"voice\"",
        ..Parts::default()
    }
    .text());
    assert!(
        said.contains("names the channel `phon`") && said.contains("did you mean `phone`?"),
        "{said}"
    );
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
