//! Secrets that a program prints, such as a password manager. The program starts when the key is
//! needed. It is stopped, with its whole process group, when it keeps running after the key,
//! exceeds its time limit, or its caller is dropped. Its standard output is never shown.

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, ChildStderr, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use conclave_models::ApiKey;

use super::first_line;
use crate::support::abandonment::{AbandonFlag, AbandonGuard};
use crate::support::escape::excerpt;

/// Time limit of a program, which may ask the user for a password. Below the 30 s of a plugin's
/// call.
const PATIENCE: Duration = Duration::from_secs(20);
/// Interval between two polls of the program.
const TICK: Duration = Duration::from_millis(10);
/// Time that is left after the key for the program to end, and after its end for its output. A
/// child process of its own may hold the pipe open.
const AFTERWARDS: Duration = Duration::from_millis(500);
/// Bytes of standard output that are read. The rest stays in the pipe, where an endless printer
/// blocks.
const STDOUT: u64 = 64 << 10;
/// Bytes of standard error that are read, and characters of it that are shown.
const STDERR: u64 = 4 << 10;
const SHOWN: usize = 300;
/// Further bytes of standard error that are read and discarded.
const STDERR_SKIPPED: u64 = 1 << 20;
/// Lengths in bytes below which a line, or a word of a line, does not count as a secret.
const LINE_MIN: usize = 4;
const WORD_MIN: usize = 8;

/// Runs a program and returns the first line of its standard output.
///
/// Does not use `tokio::process`, which installs a signal handler; a library must not.
pub(super) async fn run(words: Vec<String>, folder: Option<PathBuf>) -> Result<ApiKey, String> {
    run_within(words, folder, PATIENCE).await
}

async fn run_within(
    words: Vec<String>,
    folder: Option<PathBuf>,
    patience: Duration,
) -> Result<ApiKey, String> {
    let guard = AbandonGuard::default();
    let flag = guard.flag();
    let name = words.first().cloned().unwrap_or_default();
    let ran = tokio::task::spawn_blocking(move || wait(&words, folder, patience, &flag)).await;
    ran.unwrap_or_else(|_| Err("broke off".to_owned()))
        .map_err(|what| format!("the program {name} {what}"))
}

fn wait(
    words: &[String],
    folder: Option<PathBuf>,
    patience: Duration,
    abandoned: &AbandonFlag,
) -> Result<ApiKey, String> {
    let (program, arguments) = words.split_first().ok_or_else(|| "has no name".to_owned())?;
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    if let Some(folder) = folder.filter(|folder| !folder.as_os_str().is_empty()) {
        command.current_dir(folder);
    }
    // Its own process group, so that its children can be stopped with it.
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    let mut child = command.spawn().map_err(|error| format!("could not be started: {error}"))?;
    let printed = child.stdout.take().map(Printed::read).ok_or("has no output")?;
    let stderr = child.stderr.take().map(read_error);
    let line = match watch(&mut child, patience, abandoned, &printed.line)? {
        CommandEnd::Stopped(line) => line,
        CommandEnd::Ended(status, _) if !status.success() => {
            let (message, _) =
                stderr.and_then(|stderr| stderr.recv_timeout(AFTERWARDS).ok()).unzip();
            let (all, _) = printed.all.recv_timeout(AFTERWARDS).ok().unzip();
            return Err(format!(
                "ended with {status}{}",
                stderr_excerpt(&message.unwrap_or_default(), all)
            ));
        }
        CommandEnd::Ended(_, Some(line)) => line,
        CommandEnd::Ended(_, None) => {
            let line = printed.line.recv_timeout(AFTERWARDS);
            line.map_err(|_| "ended, and something that it started holds its output".to_owned())?
        }
    };
    line.map_err(|what| format!("printed what {what}"))
}

/// The first line of the output.
type Line = Result<ApiKey, String>;

/// How a program ended.
enum CommandEnd {
    /// By itself; its first line may not have been read yet.
    Ended(ExitStatus, Option<Line>),
    /// Stopped, because it kept running after its first line.
    Stopped(Line),
}

/// Waits for the end of a program. Stops it when the time limit passes or the caller is gone. A
/// program that keeps running after its first line is stopped too, which is no error.
fn watch(
    child: &mut Child,
    patience: Duration,
    abandoned: &AbandonFlag,
    lines: &Receiver<Line>,
) -> Result<CommandEnd, String> {
    let mut deadline = Instant::now() + patience;
    let mut line = None;
    loop {
        if let Some(status) =
            child.try_wait().map_err(|error| format!("cannot be waited for: {error}"))?
        {
            return Ok(CommandEnd::Ended(status, line));
        }
        if line.is_none()
            && let Ok(read) = lines.try_recv()
        {
            line = Some(read);
            // From here on the program only has to end: its key is known.
            deadline = deadline.min(Instant::now() + AFTERWARDS);
        }
        // Checked after the read, so that a key that arrived in time still counts.
        if abandoned.is_set() || Instant::now() >= deadline {
            stop(child);
            return line.map(CommandEnd::Stopped).ok_or_else(|| {
                format!("took more than {} s, and was stopped", patience.as_secs())
            });
        }
        std::thread::sleep(TICK);
    }
}

/// Kills a program and its process group. It has not been reaped, so its process id is still its
/// own. A program that has ended meanwhile is no error.
fn stop(child: &mut Child) {
    #[cfg(unix)]
    let _ = rustix::process::kill_process_group(
        rustix::process::Pid::from_child(child),
        rustix::process::Signal::KILL,
    );
    let _ = child.kill();
    let _ = child.wait();
}

/// The standard output of a program: the first line, and later all of it, for redaction. The pipe
/// is sent along to keep it open. A closed pipe would make the program fail, and an unread one
/// blocks a program that prints without end.
struct Printed {
    line: Receiver<Line>,
    all: Receiver<(Vec<u8>, ChildStdout)>,
}

impl Printed {
    /// Reads on a thread of its own: a thread that waits for a pipe cannot be stopped, and must not
    /// delay the shutdown of the executor.
    fn read(mut from: ChildStdout) -> Self {
        let ((line_sender, line), (all_sender, all)) = (channel(), channel());
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            let mut reader = BufReader::new((&mut from).take(STDOUT));
            // Whatever was read before an error is used. The receivers may be gone by now.
            let _ = reader.read_until(b'\n', &mut bytes);
            let _ = line_sender.send(first_line(&mut bytes.as_slice()));
            let _ = reader.read_to_end(&mut bytes);
            let _ = all_sender.send((bytes, from));
        });
        Self { line, all }
    }
}

/// Returns standard error once it has been read, together with its pipe, which stays open.
fn read_error(mut from: ChildStderr) -> Receiver<(String, ChildStderr)> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // Whatever was read before an error is shown.
        let _ = (&mut from).take(STDERR).read_to_end(&mut bytes);
        // A full pipe would block a program that logs a lot.
        let _ = std::io::copy(&mut (&mut from).take(STDERR_SKIPPED), &mut std::io::sink());
        let _ = sender.send((String::from_utf8_lossy(&bytes).into_owned(), from));
    });
    receiver
}

/// The excerpt of standard error for an error message. It is withheld if it repeats the output,
/// which may be the key: a shell with `set -x` does that.
fn stderr_excerpt(message: &str, printed: Option<Vec<u8>>) -> String {
    // The output was not read to its end, so any text may be part of it.
    let Some(printed) = printed.filter(|printed| (printed.len() as u64) < STDOUT) else {
        return String::new();
    };
    let printed = String::from_utf8_lossy(&printed);
    let is_cut = message.len() as u64 >= STDERR;
    let message = message.trim();
    let ends_in = |line: &str| {
        (LINE_MIN..line.len())
            .any(|end| line.get(..end).is_some_and(|start| message.ends_with(start)))
    };
    let lines = printed.lines().map(str::trim).filter(|line| line.len() >= LINE_MIN);
    let words = printed.split_whitespace().filter(|word| word.len() >= WORD_MIN);
    // A truncated stderr may end within a repeated line, so its prefixes count too.
    if lines.chain(words).any(|line| message.contains(line) || (is_cut && ends_in(line))) {
        return " (what it says is withheld: it repeats what it printed)".to_owned();
    }
    if message.is_empty() { String::new() } else { format!(": {}", excerpt(message, SHOWN)) }
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use super::*;

    async fn shell(script: &str) -> Result<String, String> {
        let words = ["sh", "-c", script].map(str::to_owned).to_vec();
        run_within(words, None, Duration::from_secs(600)).await.map(|key| key.reveal().to_owned())
    }

    #[tokio::test]
    async fn the_first_line_that_a_program_prints_is_the_key() {
        assert_eq!(
            shell("echo sk-3; echo rest; cat").await,
            Ok("sk-3".to_owned()),
            "its standard input is empty"
        );
        assert_eq!(
            shell("echo; echo sk-3").await,
            Err("the program sh printed what has an empty first line".to_owned())
        );
    }

    #[tokio::test]
    async fn an_error_shows_what_it_says_and_never_what_it_printed() {
        let message = shell("echo sk-secret; echo 'no such entry' >&2; exit 3").await.unwrap_err();
        assert!(
            message.contains("exit status: 3: no such entry") && !message.contains("sk-secret"),
            "{message}"
        );
        let missing = run_within(vec!["./no-such-program".to_owned()], None, PATIENCE)
            .await
            .map(drop)
            .unwrap_err();
        assert!(missing.contains("could not be started"), "{missing}");
    }

    #[tokio::test]
    async fn an_error_that_repeats_what_was_printed_is_withheld() {
        for script in [
            "set -x; echo sk-secret; exit 3",
            "echo first; echo sk-secret; echo 'bad sk-secret' >&2; exit 3",
            "echo 'key: sk-secret'; echo 'bad sk-secret' >&2; exit 3",
            "echo sk-secret; (head -c 4090 /dev/zero | tr '\\0' ' '; echo sk-secret) >&2; exit 3",
        ] {
            let message = shell(script).await.unwrap_err();
            assert!(
                message.contains("exit status: 3")
                    && message.contains("withheld")
                    && !message.contains("sk-s"),
                "{message}"
            );
        }
        let message = shell("yes | head -c 70000; echo sk-unread >&2; exit 3").await.unwrap_err();
        assert!(
            message.ends_with("exit status: 3"),
            "not all that was printed is known: {message}"
        );
    }

    #[tokio::test]
    async fn an_endless_printer_is_stopped_after_its_first_line_with_what_it_started() {
        let temp = tempfile::tempdir().unwrap();
        let words =
            ["sh", "-c", "sleep 6000 & echo $! > pid; yes sk-4"].map(str::to_owned).to_vec();
        let key = run_within(words, Some(temp.path().to_owned()), Duration::from_secs(600))
            .await
            .unwrap();
        assert_eq!(key.reveal(), "sk-4");
        let pid = std::fs::read_to_string(temp.path().join("pid")).unwrap();
        // The orphan is reaped by another process, if at all; until then it is a zombie.
        let is_alive = || {
            let stat =
                std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
            stat.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with(['Z', 'X']))
        };
        while is_alive() {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn a_program_that_takes_too_long_is_stopped() {
        let words = ["sh", "-c", "exec sleep 6000"].map(str::to_owned).to_vec();
        assert!(
            run_within(words, None, Duration::from_millis(500))
                .await
                .map(drop)
                .unwrap_err()
                .contains("was stopped")
        );
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
