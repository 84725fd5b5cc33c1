//! The arguments about storage and approvals (`--store`, `--journal`, `--durability`,
//! `--approvals`), and those of `resume`, `approve` and `refuse`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use conclave_runtime::store::Durability;

use super::{Locked, ModelChoice, TraceChoice};

/// The storage of a command's runs. The default is the user's state folder.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Keep {
    /// Keep the journal of every room as JSON lines in this folder, not in a store; `conclave
    /// resume` does not go on with those
    #[arg(long, value_name = "FOLDER")]
    pub(crate) journal: Option<PathBuf>,
    /// Keep nothing: `conclave why` will know nothing of it, and `conclave resume` cannot go on
    /// with it
    #[arg(long, conflicts_with = "journal")]
    pub(crate) no_journal: bool,
    /// Keep it in this store and in no other; it is made when it is not there
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["journal", "no_journal"])]
    pub(crate) store: Option<PathBuf>,
    /// When what is kept is safe from a power cut, in the place of the config's `durability`
    #[arg(long, value_name = "WHEN", conflicts_with_all = ["journal", "no_journal"])]
    pub(crate) durability: Option<When>,
}

/// `--durability`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum When {
    /// Each event before anything comes of it
    Sync,
    /// With others of the same few milliseconds, before anything that came of it leaves the host
    Group,
    /// When the run ends
    Exit,
}

impl From<When> for Durability {
    fn from(when: When) -> Self {
        match when {
            When::Sync => Self::Sync,
            When::Group => Self::Group,
            When::Exit => Self::Exit,
        }
    }
}

/// `--approvals`: the approver of calls for which a rule asks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Approvals {
    /// The person at the terminal; without one it is refused
    #[default]
    Ask,
    /// Nobody here: the call waits for `conclave approve` or `conclave refuse`, also through a
    /// restart
    Wait,
    /// Nobody: it is refused
    Refuse,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: as `conclave run`; of several runs the worst of theirs, those that could not go on included"
)]
pub(crate) struct Resume {
    /// The run, or its first digits; without it all interrupted runs, one after the other
    pub(crate) run: Option<String>,
    /// All of them, which is what happens without a run's name
    #[arg(long, conflicts_with = "run")]
    pub(crate) all: bool,
    /// The config, where it is not the file any more that the run was started with
    #[arg(long, value_name = "FILE", requires = "run")]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) model: ModelChoice,
    #[command(flatten)]
    pub(crate) locked: Locked,
    /// The store that the run was kept in with --store
    #[arg(long, value_name = "FOLDER")]
    pub(crate) store: Option<PathBuf>,
    /// Who is asked for approvals
    #[arg(long, value_name = "WHO", default_value = "ask")]
    pub(crate) approvals: Approvals,
    #[command(flatten)]
    pub(crate) trace: TraceChoice,
    /// Show plugins' log lines of level debug and trace too
    #[arg(long, short)]
    pub(crate) verbose: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 it was said; 1 you said no; 2 nothing of that name waits, the arguments do not fit, or it was answered before;\n\
                  6 nobody was there to say yes"
)]
pub(crate) struct Approve {
    /// The call, as `conclave approvals` names it, such as 3f2a91c0:c7
    pub(crate) id: String,
    /// Let it run with these arguments instead, a JSON object
    #[arg(long, value_name = "JSON")]
    pub(crate) arguments: Option<String>,
    /// Do not ask whether what is shown may run
    #[arg(long)]
    pub(crate) yes: bool,
    /// In the place of a word that was said before and not heard yet
    #[arg(long)]
    pub(crate) instead: bool,
    /// The store that the run is kept in with --store
    #[arg(long, value_name = "FOLDER")]
    pub(crate) store: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 it was said; 2 nothing of that name waits, or it was answered before"
)]
pub(crate) struct Refuse {
    /// The call, as `conclave approvals` names it, such as 3f2a91c0:c7
    pub(crate) id: String,
    /// Why not: the agent reads it
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
    /// In the place of a word that was said before and not heard yet
    #[arg(long)]
    pub(crate) instead: bool,
    /// The store that the run is kept in with --store
    #[arg(long, value_name = "FOLDER")]
    pub(crate) store: Option<PathBuf>,
}
