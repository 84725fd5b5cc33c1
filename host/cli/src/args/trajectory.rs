//! The arguments of `conclave trajectory`: showing, exporting and replaying agents' logs.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use conclave_core::trajectory as wire;

use super::{Approvals, CONFIG, Keep, Locked, ModelChoice, TraceChoice};

#[derive(Debug, Subcommand)]
pub(crate) enum Trajectory {
    /// Show a log of an agent, in the form of OpenHands of 2024-07, of 2025-11 or of its SDK: a
    /// line for each event
    Show(TrajectoryShow),
    /// Write what happened in a run as a log in the form of OpenHands
    Export(TrajectoryExport),
    /// Run a config on the task of a log, and carry out what its agent did, anew; then the config's
    /// own agent goes on
    Replay(TrajectoryReplay),
}

/// The format of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum EraArg {
    /// Of July 2024
    #[value(name = "2024-07")]
    V2024,
    /// Of November 2025
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
    after_help = "A TYPE is a kind such as run, one side of it (run-action, run-observation), action, observation, or a class such as CmdRunAction.\n\n\
                  Exit codes: 0 it was shown; 1 not all of it could be read, and why is on stderr; 2 and others as ever"
)]
pub(crate) struct TrajectoryShow {
    /// The log: a .json or .jsonl file, or a folder with a file for each event; `-` reads stdin
    pub(crate) file: PathBuf,
    /// Only events of this type; may be given several times
    #[arg(long = "type", value_name = "TYPE")]
    pub(crate) types: Vec<String>,
    /// No events of this type; may be given several times
    #[arg(long, value_name = "TYPE")]
    pub(crate) not_type: Vec<String>,
    /// Only from this source: agent, user, environment …
    #[arg(long, value_name = "SOURCE")]
    pub(crate) source: Option<String>,
    /// Only with these words, whatever their case
    #[arg(long, value_name = "WORDS")]
    pub(crate) text: Option<String>,
    /// Only from then on: a day, such as 2024-07-01, or a moment as the log writes it, such as
    /// 2024-07-01T12:00:00
    #[arg(long, value_name = "DATE")]
    pub(crate) since: Option<String>,
    /// Only until then; of a day, all of it
    #[arg(long, value_name = "DATE")]
    pub(crate) until: Option<String>,
    /// Only from this number on
    #[arg(long, value_name = "N")]
    pub(crate) from: Option<i64>,
    /// Only up to this number
    #[arg(long, value_name = "N")]
    pub(crate) to: Option<i64>,
    /// Only the event of the SDK with this id, and those that led to it
    #[arg(long, value_name = "ID")]
    pub(crate) branch: Option<String>,
    /// The newest first
    #[arg(long)]
    pub(crate) reverse: bool,
    /// At most so many
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<usize>,
}

#[derive(Debug, Args)]
pub(crate) struct TrajectoryExport {
    /// The run, or its first digits; one room of it by its whole name
    pub(crate) run: String,
    /// The form of the log
    #[arg(long, value_name = "ERA", default_value = "2025-11")]
    pub(crate) era: EraArg,
    /// The file to write, which must not be there; without it stdout
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// The store that the run was kept in with --store
    #[arg(long, value_name = "FOLDER")]
    pub(crate) store: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct TrajectoryReplay {
    /// The log: a .json or .jsonl file, or a folder with a file for each event; `-` reads stdin
    pub(crate) file: PathBuf,
    /// The config whose entry task takes the actions; what they may touch is what it grants
    #[arg(default_value = CONFIG)]
    pub(crate) config: PathBuf,
    #[command(flatten)]
    pub(crate) model: ModelChoice,
    #[command(flatten)]
    pub(crate) locked: Locked,
    #[command(flatten)]
    pub(crate) keep: Keep,
    /// Who is asked for approvals
    #[arg(long, value_name = "WHO", default_value = "ask")]
    pub(crate) approvals: Approvals,
    #[command(flatten)]
    pub(crate) trace: TraceChoice,
    /// Show plugins' log lines of level debug and trace too
    #[arg(long, short)]
    pub(crate) verbose: bool,
}
