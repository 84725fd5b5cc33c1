//! A TCP proxy on the loopback that makes the faults of a network on demand. It knows nothing of
//! the protocol that it carries.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// The size of the largest piece that is passed on at once.
const PIECE: usize = 64 << 10;

/// A direction of bytes through a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    ToServer,
    ToClient,
}

/// How a connection is cut. Bytes that the proxy has not passed on are lost either way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// As by a program that closes its connection (FIN).
    Close,
    /// As by a machine that does not know the connection (RST).
    Reset,
}

/// A proxy before a server. Dropping it cuts all connections.
#[derive(Debug)]
pub struct FaultProxy {
    address: SocketAddr,
    state: Arc<watch::Sender<ProxyState>>,
    thread: Option<JoinHandle<()>>,
}

/// The faults that are in effect, and what became of them.
#[derive(Debug)]
struct ProxyState {
    server: SocketAddr,
    refuses: bool,
    /// The number of cuts so far. It ends the connections that began at a smaller number.
    cuts: u64,
    ending: Ending,
    to_server: DirectionState,
    to_client: DirectionState,
    /// The bytes of the answer that is to be lost.
    lost_answer: Option<Vec<u8>>,
    answers_lost: u64,
    is_over: bool,
}

#[derive(Debug, Default)]
struct DirectionState {
    is_held: bool,
    held_bytes: usize,
    delay: Duration,
}

impl ProxyState {
    fn new(server: SocketAddr) -> Self {
        Self {
            server,
            refuses: false,
            cuts: 0,
            ending: Ending::Close,
            to_server: DirectionState::default(),
            to_client: DirectionState::default(),
            lost_answer: None,
            answers_lost: 0,
            is_over: false,
        }
    }

    fn direction(&self, direction: Direction) -> &DirectionState {
        match direction {
            Direction::ToServer => &self.to_server,
            Direction::ToClient => &self.to_client,
        }
    }

    fn direction_mut(&mut self, direction: Direction) -> &mut DirectionState {
        match direction {
            Direction::ToServer => &mut self.to_server,
            Direction::ToClient => &mut self.to_client,
        }
    }
}

impl FaultProxy {
    /// Starts a proxy that passes everything on to this server.
    ///
    /// # Errors
    /// If the loopback has no free port.
    pub fn before(server: SocketAddr) -> io::Result<Self> {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let state = Arc::new(watch::Sender::new(ProxyState::new(server)));
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        let shared = Arc::clone(&state);
        let thread = thread::spawn(move || {
            runtime.block_on(async {
                if let Ok(listener) = TcpListener::from_std(listener) {
                    accept(listener, shared).await;
                }
            });
        });
        Ok(Self { address, state, thread: Some(thread) })
    }

    /// Returns the address for clients.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Connects new clients to another server, as after a failover.
    pub fn lead_to(&self, server: SocketAddr) {
        self.state.send_modify(|state| state.server = server);
    }

    /// Ends every fault: releases held bytes, and accepts connections again.
    pub fn pass(&self) {
        self.state.send_modify(|state| {
            state.refuses = false;
            state.lost_answer = None;
            for direction in [Direction::ToServer, Direction::ToClient] {
                let state = state.direction_mut(direction);
                (state.is_held, state.delay) = (false, Duration::ZERO);
            }
        });
    }

    /// Cuts all connections that have carried bytes. New ones are accepted.
    pub fn cut(&self, ending: Ending) {
        self.state.send_modify(|state| {
            state.cuts += 1;
            state.ending = ending;
        });
    }

    /// Resets each new connection at once. Others stay.
    pub fn refuse(&self) {
        self.state.send_modify(|state| state.refuses = true);
    }

    /// Holds all bytes of a direction until [`Self::pass`]. No end of a connection passes either.
    pub fn hold(&self, direction: Direction) {
        self.state.send_modify(|state| state.direction_mut(direction).is_held = true);
    }

    /// Returns how many bytes have arrived for a direction and are not passed on.
    #[must_use]
    pub fn held_bytes(&self, direction: Direction) -> usize {
        self.state.borrow().direction(direction).held_bytes
    }

    /// Passes each piece of a direction on after this time, until [`Self::pass`].
    pub fn delay(&self, direction: Direction, delay: Duration) {
        self.state.send_modify(|state| state.direction_mut(direction).delay = delay);
    }

    /// Withholds the next answer that contains these bytes, and resets its connection: the server
    /// has done what it was asked, and its client never learns that. Any answer contains no bytes.
    pub fn lose_answer(&self, containing: &[u8]) {
        self.state.send_modify(|state| state.lost_answer = Some(containing.to_owned()));
    }

    /// Returns the number of answers that were lost.
    #[must_use]
    pub fn answers_lost(&self) -> u64 {
        self.state.borrow().answers_lost
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.state.send_modify(|state| state.is_over = true);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

async fn accept(listener: TcpListener, state: Arc<watch::Sender<ProxyState>>) {
    let mut changes = state.subscribe();
    // Dropping it ends the tasks, and with them the connections.
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                if let Ok((client, _)) = accepted {
                    connections.spawn(connect(client, Arc::clone(&state)));
                }
            }
            Some(_) = connections.join_next() => {}
            _ = changes.wait_for(|state| state.is_over) => return,
        }
    }
}

/// Serves a connection to its end.
async fn connect(mut client: TcpStream, state: Arc<watch::Sender<ProxyState>>) {
    let (address, refuses, cuts) = {
        let state = state.borrow();
        (state.server, state.refuses, state.cuts)
    };
    let server = if refuses { None } else { TcpStream::connect(address).await.ok() };
    let Some(mut server) = server else {
        let _ = client.set_zero_linger();
        return;
    };
    let _ = client.set_nodelay(true).and_then(|()| server.set_nodelay(true));
    let ending = {
        let ((client_reader, client_writer), (server_reader, server_writer)) =
            (client.split(), server.split());
        let requests = relay(Direction::ToServer, client_reader, server_writer, &state);
        let answers = relay(Direction::ToClient, server_reader, client_writer, &state);
        tokio::select! {
            ending = next_cut(&state, cuts) => ending,
            ended = async { tokio::try_join!(requests, answers) } => match ended {
                Ok(_) => Ending::Close,
                Err(_) => Ending::Reset,
            },
        }
    };
    if ending == Ending::Reset {
        let _ = client.set_zero_linger().and_then(|()| server.set_zero_linger());
    }
}

/// Waits until there were more cuts than these.
async fn next_cut(state: &watch::Sender<ProxyState>, cuts: u64) -> Ending {
    let mut changes = state.subscribe();
    let cut = changes.wait_for(|state| state.cuts > cuts).await;
    cut.map_or(Ending::Reset, |state| state.ending)
}

/// Passes bytes on until one side ends the connection. Fails if the connection is to be reset.
async fn relay(
    direction: Direction,
    mut reader: ReadHalf<'_>,
    mut writer: WriteHalf<'_>,
    state: &watch::Sender<ProxyState>,
) -> io::Result<()> {
    let mut changes = state.subscribe();
    let mut buffer = vec![0; PIECE];
    let mut recent = Vec::new();
    loop {
        let count = reader.read(&mut buffer).await?;
        let _held = HeldBytes::new(state, direction, count);
        let delay = state.borrow().direction(direction).delay;
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        let _ = changes.wait_for(|state| !state.direction(direction).is_held).await;
        if count == 0 {
            return writer.shutdown().await;
        }
        let piece = &buffer[..count];
        if direction == Direction::ToClient && is_lost(state, &mut recent, piece) {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        writer.write_all(piece).await?;
    }
}

/// Returns whether this piece completes the answer that is to be lost. `recent` has the end of the
/// pieces before it.
fn is_lost(state: &watch::Sender<ProxyState>, recent: &mut Vec<u8>, piece: &[u8]) -> bool {
    recent.extend_from_slice(piece);
    let lost = state.send_if_modified(|state| {
        let is_lost = state.lost_answer.as_ref().is_some_and(|answer| {
            answer.is_empty() || recent.windows(answer.len()).any(|part| part == answer)
        });
        if is_lost {
            state.lost_answer = None;
            state.answers_lost += 1;
        }
        is_lost
    });
    let length = state.borrow().lost_answer.as_ref().map_or(0, Vec::len);
    recent.drain(..recent.len().saturating_sub(length.saturating_sub(1)));
    lost
}

/// Counts bytes as held until they are passed on or lost.
struct HeldBytes<'a> {
    state: &'a watch::Sender<ProxyState>,
    direction: Direction,
    count: usize,
}

impl<'a> HeldBytes<'a> {
    fn new(state: &'a watch::Sender<ProxyState>, direction: Direction, count: usize) -> Self {
        state.send_modify(|state| state.direction_mut(direction).held_bytes += count);
        Self { state, direction, count }
    }
}

impl Drop for HeldBytes<'_> {
    fn drop(&mut self) {
        let Self { state, direction, count } = self;
        state.send_modify(|state| state.direction_mut(*direction).held_bytes -= *count);
    }
}

#[cfg(test)]
mod tests;
