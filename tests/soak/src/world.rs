//! The outside world: it counts requests, delays its answers, and outlives every child.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::random::Random;

/// The number of arrivals by kind.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    /// By the id in the path.
    pub(crate) effects: BTreeMap<String, u64>,
    /// Model replies, by the prompt's digest.
    pub(crate) bought: BTreeMap<String, u64>,
    /// Results, by their text.
    pub(crate) spoken: BTreeMap<String, u64>,
}

struct Inner {
    counts: Mutex<Counts>,
    random: Mutex<Random>,
    slowest_ms: u64,
    is_over: AtomicBool,
}

/// The parent's servers, on one port.
pub(crate) struct World {
    inner: Arc<Inner>,
    port: u16,
}

impl World {
    /// Opens a world that delays its answers by up to so many milliseconds.
    pub(crate) fn open(seed: u64, slowest_ms: u64) -> std::io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let port = listener.local_addr()?.port();
        let (counts, random, is_over) =
            (Mutex::default(), Mutex::new(Random::new(seed)), AtomicBool::new(false));
        let inner = Arc::new(Inner { counts, random, slowest_ms, is_over });
        let serving = Arc::clone(&inner);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if serving.is_over.load(Ordering::Relaxed) {
                    return;
                }
                let serving = Arc::clone(&serving);
                // A child that is killed in the middle of a request gets no answer, but the request
                // counts.
                std::thread::spawn(move || drop(serving.serve(stream)));
            }
        });
        Ok(Self { inner, port })
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn counts(&self) -> Counts {
        lock(&self.inner.counts).clone()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.inner.is_over.store(true, Ordering::Relaxed);
        drop(TcpStream::connect(("127.0.0.1", self.port)));
    }
}

impl Inner {
    fn serve(&self, stream: TcpStream) -> std::io::Result<()> {
        let mut reader = BufReader::new(stream);
        let mut first = String::new();
        reader.read_line(&mut first)?;
        let path = first.split(' ').nth(1).unwrap_or_default().to_owned();
        let mut length = 0;
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line)? == 0 || line == "\r\n" {
                break;
            }
            if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse().unwrap_or(0);
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        let answer = self.take(&path, String::from_utf8_lossy(&body).into_owned());
        let wait = lock(&self.random).below(self.slowest_ms + 1);
        std::thread::sleep(Duration::from_millis(wait));
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
            answer.len()
        );
        reader.get_mut().write_all((head + &answer).as_bytes())
    }

    fn take(&self, path: &str, body: String) -> String {
        let mut counts = lock(&self.counts);
        let count = |of: &mut BTreeMap<String, u64>, name: String| {
            let count = of.entry(name).or_default();
            *count += 1;
            *count
        };
        match path.split_once('/').map_or("", |(_, path)| path).split_once('/') {
            Some(("effect", id)) => format!("done {}", count(&mut counts.effects, id.to_owned())),
            Some(("model", key)) => format!("{key}#{}", count(&mut counts.bought, key.to_owned())),
            Some(("speak", _)) => format!("heard {}", count(&mut counts.spoken, body)),
            _ => "yes".to_owned(),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
