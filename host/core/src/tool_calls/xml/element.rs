//! A strict parser of small XML texts: a tree of elements with their text before the first child.
//! Does not interpret the elements. Written here, because existing event readers leave most checks
//! (names, end of the text, references) to their caller.

/// An element; text after its first child is dropped.
#[derive(Debug, Default)]
pub(super) struct Element {
    pub(super) name: String,
    pub(super) text: String,
    pub(super) children: Vec<Element>,
}

/// The limit of nested elements; deeper texts are refused, so that walks over the tree may recurse.
const DEEPEST: usize = 256;

/// Parses a text that is one element.
///
/// # Errors
/// Line, column and reason of the first mistake.
pub(super) fn parse(text: &str) -> Result<Element, String> {
    let mut reader = XmlReader { rest: text, open: Vec::new(), root: None };
    while !reader.rest.is_empty() {
        reader.step().map_err(|(remaining, why)| place(text, remaining, &why))?;
    }
    if let Some(open) = reader.open.last() {
        return Err(place(text, 0, &format!("the element `{}` is not closed", open.name)));
    }
    reader.root.ok_or_else(|| "there is no element".to_owned())
}

/// The number of remaining bytes, and the mistake there.
type Mistake = (usize, String);

fn place(text: &str, remaining: usize, why: &str) -> String {
    let before = text.get(..text.len().saturating_sub(remaining)).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    format!("line {line}, column {column}: {why}")
}

struct XmlReader<'a> {
    rest: &'a str,
    open: Vec<Element>,
    root: Option<Element>,
}

impl<'a> XmlReader<'a> {
    fn step(&mut self) -> Result<(), Mistake> {
        if self.eats("<![CDATA[") {
            let inside = self.until("]]>", "the CDATA section has no end `]]>`")?;
            return self.add_text(inside, false);
        }
        if self.eats("</") {
            return self.end();
        }
        for (mark, what) in
            [("<!--", "a comment"), ("<?", "an instruction"), ("<!", "a declaration or DTD")]
        {
            if self.rest.starts_with(mark) {
                return self.wrong(format!(
                    "{what} may not stand in a call; text that holds `{mark}` belongs into CDATA"
                ));
            }
        }
        if self.eats("<") {
            return self.start();
        }
        if self.eats("&") {
            return self.reference();
        }
        let end = self.rest.find(['<', '&']).unwrap_or(self.rest.len());
        let chunk = self.take(end);
        self.add_text(chunk, true)
    }

    fn wrong<T>(&self, why: impl Into<String>) -> Result<T, Mistake> {
        Err((self.rest.len(), why.into()))
    }

    fn eats(&mut self, mark: &str) -> bool {
        let after = self.rest.strip_prefix(mark);
        self.rest = after.unwrap_or(self.rest);
        after.is_some()
    }

    fn take(&mut self, bytes: usize) -> &'a str {
        let (head, after) = self.rest.split_at_checked(bytes).unwrap_or((self.rest, ""));
        self.rest = after;
        head
    }

    fn until(&mut self, mark: &str, missing: &str) -> Result<&'a str, Mistake> {
        let Some(end) = self.rest.find(mark) else { return self.wrong(missing) };
        let inside = self.take(end);
        self.eats(mark);
        Ok(inside)
    }

    fn blanks(&mut self) -> bool {
        let after = self.rest.trim_start_matches([' ', '\t', '\n', '\r']);
        let any = after.len() < self.rest.len();
        self.rest = after;
        any
    }

    fn name(&mut self) -> Result<&'a str, Mistake> {
        let end = self.rest.find(|c| !is_name_char(c)).unwrap_or(self.rest.len());
        let starts = self.rest.starts_with(is_name_start);
        if !starts {
            return self.wrong("a name is expected here; a bare `<` is written `&lt;`");
        }
        Ok(self.take(end))
    }

    /// Reads a closing tag after `</`.
    fn end(&mut self) -> Result<(), Mistake> {
        let name = self.name()?;
        let Some(element) = self.open.pop() else {
            return self.wrong(format!("`</{name}>` closes nothing"));
        };
        if element.name != name {
            return self.wrong(format!("`</{name}>` where `</{}>` is expected", element.name));
        }
        self.blanks();
        if !self.eats(">") {
            return self.wrong("`>` is expected after the name");
        }
        self.close(element);
        Ok(())
    }

    fn close(&mut self, element: Element) {
        match self.open.last_mut() {
            Some(parent) => parent.children.push(element),
            None => self.root = Some(element),
        }
    }

    /// Reads an opening tag after `<`.
    fn start(&mut self) -> Result<(), Mistake> {
        if self.root.is_some() {
            return self.wrong("there may be only one outermost element");
        }
        if self.open.len() >= DEEPEST {
            return self.wrong(format!("more than {DEEPEST} elements in each other"));
        }
        let name = self.name()?;
        if self.rest.starts_with(':') {
            return self
                .wrong(format!("the prefix `{name}` is not declared: names of fields have none"));
        }
        self.attributes()?;
        let element = Element { name: name.to_owned(), ..Element::default() };
        if self.eats("/>") {
            self.close(element);
        } else if self.eats(">") {
            self.open.push(element);
        } else {
            return self.wrong("`>` is expected to end the tag");
        }
        Ok(())
    }

    /// Reads attributes only to find mistakes in them; their values are dropped.
    fn attributes(&mut self) -> Result<(), Mistake> {
        let mut seen = std::collections::BTreeSet::new();
        while self.blanks() && !self.rest.starts_with(['>', '/']) {
            let start = self.rest;
            self.name()?;
            if self.eats(":") {
                self.name()?;
            }
            let name = start.get(..start.len() - self.rest.len()).unwrap_or_default();
            if !seen.insert(name) {
                return self.wrong(format!("the attribute `{name}` stands twice"));
            }
            self.blanks();
            if !self.eats("=") {
                return self.wrong(format!("`=` is expected after the attribute `{name}`"));
            }
            self.blanks();
            let value = match (self.eats("\""), self.eats("'")) {
                (true, _) => self.until("\"", "the attribute has no end")?,
                (_, true) => self.until("'", "the attribute has no end")?,
                _ => return self.wrong("the value of an attribute stands in quotes"),
            };
            if value.contains('<') || !value.chars().all(is_char) {
                return self.wrong("an attribute holds a character that it may not hold");
            }
        }
        Ok(())
    }

    /// Reads a reference after `&`.
    fn reference(&mut self) -> Result<(), Mistake> {
        let end = self.rest.bytes().take(12).position(|b| b == b';');
        let Some(name) = end.and_then(|end| self.rest.get(..end)) else {
            return self.wrong("a bare `&` is written `&amp;`");
        };
        let number = |digits: &str, radix| {
            let digits_only = digits.chars().all(|c| c.is_digit(radix));
            u32::from_str_radix(digits, radix)
                .ok()
                .filter(|_| digits_only)
                .and_then(char::from_u32)
                .filter(|c| is_char(*c))
        };
        let c = match name {
            "amp" => Some('&'),
            "lt" => Some('<'),
            "gt" => Some('>'),
            "quot" => Some('"'),
            "apos" => Some('\''),
            other => match other.strip_prefix('#') {
                Some(digits) => digits
                    .strip_prefix('x')
                    .map_or_else(|| number(digits, 10), |digits| number(digits, 16)),
                None => None,
            },
        };
        let Some(c) = c else { return self.wrong(format!("there is no entity `&{name};`")) };
        self.take(name.len() + 1);
        self.text_of_innermost(&|text| text.push(c))
    }

    /// Adds text or the content of a CDATA section; line ends become line feeds.
    fn add_text(&mut self, chunk: &str, is_markup: bool) -> Result<(), Mistake> {
        if self.open.is_empty() && chunk.trim().is_empty() && is_markup {
            return Ok(());
        }
        if is_markup && chunk.contains("]]>") {
            return self.wrong("`]]>` without CDATA before it");
        }
        if let Some(c) = chunk.chars().find(|c| !is_char(*c)) {
            return self
                .wrong(format!("the character {} may not stand in XML", c.escape_unicode()));
        }
        self.text_of_innermost(&|text| {
            let mut lines = chunk.split('\r');
            text.push_str(lines.next().unwrap_or_default());
            for line in lines {
                text.push('\n');
                text.push_str(line.strip_prefix('\n').unwrap_or(line));
            }
        })
    }

    fn text_of_innermost(&mut self, add: &dyn Fn(&mut String)) -> Result<(), Mistake> {
        let remaining = self.rest.len();
        let Some(element) = self.open.last_mut() else {
            return Err((remaining, "text outside the outermost element".to_owned()));
        };
        if element.children.is_empty() {
            add(&mut element.text);
        }
        Ok(())
    }
}

/// Whether the text can be the name of an element.
pub(super) fn is_name(text: &str) -> bool {
    text.starts_with(is_name_start) && text.chars().all(is_name_char)
}

/// Whether the character may begin a name: XML 1.0, fifth edition, without the colon.
fn is_name_start(c: char) -> bool {
    matches!(c, 'A'..='Z' | '_' | 'a'..='z' | '\u{c0}'..='\u{d6}' | '\u{d8}'..='\u{f6}' | '\u{f8}'..='\u{2ff}' | '\u{370}'..='\u{37d}'
        | '\u{37f}'..='\u{1fff}' | '\u{200c}'..='\u{200d}' | '\u{2070}'..='\u{218f}' | '\u{2c00}'..='\u{2fef}' | '\u{3001}'..='\u{d7ff}'
        | '\u{f900}'..='\u{fdcf}' | '\u{fdf0}'..='\u{fffd}' | '\u{10000}'..='\u{effff}')
}

fn is_name_char(c: char) -> bool {
    is_name_start(c)
        || matches!(c, '-' | '.' | '0'..='9' | '\u{b7}' | '\u{300}'..='\u{36f}' | '\u{203f}'..='\u{2040}')
}

/// Whether XML allows the character.
pub(super) fn is_char(c: char) -> bool {
    matches!(c, '\t' | '\n' | '\r' | '\u{20}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..)
}
