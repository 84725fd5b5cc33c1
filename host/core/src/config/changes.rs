//! What differs between two versions of a config, by the names of its keys: for an operator who has
//! it read again.

use std::collections::BTreeMap;
use std::fmt::Display;

use super::{Config, ServerConfig};
use crate::permissions::policy_rules::{Policy, Rule};

/// The names of the parts that differ in another version of a config. Its `store` and `durability`
/// are not among them: those of a running program stay.
#[must_use]
pub fn changes(before: &Config, now: &Config) -> Vec<String> {
    // Each field by its name: a new one is compared, or left out for a reason.
    let Config {
        entry,
        models,
        secrets,
        plugins,
        tasks,
        channels,
        endpoints,
        gates,
        observers,
        policy,
        durability: _,
        store: _,
        limits,
        trust,
        server: ServerConfig { users, proxy, oidc, keep, daily_budget },
        prices,
        // What was found in the text, and where.
        warnings: _,
        folder: _,
        source: _,
        spans: _,
    } = before;
    let mut all = Vec::new();
    let mut add = |is_other: bool, name: &str| {
        if is_other {
            all.push(name.to_owned());
        }
    };
    add(*entry != now.entry, "entry");
    add(*gates != now.gates, "gates");
    add(*observers != now.observers, "observers");
    add(rules(policy) != rules(&now.policy), "policy");
    add(*limits != now.limits, "limits");
    add(*trust != now.trust, "trust");
    add(*prices != now.prices, "prices");
    add(*proxy != now.server.proxy, "server.proxy");
    add(*oidc != now.server.oidc, "server.oidc");
    add(*keep != now.server.keep, "server.keep");
    add(*daily_budget != now.server.daily_budget, "server.daily_budget");
    all.extend(others("models", models, &now.models));
    all.extend(others("secrets", secrets, &now.secrets));
    all.extend(others("plugins", plugins, &now.plugins));
    all.extend(others("tasks", tasks, &now.tasks));
    // With their secrets, senders and receivers.
    let mut of_channels = others("channels", channels, &now.channels);
    of_channels.extend(others("channels", endpoints, &now.endpoints));
    of_channels.sort();
    of_channels.dedup();
    all.extend(of_channels);
    all.extend(others("server.users", users, &now.server.users));
    all
}

/// The rules without the line of each in the file, which decides nothing.
fn rules(policy: &Policy) -> Vec<Rule> {
    policy.iter().cloned().map(|rule| Rule { source: String::new(), ..rule }).collect()
}

/// The names of the entries that are not the same in both.
fn others<K: Ord + Display, V: PartialEq>(
    place: &str,
    before: &BTreeMap<K, V>,
    now: &BTreeMap<K, V>,
) -> Vec<String> {
    let removed = before.keys().filter(|key| !now.contains_key(key));
    let removed = removed.map(|key| format!("{place}.{key} (removed)"));
    let added = now.iter().filter_map(|(key, value)| match before.get(key) {
        None => Some(format!("{place}.{key} (new)")),
        Some(known) if known != value => Some(format!("{place}.{key}")),
        Some(_) => None,
    });
    removed.chain(added).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: &str = "entry = \"main\"\n[plugins.chat]\nsource = \"stock:chat\"\n\
                          [tasks.main]\nagent = \"chat\"\n";

    fn parse(text: &str) -> Config {
        Config::parse("c.toml", "", text).unwrap()
    }

    #[test]
    fn each_change_has_the_name_of_its_key_and_lines_that_moved_are_none() {
        let ask = "[[policy]]\ntool = \"chat.*\"\ndecide = \"ask\"\n";
        let channel = "[channels.web]\nkind = \"web\"\n";
        let before = parse(&format!("{CONFIG}{ask}{channel}"));
        for (text, names) in [
            (format!("# moved\n\n{CONFIG}{ask}{channel}"), vec![]),
            (format!("{CONFIG}{channel}"), vec!["policy"]),
            (format!("{CONFIG}{ask}"), vec!["channels.web (removed)"]),
            (format!("{CONFIG}{ask}{channel}rate = 3\n"), vec!["channels.web"]),
            (
                format!("{CONFIG}{ask}{channel}[tasks.other]\nagent = \"chat\"\n"),
                vec!["tasks.other (new)"],
            ),
            (format!("store = \"x\"\n{CONFIG}{ask}{channel}"), vec![]),
        ] {
            assert_eq!(changes(&before, &parse(&text)), names, "{text}");
        }
    }
}
