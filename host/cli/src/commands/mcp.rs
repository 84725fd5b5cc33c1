//! `conclave mcp FILE`: serves the tools of a config to a client of the Model Context Protocol.
//! Stdin and stdout belong to the client, so all output for users goes to stderr.

#[cfg(unix)]
mod client_pipes;
mod refusals;

use std::sync::Arc;
use std::time::Instant;

use conclave_core::config::ConfigProblem;
use conclave_core::permissions::grants::ToolPattern;
use conclave_core::types::ids::TaskName;
use conclave_mcp::serve::{self, OfferError, Selection, ServeError, Service};
use conclave_runtime::ids::{Ids, RandomIds};
use conclave_runtime::subscribe::{Subscriber, Subscribers};
use conclave_runtime::{Prepared, RunOptions};

use crate::args::{Mcp, OutputArgs};
use crate::program::error::CliError;
use crate::program::exit;
use crate::state::control_inbox::ControlListener;
use crate::state::interrupted_runs::{CLIENT, give_up_calls};
use crate::state::journals::{ClientCallIds, RunCommand, RunStorage};
use crate::state::observers;
use crate::state::setup::{self, EngineStart, Warnings};
use crate::state::store_address::with_named_store;
use crate::state::telemetry;
use crate::ui::interrupt::{Interrupts, terminated};
use crate::ui::screen::{Screen, Verbosity};
use crate::ui::show::trace::TracePrinter;
use crate::ui::show::{head, plural};
use crate::ui::stderr;
use crate::ui::terminal::NoClient;
use refusals::RefusalPrinter;

pub(crate) async fn mcp(
    args: Mcp,
    output: OutputArgs,
    mut interrupts: Interrupts,
) -> Result<u8, CliError> {
    if output.json {
        return Err(CliError::usage("--json cannot be used: stdout belongs to the client")
            .hint("leave it out"));
    }
    let loading = Instant::now();
    let (models, locked) = (args.model.models()?, args.locked.locked);
    let engine = EngineStart::begin();
    let config = setup::read_config(&args.file, &models)?;
    let keep = with_named_store(&args.keep, &config)?;
    let storage = RunStorage::open(&keep, RunCommand::bulk(CLIENT, &args.file, &config, locked))?;
    // Before the first call of this process, whose calls would look interrupted too.
    if let Some(store) = storage.store() {
        give_up_calls(store);
    }
    let host = Arc::new(setup::open_host_keeping(&args.file, &storage, engine)?);
    let selection = Selection {
        task: args.task.as_deref().map(TaskName::from),
        patterns: args.tools.iter().map(|pattern| checked(pattern)).collect::<Result<_, _>>()?,
        underscores: args.underscores,
        ask: args.entry,
    };
    let holds =
        |prepared: &Prepared, warning: &ConfigProblem| !is_of_served(prepared, &selection, warning);
    let prepared = Arc::new(
        setup::prepare_and_warn(
            &host,
            (&args.file, &config),
            locked,
            output,
            (Warnings::Counted, holds),
        )
        .await?
        .0,
    );
    let names = serve::names(&prepared, &selection).map_err(|error| {
        let failure = CliError::usage(error.to_string());
        let OfferError::NoTask(task) = &error else { return failure };
        let known = prepared.setup().tasks.keys().map(TaskName::as_str);
        failure.known(task, "its tasks are", known)
    })?;
    let id = RandomIds.run();
    if !output.quiet {
        head::print_served(&prepared, loading.elapsed());
        let count = plural(names.len() as u64, "tool", "tools");
        let what = format!("serving {id}: {count} on stdin and stdout: {}", names.join(", "));
        stderr::note(what);
    }
    let ids = ClientCallIds::new(id);
    let screen = Screen::new(Verbosity::of(output));
    let mut subscribers: Vec<Arc<dyn Subscriber>> = Vec::new();
    if !output.quiet {
        let screen = Arc::clone(&screen);
        subscribers.push(Arc::new(RefusalPrinter::new(
            Arc::clone(&screen),
            Arc::clone(prepared.setup()),
            storage.is_kept(),
        )));
        subscribers.push(Arc::new(
            TracePrinter::of_run(screen, args.verbose, prepared.setup())
                .with_addresses(storage.is_kept()),
        ));
    }
    telemetry::add(&mut subscribers);
    let options = RunOptions {
        ids: Arc::new(ids),
        // The client gets the answer of `ask`, and no message before it.
        channels: Arc::new(NoClient),
        journals: storage.journals(),
        subscribers: Subscribers::new(subscribers),
        ..RunOptions::default()
    };
    let service = Service { prepared, selection, options, blobs: Arc::clone(host.blobs()) };
    let _attending = storage.store().map(|store| ControlListener::begin(store, &host, &screen));
    interrupts.run_begins();
    #[cfg(unix)]
    let (from, to) = client_pipes::open();
    #[cfg(not(unix))]
    let (from, to) = (tokio::io::stdin(), tokio::io::stdout());
    let ended = tokio::select! {
        served = serve::serve(service, from, to) => served.map(|()| exit::OK).map_err(|error| match error {
            ServeError::Offer(error) => CliError::usage(error.to_string()),
            error @ ServeError::Beginning(_) => CliError::usage(error.to_string()),
        }),
        () = interrupts.next() => {
            host.stop_all("interrupted");
            Ok(exit::INTERRUPTED)
        }
        // The usual end of a server, and so no failure.
        () = terminated() => {
            host.stop_all("the program received SIGTERM");
            Ok(exit::OK)
        }
    };
    observers::drain(&host, storage.is_kept(), output, &interrupts).await?;
    ended
}

/// Parses `plugin.tool`, `plugin.*` or `*`.
fn checked(pattern: &str) -> Result<ToolPattern, CliError> {
    let is_one = pattern == "*"
        || pattern
            .split_once('.')
            .is_some_and(|(plugin, tool)| !plugin.is_empty() && !tool.is_empty());
    if is_one {
        return Ok(ToolPattern(pattern.to_owned()));
    }
    Err(CliError::usage(format!("--tools {pattern} is not a pattern of tools"))
        .hint("write `plugin.tool`, or `plugin.*` for all of a plugin"))
}

/// Whether the warning is about an unused plugin whose tools this client is served.
fn is_of_served(prepared: &Prepared, selection: &Selection, warning: &ConfigProblem) -> bool {
    let Some(unused) = &warning.unused_plugin else { return false };
    // With dots: a name with underscores does not show where that of the plugin ends.
    let dotted = Selection { underscores: false, ..selection.clone() };
    let names = serve::names(prepared, &dotted).unwrap_or_default();
    let mut plugins = names.iter().filter_map(|name| name.split_once('.'));
    plugins.any(|(plugin, _)| plugin == unused.as_str())
}
