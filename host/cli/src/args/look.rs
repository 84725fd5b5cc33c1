//! The arguments of the commands that read stored runs: `runs`, `show`, `tasks`, `approvals`,
//! `audit`, `store`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Debug, Args)]
#[command(
    after_help = "TIME is how long ago, such as 90s, 30min, 2h or 30d, or a day such as 2026-01-31 (UTC)."
)]
pub(crate) struct Runs {
    /// Only those that are running, waiting (for a user), interrupted or over, or ended so: done,
    /// timeout, max-cost …
    #[arg(long, value_name = "WORD")]
    pub(crate) status: Option<String>,
    /// Only those in which this plugin is an agent
    #[arg(long, value_name = "PLUGIN")]
    pub(crate) agent: Option<String>,
    /// Only those with this in their first message, whatever its case
    #[arg(long, value_name = "TEXT")]
    pub(crate) text: Option<String>,
    /// Only those that cost at least so many US dollars, such as 0.05
    #[arg(long, value_name = "USD")]
    pub(crate) cost: Option<String>,
    /// Only those that began since then
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<String>,
    /// At most so many, the newest
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub(crate) limit: usize,
    /// The store that runs were kept in with --store
    #[arg(long, value_name = "FOLDER")]
    pub(crate) store: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Show {
    /// The run, or its first digits; without it the newest
    pub(crate) run: Option<String>,
    /// Write a page for a browser, which needs nothing else and no network; without a name to
    /// RUN.html, `-` is stdout
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true)]
    pub(crate) html: Option<Option<PathBuf>>,
    /// Every row, also those of a long run that are alike
    #[arg(long)]
    pub(crate) all: bool,
    /// The store that the run was kept in with --store
    #[arg(long, value_name = "FOLDER")]
    pub(crate) store: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(
    after_help = "A task of a child room is named with the room's number before it: 2/task-1.\nExit codes: 0 it was listed, or was told; 1 its \
                  process did not receive it; 2 there is no such run or task, or it does not go on"
)]
pub(crate) struct TasksArgs {
    /// The run, or its first digits; without it the newest
    pub(crate) run: Option<String>,
    /// Only this one, with all that is known of it
    pub(crate) task: Option<String>,
    /// Cancel it: its sandbox is stopped at once, also in the middle of a loop
    #[arg(long, requires = "task", conflicts_with = "tell")]
    pub(crate) cancel: bool,
    /// Say something to it: its agent reads it in its next step
    #[arg(long, value_name = "TEXT", requires = "task")]
    pub(crate) tell: Option<String>,
    /// Why it is cancelled
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "cancelled with `conclave tasks`",
        requires = "cancel"
    )]
    pub(crate) reason: String,
    /// How many seconds to wait until its process has received it
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    pub(crate) wait: u64,
    /// The store that the run is kept in with --store
    #[arg(long, value_name = "FOLDER")]
    pub(crate) store: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(after_help = "`conclave approve ID` lets a call run, `conclave refuse ID` does not.")]
pub(crate) struct ApprovalList {
    /// Only those of this run
    pub(crate) run: Option<String>,
    /// The store that the run is kept in with --store
    #[arg(long, value_name = "FOLDER")]
    pub(crate) store: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Exit codes: 0 it is whole, or was shown; 1 `verify` found that it is not; 2 and others as ever"
)]
pub(crate) struct Audit {
    #[command(subcommand)]
    pub(crate) command: Option<AuditCommand>,
    /// Only this run
    #[arg(long, value_name = "RUN")]
    pub(crate) run: Option<String>,
    /// Only what is about this plugin
    #[arg(long, value_name = "PLUGIN")]
    pub(crate) plugin: Option<String>,
    /// Only this; may be given several times: allowed, refused, asked, decided, left, faulted,
    /// interrupted, resumed, stopped, replaced, topped-up, top-up-refused
    #[arg(long, value_name = "KIND")]
    pub(crate) kind: Vec<String>,
    /// Only what happened since then: how long ago, such as 2h or 30d, or a day such as 2026-01-31
    /// (UTC)
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<String>,
    /// The store that runs were kept in with --store
    #[arg(long, value_name = "FOLDER")]
    pub(crate) store: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AuditCommand {
    /// Hold every record against the chain of hashes, and that against a hash that you noted
    Verify {
        /// What `conclave audit head` said earlier: what was kept then must still be there
        #[arg(long, value_name = "HASH")]
        head: Option<String>,
        /// The store that runs were kept in with --store
        #[arg(long, value_name = "FOLDER")]
        store: Option<PathBuf>,
    },
    /// Print the newest hash of the chain, to note it elsewhere
    Head {
        /// The store that runs were kept in with --store
        #[arg(long, value_name = "FOLDER")]
        store: Option<PathBuf>,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum StoreCommand {
    /// Remove runs that have ended, and payloads that nothing refers to; without --before and
    /// --keep only the latter
    Gc {
        /// Runs that ended before then: how long ago, such as 30d, or a day such as 2026-01-31
        /// (UTC)
        #[arg(long, value_name = "TIME")]
        before: Option<String>,
        /// Keep so many of the newest, whatever --before says; without --before all others that
        /// have ended go
        #[arg(long, value_name = "N")]
        keep: Option<usize>,
        /// Only say what would go
        #[arg(long)]
        dry_run: bool,
        /// Do not ask at a terminal
        #[arg(long)]
        yes: bool,
        /// This store, not those of the state folder
        #[arg(long, value_name = "FOLDER")]
        store: Option<PathBuf>,
    },
    /// Copy what is kept as it is now, also while runs go on
    Backup {
        /// A folder that is not there yet
        folder: PathBuf,
        /// This store, not those of the state folder
        #[arg(long, value_name = "FOLDER")]
        store: Option<PathBuf>,
    },
    /// Look at every page, hash and reference; exit code 1 when something is not whole
    Check {
        /// This store, not those of the state folder
        #[arg(long, value_name = "FOLDER")]
        store: Option<PathBuf>,
    },
}
