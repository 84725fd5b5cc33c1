//! The arguments of `conclave trajectory`: showing, exporting and replaying agents' logs.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use conclave_core::trajectory as wire;
use conclave_runtime::store::StoreAddress;

use super::store::StoreParser;
use super::{Approvals, CONFIG, Keep, Locked, ModelChoice, TraceChoice};

#[derive(Debug, Subcommand)]
pub(crate) enum Trajectory {
    /// Show a log, one line per event; reads the formats 2024-07 and 2025-11 of OpenHands, and that
    /// of its SDK
    Show(TrajectoryShow),
    /// Write a run as a log in a format of OpenHands
    Export(TrajectoryExport),
    /// Run a config on the task of a log: repeat the actions of the log's agent, then let the
    /// config's agent continue, or compare the observations
    Replay(TrajectoryReplay),
}

/// The format of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum EraArg {
    /// July 2024
    #[value(name = "2024-07")]
    V2024,
    /// November 2025
    #[value(name = "2025-11")]
    V2025,
}

impl From<EraArg> for wire::Era {
    fn from(era: EraArg) -> Self {
        match era {
            EraArg::V2024 => Self::V2024,
            EraArg::V2025 => Self::V2025,
        }
    }
}

#[derive(Debug, Args)]
#[command(
    after_help = "TYPE: a kind such as run, one side of it (run-action, run-observation), action, observation, or a class such as CmdRunAction.\n\n\
                  Exit codes: 0 shown; 1 some events could not be read (reported on stderr); others as in `conclave --help`"
)]
pub(crate) struct TrajectoryShow {
    /// The log: a .json or .jsonl file, or a folder with a file for each event; `-` reads stdin
    pub(crate) file: PathBuf,
    /// Only events of this type; can be repeated
    #[arg(long = "type", value_name = "TYPE")]
    pub(crate) types: Vec<String>,
    /// No events of this type; can be repeated
    #[arg(long, value_name = "TYPE")]
    pub(crate) not_type: Vec<String>,
    /// Only events from this source: agent, user, environment …
    #[arg(long, value_name = "SOURCE")]
    pub(crate) source: Option<String>,
    /// Only events with this text, in any case
    #[arg(long, value_name = "WORDS")]
    pub(crate) text: Option<String>,
    /// Only events since then: a day, such as 2024-07-01, or a timestamp as in the log, such as
    /// 2024-07-01T12:00:00
    #[arg(long, value_name = "DATE")]
    pub(crate) since: Option<String>,
    /// Only events until then; a day is included
    #[arg(long, value_name = "DATE")]
    pub(crate) until: Option<String>,
    /// Only events from this number on
    #[arg(long, value_name = "N")]
    pub(crate) from: Option<i64>,
    /// Only events up to this number
    #[arg(long, value_name = "N")]
    pub(crate) to: Option<i64>,
    /// Only the SDK event with this id, and its ancestors
    #[arg(long, value_name = "ID")]
    pub(crate) branch: Option<String>,
    /// List the newest events first
    #[arg(long)]
    pub(crate) reverse: bool,
    /// The most events to show
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<usize>,
}

#[derive(Debug, Args)]
pub(crate) struct TrajectoryExport {
    /// The run, or a prefix of its id; or one of its rooms, by its full name
    pub(crate) run: String,
    /// The format of the log
    #[arg(long, value_name = "ERA", default_value = "2025-11")]
    pub(crate) era: EraArg,
    /// The file to create [default: stdout]
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// The store of the run, if it had --store: a folder, or `postgres://…`
    #[arg(long, value_name = "STORE", value_parser = StoreParser)]
    pub(crate) store: Option<StoreAddress>,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: those of `conclave run`; with --compare 1 if an observation differs, or an action could not be run"
)]
pub(crate) struct TrajectoryReplay {
    /// The log: a .json or .jsonl file, or a folder with a file for each event; `-` reads stdin
    pub(crate) file: PathBuf,
    /// The config whose entry task performs the actions, under its grants
    #[arg(default_value = CONFIG)]
    pub(crate) config: PathBuf,
    /// Repeat only what executors carry out (commands, cells, files, pages), call no agent, and
    /// report for each action whether its observation is the log's
    #[arg(long)]
    pub(crate) compare: bool,
    #[command(flatten)]
    pub(crate) model: ModelChoice,
    #[command(flatten)]
    pub(crate) locked: Locked,
    #[command(flatten)]
    pub(crate) keep: Keep,
    /// Who decides on calls that need an approval
    #[arg(long, value_name = "WHO", default_value = "prompt")]
    pub(crate) approvals: Approvals,
    #[command(flatten)]
    pub(crate) trace: TraceChoice,
    /// Also show log lines of plugins at the levels debug and trace
    #[arg(long, short)]
    pub(crate) verbose: bool,
}
