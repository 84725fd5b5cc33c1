//! Readers of event streams. Each follows a run, connects again when its stream has ended, and names
//! the last event that it has.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::io::{AsyncWriteExt as _, BufReader};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;

use super::check::{Received, digest};
use super::client::{API, head, line};
use crate::random::Random;

/// The longest pause before a reader connects again, in milliseconds.
const PAUSE_MS: u64 = 400;

/// A reader of the events of a run.
pub(super) struct EventReader {
    pub(super) run: String,
    received: Mutex<Vec<Received>>,
    /// Unusable events and streams.
    pub(super) problems: Mutex<Vec<String>>,
}

impl EventReader {
    pub(super) fn received(&self) -> MutexGuard<'_, Vec<Received>> {
        lock(&self.received)
    }

    /// The id of the last event.
    pub(super) fn last(&self) -> Option<String> {
        self.received().last().map(|event| event.id.clone())
    }
}

/// What all readers counted.
#[derive(Default)]
pub(super) struct ReaderCounts {
    pub(super) connected: AtomicU64,
    pub(super) ended: AtomicU64,
    /// Streams whose end said when to come back.
    pub(super) ended_with_hint: AtomicU64,
    pub(super) reading: AtomicU64,
    /// The answers that were no stream, by their status.
    pub(super) refused: Mutex<BTreeMap<u16, u64>>,
}

/// Readers in tasks of their own. They end when this is dropped.
pub(super) struct EventReaders {
    pub(super) all: Vec<Arc<EventReader>>,
    pub(super) counts: Arc<ReaderCounts>,
    tasks: JoinSet<()>,
}

impl EventReaders {
    /// Starts so many readers. The runs have about as many each.
    pub(super) fn start(
        (address, token): (SocketAddr, &str),
        runs: &[String],
        count: usize,
        random: &mut Random,
    ) -> Self {
        let counts = Arc::<ReaderCounts>::default();
        let mut tasks = JoinSet::new();
        let reader = |run: &String| {
            let reader = Arc::new(EventReader {
                run: run.clone(),
                received: Mutex::default(),
                problems: Mutex::default(),
            });
            let (own, counts, token) = (Arc::clone(&reader), Arc::clone(&counts), token.to_owned());
            let random = Random::new(random.next());
            tasks.spawn(async move { follow(&own, &counts, (address, &token), random).await });
            reader
        };
        let all = runs.iter().cycle().take(count).map(reader).collect();
        Self { all, counts, tasks }
    }

    /// Ends the readers.
    pub(super) async fn end(&mut self) {
        self.tasks.shutdown().await;
    }
}

/// Reads a stream after the other.
async fn follow(
    reader: &EventReader,
    counts: &ReaderCounts,
    server: (SocketAddr, &str),
    mut random: Random,
) {
    loop {
        match open(server, &reader.run, reader.last().as_deref(), None).await {
            Ok(Opened::Stream(mut stream)) => {
                counts.connected.fetch_add(1, Ordering::Relaxed);
                counts.reading.fetch_add(1, Ordering::Relaxed);
                let has_hint = read(reader, &mut stream).await;
                counts.reading.fetch_sub(1, Ordering::Relaxed);
                counts.ended.fetch_add(1, Ordering::Relaxed);
                counts.ended_with_hint.fetch_add(u64::from(has_hint), Ordering::Relaxed);
            }
            Ok(Opened::Refused(status)) => {
                *lock(&counts.refused).entry(status).or_default() += 1;
            }
            Err(_) => {}
        }
        tokio::time::sleep(Duration::from_millis(random.below(PAUSE_MS))).await;
    }
}

/// Reads events until the stream ends. Returns whether it said when to come back.
async fn read(reader: &EventReader, stream: &mut BufReader<TcpStream>) -> bool {
    let (mut id, mut data, mut has_hint) = (None, None, false);
    while let Ok(line) = line(stream).await {
        match line.split_once(':').map(|(name, value)| (name, value.trim_start())) {
            Some(("id", value)) => id = Some(value.to_owned()),
            Some(("data", value)) => data = Some(digest(value)),
            Some(("retry", _)) => has_hint = true,
            // An event ends with an empty line; one without it did not arrive.
            None if line.is_empty() => match (id.take(), data.take()) {
                (Some(id), Some(digest)) => {
                    reader.received().push(Received { id, digest, arrived_us: now_us() });
                }
                (None, None) => {}
                _ => lock(&reader.problems).push("an event has no id or no data".to_owned()),
            },
            _ => {}
        }
    }
    has_hint
}

/// The answer to a request for a stream.
pub(super) enum Opened {
    Stream(BufReader<TcpStream>),
    /// The status of another answer.
    Refused(u16),
}

/// Opens the event stream of a run, with a receive buffer of so many bytes.
pub(super) async fn open(
    (address, token): (SocketAddr, &str),
    run: &str,
    last: Option<&str>,
    buffer: Option<u32>,
) -> io::Result<Opened> {
    let socket = TcpSocket::new_v4()?;
    if let Some(bytes) = buffer {
        socket.set_recv_buffer_size(bytes)?;
    }
    let mut stream = BufReader::new(socket.connect(address).await?);
    // In HTTP/1.0 the body is not cut into chunks.
    let head = head(address, token, "GET", &format!("{API}/runs/{run}/events"));
    let head = head.replacen("HTTP/1.1", "HTTP/1.0", 1);
    let last = last.map(|last| format!("Last-Event-ID: {last}\r\n")).unwrap_or_default();
    stream.get_mut().write_all(format!("{head}{last}\r\n").as_bytes()).await?;
    let first = line(&mut stream).await?;
    let status = first.split(' ').nth(1).and_then(|status| status.parse().ok());
    match status.ok_or(io::ErrorKind::InvalidData)? {
        200 => {}
        status => return Ok(Opened::Refused(status)),
    }
    while !line(&mut stream).await?.is_empty() {}
    Ok(Opened::Stream(stream))
}

/// Microseconds since 1970.
pub(super) fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
