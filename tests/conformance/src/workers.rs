//! Worker processes that play scenarios for this process. A host in an endless loop cannot be
//! stopped from within its own process; a worker process can be killed.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The CPU time after which a worker counts as looping. A scenario takes less than a second without
/// compilation. CPU time, unlike wall time, does not grow on a busy machine.
const PROCESSOR: Duration = Duration::from_secs(120);
/// The wall time limit, for a scenario that never ends and for systems without a CPU time counter.
const LAST_RESORT: Duration = Duration::from_secs(600);
/// The interval between two checks of a worker.
const LOOK: Duration = Duration::from_millis(50);
/// The memory limit of a worker in bytes. A scenario needs a fraction of it.
const MEMORY: u64 = 2 << 30;

/// A process that answers each line with one line.
struct Worker {
    child: Child,
    stdin: ChildStdin,
    answers: Receiver<String>,
}

/// The reason of a missing answer.
#[derive(Clone, Copy, Debug)]
enum Lost {
    Died,
    Turning,
    Waiting,
    TooLarge,
}

impl Worker {
    fn start(command: &mut Command) -> std::io::Result<Self> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let broken = || std::io::Error::other("a process without pipes");
        let stdin = child.stdin.take().ok_or_else(broken)?;
        let stdout = child.stdout.take().ok_or_else(broken)?;
        let (sender, answers) = channel();
        std::thread::spawn(move || {
            BufReader::new(stdout)
                .lines()
                .map_while(Result::ok)
                .all(|line| sender.send(line).is_ok())
        });
        Ok(Self { child, stdin, answers })
    }

    fn ask(&mut self, line: &str) -> Result<String, Lost> {
        use std::sync::mpsc::RecvTimeoutError;
        writeln!(self.stdin, "{line}").and_then(|()| self.stdin.flush()).map_err(|_| Lost::Died)?;
        let (began, took) = (Instant::now(), processor(self.child.id()));
        loop {
            match self.answers.recv_timeout(LOOK) {
                Ok(answer) => return Ok(answer),
                Err(RecvTimeoutError::Disconnected) => return Err(Lost::Died),
                Err(RecvTimeoutError::Timeout)
                    if processor(self.child.id()).saturating_sub(took) > PROCESSOR =>
                {
                    return Err(Lost::Turning);
                }
                Err(RecvTimeoutError::Timeout) if began.elapsed() > LAST_RESORT => {
                    return Err(Lost::Waiting);
                }
                Err(RecvTimeoutError::Timeout) if resident(self.child.id()) > MEMORY => {
                    return Err(Lost::TooLarge);
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the CPU time of a process, or zero if the system does not report it. Linux always
/// reports hundredths of a second.
fn processor(process: u32) -> Duration {
    let stat = std::fs::read_to_string(Path::new("/proc").join(process.to_string()).join("stat"))
        .unwrap_or_default();
    // The fields start behind the program's name, which may contain spaces and parentheses.
    let fields =
        stat.rsplit_once(')').map_or("", |(_, fields)| fields).split_whitespace().skip(11).take(2);
    Duration::from_millis(
        fields.filter_map(|ticks| ticks.parse::<u64>().ok()).sum::<u64>().saturating_mul(10),
    )
}

/// Returns the resident memory of a process in bytes, or 0 if the system does not report it.
fn resident(process: u32) -> u64 {
    let pages = std::fs::read_to_string(Path::new("/proc").join(process.to_string()).join("statm"));
    let pages = pages.ok().and_then(|pages| pages.split_whitespace().nth(1)?.parse::<u64>().ok());
    pages.unwrap_or_default().saturating_mul(4096)
}

/// Has each line answered by one of `count` processes, and passes on the answers in the order of
/// the lines. An error is the reason of a missing answer.
///
/// # Errors
/// If no process can be started.
pub fn answer_all(
    lines: &[String],
    count: usize,
    command: impl Fn() -> Command + Sync,
    mut told: impl FnMut(&str, Result<String, String>),
) -> std::io::Result<()> {
    let waiting = Mutex::new(lines.iter().enumerate().collect::<VecDeque<_>>());
    let next = || waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    let (sender, answers) = channel();
    std::thread::scope(|scope| {
        for _ in 0..count {
            let (sender, command, next) = (sender.clone(), &command, &next);
            scope.spawn(move || {
                let mut worker: Option<Worker> = None;
                while let Some((index, line)) = next() {
                    let ready = match worker.take() {
                        Some(worker) => Ok(worker),
                        None => Worker::start(&mut command()),
                    };
                    let answer = ready.map(|mut ready| match ready.ask(line) {
                        Ok(answer) => {
                            worker = Some(ready);
                            Ok(answer)
                        }
                        Err(Lost::Died) => Err("the host's process died".to_owned()),
                        Err(Lost::Turning) => Err(format!(
                            "the host does not end within {PROCESSOR:?} of a processor"
                        )),
                        Err(Lost::Waiting) => {
                            Err(format!("the host waits for what did not come in {LAST_RESORT:?}"))
                        }
                        Err(Lost::TooLarge) => {
                            Err(format!("the host takes more than {} MiB of memory", MEMORY >> 20))
                        }
                    });
                    if sender.send((index, answer)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        let mut early: Vec<Option<Result<String, String>>> = lines.iter().map(|_| None).collect();
        let mut at = 0;
        for (index, answer) in answers {
            if let Some(place) = early.get_mut(index) {
                *place = Some(answer?);
            }
            while let (Some(Some(_)), Some(line)) = (early.get(at), lines.get(at)) {
                if let Some(answer) = early.get_mut(at).and_then(Option::take) {
                    told(line, answer);
                }
                at += 1;
            }
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn a_process_that_computes_takes_of_a_processor() {
        let own = std::process::id();
        let before = processor(own);
        let mut number = 1_u64;
        while processor(own) == before {
            number = std::hint::black_box(number.wrapping_mul(3));
        }
        assert!(processor(own) > before, "{number}");
        assert_eq!(processor(u32::MAX), Duration::ZERO, "there is no such process");
    }
}
