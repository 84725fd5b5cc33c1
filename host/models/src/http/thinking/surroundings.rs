//! What stands around a position in a text: code, a string of JSON, a section of XML without
//! markup. A mark in them is a part of the text.

/// The beginning and the end of a section of XML without markup.
const CDATA: &str = "<![CDATA[";
const CDATA_END: &str = "]]>";

/// The surroundings of the end of a text.
#[derive(Debug, Default)]
pub(super) struct Surroundings {
    previous: Option<char>,
    /// The last characters, as many as the beginning of a section has.
    tail: String,
    has_words_in_line: bool,
    backticks_in_line: usize,
    is_in_code_block: bool,
    is_in_section: bool,
    /// Open braces outside of strings.
    braces: usize,
    is_in_string: bool,
    is_escaped: bool,
}

impl Surroundings {
    /// Whether the text is taken letter by letter here.
    pub(super) fn is_verbatim(&self) -> bool {
        let is_in_code = self.is_in_code_block || self.backticks_in_line % 2 == 1;
        is_in_code || self.is_in_section || self.is_in_string
    }

    /// Whether the text ends with an opening quotation mark.
    pub(super) fn is_quoted(&self) -> bool {
        self.previous.is_some_and(|previous| "\"'`“‘«".contains(previous))
    }

    /// Whether the line has only white space so far.
    pub(super) fn begins_line(&self) -> bool {
        !self.has_words_in_line
    }

    /// A block ended: another one may follow it directly.
    pub(super) fn end_block(&mut self) {
        self.previous = None;
        self.has_words_in_line = false;
    }

    pub(super) fn handle(&mut self, character: char) {
        self.previous = Some(character);
        self.handle_json(character);
        self.handle_section(character);
        match character {
            '\n' => {
                self.has_words_in_line = false;
                self.backticks_in_line = 0;
            }
            '`' => {
                self.backticks_in_line += 1;
                if self.backticks_in_line == 3 && self.tail.trim_start_matches('`').is_empty() {
                    self.is_in_code_block ^= true;
                    self.backticks_in_line = 0;
                }
                self.has_words_in_line = true;
            }
            other => self.has_words_in_line |= !other.is_whitespace(),
        }
        if character == '\n' {
            self.tail.clear();
        }
    }

    /// Follows the strings of an object. Outside of objects, quotation marks are those of a
    /// sentence.
    fn handle_json(&mut self, character: char) {
        match character {
            _ if std::mem::take(&mut self.is_escaped) => {}
            '\\' => self.is_escaped = self.is_in_string,
            '"' => self.is_in_string = !self.is_in_string && self.braces > 0,
            _ if self.is_in_string => {}
            '{' => self.braces += 1,
            '}' => self.braces = self.braces.saturating_sub(1),
            _ => {}
        }
    }

    fn handle_section(&mut self, character: char) {
        if !(self.tail.is_empty() && character.is_whitespace()) {
            self.tail.push(character);
        }
        if self.tail.chars().count() > CDATA.len() {
            self.tail.remove(0);
        }
        if self.tail.ends_with(CDATA) {
            self.is_in_section = true;
        } else if self.tail.ends_with(CDATA_END) {
            self.is_in_section = false;
        }
    }
}
