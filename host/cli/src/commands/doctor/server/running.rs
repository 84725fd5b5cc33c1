//! Asks whether the server itself listens at its address, and whether it can read its store.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::time::Duration;

use crate::args::CheckedServer;
use crate::state::machine::Finding;

/// The time for an answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Bytes of an answer that are read.
const ANSWER: u64 = 4 << 10;

/// The finding about a running server; `None` if nothing answers there as one, or if it speaks TLS.
pub(super) fn finding(what: &'static str, args: &CheckedServer) -> Option<Finding> {
    if args.tls_cert.is_some() {
        return None;
    }
    let address = reached(args.listen);
    let host = args.public.clone().unwrap_or_else(|| address.to_string());
    let lives = get(address, &host, "/healthz")?;
    let ready = get(address, &host, "/readyz")?;
    match (lives, ready) {
        (200, 200) => {
            Some(Finding::ok(what, format!("the server runs at {address}, and reads its store")))
        }
        (200, 503) => Some(Finding::fail(
            what,
            format!("the server runs at {address}, and cannot read its store"),
            "its log says why",
        )),
        (421, _) => Some(Finding::fail(
            what,
            format!("the server at {address} does not answer as {host}"),
            "name the host with which it was started: --public HOST",
        )),
        _ => None,
    }
}

/// An address at which this machine reaches the server.
fn reached(listen: SocketAddr) -> SocketAddr {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, listen.port())
}

/// The status of a request.
fn get(address: SocketAddr, host: &str, path: &str) -> Option<u16> {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").ok()?;
    let mut answer = Vec::new();
    // What arrived before an error may be enough.
    let _ = stream.take(ANSWER).read_to_end(&mut answer);
    let answer = String::from_utf8_lossy(&answer);
    answer.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_for_all_addresses_is_asked_on_this_machine() {
        let of = |address: &str| reached(address.parse().expect("an address")).to_string();
        assert_eq!(of("0.0.0.0:80"), "127.0.0.1:80");
        assert_eq!(of("[::]:80"), "[::1]:80");
        assert_eq!(of("192.0.2.7:80"), "192.0.2.7:80");
    }
}
