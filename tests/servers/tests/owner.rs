//! A server whose owner is killed.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;

use conclave_test_servers::{TestPostgres, postgres_or_skip};

#[test]
fn a_server_ends_when_its_owner_is_killed() {
    let Some(_) = postgres_or_skip(TestPostgres::shared()) else { return };
    let mut owner = Command::new(env!("CARGO_BIN_EXE_conclave-test-postgres"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut url = String::new();
    BufReader::new(owner.stdout.take().expect("it is piped"))
        .read_line(&mut url)
        .expect("it prints the URL of its server");
    let port = url.split(':').next_back().and_then(|end| end.split('/').next());
    let port: u16 = port.and_then(|port| port.parse().ok()).expect("the URL has a port");
    let folder = folder_of(port).expect("the server has a folder");
    let mut connection =
        TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("the server listens");

    owner.kill().expect("it runs");
    owner.wait().expect("it ends");
    // The server says nothing before its client does.
    let received = connection.read(&mut [0]);
    assert!(!matches!(received, Ok(1..)), "the server ends: {received:?}");
    while folder.exists() {
        thread::yield_now();
    }
    assert!(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err(), "nothing listens any more");
}

/// Finds the folder of a server by its port, which is the fourth line of its lock file.
fn folder_of(port: u16) -> Option<PathBuf> {
    let parents = [PathBuf::from("/tmp"), std::env::temp_dir()];
    let entries = parents.iter().filter_map(|parent| fs::read_dir(parent).ok()).flatten().flatten();
    entries.map(|entry| entry.path()).find(|folder| {
        fs::read_to_string(folder.join("data/postmaster.pid"))
            .is_ok_and(|lock| lock.lines().nth(3) == Some(&port.to_string()))
    })
}
