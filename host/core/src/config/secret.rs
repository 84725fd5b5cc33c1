//! `[secrets.NAME]`: the source of a secret, the hosts that may receive it, and the parts of a
//! request that may hold it. Never its value.

use std::collections::{BTreeMap, BTreeSet};

use super::keys::{SECRET_FROM, SECRETS};
use super::reader::{ConfigReader, SpannedValue, Table};
use super::{KeyRef, SecretConfig, model};
use crate::permissions::fetch::HostPattern;
use crate::permissions::grants::SecretPlace;
use crate::types::ids::SecretName;
use crate::types::wording::{code, string};

pub(crate) fn read_all(
    reader: &mut ConfigReader,
    folder: &str,
    root: &Table<'_>,
) -> BTreeMap<SecretName, SecretConfig> {
    let mut secrets = BTreeMap::new();
    for (name, span, table) in root.named_tables(reader, "secrets", SECRETS) {
        super::plugin::check_name(reader, "secrets", name, &span);
        let table = table.checked(reader);
        secrets.insert(SecretName::from(name), read(reader, folder, &table));
    }
    secrets
}

fn read(reader: &mut ConfigReader, folder: &str, table: &Table<'_>) -> SecretConfig {
    let from = table
        .require(reader, "from")
        .and_then(|item| model::key(reader, folder, &item, SECRET_FROM));
    let hosts = table.require(reader, "hosts").map(|item| hosts(reader, &item)).unwrap_or_default();
    let request_parts = table.get("places").and_then(|item| read_places(reader, &item));
    SecretConfig {
        from: from.unwrap_or(KeyRef::Env(String::new())),
        hosts,
        request_parts: request_parts.unwrap_or_else(|| BTreeSet::from([SecretPlace::Header])),
    }
}

fn hosts(reader: &mut ConfigReader, item: &SpannedValue<'_>) -> Vec<HostPattern> {
    let mut hosts = Vec::new();
    if item.list(reader).is_some_and(|hosts| hosts.is_empty()) {
        item.wrong(
            reader,
            "names no host, so no host may receive the secret",
            "name a host: `hosts = [\"api.example.org\"]`".to_owned(),
        );
        return hosts;
    }
    for (item, name) in super::grants::names_of(reader, item, true).unwrap_or_default() {
        match HostPattern::parse(name) {
            Ok(pattern) => hosts.push(pattern),
            Err(problem) => item.wrong(
                reader,
                &format!(
                    "must be a host such as {} or {}, not {}: {problem}",
                    string("api.example.org"),
                    string("*.example.org"),
                    code(name)
                ),
                None,
            ),
        }
    }
    hosts
}

fn read_places(
    reader: &mut ConfigReader,
    item: &SpannedValue<'_>,
) -> Option<BTreeSet<SecretPlace>> {
    if item.is_empty_list() {
        item.wrong(
            reader,
            "is an empty list, so no part of a request may hold the secret",
            "leave it out".to_owned(),
        );
    }
    item.read(reader)
}
