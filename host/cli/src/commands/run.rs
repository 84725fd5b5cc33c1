//! `conclave run [CONFIG] [TEXT]`: runs the entry task once. The answer goes to stdout, everything
//! else to stderr.

mod input;

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

#[cfg(feature = "postgres")]
use conclave_runtime::store::{HostRow, StoreReader};
use conclave_runtime::{Prepared, RunInput, RunOptions};
#[cfg(feature = "postgres")]
use serde_json::json;

use crate::args::{self, Approvals, OutputArgs, Questions};
#[cfg(feature = "postgres")]
use crate::commands::worker::shared_address;
use crate::program::error::CliError;
use crate::program::exit;
use crate::session::context::{RunContext, RunStyle};
use crate::session::failure::unkept;
use crate::state::attach;
use crate::state::interrupted_runs;
use crate::state::journals::{RunCommand, RunStorage};
use crate::state::setup::{self, EngineStart};
use crate::state::store_address::with_named_store;
use crate::state::watch;
use crate::ui::interrupt::Interrupts;
#[cfg(feature = "postgres")]
use crate::ui::show::printable;
use crate::ui::show::{FAINT, head, paint};
use crate::ui::stderr;
#[cfg(feature = "postgres")]
use crate::ui::stdout;

use input::RunRoom;

pub(crate) async fn run(
    args: args::RunArgs,
    output: OutputArgs,
    mut interrupts: Interrupts,
) -> Result<u8, CliError> {
    let (file, text) = args.target.resolve()?;
    let message = input::message(text)?;
    // Only checked here: under `--watch` a wrong combination of options would be reported again and
    // again, and never end the program.
    args.trace.detail(output)?;
    if !args.watch {
        return once(&args, &file, message, output, &mut interrupts).await;
    }
    loop {
        let code = match once(&args, &file, message.clone(), output, &mut interrupts).await {
            Ok(code) => code,
            // Under `--watch` the author fixes the error and saves, which starts the next run.
            Err(error) => {
                stderr::error(&error);
                error.code()
            }
        };
        if code == exit::INTERRUPTED {
            return Ok(code);
        }
        if !output.quiet {
            stderr::line(format_args!(
                "{}\n",
                paint(FAINT, "waiting for a file to change; Ctrl-C ends")
            ));
        }
        tokio::select! {
            () = watch::changes(&file) => {}
            () = interrupts.next() => return Ok(code),
        }
    }
}

async fn once(
    args: &args::RunArgs,
    file: &Path,
    message: Option<String>,
    output: OutputArgs,
    interrupts: &mut Interrupts,
) -> Result<u8, CliError> {
    let loading = Instant::now();
    let (models, locked) = (args.model.models()?, args.locked.locked);
    let engine = EngineStart::begin();
    let config = setup::read_config(file, &models)?;
    let keep = with_named_store(&args.keep, &config)?;
    // Before this run is one of them.
    let interrupted =
        interrupted_runs::interrupted_with(keep.store.as_ref(), ("run", file), output);
    let room = RunRoom::find(args.input.room.as_deref(), &keep, file)?;
    let answers = args.input.answers.as_deref().map(input::answers).transpose()?;
    // A worker has no terminal.
    let (approvals, questions) = match args.detach {
        true => (Approvals::Wait, Questions::Wait),
        false => (args.approvals, args.questions),
    };
    let storage = RunStorage::open(
        &room.keep,
        RunCommand {
            questions: Some(questions),
            ..RunCommand::new("run", file, &config, locked).with_approvals(approvals)
        },
    )?;
    // Another process may have begun the room's first run since it was looked for; from here on the
    // store belongs to this one.
    let room = match args.input.room.as_deref() {
        Some(name) => RunRoom::find(Some(name), &keep, file)?,
        None => room,
    };
    let host = Arc::new(setup::open_host_keeping(file, &storage, engine)?);
    let attachments = attach::all(&**host.blobs(), &args.attach)?;
    let prepared = setup::prepare_with(&host, (file, &config), locked, output).await?;
    let base_input = input::input(&args.input, message, prepared.setup(), room.is_stored)?;
    let input = RunInput { attachments, ..base_input };
    let style = RunStyle { output, trace: args.trace, verbose: args.verbose, approvals, questions };
    let context = RunContext::new(&prepared, file, &storage, style, interrupts)?
        .answering(answers.unwrap_or_default());
    let (room, is_stored) = (room.id, room.is_stored);
    if args.detach {
        return detach(&prepared, input, &context, storage, output).await;
    }
    let options = RunOptions { ids: Arc::new(room.clone()), ..context.options(&storage) };
    interrupted_runs::report_interrupted(&interrupted);
    if !output.result_only() {
        head::print(&prepared, Some(&room), loading.elapsed());
    }
    context.legend();
    let started = Instant::now();
    interrupts.run_begins();
    let session = if is_stored {
        prepared.reopen(&room, options).await?
    } else {
        prepared.session(options).map_err(|failure| unkept(&failure, &room, &storage))?
    };
    // The store is this process's own now, so nothing comes between this and the start.
    let run = session.start(input).map_err(|error| CliError::usage(error.to_string()))?;
    let watched = args
        .watch
        .then(|| watch::rebuilt_components(&prepared, run.handle(), Arc::clone(&context.screen)));
    let outcome = context.follow(run.handle(), run.outcome(), (&room, &storage, &host)).await;
    drop(watched);
    context.conclude(&*outcome?, started, (&room, &storage, &host)).await
}

/// Begins a run for the workers of its store.
#[cfg(feature = "postgres")]
async fn detach(
    prepared: &Prepared,
    input: RunInput,
    context: &RunContext,
    storage: RunStorage,
    output: OutputArgs,
) -> Result<u8, CliError> {
    let pool = prepared.pool();
    let storage = storage.for_pool(pool.clone());
    let address = shared_address(storage.address(), "--detach")?;
    let run = prepared
        .enqueue(input, context.options(&storage))
        .await
        .map_err(|error| CliError::internal(error.to_string()))?;
    if output.json {
        stdout::json(json!({ "type": "queued", "run": run, "pool": pool }))?;
        return Ok(exit::OK);
    }
    stdout::line(&run)?;
    if output.quiet {
        return Ok(exit::OK);
    }
    // The run is queued even if the list of workers cannot be read.
    let hosts = match StoreReader::open(address).and_then(|reader| reader.hosts()) {
        Ok(hosts) => hosts,
        Err(error) => {
            stderr::warning(printable(&error.to_string()));
            return Ok(exit::OK);
        }
    };
    let takes = |host: &HostRow| {
        host.is_live
            && host.pool.as_deref().is_some_and(|pools| pools.split(' ').any(|one| one == pool))
    };
    if hosts.iter().any(takes) {
        stderr::note(format_args!("a worker takes it; `conclave show {run}` shows how far it is"));
    } else {
        stderr::warning(format_args!(
            "no worker takes runs of pool {pool} now: `conclave worker CONFIG` with the same config, components and version does"
        ));
    }
    Ok(exit::OK)
}

#[cfg(not(feature = "postgres"))]
async fn detach(
    _: &Prepared,
    _: RunInput,
    _: &RunContext,
    _: RunStorage,
    _: OutputArgs,
) -> Result<u8, CliError> {
    Err(CliError::left_out("postgres"))
}
