//! The programs of PostgreSQL on this machine, and the account that runs them.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::{PostgresFailure, search_path};

/// The folder with a folder of programs for each version, in packages of Debian and its relatives.
const VERSIONS: &str = "/usr/lib/postgresql";

/// The oldest version that the store supports.
const OLDEST: u32 = 15;

/// The account that the packages create for the server.
const SERVER_ACCOUNT: &str = "postgres";

/// An installed PostgreSQL.
#[derive(Clone, Debug)]
pub(crate) struct Installation {
    /// The folder of the programs.
    programs: PathBuf,
    account: Option<Account>,
}

/// An account for a process of root, because PostgreSQL refuses to run as root.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Account {
    pub(crate) user: u32,
    pub(crate) group: u32,
}

impl Installation {
    /// Finds the newest version among the packages, otherwise that of `PATH`, otherwise that of
    /// `pg_config`.
    pub(crate) fn find() -> Result<Self, PostgresFailure> {
        let programs = packaged()
            .into_iter()
            .chain(env::split_paths(&search_path()))
            .chain(configured())
            .find(|folder| version(folder).is_some_and(|version| version >= OLDEST))
            .ok_or(PostgresFailure::NotInstalled)?;
        Ok(Self { programs, account: Account::instead_of_root()? })
    }

    /// Returns the folder of the programs.
    pub(crate) fn programs(&self) -> &Path {
        &self.programs
    }

    /// Returns the account of the server; `None` if that is the account of this process.
    pub(crate) fn account(&self) -> Option<Account> {
        self.account
    }

    /// Returns a command for a program of PostgreSQL, without variables that change what it does.
    pub(crate) fn command(&self, program: &str) -> Command {
        self.as_account(self.programs.join(program))
    }

    /// Returns a command for any program, which runs as the account of the server.
    pub(crate) fn as_account(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env_clear().env("PATH", search_path()).env("LC_ALL", "C");
        // The account may be unable to enter the current folder.
        command.current_dir("/").stdin(Stdio::null());
        if let Some(Account { user, group }) = self.account {
            command.uid(user).gid(group);
        }
        command
    }

    /// Runs statements, each in a transaction of its own. Returns the rows as text.
    pub(crate) fn query(&self, url: &str, statements: &[&str]) -> Result<String, PostgresFailure> {
        let mut psql = self.command("psql");
        psql.args(["--no-psqlrc", "--no-align", "--tuples-only", "--quiet", "--dbname", url]);
        psql.args(["--set", "ON_ERROR_STOP=1"]);
        psql.args(statements.iter().flat_map(|statement| ["--command", statement]));
        run(&mut psql)
    }
}

impl Account {
    fn instead_of_root() -> Result<Option<Self>, PostgresFailure> {
        let id = |words: &[&str]| {
            run(Command::new("id").args(words))
                .and_then(|id| id.parse::<u32>().map_err(|_| PostgresFailure::Failed(id)))
        };
        if id(&["-u"])? != 0 {
            return Ok(None);
        }
        let user = id(&["-u", SERVER_ACCOUNT])?;
        Ok(Some(Self { user, group: id(&["-g", SERVER_ACCOUNT])? }))
    }
}

/// Runs a program to its end. Returns what it printed.
pub(crate) fn run(command: &mut Command) -> Result<String, PostgresFailure> {
    let name = Path::new(command.get_program()).display().to_string();
    let output = command.output().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => PostgresFailure::NotInstalled,
        _ => PostgresFailure::io(&name, &error),
    })?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() {
        return Ok(text(&output.stdout));
    }
    Err(PostgresFailure::Failed(format!("{name}: {}", text(&output.stderr))))
}

/// Returns the folders of programs of all packaged versions, the newest first.
fn packaged() -> Vec<PathBuf> {
    let mut versions: Vec<(u32, PathBuf)> = fs::read_dir(VERSIONS)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let version = entry.file_name().to_str()?.parse().ok()?;
            Some((version, entry.path().join("bin")))
        })
        .collect();
    versions.sort();
    versions.into_iter().rev().map(|(_, folder)| folder).collect()
}

/// Returns the folder of programs that `pg_config` names.
fn configured() -> Option<PathBuf> {
    run(Command::new("pg_config").arg("--bindir")).ok().map(PathBuf::from)
}

/// Returns the version of the server in a folder of programs, without its minor part.
fn version(folder: &Path) -> Option<u32> {
    let text = run(Command::new(folder.join("postgres")).arg("--version")).ok()?;
    // `postgres (PostgreSQL) 15.14 (Debian 15.14-0+deb12u1)`, `postgres (PostgreSQL) 18beta1`
    let number = text.split_whitespace().nth(2)?;
    number.split(|letter: char| !letter.is_ascii_digit()).next()?.parse().ok()
}
