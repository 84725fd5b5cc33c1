//! The PostgreSQL server that all tests of a run share, and that of a demo. `tests/servers` starts
//! it, from what the machine has.

use std::env;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use crate::failure::XtaskFailure;
use crate::phase::{self, Phases};
use crate::place::Checkout;
use crate::test;

/// The variable with the URL of the server (`tests/servers/src/postgres.rs`).
const SERVER: &str = "CONCLAVE_TEST_POSTGRES";
/// The program that keeps a server until its input ends.
const PROGRAM: &str = "conclave-test-postgres";

/// Whether the environment names a server.
pub(crate) fn is_named() -> bool {
    env::var_os(SERVER).is_some()
}

/// A server that ends when this is dropped, or when this process ends.
pub(crate) struct PostgresServer {
    keeper: Child,
    url: String,
}

impl PostgresServer {
    /// One phase. Returns `None` if the environment names a server. Returns `None` too, with a
    /// printed reason, if PostgreSQL is not installed.
    ///
    /// # Errors
    /// If PostgreSQL does not start, or in CI, where the variable `CI` is set, if it is not there.
    pub(crate) fn start(
        place: &Checkout,
        phases: &mut Phases,
    ) -> Result<Option<Self>, XtaskFailure> {
        let mut started = None;
        phases.check("starting PostgreSQL for the tests", || {
            if !is_named() {
                phase::to_log(place, "postgres", test::program(place, PROGRAM))?;
                started = Some(Self::keep(Command::new(place.program("debug", PROGRAM))));
            }
            Ok(())
        })?;
        match started {
            None => Ok(None),
            Some(Ok(server)) => Ok(Some(server)),
            Some(Err(reason)) if env::var_os("CI").is_some() => Err(XtaskFailure::new(format!(
                "CI does not skip the tests on PostgreSQL: {reason}"
            ))),
            Some(Err(reason)) => {
                eprintln!("      skipped, and with it the tests on PostgreSQL: {reason}");
                Ok(None)
            }
        }
    }

    /// Starts a server of its own from the program, which is built.
    ///
    /// # Errors
    /// If PostgreSQL is not installed, or does not start.
    pub(crate) fn start_own(place: &Checkout) -> Result<Self, XtaskFailure> {
        Self::keep(Command::new(place.program("debug", PROGRAM))).map_err(XtaskFailure::new)
    }

    /// The URL of its superuser, with the password.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Starts the program. Fails with the reason why it has no server.
    fn keep(mut command: Command) -> Result<Self, String> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut keeper = command.spawn().map_err(|error| error.to_string())?;
        let mut url = String::new();
        if let Some(out) = keeper.stdout.take() {
            // Without a line it has ended, and says why.
            let _ = BufReader::new(out).read_line(&mut url);
        }
        url.truncate(url.trim_end().len());
        if !url.is_empty() {
            return Ok(Self { keeper, url });
        }
        let output = keeper.wait_with_output().map_err(|error| error.to_string())?;
        Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())
    }

    /// Returns the variable that tests find the server by, with its value.
    pub(crate) fn variable(&self) -> (&'static str, &str) {
        (SERVER, &self.url)
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        // The end of its input.
        drop(self.keeper.stdin.take());
        let _ = self.keeper.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keep(script: &str) -> Result<PostgresServer, String> {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        PostgresServer::keep(command)
    }

    #[test]
    fn a_server_runs_until_it_is_dropped() {
        let server = keep("echo postgres://here; cat").unwrap_or_else(|reason| panic!("{reason}"));
        assert_eq!(server.variable(), ("CONCLAVE_TEST_POSTGRES", "postgres://here"));
        drop(server);
    }

    #[test]
    fn a_server_that_does_not_start_says_why() {
        let reason = keep("echo it is not installed >&2; exit 1").err();
        assert_eq!(reason.as_deref(), Some("it is not installed"));
    }
}
