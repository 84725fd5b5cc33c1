//! Named points between journal and effect at which a test kills the process. They need the feature
//! `kill-points`, which released programs do not enable.

#[cfg(feature = "kill-points")]
use std::sync::Mutex;

/// All points of a call, in execution order.
pub const NAMES: [&str; 14] = [
    "before-append",
    "after-append",
    "before-perform",
    "after-perform",
    "after-model-answer",
    "before-side-effect-asked",
    "after-side-effect-done",
    "before-side-effect-told",
    "before-child-opened",
    "after-child-ended",
    "before-settle",
    "after-settle",
    "before-commit",
    "after-commit",
];

/// The points of a control message from another process, in order. Its record is appended between
/// the first two.
pub const OF_CONTROL: [&str; 3] =
    ["before-control-delivered", "before-control-deleted", "after-control-deleted"];

/// The points of a room's snapshot, in order. Its records are durable before both.
pub const OF_SNAPSHOT: [&str; 2] = ["before-snapshot", "after-snapshot"];

#[cfg(feature = "kill-points")]
static ARMED: Mutex<Option<(String, u64)>> = Mutex::new(None);

/// Kills the process immediately when it reaches this point for the `nth` time.
#[cfg(feature = "kill-points")]
pub fn arm(name: &str, nth: u64) {
    *ARMED.lock().unwrap_or_else(std::sync::PoisonError::into_inner) =
        Some((name.to_owned(), nth.max(1)));
}

#[cfg(feature = "kill-points")]
pub(crate) fn pass(name: &'static str) {
    let mut armed = ARMED.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let Some((point, remaining)) = armed.as_mut().filter(|(point, _)| point == name) else {
        return;
    };
    debug_assert!(
        NAMES.iter().chain(&OF_CONTROL).chain(&OF_SNAPSHOT).any(|name| name == point),
        "{point} is in the list"
    );
    *remaining -= 1;
    if *remaining == 0 {
        #[cfg(unix)]
        let _ =
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
        #[cfg(not(unix))]
        std::process::abort();
        // The lock stays held, so that no other thread passes a point before the signal arrives.
        loop {
            std::thread::park();
        }
    }
}

/// A point at which a test can kill the process.
macro_rules! kill_point {
    ($name:literal) => {
        #[cfg(feature = "kill-points")]
        $crate::support::fail_points::pass($name);
    };
}

pub(crate) use kill_point;
