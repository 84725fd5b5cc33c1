//! The output of a command as one text, bounded.

/// The writes of a command to stdout and stderr. Beyond the limit the beginning and the end are
/// kept.
#[derive(Default)]
pub(crate) struct Output {
    head: Vec<u8>,
    tail: Vec<u8>,
    /// Bytes between head and tail that were dropped.
    dropped: usize,
}

impl Output {
    /// Bytes of a command's stdout that the library passes on.
    pub(crate) const MOST: usize = 1 << 20;
    /// Bytes of the head, and of the tail. The host shows 30 000 characters of an observation.
    const HALF: usize = 32 << 10;

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        let room = Self::HALF - self.head.len();
        let (first, rest) = bytes.split_at(room.min(bytes.len()));
        self.head.extend(first);
        self.tail.extend(rest);
        if self.tail.len() > 2 * Self::HALF {
            let excess = self.tail.len() - Self::HALF;
            self.tail.drain(..excess);
            self.dropped += excess;
        }
    }

    /// Returns the text, with a mark where output was dropped. Invalid UTF-8 becomes `U+FFFD`.
    pub(crate) fn into_text(mut self) -> String {
        if self.dropped == 0 {
            self.head.extend(&self.tail);
            return String::from_utf8_lossy(&self.head).into_owned();
        }
        let excess = self.tail.len().saturating_sub(Self::HALF);
        self.tail.drain(..excess);
        format!(
            "{}\n[terminal: {} bytes left out]\n{}",
            String::from_utf8_lossy(&self.head),
            self.dropped + excess,
            String::from_utf8_lossy(&self.tail)
        )
    }
}
