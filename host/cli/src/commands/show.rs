//! `conclave show RUN`: the timeline of a run, in the terminal, as JSON, or as a page for a
//! browser; and the prompts of its model calls.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use conclave_core::inspect::prompts::{self, ModelPrompt};
use conclave_core::inspect::timeline::Timeline;
use conclave_core::protocol::event::Record;
use conclave_runtime::durable_file::{self, FileAccess};
use conclave_runtime::store::{RunRow, RunState, StoreAddress, StoreReader};
use serde_json::json;

use crate::args::{self, OutputArgs};
use crate::program::error::CliError;
use crate::program::exit;
use crate::state::observers::{undelivered, undelivered_line};
use crate::state::stored_run::{StoredRun, journals};
use crate::ui::show::agents::Agents;
use crate::ui::show::amounts::now;
use crate::ui::show::page::{BEGIN, page};
use crate::ui::show::prompts::{self as show_prompts, RunPrompts};
use crate::ui::show::run_state::run_state;
use crate::ui::show::timeline::{RunFacts, lines};
use crate::ui::show::{printable, show_path, table, unwritten};
use crate::ui::{stderr, stdout};

pub(crate) fn show(args: &args::Show, output: OutputArgs) -> Result<u8, CliError> {
    if let Some(folder) = args.store.as_ref().and_then(StoreAddress::folder)
        && has_lines(folder)
    {
        let what = format!(
            "{} contains journals of JSON lines, as --journal writes them",
            printable(&folder.display().to_string())
        );
        return Err(CliError::usage(what)
            .hint("read them with `conclave why --journal FOLDER`; `show` reads stores"));
    }
    let (name, seq) = args.run.as_deref().map_or((None, None), |run| match address(run) {
        Some((room, seq)) => (Some(room), Some(seq)),
        None => (Some(run), None),
    });
    let found = StoredRun::resolve(name, args.store.as_ref())?;
    let row = found.row()?;
    let rooms = journals(&found.reader, &found.run())?.map(|room| Ok(room?.1));
    let rooms: Vec<Vec<Record>> = rooms.collect::<Result<_, CliError>>()?;
    if args.prompt {
        return print_prompts(&found, seq, rooms, output);
    }
    if let Some(seq) = seq {
        let what = format!("{}:{seq} is a record, and not a run", found.room);
        return Err(CliError::usage(what).hint(format!(
            "`conclave show {}:{seq} --prompt` shows what a model read, `conclave why {}:{seq}` explains a refusal",
            found.room, found.room
        )));
    }
    let agents = Agents::of(&rooms);
    // Rebuilt only where they are shown.
    let prompts = match args.html.is_some() || output.json {
        true => prompts_of(rooms.clone()),
        false => RunPrompts::default(),
    };
    let mut timeline = timeline(&found, rooms)?;
    // The records of a run that goes on say nothing about the time since the newest.
    if !matches!(row.state, RunState::Ended(_)) {
        timeline.extend(row.until(now()));
    }
    let about = RunFacts {
        state: row.state,
        config: row.config.as_ref().map(|config| config.display().to_string()),
        command: row.command.clone(),
        reason: row.reason.clone(),
        pending_changes: found.reader.pending_changes(&row.run)?,
        blocked_changes: found.reader.blocked_changes(&row.run)?,
        change_decisions: found.reader.change_decisions(&row.run)?,
    };
    if let Some(file) = &args.html {
        return write_page(
            file.as_deref(),
            &row,
            &page(&timeline, &about, &agents.plans(), &prompts),
            output,
        );
    }
    let undelivered = undelivered(&found.reader, &row);
    if output.json {
        let mut value = json!(timeline);
        value["type"] = "timeline".into();
        value["state"] = run_state(row.state, &row.command).1.into();
        (value["config"], value["command"], value["store"]) =
            (json!(row.config), json!(row.command), json!(row.store));
        value["pending_changes"] = about.pending_changes.into();
        value["blocked_changes"] = about.blocked_changes.into();
        value["undelivered_events"] = json!(undelivered);
        value["change_decisions"] = json!(about.change_decisions);
        agents.add_to(&mut value);
        prompts.add_to(&mut value);
        stdout::json(value)?;
        return Ok(exit::OK);
    }
    lines(&timeline, &about, table::total(), args.all).iter().try_for_each(stdout::styled)?;
    agents.lines(matches!(row.state, RunState::Ended(_))).iter().try_for_each(stdout::styled)?;
    for (observer, count) in &undelivered {
        let line = undelivered_line(&row.run, observer, *count);
        stdout::styled(table::note(line))?;
    }
    Ok(exit::OK)
}

/// The room and the record of an address: `RUN:SEQ`.
fn address(text: &str) -> Option<(&str, u64)> {
    let (room, seq) = text.rsplit_once(':')?;
    Some((room, seq.parse().ok()?))
}

fn prompts_of(rooms: Vec<Vec<Record>>) -> RunPrompts {
    RunPrompts::new(rooms.into_iter().flat_map(prompts::prompts).collect())
}

/// Shows the prompt of a model call, or lists those of a run.
fn print_prompts(
    found: &StoredRun,
    seq: Option<u64>,
    rooms: Vec<Vec<Record>>,
    output: OutputArgs,
) -> Result<u8, CliError> {
    let all = prompts_of(rooms);
    let prompts: Vec<&ModelPrompt> = match seq {
        Some(seq) => all.at(&found.room, seq),
        None => all.all().iter().collect(),
    };
    if prompts.is_empty() {
        let run = found.run();
        return Err(match seq {
            Some(seq) => CliError::usage(format!("{}:{seq} asks no model", found.room))
                .hint(format!("`conclave show {run} --prompt` lists the requests to models")),
            None => CliError::usage(format!("the run {run} has asked no model")),
        });
    }
    if output.json {
        for prompt in prompts {
            let mut value = json!(prompt.written());
            value["type"] = "prompt".into();
            (value["address"], value["model"]) =
                (show_prompts::address(prompt).into(), json!(prompt.model));
            (value["task"], value["plugin"]) = (json!(prompt.task), json!(prompt.plugin));
            stdout::json(value)?;
        }
        return Ok(exit::OK);
    }
    if seq.is_none() && prompts.len() > 1 {
        prompts.iter().map(|prompt| show_prompts::listed(prompt)).try_for_each(stdout::unbroken)?;
        let last = prompts.last().map(|prompt| show_prompts::address(prompt));
        let what = format!("`conclave show {} --prompt` shows one", last.unwrap_or_default());
        stdout::styled(table::note(what))?;
        return Ok(exit::OK);
    }
    for prompt in prompts {
        show_prompts::rows(prompt, table::total()).iter().try_for_each(stdout::unbroken)?;
    }
    Ok(exit::OK)
}

/// Whether a folder is no store but holds a journal of lines.
fn has_lines(folder: &Path) -> bool {
    let mut entries = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok().map(|entry| entry.path()));
    let is_store = StoreReader::open(folder).is_ok();
    !is_store && entries.any(|path| path.extension().is_some_and(|extension| extension == "jsonl"))
}

fn timeline(found: &StoredRun, rooms: Vec<Vec<Record>>) -> Result<Timeline, CliError> {
    let run = found.run();
    let none = || {
        CliError::usage(format!("the run {run} has no readable records"))
            .hint("`conclave store check` shows the damage")
    };
    Timeline::of(rooms).ok_or_else(none)
}

fn write_page(
    file: Option<&Path>,
    row: &RunRow,
    page: &str,
    output: OutputArgs,
) -> Result<u8, CliError> {
    if file.is_some_and(|file| file.as_os_str() == "-") {
        stdout::write(page)?;
        return Ok(exit::OK);
    }
    let name: String = row
        .run
        .as_str()
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '-' })
        .collect();
    let file = file.map_or_else(|| PathBuf::from(format!("run-{name}.html")), Path::to_owned);
    if !may_be_written(&file) {
        let what = format!("{} already exists, and is not the page of a run", show_path(&file));
        return Err(CliError::usage(what)
            .hint("name another file with --html=FILE; `--html=-` writes to stdout"));
    }
    write_private(&file, page.as_bytes()).map_err(|error| unwritten(&file, error))?;
    if output.json {
        stdout::json(json!({ "type": "page", "file": file, "run": row.run }))?;
    } else if !output.quiet {
        stderr::line(format_args!(
            "wrote {}; open it in a browser",
            printable(&file.display().to_string())
        ));
    }
    Ok(exit::OK)
}

/// Whether the path is free, or holds a page that this program wrote.
fn may_be_written(file: &Path) -> bool {
    let Ok(mut there) = fs::File::open(file) else { return !file.exists() };
    let mut begin = vec![0; BEGIN.len()];
    there.read_exact(&mut begin).is_ok() && begin == BEGIN.as_bytes()
}

/// Writes a file that only its owner can read: a page holds the run's messages.
fn write_private(file: &Path, bytes: &[u8]) -> std::io::Result<()> {
    durable_file::replace(file, bytes, &FileAccess::Private)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_page_of_a_run_is_overwritten() {
        let temp = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = temp.path().join(name);
            fs::write(&path, text).unwrap();
            path
        };
        assert!(may_be_written(&temp.path().join("new.html")));
        assert!(may_be_written(&file("ours.html", &format!("{BEGIN}<html>"))));
        assert!(!may_be_written(&file("conclave.toml", "entry = \"desk\"")));
        assert!(!may_be_written(&file("empty.html", "")));
    }
}
