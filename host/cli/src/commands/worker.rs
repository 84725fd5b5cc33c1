//! `conclave worker [CONFIG…]`: a host process without a terminal, which takes due runs of a shared
//! store, brings them forward, and gives back those that sleep.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use conclave_core::types::ids::{ChannelId, RoomId, TaskName};
use conclave_runtime::channel::{Channels, HumanAnswer, OutgoingMessage};
use conclave_runtime::clock::BoxFuture;
use conclave_runtime::store::{RunOrigin, Store, StoreAddress, StoreError};
use conclave_runtime::worker::{Worker, WorkerEvent, WorkerPool};
use conclave_runtime::{Host, Prepared, RunOptions};
use serde_json::json;

use crate::args::{Approvals, CONFIG, Keep, OutputArgs, Questions, TraceChoice, WorkerArgs};
use crate::program::error::CliError;
use crate::program::exit;
use crate::session::context::{RunContext, RunStyle};
use crate::state::journals::RunStorage;
use crate::state::setup::{self, EngineStart};
use crate::state::store_address::with_named_store;
use crate::state::stores;
use crate::ui::interrupt::{Interrupts, terminated};
use crate::ui::journald::Priority;
use crate::ui::log::{self, LogFields, RunLog};
use crate::ui::output::{self, OutputKind};
use crate::ui::show::{BAD, FAINT, NAME, ODD, one_line, paint, plural, printable, show_path};
use crate::ui::{stderr, stdout};

/// The pauses between two attempts to reach the database at the start.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// The time without an error after which it counts as a new one.
const OUTAGE_OVER: Duration = Duration::from_secs(60);
/// Characters of an error that are shown.
const SHOWN: usize = 300;

/// The channels of a run without a terminal: its questions wait for `conclave answer`, and its
/// messages are in its journal.
struct NoTerminal;

impl Channels for NoTerminal {
    fn ask(&self, _: ChannelId, _: TaskName, _: String) -> BoxFuture<'static, Option<HumanAnswer>> {
        // The room takes the answer of a control message, and drops this future.
        Box::pin(std::future::pending())
    }

    fn send(&self, _: OutgoingMessage) -> BoxFuture<'static, Result<(), String>> {
        Box::pin(std::future::ready(Ok(())))
    }
}

/// A config whose runs the worker takes.
struct ServedConfig {
    file: PathBuf,
    storage: RunStorage,
    host: Arc<Host>,
    prepared: Arc<Prepared>,
}

pub(crate) async fn worker(
    args: WorkerArgs,
    output: OutputArgs,
    mut interrupts: Interrupts,
) -> Result<u8, CliError> {
    log::begin(args.log.format);
    let files =
        if args.configs.is_empty() { vec![PathBuf::from(CONFIG)] } else { args.configs.clone() };
    let address = address(&args, &files)?;
    // One for the whole of the worker, so that no signal gets lost between two of them.
    let mut terminated = Box::pin(terminated());
    let Some(store) = open_when_reached(&address, output, terminated.as_mut()).await? else {
        return Ok(exit::OK);
    };
    let mut configs = Vec::with_capacity(files.len());
    for file in files {
        configs.push(ServedConfig::load(file, &store, &args, output).await?);
    }
    let style = RunStyle {
        output: OutputArgs { quiet: true, ..output },
        trace: TraceChoice::default(),
        verbose: false,
        approvals: Approvals::Wait,
        questions: Questions::Wait,
    };
    let contexts: Vec<RunContext> = configs
        .iter()
        .map(|config| {
            let ServedConfig { file, storage, prepared, .. } = config;
            RunContext::new(prepared, file, storage, style, &interrupts)
        })
        .collect::<Result<_, _>>()?;
    let pools: Vec<WorkerPool> = configs.iter().map(ServedConfig::pool).collect();
    if !output.result_only() {
        report_start(&address, &configs, &pools, args.rooms);
    }
    let names: Vec<String> = pools.iter().map(|pool| pool.name.clone()).collect();
    let run_log = log::is_json().then(|| Arc::new(RunLog::new(None, false)));
    let options = |pool: &WorkerPool, _: &RoomId| {
        let index = names.iter().position(|name| *name == pool.name).unwrap_or_default();
        let mut options = contexts[index].options(&configs[index].storage);
        if let Some(log) = &run_log {
            options.subscribers = options.subscribers.with(Arc::clone(log) as _);
        }
        RunOptions { channels: Arc::new(NoTerminal), ..options }
    };
    interrupts.run_begins();
    // Runs are given back, however long their journals take.
    interrupts.lingers();
    let stop = async {
        tokio::select! {
            () = interrupts.next() => {}
            () = terminated => {}
        }
    };
    let worker = Worker::new(&store, pools, args.rooms as usize).closes_store();
    let outages = Mutex::new(Outages::default());
    let notify = |event: WorkerEvent<'_>| {
        let mut outages = outages.lock().unwrap_or_else(PoisonError::into_inner);
        let is_news = match &event {
            WorkerEvent::Store(error) => outages.note(error.to_string(), Instant::now()),
            _ => true,
        };
        if is_news {
            report(&event, output);
        }
    };
    worker.work(options, stop, notify).await;
    for config in &configs {
        crate::state::observers::drain(&config.host, true, output, &interrupts).await?;
    }
    Ok(exit::OK)
}

/// The errors of a store that is out of reach for long, or lacks its folder. It is asked twice a
/// second, and each error is reported once while it lasts, whatever happens in between.
#[derive(Default)]
struct Outages(BTreeMap<String, Instant>);

impl Outages {
    /// Notes an error that occurs now. Returns whether it did not occur within the last minute.
    fn note(&mut self, error: String, now: Instant) -> bool {
        self.0.retain(|_, last| now.duration_since(*last) < OUTAGE_OVER);
        self.0.insert(error, now).is_none()
    }
}

/// The address of the store that the workers share.
fn address(args: &WorkerArgs, files: &[PathBuf]) -> Result<StoreAddress, CliError> {
    let config = setup::read_config(&files[0], &args.model.models()?)?;
    let keep = Keep { store: args.store.clone(), ..Keep::default() };
    shared_address(with_named_store(&keep, &config)?.store, "a worker")
}

/// Opens the store, however long its database cannot be reached. `None` if the worker was asked to
/// stop meanwhile.
async fn open_when_reached(
    address: &StoreAddress,
    output: OutputArgs,
    mut stop: Pin<&mut impl Future<Output = ()>>,
) -> Result<Option<Store>, CliError> {
    let (mut pause, mut reported) = (FIRST_PAUSE, String::new());
    loop {
        let of_attempt = address.clone();
        let open = move || stores::open_once(&of_attempt, "worker");
        let opened = tokio::select! {
            biased;
            () = &mut stop => return Ok(None),
            opened = conclave_runtime::blocking::spawn(open) => opened,
        };
        let opened = opened.map_err(|broken| CliError::internal(broken.to_string()))?;
        let Err(error @ StoreError::Unreachable { .. }) = opened else {
            return Ok(Some(opened?));
        };
        let reason = error.to_string();
        if reason != reported {
            report(&WorkerEvent::Store(&error), output);
            if !output.result_only() {
                stderr::line(paint(FAINT, "trying again until it is there"));
            }
            reported = reason;
        }
        tokio::select! {
            biased;
            () = &mut stop => return Ok(None),
            () = tokio::time::sleep(pause) => {}
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Returns the address of a store that hosts share, or the error that `who` needs one.
pub(crate) fn shared_address(
    store: Option<StoreAddress>,
    who: &str,
) -> Result<StoreAddress, CliError> {
    match store {
        Some(address @ StoreAddress::Postgres(_)) => Ok(address),
        Some(StoreAddress::Folder(folder)) => Err(CliError::usage(format!(
            "{who} needs a store that hosts share, and {} is a folder",
            show_path(folder)
        ))
        .hint("--store postgres://USER@HOST/DATABASE, or `store` in the config")),
        None => Err(CliError::usage(format!("{who} needs a store that hosts share"))
            .hint("--store postgres://USER@HOST/DATABASE, or `store` in the config")),
    }
}

impl ServedConfig {
    async fn load(
        file: PathBuf,
        store: &Store,
        args: &WorkerArgs,
        output: OutputArgs,
    ) -> Result<Self, CliError> {
        let engine = EngineStart::begin();
        let config = setup::read_config(&file, &args.model.models()?)?;
        let locked = args.locked.locked;
        let origin = RunOrigin {
            config: std::path::absolute(&file).ok(),
            command: "worker".to_owned(),
            locked,
            ..RunOrigin::default()
        };
        let durability = config.durability.unwrap_or_default();
        let storage = RunStorage::in_store(store.clone(), durability, origin);
        let host = Arc::new(setup::open_host_keeping(&file, &storage, engine)?);
        let prepared = setup::prepare_with(&host, (&file, &config), locked, output).await?;
        Ok(Self { file, storage, host, prepared: Arc::new(prepared) })
    }

    fn pool(&self) -> WorkerPool {
        WorkerPool {
            name: self.prepared.pool(),
            host: Arc::clone(&self.host),
            prepared: Arc::clone(&self.prepared),
        }
    }
}

fn report_start(
    address: &StoreAddress,
    configs: &[ServedConfig],
    pools: &[WorkerPool],
    rooms: u32,
) {
    let count = plural(u64::from(rooms), "run", "runs");
    stderr::line(format_args!("takes up to {count} at once from {address}"));
    for (config, pool) in configs.iter().zip(pools) {
        let pool = paint(FAINT, format_args!("pool {}", pool.name));
        stderr::line(format_args!("  {}  {pool}", show_path(&config.file)));
    }
}

/// Reports an event of the worker, on stdout as JSON or on stderr as a line.
fn report(event: &WorkerEvent<'_>, output: OutputArgs) {
    let (word, run, what) = match event {
        WorkerEvent::Taken(run) => ("taken", Some(*run), None),
        WorkerEvent::Ended(run, outcome) => {
            let reason = if outcome.status.is_success() { "" } else { &*outcome.reason };
            let status = outcome.status.as_str();
            let what =
                if reason.is_empty() { status.to_owned() } else { format!("{status}: {reason}") };
            ("ended", Some(*run), Some(what))
        }
        WorkerEvent::Asleep(run) => ("asleep", Some(*run), None),
        WorkerEvent::Lost(run) => ("lost", Some(*run), None),
        WorkerEvent::Failed(run, reason) => ("failed", Some(*run), Some(reason.clone())),
        WorkerEvent::Stopping => ("stopping", None, None),
        WorkerEvent::GivenBack(run) => ("given-back", Some(*run), None),
        WorkerEvent::LeftToLease(run) => ("left-to-lease", Some(*run), None),
        WorkerEvent::Received(message) => ("received", Some(&message.room), None),
        WorkerEvent::Store(error) => ("store-failed", None, Some(error.to_string())),
    };
    if output.json {
        let line = json!({ "type": "worker", "event": word, "run": run, "reason": what });
        // The journal has what happened; a reader that is gone must not stop the runs.
        let _ = stdout::json(line);
        return;
    }
    if output.quiet {
        return;
    }
    let what = what.map(|what| printable(&one_line(&what, SHOWN)).to_string());
    let text = match (word, &what) {
        ("asleep", _) => "waits for a time or a person; given back".to_owned(),
        ("lost", _) => "goes on at another host".to_owned(),
        ("failed", Some(what)) => format!("could not go on, and rests for 30 s: {what}"),
        ("stopping", _) => "stops; calls in progress get up to 30 s to end".to_owned(),
        ("given-back", _) => "given back".to_owned(),
        ("left-to-lease", _) => {
            "could not be given back, because the store cannot be reached; other workers take it \
             when the lease of this one is over, 15 s after its last renewal"
                .to_owned()
        }
        ("received", _) => "received a message".to_owned(),
        (_, Some(what)) => what.clone(),
        (word, None) => word.to_owned(),
    };
    let (style, level) = match word {
        "failed" | "store-failed" | "left-to-lease" => (BAD, Priority::Error),
        "lost" => (ODD, Priority::Warning),
        _ => (FAINT, Priority::Information),
    };
    let fields = LogFields { level: Some(level), ..LogFields::of(word).run(run) };
    let line = match run {
        Some(run) => format!("{}  {}", paint(NAME, run), paint(style, text)),
        None => paint(style, text).to_string(),
    };
    output::push_with(OutputKind::Told, format!("{line}\n"), &fields);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_the_store_is_reported_once_while_it_lasts() {
        let (mut outages, began) = (Outages::default(), Instant::now());
        let mut is_new = |error: &str, second: u64| {
            outages.note(error.to_owned(), began + Duration::from_secs(second))
        };
        assert!(is_new("no folder", 0) && is_new("unreachable", 1));
        assert!(!is_new("no folder", 30) && !is_new("no folder", 80), "it lasts");
        assert!(is_new("unreachable", 81) && is_new("no folder", 140), "it was over");
    }
}
