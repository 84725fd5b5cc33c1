//! Balanced groups of braces in prose. Braces in quotes do not count, and a quote counts only if it
//! ends on its line, because of apostrophes. Does not parse the groups.

/// The work limit, as a multiple of the text's bytes: enough for prose with some unclosed braces,
/// and a bound for hostile texts.
const EFFORT: usize = 16;

/// The outermost balanced groups of a text, in order, with their braces.
pub(super) fn groups(text: &str) -> Vec<&str> {
    let mut scan = Scan {
        bytes: text.as_bytes(),
        budget: text.len().saturating_mul(EFFORT) + 64,
        known: Vec::new(),
        unended: Vec::new(),
    };
    let mut found = Vec::new();
    let mut from = 0;
    while let Some(start) =
        text.get(from..).and_then(|rest| rest.find('{')).map(|start| from + start)
    {
        // A brace that is never closed is ignored, and the search continues after it.
        from = match scan.end_of_group(start) {
            Some(end) => {
                found.extend(text.get(start..end));
                end
            }
            None => start + 1,
        };
    }
    found
}

struct Scan<'a> {
    bytes: &'a [u8],
    budget: usize,
    /// The known result for a brace at each position, so that no text is read twice; empty until a
    /// search fails.
    known: Vec<BraceResult>,
    /// For each position, whether a text in single or double quotes through it is unterminated;
    /// empty until one is.
    unended: Vec<[bool; 2]>,
}

impl Scan<'_> {
    fn byte(&self, at: usize) -> Option<u8> {
        self.bytes.get(at).copied()
    }

    fn known(&self, at: usize) -> BraceResult {
        self.known.get(at).copied().unwrap_or(BraceResult::Nothing)
    }

    /// Returns the position after the brace that closes the one at `start`.
    fn end_of_group(&mut self, start: usize) -> Option<usize> {
        match self.known(start) {
            BraceResult::Ends(end) => return Some(end),
            BraceResult::Open => return None,
            BraceResult::Nothing => {}
        }
        let mut open = Vec::new();
        let mut closed = Vec::new();
        let mut at = start;
        while let Some(byte) = self.byte(at) {
            let Some(budget) = self.budget.checked_sub(1) else { break };
            self.budget = budget;
            match byte {
                b'{' => match self.known(at) {
                    BraceResult::Ends(end) => {
                        at = end;
                        continue;
                    }
                    // The inner brace stays open, so the outer ones do too.
                    BraceResult::Open => break,
                    BraceResult::Nothing => open.push(at),
                },
                b'}' => {
                    let Some(opened) = open.pop() else { break };
                    if open.is_empty() {
                        return Some(at + 1);
                    }
                    closed.push((opened, BraceResult::Ends(at + 1)));
                }
                b'"' | b'\'' => {
                    if let Some(end) = self.end_of_quote(at, byte) {
                        self.budget = self.budget.saturating_sub(end - at);
                        at = end;
                        continue;
                    }
                }
                _ => {}
            }
            at += 1;
        }
        self.known.resize(self.bytes.len(), BraceResult::Nothing);
        for (at, what) in
            closed.into_iter().chain(open.into_iter().map(|opened| (opened, BraceResult::Open)))
        {
            if let Some(known) = self.known.get_mut(at) {
                *known = what;
            }
        }
        None
    }

    /// Returns the position after the quote that ends the text beginning at `start`. A doubled
    /// quote is inside the text; a line feed must be escaped.
    fn end_of_quote(&mut self, start: usize, quote: u8) -> Option<usize> {
        let which = usize::from(quote == b'"');
        let mut at = start + 1;
        while let Some(next) = self.next_in_quote(at, quote, which) {
            match next {
                Inside::End(end) => return Some(end),
                Inside::More(next) => at = next,
            }
        }
        // Mark the positions passed, so that a later quote does not scan them again.
        if self.unended.is_empty() {
            self.unended.resize(self.bytes.len() + 1, [false; 2]);
        }
        at = start + 1;
        while let Some(Inside::More(next)) = self.next_in_quote(at, quote, which) {
            self.mark(at, which);
            at = next;
        }
        self.mark(at, which);
        None
    }

    fn mark(&mut self, at: usize, which: usize) {
        if let Some(mark) = self.unended.get_mut(at).and_then(|marks| marks.get_mut(which)) {
            *mark = true;
        }
    }

    fn next_in_quote(&self, at: usize, quote: u8, which: usize) -> Option<Inside> {
        if self.unended.get(at).and_then(|marks| marks.get(which)).is_some_and(|unended| *unended) {
            return None;
        }
        let more = match self.byte(at)? {
            b'\n' | b'\r' => return None,
            b'\\' if self.byte(at + 1)? == b'x' => {
                let digits = self
                    .bytes
                    .get(at + 2..)?
                    .iter()
                    .take_while(|byte| byte.is_ascii_hexdigit())
                    .count();
                if digits == 0 {
                    return None;
                }
                2 + digits
            }
            b'\\' => 2,
            byte if byte == quote && self.byte(at + 1) == Some(quote) => 2,
            byte if byte == quote => return Some(Inside::End(at + 1)),
            _ => 1,
        };
        Some(Inside::More(at + more))
    }
}

#[derive(Clone, Copy)]
enum BraceResult {
    Nothing,
    /// The brace is never closed.
    Open,
    /// The group ends before this position.
    Ends(usize),
}

enum Inside {
    More(usize),
    End(usize),
}
