//! Splits HTML into texts and tags, in one pass. It builds no tree and never goes back, so a
//! hostile page costs only its bytes.

use std::ops::Range;

/// Attributes of one tag that are parsed.
const MOST_ATTRIBUTES: usize = 64;

/// A piece of a page.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Token<'t> {
    /// With its character references.
    Text(&'t str),
    Start(Tag<'t>),
    /// The name, in lower case.
    End(String),
}

/// A start tag.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Tag<'t> {
    /// In lower case.
    pub(crate) name: String,
    attributes: Vec<(&'t str, &'t str)>,
}

impl<'t> Tag<'t> {
    /// The raw value of an attribute.
    pub(crate) fn attribute(&self, name: &str) -> Option<&'t str> {
        self.attributes
            .iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, value)| *value)
    }
}

/// An iterator over the pieces of a page.
pub(crate) struct Tokens<'t> {
    html: &'t str,
    at: usize,
    /// The open element whose content is always text.
    raw: Option<String>,
}

impl<'t> Tokens<'t> {
    pub(crate) fn new(html: &'t str) -> Self {
        Self { html, at: 0, raw: None }
    }

    /// The next position of an ASCII text, ignoring case.
    fn place_of(&self, text: &str) -> Option<usize> {
        let rest = &self.html.as_bytes()[self.at..];
        rest.windows(text.len())
            .position(|window| window.eq_ignore_ascii_case(text.as_bytes()))
            .map(|found| self.at + found)
    }

    fn byte(&self, at: usize) -> Option<u8> {
        self.html.as_bytes().get(at).copied()
    }

    /// The end of the run of matching bytes.
    fn end_of(&self, start: usize, is_in: impl Fn(u8) -> bool) -> usize {
        let rest = &self.html.as_bytes()[start.min(self.html.len())..];
        start.min(self.html.len())
            + rest.iter().position(|byte| !is_in(*byte)).unwrap_or(rest.len())
    }

    fn text(&mut self, range: Range<usize>) -> Token<'t> {
        self.at = range.end;
        Token::Text(&self.html[range])
    }

    /// Returns the content of an element like `script`, up to its end.
    fn raw_text(&mut self, name: &str) -> Token<'t> {
        let end = self.place_of(&format!("</{name}")).unwrap_or(self.html.len());
        self.text(self.at..end)
    }

    /// Returns the token that begins with `<`, if it is a tag.
    fn markup(&mut self) -> Option<Token<'t>> {
        let start = self.at;
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b':' | b'_');
        match self.byte(start + 1)? {
            b'!' if self.html[start..].starts_with("<!--") => {
                self.at = (start + 4).min(self.html.len());
                self.at = self.place_of("-->").map_or(self.html.len(), |end| end + 3);
                Some(Token::Text(""))
            }
            b'!' | b'?' => {
                let end = self.end_of(start, |byte| byte != b'>');
                self.at = (end + 1).min(self.html.len());
                Some(Token::Text(""))
            }
            b'/' if self.byte(start + 2).is_some_and(|byte| byte.is_ascii_alphabetic()) => {
                let end = self.end_of(start + 2, is_name);
                let name = self.html[start + 2..end].to_ascii_lowercase();
                self.at = (self.end_of(end, |byte| byte != b'>') + 1).min(self.html.len());
                Some(Token::End(name))
            }
            byte if byte.is_ascii_alphabetic() => {
                let end = self.end_of(start + 1, is_name);
                let name = self.html[start + 1..end].to_ascii_lowercase();
                let attributes = self.attributes(end);
                if matches!(
                    name.as_str(),
                    "script"
                        | "style"
                        | "title"
                        | "textarea"
                        | "xmp"
                        | "iframe"
                        | "noembed"
                        | "noframes"
                ) {
                    self.raw = Some(name.clone());
                }
                Some(Token::Start(Tag { name, attributes }))
            }
            _ => None,
        }
    }

    /// Returns the attributes from a position on, and moves behind the tag.
    fn attributes(&mut self, mut at: usize) -> Vec<(&'t str, &'t str)> {
        let mut attributes = Vec::new();
        let is_space = |byte: u8| byte.is_ascii_whitespace() || byte == b'/';
        loop {
            at = self.end_of(at, is_space);
            match self.byte(at) {
                None => break,
                Some(b'>') => {
                    at += 1;
                    break;
                }
                Some(_) => {}
            }
            // An attribute may begin with `=`, but always has a letter.
            let name_end =
                self.end_of(at + 1, |byte| !is_space(byte) && byte != b'=' && byte != b'>');
            let name = at..name_end;
            let equals = self.end_of(name_end, |byte| byte.is_ascii_whitespace());
            let value = if self.byte(equals) == Some(b'=') {
                let start = self.end_of(equals + 1, |byte| byte.is_ascii_whitespace());
                match self.byte(start) {
                    Some(quote @ (b'"' | b'\'')) => {
                        let end = self.end_of(start + 1, |byte| byte != quote);
                        at = (end + 1).min(self.html.len());
                        start + 1..end
                    }
                    _ => {
                        at = self.end_of(start, |byte| !byte.is_ascii_whitespace() && byte != b'>');
                        start..at
                    }
                }
            } else {
                at = name_end;
                0..0
            };
            if attributes.len() < MOST_ATTRIBUTES
                && let (Some(name), Some(value)) = (self.html.get(name), self.html.get(value))
            {
                attributes.push((name, value));
            }
        }
        self.at = at;
        attributes
    }
}

impl<'t> Iterator for Tokens<'t> {
    type Item = Token<'t>;

    fn next(&mut self) -> Option<Token<'t>> {
        if self.at >= self.html.len() {
            return None;
        }
        if let Some(name) = self.raw.take() {
            return Some(self.raw_text(&name));
        }
        if self.byte(self.at) == Some(b'<')
            && let Some(token) = self.markup()
        {
            return Some(token);
        }
        let end = self.end_of(self.at + 1, |byte| byte != b'<');
        Some(self.text(self.at..end))
    }
}

#[cfg(test)]
mod tests {
    use super::{Token, Tokens};

    fn shown(html: &str) -> String {
        let show = |token: Token<'_>| match token {
            Token::Text(text) => text.to_owned(),
            Token::Start(tag) => format!(
                "<{}{}>",
                tag.name,
                tag.attribute("href").map(|href| format!(" {href}")).unwrap_or_default()
            ),
            Token::End(name) => format!("</{name}>"),
        };
        Tokens::new(html).map(show).filter(|token| !token.is_empty()).collect::<Vec<_>>().join("·")
    }

    #[test]
    fn pages_are_cut_where_browsers_cut_them() {
        for (html, expected) in [
            ("<p>a<b>c</p>", "<p>·a·<b>·c·</p>"),
            ("<A HREF='x y' >t</A >", "<a x y>·t·</a>"),
            ("<a href=x/y class=\"b>c\">t", "<a x/y>·t"),
            ("<a\nhref = \"q\"/>t", "<a q>·t"),
            ("<br/><img alt=''/>", "<br>·<img>"),
            ("a < b <3 </ x", "a ·< b ·<3 ·</ x"),
            ("<!-- <p> --><!doctype html><?x y?>a", "a"),
            ("<script>if (a<b) '<p>'</script>x", "<script>·if (a<b) '<p>'·</script>·x"),
            ("<SCRIPT>1</ScRiPt >x", "<script>·1·</script>·x"),
            ("<title>a <b></title>", "<title>·a <b>·</title>"),
            ("a<!-- never closed <p>", "a"),
            ("<script>never closed", "<script>·never closed"),
            ("<a href=\"never closed>t", "<a never closed>t>"),
            ("<", "<"),
            ("", ""),
            ("é<é>ü</é>", "é·<é>ü·</é>"),
        ] {
            assert_eq!(shown(html), expected, "{html}");
        }
    }

    #[test]
    fn hostile_pages_are_read_once() {
        for piece in [
            "<", "<a ", "<a b=", "<a b='", "<!--", "<script>", "</script", "<!", "<?", "<p>", "</",
            "=\"'>", "<a/", "é<",
        ] {
            let html = piece.repeat(50_000);
            let bytes: usize = Tokens::new(&html)
                .map(|token| if let Token::Text(text) = token { text.len() } else { 0 })
                .sum();
            assert!(bytes <= html.len(), "{piece}");
        }
    }
}
