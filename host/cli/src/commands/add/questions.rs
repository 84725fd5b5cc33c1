//! The grants of a new plugin, asked at the terminal one capability at a time. An empty answer
//! grants nothing.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};

use conclave_core::config::edit::Fragment;
use conclave_core::config::{Config, default_place};
use conclave_core::permissions::command::CommandPattern;
use conclave_core::permissions::fetch::{
    UrlPattern, is_header_name, is_own_header, is_usual_header,
};
use conclave_core::permissions::grants::{ToolPattern, kind_of};
use conclave_core::permissions::manifest::CapabilityRequest;
use conclave_core::types::capability::Capability;
use conclave_core::types::wording::quoted;
use conclave_runtime::plugin::Inspection;

use crate::state::folders::{self, too_much};
use crate::ui::ask::{confirm, line, names};
use crate::ui::show::{FAINT, NAME, ODD, one_line, paint, show_path};
use crate::ui::stderr;

/// Letters of an HTTP method; the longest that the config accepts is `OPTIONS`.
const METHOD: usize = 8;

/// Asks for all capabilities. Returns the confirmed grants.
pub(super) fn ask_all(found: &Inspection, config: Option<&Config>, folder: &Path) -> Vec<Fragment> {
    let mut chosen = Vec::new();
    for (name, ask) in &found.manifest.asks {
        let Some(capability) =
            Capability::from_name(name).filter(|capability| !capability.is_own())
        else {
            continue;
        };
        let value = match capability {
            Capability::Files => files(ask, folder),
            Capability::Model => models(config),
            Capability::Tools => tools(ask, config),
            Capability::Delegate => tasks("Which tasks may it delegate to?", config, &[]),
            Capability::Route => tasks("Whom may it address?", config, &["user"]),
            Capability::Fetch => addresses(ask),
            Capability::Secrets => secrets(ask, config),
            Capability::Exec => commands(),
            Capability::Channels
            | Capability::Kv
            | Capability::History
            | Capability::Log
            | Capability::Progress
            | Capability::Config
            | Capability::Scratch
            | Capability::Blobs => kind_of(capability)
                .and_then(|kind| (kind.question)())
                .filter(|(text, _)| confirm(&question(capability, text)))
                .map(|(_, value)| value.to_owned()),
        };
        // An invalid name is rejected, with its position, when the config is read.
        chosen.extend(
            value.and_then(|value| Fragment::parse(&format!("{capability} = {value}")).ok()),
        );
    }
    if !found.manifest.asks.is_empty() {
        stderr::line("");
    }
    chosen
}

fn question(capability: Capability, text: &str) -> String {
    format!("{} {text}", paint(NAME, format_args!("{:<9}", capability.as_str())))
}

/// Asks for commands, which no manifest can propose.
fn commands() -> Option<String> {
    let such = ["/usr/bin/git status".to_owned()];
    let text = "Which commands of this machine may it run, OUTSIDE THE SANDBOX?";
    typed(Capability::Exec, text, &such, |command| {
        let problem = CommandPattern::parse(command).err()?;
        Some(format!("{command:?} cannot be granted: {problem}"))
    })
}

/// `["a", "b"]`, or `None` without names.
fn list(names: &[String]) -> String {
    let names: Vec<String> = names.iter().map(|name| quoted(name)).collect();
    format!("[{}]", names.join(", "))
}

/// Asks for names until each is valid or none are given.
fn typed(
    capability: Capability,
    text: &str,
    such: &[String],
    wrong: impl Fn(&str) -> Option<String>,
) -> Option<String> {
    let such = if such.is_empty() { String::new() } else { format!("{}; ", such.join(", ")) };
    let text = question(
        capability,
        &format!("{text} {}", paint(FAINT, format_args!("({such}empty: none)"))),
    );
    loop {
        let names = names(&text);
        match names.iter().find_map(|name| wrong(name)) {
            Some(why) => say(&why),
            None => return (!names.is_empty()).then(|| list(&names)),
        }
    }
}

/// Prints the problem with an answer below its question.
fn say(why: &str) {
    stderr::line(format_args!("          {}", paint(ODD, one_line(why, 200))));
}

fn tasks(text: &str, config: Option<&Config>, others: &[&str]) -> Option<String> {
    let capability = if others.is_empty() { Capability::Delegate } else { Capability::Route };
    let tasks = config.into_iter().flat_map(|config| config.tasks.keys()).map(ToString::to_string);
    let such: Vec<String> = tasks.chain(others.iter().map(|name| (*name).to_owned())).collect();
    let wrong = |name: &str| {
        (config.is_some() && !such.iter().any(|known| known == name))
            .then(|| format!("{name} is not one of them"))
    };
    typed(capability, text, &such, wrong)
}

/// Asks for tools. Proposes the names in the manifest; if it has none, the names that the config
/// grants to other plugins.
fn tools(ask: &CapabilityRequest, config: Option<&Config>) -> Option<String> {
    let names = ask
        .detail
        .get("names")
        .and_then(|names| names.as_array())
        .into_iter()
        .flatten()
        .filter_map(|name| name.as_str());
    // The config accepts no other names, and a sentence of the plugin's in the question could pass
    // for another question.
    let names: Vec<String> = names
        .filter(|name| ToolPattern::is_well_formed(name))
        .map(|name| one_line(name, 64))
        .collect();
    if !names.is_empty() {
        let allowed = names
            .into_iter()
            .filter(|name| confirm(&question(Capability::Tools, &format!("May it call {name}?"))));
        let allowed: Vec<String> = allowed.collect();
        return (!allowed.is_empty()).then(|| list(&allowed));
    }
    let granted = config
        .into_iter()
        .flat_map(|config| config.plugins.values())
        .filter_map(|plugin| plugin.grants.tools.as_ref());
    let mut such: Vec<String> =
        granted.flat_map(|grant| grant.names.iter().map(|name| name.0.clone())).collect();
    such.sort_unstable();
    such.dedup();
    if such.is_empty() {
        such.push("PLUGIN.TOOL".to_owned());
    }
    let wrong = |name: &str| match (ToolPattern::is_well_formed(name), name.split_once('.'), config)
    {
        (false, ..) => Some(format!(
            "{name} is not a tool; write PLUGIN.TOOL, or PLUGIN.* for all of a plugin"
        )),
        (true, Some((plugin, _)), Some(config)) if !config.plugins.contains_key(plugin) => {
            Some(format!("the plugin {plugin} does not exist"))
        }
        _ => None,
    };
    typed(Capability::Tools, "Which tools may it call?", &such, wrong)
}

/// Asks for each of the manifest's addresses in turn, with the manifest's methods.
fn addresses(ask: &CapabilityRequest) -> Option<String> {
    let texts = |key: &str| -> Vec<String> {
        let list = ask.detail.get(key).and_then(|list| list.as_array()).into_iter().flatten();
        list.filter_map(|text| text.as_str()).map(|text| one_line(text, 256)).collect()
    };
    let (mut urls, mut methods) = (texts("urls"), texts("methods"));
    let mut headers: Vec<String> =
        texts("headers").iter().map(|name| name.to_ascii_lowercase()).collect();
    // The config accepts no other addresses, and a sentence of the plugin's in the question could
    // pass for another question.
    urls.retain(|url| UrlPattern::parse(url).is_ok());
    methods
        .retain(|method| method.len() <= METHOD && method.chars().all(|c| c.is_ascii_uppercase()));
    headers.retain(|name| is_header_name(name) && !is_own_header(name) && !is_usual_header(name));
    headers.sort_unstable();
    headers.dedup();
    if urls.is_empty() {
        let such = ["such as https://api.example.org/v1/*".to_owned()];
        let wrong = |url: &str| {
            UrlPattern::parse(url).err().map(|why| format!("{url} is not a valid pattern: {why}"))
        };
        return typed(Capability::Fetch, "Which URLs may it send requests to?", &such, wrong);
    }
    let what = if methods.is_empty() { "GET, HEAD".to_owned() } else { methods.join(", ") };
    let with = if headers.is_empty() {
        String::new()
    } else {
        format!(" with the headers {}", headers.join(", "))
    };
    let allowed = urls.into_iter().filter(|url| {
        confirm(&question(Capability::Fetch, &format!("May it send {what} to {url}{with}?")))
    });
    let allowed: Vec<String> = allowed.collect();
    if allowed.is_empty() {
        return None;
    }
    let more = [("methods", methods), ("headers", headers)]
        .into_iter()
        .filter(|(_, names)| !names.is_empty());
    let more: String = more.map(|(key, names)| format!(", {key} = {}", list(&names))).collect();
    Some(if more.is_empty() {
        list(&allowed)
    } else {
        format!("{{ urls = {}{more} }}", list(&allowed))
    })
}

/// Asks for each folder that a server's command names. A server finds it at its place.
pub(super) fn folders_of(folders: &[String]) -> Option<String> {
    let (mut grants, mut used_places) = (Vec::new(), Vec::new());
    for folder in folders {
        let display = one_line(folder, 200);
        if !confirm(&question(Capability::Files, &format!("May it read {display}?"))) {
            continue;
        }
        let writes = confirm("          May it also write to it?");
        let mode = if writes { "read-write" } else { "read" };
        let own = default_place(folder).unwrap_or_else(|| "/folder".to_owned());
        let at = (1..).map(|n| if n == 1 { own.clone() } else { format!("{own}{n}") });
        let Some(at) = at.into_iter().find(|at| !used_places.contains(at)) else { continue };
        let (dir, place) = (quoted(folder), quoted(&at));
        grants.push(format!("{{ dir = {dir}, at = {place}, mode = {mode:?} }}"));
        used_places.push(at);
    }
    (!grants.is_empty()).then(|| format!("[{}]", grants.join(", ")))
}

/// Asks for the addresses that a server may reach: those that it wanted, then others.
pub(super) fn tunnels(refused: &BTreeSet<String>) -> Option<String> {
    let is_confirmed = |url: &&String| {
        let what = if url.starts_with("https:") { "send anything to" } else { "read from" };
        let text = format!("It wanted it: may it {what} {}?", one_line(url, 200));
        confirm(&question(Capability::Fetch, &text))
    };
    let mut urls: Vec<String> = refused.iter().filter(is_confirmed).cloned().collect();
    let text = question(
        Capability::Fetch,
        &format!(
            "Which other addresses may it send anything to? {}",
            paint(FAINT, "(such as https://api.example.org/*; empty: none)")
        ),
    );
    loop {
        let others = names(&text);
        match others.iter().find_map(|url| Some((url, UrlPattern::parse(url).err()?))) {
            Some((url, why)) => say(&format!("{url} is not a valid pattern: {why}")),
            None => {
                urls.extend(others);
                return (!urls.is_empty()).then(|| super::server::tunnels(&urls));
            }
        }
    }
}

/// Asks for secrets of the config. The config binds each to its hosts.
fn secrets(ask: &CapabilityRequest, config: Option<&Config>) -> Option<String> {
    let known: Vec<String> = config
        .into_iter()
        .flat_map(|config| config.secrets.keys())
        .map(ToString::to_string)
        .collect();
    if known.is_empty() {
        stderr::line(question(
            Capability::Secrets,
            &paint(FAINT, "the config has no secrets; write this, then grant it"),
        ));
        secret_blocks(ask)
            .iter()
            .for_each(|line| drop(writeln!(crate::ui::output::stderr(), "          {line}")));
        return None;
    }
    let hosts = |name: &str| {
        let secret = config.and_then(|config| config.secrets.get(name));
        let hosts: Vec<&str> =
            secret.into_iter().flat_map(|secret| &secret.hosts).map(|host| host.as_str()).collect();
        hosts.join(", ")
    };
    let text =
        |name: &str| format!("May the host put {name} into its requests to {}?", hosts(name));
    let allowed: Vec<String> = known
        .into_iter()
        .filter(|name| confirm(&question(Capability::Secrets, &text(name))))
        .collect();
    (!allowed.is_empty()).then(|| list(&allowed))
}

/// A config table for each secret that the manifest names. Its hosts are left to the operator.
fn secret_blocks(ask: &CapabilityRequest) -> Vec<String> {
    let is_name = |name: &&String| {
        !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c))
    };
    let mut names: Vec<&str> = ask.detail.keys().filter(is_name).map(String::as_str).collect();
    if names.is_empty() {
        names.push("NAME");
    }
    let block = |name: &&str| {
        let variable = name.to_ascii_uppercase().replace('-', "_");
        [
            format!("[secrets.{name}]"),
            format!("from = {{ env = \"{variable}\" }}"),
            "hosts = [\"HOST\"]".to_owned(),
        ]
    };
    names.iter().flat_map(block).collect()
}

fn models(config: Option<&Config>) -> Option<String> {
    let models: Vec<String> = config
        .into_iter()
        .flat_map(|config| config.models.keys())
        .map(ToString::to_string)
        .collect();
    if models.is_empty() {
        stderr::line(question(Capability::Model, &paint(FAINT, "the config has no model")));
        return None;
    }
    let allowed = models.into_iter().filter(|name| {
        confirm(&question(Capability::Model, &format!("May it use the model {name}?")))
    });
    let allowed: Vec<String> = allowed.collect();
    (!allowed.is_empty()).then(|| list(&allowed))
}

/// Asks for a directory until the answer is one, or empty.
fn files(ask: &CapabilityRequest, folder: &Path) -> Option<String> {
    let writes = ask.detail.get("mode").and_then(|mode| mode.as_str()) == Some("read-write");
    let text = question(
        Capability::Files,
        &format!("Which folder may it read? {}", paint(FAINT, "(empty: none)")),
    );
    loop {
        let typed = line(&text)?;
        let written = expanded(&typed);
        let canonical_path = folder.join(&written).canonicalize();
        let Some(canonical_path) = canonical_path.ok().filter(|path| path.is_dir()) else {
            stderr::line(format_args!(
                "          {}",
                paint(
                    ODD,
                    format_args!(
                        "the folder {} does not exist in {}",
                        show_path(&typed),
                        show_path(folders::canonicalize(folder))
                    )
                )
            ));
            continue;
        };
        if let Some(why) = too_much(&canonical_path, &folders::canonicalize(folder)) {
            let sure = confirm(&format!(
                "          {} Grant it anyway?",
                paint(ODD, format_args!("{} {why}.", show_path(canonical_path)))
            ));
            if !sure {
                continue;
            }
        }
        // Written into the config, so it is not escaped.
        let written = written.display().to_string();
        let at = place(&written);
        let mode = if writes && confirm("          May it also write to it (16 MiB, 1000 files)?") {
            "read-write"
        } else {
            "read"
        };
        return Some(format!(
            "[{{ dir = {}, at = {}, mode = {mode:?} }}]",
            quoted(&written),
            quoted(&at)
        ));
    }
}

/// Asks for the plugin's name of a directory until it is valid. An empty answer takes the
/// directory's own name.
fn place(dir: &str) -> String {
    let own = default_place(dir).unwrap_or_else(|| "/folder".to_owned());
    let text = format!(
        "          At which path does the plugin see it? {}",
        paint(FAINT, format_args!("(return: {own})"))
    );
    loop {
        let Some(typed) = line(&text) else { return own };
        let at = format!("/{}", typed.trim_matches('/'));
        if default_place(&at).as_ref() == Some(&at) {
            return at;
        }
        stderr::line(format_args!(
            "          {}",
            paint(ODD, format_args!("{typed} is not such a path; write one like /notes"))
        ));
    }
}

/// Expands `~`, since no shell has seen this line.
fn expanded(typed: &str) -> PathBuf {
    match (typed.strip_prefix('~'), std::env::var_os("HOME")) {
        (Some(rest), Some(home)) if rest.is_empty() || rest.starts_with('/') => {
            Path::new(&home).join(rest.trim_start_matches('/'))
        }
        _ => PathBuf::from(typed),
    }
}
