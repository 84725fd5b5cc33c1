//! Soak rounds. Each has a new world, a child process that is killed several times, a last life
//! that may end its work, and a final check.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use conclave_core::types::ids::RoomId;
use conclave_runtime::fail_points::{NAMES, OF_SNAPSHOT};

use crate::check::Known;
use crate::child::{Child, Clockwork};
#[cfg(target_os = "linux")]
use crate::disk::{Order, Survival};
use crate::kept::{self, Keep, Kept};
#[cfg(target_os = "linux")]
use crate::power::Power;
#[cfg(not(target_os = "linux"))]
use crate::powerless::{Order, Power, Survival};
use crate::promised;
use crate::random::Random;
use crate::totals::Totals;
use crate::world::World;

/// The longest silence of a life before it counts as hanging. Far above the time of the slowest
/// machine.
const PATIENCE: Duration = Duration::from_secs(600);

/// The location of the components.
#[derive(Clone, Debug)]
pub struct Place {
    pub guests: PathBuf,
    pub stock: PathBuf,
    pub cache: PathBuf,
}

/// The amount of work of a soak.
#[derive(Clone, Debug)]
pub struct Plan {
    pub kills: u64,
    pub seed: u64,
    /// The number of parallel runs of a child.
    pub runs: u32,
    /// The maximum number of kills of one round.
    pub each: u64,
    pub keep: Keep,
    /// The number of parallel worlds.
    pub at_once: u32,
    /// The longest response time of the world, in milliseconds.
    pub slowest_ms: u64,
    /// Whether most kills cut the power as well, so that unsynced data is lost.
    pub power: bool,
}

/// Kills children until the planned number is reached. `command` starts a child and passes
/// [`Child::words`] to it in any way.
///
/// # Errors
/// If the soak could not run. Problems that it found are among the totals.
pub fn soak(
    place: &Place,
    plan: &Plan,
    command: &(dyn Fn(&Child) -> Command + Sync),
    follow: &(dyn Fn(&Totals) + Sync),
) -> Result<Totals, String> {
    let began = Instant::now();
    let (next, totals) = (AtomicU64::new(0), Mutex::new(Totals::default()));
    let failed = Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..plan.at_once.max(1) {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if is_enough(&lock(&totals), plan) || lock(&failed).is_some() {
                        return;
                    }
                    match round(place, plan, plan.seed.wrapping_add(number), command) {
                        Ok(more) => {
                            let mut totals = lock(&totals);
                            totals.add(more);
                            totals.took = began.elapsed();
                            follow(&totals);
                        }
                        Err(error) => *lock(&failed) = Some(error),
                    }
                }
            });
        }
    });
    match failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(error) => Err(error),
        None => Ok(totals.into_inner().unwrap_or_else(PoisonError::into_inner)),
    }
}

/// The number of problems after which a soak stops.
const PROBLEMS: usize = 20;

fn is_enough(totals: &Totals, plan: &Plan) -> bool {
    (if plan.power { totals.power_cuts() } else { totals.killed() }) >= plan.kills
        || totals.problems.len() >= PROBLEMS
}

fn round(
    place: &Place,
    plan: &Plan,
    seed: u64,
    command: &(dyn Fn(&Child) -> Command + Sync),
) -> Result<Totals, String> {
    let text = |error: std::io::Error| error.to_string();
    let mut random = Random::new(seed);
    let folder = tempfile::tempdir().map_err(text)?;
    let world = World::open(random.next(), plan.slowest_ms).map_err(text)?;
    let clockwork = match random.below(8) {
        0 => Clockwork::Back,
        1 => Clockwork::Forward,
        _ => Clockwork::Steady,
    };
    let disk = folder.path().join("disk");
    let mut power = match plan.power {
        true => Some(Power::on(
            &disk,
            if random.below(4) == 0 { Order::Journalled } else { Order::Strict },
            "files",
        )?),
        false => None,
    };
    let home = if plan.power { disk } else { folder.path().to_owned() };
    let mut known = Known::default();
    let mut problems = Vec::new();
    let kills = 1 + random.below(plan.each);
    let mut life_number = 0;
    loop {
        life_number += 1;
        let is_last = life_number > kills;
        let death = if is_last { Death::Natural } else { Death::drawn(&mut random, plan.power) };
        let child = Child {
            folder: home.clone(),
            guests: place.guests.clone(),
            stock: place.stock.clone(),
            cache: place.cache.clone(),
            port: world.port(),
            runs: plan.runs,
            keep: plan.keep,
            clockwork,
            kill: death.point(),
        };
        let life = live(command(&child), &death, power.as_ref()).map_err(text)?;
        known.totals.lives += 1;
        for (room, seq, digest) in life.acknowledged {
            known.acknowledged.insert((RoomId::from(room), seq), digest);
        }
        if life.was_killed {
            *known.totals.kills.entry(death.name()).or_default() += 1;
        }
        // The folder that the parent checks.
        let mut left = home.clone();
        let mut stays_on = false;
        if let Some(power) = &mut power {
            // Without a cut the next life begins on unsynced data, which a later cut may remove.
            // Never after an automatic power cut, and never after all work has ended, because
            // everything that was acknowledged must be on disk then. This is about one kill in
            // three, because about half of the kills are power cuts.
            stays_on = life.was_killed && !is_last && !power.is_out() && random.below(3) != 0;
            if stays_on {
                known.totals.uncut += 1;
            } else {
                cut(power, &mut random, &mut known.totals)?;
            }
            left = folder.path().join(format!("left-{life_number}"));
            power.copy_to(&left)?;
        }
        let kept = match kept::read(&left.join("kept")) {
            Ok(kept) => kept,
            // A store that a power cut made unreadable is a finding, not a failure of the soak.
            Err(error) if plan.power => Kept { problems: vec![error], ..Kept::default() },
            Err(error) => return Err(error),
        };
        let promised = promised::check(&kept, &left);
        known.totals.promises += promised.checked;
        known.totals.broken += promised.problems.len() as u64;
        problems.extend(promised.problems);
        if life.is_over || is_last {
            if !life.is_over {
                problems.push(format!("the last life ended without its work: {}", life.said));
            }
            problems.extend(known.judge(&kept, &world.counts(), plan.runs, clockwork));
            break;
        }
        if !life.was_killed {
            problems.push(format!("a life ended by itself: {}", life.said));
            break;
        }
        let counts = world.counts();
        problems.extend(known.look(&kept, &counts));
        // Unacknowledged data that was not synced may still be lost, so only a cut makes the state
        // final.
        if !stays_on {
            known.note(&kept, &counts);
        }
        if !problems.is_empty() {
            break;
        }
    }
    known.totals.rounds = 1;
    if !problems.is_empty() && !plan.keep.is_wrong() {
        keep_for_a_look(&home, seed);
    }
    known.totals.problems =
        problems.into_iter().map(|problem| format!("seed {seed}: {problem}")).collect();
    Ok(known.totals)
}

/// Cuts the power and turns it on again.
fn cut(power: &mut Power, random: &mut Random, totals: &mut Totals) -> Result<(), String> {
    let survival = Survival::drawn(random);
    power.cut(survival, random)?;
    *totals.cuts.entry(format!("{survival:?}")).or_default() += 1;
    Ok(())
}

/// Copies the files of a failed round, without anything that may hang on a mount.
fn keep_for_a_look(home: &Path, seed: u64) {
    let kept = std::env::temp_dir().join(format!("conclave-soak-{seed}"));
    match copy(home, &kept) {
        Ok(()) => eprintln!("seed {seed}: {} is kept", kept.display()),
        Err(error) => eprintln!("seed {seed}: {} cannot be kept: {error}", kept.display()),
    }
}

fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &to)?;
        } else {
            std::fs::copy(entry.path(), to)?;
        }
    }
    Ok(())
}

/// The way in which a life ends.
enum Death {
    Natural,
    /// A kill this long after the child was ready.
    AnyTime(Duration),
    Point(&'static str, u64),
    /// A power cut at this change or sync of the disk.
    Operation(u64),
}

impl Death {
    fn drawn(random: &mut Random, is_powered: bool) -> Self {
        if is_powered && random.below(2) == 0 {
            // The exponential range hits the first ten operations about as often as the last
            // thousand.
            let most = 1 << (3 + random.below(8));
            return Self::Operation(1 + random.below(most));
        }
        let points: Vec<&str> = NAMES.into_iter().chain(OF_SNAPSHOT).collect();
        let point = random.below(points.len() as u64 + 4);
        match points.get(usize::try_from(point).unwrap_or(usize::MAX)) {
            Some(name) => {
                let often = matches!(
                    *name,
                    "before-append"
                        | "after-append"
                        | "before-perform"
                        | "after-perform"
                        | "before-commit"
                        | "after-commit"
                );
                Self::Point(name, 1 + random.below(if often { 25 } else { 3 }))
            }
            None => Self::AnyTime(Duration::from_millis(random.below(250))),
        }
    }

    fn point(&self) -> Option<(String, u64)> {
        match self {
            Self::Point(name, nth) => Some(((*name).to_owned(), *nth)),
            _ => None,
        }
    }

    fn name(&self) -> String {
        match self {
            Self::Point(name, _) => (*name).to_owned(),
            Self::AnyTime(_) => "at any time".to_owned(),
            Self::Operation(_) => "at an operation of the disk".to_owned(),
            Self::Natural => "at its end".to_owned(),
        }
    }
}

/// The parent's observations of a life.
#[derive(Default)]
struct Life {
    acknowledged: Vec<(String, u64, u64)>,
    /// Whether all work ended.
    is_over: bool,
    was_killed: bool,
    /// The last lines of output of a life that failed.
    said: String,
}

/// A message from a life to the parent.
enum Heard {
    Line(String),
    PowerIsOut,
    /// The end of the output.
    End,
}

fn live(mut command: Command, death: &Death, power: Option<&Power>) -> std::io::Result<Life> {
    let (sender, heard) = channel::<Heard>();
    if let (Some(power), Death::Operation(nth)) = (power, death) {
        let sender = sender.clone();
        power.cut_at(*nth, move || drop(sender.send(Heard::PowerIsOut)));
    }
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let errors = child.stderr.take().map(|errors| {
        std::thread::spawn(move || {
            BufReader::new(errors).lines().map_while(Result::ok).collect::<Vec<_>>().join(" | ")
        })
    });
    let output = child.stdout.take();
    let reading = std::thread::spawn(move || {
        let lines = output
            .into_iter()
            .flat_map(|output| BufReader::new(output).lines().map_while(Result::ok));
        lines.for_each(|line| drop(sender.send(Heard::Line(line))));
        // Sent explicitly, because the disk may keep a sender alive after the child has ended.
        drop(sender.send(Heard::End));
    });
    let mut life = Life::default();
    let mut until = Instant::now() + PATIENCE;
    let mut is_ours = false;
    loop {
        match heard.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(Heard::Line(line)) => {
                if line == "ready"
                    && let Death::AnyTime(after) = death
                {
                    until = Instant::now() + *after;
                    is_ours = true;
                }
                if !is_ours {
                    until = Instant::now() + PATIENCE;
                }
                life.take(&line);
            }
            Ok(Heard::PowerIsOut) => {
                child.kill()?;
                // Requests wait for the power, so they are released here. Otherwise the disk's
                // thread would never end.
                power.into_iter().for_each(Power::release);
            }
            Ok(Heard::End) | Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                if !is_ours {
                    life.said = "it hung".to_owned();
                }
                child.kill()?;
                power.into_iter().for_each(Power::release);
                until = Instant::now() + PATIENCE;
            }
        }
    }
    let status = child.wait()?;
    drop(reading.join());
    let errors = errors.and_then(|errors| errors.join().ok()).unwrap_or_default();
    life.was_killed = is_killed(status) && life.said.is_empty();
    if !errors.is_empty() {
        life.said = format!(
            "{} {}",
            life.said,
            errors.chars().rev().take(600).collect::<String>().chars().rev().collect::<String>()
        );
    }
    Ok(life)
}

#[cfg(unix)]
fn is_killed(status: std::process::ExitStatus) -> bool {
    std::os::unix::process::ExitStatusExt::signal(&status) == Some(9)
}

#[cfg(not(unix))]
fn is_killed(status: std::process::ExitStatus) -> bool {
    !status.success()
}

impl Life {
    fn take(&mut self, line: &str) {
        let words: Vec<&str> = line.split(' ').collect();
        match words.as_slice() {
            ["ack", room, seq, digest] => {
                if let (Ok(seq), Ok(digest)) = (seq.parse(), digest.parse()) {
                    self.acknowledged.push(((*room).to_owned(), seq, digest));
                }
            }
            ["over"] => self.is_over = true,
            _ => {}
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
