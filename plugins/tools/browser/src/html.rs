//! A page as readable text: title, headings, paragraphs, lists, links, tables. Scripts are not run.

use crate::entities::decoded;
use crate::link::resolved;
use crate::tokens::{Tag, Token, Tokens};

/// Characters above which the rest of a page is dropped.
const ENOUGH: usize = 1_000_000;
/// How deep lists are indented.
const DEEPEST: usize = 8;

/// The readable text of a page; `address` is its own address.
pub(crate) fn readable(html: &str, address: &str) -> String {
    Page { base: address.to_owned(), ..Page::default() }.read(html)
}

/// The readable text with a number behind each link, and the links' addresses. Links past `most`
/// bytes of addresses have no number.
pub(crate) fn numbered(html: &str, address: &str, most: usize) -> (String, Vec<String>) {
    let mut links = Vec::new();
    let numbers = Some(LinkNumbers { links: &mut links, left: most });
    let text = Page { base: address.to_owned(), numbers, ..Page::default() }.read(html);
    (text, links)
}

struct LinkNumbers<'a> {
    links: &'a mut Vec<String>,
    /// Bytes that further addresses may have.
    left: usize,
}

#[derive(Default)]
struct Page<'a> {
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
    /// The start of the open link's text, and its target.
    link: Option<(usize, String)>,
    /// An element whose content is skipped, and the number of open elements with that name.
    skipped: Option<(String, usize)>,
    in_title: bool,
    /// `pre` elements that are open.
    verbatim: usize,
    /// Cells of the open row.
    cells: usize,
    /// The numbers of the links; `None` for links with their addresses.
    numbers: Option<LinkNumbers<'a>>,
}

impl Page<'_> {
    fn read(mut self, html: &str) -> String {
        for token in Tokens::new(html) {
            match token {
                Token::Text(text) => self.text(text),
                Token::Start(tag) => self.start(&tag),
                Token::End(name) => self.end(&name),
            }
            if self.out.len() > ENOUGH {
                break;
            }
        }
        self.finished()
    }

    fn text(&mut self, text: &str) {
        if self.in_title {
            // The first title counts; a later one belongs to a picture.
            if self.title.is_empty() {
                self.title = one_line(&decoded(text));
            }
            return;
        }
        if self.skipped.is_some() || text.is_empty() {
            return;
        }
        for letter in decoded(text).chars() {
            match letter {
                '\n' if self.verbatim > 0 => {
                    self.breaks = 0;
                    self.space = false;
                    self.out.push('\n');
                }
                ' ' | '\t' if self.verbatim > 0 => self.out.push(letter),
                _ if letter.is_whitespace() => self.space = true,
                _ if letter.is_control() => {}
                _ => {
                    self.begin();
                    self.out.push(letter);
                }
            }
        }
    }

    /// Writes the pending breaks, space and marker before a character.
    fn begin(&mut self) {
        let at_start = self.out.is_empty();
        if self.breaks > 0 && !at_start {
            self.trim();
            (0..self.breaks).for_each(|_| self.out.push('\n'));
            // A link without any text yet begins behind the break.
            if let Some((start, _)) = &mut self.link
                && self.out[(*start).min(self.out.len())..].trim().is_empty()
            {
                *start = self.out.len();
            }
        } else if self.space && !at_start && !self.out.ends_with(['\n', ' ']) {
            self.out.push(' ');
            if let Some((start, _)) = &mut self.link
                && *start + 1 == self.out.len()
            {
                *start += 1;
            }
        }
        if !self.mark.is_empty() {
            let mark = std::mem::take(&mut self.mark);
            self.out.push_str(&mark);
            if let Some((start, _)) = &mut self.link
                && *start + mark.len() == self.out.len()
            {
                *start += mark.len();
            }
        }
        (self.breaks, self.space) = (0, false);
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
            *open += usize::from(skipped == name);
            return;
        }
        match name {
            "script" | "style" | "template" | "svg" | "math" | "iframe" | "object" | "textarea"
            | "select" | "noembed" | "noframes" => {
                self.skipped = Some((name.to_owned(), 1));
            }
            "title" => self.in_title = true,
            "base" => {
                if let Some(href) =
                    tag.attribute("href").and_then(|href| resolved(&self.base, &decoded(href)))
                {
                    self.base = href;
                }
            }
            "br" => self.breaks = (self.breaks + 1).min(2),
            "hr" => {
                self.block(2);
                self.begin();
                self.out.push_str("---");
                self.block(2);
            }
            "h1" | "h2" | "h3" | "h4" | "h5" | "h6" => {
                self.block(2);
                let level = usize::from(name.as_bytes()[1] - b'0');
                self.mark = format!("{} ", "#".repeat(level));
            }
            "ul" | "ol" | "menu" => {
                self.block(if self.lists.is_empty() { 2 } else { 1 });
                self.lists.push(u32::from(name == "ol"));
            }
            "li" => self.item(),
            "dt" => self.block(2),
            "dd" => {
                self.block(1);
                self.mark = "  ".into();
            }
            "pre" | "listing" => {
                self.block(2);
                self.begin();
                self.verbatim += 1;
            }
            "tr" => {
                self.block(1);
                self.cells = 0;
            }
            "td" | "th" => {
                if self.cells > 0 {
                    self.begin();
                    self.out.push_str(" | ");
                }
                self.cells += 1;
                (self.breaks, self.space) = (if self.cells > 1 { 0 } else { self.breaks }, false);
            }
            "a" => {
                self.end_link();
                let leads =
                    tag.attribute("href").and_then(|href| resolved(&self.base, &decoded(href)));
                self.link = leads.map(|address| (self.out.len(), address));
            }
            "img" => {
                let alt = one_line(&decoded(tag.attribute("alt").unwrap_or_default()));
                if !alt.is_empty() {
                    self.begin();
                    self.out.push_str(&format!("[image: {alt}]"));
                }
            }
            _ if is_block(name) => self.block(if is_paragraph(name) { 2 } else { 1 }),
            _ => {}
        }
    }

    fn item(&mut self) {
        self.block(1);
        let depth = self.lists.len().clamp(1, DEEPEST) - 1;
        let mark = match self.lists.last_mut() {
            Some(number) if *number > 0 => {
                *number = number.saturating_add(1);
                format!("{}. ", *number - 1)
            }
            _ => "- ".to_owned(),
        };
        self.mark = format!("{}{mark}", "  ".repeat(depth));
    }

    fn end(&mut self, name: &str) {
        if let Some((skipped, open)) = &mut self.skipped {
            if skipped == name {
                *open -= 1;
                if *open == 0 {
                    self.skipped = None;
                }
            }
            return;
        }
        match name {
            "title" => self.in_title = false,
            "a" => self.end_link(),
            "ul" | "ol" | "menu" => {
                self.lists.pop();
                self.mark.clear();
                self.block(if self.lists.is_empty() { 2 } else { 1 });
            }
            "h1" | "h2" | "h3" | "h4" | "h5" | "h6" => {
                self.mark.clear();
                self.block(2);
            }
            "pre" | "listing" => {
                self.verbatim = self.verbatim.saturating_sub(1);
                self.block(2);
            }
            "table" => self.block(2),
            "p" => self.block(2),
            _ if is_block(name) => self.block(if is_paragraph(name) { 2 } else { 1 }),
            _ => {}
        }
    }

    fn end_link(&mut self) {
        let Some((start, address)) = self.link.take() else { return };
        let Some(text) = self.out.get(start..).filter(|text| !text.trim().is_empty()) else {
            return;
        };
        let text = one_line(text);
        self.out.truncate(start);
        let number = self.numbers.as_mut().and_then(|numbers| {
            numbers.left = numbers.left.checked_sub(address.len())?;
            numbers.links.push(address.clone());
            Some(numbers.links.len())
        });
        self.out.push_str(&match number {
            Some(number) => format!("{text} [{number}]"),
            None if text == address => text,
            None => format!("[{text}]({address})"),
        });
    }

    fn finished(mut self) -> String {
        self.end_link();
        self.trim();
        if self.title.is_empty() {
            return self.out;
        }
        let Self { title, out, .. } = self;
        if out.is_empty() { format!("Title: {title}") } else { format!("Title: {title}\n\n{out}") }
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
        .chars()
        .filter(|letter| !letter.is_control())
        .collect()
}

fn is_paragraph(name: &str) -> bool {
    matches!(
        name,
        "p" | "blockquote"
            | "table"
            | "article"
            | "section"
            | "header"
            | "footer"
            | "main"
            | "nav"
            | "aside"
            | "figure"
            | "dl"
            | "form"
    )
}

fn is_block(name: &str) -> bool {
    is_paragraph(name)
        || matches!(
            name,
            "div"
                | "address"
                | "caption"
                | "center"
                | "details"
                | "summary"
                | "fieldset"
                | "figcaption"
                | "legend"
                | "option"
                | "body"
                | "html"
                | "head"
                | "tbody"
                | "thead"
                | "tfoot"
                | "tr"
                | "dt"
                | "dd"
                | "li"
                | "noscript"
        )
}

#[cfg(test)]
mod tests;
