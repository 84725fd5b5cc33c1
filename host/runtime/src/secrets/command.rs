//! A key that a program prints, such as a password manager. The program is started when the key is needed and stopped when nobody waits
//! for it any more. What it prints on standard output is never shown, whatever happens.

use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use conclave_models::Key;

use super::first_line;
use crate::sandbox::log::excerpt;

/// How long a program may take: it may ask a person for a password.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often it is looked at.
const TICK: Duration = Duration::from_millis(10);
/// How long its output is waited for once it has ended: a child of its own may hold the pipe open.
const AFTERWARDS: Duration = Duration::from_millis(500);
/// Bytes of standard error that are read, and characters that are shown.
const STDERR: u64 = 4 << 10;
const SHOWN: usize = 300;

/// Runs a program and gives the first line of its standard output.
///
/// Not tokio's processes: those install a handler for a signal, which a library must not.
pub(super) async fn run(words: Vec<String>, folder: Option<PathBuf>) -> Result<Key, String> {
    run_within(words, folder, PATIENCE).await
}

async fn run_within(words: Vec<String>, folder: Option<PathBuf>, patience: Duration) -> Result<Key, String> {
    let given_up = GivenUp(Arc::new(AtomicBool::new(false)));
    let flag = Arc::clone(&given_up.0);
    let name = words.first().cloned().unwrap_or_default();
    let ran = tokio::task::spawn_blocking(move || wait(&words, folder, patience, &flag)).await;
    ran.unwrap_or_else(|_| Err("broke off".to_owned())).map_err(|what| format!("the program {name} {what}"))
}

/// Tells the thread that watches the program.
struct GivenUp(Arc<AtomicBool>);

impl Drop for GivenUp {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn wait(words: &[String], folder: Option<PathBuf>, patience: Duration, given_up: &AtomicBool) -> Result<Key, String> {
    let (program, arguments) = words.split_first().ok_or_else(|| "has no name".to_owned())?;
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    if let Some(folder) = folder.filter(|folder| !folder.as_os_str().is_empty()) {
        command.current_dir(folder);
    }
    let mut child = command.spawn().map_err(|error| format!("could not be started: {error}"))?;
    let key = child.stdout.take().map(|out| read(out, first_line));
    let said = child.stderr.take().map(|out| read(out, lossy));
    let status = watch(&mut child, patience, given_up)?;
    let key = key.and_then(|key| key.recv_timeout(AFTERWARDS).ok());
    if !status.success() {
        let said = said.and_then(|said| said.recv_timeout(AFTERWARDS).ok()).unwrap_or_default();
        let said = if said.trim().is_empty() { String::new() } else { format!(": {}", excerpt(said.trim(), SHOWN)) };
        return Err(format!("ended with {status}{said}"));
    }
    key.ok_or_else(|| "ended, and something that it started holds its output".to_owned())?.map_err(|what| format!("printed what {what}"))
}

/// Waits for the end; a program that takes too long, or for which nobody waits, is stopped.
fn watch(child: &mut Child, patience: Duration, given_up: &AtomicBool) -> Result<ExitStatus, String> {
    let deadline = Instant::now() + patience;
    loop {
        if let Some(status) = child.try_wait().map_err(|error| format!("cannot be waited for: {error}"))? {
            return Ok(status);
        }
        if given_up.load(Ordering::Relaxed) || Instant::now() >= deadline {
            // It may have ended in between, which is as good.
            let _ = child.kill();
            let _ = child.wait();
            return Err(format!("took more than {} s, and was stopped", patience.as_secs()));
        }
        std::thread::sleep(TICK);
    }
}

/// Reads on a thread of its own: one that waits for a pipe cannot be stopped, and must not hold up the executor's end.
fn read<R: Read + Send + 'static, T: Send + 'static>(mut from: R, take: fn(&mut R) -> T) -> Receiver<T> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        // Nobody may wait any more.
        let _ = sender.send(take(&mut from));
        // What follows is not wanted; a program whose pipe was closed would fail for it.
        let _ = std::io::copy(&mut from, &mut std::io::sink());
    });
    receiver
}

fn lossy(out: &mut impl Read) -> String {
    let mut bytes = Vec::new();
    // What could be read of it is shown.
    let _ = out.take(STDERR).read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use super::*;

    async fn shell(script: &str) -> Result<String, String> {
        let words = ["sh", "-c", script].map(str::to_owned).to_vec();
        run_within(words, None, Duration::from_millis(500)).await.map(|key| key.reveal().to_owned())
    }

    #[tokio::test]
    async fn the_first_line_that_a_program_prints_is_the_key() {
        assert_eq!(shell("echo sk-3; echo rest; cat").await, Ok("sk-3".to_owned()), "its standard input is empty");
        assert_eq!(shell("echo; echo sk-3").await, Err("the program sh printed what has an empty first line".to_owned()));
    }

    #[tokio::test]
    async fn an_error_shows_what_it_says_and_never_what_it_printed() {
        let said = shell("echo sk-secret; echo 'no such entry' >&2; exit 3").await.unwrap_err();
        assert!(said.contains("exit status: 3: no such entry") && !said.contains("sk-secret"), "{said}");
        let missing = run_within(vec!["./no-such-program".to_owned()], None, PATIENCE).await.map(drop).unwrap_err();
        assert!(missing.contains("could not be started"), "{missing}");
    }

    #[tokio::test]
    async fn a_program_that_takes_too_long_is_stopped() {
        let began = Instant::now();
        assert!(shell("exec sleep 600").await.unwrap_err().contains("was stopped"));
        assert!(began.elapsed() < Duration::from_secs(60));
    }

    #[tokio::test]
    async fn a_program_for_which_nobody_waits_is_stopped() {
        let temp = tempfile::tempdir().unwrap();
        let pid = temp.path().join("pid");
        let words = ["sh", "-c", "echo $$ > pid; exec sleep 600"].map(str::to_owned).to_vec();
        let waiting = tokio::spawn(run_within(words, Some(temp.path().to_owned()), PATIENCE));
        let started = || std::fs::read_to_string(&pid).ok().filter(|pid| pid.ends_with('\n'));
        while started().is_none() {
            tokio::task::yield_now().await;
        }
        waiting.abort();
        let process = format!("/proc/{}", started().unwrap().trim());
        while std::path::Path::new(&process).exists() {
            tokio::task::yield_now().await;
        }
    }
}
