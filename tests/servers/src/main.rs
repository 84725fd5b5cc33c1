//! `conclave-test-postgres`: starts a server, prints the URL of its superuser, and ends the server
//! when its input ends. `cargo xtask test` keeps one for all tests this way.

use std::io::{self, Write};
use std::process::ExitCode;

use conclave_test_servers::TestPostgres;

fn main() -> ExitCode {
    let server = match TestPostgres::start() {
        Ok(server) => server,
        Err(failure) => {
            eprintln!("{failure}");
            return ExitCode::FAILURE;
        }
    };
    let mut out = io::stdout();
    if writeln!(out, "{}", server.url()).and_then(|()| out.flush()).is_ok() {
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
    }
    ExitCode::SUCCESS
}
