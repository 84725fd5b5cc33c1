//! Runs one command in the shell. Time is virtual: it stands still while the shell computes and
//! jumps when everything in it waits, so `sleep` and `timeout` keep their order and their meaning
//! without a wait. A command that computes without end is stopped by the host's limits instead.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bashkit::{
    Bash, Error, ExecOptions, ExecutionLimits, FsLimits, InMemoryFs, MountableFs, PosixFs,
    SessionLimits, ShellState, StreamData, VfsEntry,
};
use conclave_sdk::files;
use tokio::time::Instant;

use crate::chains;
use crate::commands;
use crate::folder::{Folder, FolderNotes};
use crate::output::Output;
use crate::state::TerminalState;

/// The home directory, in memory as /tmp is.
pub(crate) const HOME: &str = "/home/agent";

/// Bytes of /tmp and of the home directory together. `limits.memory` is 64 MiB by default, and a file
/// is in memory several times while commands read and write it.
const MEMORY_FILES: u64 = 8 << 20;

/// Files, and names that a pattern expands to: beyond it the library leaves names out silently, so
/// that `limits.memory` stops a command before.
const MOST_NAMES: u64 = 10_000_000;

/// The end of a command.
pub(crate) struct Ran {
    /// What it wrote to stdout and stderr, in the order of its writes.
    pub(crate) output: String,
    pub(crate) end: End,
    /// The time that it spent waiting.
    pub(crate) waited: Duration,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum End {
    /// With this exit code.
    Done(i32),
    /// It waited longer than allowed. Its files stay; the rest of the shell is as before.
    TimedOut,
}

impl End {
    /// The exit code: -1 after a time-out (O-133).
    pub(crate) fn code(self) -> i32 {
        match self {
            Self::Done(code) => code,
            Self::TimedOut => -1,
        }
    }
}

/// The file systems of one call.
struct Files {
    memory: Arc<InMemoryFs>,
    folders: BTreeMap<String, Arc<PosixFs<Folder>>>,
    root: Arc<MountableFs>,
    /// The first granted folder, or the home directory.
    start: String,
}

impl Files {
    fn open(state: &mut TerminalState) -> Self {
        let limits = FsLimits::new()
            .max_total_bytes(MEMORY_FILES)
            .max_file_size(MEMORY_FILES)
            .max_file_count(MOST_NAMES)
            .max_dir_count(MOST_NAMES);
        let memory = Arc::new(InMemoryFs::with_limits(limits));
        memory.add_dir(HOME, 0o755);
        if !state.memory.is_empty() {
            // It was stored by a shell with the same limits.
            drop(memory.restore(&state.snapshot()));
        }
        let root = MountableFs::new(Arc::clone(&memory) as Arc<dyn bashkit::FileSystem>);
        let mut folders = BTreeMap::new();
        let mut start = None;
        for granted in files::roots() {
            let notes = state.folders.remove(&granted.path).unwrap_or_default();
            let folder = Arc::new(PosixFs::new(Folder::new(&granted.path, notes)));
            for above in Path::new(&granted.path).ancestors().skip(1) {
                memory.add_dir(above, 0o755);
            }
            if root
                .mount(&granted.path, Arc::clone(&folder) as Arc<dyn bashkit::FileSystem>)
                .is_ok()
            {
                start.get_or_insert_with(|| granted.path.clone());
                folders.insert(granted.path, folder);
            }
        }
        let start = start.unwrap_or_else(|| HOME.to_owned());
        Self { memory, folders, root: Arc::new(root), start }
    }

    fn close(self, state: &mut TerminalState) {
        state.memory = self.memory.snapshot().entries().iter().filter(is_kept).cloned().collect();
        let notes = |folder: &Arc<PosixFs<Folder>>| folder.backend().notes();
        let folders = self.folders.iter().map(|(at, folder)| (at.clone(), notes(folder)));
        state.folders = folders.filter(|(_, notes)| !FolderNotes::is_empty(notes)).collect();
    }
}

/// Whether an entry of the memory outlives the call. Devices are made anew.
fn is_kept(entry: &&VfsEntry) -> bool {
    !entry.path.starts_with("/dev")
}

/// Runs `command` in `shell`, which is `None` for a new one, and puts the state after it there.
/// `timeout` limits the time that it waits.
pub(crate) fn run(
    state: &mut TerminalState,
    shell: &mut Option<ShellState>,
    command: &str,
    timeout: Duration,
) -> Ran {
    let files = Files::open(state);
    let listed = Arc::new(AtomicBool::new(false));
    let mut bash = build(&files, &listed);
    let mut script = String::new();
    if let Some(shell) = shell.as_ref() {
        bash.restore_shell_state(shell);
        script = prologue(shell, command);
    }
    script.push_str(&chains::with_braces(command));
    let output = Arc::new(Mutex::new(Output::default()));
    let sink = Arc::clone(&output);
    let write = move |stdout: &StreamData, stderr: &StreamData| {
        let mut output = sink.lock().unwrap_or_else(PoisonError::into_inner);
        output.push(stderr.as_bytes());
        output.push(stdout.as_bytes());
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime of one thread needs nothing of the system");
    let (result, waited) = runtime.block_on(async {
        let began = Instant::now();
        let options = ExecOptions::new().streaming(Box::new(write));
        let result = tokio::time::timeout(timeout, bash.exec_with_options(&script, options)).await;
        (result, began.elapsed())
    });
    let mut output = std::mem::take(&mut *output.lock().unwrap_or_else(PoisonError::into_inner));
    let end = match result {
        Ok(Ok(result)) => End::Done(result.exit_code),
        Ok(Err(error)) => {
            output.push(format!("bash: {error}\n").as_bytes());
            End::Done(if matches!(error, Error::Parse { .. }) { 2 } else { 1 })
        }
        Err(_) => End::TimedOut,
    };
    // An interrupted command may be inside a subshell, whose state is not the shell's.
    if let End::Done(code) = end {
        *shell = Some(ShellState { last_exit_code: code, ..bash.shell_state() });
    }
    drop(bash);
    files.close(state);
    Ran { output: output.into_text(), end, waited }
}

fn build(files: &Files, listed: &Arc<AtomicBool>) -> Bash {
    // The host's limits on CPU time and memory stop a command; these bound only what would
    // otherwise end with a fault and no output.
    let limits = ExecutionLimits::new()
        .max_commands(usize::MAX)
        .max_loop_iterations(usize::MAX)
        .max_total_loop_iterations(usize::MAX)
        .max_work_units(u64::MAX / 2)
        .max_aggregate_input_bytes(u64::MAX / 2)
        .max_parser_operations(10_000_000)
        .max_stdout_bytes(Output::MOST)
        .max_stderr_bytes(Output::MOST)
        // None of its own: with one, the library asks the host for the time at every command.
        .timeout(Duration::MAX);
    let builder = Bash::builder()
        .fs(Arc::clone(&files.root) as Arc<dyn bashkit::FileSystem>)
        .username("agent")
        .hostname("conclave")
        .env("HOME", HOME)
        .cwd(files.start.as_str())
        .limits(limits)
        .session_limits(SessionLimits::unlimited());
    commands::add(builder, listed).build()
}

/// The commands that set again what ends with each call of the library: the options of
/// `set`, and `$?` if the command reads it. They stand on the first line, so that line numbers stay.
fn prologue(shell: &ShellState, command: &str) -> String {
    const OPTIONS: [(&str, &str); 13] = [
        ("SHOPT_a", "allexport"),
        ("SHOPT_e", "errexit"),
        ("SHOPT_E", "errtrace"),
        ("SHOPT_T", "functrace"),
        ("SHOPT_k", "keyword"),
        ("SHOPT_C", "noclobber"),
        ("SHOPT_f", "noglob"),
        ("SHOPT_u", "nounset"),
        ("SHOPT_P", "physical"),
        ("SHOPT_pipefail", "pipefail"),
        ("SHOPT_posix", "posix"),
        ("SHOPT_v", "verbose"),
        // The last one, or it would show the others.
        ("SHOPT_x", "xtrace"),
    ];
    let is_on = |variable: &str| shell.variables.get(variable).is_some_and(|value| value == "1");
    let on = OPTIONS.iter().filter(|(variable, _)| is_on(variable));
    let mut text: String = on.map(|(_, option)| format!("set -o {option}; ")).collect();
    let code = shell.last_exit_code;
    let reads_it = command.contains("$?") || command.contains("${?");
    // With `errexit` the shell would end here, and `xtrace` would show it.
    if code != 0 && reads_it && !is_on("SHOPT_e") && !is_on("SHOPT_x") {
        text += &format!("(exit {code}); ");
    }
    text
}
