//! The surroundings that `cargo xtask test` gives to tests: a PostgreSQL server; on demand a busy
//! machine, and a home folder and a folder for temporary files that are not empty.

use std::cell::OnceCell;
use std::env;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::failure::XtaskFailure;
use crate::files;
use crate::phase::{self, Phases};
use crate::place::Checkout;
use crate::postgres::{self, PostgresServer};

type Variables = Vec<(&'static str, OsString)>;

/// The environment that the tests get. The machine is busy, and the server runs,
/// until this is dropped.
pub(crate) struct Surroundings {
    variables: Variables,
    postgres: OnceCell<PostgresServer>,
    _busy: BusyLoops,
}

impl Surroundings {
    pub(crate) fn new(place: &Checkout, busy: u32, is_crowded: bool) -> Result<Self, XtaskFailure> {
        let variables = if is_crowded { crowded(place)? } else { Variables::new() };
        Ok(Self { variables, postgres: OnceCell::new(), _busy: BusyLoops::start(busy)? })
    }

    /// One phase. Starts a server for the tests, where that is possible.
    pub(crate) fn start_postgres(
        &self,
        place: &Checkout,
        phases: &mut Phases,
    ) -> Result<(), XtaskFailure> {
        if let Some(server) = PostgresServer::start(place, phases)? {
            let _ = self.postgres.set(server);
        }
        Ok(())
    }

    /// Whether the tests have a server.
    pub(crate) fn has_postgres(&self) -> bool {
        self.postgres.get().is_some() || postgres::is_named()
    }

    pub(crate) fn put_around(&self, command: &mut Command) {
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command.envs(self.postgres.get().map(PostgresServer::variable));
    }
}

/// Loops that keep the machine busy until this is dropped.
struct BusyLoops(Vec<Child>);

impl BusyLoops {
    fn start(count: u32) -> Result<Self, XtaskFailure> {
        let mut busy = Self(Vec::new());
        for _ in 0..count {
            // Lower priority than the tests, so that the tests still finish.
            let mut command = Command::new("nice");
            command.args(["-n", "5", "sh", "-c", "while :; do :; done"]).stdin(Stdio::null());
            let child = command.spawn().map_err(|error| phase::not_started(&command, &error))?;
            busy.0.push(child);
        }
        Ok(busy)
    }
}

impl Drop for BusyLoops {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Creates a home folder with unreadable stores, locks, keys and configs, and a folder for
/// temporary files below it.
fn crowded(place: &Checkout) -> Result<Variables, XtaskFailure> {
    let home = place.own().join("crowded/home");
    let state = home.join(".local/state/conclave");
    let contents = [
        (home.join("conclave.toml"), "entry = \"nobody\"\n[this is no config\n"),
        (home.join("conclave.lock"), "this is no lock\n"),
        (home.join("tmp/conclave.toml"), "entry = \"nobody\"\n[this is no config\n"),
        (home.join("tmp/conclave.lock"), "this is no lock\n"),
        (home.join("tmp/.ssh/id"), "this is no key\n"),
        (home.join(".ssh/id"), "this is no key\n"),
        (state.join("stores/1/log.db"), "this is no database\n"),
        (home.join(".config/conclave/conclave.toml"), "[this is no config\n"),
        (home.join(".cache/conclave/this"), "this is no component\n"),
    ];
    for (file, text) in contents {
        files::make_folder(file.parent().unwrap_or(&home))?;
        files::write(&file, text)?;
    }
    // Cargo and rustup keep their own folders.
    let own = |name: &str, folder: &str| {
        env::var_os(name).unwrap_or_else(|| {
            PathBuf::from(env::var_os("HOME").unwrap_or_default()).join(folder).into()
        })
    };
    Ok(vec![
        ("CARGO_HOME", own("CARGO_HOME", ".cargo")),
        ("RUSTUP_HOME", own("RUSTUP_HOME", ".rustup")),
        ("HOME", home.clone().into()),
        ("TMPDIR", home.join("tmp").into()),
        ("CONCLAVE_STATE", state.clone().into()),
        ("CONCLAVE_CACHE", home.join(".cache/conclave").into()),
        ("XDG_STATE_HOME", home.join(".local/state").into()),
        ("XDG_CONFIG_HOME", home.join(".config").into()),
        ("XDG_CACHE_HOME", home.join(".cache").into()),
        ("COLUMNS", "43".into()),
        ("LANG", "tr_TR.UTF-8".into()),
        ("TZ", "Pacific/Apia".into()),
        ("CLICOLOR_FORCE", "1".into()),
    ])
}
