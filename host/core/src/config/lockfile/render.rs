//! A lock as text: sorted, and with long texts on several lines, so that changes can be reviewed.

use std::collections::BTreeSet;
use std::fmt::{self, Write};

use serde::Serialize;

use super::{FORMAT, Lockfile, Pinned};
use crate::permissions::manifest::CapabilityRequest;
use crate::types::text::is_deceptive;
use crate::types::tool::ToolSpec;

const HEAD: &str = "\
# Written by conclave, not by hand: what each plugin is and says, as it was let in. A plugin that differs from it is refused.
# `conclave plugin lock` adds plugins, `conclave plugin upgrade` shows what differs and accepts it.
";

impl fmt::Display for Lockfile {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "{HEAD}format = {FORMAT}")?;
        for (name, pinned) in &self.plugins {
            plugin(out, &key(name.as_str()), pinned)?;
        }
        Ok(())
    }
}

fn plugin(out: &mut impl Write, name: &str, pinned: &Pinned) -> fmt::Result {
    let Pinned {
        name: own_name,
        description,
        version,
        sha256,
        artifact,
        signers,
        dev,
        contract,
        kinds,
        asks,
        tools,
    } = pinned;
    let kinds: BTreeSet<String> = kinds.iter().map(|kind| line(kind.as_str())).collect();
    let kinds: Vec<String> = kinds.into_iter().collect();
    writeln!(out, "\n[plugins.{name}]")?;
    writeln!(out, "name = {}\ndescription = {}", line(own_name), text(description))?;
    writeln!(
        out,
        "version = {}\nsha256 = {}\ncontract = {}",
        line(version),
        line(sha256),
        line(contract)
    )?;
    if let Some(artifact) = artifact {
        writeln!(out, "artifact = {}", line(&artifact.to_string()))?;
    }
    if !signers.is_empty() {
        let keys: Vec<String> = signers.iter().map(|key| line(&key.to_string())).collect();
        writeln!(out, "signed_by = [{}]", keys.join(", "))?;
    }
    writeln!(out, "kinds = [{}]", kinds.join(", "))?;
    if *dev {
        out.write_str("dev = true\n")?;
    }
    for (capability, request) in asks {
        ask(out, &format!("plugins.{name}.asks.{}", key(capability)), request)?;
    }
    for (name_of, spec) in tools {
        tool(out, &format!("plugins.{name}.tools.{}", key(name_of)), spec)?;
    }
    Ok(())
}

fn ask(out: &mut impl Write, header: &str, ask: &CapabilityRequest) -> fmt::Result {
    let CapabilityRequest { why, optional, detail } = ask;
    writeln!(out, "\n[{header}]\nwhy = {}", text(why))?;
    if *optional {
        out.write_str("optional = true\n")?;
    }
    if !detail.is_empty() {
        writeln!(out, "detail = {}", json(detail))?;
    }
    Ok(())
}

fn tool(out: &mut impl Write, header: &str, tool: &ToolSpec) -> fmt::Result {
    let ToolSpec {
        name: _,
        description,
        input_schema,
        output_schema,
        idempotent,
        title,
        result_tokens,
        retained_tokens,
        examples,
    } = tool;
    writeln!(out, "\n[{header}]")?;
    if let Some(title) = title {
        writeln!(out, "title = {}", line(title))?;
    }
    writeln!(out, "description = {}\ninput_schema = {}", text(description), json(input_schema))?;
    if let Some(schema) = output_schema {
        writeln!(out, "output_schema = {}", json(schema))?;
    }
    if *idempotent {
        out.write_str("idempotent = true\n")?;
    }
    // As texts: TOML's largest integer is about half of `u64::MAX`.
    for (name, tokens) in [("result_tokens", result_tokens), ("retained_tokens", retained_tokens)] {
        if let Some(tokens) = tokens {
            writeln!(out, "{name} = \"{tokens}\"")?;
        }
    }
    if !examples.is_empty() {
        writeln!(out, "examples = {}", json(examples))?;
    }
    Ok(())
}

fn key(name: &str) -> String {
    let is_bare = !name.is_empty()
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
    if is_bare { name.to_owned() } else { line(name) }
}

fn json(value: &impl Serialize) -> String {
    text(&serde_json::to_string_pretty(value).unwrap_or_default())
}

/// A text on one line, with deceptive characters escaped.
fn line(text: &str) -> String {
    let mut quoted = String::from("\"");
    text.chars().for_each(|c| push(&mut quoted, c));
    quoted.push('"');
    quoted
}

/// A text whose line breaks stay.
fn text(text: &str) -> String {
    if !text.contains('\n') {
        return line(text);
    }
    if !text.contains("'''")
        && !text.ends_with('\'')
        && text.chars().all(|c| c == '\n' || !is_deceptive(c))
    {
        return format!("'''\n{text}'''");
    }
    let mut quoted = String::from("\"\"\"\n");
    for c in text.chars() {
        if c == '\n' { quoted.push(c) } else { push(&mut quoted, c) }
    }
    quoted.push_str("\"\"\"");
    quoted
}

fn push(quoted: &mut String, c: char) {
    match c {
        '"' | '\\' => quoted.extend(['\\', c]),
        c if is_deceptive(c) => quoted.push_str(&format!("\\U{:08x}", u32::from(c))),
        c => quoted.push(c),
    }
}
