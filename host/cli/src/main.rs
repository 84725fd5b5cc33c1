//! The program `conclave`. Only this crate prints, exits, reads the environment and installs signal
//! handlers. It makes no decisions about tasks.

// The folders stand here from the lowest to the highest; a folder imports only from those above it in
// this list, which `cargo xtask test` checks.
/// Errors, exit codes, and the processes that compile and that start programs.
mod program {
    pub(crate) mod compile;
    pub(crate) mod error;
    #[cfg(feature = "exec")]
    pub(crate) mod exec;
    pub(crate) mod exit;
    pub(crate) mod json_object;
    pub(crate) mod mcp_servers;
    pub(crate) mod shell;
}
mod args;
/// The terminal: output, screen, questions, the keys of the user.
mod ui {
    pub(crate) mod ask;
    pub(crate) mod interrupt;
    pub(crate) mod journald;
    pub(crate) mod log;
    pub(crate) mod output;
    pub(crate) mod screen;
    pub(crate) mod show;
    pub(crate) mod stderr;
    pub(crate) mod stdout;
    pub(crate) mod terminal;
    pub(crate) mod user;
}
/// What the program finds on this machine: configs, components, stores, runs, other processes.
mod state {
    pub(crate) mod attach;
    pub(crate) mod config_file;
    pub(crate) mod control;
    pub(crate) mod control_inbox;
    pub(crate) mod folders;
    pub(crate) mod interrupted_runs;
    pub(crate) mod journals;
    pub(crate) mod lock_file;
    pub(crate) mod machine;
    pub(crate) mod observers;
    pub(crate) mod pending_call;
    pub(crate) mod project;
    #[cfg(feature = "registry")]
    pub(crate) mod registry;
    #[cfg(not(feature = "registry"))]
    #[path = "no_registry.rs"]
    pub(crate) mod registry;
    pub(crate) mod sdk;
    pub(crate) mod setup;
    #[cfg(feature = "postgres")]
    pub(crate) mod shared_kv;
    pub(crate) mod source;
    pub(crate) mod state_folder;
    pub(crate) mod stock;
    pub(crate) mod store_address;
    pub(crate) mod store_check;
    pub(crate) mod stored_run;
    pub(crate) mod stores;
    #[cfg(feature = "otlp")]
    pub(crate) mod telemetry;
    #[cfg(not(feature = "otlp"))]
    #[path = "no_telemetry.rs"]
    pub(crate) mod telemetry;
    pub(crate) mod toolchain;
    pub(crate) mod watch;
}
mod approve;
/// A run at this terminal, new or resumed: its participants, its failures, the report of its end.
mod session {
    pub(crate) mod context;
    pub(crate) mod ending;
    pub(crate) mod failure;
}

mod commands;

#[cfg(test)]
mod documented;

use std::process::ExitCode;

use args::{Cli, Command, OutputArgs, PluginCommand};
use program::error::CliError;
use ui::interrupt::Interrupts;

/// Runs allocate small pieces and free them on other threads.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    if let Some(code) = program::compile::run_if_requested(std::env::args_os()) {
        return code;
    }
    #[cfg(feature = "exec")]
    if let Some(code) = program::exec::run_if_requested(std::env::args_os()) {
        return code;
    }
    let cli = Cli::read();
    if cli.output.no_color {
        anstream::ColorChoice::Never.write_global();
    }
    let interrupts = Interrupts::listen();
    let runs = cli.command.runs();
    if runs {
        ui::output::begin();
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            return report(
                cli.output,
                &CliError::internal(format!("the async runtime could not start: {error}")),
            );
        }
    };
    let work = async {
        if runs {
            state::telemetry::begin(cli.output)?;
        }
        dispatch(cli.command, cli.output, interrupts).await
    };
    let code = match runtime.block_on(work) {
        Ok(code) => ExitCode::from(code),
        Err(error) => report(cli.output, &error),
    };
    ui::output::drain();
    state::telemetry::end();
    // A thread that still reads from the terminal, or compiles, must not keep the program alive.
    runtime.shutdown_background();
    state::stores::wait_until_closed();
    program::mcp_servers::stop_all();
    code
}

async fn dispatch(
    command: Command,
    output: OutputArgs,
    interrupts: Interrupts,
) -> Result<u8, CliError> {
    match command {
        Command::Run(args) => commands::run::run(args, output, interrupts).await,
        Command::Chat(args) => commands::chat::chat(args, output, interrupts).await,
        Command::Batch(args) => commands::batch::batch(args, output, interrupts).await,
        Command::Resume(args) => commands::resume::resume(&args, output, interrupts).await,
        Command::Stop(args) => commands::stop::stop(&args, output).await,
        Command::Wait(args) => commands::wait::wait(&args, output, interrupts).await,
        Command::Pause(args) => commands::pause::pause(&args, output).await,
        Command::Tell(args) => commands::tell::tell(&args, output).await,
        Command::Approve(args) => commands::approve::approve(&args, output),
        Command::Refuse(args) => commands::approve::refuse(&args, output),
        Command::Answer(args) => commands::answer::answer(&args, output),
        Command::Runs(args) => commands::runs::runs(&args, output),
        Command::Show(args) => commands::show::show(&args, output),
        Command::Diff(args) => commands::diff::diff(&args, output),
        Command::Tasks(args) => commands::tasks::tasks(&args, output).await,
        Command::Approvals(args) => commands::approvals::approvals(&args, output),
        Command::Audit(args) => commands::audit::audit(&args, output),
        Command::Store(command) => commands::store::store(&command, output),
        Command::Check(args) => commands::check::check(args, output).await,
        Command::Init(args) => commands::init::init(&args, output),
        Command::Add(args) => commands::add::add(&args, output).await,
        Command::Grant(args) => commands::grant::grant(&args, output),
        Command::Revoke(args) => commands::grant::revoke(&args, output),
        Command::Trust(command) => commands::trust::trust(&command, output),
        Command::Why(args) => commands::why::why(&args, output),
        Command::Can(args) => commands::can::can(&args, output).await,
        Command::Trajectory(command) => {
            commands::trajectory::trajectory(command, output, interrupts).await
        }
        #[cfg(feature = "mcp")]
        Command::Mcp(args) => commands::mcp::mcp(args, output, interrupts).await,
        #[cfg(not(feature = "mcp"))]
        Command::Mcp(_) => Err(CliError::left_out("mcp")),
        #[cfg(feature = "serve")]
        Command::Serve(args) => commands::serve::serve(args, output, interrupts).await,
        #[cfg(feature = "serve")]
        Command::Server(command) => commands::server::server(&command, output),
        #[cfg(not(feature = "serve"))]
        Command::Serve(_) | Command::Server(_) => Err(CliError::left_out("serve")),
        #[cfg(feature = "postgres")]
        Command::Worker(args) => commands::worker::worker(args, output, interrupts).await,
        #[cfg(feature = "postgres")]
        Command::Workers(args) => commands::workers::workers(&args, output),
        #[cfg(not(feature = "postgres"))]
        Command::Worker(_) | Command::Workers(_) => Err(CliError::left_out("postgres")),
        Command::Doctor(args) => commands::doctor::doctor(args, output).await,
        Command::Schema => commands::schema::schema(),
        Command::Completions { shell } => commands::manual::completions(shell),
        Command::Man { folder } => commands::manual::man(&folder, output),
        Command::Plugin(PluginCommand::Call(args)) => commands::call::call(&args, output).await,
        Command::Plugin(PluginCommand::New(args)) => commands::new::new(&args, output),
        Command::Plugin(PluginCommand::Build(args)) => commands::build::build(&args, output).await,
        Command::Plugin(PluginCommand::Test(args)) => commands::cases::test(&args, output).await,
        Command::Plugin(PluginCommand::Watch(args)) => {
            commands::watch_plugin::watch(&args, output, interrupts).await
        }
        Command::Plugin(PluginCommand::Inspect(args)) => {
            commands::inspect::inspect(&args, output).await
        }
        Command::Plugin(PluginCommand::Lock(args)) => commands::lock::lock(&args, output).await,
        Command::Plugin(PluginCommand::Upgrade(args)) => {
            commands::upgrade::upgrade(&args, output).await
        }
        #[cfg(feature = "registry")]
        Command::Plugin(PluginCommand::Push(args)) => commands::push::push(&args, output).await,
        #[cfg(feature = "registry")]
        Command::Plugin(PluginCommand::Pull(args)) => commands::pull::pull(&args, output).await,
        #[cfg(feature = "registry")]
        Command::Plugin(PluginCommand::Sign(args)) => commands::sign::sign(&args, output).await,
        #[cfg(feature = "registry")]
        Command::Plugin(PluginCommand::Keygen { file }) => commands::sign::keygen(&file, output),
        #[cfg(not(feature = "registry"))]
        Command::Plugin(
            PluginCommand::Push(_)
            | PluginCommand::Pull(_)
            | PluginCommand::Sign(_)
            | PluginCommand::Keygen { .. },
        ) => Err(CliError::left_out("registry")),
        Command::Plugin(PluginCommand::Embed { file, manifest }) => {
            commands::embed::embed(&file, &manifest, output)
        }
    }
}

/// Reports an error on stderr and, with `--json`, also as the last line of stdout.
fn report(output: OutputArgs, error: &CliError) -> ExitCode {
    if output.json {
        // If stdout cannot be written, stderr still gets the error below.
        let _ = ui::stdout::json(error.to_json());
    }
    ui::stderr::error(error);
    ExitCode::from(error.code())
}
