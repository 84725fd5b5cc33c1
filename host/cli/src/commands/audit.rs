//! `conclave audit`: the decisions, questions, refusals and outgoing data of all stored runs, and
//! whether a store was changed.

mod verify;

use anstyle::Style;
use conclave_core::inspect::audit::{AuditEntry, AuditKind, decision_entry, entries};
use conclave_core::journal::record::retold;
use conclave_core::types::ids::{Millis, RoomId};
use conclave_runtime::store::{RunFilter, StoreReader};
use serde_json::json;

use crate::args::{self, AuditCommand, OutputArgs};
use crate::program::error::CliError;
use crate::state::stored_run::journals;
use crate::state::stores::{OpenStores, damage_of};
use crate::ui::show::amounts::{moment, now, parse_moment};
use crate::ui::show::columns::{StyledText, cell, line, wrap_hanging};
use crate::ui::show::listing::Listing;
use crate::ui::show::table;
use crate::ui::show::{BAD, FAINT, GOOD, NAME, ODD, paint, plural};
use crate::ui::stdout;

/// Columns of a timestamp.
const MOMENT: usize = 19;
/// The terminal width from which timestamps show their year and seconds.
const WIDE: usize = 80;
/// Columns of an entry's text, at most. The arguments of a call may be far longer; `--json` has
/// them.
const LONGEST: usize = 2_000;

pub(crate) fn audit(args: &args::Audit, output: OutputArgs) -> Result<u8, CliError> {
    match &args.command {
        Some(AuditCommand::Verify { head, store }) => {
            verify::verify(&OpenStores::of(store.as_ref())?, head, output)
        }
        Some(AuditCommand::Head { store }) => {
            verify::head(&OpenStores::of(store.as_ref())?, output)
        }
        None => list(args, output),
    }
}

/// A filter of audit entries.
struct AuditFilter<'a> {
    kinds: Vec<AuditKind>,
    plugin: Option<&'a str>,
    since: Option<Millis>,
}

impl AuditFilter<'_> {
    fn has(&self, entry: &AuditEntry) -> bool {
        (self.kinds.is_empty() || self.kinds.contains(&entry.kind))
            && self
                .plugin
                .is_none_or(|plugin| entry.plugin.as_ref().is_some_and(|of| of.as_str() == plugin))
            && self.since.is_none_or(|since| entry.at >= since)
    }
}

fn list(args: &args::Audit, output: OutputArgs) -> Result<u8, CliError> {
    let filter = AuditFilter {
        kinds: args.kind.iter().map(|word| kind(word)).collect::<Result<_, _>>()?,
        plugin: args.plugin.as_deref(),
        since: args
            .since
            .as_deref()
            .map(|text| parse_moment("--since", text, now()))
            .transpose()?,
    };
    let stores = OpenStores::of(args.store.as_ref())?;
    let name = args.run_prefix.as_deref().or(args.run.as_deref());
    let readers = stores.search(name)?;
    let mut runs: Vec<(Millis, usize, RoomId)> = Vec::new();
    // A run that another host wrote, or a damaged one, must not hide the entries of all others.
    let mut unread = Vec::new();
    for (index, (reader, run)) in readers.iter().enumerate() {
        match run {
            Some(run) => runs.push((Millis(0), index, run.clone())),
            None => {
                let (rows, damaged) = reader.run_list(&RunFilter::default())?;
                unread.extend(damage_of(&damaged));
                let rows = rows
                    .into_iter()
                    .filter(|row| filter.since.is_none_or(|since| row.updated >= since));
                runs.extend(rows.map(|row| (row.started, index, row.run)));
            }
        }
    }
    runs.sort();
    let mut found: Vec<(RoomId, AuditEntry)> = Vec::new();
    for (_, reader, run) in &runs {
        match entries_of(&readers[*reader].0, run) {
            Ok(entries) => found.extend(entries.into_iter().filter(|(_, entry)| filter.has(entry))),
            Err(error) => unread.push(error),
        }
    }
    // Oldest first over all runs, the usual order of a log.
    found.sort_by_key(|(_, entry)| entry.at);
    let older = args.limit.map_or(0, |most| found.len().saturating_sub(most));
    found.drain(..older);
    let (limit, count) = (table::limit(), found.len() as u64);
    let widest = found.iter().map(|(_, entry)| entry.kind.as_str().len()).max().unwrap_or_default();
    let address = |(room, entry): &(RoomId, AuditEntry)| {
        entry.seq.map_or_else(|| room.to_string(), |seq| format!("{room}:{seq}"))
    };
    let as_json = |found: &(RoomId, AuditEntry)| {
        let (room, entry) = found;
        let mut value = json!(entry);
        (value["type"], value["event"], value["room"]) =
            ("audit".into(), json!(entry.seq.map(|_| address(found))), json!(room));
        value
    };
    let before = match older as u64 {
        0 => String::new(),
        older => format!(" ({older} older; --limit {} shows all)", older + count),
    };
    let runs = plural(runs.len() as u64, "run", "runs");
    let summary = format!("{} in {runs}{before}", plural(count, "entry", "entries"));
    let help = "`conclave why EVENT` explains one, `conclave audit verify` checks the hash chain";
    let code = Listing {
        rows: found.iter().flat_map(|found| rows(&address(found), &found.1, widest, limit)),
        json: found.iter().map(as_json),
        notes: vec![format!("{summary}; {help}")],
        empty: summary,
    }
    .print(output)?;
    // Printed last, and in the exit code: a list with gaps must not pass for a whole one.
    match unread.into_iter().next() {
        Some(error) if !stdout::has_gone() => Err(error),
        _ => Ok(code),
    }
}

/// Returns the entries of all rooms of a run, and the decisions about its changes.
fn entries_of(reader: &StoreReader, run: &RoomId) -> Result<Vec<(RoomId, AuditEntry)>, CliError> {
    let mut all = Vec::new();
    for journal in journals(reader, run)? {
        let (room, records) = journal?;
        all.extend(entries(&retold(records)).into_iter().map(|entry| (room.clone(), entry)));
    }
    let decisions = reader.change_decisions(run)?;
    all.extend(decisions.iter().map(|decision| (run.clone(), decision_entry(decision))));
    Ok(all)
}

fn kind(word: &str) -> Result<AuditKind, CliError> {
    AuditKind::from_name(word).ok_or_else(|| {
        let known = AuditKind::ALL.iter().map(|kind| kind.as_str());
        CliError::usage(format!("the kind {word:?} does not exist")).known(
            word,
            "the kinds are",
            known,
        )
    })
}

/// An entry in rows of at most `limit` columns. Its text continues below itself, or below the kind
/// on a narrow terminal. The kind takes `widest` columns.
fn rows(address: &str, entry: &AuditEntry, widest: usize, limit: Option<usize>) -> Vec<String> {
    let at = moment(entry.at);
    let is_narrow = limit.is_some_and(|limit| limit < WIDE);
    // On a narrow terminal, from the month to the minute.
    let at = if is_narrow { at[5..MOMENT - 3].to_owned() } else { at };
    let at = at + " UTC";
    let indent = if is_narrow { at.len() + 3 } else { at.len() + widest + 2 };
    let kind = StyledText::new(style_of(entry.kind), entry.kind.as_str());
    let parts = [
        StyledText::new(NAME, entry.plugin.as_ref().map(ToString::to_string).unwrap_or_default()),
        StyledText::plain(entry.message.as_str()),
    ];
    let parts: Vec<StyledText> = parts.into_iter().filter(|part| !part.text.is_empty()).collect();
    let row = format!(
        "{} {} {} {}",
        paint(FAINT, at),
        cell(&[kind], widest),
        line(&parts, LONGEST).0,
        paint(FAINT, format_args!("[{address}]"))
    );
    match limit {
        Some(limit) => wrap_hanging(&row, indent, limit),
        None => vec![row],
    }
}

fn style_of(kind: AuditKind) -> Style {
    match kind {
        AuditKind::Denied
        | AuditKind::GateBlocked
        | AuditKind::Faulted
        | AuditKind::Interrupted => BAD,
        AuditKind::ApprovalRequested
        | AuditKind::ApprovalRefused
        | AuditKind::GateModified
        | AuditKind::AnswerOverruled
        | AuditKind::ResultReplaced
        | AuditKind::SideEffect
        | AuditKind::Stopped
        | AuditKind::Replaced
        | AuditKind::LimitRequested
        | AuditKind::LimitRaised
        | AuditKind::LimitRefused
        | AuditKind::LimitIgnored
        | AuditKind::Resumed
        | AuditKind::ChangesDropped => ODD,
        AuditKind::Approved | AuditKind::Message | AuditKind::ChangesApplied => GOOD,
        AuditKind::Granted | AuditKind::Signed => FAINT,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ui::show::columns::width;

    #[test]
    fn an_entry_is_whole_at_any_width() {
        let target = "/notes/skerryvore.md ".repeat(9);
        let message = format!("files: {target}\u{1b}[2J(config: outside every granted folder)");
        let entry = AuditEntry {
            seq: Some(17),
            at: Millis(1_795_380_099_975),
            principal: "operator".to_owned(),
            by: None,
            kind: AuditKind::Denied,
            plugin: Some("notes".into()),
            message,
        };
        let words = |rows: &[String]| -> String {
            let text = anstream::adapter::strip_str(&rows.join(" ")).to_string();
            text.split_whitespace().skip(3).collect::<Vec<_>>().join(" ")
        };
        let unbroken = rows("3f2a91c0:17", &entry, 18, None);
        assert!(
            words(&unbroken)
                .ends_with("\\u{1b}[2J(config: outside every granted folder) [3f2a91c0:17]")
        );
        for limit in [40, 60, 80, 120] {
            let rows = rows("3f2a91c0:17", &entry, 18, Some(limit));
            assert_eq!(words(&rows), words(&unbroken), "{limit}");
            let columns = |row: &String| width(&anstream::adapter::strip_str(row).to_string());
            assert!(rows.len() > 1 && rows.iter().all(|row| columns(row) <= limit), "{rows:#?}");
        }
    }
}
