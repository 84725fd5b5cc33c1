//! Texts with `*` for any text, also none: the one matcher of rules, for tools and for arguments.
//! Matching takes linear time: a pattern is a sequence of plain pieces with `*` between them, and no
//! piece is tried twice at one position.

/// Whether the text contains the pieces of the pattern in order, and begins and ends with them.
pub(crate) fn covers(pattern: &str, text: &str) -> bool {
    if pattern.contains('\\') {
        let pieces = pieces(pattern);
        let mut pieces = pieces.iter().map(String::as_str);
        let start = pieces.next().unwrap_or_default();
        return match pieces.next_back() {
            None => start == text,
            Some(end) => has_pieces(text, start, pieces, end),
        };
    }
    let Some((start, rest)) = pattern.split_once('*') else { return pattern == text };
    let (middle, end) = rest.rsplit_once('*').unwrap_or(("", rest));
    has_pieces(text, start, middle.split('*'), end)
}

fn has_pieces<'a>(
    text: &str,
    start: &str,
    middle: impl Iterator<Item = &'a str>,
    end: &str,
) -> bool {
    let Some(mut text) = text.strip_prefix(start) else { return false };
    for piece in middle {
        match text.find(piece) {
            Some(at) => text = &text[at + piece.len()..],
            None => return false,
        }
    }
    text.ends_with(end)
}

/// The unescaped pieces between the stars.
pub(crate) fn pieces(pattern: &str) -> Vec<String> {
    let (mut pieces, mut piece) = (Vec::new(), String::new());
    let mut rest = pattern.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '*' => pieces.push(std::mem::take(&mut piece)),
            '\\' => piece.push(rest.next_if(|next| matches!(next, '*' | '\\')).unwrap_or(c)),
            c => piece.push(c),
        }
    }
    pieces.push(piece);
    pieces
}
