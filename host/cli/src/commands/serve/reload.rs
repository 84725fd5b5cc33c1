//! Reads the configs of a running server again at SIGHUP. All of them are taken, or none: one that
//! `conclave check` would refuse leaves everything as it is.

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::sync::Arc;

use conclave_core::config::{Config, changes};
use conclave_core::setup::Setup;
use conclave_core::types::ids::ChannelId;
use conclave_runtime::{Host, Prepared};
use conclave_server::{Gateway, NextConfig, People};
use serde_json::json;

use super::configs::{ServedConfig, web_channels};
use super::service::ServiceManager;
use crate::args::OutputArgs;
use crate::program::error::CliError;
use crate::state::setup::{self, Models};
use crate::ui::log::LogFields;
use crate::ui::screen::Screen;
use crate::ui::show::{BAD, FAINT, paint, show_path};
use crate::ui::stdout;

/// The configs of a running server.
pub(super) struct ConfigReloader {
    configs: Vec<RunningConfig>,
    models: Models,
    locked: bool,
    output: OutputArgs,
    screen: Arc<Screen>,
    hangups: Option<Hangups>,
    /// Whether the server was started at a terminal, whose end is such a signal too.
    had_terminal: bool,
}

#[cfg(unix)]
type Hangups = tokio::signal::unix::Signal;
/// A system without the signal: a config is read at the start only.
#[cfg(not(unix))]
type Hangups = tokio::sync::mpsc::Receiver<()>;

/// A config as the server has it.
pub(super) struct RunningConfig {
    name: String,
    file: PathBuf,
    channel: Option<ChannelId>,
    host: Arc<Host>,
    config: Config,
    setup: Arc<Setup>,
}

/// A config that was read again, with its changes.
struct ReadConfig {
    config: Config,
    prepared: Prepared,
    people: People,
    changes: Vec<String>,
}

impl RunningConfig {
    pub(super) fn new(of: ServedConfig, host: Arc<Host>, setup: Arc<Setup>) -> Self {
        let ServedConfig { name, file, config, channel, .. } = of;
        Self { name, file, channel, host, config, setup }
    }

    async fn read(
        &self,
        models: &Models,
        locked: bool,
        output: OutputArgs,
    ) -> Result<ReadConfig, CliError> {
        let config = setup::read_config(&self.file, models)?;
        if let Some(channel) = &self.channel
            && !web_channels(&config).contains(&channel.as_str())
        {
            let what = format!(
                "{} has the channel {channel} no more, in which its conversations are",
                show_path(&self.file)
            );
            return Err(CliError::usage(what).hint("a start of the server can serve another one"));
        }
        // Both are those of journals that are open.
        if (&config.store, config.durability) != (&self.config.store, self.config.durability) {
            let what =
                format!("`store` and `durability` of {} have changed", show_path(&self.file));
            return Err(CliError::usage(what).hint("a start of the server takes them"));
        }
        let (prepared, _) = setup::load(&self.host, (&self.file, &config), locked, output).await?;
        let changes = self.changes(&config, prepared.setup());
        let people = super::people(&config, &self.file)?;
        Ok(ReadConfig { config, prepared, people, changes })
    }

    /// The names of the parts that differ in another version of the config.
    fn changes(&self, next: &Config, setup: &Setup) -> Vec<String> {
        let mut all = changes::changes(&self.config, next);
        // A component can be another one although its line in the config is the same.
        let components = self.setup.changed_components(setup).into_iter();
        all.extend(
            components
                .filter(|component| component.now.is_some())
                .map(|component| format!("the component of {}", component.plugin)),
        );
        all
    }
}

impl ConfigReloader {
    /// From here on the signal does not end the program.
    pub(super) fn begin(
        configs: Vec<RunningConfig>,
        models: Models,
        locked: bool,
        (output, screen): (OutputArgs, &Arc<Screen>),
    ) -> Self {
        let (screen, had_terminal) = (Arc::clone(screen), has_terminal());
        Self { configs, models, locked, output, screen, hangups: hangups(), had_terminal }
    }

    /// Reads the configs again at each SIGHUP. Returns when the signal says that the terminal of the
    /// server is gone.
    pub(super) async fn run(mut self, gateway: Gateway, manager: &ServiceManager) {
        let Some(mut hangups) = self.hangups.take() else { return std::future::pending().await };
        while hangups.recv().await.is_some() {
            if self.had_terminal && !has_terminal() {
                return;
            }
            match self.reload(&gateway).await {
                Ok(changes) => {
                    manager.status("the configs were read again");
                    self.report(&changes);
                }
                Err(error) => {
                    manager.status("the configs before stay: the new ones cannot be used");
                    self.report_refusal(&error);
                }
            }
        }
        std::future::pending().await
    }

    /// Replaces all configs by their files' present content, or none. Returns the changes of each.
    async fn reload(&mut self, gateway: &Gateway) -> Result<Vec<(String, Vec<String>)>, CliError> {
        let mut all = Vec::new();
        for config in &self.configs {
            all.push(config.read(&self.models, self.locked, self.output).await?);
        }
        let (mut next, mut changes) = (Vec::new(), Vec::new());
        for (running, read) in self.configs.iter_mut().zip(all) {
            running.setup = Arc::clone(read.prepared.setup());
            let ReadConfig { config, prepared, people, changes: of_config } = read;
            next.push(NextConfig { prepared, server: config.server.clone(), people });
            running.config = config;
            changes.push((running.name.clone(), of_config));
        }
        let gateway = gateway.clone();
        // It reads the file of tokens.
        let taking = tokio::task::spawn_blocking(move || gateway.replace(next));
        taking.await.map_err(|error| CliError::internal(error.to_string()))?;
        Ok(changes)
    }

    fn report(&self, changes: &[(String, Vec<String>)]) {
        for (name, changes) in changes {
            let fields =
                LogFields { config: Some(name.clone()), ..LogFields::of("config-reloaded") };
            let changes = match changes.as_slice() {
                [] => "nothing is different".to_owned(),
                changes => changes.join(", "),
            };
            let what = format_args!("{name} was read again: {changes}");
            self.screen.log_line(&fields, paint(FAINT, what));
        }
        let value =
            |(name, changes): &(String, Vec<String>)| json!({ "config": name, "changed": changes });
        let configs: Vec<_> = changes.iter().map(value).collect();
        self.queue(json!({ "type": "reloaded", "configs": configs }));
    }

    fn report_refusal(&self, error: &CliError) {
        let what = format!("the configs were not read again, and those before stay: {error}");
        let fields = LogFields::of("reload-refused");
        self.screen.log_notice(&fields, format_args!("{} {what}", paint(BAD, "error:")));
        self.queue(json!({ "type": "reload-refused", "error": error.to_string() }));
    }

    fn queue(&self, line: serde_json::Value) {
        if self.output.json
            && let Err(error) = stdout::queue_json(line)
        {
            self.screen.notice(format_args!("the reload cannot be printed: {error}"));
        }
    }
}

fn has_terminal() -> bool {
    std::io::stdin().is_terminal() || std::io::stderr().is_terminal()
}

#[cfg(unix)]
fn hangups() -> Option<Hangups> {
    tokio::signal::unix::signal(tokio::signal::unix::SignalKind::hangup()).ok()
}

#[cfg(not(unix))]
fn hangups() -> Option<Hangups> {
    None
}
