//! Rules of a task with a syntax or a table of their own: its end, its result, loops, words in
//! text. The tools named here are checked when the config is assembled.

use serde_json::{Map, Value};
use toml::de::DeValue;

use super::json;
use super::keys::{LOOPS, NO_TOOL, RETURNS, WORDS};
use super::problem_code::ProblemCode;
use super::reader::{ConfigReader, SpannedValue, Table};
use crate::setup::{LoopRules, NoTool, ReturnType, TextRules};
use crate::tool_calls::sequence::{PatternProblem, Sequence, SequenceError};
use crate::types::message::ToolCall;
use crate::types::wording::{code, string};

/// The limit of a nudge that a help text repeats, in bytes.
const NUDGE_SHOWN: usize = 100;

/// `done_sequences` (L-092).
pub(super) fn sequences(reader: &mut ConfigReader, table: &Table<'_>) -> Vec<Sequence> {
    let entries =
        table.get("done_sequences").and_then(|item| item.list(reader)).unwrap_or_default();
    let mut sequences = Vec::new();
    for entry in entries {
        let Some(text) = entry.string(reader) else { continue };
        match Sequence::parse(text) {
            Ok(sequence) => sequences.push(sequence),
            Err(error) => entry.wrong(
                reader,
                &format!("cannot be {}: {error}", code(text)),
                pattern_help(&error).map(str::to_owned),
            ),
        }
    }
    sequences
}

/// Returns help for an unusable pattern; a sequence without one would be no substitute.
fn pattern_help(error: &SequenceError) -> Option<&'static str> {
    let SequenceError::Pattern(error) = error else { return None };
    Some(match error.problem {
        PatternProblem::LookAround => {
            "write the pattern without `(?=`, `(?!`, `(?<=` and `(?<!`: match what is there, and give what must not be there no sequence"
        }
        PatternProblem::Backreference => {
            "write the pattern without `\\1` and the like: name what may come again"
        }
        PatternProblem::TooBig => "write a shorter pattern, or one with smaller counts",
        PatternProblem::Syntax => {
            r"put a backslash before a sign that means itself, in single quotes: `'C[\(done\)]'`"
        }
    })
}

/// `returns` (L-050i).
pub(super) fn returns(reader: &mut ConfigReader, item: &SpannedValue<'_>) -> Option<ReturnType> {
    match item.value {
        DeValue::Table(_) => {
            let tool = item.table(reader, RETURNS)?.require(reader, "tool")?.string(reader)?;
            Some(ReturnType::Tool(tool.to_owned()))
        }
        DeValue::String(_) => match item.choice(reader)? {
            "int" => Some(ReturnType::Int),
            "float" => Some(ReturnType::Float),
            "bool" => Some(ReturnType::Bool),
            "any_tool" => Some(ReturnType::AnyTool),
            _ => Some(ReturnType::Text),
        },
        _ => {
            item.expected(
                reader,
                "\"text\", \"int\", \"float\", \"bool\", \"any_tool\" or { tool = \"…\" }",
            );
            None
        }
    }
}

/// `on_no_tool_call` (L-125).
pub(super) fn no_tool(reader: &mut ConfigReader, item: &SpannedValue<'_>) -> Option<NoTool> {
    match item.value {
        DeValue::Table(_) => {
            let table = item.table(reader, NO_TOOL)?;
            if table.get("tool").is_some() || table.get("arguments").is_some() {
                call(reader, &table)
            } else {
                nudge(reader, &table)
            }
        }
        // A sentence is meant as a nudge for the agent, as in Langroid.
        DeValue::String(text) if text.contains(char::is_whitespace) => {
            let text = if text.chars().count() > NUDGE_SHOWN { "…" } else { text };
            let help = format!(
                "to say it to the agent write `on_no_tool_call = {{ nudge = {} }}`",
                string(text)
            );
            item.wrong(reader, "cannot be a text", help);
            None
        }
        DeValue::String(_) => match item.choice(reader)? {
            "done" => Some(NoTool::Done),
            "user" => Some(NoTool::User),
            _ => Some(NoTool::Nothing),
        },
        _ => {
            item.expected(
                reader,
                "\"nothing\", \"done\", \"user\", { nudge = \"…\" } or { tool = \"…\" }",
            );
            None
        }
    }
}

fn nudge(reader: &mut ConfigReader, table: &Table<'_>) -> Option<NoTool> {
    let nudge = table.require(reader, "nudge")?;
    let text = nudge.string(reader)?;
    if text.trim().is_empty() {
        nudge.wrong(reader, "is empty, which says nothing to the agent", None);
    }
    Some(NoTool::Nudge(text.to_owned()))
}

fn call(reader: &mut ConfigReader, table: &Table<'_>) -> Option<NoTool> {
    if let Some(nudge) = table.get("nudge") {
        let what = format!("{} does not go with a call", code(&nudge.name));
        reader.error(
            ProblemCode::Conflict,
            &nudge.key_span,
            what,
            "leave one of them out".to_owned(),
        );
    }
    let arguments = table
        .get("arguments")
        .map_or_else(|| Value::Object(Map::new()), |item| json::arguments(reader, &item));
    let tool = table.require(reader, "tool")?.string(reader)?;
    Some(NoTool::Call(ToolCall::new(tool, arguments)))
}

/// `loop_detection` (L-096, L-097).
pub(super) fn loops(reader: &mut ConfigReader, table: &Table<'_>) -> LoopRules {
    let mut loops = LoopRules::default();
    let Some(table) = table.get("loop_detection").and_then(|item| item.table(reader, LOOPS)) else {
        return loops;
    };
    table.set(reader, "cycle_len", &mut loops.cycle_len);
    table.set(reader, "repeats", &mut loops.wait);
    table.set(reader, "dominance", &mut loops.dominance);
    table.set(reader, "alternation", &mut loops.alternation);
    loops
}

/// `text_rules`: the meaning of words. With Langroid's defaults, `all` of them have one.
pub(super) fn words(reader: &mut ConfigReader, table: &Table<'_>, all: bool) -> TextRules {
    let mut rules = TextRules {
        signals: all,
        recipients: all,
        prefix: String::new(),
        calls: all,
        system_word: all,
    };
    let Some(table) = table.get("text_rules").and_then(|item| item.table(reader, WORDS)) else {
        return rules;
    };
    table.set(reader, "signals", &mut rules.signals);
    table.set(reader, "recipients", &mut rules.recipients);
    table.set(reader, "calls", &mut rules.calls);
    table.set(reader, "system_prefix", &mut rules.system_word);
    if let Some(item) = table.get("address_prefix") {
        rules.prefix = prefix(reader, &item).unwrap_or_default();
    }
    rules
}

/// Reads the prefix of an address. Letters alone would match inside any text.
fn prefix(reader: &mut ConfigReader, item: &SpannedValue<'_>) -> Option<String> {
    let prefix = item.string(reader)?;
    let is_sign = |c: char| !c.is_alphanumeric() && !c.is_whitespace();
    let help =
        || "write a sign that ordinary text does not have, such as `prefix = \"|@|\"`".to_owned();
    if prefix.chars().any(crate::types::text::is_deceptive) {
        item.wrong(reader, &format!("has an invisible character in it: {}", code(prefix)), help());
    } else if !prefix.is_empty() && !prefix.chars().any(is_sign) {
        item.wrong(
            reader,
            &format!("has no sign in it, only letters, digits or blanks: {}", code(prefix)),
            help(),
        );
    }
    Some(prefix.to_owned())
}
