//! `exec`: programs of the machine, which run outside the sandbox. The operator lists whole
//! commands; a program starts only with arguments that one of them covers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::texts::{join, list};
use super::{
    AccessRequest, Capability, Destination, FileGrant, FileMode, Grant, GrantTexts, Layer, Refused,
    Rights, folder,
};
use crate::permissions::command::CommandPattern;
use crate::permissions::overlap::{overlap, smaller_of};
use crate::permissions::paths::rest_below;
use crate::types::text::{read_command, show_command, show_duration, show_size};
use crate::types::wording::count;

/// Maximum arguments of a command.
const ARGUMENTS: usize = 1_000;
/// Maximum bytes of a command's arguments together.
const ARGUMENT_BYTES: usize = 96 << 10;

/// What a program must be confined by before it starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Confinement {
    /// All of it; without it no program starts.
    #[default]
    Required,
    /// As much as the kernel offers, which may be nothing.
    BestEffort,
}

/// The grant of programs of the machine, which run outside the sandbox.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExecGrant {
    pub commands: Vec<CommandPattern>,
    /// The folders and files of the machine that programs may read besides the system's own, as the
    /// host resolves them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub read: Vec<String>,
    /// The programs that a granted program may start, and folders of such programs, besides itself
    /// and its interpreter.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub starts: Vec<String>,
    /// The whole environment besides `HOME` and `TMPDIR`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Whether programs may use the network.
    pub network: bool,
    pub confinement: Confinement,
    /// The limit of programs started in the whole run.
    pub runs: u64,
    /// The limit of one program in milliseconds.
    pub time_ms: u64,
    /// The limit of computing time in milliseconds, of the program and those that it starts.
    pub cpu_ms: u64,
    /// The limit of memory in bytes, of the program and those that it starts.
    pub memory: u64,
    /// The limit of processes and threads at once.
    pub processes: u32,
    /// The limit of standard output and standard error together, in bytes. The rest is dropped.
    pub output: u64,
    /// The size limit of a file that it writes, in bytes.
    pub file_size: u64,
}

impl ExecGrant {
    /// The default number of programs in a run.
    pub const RUNS: u64 = 100;
    /// The default time limit, in milliseconds.
    pub const TIME_MS: u64 = 20_000;
    /// The default limit of computing time, in milliseconds.
    pub const CPU_MS: u64 = 20_000;
    /// The default limit of memory, in bytes.
    pub const MEMORY: u64 = 512 << 20;
    /// The default number of processes and threads.
    pub const PROCESSES: u32 = 128;
    /// The default limit of output, in bytes.
    pub const OUTPUT: u64 = 256 << 10;
    /// The default size limit of a written file, in bytes.
    pub const FILE_SIZE: u64 = 64 << 20;

    /// Returns a grant of these commands with the default limits.
    #[must_use]
    pub fn new(commands: Vec<CommandPattern>) -> Self {
        Self {
            commands,
            read: Vec::new(),
            starts: Vec::new(),
            env: BTreeMap::new(),
            network: false,
            confinement: Confinement::Required,
            runs: Self::RUNS,
            time_ms: Self::TIME_MS,
            cpu_ms: Self::CPU_MS,
            memory: Self::MEMORY,
            processes: Self::PROCESSES,
            output: Self::OUTPUT,
            file_size: Self::FILE_SIZE,
        }
    }
}

/// The smallest pattern that covers a command. A space in an argument can only be covered by
/// a `*`, and an argument that begins with `*`, or is empty, by nothing smaller than `*`.
fn smallest_pattern(program: &str, arguments: &[String]) -> Option<CommandPattern> {
    let path = if program.contains('/') {
        program.to_owned()
    } else {
        // The usual place; the operator sees the path before granting it.
        format!("/usr/bin/{program}")
    };
    let words = arguments.iter().map(|argument| {
        let word = argument.replace(' ', "*");
        let is_any = word.is_empty() || word == "**" || word.chars().any(char::is_control);
        if is_any { "*".to_owned() } else { word }
    });
    let text = [path].into_iter().chain(words).collect::<Vec<_>>().join(" ");
    let pattern = CommandPattern::parse(&text).ok()?;
    (pattern.names(program) && pattern.covers(arguments)).then_some(pattern)
}

/// The path that the other one contains; `None` if neither does.
fn inner_path(initial: &String, today: &String) -> Option<String> {
    let has = |outer: &String, inner: &String| rest_below(outer, inner).map(|_| inner.clone());
    has(initial, today).or_else(|| has(today, initial))
}

impl<'a> Rights<'a> {
    /// The folders that the plugin's programs may use: those of its own `files`. A program cannot
    /// see an overlay, and must not reach the folder below it.
    pub fn program_folders(&self) -> impl Iterator<Item = &'a FileGrant> + use<'a> {
        let is_asked = self.manifest.ask(Capability::Files).is_some();
        let granted = self.grants.files.iter().filter(move |_| is_asked);
        granted.filter(|grant| grant.mode != FileMode::Overlay)
    }

    /// Returns the pattern that allows a command, and the grant with its limits. `program` is a path
    /// of the grant or its last component.
    ///
    /// # Errors
    /// The record, if programs are not requested or not granted, if no pattern covers the command, or
    /// if the name stands for several programs.
    pub fn may_run(
        &self,
        program: &str,
        arguments: &[String],
    ) -> Result<(&'a CommandPattern, &'a ExecGrant), Refused> {
        let command_text = show_command(program, arguments);
        let granted = || self.grants.exec.iter().flat_map(|grant| &grant.commands);
        let smallest = || {
            let pattern = smallest_pattern(program, arguments)?;
            let mut all: Vec<&str> = granted().map(CommandPattern::as_str).collect();
            all.push(pattern.as_str());
            Some(self.line(Capability::Exec, list(all)))
        };
        self.require(Capability::Exec, &command_text, smallest)?;
        let refuse = |reason: &str| {
            self.refuse(Capability::Exec, &command_text, Layer::Runtime, reason, None)
        };
        let length: usize = arguments.iter().map(String::len).sum();
        if arguments.len() > ARGUMENTS || length > ARGUMENT_BYTES {
            let reason =
                format!("a command has {ARGUMENTS} arguments and {ARGUMENT_BYTES} bytes at most");
            return Err(refuse(&reason));
        }
        let mut paths: Vec<&str> = granted()
            .filter(|pattern| pattern.names(program))
            .map(CommandPattern::program)
            .collect();
        paths.dedup();
        if paths.len() > 1 {
            let reason = format!("{program:?} names {}; write the path", paths.join(" and "));
            return Err(refuse(&reason));
        }
        let grant = self.grants.exec.as_ref();
        let found = grant.and_then(|grant| {
            let mut commands = grant.commands.iter().filter(|pattern| pattern.names(program));
            commands.find(|pattern| pattern.covers(arguments)).map(|pattern| (pattern, grant))
        });
        found.ok_or_else(|| {
            let known = granted().any(|pattern| pattern.names(program));
            let what = if known { "these arguments" } else { "this program" };
            let reason = format!("no command of plugins.{}.grants.exec covers {what}", self.plugin);
            self.refuse(Capability::Exec, &command_text, Layer::Config, &reason, smallest())
        })
    }
}

impl Grant for ExecGrant {
    fn decide(request: &AccessRequest<'_>) -> Result<(), Refused> {
        let command = read_command(request.target);
        let (program, arguments) =
            command.unwrap_or_else(|| (request.target.to_owned(), Vec::new()));
        request.rights.may_run(&program, &arguments).map(drop)
    }

    fn why_no_line(_target: Option<&str>, layer: Layer) -> Option<String> {
        (layer == Layer::Config).then(|| "it is no command that a grant could name".to_owned())
    }

    fn narrowed_by(&self, today: &Self) -> Option<Self> {
        let is_granted = |(name, value): &(&String, &String)| today.env.get(*name) == Some(value);
        let env: BTreeMap<String, String> = self
            .env
            .iter()
            .filter(is_granted)
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        let best_effort = (Confinement::BestEffort, Confinement::BestEffort);
        let both = smaller_of! {
            self, today: runs time_ms cpu_ms memory processes output file_size;;
            commands: overlap(&self.commands, &today.commands, CommandPattern::overlap),
            read: overlap(&self.read, &today.read, inner_path),
            starts: overlap(&self.starts, &today.starts, inner_path),
            env,
            network: self.network && today.network,
            confinement: if (self.confinement, today.confinement) == best_effort {
                Confinement::BestEffort
            } else {
                Confinement::Required
            },
        };
        Some(both).filter(|grant| !grant.commands.is_empty())
    }

    fn needs_approval(&self) -> bool {
        true
    }

    fn destinations(&self) -> Vec<Destination<'_>> {
        self.network.then_some(Destination::Programs).into_iter().collect()
    }

    fn texts(&self, request: &AccessRequest<'_>) -> GrantTexts {
        let commands = join(self.commands.iter().map(CommandPattern::as_str));
        let entry = read_command(request.target).and_then(|(program, arguments)| {
            let covers = |it: &CommandPattern| it.names(&program) && it.covers(&arguments);
            self.commands.iter().position(covers)
        });
        let (runs, time) = (self.runs, show_duration(self.time_ms));
        let network = if self.network { "WITH NETWORK" } else { "without network" };
        let confined = match self.confinement {
            Confinement::Required => "confined",
            Confinement::BestEffort => "CONFINED ONLY AS FAR AS THE KERNEL CAN",
        };
        let folders = request.rights.program_folders().map(|grant| {
            let access = if grant.mode.writes() { "write" } else { "read" };
            format!("may {access} {}", folder(grant))
        });
        let facts: Vec<String> = [confined.to_owned(), network.to_owned()]
            .into_iter()
            .chain(folders)
            .chain(self.read.iter().map(|path| format!("may read {path}")))
            .chain(self.starts.iter().map(|path| format!("may start {path}")))
            .chain([count(runs, "run"), time.clone(), show_size(self.memory)])
            .collect();
        GrantTexts {
            summary: vec![format!("run OUTSIDE THE SANDBOX {commands} ({})", facts.join(", "))],
            effect: format!("run {commands}, outside the sandbox"),
            granted: commands,
            entry,
            bounds: Some(format!(
                "within its limits for the run: {runs} programs; outside the sandbox, for {time} each"
            )),
        }
    }
}

#[cfg(test)]
mod tests;
