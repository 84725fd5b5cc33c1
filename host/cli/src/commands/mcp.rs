//! `conclave mcp FILE`: serves the tools of a config to a client of the Model Context Protocol.
//! Stdin and stdout belong to the client, so all output for users goes to stderr.

#[cfg(unix)]
mod client_pipes;
mod reads;
mod refusals;
mod served;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use conclave_core::config::ConfigProblem;
use conclave_core::permissions::grants::ToolPattern;
use conclave_core::types::ids::TaskName;
use conclave_mcp::serve::{
    self, ENDPOINT, OfferError, ReadObserver, Selection, ServedFile, Service,
};
use conclave_runtime::ids::{Ids, RandomIds};
use conclave_runtime::subscribe::{Subscriber, Subscribers};
use conclave_runtime::{Prepared, RunOptions};
use tokio::net::TcpListener;

use crate::args::{Mcp, OutputArgs};
use crate::program::error::CliError;
use crate::program::exit;
use crate::state::control_inbox::ControlListener;
use crate::state::interrupted_runs::{CLIENT, give_up_calls};
use crate::state::journals::{ClientCallIds, RunCommand, RunStorage};
use crate::state::observers;
use crate::state::setup::EngineStart;
use crate::state::store_address::with_named_store;
use crate::state::telemetry;
use crate::ui::interrupt::{Interrupts, terminated};
use crate::ui::screen::{Screen, Verbosity};
use crate::ui::show::trace::TracePrinter;
use crate::ui::show::{head, plural};
use crate::ui::stderr;
use crate::ui::terminal::NoClient;
use reads::ReadPrinter;
use refusals::RefusalPrinter;
use served::ServedPlugins;

pub(crate) async fn mcp(
    args: Mcp,
    output: OutputArgs,
    mut interrupts: Interrupts,
) -> Result<u8, CliError> {
    if output.json {
        return Err(CliError::usage("--json cannot be used: stdout belongs to the client")
            .hint("leave it out"));
    }
    let listener = match args.http {
        Some(address) => Some(listen(address).await?),
        None => None,
    };
    let loading = Instant::now();
    let locked = args.locked.locked;
    let engine = EngineStart::begin();
    let served = ServedPlugins::read(&args).await?;
    let config = &served.config;
    let keep = with_named_store(&args.keep, config)?;
    let storage = RunStorage::open(&keep, RunCommand::bulk(CLIENT, &args.file, config, locked))?;
    // Before the first call of this process, whose calls would look interrupted too.
    if let Some(store) = storage.store() {
        give_up_calls(store);
    }
    let host = Arc::new(served.open_host(&args.file, &storage, engine)?);
    let selection = selection(&args, served.is_component())?;
    let holds =
        |prepared: &Prepared, warning: &ConfigProblem| !is_of_served(prepared, &selection, warning);
    let prepared = served.prepare(&host, (&args.file, locked), output, holds).await?;
    let prepared = Arc::new(prepared);
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
        let place = match &listener {
            Some((_, address)) => format!("at http://{address}{ENDPOINT}"),
            None => "on stdin and stdout".to_owned(),
        };
        let what = format!("serving {id}: {count} {place}: {}", names.join(", "));
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
    let reads: Option<Arc<dyn ReadObserver>> = (!output.quiet)
        .then(|| Arc::new(ReadPrinter(Arc::clone(&screen))) as Arc<dyn ReadObserver>);
    let blobs = Arc::clone(host.blobs());
    let service = Service { prepared, selection, options, blobs, reads };
    let _attending = storage.store().map(|store| ControlListener::begin(store, &host, &screen));
    interrupts.run_begins();
    let ended = tokio::select! {
        served = serve_clients(service, listener) => served.map(|()| exit::OK),
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

/// Listens at an address that only programs of this machine reach.
async fn listen(address: SocketAddr) -> Result<(TcpListener, SocketAddr), CliError> {
    if !address.ip().is_loopback() {
        return Err(CliError::usage(format!(
            "--http {address}: other machines reach this address"
        ))
        .hint("its clients are not asked who they are: write 127.0.0.1 or [::1]"));
    }
    let unusable = |error: std::io::Error| CliError::usage(format!("--http {address}: {error}"));
    let listener = TcpListener::bind(address).await.map_err(unusable)?;
    let bound = listener.local_addr().map_err(unusable)?;
    Ok((listener, bound))
}

/// Serves the client on stdin and stdout until it disconnects, or those of a listener for ever.
async fn serve_clients(
    service: Service,
    listener: Option<(TcpListener, SocketAddr)>,
) -> Result<(), CliError> {
    let served = if let Some((listener, _)) = listener {
        serve::serve_http(service, listener, std::future::pending()).await
    } else {
        #[cfg(unix)]
        let (from, to) = client_pipes::open();
        #[cfg(not(unix))]
        let (from, to) = (tokio::io::stdin(), tokio::io::stdout());
        serve::serve(service, from, to).await
    };
    served.map_err(|error| CliError::usage(error.to_string()))
}

/// What the arguments offer to clients.
fn selection(args: &Mcp, is_component: bool) -> Result<Selection, CliError> {
    // A component has no config, so its paths start here, as those of its grants.
    let folder = args.file.parent().filter(|_| !is_component).unwrap_or(Path::new(""));
    let here = std::env::current_dir()
        .map_err(|error| CliError::usage(format!("the current folder cannot be found: {error}")))?;
    let folder = &here.join(folder);
    let file = |argument: &String| {
        ServedFile::parse(argument, folder).map_err(|why| {
            CliError::usage(format!("--resource {argument}: {why}")).hint(
                "write such as --resource notes://plan=plan.md, or 'notes://{day}=days/{day}.md'",
            )
        })
    };
    let patterns = |option: &str, patterns: &[String]| {
        patterns.iter().map(|pattern| checked(option, pattern)).collect::<Result<_, _>>()
    };
    Ok(Selection {
        task: args.task.as_deref().map(TaskName::from),
        patterns: patterns("--tools", &args.tools)?,
        underscores: args.underscores,
        ask: args.entry,
        asked_arguments: patterns("--ask-arguments", &args.asked_arguments)?,
        prompts: args.prompts.iter().map(|task| TaskName::from(task.as_str())).collect(),
        files: args.resources.iter().map(file).collect::<Result<_, _>>()?,
        runs: args.runs,
    })
}

/// Parses `plugin.tool`, `plugin.*` or `*`.
fn checked(option: &str, pattern: &str) -> Result<ToolPattern, CliError> {
    let is_one = pattern == "*"
        || pattern
            .split_once('.')
            .is_some_and(|(plugin, tool)| !plugin.is_empty() && !tool.is_empty());
    if is_one {
        return Ok(ToolPattern(pattern.to_owned()));
    }
    Err(CliError::usage(format!("{option} {pattern} is not a pattern of tools"))
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
