//! Splits HTML into texts and tags, in one pass. It builds no tree and never goes back, so a
//! hostile page costs only its bytes.
//!
//! The libraries that do this were measured: html5gum and html5ever double the component, or more,
//! and tl takes a `<` in a script for a tag.

/// Bytes above which the value of an attribute is ignored: no address is that long.
const LONGEST_VALUE: usize = 16 * 1024;

/// A piece of a page.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Token<'t> {
    /// With its character references. Empty for a comment.
    Text(&'t str),
    Start(Tag<'t>),
    /// The name, in lower case.
    End(String),
}

/// A start tag, with the attributes that a text needs. They have their character references.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Tag<'t> {
    /// In lower case.
    pub(crate) name: String,
    pub(crate) href: Option<&'t str>,
    pub(crate) alt: Option<&'t str>,
    /// Whether the tag ends in `/>`. For XHTML and SVG that means no content, and whoever writes it
    /// in HTML wants the same, although browsers ignore it there.
    pub(crate) is_empty: bool,
}

impl Tag<'_> {
    /// Whether the content is text up to the end tag, whatever it looks like.
    fn has_raw_content(&self) -> bool {
        !self.is_empty
            && matches!(
                self.name.as_str(),
                "script"
                    | "style"
                    | "title"
                    | "textarea"
                    | "xmp"
                    | "iframe"
                    | "noembed"
                    | "noframes"
            )
    }
}

/// An iterator over the pieces of a page.
pub(crate) struct Tokens<'t> {
    rest: &'t str,
    /// The open element whose content is always text.
    raw: Option<String>,
}

impl<'t> Tokens<'t> {
    pub(crate) fn new(html: &'t str) -> Self {
        Self { rest: html, raw: None }
    }

    fn take(&mut self, bytes: usize) -> &'t str {
        let (taken, rest) = self.rest.split_at(bytes);
        self.rest = rest;
        taken
    }

    fn take_while(&mut self, is_in: impl Fn(char) -> bool) -> &'t str {
        self.take(self.rest.find(|letter| !is_in(letter)).unwrap_or(self.rest.len()))
    }

    /// Takes the text before the next `end`, and drops `end`. Takes all if there is none.
    fn take_past(&mut self, end: &str) -> &'t str {
        let (taken, rest) = self.rest.split_once(end).unwrap_or((self.rest, ""));
        self.rest = rest;
        taken
    }

    /// Takes the content of an element like `script`, up to its end tag.
    fn raw_content(&mut self, name: &str) -> &'t str {
        let end_tag = format!("</{name}");
        let is_end = |window: &[u8]| {
            let (start, next) = window.split_at(end_tag.len());
            start.eq_ignore_ascii_case(end_tag.as_bytes())
                && (next[0].is_ascii_whitespace() || matches!(next[0], b'/' | b'>'))
        };
        let end = self.rest.as_bytes().windows(end_tag.len() + 1).position(is_end);
        self.take(end.unwrap_or(self.rest.len()))
    }

    /// Takes a tag, a comment or a declaration. `None` if the rest does not begin with one.
    fn markup(&mut self) -> Option<Token<'t>> {
        let inner = self.rest.strip_prefix('<')?;
        let is_name = |text: &str| text.starts_with(|first: char| first.is_ascii_alphabetic());
        if let Some(comment) = inner.strip_prefix("!--") {
            self.rest = comment;
            self.take_past("-->");
            return Some(Token::Text(""));
        }
        if inner.starts_with(['!', '?']) {
            self.take_past(">");
            return Some(Token::Text(""));
        }
        if let Some(end_tag) = inner.strip_prefix('/').filter(|end_tag| is_name(end_tag)) {
            self.rest = end_tag;
            let name = self.name();
            self.take_past(">");
            return Some(Token::End(name));
        }
        is_name(inner).then(|| {
            self.rest = inner;
            let tag = self.start_tag();
            self.raw = tag.has_raw_content().then(|| tag.name.clone());
            Token::Start(tag)
        })
    }

    fn name(&mut self) -> String {
        self.take_while(|letter| {
            letter.is_ascii_alphanumeric() || matches!(letter, '-' | ':' | '_')
        })
        .to_ascii_lowercase()
    }

    fn start_tag(&mut self) -> Tag<'t> {
        let mut tag = Tag { name: self.name(), ..Tag::default() };
        loop {
            let gap = self.take_while(is_gap);
            if self.rest.is_empty() {
                return tag;
            }
            if let Some(rest) = self.rest.strip_prefix('>') {
                self.rest = rest;
                // Of HTML's own elements, none with raw content can be empty.
                tag.is_empty = gap.ends_with('/') && matches!(tag.name.as_str(), "svg" | "math");
                return tag;
            }
            let (name, value) = self.attribute();
            let known = match name.to_ascii_lowercase().as_str() {
                "href" => &mut tag.href,
                "alt" => &mut tag.alt,
                _ => continue,
            };
            if value.len() <= LONGEST_VALUE {
                known.get_or_insert(value);
            }
        }
    }

    fn attribute(&mut self) -> (&'t str, &'t str) {
        // The name may begin with `=`, so that each attribute has at least one letter.
        let first = self.rest.chars().next().map_or(0, char::len_utf8);
        let more = self.rest[first..].find(|letter| is_gap(letter) || matches!(letter, '=' | '>'));
        let name = self.take(more.map_or(self.rest.len(), |more| first + more));
        self.take_while(|letter| letter.is_ascii_whitespace());
        let Some(rest) = self.rest.strip_prefix('=') else { return (name, "") };
        self.rest = rest.trim_ascii_start();
        for quote in ["\"", "'"] {
            if let Some(value) = self.rest.strip_prefix(quote) {
                self.rest = value;
                return (name, self.take_past(quote));
            }
        }
        (name, self.take_while(|letter| !letter.is_ascii_whitespace() && letter != '>'))
    }
}

/// What stands between two attributes.
fn is_gap(letter: char) -> bool {
    letter.is_ascii_whitespace() || letter == '/'
}

impl<'t> Iterator for Tokens<'t> {
    type Item = Token<'t>;

    fn next(&mut self) -> Option<Token<'t>> {
        if self.rest.is_empty() {
            return None;
        }
        if let Some(name) = self.raw.take() {
            return Some(Token::Text(self.raw_content(&name)));
        }
        Some(self.markup().unwrap_or_else(|| {
            // A `<` at the beginning is text, since it begins no tag.
            let end = self.rest.match_indices('<').map(|(at, _)| at).find(|at| *at > 0);
            Token::Text(self.take(end.unwrap_or(self.rest.len())))
        }))
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
                tag.href.map(|href| format!(" {href}")).unwrap_or_default()
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
            ("<script>'</scripts>'</script>x", "<script>·'</scripts>'·</script>·x"),
            ("<a href=1 HREF=2 hrefs=3>t", "<a 1>·t"),
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
