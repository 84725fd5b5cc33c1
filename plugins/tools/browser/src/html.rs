//! A page as readable text: title, headings, paragraphs, lists, links, tables. Scripts are not run.
//!
//! The text is written in one pass over the page's tokens, without a tree: elements that are never
//! closed, or closed twice, cost nothing.

use std::iter::repeat_n;

use html_escape::decode_html_entities;

use crate::link::resolved;
use crate::tokens::{Tag, Token, Tokens};

/// Bytes of text above which the rest of a page is dropped.
const MOST_BYTES: usize = 1_000_000;
/// How deep lists are indented.
const DEEPEST: usize = 8;

/// The text of a page whose own address is `address`, and the addresses of its numbered links.
///
/// Behind each link is its number, as long as the addresses together have at most `number_bytes`
/// bytes. Further links have their addresses.
pub(crate) fn readable(html: &str, address: &str, number_bytes: usize) -> (String, Vec<String>) {
    let mut page = Page { base: address.to_owned(), number_bytes, ..Page::default() };
    for token in Tokens::new(html) {
        match token {
            Token::Text(text) => page.text(text),
            Token::Start(tag) => page.start(&tag),
            Token::End(name) => page.end(&name),
        }
        if page.out.len() > MOST_BYTES {
            break;
        }
    }
    page.finish()
}

#[derive(Default)]
struct Page {
    out: String,
    title: String,
    /// The address to which links are relative.
    base: String,
    /// Newlines before the next text.
    breaks: usize,
    /// Whether a space comes before the next text.
    space: bool,
    /// The marker before the next text, such as `- `.
    mark: String,
    /// For each open list, its next number, or 0 if it has none.
    lists: Vec<u32>,
    link: Option<Link>,
    /// An element whose content is skipped, and the number of open elements with that name.
    skipped: Option<(String, usize)>,
    in_title: bool,
    /// `pre` elements that are open.
    verbatim: usize,
    /// Cells of the open row.
    cells: usize,
    /// The addresses of the numbered links.
    links: Vec<String>,
    /// Bytes that the addresses of further numbered links may have.
    number_bytes: usize,
}

/// An open link.
struct Link {
    href: String,
    /// Where its text begins, if it has any yet.
    start: Option<usize>,
}

impl Page {
    fn text(&mut self, text: &str) {
        if self.in_title {
            // The first title counts; a later one belongs to a picture.
            if self.title.is_empty() {
                self.title = one_line(&decode_html_entities(text));
            }
            return;
        }
        if self.skipped.is_some() {
            return;
        }
        for letter in decode_html_entities(text).chars() {
            match letter {
                '\n' if self.verbatim > 0 => {
                    (self.breaks, self.space) = (0, false);
                    self.out.push('\n');
                }
                ' ' | '\t' | '\u{a0}' if self.verbatim > 0 => {
                    self.begin();
                    self.out.push(if letter == '\t' { '\t' } else { ' ' });
                }
                _ if letter.is_whitespace() => self.space = true,
                _ if is_invisible(letter) => {}
                _ => {
                    self.begin_text();
                    self.out.push(letter);
                }
            }
        }
    }

    /// Writes the pending breaks, space and marker.
    fn begin(&mut self) {
        if self.breaks > 0 && !self.out.is_empty() {
            self.trim();
            self.out.extend(repeat_n('\n', self.breaks));
        } else if self.space && !self.out.is_empty() && !self.out.ends_with(['\n', ' ']) {
            self.out.push(' ');
        }
        self.out.push_str(&std::mem::take(&mut self.mark));
        (self.breaks, self.space) = (0, false);
    }

    /// Like `begin`, before a character that also belongs to the text of an open link.
    fn begin_text(&mut self) {
        self.begin();
        if let Some(link) = &mut self.link {
            link.start.get_or_insert(self.out.len());
        }
    }

    fn trim(&mut self) {
        let length = self.out.trim_end_matches([' ', '\n']).len();
        self.out.truncate(length);
    }

    fn block(&mut self, newlines: usize) {
        self.breaks = self.breaks.max(newlines);
        self.space = false;
    }

    fn start(&mut self, tag: &Tag<'_>) {
        let name = tag.name.as_str();
        if let Some((skipped, open)) = &mut self.skipped {
            *open += usize::from(skipped == name && !tag.is_empty);
            return;
        }
        if let Some(newlines) = line_breaks(name) {
            self.block(newlines);
        }
        match name {
            "script" | "style" | "template" | "svg" | "math" | "iframe" | "object" | "textarea"
            | "select" | "noembed" | "noframes" => {
                self.skipped = (!tag.is_empty).then(|| (name.to_owned(), 1));
            }
            "title" => self.in_title = !tag.is_empty,
            "base" => {
                let href = decode_html_entities(tag.href.unwrap_or_default());
                if let Some(base) = resolved(&self.base, &href) {
                    self.base = base;
                }
            }
            "br" => self.breaks = (self.breaks + 1).min(2),
            "hr" => {
                self.begin();
                self.out.push_str("---");
                self.block(2);
            }
            "h1" | "h2" | "h3" | "h4" | "h5" | "h6" => {
                let level = usize::from(name.as_bytes()[1] - b'0');
                self.mark = format!("{} ", "#".repeat(level));
            }
            "ul" | "ol" | "menu" => {
                self.list_break();
                self.lists.push(u32::from(name == "ol"));
            }
            "li" => self.mark = self.item_mark(),
            "dt" => self.block(2),
            "dd" => self.mark = "  ".into(),
            "pre" | "listing" => {
                self.begin();
                self.verbatim += 1;
            }
            "tr" => self.cells = 0,
            "td" | "th" => self.cell(),
            "a" => {
                self.end_link();
                let href = tag.href.map(|href| decode_html_entities(href).into_owned());
                self.link = href.map(|href| Link { href, start: None });
            }
            "img" => {
                let alt = one_line(&decode_html_entities(tag.alt.unwrap_or_default()));
                if !alt.is_empty() {
                    self.begin_text();
                    self.out.push_str(&format!("[image: {alt}]"));
                }
            }
            _ => {}
        }
    }

    /// A list within a list begins and ends on the next line, any other behind an empty one.
    fn list_break(&mut self) {
        self.block(if self.lists.is_empty() { 2 } else { 1 });
    }

    fn item_mark(&mut self) -> String {
        let indent = "  ".repeat(self.lists.len().clamp(1, DEEPEST) - 1);
        match self.lists.last_mut() {
            Some(number) if *number > 0 => {
                *number = number.saturating_add(1);
                format!("{indent}{}. ", *number - 1)
            }
            _ => format!("{indent}- "),
        }
    }

    fn cell(&mut self) {
        if self.cells > 0 {
            self.begin();
            self.out.push_str(" | ");
        }
        self.cells += 1;
        self.space = false;
    }

    fn end(&mut self, name: &str) {
        if let Some((skipped, open)) = &mut self.skipped {
            *open -= usize::from(skipped == name);
            if *open == 0 {
                self.skipped = None;
            }
            return;
        }
        match name {
            "title" => self.in_title = false,
            "a" => self.end_link(),
            "ul" | "ol" | "menu" => {
                self.lists.pop();
                self.mark.clear();
                self.list_break();
            }
            "h1" | "h2" | "h3" | "h4" | "h5" | "h6" => self.mark.clear(),
            "pre" | "listing" => self.verbatim = self.verbatim.saturating_sub(1),
            _ => {}
        }
        if let Some(newlines) = line_breaks(name) {
            self.block(newlines);
        }
    }

    /// Writes the number or the address of the open link. A link without text, or that leads to
    /// nothing that can be opened, has none.
    fn end_link(&mut self) {
        let Some(Link { href, start: Some(start) }) = self.link.take() else { return };
        let Some(address) = resolved(&self.base, &href) else { return };
        let text = one_line(&self.out.split_off(start));
        let link = match self.number_bytes.checked_sub(address.len()) {
            Some(further) => {
                self.number_bytes = further;
                self.links.push(address);
                format!("{text} [{}]", self.links.len())
            }
            None if text == address => text,
            None => format!("[{text}]({address})"),
        };
        self.out.push_str(&link);
    }

    fn finish(mut self) -> (String, Vec<String>) {
        self.end_link();
        self.trim();
        let Self { title, out, links, .. } = self;
        let text = match (title.is_empty(), out.is_empty()) {
            (true, _) => out,
            (false, true) => format!("Title: {title}"),
            (false, false) => format!("Title: {title}\n\n{out}"),
        };
        (text, links)
    }
}

fn one_line(text: &str) -> String {
    let words = text.split_whitespace().map(|word| word.replace(is_invisible, ""));
    words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
}

/// Control characters, which could steer a terminal, and the soft hyphen.
fn is_invisible(letter: char) -> bool {
    letter.is_control() || letter == '\u{ad}'
}

/// The newlines before and after a block, or `None` for an element within a line.
fn line_breaks(name: &str) -> Option<usize> {
    match name {
        "p" | "h1" | "h2" | "h3" | "h4" | "h5" | "h6" | "pre" | "listing" | "blockquote" | "hr"
        | "table" | "article" | "section" | "header" | "footer" | "main" | "nav" | "aside"
        | "figure" | "dl" | "form" => Some(2),
        "div" | "address" | "caption" | "center" | "details" | "summary" | "fieldset"
        | "figcaption" | "legend" | "option" | "body" | "html" | "head" | "tbody" | "thead"
        | "tfoot" | "tr" | "dt" | "dd" | "li" | "noscript" => Some(1),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
