//! The limit of each queue of a room: results, messages that wait for an agent, a
//! channel or a gate. A room must not grow without limit while these do nothing.

/// Items that may wait in one queue.
pub(super) const QUEUE_MAX: usize = 1_000;
/// Bytes of these items together, as many as a run's histories have by default.
pub(super) const QUEUE_BYTES: usize = 64 << 20;

/// The limit that a queue exceeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QueueLimit {
    Number,
    Bytes,
}

impl QueueLimit {
    /// The limit that a queue of items of these bytes exceeds; `None` if it exceeds none. One item
    /// alone may have any size.
    pub(super) fn exceeded_by(items: impl Iterator<Item = usize>) -> Option<Self> {
        let (number, bytes) = items.fold((0_usize, 0_usize), |(number, sum), bytes| {
            (number + 1, sum.saturating_add(bytes))
        });
        if number > QUEUE_MAX {
            Some(Self::Number)
        } else if number > 1 && bytes > QUEUE_BYTES {
            Some(Self::Bytes)
        } else {
            None
        }
    }

    /// Returns why a queue takes no further item. `waiting` is what its items do, as in `wait for
    /// a turn`.
    pub(super) fn reason(self, items: &str, waiting: &str) -> String {
        match self {
            Self::Number => format!("{QUEUE_MAX} {items} {waiting} already"),
            Self::Bytes => {
                format!("with this one, the {items} that {waiting} have over {QUEUE_BYTES} bytes")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_is_limited_in_number_and_in_bytes_and_an_item_alone_is_not() {
        let exceeded = |items: &[usize]| QueueLimit::exceeded_by(items.iter().copied());
        assert_eq!(exceeded(&[0; QUEUE_MAX]), None);
        assert_eq!(exceeded(&[0; QUEUE_MAX + 1]), Some(QueueLimit::Number));
        assert_eq!(exceeded(&[QUEUE_BYTES - 1, 1]), None);
        assert_eq!(exceeded(&[QUEUE_BYTES, 1]), Some(QueueLimit::Bytes));
        assert_eq!(exceeded(&[usize::MAX, usize::MAX]), Some(QueueLimit::Bytes));
        assert_eq!(exceeded(&[2 * QUEUE_BYTES]), None);
    }
}
