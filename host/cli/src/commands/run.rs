//! `conclave run FILE [MESSAGE]`: the answer on stdout, everything else on stderr.

use std::io::{IsTerminal, Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use conclave_core::message::ToolCall;
use conclave_core::outcome::{Outcome, Status};
use conclave_runtime::ids::{Ids, RandomIds};
use conclave_runtime::subscribe::{Happening, Subscriber, Subscribers};
use conclave_runtime::{Prepared, Run, RunOptions};

use crate::approve::{About, AtTerminal};
use crate::args::{self, Output};
use crate::attach;
use crate::chat::status;
use crate::error::CliError;
use crate::exit::{self, Met};
use crate::interrupt::Interrupts;
use crate::journals::Kept;
use crate::person::Person;
use crate::screen::{Loudness, Screen};
use crate::setup;
use crate::show::steps::Steps;
use crate::show::tally::{Counts, Tally};
use crate::show::trace::Trace;
use crate::show::{BAD, FAINT, ODD, head, paint, plural, printable, time};
use crate::stdout;
use crate::terminal::Terminal;
use crate::watch;

pub(crate) async fn run(args: args::Run, output: Output, mut interrupts: Interrupts) -> Result<u8, CliError> {
    let message = message(args.message.clone())?;
    args.trace.detail(output)?;
    if !args.watch {
        return once(&args, message, output, &mut interrupts).await;
    }
    loop {
        let code = match once(&args, message.clone(), output, &mut interrupts).await {
            Ok(code) => code,
            // An author corrects it and saves; the next start is the answer.
            Err(error) => {
                let _ = writeln!(anstream::stderr(), "{} {}", paint(BAD, "error:"), printable(&error.to_string()));
                error.code()
            }
        };
        if code == exit::INTERRUPTED {
            return Ok(code);
        }
        if !output.quiet {
            let _ = writeln!(anstream::stderr(), "{}\n", paint(FAINT, "waiting for a change; Ctrl-C ends"));
        }
        tokio::select! {
            () = watch::changes(&args.file) => {}
            () = interrupts.next() => return Ok(code),
        }
    }
}

async fn once(args: &args::Run, message: Option<String>, output: Output, interrupts: &mut Interrupts) -> Result<u8, CliError> {
    let loading = Instant::now();
    let host = setup::open_host_keeping(&args.file, args.journal.as_deref())?;
    let attachments = attach::all(&**host.blobs(), &args.attach)?;
    let prepared = setup::prepare_with(&host, &args.file, &args.model.models()?, args.locked.locked, output).await?;
    check_message(&prepared, message.as_deref())?;
    let room = RandomIds.run();
    let kept = Kept::open(args.journal.as_deref(), args.no_journal, &room, &args.file);
    let screen = Screen::new(Loudness::of(output));
    let person = Person::new(Arc::clone(&screen), None, None);
    let tally = Arc::new(Tally::default());
    let approver = AtTerminal::new(Arc::clone(&person), interrupts.clone(), About::new(&prepared, &args.file));
    let mut subscribers: Vec<Arc<dyn Subscriber>> = vec![Arc::clone(&tally) as _];
    if output.json {
        subscribers.push(Arc::new(JsonLinesOnStdout));
    }
    let steps = args.trace.detail(output)?.map(|detail| Steps::of_run(Arc::clone(&screen), detail, prepared.setup()));
    let trace = (steps.is_some() || !(output.json || output.quiet)).then(|| {
        Arc::new(Trace::of_run(Arc::clone(&screen), args.verbose, prepared.setup()).with_addresses(kept.is_kept()).with_steps(steps))
    });
    subscribers.extend(trace.clone().map(|trace| trace as _));
    let options = RunOptions {
        ids: Arc::new(room.clone()),
        attachments,
        channels: Arc::new(Terminal { person: Arc::clone(&person), screen: Arc::clone(&screen), interrupts: interrupts.clone() }),
        approver: Arc::clone(&approver) as _,
        journals: kept.journals(),
        subscribers: Subscribers::new(subscribers),
        ..RunOptions::default()
    };
    if !output.quiet && !output.json {
        head::print(&prepared, Some(&room), loading.elapsed());
    }
    if let Some(trace) = trace {
        trace.legend();
    }
    let started = Instant::now();
    interrupts.run_begins();
    let run = prepared.start(message, options).map_err(|failure| CliError::internal(failure.to_string()))?;
    let watched = args.watch.then(|| watch::rebuilt_components(&prepared, run.stopper(), screen));
    let outcome = follow(run, interrupts).await;
    drop(watched);
    person.leave();
    let outcome = outcome?;
    let met = Met { trouble: tally.trouble(), nobody_to_ask: approver.has_refused_for_nobody() };
    let code = exit::of(outcome.status, met);
    if let Some(why) = tally.why_no_answer().filter(|_| output.quiet && !output.json && !outcome.status.is_success()) {
        // Otherwise it was told when it happened.
        let _ = writeln!(anstream::stderr(), "{} {}", paint(BAD, "model:"), printable(why.trim()));
    }
    finish(&outcome, code, output, started.elapsed(), tally.counts(), args.journal.as_deref())?;
    approver.tell_missing();
    if outcome.status == Status::Stalled && !output.json && asks_user(&prepared) && !person.is_there() {
        let _ = writeln!(anstream::stderr(), "{} {ASKS_NOBODY}", paint(FAINT, "help:"));
    }
    Ok(code)
}

/// What to do about an entry task that asks its user where nobody can answer.
pub(crate) const ASKS_NOBODY: &str = "set `interactive = false` for it, or talk with it: conclave chat";

/// The entry task asks its user after each of its answers.
pub(crate) fn asks_user(prepared: &Prepared) -> bool {
    let setup = prepared.setup();
    setup.tasks.get(&setup.entry).is_some_and(|task| task.interactive)
}

/// The message of the command line; `-`, or nothing when something is piped in, reads stdin.
fn message(given: Option<String>) -> Result<Option<String>, CliError> {
    let piped = given.is_none() && !std::io::stdin().is_terminal();
    if given.as_deref() != Some("-") && !piped {
        return Ok(given);
    }
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).map_err(|error| {
        CliError::usage(format!("the message could not be read from stdin: {error}"))
            .hint("give it as an argument: conclave run FILE \"MESSAGE\"")
    })?;
    let text = text.trim_end().to_owned();
    Ok(if text.is_empty() { None } else { Some(text) })
}

/// An agent that is asked nothing has nothing to answer; only a person at the terminal could make up for it.
fn check_message(prepared: &Prepared, message: Option<&str>) -> Result<(), CliError> {
    if message.is_some() || asks_user(prepared) {
        return Ok(());
    }
    Err(CliError::usage(format!("there is no message for the task {}", prepared.setup().entry)).hint("conclave run FILE \"MESSAGE\""))
}

/// Waits for the end; Ctrl-C stops the run, and the program should that take too long.
async fn follow(run: Run, interrupts: &mut Interrupts) -> Result<Arc<Outcome>, CliError> {
    let stop = run.stopper();
    let mut outcome = std::pin::pin!(run.outcome());
    let ended = tokio::select! {
        outcome = &mut outcome => outcome,
        () = interrupts.next() => {
            stop.stop("Ctrl-C");
            outcome.await
        }
    };
    ended.map_err(|failure| CliError::internal(failure.to_string()))
}

fn finish(outcome: &Outcome, code: u8, output: Output, took: Duration, counts: Counts, journal: Option<&Path>) -> Result<(), CliError> {
    if output.json {
        return stdout::line(serde_json::json!({ "type": "result", "exit_code": code, "outcome": outcome }));
    }
    let mut err = anstream::stderr();
    if outcome.status.is_success() {
        if !output.quiet {
            let _ = writeln!(err);
        }
        match result(outcome) {
            Some(result) => stdout::line(stdout::safe(&result))?,
            // Every ending says why, also when there is no result.
            None => drop(writeln!(err, "{} {}", paint(ODD, outcome.status.as_str()), printable(&outcome.reason))),
        }
    } else {
        let _ = writeln!(err, "\n{} {}", paint(BAD, outcome.status.as_str()), printable(&outcome.reason));
        if let Some(content) = outcome.content.as_deref().filter(|_| outcome.status != Status::Kill) {
            let _ = writeln!(err, "{}", paint(FAINT, format_args!("the last that was said: {}", printable(content))));
        }
        if let Some(hint) = limit_hint(outcome) {
            let _ = writeln!(err, "{}", paint(FAINT, hint));
        }
    }
    if !output.quiet {
        let _ = writeln!(err, "\n{}", paint(FAINT, summary(took, counts, journal)));
    }
    Ok(())
}

/// What the run was for: its text, else a value, else calls, else what it was to be, as JSON; none when it ended without anything.
pub(crate) fn result(outcome: &Outcome) -> Option<String> {
    let text = outcome.content.clone().filter(|content| !content.trim().is_empty());
    let value = || outcome.value.as_ref().map(ToString::to_string);
    let calls = || Some(outcome.tools.iter().map(|call| as_json(call).to_string()).collect::<Vec<_>>().join("\n"));
    let typed = || outcome.typed.as_ref().map(ToString::to_string);
    text.or_else(value).or_else(|| calls().filter(|calls| !calls.is_empty())).or_else(typed)
}

/// A call as results show it.
pub(crate) fn as_json(call: &ToolCall) -> serde_json::Value {
    serde_json::json!({ "name": call.name, "arguments": call.arguments })
}

/// Which key of the config allows more, where a hard limit ended it.
pub(crate) fn limit_hint(outcome: &Outcome) -> Option<String> {
    let key = match outcome.status {
        // Two limits have this end; its reason says which it was.
        Status::MaxTurns if outcome.reason.contains("limits.run.task_turns") => "task_turns",
        Status::MaxTurns => "turns",
        Status::MaxTokens => "tokens",
        Status::MaxCost => "cost_usd",
        Status::Timeout => "wall",
        _ => return None,
    };
    Some(format!("the config allows more with a larger `{key}` under [limits.run]"))
}

fn summary(took: Duration, counts: Counts, journal: Option<&Path>) -> String {
    let mut parts = vec![format!("done in {}", time(took)), plural(counts.sandboxes, "sandbox", "sandboxes")];
    if counts.denials > 0 {
        parts.push(plural(counts.denials, "denial", "denials"));
    }
    if counts.faults > 0 {
        parts.push(plural(counts.faults, "fault", "faults"));
    }
    if counts.approvals > 0 {
        parts.push(format!("{} approved", counts.approvals));
    }
    if counts.refusals > 0 {
        parts.push(format!("{} refused", counts.refusals));
    }
    parts.push(status::spent(counts));
    if let Some(folder) = journal {
        parts.push(format!("journal: {}", folder.display()));
    }
    parts.join(" · ")
}

/// The event stream as NDJSON.
pub(crate) struct JsonLinesOnStdout;

impl Subscriber for JsonLinesOnStdout {
    fn on(&self, happening: &Happening) {
        if let Ok(line) = serde_json::to_string(happening) {
            // The result at the end goes the same way, and says so when stdout cannot be written.
            let _ = stdout::line(line);
        }
    }
}
