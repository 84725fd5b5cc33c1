//! A server on loopback for tests: HTTP/1.1 with answers from a script, and every fault that a real
//! one can have. Plain threads, so that tests with and without a runtime can use it. It knows Chat
//! Completions only in [`Answer`]'s conveniences.

mod answer;
mod connection;

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use serde_json::{Value, json};

pub use self::answer::TestReply;

/// A request as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenRequest {
    pub method: String,
    /// With its query.
    pub path: String,
    /// Names in small letters.
    pub headers: BTreeMap<String, String>,
    pub body: Vec<u8>,
}

impl SeenRequest {
    /// The body as JSON; null when it is none.
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
    /// Answers POST requests with these, in order; the last again when they are used up. A GET of
    /// `/models` is answered with one model, `test-model`.
    ///
    /// # Panics
    /// When loopback has no free port, or the script is empty.
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

    /// Answers every request with what `handler` makes of it.
    ///
    /// # Panics
    /// When loopback has no free port.
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

    /// Where the API begins: `http://127.0.0.1:PORT/v1`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// Every request so far, in order.
    #[must_use]
    pub fn requests(&self) -> Vec<SeenRequest> {
        self.shared.state().requests.clone()
    }

    /// Connections so far; one may carry many requests.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.shared.state().connections
    }

    /// Waits until so many requests have come. Blocks the thread; when they never come, it is for
    /// the tests' runner to end it.
    pub fn wait_for_requests(&self, count: usize) {
        self.wait_until(|state| state.requests.len() >= count);
    }

    /// Waits until so many clients went away before they had their answer. Blocks the thread
    /// likewise.
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
        // The thread looks at the flag when somebody connects.
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

    /// Requests of one connection, one after another. An error is the end of it: the client has
    /// gone.
    fn serve(&self, stream: &TcpStream) {
        // Pieces go out as they are written: tests look at how they are put together.
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
