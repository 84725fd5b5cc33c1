//! `conclave runs`: the stored runs, newest first.

use std::collections::BTreeMap;
use std::path::Path;

use anstyle::Style;
use conclave_core::types::ids::{Millis, RoomId};
use conclave_runtime::steering::pause_reason;
use conclave_runtime::store::{DamagedRow, RunFilter, RunRow, RunState, StoreReader};
use serde_json::{Value, json};

use crate::args::{self, OutputArgs};
use crate::program::error::CliError;
use crate::state::interrupted_runs::CONVERSATION;
use crate::state::observers;
use crate::state::stores::{OpenStores, damage_of, is_interrupted};
use crate::ui::show::amounts::{ago, money, now, parse_moment, parse_usd, thousands, took};
use crate::ui::show::listing::Listing;
use crate::ui::show::run_state::{CLOSED, SERVED, run_state};
use crate::ui::show::table::{self, Cells, Column};
use crate::ui::show::{BAD, FAINT, NAME, ODD, plural};
use crate::ui::stdout;

/// The value of `--status` for all runs that have ended.
const ENDED: &str = "ended";
/// The value of `--status` for runs that wait for a user.
const WAITING: &str = "waiting";
/// The kind of pending work that is the user's next message.
const USER: &str = "user";
const COLUMNS: [Column; 9] = [
    Column { head: "RUN", most: 24, goes: 0 },
    Column { head: "STARTED", most: 12, goes: 3 },
    Column { head: "STATE", most: 20, goes: 0 },
    Column { head: "ENTRY", most: 16, goes: 6 },
    Column { head: "TOKENS", most: 12, goes: 5 },
    Column { head: "COST", most: 9, goes: 4 },
    Column { head: "DURATION", most: 12, goes: 1 },
    Column { head: "CONFIG", most: 28, goes: 2 },
    Column { head: "MESSAGE", most: usize::MAX, goes: 0 },
];

pub(crate) fn runs(args: &args::Runs, output: OutputArgs) -> Result<u8, CliError> {
    let now = now();
    let status = args.status.as_deref().map(status_word).transpose()?;
    let filter = RunFilter {
        agent: args.agent.clone(),
        text: args.text.clone(),
        cost: args.cost.as_deref().map(parse_usd).transpose()?,
        since: args.since.as_deref().map(|text| parse_moment("--since", text, now)).transpose()?,
        ..RunFilter::default()
    };
    let stores = OpenStores::of(args.store.as_ref())?;
    let (mut runs, damaged) = stores.run_list(&filter)?;
    let mut waits = stores.waits()?;
    waits.retain(|run, kinds| {
        let open = |row: &&RunRow| row.run == *run && !matches!(row.state, RunState::Ended(_));
        let Some(row) = runs.iter().find(open) else { return false };
        // A browser writes the next message.
        kinds.retain(|kind| row.command != SERVED || kind != USER);
        !kinds.is_empty()
    });
    runs.retain(|run| {
        status.as_deref().is_none_or(|status| is_so(run, waits.contains_key(&run.run), status))
    });
    let all = runs.len();
    let interrupted = runs.iter().filter(|run| is_interrupted(run)).count();
    waits.retain(|run, _| runs.iter().any(|row| row.run == *run));
    // Before the list is cut: the hints are about all runs that match.
    let counts = WaitCounts::of(&runs, &waits);
    runs.truncate(args.limit);
    let readers: Vec<StoreReader> = stores.readers_quietly().collect();
    let facts = |row: &RunRow| {
        let reader = readers.iter().find(|reader| *reader.address() == row.store);
        let waits = waits.get(&row.run).cloned().unwrap_or_default();
        RunFacts::of(row, reader, waits, now)
    };
    let facts: Vec<RunFacts> = runs.iter().map(facts).collect::<Result<_, _>>()?;
    let stored = || runs.iter().zip(&facts);
    let is_any = filter == RunFilter::default() && status.is_none();
    let empty = if is_any {
        "no runs are stored yet; `conclave run` and `conclave chat` store theirs, unless --no-journal or --journal is given"
    } else {
        "no stored run matches; `conclave runs` without options lists the newest"
    };
    let runs_with = |has: fn(&RunFacts) -> bool, what: &str| {
        let count = facts.iter().filter(|facts| has(facts)).count() as u64;
        (count > 0).then(|| format!("{} {what}", plural(count, "run", "runs")))
    };
    let more = all - runs.len();
    let notes = [
        (more > 0).then(|| format!("{} more; --limit {all} shows all", thousands(more as u64))),
        counts.hint(),
        runs_with(|facts| facts.changes > 0, "with changes to apply or drop: `conclave diff RUN`"),
        runs_with(
            |facts| facts.undelivered > 0,
            "with events that observers did not take: `conclave resume RUN` delivers them",
        ),
        (interrupted > 0).then(|| resume_hint(interrupted as u64)),
    ];
    let rows = stored().map(|(run, facts)| row(run, facts, now));
    let code = Listing {
        rows: table::rows(&COLUMNS, rows.chain(damaged.iter().map(damaged_cells))),
        json: stored()
            .map(|(run, facts)| as_json(run, facts))
            .chain(damaged.iter().map(damaged_json)),
        empty: empty.to_owned(),
        notes: notes.into_iter().flatten().collect(),
    }
    .print(output)?;
    // Printed last, and in the exit code.
    damage_of(&damaged).filter(|_| !stdout::has_gone()).map_or(Ok(code), Err)
}

/// The cells of a run whose row cannot be read.
fn damaged_cells(row: &DamagedRow) -> Cells {
    let mut cells = vec![(Style::new(), String::new()); COLUMNS.len()];
    cells[0] = (NAME, row.room.to_string());
    cells[2] = (BAD, "damaged".to_owned());
    cells[COLUMNS.len() - 1] = (FAINT, row.what.clone());
    cells
}

fn damaged_json(row: &DamagedRow) -> Value {
    json!({ "type": "run", "run": row.room, "state": "damaged", "reason": row.what })
}

fn as_json(run: &RunRow, facts: &RunFacts) -> Value {
    let mut value = json!(run);
    value["type"] = "run".into();
    value["state"] = run_state(run.state, &run.command).1.into();
    value["paused"] = json!(facts.paused);
    value["pending_changes"] = json!(facts.changes);
    value["undelivered_events"] = json!(facts.undelivered);
    (value["took_ms"], value["waits_for"]) = (facts.took_ms.into(), json!(facts.waits));
    value
}

/// The hint about interrupted runs.
fn resume_hint(interrupted: u64) -> String {
    let run = if interrupted == 1 { "it" } else { "one" };
    format!(
        "{} interrupted: `conclave resume RUN` resumes {run}",
        plural(interrupted, "run", "runs")
    )
}

/// What waits for the user in some runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct WaitCounts {
    approvals: usize,
    /// Questions of tasks, beside a conversation.
    questions: usize,
    /// Conversations that no process has open, so that they can be resumed.
    conversations: usize,
}

impl WaitCounts {
    fn of(runs: &[RunRow], waits: &BTreeMap<RoomId, Vec<String>>) -> Self {
        let mut counts = Self::default();
        for run in runs {
            counts.add(&run.command, run.state, waits.get(&run.run).map_or(&[], Vec::as_slice));
        }
        counts
    }

    /// Adds the waits of a run, by their kinds.
    fn add(&mut self, command: &str, state: RunState, kinds: &[String]) {
        for kind in kinds {
            match (kind == USER, command == CONVERSATION) {
                (false, _) => self.approvals += 1,
                (true, false) => self.questions += 1,
                (true, true) if state == RunState::Interrupted => self.conversations += 1,
                // Its user writes in the terminal that has it open.
                (true, true) => {}
            }
        }
    }

    /// Returns what waits, and the commands that answer it.
    fn hint(self) -> Option<String> {
        let part = |count: usize, (one, many), what: &str| {
            let verb = if count == 1 { "waits" } else { "wait" };
            (count > 0).then(|| format!("{} {verb} for {what}", plural(count as u64, one, many)))
        };
        let parts = [
            part(self.approvals, ("approval", "approvals"), "your decision: `conclave approvals`"),
            part(self.questions, ("question", "questions"), "an answer: `conclave answer`"),
            part(
                self.conversations,
                ("conversation", "conversations"),
                "your next message: `conclave resume RUN`",
            ),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        (!parts.is_empty()).then(|| parts.join("; "))
    }
}

/// What the list shows of a run beside its row.
struct RunFacts {
    /// The duration up to now while it runs, or else up to the stop of its process or its newest
    /// record. Time without a running host is left out, as in `conclave show`.
    took_ms: u64,
    /// The kinds of waits that a user can end.
    waits: Vec<String>,
    /// The reason of its pause; `None` if it is not paused, or has ended.
    paused: Option<String>,
    /// The number of files that wait in overlays.
    changes: usize,
    /// The number of events that its observers did not take.
    undelivered: u64,
    /// The last decision about its changes.
    decided: Option<&'static str>,
}

impl RunFacts {
    /// Reads them from the run's store; `None` is one that cannot be read, which was reported.
    fn of(
        row: &RunRow,
        reader: Option<&StoreReader>,
        waits: Vec<String>,
        now: Millis,
    ) -> Result<Self, CliError> {
        let run = &row.run;
        let down_ms = reader.map(|reader| reader.down_ms(run)).transpose()?.unwrap_or_default();
        let is_ended = matches!(row.state, RunState::Ended(_));
        let undelivered = reader.map(|reader| observers::undelivered(reader, row));
        // Unreadable decisions are reported by `show`, and must not hide the list of runs.
        let decisions = reader.and_then(|reader| reader.change_decisions(run).ok());
        let decided = decisions.and_then(|mut all| all.pop());
        // The same holds for its records.
        let paused = reader.filter(|_| !is_ended).map(|reader| pause_reason(reader, run));
        Ok(Self {
            took_ms: row.until(now).since(row.started).saturating_sub(down_ms),
            waits,
            paused: paused.and_then(Result::ok).flatten(),
            changes: reader.map_or(Ok(0), |reader| reader.pending_changes(run))?,
            undelivered: undelivered.unwrap_or_default().values().sum(),
            decided: decided.map(|decision| decision.kind.as_str()),
        })
    }

    /// The remark beside the run's state. The column has room for one: first what keeps the run
    /// from going on.
    fn remark(&self) -> Option<String> {
        if self.paused.is_some() {
            Some("paused".to_owned())
        } else if !self.waits.is_empty() {
            Some("waiting".to_owned())
        } else if self.changes > 0 {
            Some(plural(self.changes as u64, "change", "changes"))
        } else {
            (self.undelivered > 0).then(|| "undelivered".to_owned())
        }
    }
}

fn row(run: &RunRow, facts: &RunFacts, now: Millis) -> Cells {
    let (style, word) = match (run_state(run.state, &run.command), facts.remark(), facts.decided) {
        ((_, word), Some(remark), _) => (ODD, format!("{word}, {remark}")),
        ((style, word), None, Some(decided)) => (style, format!("{word}, {decided}")),
        (plain, None, None) => plain,
    };
    let entry = if run.agents.is_empty() {
        run.entry.clone()
    } else {
        format!("{} ({})", run.entry, run.agents.join(", "))
    };
    let tokens = if run.tokens == 0 { String::new() } else { thousands(run.tokens) };
    // No worker has begun it.
    let is_new = facts.took_ms == 0 && matches!(run.state, RunState::Queued | RunState::Asleep);
    let duration = if is_new { String::new() } else { took(facts.took_ms) };
    let cost = if run.cost_micro_usd == 0 { String::new() } else { money(run.cost_micro_usd) };
    vec![
        (NAME, run.run.to_string()),
        (FAINT, ago(run.started, now)),
        (style, word),
        (Style::new(), entry),
        (Style::new(), tokens),
        (Style::new(), cost),
        (Style::new(), duration),
        (FAINT, run.config.as_deref().map(from_here).unwrap_or_default()),
        (FAINT, run.message.clone()),
    ]
}

/// The path relative to the current folder if it lies below it.
fn from_here(path: &Path) -> String {
    let here = std::env::current_dir().unwrap_or_default();
    path.strip_prefix(&here).unwrap_or(path).display().to_string()
}

/// Parses a value of `--status`.
fn status_word(text: &str) -> Result<String, CliError> {
    let word = text.trim().to_ascii_lowercase().replace(['_', ' '], "-");
    let known = word == ENDED
        || word == WAITING
        || word == "running"
        || word == "interrupted"
        || word == "queued"
        || word == "asleep"
        || word == CLOSED
        || is_ending(&word);
    if known {
        return Ok(word);
    }
    Err(CliError::usage(format!("{text:?} is not the state of a run"))
        .hint("one of running, waiting, interrupted, queued, asleep, closed, ended, done, rejected, timeout, max-turns, max-cost, max-tokens, kill, error, stalled, user-quit …"))
}

fn is_ending(word: &str) -> bool {
    let name = Value::from(word.to_ascii_uppercase().replace('-', "_"));
    serde_json::from_value::<conclave_core::types::outcome::Status>(name).is_ok()
}

fn is_so(run: &RunRow, waits: bool, status: &str) -> bool {
    match run.state {
        _ if status == WAITING => waits,
        RunState::Ended(_) if status == ENDED => true,
        other => run_state(other, &run.command).1.replace(' ', "-") == status,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pending_work_is_summed_up_in_one_line() {
        let of = |runs: &[(&str, RunState, &[&str])]| {
            let mut counts = WaitCounts::default();
            for (command, state, kinds) in runs {
                let kinds: Vec<String> = kinds.iter().map(ToString::to_string).collect();
                counts.add(command, *state, &kinds);
            }
            counts.hint()
        };
        assert_eq!(of(&[]), None);
        assert_eq!(
            of(&[("run", RunState::Running, &["approval", "top-up"])]).unwrap(),
            "2 approvals wait for your decision: `conclave approvals`"
        );
        let waiting: [(&str, RunState, &[&str]); 3] = [
            ("chat", RunState::Running, &["user"]),
            ("chat", RunState::Interrupted, &["user"]),
            ("run", RunState::Running, &["user"]),
        ];
        assert_eq!(
            of(&waiting).unwrap(),
            "1 question waits for an answer: `conclave answer`; 1 conversation waits for your next message: `conclave resume RUN`"
        );
    }

    #[test]
    fn states_are_parsed_in_any_case_and_spelling() {
        for (word, expected) in [
            ("done", "done"),
            ("MAX_COST", "max-cost"),
            ("Interrupted", "interrupted"),
            ("running", "running"),
            ("ended", "ended"),
        ] {
            assert_eq!(status_word(word).unwrap(), expected);
        }
        assert!(status_word("happy").unwrap_err().to_string().contains("interrupted"));
    }
}
