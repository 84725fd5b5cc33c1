//! `grants.fetch`: URLs with their methods, headers, networks and limits.

use std::net::IpAddr;

use ipnet::IpNet;

use super::lists::{grants_nothing, names_of};
use super::{FETCH, FETCH_RULE};
use crate::config::problem_code::ProblemCode;
use crate::config::reader::{ConfigReader, SpannedValue};
use crate::permissions::fetch::{UrlPattern, is_header_name, is_own_header, is_usual_header};
use crate::permissions::grants::{FetchGrant, FetchRule};
use crate::types::wording::{code, string};

/// `["https://api.example.org/*"]`, or a table with `urls` and limits.
pub(super) fn read(reader: &mut ConfigReader, item: &SpannedValue<'_>) -> Option<FetchGrant> {
    let table = if item.value.is_table() { Some(item.table(reader, FETCH)?) } else { None };
    let urls = match &table {
        Some(table) => table.require(reader, "urls"),
        None if item.value.is_array() => Some(item.clone()),
        None => {
            item.expected(reader, "a list or a table");
            return None;
        }
    };
    let methods = table
        .as_ref()
        .and_then(|table| table.get("methods"))
        .and_then(|item| methods(reader, &item));
    let mut grant = FetchGrant::new(
        urls.map(|item| fetch_rules(reader, &item, methods.as_deref())).unwrap_or_default(),
    );
    let Some(table) = table else { return Some(grant) };
    if let Some(item) = table.get("headers") {
        grant.headers = headers(reader, &item);
    }
    if let Some(item) = table.get("private") {
        grant.private = networks(reader, &item);
    }
    table.set(reader, "requests", &mut grant.requests);
    table.set(reader, "request_size", &mut grant.request_bytes);
    table.set(reader, "response_size", &mut grant.response_bytes);
    table.set(reader, "timeout", &mut grant.time_ms);
    table.set(reader, "at_once", &mut grant.at_once);
    table.set(reader, "host_names", &mut grant.names);
    table.set(reader, "redirects", &mut grant.redirects);
    Some(grant)
}

fn fetch_rules(
    reader: &mut ConfigReader,
    item: &SpannedValue<'_>,
    methods_of_all: Option<&[String]>,
) -> Vec<FetchRule> {
    let entries = item.list(reader).unwrap_or_default();
    if entries.is_empty() && item.value.is_array() {
        grants_nothing(reader, item);
    }
    let usual = || vec!["GET".to_owned(), "HEAD".to_owned()];
    let mut rules: Vec<FetchRule> = Vec::new();
    for entry in &entries {
        let (url, of_this) = if entry.value.is_table() {
            let Some(table) = entry.table(reader, FETCH_RULE) else {
                continue;
            };
            let of_this = table.get("methods").and_then(|item| methods(reader, &item));
            (table.require(reader, "url").and_then(|item| url_pattern(reader, &item)), of_this)
        } else {
            (url_pattern(reader, entry), None)
        };
        let Some(url) = url else { continue };
        let rule = FetchRule {
            url,
            methods: of_this
                .or_else(|| methods_of_all.map(<[String]>::to_vec))
                .unwrap_or_else(usual),
        };
        if rules.contains(&rule) {
            entry.reject(
                reader,
                ProblemCode::Duplicate,
                &format!("names {} a second time", code(rule.url.as_str())),
                "leave it out".to_owned(),
            );
        } else {
            rules.push(rule);
        }
    }
    rules
}

pub(super) fn url_pattern(
    reader: &mut ConfigReader,
    item: &SpannedValue<'_>,
) -> Option<UrlPattern> {
    let text = item.string(reader)?;
    match UrlPattern::parse(text) {
        Ok(pattern) => Some(pattern),
        Err(problem) => {
            let help = format!("write it as {}", string("https://api.example.org/v1/*"));
            item.wrong(reader, &format!("cannot be {}: {problem}", code(text)), help);
            None
        }
    }
}

fn methods(reader: &mut ConfigReader, item: &SpannedValue<'_>) -> Option<Vec<String>> {
    if item.is_empty_list() {
        grants_nothing(reader, item);
    }
    item.read(reader)
}

/// Returns the names in lower case.
fn headers(reader: &mut ConfigReader, item: &SpannedValue<'_>) -> Vec<String> {
    let mut headers: Vec<String> = Vec::new();
    for (item, name) in names_of(reader, item, true).unwrap_or_default() {
        let lower = name.to_ascii_lowercase();
        if !is_header_name(&lower) {
            item.wrong(reader, &format!("must be the name of a header, not {}", code(name)), None);
        } else if is_own_header(&lower) {
            item.wrong(
                reader,
                &format!("names {}, which the host sets itself", code(name)),
                "leave it out".to_owned(),
            );
        } else if is_usual_header(&lower) || headers.contains(&lower) {
            item.wrong(
                reader,
                &format!("names {}, which is allowed already", code(name)),
                "leave it out".to_owned(),
            );
        } else {
            headers.push(lower);
        }
    }
    headers
}

/// Reads `"10.0.0.0/8"`, or one address.
pub(in crate::config) fn networks(
    reader: &mut ConfigReader,
    item: &SpannedValue<'_>,
) -> Vec<IpNet> {
    let mut networks = Vec::new();
    for (item, name) in names_of(reader, item, true).unwrap_or_default() {
        match name.parse::<IpNet>().or_else(|_| name.parse::<IpAddr>().map(IpNet::from)) {
            Ok(network) => networks.push(network),
            Err(_) => {
                item.wrong(
                    reader,
                    &format!(
                        "must be an address or a network such as `10.0.0.0/8`, not {}",
                        code(name)
                    ),
                    None,
                );
            }
        }
    }
    networks
}
