//! The `exec` import: programs of the machine, outside the sandbox. Each run is a journalled side
//! effect; `crate::imports::exec` starts and confines the program.

use std::path::PathBuf;
use std::time::Instant;

use conclave_core::permissions::command::CommandPattern;
use conclave_core::permissions::grants::{Confinement, ExecGrant, FileMode};
use conclave_core::types::capability::Capability;
use conclave_core::types::denial::Layer;
use conclave_core::types::message::Blob;
use conclave_core::types::side_effect::{
    FailureCause, ProgramEnding, SideEffect, SideEffectAnswer,
};
use conclave_core::types::text::show_command;

use crate::imports::bindings::plugin::exec::{self, ExecError};
use crate::imports::call::digest;
use crate::imports::convert::denial_out;
use crate::imports::exec::{
    LaunchFailure, NetworkAccess, ProgramOutput, ProgramSpec, WatchedLimits,
};

/// The media type of output in the journal.
const OUTPUT: &str = "application/octet-stream";

type Ran = Result<exec::Output, ExecError>;

import_view! {
    /// The `exec` import of a call.
    ExecImport
}

impl ExecImport<'_> {
    async fn run_program(&mut self, command: exec::Command) -> Ran {
        let allowed = self.core.rights().may_run(&command.program, &command.arguments);
        let (pattern, grant) = allowed
            .map(|(pattern, grant)| (pattern.clone(), grant.clone()))
            .map_err(|record| ExecError::Denied(self.core.refuse(*record)))?;
        if command.arguments.iter().any(|argument| argument.contains('\0')) {
            return Err(ExecError::InvalidCommand("an argument holds a NUL character".to_owned()));
        }
        let directory = command.directory.as_deref().map(|path| self.directory(path));
        let directory = directory.transpose()?;
        // Programs find the folders by their paths.
        let (plugin, task) = (&self.core.plugin, &self.core.start.task);
        let mut folders = plugin.folders.iter().filter(|folder| !folder.is_overlay());
        let checked = folders.try_for_each(|folder| {
            plugin.check_place(folder, (&folder.at, folder.is_writable()), task)
        });
        checked.map_err(|record| ExecError::Denied(self.core.refuse(*record)))?;
        let side_effect = SideEffect::RunProgram {
            program: pattern.program().to_owned(),
            arguments: command.arguments.clone(),
            directory: command.directory,
            input: (!command.input.is_empty()).then(|| digest(&command.input)),
        };
        let (ordinal, before) = self.core.begin(side_effect).await.map_err(ExecError::Denied)?;
        if let Some(answer) = before {
            return self.ran_before(answer);
        }
        let display = show_command(&command.program, &command.arguments);
        let limits = WatchedLimits {
            time_ms: command.timeout_ms.map_or(u64::MAX, u64::from).min(grant.time_ms),
            output: grant.output,
        };
        let spec = self.spec(&pattern, &grant, command.arguments, directory);
        let launcher = self.core.plugin.services.launcher.clone();
        let began = Instant::now();
        let ran = match launcher {
            Some(launcher) => launcher.run(spec, command.input, limits).await,
            None => Err(LaunchFailure::Unconfined("this host starts no programs".to_owned())),
        };
        self.core.note_wait_since(began);
        let (answer, ran) = self.answer_of(&display, ran);
        self.core.end(ordinal, answer).await;
        ran
    }

    /// Returns the folder of the machine for a path in a granted folder.
    fn directory(&mut self, path: &str) -> Result<PathBuf, ExecError> {
        let (index, rest) = self
            .core
            .rights()
            .may_touch(path, false)
            .map_err(|record| ExecError::Denied(self.core.refuse(*record)))?;
        let folder = &self.core.plugin.setup.grants.files[index];
        if folder.mode == FileMode::Overlay {
            let what =
                format!("{} is an overlay, which programs of the machine cannot see", folder.at);
            return Err(ExecError::InvalidCommand(what));
        }
        let directory = PathBuf::from(&folder.dir).join(rest);
        let top = PathBuf::from(&folder.dir).canonicalize().unwrap_or_default();
        match directory.canonicalize() {
            Ok(directory) if directory.is_dir() && directory.starts_with(&top) => Ok(directory),
            _ => Err(ExecError::InvalidCommand(format!("{path} is not a directory"))),
        }
    }

    fn spec(
        &self,
        pattern: &CommandPattern,
        grant: &ExecGrant,
        arguments: Vec<String>,
        directory: Option<PathBuf>,
    ) -> ProgramSpec {
        let resolved = |path: &str| PathBuf::from(path).canonicalize().ok();
        let folders = |writes: bool| {
            let granted = self.core.plugin.rights().program_folders();
            granted.filter(move |grant| grant.mode.writes() == writes).map(|grant| &*grant.dir)
        };
        ProgramSpec {
            program: pattern.program().to_owned(),
            arguments,
            directory,
            read: grant
                .read
                .iter()
                .map(String::as_str)
                .chain(folders(false))
                .filter_map(resolved)
                .collect(),
            starts: grant.starts.iter().map(String::as_str).filter_map(resolved).collect(),
            write: folders(true).filter_map(resolved).collect(),
            env: grant.env.clone(),
            network: match grant.network {
                true => NetworkAccess::Machine,
                false => NetworkAccess::None,
            },
            is_server: false,
            required: grant.confinement == Confinement::Required,
            cpu_ms: grant.cpu_ms,
            memory: grant.memory,
            processes: grant.processes,
            file_size: grant.file_size,
        }
    }

    /// Returns the outcome for the journal, and for the plugin.
    fn answer_of(
        &mut self,
        display: &str,
        ran: Result<ProgramOutput, LaunchFailure>,
    ) -> (SideEffectAnswer, Ran) {
        match ran {
            Ok(output) => match self.store_output(&output) {
                Ok((stdout, stderr)) => {
                    let ending = output.ending.clone();
                    let dropped = output.dropped;
                    (
                        SideEffectAnswer::Ran { ending, stdout, stderr, dropped },
                        Ok(output_out(output)),
                    )
                }
                Err(message) => failed(message),
            },
            Err(LaunchFailure::Unconfined(reason)) => {
                let reason = format!(
                    "the program cannot be confined, so it was not started: {reason}. `confinement = \"best-effort\"` in plugins.{}.grants.exec starts it all the same",
                    self.core.plugin.name
                );
                let record = self.core.rights().refuse(
                    Capability::Exec,
                    display,
                    Layer::Runtime,
                    &reason,
                    None,
                );
                self.core.refuse(*record);
                // No grant helps the agent, and the command is among those that it may run.
                failed("programs cannot be confined on this machine, so none is started".to_owned())
            }
            Err(LaunchFailure::NotStarted(reason)) => {
                failed(format!("the program could not be started: {reason}"))
            }
            Err(LaunchFailure::Launcher(reason)) => {
                failed(format!("the launcher of programs failed: {reason}"))
            }
        }
    }

    /// Stores the output, so that a replay returns it.
    fn store_output(&self, output: &ProgramOutput) -> Result<(Blob, Blob), String> {
        let keep = |bytes: &[u8]| {
            let stored = self.core.plugin.services.blobs.keep(bytes, OUTPUT, None);
            stored.map_err(|error| format!("the output cannot be stored: {error}"))
        };
        Ok((keep(&output.stdout)?, keep(&output.stderr)?))
    }

    /// Returns the recorded outcome of a program.
    fn ran_before(&mut self, answer: SideEffectAnswer) -> Ran {
        let error = || ExecError::Other("the call ends".to_owned());
        match answer {
            SideEffectAnswer::Ran { ending, stdout, stderr, dropped } => {
                let what = "the output of a program";
                let stored =
                    |blob: &Blob| self.core.replay.blob(&blob.sha256, Some(blob.length), what);
                let Some((stdout, stderr)) = stored(&stdout).zip(stored(&stderr)) else {
                    return Err(error());
                };
                Ok(output_out(ProgramOutput { ending, stdout, stderr, dropped }))
            }
            SideEffectAnswer::Denied { denial } => Err(ExecError::Denied(denial_out(&denial))),
            SideEffectAnswer::Failed { message, .. } => Err(ExecError::Other(message)),
            SideEffectAnswer::Done { .. } | SideEffectAnswer::Fetched { .. } => {
                self.core.replay.lose("a program was answered as if it were none");
                Err(error())
            }
        }
    }
}

fn failed(message: String) -> (SideEffectAnswer, Ran) {
    let answer = SideEffectAnswer::Failed { cause: FailureCause::Other, message: message.clone() };
    (answer, Err(ExecError::Other(message)))
}

fn output_out(output: ProgramOutput) -> exec::Output {
    exec::Output {
        ending: match output.ending {
            ProgramEnding::Exited { code } => exec::Ending::ExitCode(code),
            ProgramEnding::Killed { signal } => exec::Ending::Signal(signal),
            ProgramEnding::Stopped { limit } => exec::Ending::LimitExceeded(limit),
        },
        stdout: output.stdout,
        stderr: output.stderr,
        dropped: output.dropped,
    }
}

impl exec::Host for ExecImport<'_> {
    fn commands(&mut self) -> wasmtime::Result<Vec<String>> {
        self.core.tool_input()?;
        let rights = self.core.rights();
        let is_asked = rights.manifest.ask(Capability::Exec).is_some();
        let grant = rights.grants.exec.as_ref().filter(|_| is_asked);
        let commands = grant.into_iter().flat_map(|grant| &grant.commands);
        Ok(commands.map(ToString::to_string).collect())
    }

    async fn run(&mut self, command: exec::Command) -> wasmtime::Result<Ran> {
        self.core.tool_input()?;
        Ok(self.run_program(command).await)
    }
}
