//! The noise for the row of the noisy neighbor: a guest that computes until its limit stops it,
//! repeatedly, in its own thread.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use conclave_core::config::Config;
use conclave_runtime::{Host, Prepared, RunOptions};

use crate::BenchError;

/// Noise that lasts until it is dropped.
pub(crate) struct Noise {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

const CONFIG: &str = r#"
entry = "main"
[plugins.caller]
source = "agent_caller.wasm"
grants.tools = ["spin.*"]
config = { tool = "spin.run" }
[plugins.spin]
source = "spin.wasm"
limits.cpu = "100 ms"
[tasks.main]
agent = "caller"
"#;

impl Noise {
    /// Loads the noisy plugin into the host of the quiet one, so that they share engine, pool and
    /// clock, and starts it.
    pub(crate) async fn start(host: &Host, guests: &Path) -> Result<Self, BenchError> {
        let folder = fs::canonicalize(guests)
            .map_err(|cause| BenchError::Component { path: guests.to_owned(), cause })?;
        let config = Config::parse("noise.toml", &folder.to_string_lossy(), CONFIG);
        let config = config.map_err(|problems| BenchError::Conclave(problems.to_string()))?;
        let noisy =
            host.load(&config).await.map_err(|error| BenchError::Conclave(error.to_string()))?;
        let stop = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&stop);
        let thread = std::thread::spawn(move || make(&noisy, &until));
        Ok(Self { stop, thread: Some(thread) })
    }
}

/// Makes noise. A run that fails to start makes none, which the row then shows.
fn make(noisy: &Prepared, until: &AtomicBool) {
    let Ok(executor) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
        return;
    };
    executor.block_on(async {
        while !until.load(Ordering::Relaxed) {
            let Ok(run) = noisy.start(Some("go".to_owned()), RunOptions::default()) else { return };
            let _ = run.outcome().await;
        }
    });
}

impl Drop for Noise {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
