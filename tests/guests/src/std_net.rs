//! Opens connections past the contract, through `std`.

use std::net::{TcpListener, TcpStream, ToSocketAddrs, UdpSocket};

use conclave_sdk::{Json, tool};

fn report<T>(what: &str, result: std::io::Result<T>) -> (String, String) {
    (what.to_owned(), result.map_or_else(|error| error.to_string(), |_| "SUCCEEDED".into()))
}

/// Tries the network; each entry is what was tried and what came of it. The address belongs to
/// nobody (RFC 5737).
#[tool]
fn run() -> Json<Vec<(String, String)>> {
    Json(vec![
        report("connect to 203.0.113.7:443", TcpStream::connect("203.0.113.7:443")),
        report("connect to 127.0.0.1:80", TcpStream::connect("127.0.0.1:80")),
        report("listen on a port", TcpListener::bind("127.0.0.1:0")),
        report(
            "send a datagram",
            UdpSocket::bind("0.0.0.0:0").and_then(|socket| socket.send_to(b"x", "203.0.113.7:53")),
        ),
        report("resolve example.com", "example.com:80".to_socket_addrs()),
    ])
}

conclave_sdk::export!(tools: [run], asks: []);
