use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::mpsc;

use super::*;

/// A server that repeats what it receives behind its mark.
struct EchoServer {
    address: SocketAddr,
    received: mpsc::Receiver<Vec<u8>>,
}

impl EchoServer {
    fn start(mark: u8) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let (sender, received) = mpsc::channel();
        thread::spawn(move || {
            for mut client in listener.incoming().flatten() {
                let sender = sender.clone();
                thread::spawn(move || {
                    let mut buffer = [0; 100];
                    while let Ok(count @ 1..) = client.read(&mut buffer) {
                        let bytes = buffer[..count].to_vec();
                        let answer = [&[mark], &bytes[..]].concat();
                        if client.write_all(&answer).is_err() || sender.send(bytes).is_err() {
                            break;
                        }
                    }
                });
            }
        });
        Self { address, received }
    }
}

fn client(proxy: &FaultProxy) -> TcpStream {
    TcpStream::connect(proxy.address()).expect("the proxy listens")
}

/// Sends bytes, and returns the answer to them.
fn ask(client: &mut TcpStream, request: &str) -> io::Result<String> {
    client.write_all(request.as_bytes())?;
    let mut answer = vec![0; request.len() + 1];
    client.read_exact(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

fn outcome(client: &mut TcpStream) -> Result<usize, io::ErrorKind> {
    client.read(&mut [0]).map_err(|error| error.kind())
}

#[test]
fn without_faults_bytes_and_ends_pass() -> io::Result<()> {
    let server = EchoServer::start(b'>');
    let proxy = FaultProxy::before(server.address)?;
    let (mut one, mut two) = (client(&proxy), client(&proxy));
    assert_eq!((ask(&mut one, "a")?, ask(&mut two, "bc")?), (">a".to_owned(), ">bc".to_owned()));
    one.shutdown(Shutdown::Write)?;
    assert_eq!(outcome(&mut one), Ok(0), "the server saw the end, and ended too");
    assert_eq!(ask(&mut two, "d")?, ">d");
    Ok(())
}

#[test]
fn a_cut_ends_each_connection_and_accepts_new_ones() -> io::Result<()> {
    let server = EchoServer::start(b'>');
    let proxy = FaultProxy::before(server.address)?;
    for (ending, expected) in
        [(Ending::Close, Ok(0)), (Ending::Reset, Err(io::ErrorKind::ConnectionReset))]
    {
        let (mut one, mut two) = (client(&proxy), client(&proxy));
        ask(&mut one, "a")?;
        ask(&mut two, "b")?;
        proxy.cut(ending);
        assert_eq!((outcome(&mut one), outcome(&mut two)), (expected, expected));
    }
    assert_eq!(ask(&mut client(&proxy), "c")?, ">c");
    Ok(())
}

#[test]
fn held_bytes_pass_when_they_are_released() -> io::Result<()> {
    let server = EchoServer::start(b'>');
    let proxy = FaultProxy::before(server.address)?;
    let mut client = client(&proxy);
    ask(&mut client, "a")?;
    let _ = server.received.recv();
    for direction in [Direction::ToServer, Direction::ToClient] {
        proxy.hold(direction);
        client.write_all(b"b")?;
        while proxy.held_bytes(direction) == 0 {
            thread::yield_now();
        }
        let has_received = direction == Direction::ToClient && server.received.recv().is_ok();
        assert_eq!(has_received, direction == Direction::ToClient);
        assert!(server.received.try_recv().is_err());
        client.set_nonblocking(true)?;
        assert_eq!(outcome(&mut client), Err(io::ErrorKind::WouldBlock), "{direction:?}");
        client.set_nonblocking(false)?;

        proxy.pass();
        let mut answer = [0; 2];
        client.read_exact(&mut answer)?;
        assert_eq!(&answer, b">b");
        if direction == Direction::ToServer {
            let _ = server.received.recv();
        }
    }
    Ok(())
}

#[test]
fn a_lost_answer_is_of_a_request_that_the_server_has() -> io::Result<()> {
    let server = EchoServer::start(b'>');
    let proxy = FaultProxy::before(server.address)?;
    let mut one = client(&proxy);
    proxy.lose_answer(b"COMMIT");
    assert_eq!(ask(&mut one, "INSERT")?, ">INSERT");
    // The answer is found in two pieces too.
    proxy.lose_answer(b"M>MIT");
    assert_eq!(ask(&mut one, "COM")?, ">COM");
    one.write_all(b"MIT")?;
    assert_eq!(outcome(&mut one), Err(io::ErrorKind::ConnectionReset));
    let received: Vec<_> = server.received.iter().take(3).collect();
    assert_eq!(received.last().map(Vec::as_slice), Some(&b"MIT"[..]));
    assert_eq!(proxy.answers_lost(), 1);

    let mut two = client(&proxy);
    assert_eq!(ask(&mut two, "COMMIT")?, ">COMMIT", "one answer is lost");
    proxy.lose_answer(b"");
    two.write_all(b"any")?;
    assert_eq!(outcome(&mut two), Err(io::ErrorKind::ConnectionReset));
    assert_eq!(proxy.answers_lost(), 2);
    Ok(())
}

#[test]
fn a_refusal_ends_new_connections_only() -> io::Result<()> {
    let server = EchoServer::start(b'>');
    let proxy = FaultProxy::before(server.address)?;
    let mut old = client(&proxy);
    ask(&mut old, "a")?;
    proxy.refuse();
    assert_eq!(outcome(&mut client(&proxy)), Err(io::ErrorKind::ConnectionReset));
    assert_eq!(ask(&mut old, "b")?, ">b");
    proxy.pass();
    assert_eq!(ask(&mut client(&proxy), "c")?, ">c");
    Ok(())
}

#[test]
fn new_clients_come_to_the_server_of_the_moment() -> io::Result<()> {
    let (first, second) = (EchoServer::start(b'1'), EchoServer::start(b'2'));
    let proxy = FaultProxy::before(first.address)?;
    let mut old = client(&proxy);
    assert_eq!(ask(&mut old, "a")?, "1a");
    proxy.lead_to(second.address);
    assert_eq!(ask(&mut client(&proxy), "b")?, "2b");
    assert_eq!(ask(&mut old, "c")?, "1c");
    drop(proxy);
    assert!(outcome(&mut old).is_ok_and(|count| count == 0));
    Ok(())
}

#[test]
fn a_delay_holds_each_piece_for_its_time() -> io::Result<()> {
    let server = EchoServer::start(b'>');
    let proxy = FaultProxy::before(server.address)?;
    let mut client = client(&proxy);
    proxy.delay(Direction::ToClient, Duration::MAX);
    client.write_all(b"a")?;
    while proxy.held_bytes(Direction::ToClient) == 0 {
        thread::yield_now();
    }
    client.set_nonblocking(true)?;
    assert_eq!(outcome(&mut client), Err(io::ErrorKind::WouldBlock));
    client.set_nonblocking(false)?;
    proxy.cut(Ending::Close);
    assert_eq!(outcome(&mut client), Ok(0), "what is late when the connection is cut is lost");
    proxy.delay(Direction::ToClient, Duration::from_nanos(1));
    assert_eq!(ask(&mut self::client(&proxy), "b")?, ">b");
    Ok(())
}
