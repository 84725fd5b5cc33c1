//! The log of one call. Lines are escaped, counted against the plugin's volume, and sent to the
//! observer. The `log` import and the guest's standard output share it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use conclave_core::types::ids::CallId;

use crate::calls::Observer;
use crate::observe::subscribe::Level;
use crate::support::escape::harmless;

/// The destination of one call's log lines.
pub(crate) struct LogBook {
    call: CallId,
    observer: Arc<dyn Observer>,
    remaining: AtomicU64,
    dropped: AtomicU64,
    /// Number of the guest's lines so far, and of those that an earlier attempt wrote; a replay
    /// does not report them again.
    lines: AtomicU64,
    replayed: u64,
}

impl LogBook {
    /// Returns a log with a volume of so many bytes.
    pub(crate) fn new(call: CallId, observer: Arc<dyn Observer>, volume: u64) -> Self {
        let (remaining, dropped, lines) =
            (AtomicU64::new(volume), AtomicU64::new(0), AtomicU64::new(0));
        Self { call, observer, remaining, dropped, lines, replayed: 0 }
    }

    /// The log of the call's next attempt.
    pub(crate) fn begin_attempt(&self) -> Self {
        let number = |number: &AtomicU64| AtomicU64::new(number.load(Ordering::Relaxed));
        Self {
            call: self.call,
            observer: Arc::clone(&self.observer),
            remaining: number(&self.remaining),
            dropped: number(&self.dropped),
            lines: AtomicU64::new(0),
            replayed: self.replayed.max(self.lines.load(Ordering::Relaxed)),
        }
    }

    /// Writes a line of the host itself.
    pub(crate) fn host_line(&self, level: Level, message: &str) {
        if self.has_room(message) {
            self.observer.log(self.call, level, &harmless(message));
        }
    }

    /// Writes a line, or drops it if the volume is used up.
    pub(crate) fn line(&self, level: Level, message: &str) {
        if self.takes(message) {
            self.observer.log(self.call, level, &harmless(message));
        }
    }

    /// Reports progress, which shares the volume.
    pub(crate) fn progress(&self, completed: u64, total: Option<u64>, message: &str) {
        if self.takes(message) {
            self.observer.progress(self.call, completed, total, &harmless(message));
        }
    }

    /// The number of dropped lines.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    fn takes(&self, message: &str) -> bool {
        self.lines.fetch_add(1, Ordering::Relaxed) >= self.replayed && self.has_room(message)
    }

    fn has_room(&self, message: &str) -> bool {
        // An empty line costs something too; otherwise a guest could write them without end.
        let cost = message.len() as u64 + 1;
        let is_reserved = self
            .remaining
            // Check and decrement are one step, because streams and imports share the volume.
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |remaining| {
                remaining.checked_sub(cost)
            })
            .is_ok();
        if !is_reserved {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
        is_reserved
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use conclave_core::types::denial::DenialRecord;

    use super::*;

    #[derive(Default)]
    struct Heard(Mutex<Vec<String>>);

    impl Observer for Heard {
        fn log(&self, _: CallId, _: Level, message: &str) {
            self.0.lock().unwrap().push(message.to_owned());
        }
        fn progress(&self, _: CallId, completed: u64, _: Option<u64>, message: &str) {
            self.0.lock().unwrap().push(format!("{completed} {message}"));
        }
        fn denied(&self, _: CallId, _: &DenialRecord) {}
    }

    #[test]
    fn lines_past_the_volume_are_dropped_and_counted() {
        let observer = Arc::new(Heard::default());
        let book = LogBook::new(CallId(1), observer.clone(), 8);
        book.line(Level::Info, "four");
        book.line(Level::Info, "four");
        book.progress(1, None, "22");
        assert_eq!(*observer.0.lock().unwrap(), ["four", "1 22"]);
        assert_eq!(book.dropped(), 1);
    }

    #[test]
    fn empty_lines_end_too() {
        let book = LogBook::new(CallId(1), Arc::new(Heard::default()), 3);
        (0..5).for_each(|_| book.line(Level::Info, ""));
        assert_eq!(book.dropped(), 2);
    }
}
