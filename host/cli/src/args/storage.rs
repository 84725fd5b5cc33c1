//! The arguments about storage and approvals (`--store`, `--journal`, `--durability`,
//! `--approvals`), and those of `resume`, `approve` and `refuse`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use conclave_runtime::store::{Durability, StoreAddress};

use super::store::StoreParser;
use super::{Locked, ModelChoice, TraceChoice};

/// The storage of a command's runs. The default is the user's state folder.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Keep {
    /// Write the journal of each room as JSON lines into this folder, not into a store; such a run
    /// cannot be resumed
    #[arg(long, value_name = "FOLDER")]
    pub(crate) journal: Option<PathBuf>,
    /// Store nothing: the run can be neither explained by `conclave why` nor resumed
    #[arg(long, conflicts_with = "journal")]
    pub(crate) no_journal: bool,
    /// Store the run here: a folder, or `postgres://USER@HOST/DATABASE`; a folder is created if it
    /// does not exist [default: the config's `store`, or else your state folder]
    #[arg(long, value_name = "STORE", value_parser = StoreParser, conflicts_with_all = ["journal", "no_journal"])]
    pub(crate) store: Option<StoreAddress>,
    /// When records survive a power cut, instead of the config's `durability`
    #[arg(long, value_name = "WHEN", conflicts_with_all = ["journal", "no_journal"])]
    pub(crate) durability: Option<DurabilityChoice>,
}

/// `--durability`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DurabilityChoice {
    /// Each event, before any of its effects
    Sync,
    /// Events of a few milliseconds together, before any of their effects leaves the host
    Group,
    /// At the end of the run
    Exit,
}

impl From<DurabilityChoice> for Durability {
    fn from(when: DurabilityChoice) -> Self {
        match when {
            DurabilityChoice::Sync => Self::Sync,
            DurabilityChoice::Group => Self::Group,
            DurabilityChoice::Exit => Self::Exit,
        }
    }
}

/// `--approvals`: the approver of calls for which a rule asks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Approvals {
    /// Ask the user at the terminal; without a terminal, the call is refused
    #[default]
    Prompt,
    /// Wait for `conclave approve` or `conclave refuse`, also across restarts
    Wait,
    /// Refuse the call
    Refuse,
}

/// `--questions`: who answers the questions of tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Questions {
    /// Ask the user at the terminal; without a terminal, nobody answers
    #[default]
    Prompt,
    /// Wait for `conclave answer`, also across restarts
    Wait,
}

/// The word of a choice on the command line, which a run's row in its store holds; empty for
/// a command without the choice.
pub(crate) fn word_of<T: ValueEnum>(choice: Option<T>) -> String {
    let value = choice.and_then(|choice| choice.to_possible_value());
    value.map(|value| value.get_name().to_owned()).unwrap_or_default()
}

/// The choice of this word; `None` for a command without the choice.
pub(crate) fn choice_of<T: ValueEnum>(word: &str) -> Option<T> {
    T::from_str(word, false).ok()
}

#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: as `conclave run`; for several runs, the worst of their codes, including runs that could not be resumed"
)]
pub(crate) struct Resume {
    /// The run, or a prefix of its id [default: all interrupted runs, one after the other]
    pub(crate) run: Option<String>,
    /// Resume all interrupted runs, which is the default
    #[arg(long, conflicts_with = "run")]
    pub(crate) all: bool,
    /// The config, if it has moved since the run was started
    #[arg(long, value_name = "FILE", requires = "run")]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) model: ModelChoice,
    #[command(flatten)]
    pub(crate) locked: Locked,
    /// The store of the run, if it had --store: a folder, or `postgres://…`
    #[arg(long, value_name = "STORE", value_parser = StoreParser)]
    pub(crate) store: Option<StoreAddress>,
    /// Who decides on calls that need an approval [default: as the run was started]
    #[arg(long, value_name = "WHO")]
    pub(crate) approvals: Option<Approvals>,
    /// Who answers the questions of tasks [default: as the run was started]
    #[arg(long, value_name = "WHO")]
    pub(crate) questions: Option<Questions>,
    #[command(flatten)]
    pub(crate) trace: TraceChoice,
    /// Also show log lines of plugins at the levels debug and trace
    #[arg(long, short)]
    pub(crate) verbose: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 the decision was sent; 1 you did not approve it; 2 no such call is pending, the arguments do not fit, or it was decided before;\n\
                  6 no user was there to confirm it"
)]
pub(crate) struct Approve {
    /// The id of the call in `conclave approvals`, such as 3f2a91c0:c7
    pub(crate) id: String,
    /// Run it with these arguments instead, a JSON object
    #[arg(long, value_name = "JSON")]
    pub(crate) arguments: Option<String>,
    /// Approve without a confirmation
    #[arg(long)]
    pub(crate) yes: bool,
    /// Replace an earlier decision that the run has not received yet
    #[arg(long)]
    pub(crate) instead: bool,
    /// The store of the run, if it had --store: a folder, or `postgres://…`
    #[arg(long, value_name = "STORE", value_parser = StoreParser)]
    pub(crate) store: Option<StoreAddress>,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 the decision was sent; 2 no such call is pending, or it was decided before"
)]
pub(crate) struct Refuse {
    /// The id of the call in `conclave approvals`, such as 3f2a91c0:c7
    pub(crate) id: String,
    /// The reason, which the agent reads
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
    /// Replace an earlier decision that the run has not received yet
    #[arg(long)]
    pub(crate) instead: bool,
    /// The store of the run, if it had --store: a folder, or `postgres://…`
    #[arg(long, value_name = "STORE", value_parser = StoreParser)]
    pub(crate) store: Option<StoreAddress>,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 the answer was sent, or the questions were listed; 2 no such question waits, or it was answered before"
)]
pub(crate) struct Answer {
    /// The id of the question, such as 3f2a91c0:c7 [default: list the questions that wait]
    #[arg(requires = "text")]
    pub(crate) id: Option<String>,
    /// The answer; `-` reads stdin
    pub(crate) text: Option<String>,
    /// Replace an earlier answer that the run has not received yet
    #[arg(long, requires = "id")]
    pub(crate) instead: bool,
    /// The store of the run, if it had --store: a folder, or `postgres://…`
    #[arg(long, value_name = "STORE", value_parser = StoreParser)]
    pub(crate) store: Option<StoreAddress>,
}
