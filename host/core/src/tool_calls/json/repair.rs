//! A reader of malformed JSON that guesses its most likely meaning. One pass with bounded
//! look-ahead, depth and work. Written here, because the existing ports recurse without bound or
//! need a command line.

use serde_json::{Map, Value};

mod ahead;
mod literal;

use ahead::LONGEST_KEY;
use literal::literal;

/// The limit of nested values; deeper ones are not repaired.
const DEEPEST: usize = 128;
/// The work limit, as a multiple of the text's bytes.
const EFFORT: usize = 64;
/// The likely meaning of a group of braces: an object, or a list of its values if it has no key.
///
/// `None` if it is nested too deep, or needs too much work.
pub(super) fn repair(group: &str) -> Option<Value> {
    let mut reader =
        JsonRepairer { text: group, at: 0, budget: group.len().saturating_mul(EFFORT) + 1024 };
    reader.eats('{');
    let value = reader.braces(0)?;
    let Value::Object(mut fields) = value else { return Some(value) };
    // Members after a brace that closed too early
    loop {
        reader.skip()?;
        if !reader.eats(',') && !reader.eats('}') {
            return Some(Value::Object(fields));
        }
        reader.skip()?;
        if reader.peek().is_some_and(is_quote)
            && let Value::Object(more) = reader.braces(0)?
        {
            fields.extend(more);
        }
    }
}

/// The position of a value, which decides where it ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ValuePosition {
    Key,
    Member,
    Item,
}

struct JsonRepairer<'a> {
    text: &'a str,
    at: usize,
    budget: usize,
}

impl<'a> JsonRepairer<'a> {
    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn eats(&mut self, expected: char) -> bool {
        let found = self.peek() == Some(expected);
        if found {
            self.at += expected.len_utf8();
        }
        found
    }

    /// Counts work; `None` past the limit.
    fn spend(&mut self, work: usize) -> Option<()> {
        self.budget = self.budget.checked_sub(work + 1)?;
        Some(())
    }

    fn advance(&mut self, to: usize) -> Option<()> {
        self.spend(to.saturating_sub(self.at))?;
        self.at = to;
        Some(())
    }

    /// Skips blanks and comments.
    fn skip(&mut self) -> Option<()> {
        self.advance(self.after_blanks(self.at))
    }

    fn after_blanks(&self, from: usize) -> usize {
        let mut rest = self.text.get(from..).unwrap_or_default();
        loop {
            rest = rest.trim_start();
            rest = if rest.starts_with("//") {
                rest.find(['\n', '\r']).and_then(|end| rest.get(end..)).unwrap_or_default()
            } else if rest.starts_with('#') {
                // A brace on the same line still closes its group.
                rest.find(['\n', '\r', '}', ']'])
                    .and_then(|end| rest.get(end..))
                    .unwrap_or_default()
            } else if let Some(comment) = rest.strip_prefix("/*") {
                comment.split_once("*/").map_or("", |(_, after)| after)
            } else {
                return self.text.len() - rest.len();
            }
        }
    }

    /// Reads members up to the closing brace, after `{`. Values without keys make a list if there
    /// are no members.
    fn braces(&mut self, depth: usize) -> Option<Value> {
        let mut members = Map::new();
        let mut bare = Vec::new();
        loop {
            self.skip()?;
            let Some(c) = self.peek() else { break };
            self.spend(1)?;
            match c {
                '}' => {
                    self.at += 1;
                    break;
                }
                '[' if members.values().next_back().is_some_and(Value::is_array) => {
                    self.at += 1;
                    let more = self.list(']', depth + 1)?;
                    continue_list(&mut members, more);
                }
                c if is_quote(c) || is_bare(c) => match self.member(depth)? {
                    (Some(key), value) => {
                        members.insert(key, value);
                    }
                    (None, value) => bare.push(value),
                },
                c => self.at += c.len_utf8(),
            }
        }
        Some(if members.is_empty() && !bare.is_empty() {
            Value::Array(bare)
        } else {
            Value::Object(members)
        })
    }

    /// Reads a key with its value, or a value without a key.
    fn member(&mut self, depth: usize) -> Option<(Option<String>, Value)> {
        let start = self.at;
        let key = if self.peek().is_some_and(is_quote) {
            self.quoted(ValuePosition::Key)?
        } else {
            self.bare_key()?
        };
        let bare = self.text.get(start..).is_some_and(|text| text.starts_with(is_bare));
        self.skip()?;
        // A superfluous character before the colon
        if self.rest().get(1..).is_some_and(|after| after.starts_with(':'))
            && self.peek().is_some_and(|c| is_quote(c) || "[{,".contains(c))
        {
            self.at += 1;
        }
        match self.peek() {
            Some(':') => self.at += 1,
            // `=`, `=>`
            Some('=') => {
                self.at += 1;
                self.eats('>');
            }
            None | Some(',' | '}') if !bare => return Some((None, Value::String(key))),
            Some(c) if !bare && (is_quote(c) || is_bare(c) || "[{(".contains(c)) => {}
            _ if !bare => return Some((None, Value::String(key))),
            _ => return self.words(start, depth),
        }
        self.skip()?;
        while self.eats(':') {
            self.skip()?;
        }
        let value = match self.peek() {
            None | Some(',' | '}') => Value::String(String::new()),
            Some(_) => self.value(ValuePosition::Member, depth + 1)?,
        };
        // A superfluous quote
        if self.peek().is_some_and(|c| c == '"' || c == '\'') && !self.starts_member(self.at) {
            self.at += 1;
        }
        Some((Some(key), value))
    }

    /// Reads words in place of a key: the last one is the key if a colon follows, else they are a
    /// text. At the top level this includes the closing brace, as in the reference.
    fn words(&mut self, start: usize, depth: usize) -> Option<(Option<String>, Value)> {
        let here = self.text.get(start..).unwrap_or_default();
        let near = here.find([',', '}']).unwrap_or(here.len());
        let value = literal(here.get(..near).unwrap_or_default().trim_end());
        let far = here.find(',').unwrap_or(here.len());
        let end = if depth > 0 || !value.is_string() { near } else { far };
        self.spend(far)?;
        let words = here.get(..end).unwrap_or_default().trim_end();
        if words.contains(':') {
            return self.last_word_as_key(depth);
        }
        self.at = start + end;
        Some((None, if value.is_string() { Value::String(words.to_owned()) } else { value }))
    }

    fn last_word_as_key(&mut self, depth: usize) -> Option<(Option<String>, Value)> {
        loop {
            self.skip()?;
            let key = self.bare_key()?;
            if key.is_empty() {
                self.at += self.peek().map_or(0, char::len_utf8);
            }
            self.skip()?;
            if self.eats(':') {
                self.skip()?;
                let value = if matches!(self.peek(), None | Some(',' | '}')) {
                    Value::String(String::new())
                } else {
                    self.value(ValuePosition::Member, depth + 1)?
                };
                return Some((Some(key), value));
            }
            if matches!(self.peek(), None | Some(',' | '}')) {
                return Some((None, Value::String(key)));
            }
        }
    }

    fn bare_key(&mut self) -> Option<String> {
        let rest = self.rest();
        let end = rest
            .find(|c: char| c.is_whitespace() || matches!(c, ':' | ',' | '}' | '{' | '='))
            .unwrap_or(rest.len());
        self.advance(self.at + end)?;
        Some(rest.get(..end).unwrap_or_default().trim_end_matches(is_quote).to_owned())
    }

    fn value(&mut self, place: ValuePosition, depth: usize) -> Option<Value> {
        if depth > DEEPEST {
            return None;
        }
        match self.peek()? {
            '{' => {
                self.at += 1;
                self.braces(depth)
            }
            '[' => {
                self.at += 1;
                self.list(']', depth).map(Value::Array)
            }
            '(' => {
                self.at += 1;
                let comma = self
                    .rest()
                    .split_once(')')
                    .is_some_and(|(inside, _)| inside.trim_end().ends_with(','));
                let mut items = self.list(')', depth)?;
                Some(if items.len() == 1 && !comma { items.remove(0) } else { Value::Array(items) })
            }
            c if is_quote(c) => self.quoted(place).map(Value::String),
            _ => self.bare(place),
        }
    }

    /// Reads items after the opening bracket, up to the closing one or to a brace that closes the
    /// group around.
    fn list(&mut self, closing: char, depth: usize) -> Option<Vec<Value>> {
        let mut items = Vec::new();
        loop {
            self.skip()?;
            let Some(c) = self.peek() else { return Some(items) };
            self.spend(1)?;
            match c {
                c if c == closing => {
                    self.at += c.len_utf8();
                    return Some(items);
                }
                '}' => return Some(items),
                ',' | ':' | ';' | ']' | ')' => self.at += 1,
                c if is_quote(c)
                    && self
                        .text
                        .get(self.at + c.len_utf8()..)
                        .is_some_and(|after| after.starts_with(closing)) =>
                {
                    self.at += c.len_utf8()
                }
                // A missing brace before an object's first key
                c if is_quote(c) && self.starts_member(self.at) => {
                    items.push(self.unopened(depth)?)
                }
                _ => {
                    let value = self.value(ValuePosition::Item, depth + 1)?;
                    if value != "..." {
                        items.push(value);
                    }
                }
            }
        }
    }

    fn unopened(&mut self, depth: usize) -> Option<Value> {
        if depth >= DEEPEST { None } else { self.braces(depth + 1) }
    }

    /// Reads a number, a literal or unquoted words.
    fn bare(&mut self, place: ValuePosition) -> Option<Value> {
        let rest = self.rest();
        let number = rest
            .find(|c: char| !matches!(c, '0'..='9' | '-' | '+' | '.' | 'e' | 'E' | '_' | '/'))
            .unwrap_or(rest.len());
        let word = rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len());
        for end in [number, word] {
            let token = rest.get(..end).unwrap_or_default();
            let follows = rest.get(end..).unwrap_or_default().chars().next();
            let value = literal(token);
            if end > 0
                && !value.is_string()
                && !follows.is_some_and(|c| c.is_alphanumeric() || "_/.:-+".contains(c))
            {
                self.advance(self.at + end)?;
                return Some(value);
            }
        }
        let mut end = rest.len();
        for (at, c) in rest.char_indices() {
            self.spend(1)?;
            let ends = match (place, c) {
                (ValuePosition::Item, ',' | ']') | (_, '}') | (_, '\n') if at == 0 => true,
                (ValuePosition::Item, ',' | ']' | '}' | ')') => true,
                (_, '}') => true,
                (_, ',' | ';') => {
                    self.starts_member(self.at + at + 1) || self.ends_group(self.at + at + 1)
                }
                (_, '"' | '\'') => {
                    at > 0
                        && (self.starts_member(self.at + at)
                            || self.quote_ends(self.at + at + 1, c, place))
                }
                (_, '\n') => self.starts_member(self.at + at + 1),
                _ => false,
            };
            if ends {
                end = at;
                break;
            }
        }
        // Always consume something, or the loop would not end.
        let literal = rest.get(..end).unwrap_or_default();
        self.advance(self.at + end.max(rest.chars().next().map_or(0, char::len_utf8)))?;
        if place == ValuePosition::Item
            && self
                .peek()
                .is_some_and(|c| is_quote(c) && self.quote_ends(self.at + c.len_utf8(), c, place))
        {
            self.at += self.peek().map_or(0, char::len_utf8);
        }
        Some(Value::String(literal.trim_end().trim_start_matches('`').to_owned()))
    }

    /// Reads a text in quotes. An inner quote belongs to the text unless a separator or the end
    /// follows it.
    fn quoted(&mut self, place: ValuePosition) -> Option<String> {
        let opening = self.peek()?;
        let closing = if opening == '“' { '”' } else { opening };
        self.at += opening.len_utf8();
        let doubled = self.peek() == Some(closing) && {
            let after = self.text.get(self.at + closing.len_utf8()..).unwrap_or_default();
            after.starts_with(|c: char| c.is_alphanumeric())
        };
        if doubled {
            self.at += closing.len_utf8();
        }
        let start = self.at;
        let mut text = String::new();
        while let Some(c) = self.peek() {
            self.spend(1)?;
            let next = self.at + c.len_utf8();
            if c == closing
                && (self.quote_ends(next, closing, place)
                    || place == ValuePosition::Key
                        && self
                            .text
                            .get(start..self.at)
                            .is_some_and(|key| key.len() < LONGEST_KEY && !key.contains(closing))
                        && !self.key_is_open(next, closing))
            {
                self.at = next;
                if doubled && text.ends_with(closing) {
                    text.truncate(text.len() - closing.len_utf8());
                }
                return Some(without_last_line_feed(text));
            }
            let unclosed = match (place, c) {
                (ValuePosition::Key, ':') => {
                    !self
                        .rest()
                        .get(1..)
                        .unwrap_or_default()
                        .chars()
                        .take(LONGEST_KEY)
                        .any(|c| c == closing)
                        || self.value_then_ends(next, closing)
                }
                (ValuePosition::Member, ',' | '\n') => self.starts_member_in(next, closing),
                _ => false,
            };
            if unclosed {
                return Some(text.trim_end().to_owned());
            }
            self.at = next;
            if c == '\\' { self.escape(&mut text, closing)? } else { text.push(c) }
        }
        // An unterminated text ends before the brackets at the end of the input.
        let brackets =
            |c: char| c.is_whitespace() || c == '}' || (c == ']' && place == ValuePosition::Item);
        self.at =
            start + self.text.get(start..).unwrap_or_default().trim_end_matches(brackets).len();
        Some(text.trim_end_matches(brackets).to_owned())
    }

    /// Reads an escape after the backslash. An unknown escape stays as written.
    fn escape(&mut self, text: &mut String, closing: char) -> Option<()> {
        let Some(c) = self.peek() else {
            text.push('\\');
            return Some(());
        };
        let plain = match c {
            'n' => Some('\n'),
            't' => Some('\t'),
            'r' => Some('\r'),
            'b' => Some('\u{8}'),
            'f' => Some('\u{c}'),
            '\\' | '/' => Some(c),
            c if is_quote(c) || c == closing => Some(c),
            _ => None,
        };
        if let Some(plain) = plain {
            self.at += c.len_utf8();
            text.push(plain);
            return Some(());
        }
        let digits = match c {
            'u' => 4,
            'x' => 2,
            _ => 0,
        };
        let Some(code) = self.hex(self.at + 1, digits) else {
            text.push('\\');
            return Some(());
        };
        self.at += 1 + digits;
        // The second half of a surrogate pair
        let low = if self.rest().starts_with("\\u") { self.hex(self.at + 2, 4) } else { None };
        if let (0xd800..=0xdbff, Some(low @ 0xdc00..=0xdfff)) = (code, low) {
            self.at += 6;
            text.extend(char::from_u32(0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00)));
        } else {
            text.push(char::from_u32(code).unwrap_or('\u{fffd}'));
        }
        Some(())
    }

    fn hex(&self, from: usize, digits: usize) -> Option<u32> {
        let code = self
            .text
            .get(from..from + digits)
            .filter(|code| !code.is_empty() && code.chars().all(|c| c.is_ascii_hexdigit()))?;
        u32::from_str_radix(code, 16).ok()
    }
}

/// Merges `[…], […]` after one key into one list.
fn continue_list(members: &mut Map<String, Value>, more: Vec<Value>) {
    if let Some(Value::Array(items)) = members.values_mut().next_back() {
        items.extend(more);
    }
}

/// Removes a trailing line feed: models write one before a closing quote that they forgot.
fn without_last_line_feed(text: String) -> String {
    if text.ends_with('\n') { text.trim_end().to_owned() } else { text }
}

/// Whether a quote of any kind can open or close a text.
fn is_quote(c: char) -> bool {
    matches!(c, '"' | '\'' | '“' | '”')
}

/// Whether the character may begin an unquoted key.
fn is_bare(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '+')
}
