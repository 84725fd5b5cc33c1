//! `conclave mcp FILE`: the tools of a config for a client that speaks the Model Context Protocol. Stdin and stdout are the client's, so
//! everything that people read goes to stderr.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use conclave_core::grant::ToolPattern;
use conclave_core::ids::{RoomId, TaskName};
use conclave_mcp::serve::{self, Selection, ServeError, Service};
use conclave_runtime::RunOptions;
use conclave_runtime::ids::{Ids, RandomIds};
use conclave_runtime::subscribe::{Subscriber, Subscribers};

use crate::args::{Mcp, Output};
use crate::error::CliError;
use crate::exit;
use crate::interrupt::Interrupts;
use crate::journals::Kept;
use crate::screen::{Loudness, Screen};
use crate::setup;
use crate::show::trace::Trace;
use crate::show::{FAINT, head, paint, plural};

pub(crate) async fn mcp(args: Mcp, output: Output, mut interrupts: Interrupts) -> Result<u8, CliError> {
    if output.json {
        return Err(CliError::usage("`--json` has no place here: stdout is the client's").hint("leave it out"));
    }
    let loading = Instant::now();
    let host = setup::open_host_in(&args.file)?;
    let prepared = Arc::new(setup::prepare_with(&host, &args.file, &args.model.models()?, args.locked.locked, output).await?);
    let selection = Selection {
        task: args.task.as_deref().map(TaskName::from),
        patterns: args.tools.iter().map(|pattern| checked(pattern)).collect::<Result<_, _>>()?,
        underscores: args.underscores,
        ask: args.ask,
    };
    let names = serve::names(&prepared, &selection).map_err(|error| CliError::usage(error.to_string()))?;
    if !output.quiet {
        head::print(&prepared, None, loading.elapsed());
        let count = plural(names.len() as u64, "tool", "tools");
        let what = format!("serving {count} on stdin and stdout: {}", names.join(", "));
        let _ = writeln!(anstream::stderr(), "{}", paint(FAINT, what));
    }
    let ids = KeptIds { folder: args.journal.clone(), off: args.no_journal, config: args.file.clone() };
    let kept = Kept::open(args.journal.as_deref(), args.no_journal, &RandomIds.run(), &args.file);
    let mut subscribers: Vec<Arc<dyn Subscriber>> = Vec::new();
    if !output.quiet {
        let screen = Screen::new(Loudness::of(output));
        subscribers.push(Arc::new(Trace::of_run(screen, args.verbose, prepared.setup()).with_addresses(kept.is_kept())));
    }
    let options =
        RunOptions { ids: Arc::new(ids), journals: kept.journals(), subscribers: Subscribers::new(subscribers), ..RunOptions::default() };
    let service = Service { prepared, selection, options, blobs: Arc::clone(host.blobs()) };
    interrupts.run_begins();
    tokio::select! {
        served = serve::serve(service, tokio::io::stdin(), tokio::io::stdout()) => served.map(|()| exit::OK).map_err(|error| match error {
            ServeError::Offer(error) => CliError::usage(error.to_string()),
            error @ ServeError::Beginning(_) => CliError::usage(error.to_string()),
        }),
        () = interrupts.next() => {
            host.stop_all("interrupted");
            Ok(exit::INTERRUPTED)
        }
        () = told_to_end() => {
            host.stop_all("the program was told to end");
            Ok(exit::OK)
        }
    }
}

/// `plugin.tool`, `plugin.*` or `*`.
fn checked(pattern: &str) -> Result<ToolPattern, CliError> {
    let is_one = pattern == "*" || pattern.split_once('.').is_some_and(|(plugin, tool)| !plugin.is_empty() && !tool.is_empty());
    if is_one {
        return Ok(ToolPattern(pattern.to_owned()));
    }
    Err(CliError::usage(format!("--tools {pattern} names no tool")).hint("write `plugin.tool`, or `plugin.*` for all of a plugin"))
}

/// A client ends the server that it started with a signal, when it does not end by itself.
async fn told_to_end() {
    #[cfg(unix)]
    if let Ok(mut signal) = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) {
        signal.recv().await;
        return;
    }
    std::future::pending::<()>().await;
}

/// Every call is a run of its own, whose config is noted beside its journal.
struct KeptIds {
    folder: Option<PathBuf>,
    off: bool,
    config: PathBuf,
}

impl Ids for KeptIds {
    fn run(&self) -> RoomId {
        let room = RandomIds.run();
        Kept::open(self.folder.as_deref(), self.off, &room, &self.config);
        room
    }
}
