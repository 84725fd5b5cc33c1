//! The cases of the OpenHands pack. Each is played by the whole host, or by a single function of
//! the host if it is about a text, a log or a plan. Cases without a counterpart are dropped with a
//! reason. `docs/internals/conformance-openhands.md` lists the inputs and the reported keys of each
//! kind.

mod compare;
mod confirm;
mod control;
mod conversation;
mod crash;
mod delegate;
mod forms;
mod host;
mod known;
mod logs;
mod plan;
mod round;
mod stage;
mod stuck;
mod wire;
mod wording;

use conclave_core::trajectory::Era;
use serde_json::Value;

use crate::schema::{OPENHANDS, OPENHANDS_NAMES, undocumented, with_names};
use crate::{End, Runner, Verdict, documented};

/// The name of the pack.
pub(crate) const PACK: &str = "openhands";

/// All kinds of the pack.
const KINDS: [&str; 28] = [
    "beat",
    "codec",
    "codec_error",
    "confirm_batch",
    "confirm_policy",
    "confirm_v0",
    "controller",
    "delegate",
    "event_tree",
    "hook",
    "limit",
    "micro",
    "parallel",
    "plan",
    "read_lines",
    "redact",
    "replay",
    "runtime",
    "search",
    "should_step",
    "stream",
    "stuck_events",
    "stuck_pairs",
    "stuck_sdk",
    "truncate",
    "unmatched",
    "view",
    "write_lines",
];

/// The input of a case. Has no access to the expectations, so the code that plays a case cannot
/// read them.
pub(crate) struct Case<'a> {
    pub(crate) kind: &'a str,
    pub(crate) era: &'a str,
    pub(crate) input: &'a Value,
}

impl<'a> Case<'a> {
    /// Splits a line into the case and its expectations.
    ///
    /// # Errors
    /// Describes the problem of the line.
    fn read(line: &'a Value) -> Result<(Self, &'a Value), String> {
        let word = |key: &str| {
            line.get(key)
                .and_then(Value::as_str)
                .ok_or_else(|| format!("the case has no {key}, which is a text"))
        };
        let value = |key: &str| {
            line.get(key)
                .filter(|value| value.is_object())
                .ok_or_else(|| format!("the case has no {key}, an object"))
        };
        word("id")?;
        let (case, expect) = (
            Self { kind: word("kind")?, era: word("era")?, input: value("in")? },
            value("expect")?,
        );
        if !KINDS.contains(&case.kind) {
            return Err(format!(
                "there is no kind {:?} of case; there are {}",
                case.kind,
                KINDS.join(", ")
            ));
        }
        match undocumented(OPENHANDS, case.kind, expect, compare::asked_of)
            .filter(|_| known::left_out_reason(&case).is_none())
        {
            Some(problem) => Err(problem),
            None => Ok((case, expect)),
        }
    }

    /// Returns the wire form of the case's events.
    pub(crate) fn wire(&self) -> Era {
        if self.era.starts_with("2024") { Era::V2024 } else { Era::V2025 }
    }

    /// Returns a field of the input.
    pub(crate) fn get(&self, key: &str) -> Option<&'a Value> {
        self.input.get(key)
    }

    /// Returns the first of these fields that exists.
    pub(crate) fn any(&self, keys: &[&str]) -> Option<&'a Value> {
        keys.iter().find_map(|key| self.get(key))
    }

    /// Returns a text field.
    pub(crate) fn text(&self, key: &str) -> Result<&'a str, String> {
        self.get(key)
            .and_then(Value::as_str)
            .ok_or_else(|| format!("`in` has no {key}, which is a text"))
    }

    /// Returns a list field.
    pub(crate) fn list(&self, key: &str) -> Result<&'a [Value], String> {
        self.get(key)
            .and_then(Value::as_array)
            .map(Vec::as_slice)
            .ok_or_else(|| format!("`in` has no {key}, which is a list"))
    }

    /// Returns an integer field.
    pub(crate) fn number(&self, key: &str) -> Result<i64, String> {
        self.get(key)
            .and_then(Value::as_i64)
            .ok_or_else(|| format!("`in` has no {key}, which is a whole number"))
    }

    /// Returns a boolean field, or false if it is missing.
    pub(crate) fn flag(&self, key: &str) -> bool {
        self.get(key).and_then(Value::as_bool).unwrap_or_default()
    }
}

/// Returns whether cases of a kind are about a text, a log or a plan and are played by a single
/// function of the host. `docs/internals/conformance-openhands.md` names its caller in the host.
pub(crate) fn is_function(kind: &str) -> bool {
    const FUNCTIONS: [&str; 11] = [
        "codec",
        "codec_error",
        "event_tree",
        "micro",
        "plan",
        "read_lines",
        "replay",
        "search",
        "truncate",
        "unmatched",
        "write_lines",
    ];
    FUNCTIONS.contains(&kind)
}

/// Returns whether a line belongs to this pack. A line without `pack` belongs to it if it has
/// `kind` and `in`.
pub(crate) fn is_of_pack(line: &Value) -> bool {
    match line.get("pack") {
        Some(pack) => pack == PACK,
        None => line.get("kind").is_some() && line.get("in").is_some(),
    }
}

/// Returns whether a case of this line is played as a conversation on the whole host.
pub(crate) fn is_conversation(line: &Value) -> bool {
    is_of_pack(line) && line.get("kind").is_some_and(|kind| kind == "runtime" || kind == "beat")
}

/// Compiles the components that such conversations use.
pub(crate) async fn warm_up(runner: &Runner) -> Result<(), String> {
    conversation::warm_up(runner).await
}

/// Returns the problem of a line of this pack, found without playing it.
pub(crate) fn problem(line: &Value) -> Option<String> {
    Case::read(line).err()
}

/// Plays a case and compares the result with its expectations.
pub(crate) async fn judge(runner: &Runner, id: String, line: &Value) -> Verdict {
    let (case, expect) = match Case::read(line) {
        Ok(read) => read,
        Err(reason) => return Verdict::failed(&line.to_string(), &reason),
    };
    if let Some(reason) = known::left_out_reason(&case) {
        return Verdict { id, end: End::NotPlayed { reason: reason.to_owned() } };
    }
    match play(runner, &case).await {
        Err(reason) => Verdict::failed(&line.to_string(), &reason),
        Ok(got) => {
            if let Some(problem) = undocumented(OPENHANDS, case.kind, &got, |_| None) {
                let reason = format!("the runner reports what no page documents: {problem}");
                return Verdict::failed(&line.to_string(), &reason);
            }
            let got = with_names(OPENHANDS_NAMES, case.kind, &got);
            let differences = compare::differences(case.kind, expect, &got);
            Verdict {
                id,
                end: documented::end(expect, got, &differences, &known::otherwise(&case)),
            }
        }
    }
}

async fn play(runner: &Runner, case: &Case<'_>) -> Result<Value, String> {
    match case.kind {
        "codec" | "codec_error" => wire::codec(case),
        "truncate" => wire::truncate(case),
        "read_lines" => wire::read_lines(case),
        "write_lines" => wire::write_lines(case),
        "plan" => plan::play(case),
        "stuck_pairs" => stuck::pairs(case).await,
        "stuck_events" => stuck::events(case).await,
        "stuck_sdk" => stuck::sdk(case).await,
        "limit" => control::limit(case).await,
        "unmatched" => logs::unmatched(case),
        "event_tree" => logs::event_tree(case),
        "confirm_policy" => confirm::policy(case).await,
        "confirm_batch" => confirm::batch(case).await,
        "confirm_v0" => confirm::v0(case).await,
        "parallel" => round::parallel(case).await,
        "controller" => control::controller(case).await,
        "delegate" => delegate::play(case).await,
        "search" => logs::search(case),
        "micro" => logs::micro(case),
        "replay" => logs::replay(case),
        "runtime" => host::runtime(runner, case).await,
        "beat" => host::beat(runner, case).await,
        other => Err(format!("nothing plays the kind {other:?}")),
    }
}
