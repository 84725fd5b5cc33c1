//! The arguments of the commands that read stored runs: `runs`, `show`, `diff`, `tasks`, `approvals`,
//! `audit`, `store`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use conclave_runtime::store::StoreAddress;

use super::store::StoreParser;

#[derive(Debug, Args)]
#[command(
    after_help = "TIME: how long ago, such as 90s, 30min, 2h or 30d, or a day such as 2026-01-31 (UTC)."
)]
pub(crate) struct Runs {
    /// Only runs in this state: running, waiting (for a user), interrupted, ended, or one kind of
    /// end: done, timeout, max-cost …
    #[arg(long, value_name = "WORD")]
    pub(crate) status: Option<String>,
    /// Only runs in which this plugin is an agent
    #[arg(long, value_name = "PLUGIN")]
    pub(crate) agent: Option<String>,
    /// Only runs with this text in their first message, in any case
    #[arg(long, value_name = "TEXT")]
    pub(crate) text: Option<String>,
    /// Only runs that cost at least this many US dollars, such as 0.05
    #[arg(long, value_name = "USD")]
    pub(crate) cost: Option<String>,
    /// Only runs that started since then
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<String>,
    /// The most runs to list, newest first
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub(crate) limit: usize,
    /// The store to read, for runs that had --store: a folder, or `postgres://…`
    #[arg(long, value_name = "STORE", value_parser = StoreParser)]
    pub(crate) store: Option<StoreAddress>,
}

#[derive(Debug, Args)]
pub(crate) struct Show {
    /// The run, or a prefix of its id [default: the newest]
    pub(crate) run: Option<String>,
    /// Write a self-contained page for a browser, which needs no network [default file:
    /// run-ID.html; `-`: stdout]
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true)]
    pub(crate) html: Option<Option<PathBuf>>,
    /// Show every row; by default, similar rows of a long run are folded
    #[arg(long)]
    pub(crate) all: bool,
    /// Show the prompt of a model call: what the model read. RUN:SEQ is its address, or that of the
    /// step that made it; without SEQ, the calls are listed with their addresses
    #[arg(long, conflicts_with_all = ["html", "all"])]
    pub(crate) prompt: bool,
    /// The store of the run, if it had --store: a folder, or `postgres://…`
    #[arg(long, value_name = "STORE", value_parser = StoreParser)]
    pub(crate) store: Option<StoreAddress>,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Written to a pipe or a file, the diff is a patch for `git apply` or `patch -p1` in the folder.\nExit codes: 0 shown, applied, dropped, or you answered no; \
                  1 nothing was applied: the folder changed since the run, or the run has not ended; 2 no such run or path, or not confirmed"
)]
pub(crate) struct Diff {
    /// The run, or a prefix of its id [default: the newest with changes]
    pub(crate) run: Option<String>,
    /// Only these files, or all files below these folders; relative to the granted folder
    #[arg(value_name = "PATH")]
    pub(crate) paths: Vec<String>,
    /// List the changed files with their numbers of added and removed lines
    #[arg(long)]
    pub(crate) stat: bool,
    /// Write the changes to the folder, each file atomically, after a confirmation. Files that
    /// changed in the folder since the run are refused, and then nothing is written
    #[arg(long, conflicts_with = "discard")]
    pub(crate) apply: bool,
    /// Remove the changes, after a confirmation; the folder stays as it is
    #[arg(long = "drop", aliases = ["discard", "reject"])]
    pub(crate) discard: bool,
    /// Apply or drop without a confirmation; without RUN, only if no other run has changes
    #[arg(long)]
    pub(crate) yes: bool,
    /// The store of the run, if it had --store: a folder, or `postgres://…`
    #[arg(long, value_name = "STORE", value_parser = StoreParser)]
    pub(crate) store: Option<StoreAddress>,
}

#[derive(Debug, Args)]
#[command(
    after_help = "The name of a task in a child room begins with the room's number: 2/task-1.\nExit codes: 0 listed, or the message was received; 1 the run's \
                  process did not receive it; 2 no such run or task, or it has ended"
)]
pub(crate) struct TasksArgs {
    /// The run, or a prefix of its id [default: the newest]
    pub(crate) run: Option<String>,
    /// Show all details of this task
    pub(crate) task: Option<String>,
    /// Cancel the task; its sandbox stops at once, even in a loop
    #[arg(long, requires = "task", conflicts_with = "tell")]
    pub(crate) cancel: bool,
    /// Send the task a message, which its agent reads in its next step
    #[arg(long, value_name = "TEXT", requires = "task")]
    pub(crate) tell: Option<String>,
    /// Deliver the task's result again, if it is a dead letter or waits in the inbox
    #[arg(long, requires = "task", conflicts_with_all = ["cancel", "tell"])]
    pub(crate) redeliver: bool,
    /// The reason for the cancellation
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "cancelled with `conclave tasks`",
        requires = "cancel"
    )]
    pub(crate) reason: String,
    /// How many seconds to wait until the run's process has received it
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    pub(crate) wait: u64,
    /// The store of the run, if it had --store: a folder, or `postgres://…`
    #[arg(long, value_name = "STORE", value_parser = StoreParser)]
    pub(crate) store: Option<StoreAddress>,
}

#[derive(Debug, Args)]
#[command(after_help = "`conclave approve ID` approves a call, `conclave refuse ID` refuses it.")]
pub(crate) struct ApprovalList {
    /// Only calls of this run
    pub(crate) run: Option<String>,
    /// The store of the run, if it had --store: a folder, or `postgres://…`
    #[arg(long, value_name = "STORE", value_parser = StoreParser)]
    pub(crate) store: Option<StoreAddress>,
}

#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Exit codes: 0 shown, or verified; 1 `verify` found damage; others as in `conclave --help`"
)]
pub(crate) struct Audit {
    #[command(subcommand)]
    pub(crate) command: Option<AuditCommand>,
    /// Only this run; a prefix is enough
    #[arg(id = "named", value_name = "RUN", conflicts_with = "run")]
    pub(crate) run_prefix: Option<String>,
    /// As RUN
    #[arg(long, value_name = "RUN")]
    pub(crate) run: Option<String>,
    /// Only entries about this plugin
    #[arg(long, value_name = "PLUGIN")]
    pub(crate) plugin: Option<String>,
    /// Only entries of this kind; can be repeated: granted, signed, denied, approval-requested,
    /// approved, approval-refused, gate-blocked, gate-modified, answer-overruled, result-replaced,
    /// side-effect, message, faulted, interrupted, resumed, stopped, replaced, limit-requested,
    /// limit-raised, limit-refused, limit-ignored
    #[arg(long, value_name = "KIND")]
    pub(crate) kind: Vec<String>,
    /// Only entries since then: how long ago, such as 2h or 30d, or a day such as 2026-01-31 (UTC)
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<String>,
    /// The most entries to list: the newest [default: all]
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<usize>,
    /// The store to read, for runs that had --store: a folder, or `postgres://…`
    #[arg(long, value_name = "STORE", value_parser = StoreParser)]
    pub(crate) store: Option<StoreAddress>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AuditCommand {
    /// Verify every record against the hash chain, and the chain against a hash that you saved
    Verify {
        /// A hash that `conclave audit head` printed earlier; fails if a record from before then is
        /// missing or changed; can be repeated
        #[arg(long, value_name = "HASH")]
        head: Vec<String>,
        /// The store to read, for runs that had --store: a folder, or `postgres://…`
        #[arg(long, value_name = "STORE", value_parser = StoreParser)]
        store: Option<StoreAddress>,
    },
    /// Print the newest hash of the chain, to save it elsewhere
    Head {
        /// The store to read, for runs that had --store: a folder, or `postgres://…`
        #[arg(long, value_name = "STORE", value_parser = StoreParser)]
        store: Option<StoreAddress>,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum StoreCommand {
    /// Remove ended runs, and blobs that no run refers to; without --before and --keep, only the
    /// blobs
    Gc {
        /// Remove runs that ended before then: how long ago, such as 30d, or a day such as
        /// 2026-01-31 (UTC)
        #[arg(long, value_name = "TIME")]
        before: Option<String>,
        /// Keep the newest N runs, even if --before covers them; without --before, remove all other
        /// ended runs
        #[arg(long, value_name = "N")]
        keep: Option<usize>,
        /// Only show what would be removed
        #[arg(long)]
        dry_run: bool,
        /// Remove without a confirmation
        #[arg(long)]
        yes: bool,
        /// This store, a folder or `postgres://…`, instead of those in the state folder
        #[arg(long, value_name = "STORE", value_parser = StoreParser)]
        store: Option<StoreAddress>,
    },
    /// Copy the stores as they are now, even while runs are in progress
    Backup {
        /// The folder to create for the copy
        folder: PathBuf,
        /// This store, a folder or `postgres://…`, instead of those in the state folder
        #[arg(long, value_name = "STORE", value_parser = StoreParser)]
        store: Option<StoreAddress>,
    },
    /// Check every page, hash and reference; exits with 1 if the store is damaged
    Check {
        /// This store, a folder or `postgres://…`, instead of those in the state folder
        #[arg(long, value_name = "STORE", value_parser = StoreParser)]
        store: Option<StoreAddress>,
    },
}
