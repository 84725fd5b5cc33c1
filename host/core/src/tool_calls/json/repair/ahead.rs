//! The look-ahead of the repairing reader, each within a bound: whether a quote ends its text,
//! whether a comma separates members. Consumes nothing.

use super::{JsonRepairer, ValuePosition, is_bare, is_quote};

/// The bytes of the next key that are examined to distinguish a comma between members from one in a
/// text.
pub(super) const LONGEST_KEY: usize = 128;

/// The characters after a quote and a comma that are examined to distinguish a quotation from the
/// end of the text.
const LONGEST_ASIDE: usize = 256;

impl JsonRepairer<'_> {
    /// Whether the characters after a quote show that it ends its text.
    pub(super) fn quote_ends(&self, from: usize, closing: char, place: ValuePosition) -> bool {
        let next = self.after_blanks(from);
        match (place, self.text.get(next..).unwrap_or_default().chars().next()) {
            (_, None)
            | (ValuePosition::Key, Some(':' | '='))
            | (ValuePosition::Member, Some('}'))
            | (ValuePosition::Item, Some(']' | '}' | ',' | ')')) => true,
            (ValuePosition::Member, Some(',' | ';')) => {
                self.starts_member(next + 1)
                    || self.ends_group(next + 1)
                    || !self.text_is_open(next + 1, closing)
            }
            // An opening quote inside a text is followed directly by a word. One superfluous quote,
            // of another kind
            (ValuePosition::Member | ValuePosition::Item, Some(c))
                if is_quote(c)
                    && c != closing
                    && next == from
                    && (self.ends_group(next + c.len_utf8())
                        || self
                            .text
                            .get(next + c.len_utf8()..)
                            .is_some_and(|after| after.starts_with(']'))) =>
            {
                true
            }

            (ValuePosition::Member, Some(c)) => {
                c != ':' && (next > from || is_quote(c)) && self.starts_member(next)
            }
            (ValuePosition::Item, Some(c)) => c == closing && next > from,
            (ValuePosition::Key, Some(_)) => false,
        }
    }

    /// Whether another quote of the same kind ends the text later, after a comma without a member
    /// behind it.
    fn text_is_open(&self, from: usize, closing: char) -> bool {
        let rest = self.text.get(from..).unwrap_or_default();
        let end = rest.char_indices().take(LONGEST_ASIDE).find(|(_, c)| *c == closing);
        end.is_some_and(|(at, c)| self.ends_group(from + at + c.len_utf8()))
    }

    /// Whether another quote of the same kind precedes the colon, so that the key contains quotes.
    pub(super) fn key_is_open(&self, from: usize, closing: char) -> bool {
        let rest = self.text.get(from..).unwrap_or_default();
        let ahead = rest
            .char_indices()
            .take(LONGEST_KEY)
            .find(|(_, c)| matches!(c, ':' | ',' | '}' | '\n') || *c == closing);
        ahead.is_some_and(|(at, c)| {
            c == closing
                && at > 0
                && self
                    .text
                    .get(self.after_blanks(from + at + c.len_utf8())..)
                    .is_some_and(|after| after.starts_with(':'))
        })
    }

    /// Whether a well-formed quoted value follows a colon inside a quoted key, so that the key
    /// ended before the colon.
    pub(super) fn value_then_ends(&self, from: usize, closing: char) -> bool {
        let next = self.after_blanks(from);
        let rest = self.text.get(next..).unwrap_or_default();
        let Some(inside) = rest.strip_prefix(closing) else {
            let end = rest.char_indices().take(LONGEST_KEY).find(|(_, c)| matches!(c, ',' | '}'));
            return end.is_some_and(|(at, c)| {
                rest.get(..at).is_some_and(|value| !value.contains(closing))
                    && (c == '}' || self.starts_member(next + at + 1))
            });
        };
        let end = inside.char_indices().take(LONGEST_KEY).find(|(_, c)| *c == closing);
        end.is_some_and(|(at, c)| {
            self.text
                .get(self.after_blanks(next + 2 * c.len_utf8() + at)..)
                .is_some_and(|after| after.starts_with([',', '}']))
        })
    }

    /// Whether the group ends here, apart from commas.
    pub(super) fn ends_group(&self, from: usize) -> bool {
        matches!(
            self.text.get(self.after_blanks(from)..).unwrap_or_default().chars().next(),
            None | Some('}' | ',')
        )
    }

    /// Whether a key and a colon follow.
    pub(super) fn starts_member(&self, from: usize) -> bool {
        let next = self.after_blanks(from);
        let Some(first) = self.text.get(next..).unwrap_or_default().chars().next() else {
            return false;
        };
        is_quote(first) && self.starts_member_in(next, if first == '“' { '”' } else { first })
            || is_bare(first) && self.starts_bare_member(next)
    }

    /// Whether a key in these quotes, or the end of one, and a colon follow.
    pub(super) fn starts_member_in(&self, from: usize, closing: char) -> bool {
        let next = self.after_blanks(from);
        let rest = self.text.get(next..).unwrap_or_default();
        let opened =
            if closing == '”' { rest.strip_prefix('“') } else { rest.strip_prefix(closing) };
        let Some(inside) = opened else { return false };
        let end = inside
            .char_indices()
            .take(LONGEST_KEY)
            .find(|(_, c)| *c == closing || matches!(c, '\n' | '{' | '}'));
        end.is_some_and(|(at, c)| {
            let after = self.text.len() - inside.len() + at + c.len_utf8();
            c == closing
                && at > 0
                && self
                    .text
                    .get(self.after_blanks(after)..)
                    .is_some_and(|after| after.starts_with(':'))
        })
    }

    fn starts_bare_member(&self, from: usize) -> bool {
        let rest = self.text.get(from..).unwrap_or_default();
        let end = rest
            .char_indices()
            .take(LONGEST_KEY)
            .find(|(_, c)| !(c.is_alphanumeric() || matches!(c, '_' | '-')));
        // The closing quote of a key whose opening one is missing
        let end = end.map(|(at, c)| if is_quote(c) { at + c.len_utf8() } else { at });
        end.is_some_and(|at| {
            self.text
                .get(self.after_blanks(from + at)..)
                .is_some_and(|after| after.starts_with(':') && !after.starts_with("://"))
        })
    }
}
