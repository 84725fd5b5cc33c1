//! A test server on loopback: HTTP/1.1 with scripted answers, and all faults of real servers. It
//! uses plain threads, so that tests need no async runtime. Chat Completions only appear in the
//! constructors of [`TestReply`].

mod answer;
mod connection;

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use serde_json::{Value, json};

pub use self::answer::TestReply;

/// A received request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenRequest {
    /// In upper case, such as `POST`.
    pub method: String,
    /// The path with its query.
    pub path: String,
    /// Headers by lower-case name.
    pub headers: BTreeMap<String, String>,
    /// The raw bytes; empty for a request without a body.
    pub body: Vec<u8>,
}

impl SeenRequest {
    /// The body as JSON; null if it is invalid.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

/// A server that runs until it is dropped.
pub struct Server {
    address: SocketAddr,
    shared: Arc<ServerShared>,
}

type Handler = dyn Fn(&SeenRequest) -> TestReply + Send + Sync;

struct ServerShared {
    handler: Box<Handler>,
    state: Mutex<ServerState>,
    changed: Condvar,
    is_over: AtomicBool,
}

#[derive(Default)]
struct ServerState {
    requests: Vec<SeenRequest>,
    connections: usize,
    hang_ups: usize,
}

impl Server {
    /// Answers POST requests with these replies, in order, then with the last one. A GET of
    /// `/models` lists one model, `test-model`.
    ///
    /// # Panics
    /// If loopback has no free port, or the script is empty.
    #[must_use]
    pub fn start(script: Vec<TestReply>) -> Self {
        let last = script.len().checked_sub(1).expect("a script has an answer");
        let next = Mutex::new(0);
        Self::answering(move |request| {
            if request.method == "GET" {
                return TestReply::json(
                    200,
                    &json!({"object": "list", "data": [{"id": "test-model", "object": "model"}]}),
                );
            }
            let mut next = next.lock().unwrap_or_else(PoisonError::into_inner);
            let index = *next;
            *next += 1;
            script[index.min(last)].clone()
        })
    }

    /// Answers every request with the result of `handler`.
    ///
    /// # Panics
    /// If loopback has no free port.
    #[must_use]
    pub fn answering(handler: impl Fn(&SeenRequest) -> TestReply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("loopback has a free port");
        let address = listener.local_addr().expect("a bound socket has an address");
        let shared = Arc::new(ServerShared {
            handler: Box::new(handler),
            state: Mutex::default(),
            changed: Condvar::new(),
            is_over: AtomicBool::new(false),
        });
        let accepting = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if accepting.is_over.load(Ordering::Relaxed) {
                    break;
                }
                accepting.update(|state| state.connections += 1);
                let shared = Arc::clone(&accepting);
                thread::spawn(move || shared.serve(&stream));
            }
        });
        Self { address, shared }
    }

    /// The base URL of the API: `http://127.0.0.1:PORT/v1`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// All requests so far, in order.
    #[must_use]
    pub fn requests(&self) -> Vec<SeenRequest> {
        self.shared.state().requests.clone()
    }

    /// The number of connections so far; one may carry many requests.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.shared.state().connections
    }

    /// Blocks until so many requests have arrived. The test runner's timeout ends it otherwise.
    pub fn wait_for_requests(&self, count: usize) {
        self.wait_until(|state| state.requests.len() >= count);
    }

    /// Blocks until so many clients have disconnected before their answer.
    pub fn wait_for_hang_ups(&self, count: usize) {
        self.wait_until(|state| state.hang_ups >= count);
    }

    fn wait_until(&self, is_met: impl Fn(&ServerState) -> bool) {
        drop(
            self.shared
                .changed
                .wait_while(self.shared.state(), |state| !is_met(state))
                .unwrap_or_else(PoisonError::into_inner),
        );
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        // The thread checks the flag at the next connection.
        drop(TcpStream::connect(self.address));
    }
}

impl ServerShared {
    fn state(&self) -> MutexGuard<'_, ServerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn update(&self, change: impl FnOnce(&mut ServerState)) {
        change(&mut self.state());
        self.changed.notify_all();
    }

    /// Serves the requests of one connection. An error means that the client has disconnected.
    fn serve(&self, stream: &TcpStream) {
        // Tests check how pieces are joined, so each must be sent as it is written.
        drop(stream.set_nodelay(true));
        while let Ok(Some(request)) = connection::read_request(stream) {
            let answer = (self.handler)(&request);
            self.update(|state| state.requests.push(request));
            match connection::write_answer(stream, &answer) {
                Ok(true) => {}
                Ok(false) => break,
                Err(_) => {
                    self.update(|state| state.hang_ups += 1);
                    break;
                }
            }
        }
    }
}
