//! Decoded views of bytes, with the origin of each byte. Encodings are not validated: invalid parts
//! stay unchanged, so one pass finds values in partly encoded input.

/// Decoded bytes, with the range of the input that each stands for.
#[derive(Default)]
pub(super) struct DecodedView {
    pub(super) bytes: Vec<u8>,
    pub(super) from: Vec<(u32, u32)>,
}

/// Removes one encoding; returns `None` if the input has none of it.
pub(super) type Decoder = fn(&[u8]) -> Option<DecodedView>;

/// All decoders. Base64 and hexadecimal have one for each starting digit, because a secret can be
/// in the middle of more data.
pub(super) const DECODERS: [Decoder; 10] = [
    escapes,
    percent,
    form,
    entities,
    hex::<0>,
    hex::<1>,
    base64::<0>,
    base64::<1>,
    base64::<2>,
    base64::<3>,
];

/// The minimum lengths of runs in base64 and hexadecimal digits, for eight bytes.
const BASE64_RUN: usize = 11;
const HEX_RUN: usize = 16;

impl DecodedView {
    fn with_room(bytes: usize) -> Self {
        Self { bytes: Vec::with_capacity(bytes), from: Vec::with_capacity(bytes) }
    }

    fn push(&mut self, byte: u8, start: usize, end: usize) {
        self.bytes.push(byte);
        self.from.push((place(start), place(end)));
    }

    fn push_char(&mut self, c: char, start: usize, end: usize) {
        c.encode_utf8(&mut [0; 4]).bytes().for_each(|byte| self.push(byte, start, end));
    }
}

/// Windows are far smaller than `u32::MAX`.
fn place(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}

/// Decodes each position that `one` recognises into characters, with the number of bytes consumed.
fn decode(
    input: &[u8],
    is_begin: impl Fn(u8) -> bool,
    one: impl Fn(&[u8]) -> Option<(char, usize)>,
) -> Option<DecodedView> {
    let first = input.iter().position(|byte| is_begin(*byte))?;
    let mut view = DecodedView::with_room(input.len());
    let mut changed = false;
    let mut at = 0;
    while at < input.len() {
        let found = if at >= first && is_begin(input[at]) { one(&input[at..]) } else { None };
        match found {
            Some((c, length)) => {
                view.push_char(c, at, at + length);
                at += length;
                changed = true;
            }
            None => {
                view.push(input[at], at, at + 1);
                at += 1;
            }
        }
    }
    changed.then_some(view)
}

/// Decodes `\"`, `\n`, `\x41`, `\u0041`, `\ud83d\ude00`.
fn escapes(input: &[u8]) -> Option<DecodedView> {
    decode(
        input,
        |byte| byte == b'\\',
        |rest| {
            let simple = |c| Some((c, 2));
            match rest.get(1)? {
                b'"' => simple('"'),
                b'\\' => simple('\\'),
                b'/' => simple('/'),
                b'\'' => simple('\''),
                b'b' => simple('\u{8}'),
                b'f' => simple('\u{c}'),
                b'n' => simple('\n'),
                b'r' => simple('\r'),
                b't' => simple('\t'),
                b'x' => Some((char::from_u32(number(rest.get(2..4)?, 16)?)?, 4)),
                b'u' => unit(rest),
                _ => None,
            }
        },
    )
}

fn unit(rest: &[u8]) -> Option<(char, usize)> {
    let high = number(rest.get(2..6)?, 16)?;
    if let Some(c) = char::from_u32(high) {
        return Some((c, 6));
    }
    let follows = rest.get(6..8)? == b"\\u";
    let low = number(rest.get(8..12)?, 16)
        .filter(|low| follows && (0xdc00..0xe000).contains(low) && high < 0xdc00)?;
    Some((char::from_u32(0x1_0000 + ((high - 0xd800) << 10) + (low - 0xdc00))?, 12))
}

/// Decodes `&amp;`, `&#65;`, `&#x41;`.
fn entities(input: &[u8]) -> Option<DecodedView> {
    decode(
        input,
        |byte| byte == b'&',
        |rest| {
            let end = rest.iter().take(12).position(|byte| *byte == b';')?;
            let c = match &rest[1..end] {
                b"amp" => '&',
                b"lt" => '<',
                b"gt" => '>',
                b"quot" => '"',
                b"apos" => '\'',
                [b'#', b'x' | b'X', digits @ ..] => char::from_u32(number(digits, 16)?)?,
                [b'#', digits @ ..] => char::from_u32(number(digits, 10)?)?,
                _ => return None,
            };
            Some((c, end + 1))
        },
    )
}

/// Decodes `%41`; a `+` is a plus.
fn percent(input: &[u8]) -> Option<DecodedView> {
    percent_with(input, false)
}

/// Decodes `%41`; a `+` is a space.
fn form(input: &[u8]) -> Option<DecodedView> {
    if input.contains(&b'+') { percent_with(input, true) } else { None }
}

/// The input without its percent-encoding.
pub(super) fn percent_decoded(input: &[u8]) -> Vec<u8> {
    percent(input).map_or_else(|| input.to_vec(), |view| view.bytes)
}

fn percent_with(input: &[u8], is_form: bool) -> Option<DecodedView> {
    if !is_form && !input.contains(&b'%') {
        return None;
    }
    let mut view = DecodedView::with_room(input.len());
    let mut at = 0;
    while at < input.len() {
        let encoded = if input[at] == b'%' {
            input.get(at + 1..at + 3).and_then(|digits| number(digits, 16))
        } else {
            None
        };
        let (byte, length) = match encoded {
            Some(byte) => (u8::try_from(byte).unwrap_or_default(), 3),
            None if is_form && input[at] == b'+' => (b' ', 1),
            None => (input[at], 1),
        };
        view.push(byte, at, at + length);
        at += length;
    }
    Some(view)
}

/// Parses digits only: no sign, no space.
fn number(digits: &[u8], radix: u32) -> Option<u32> {
    if digits.is_empty() || digits.len() > 8 {
        return None;
    }
    digits.iter().try_fold(0_u32, |number, digit| {
        number.checked_mul(radix)?.checked_add(char::from(*digit).to_digit(radix)?)
    })
}

/// Decodes pairs of hexadecimal digits in long runs of them, from the run's digit number `SKIP`.
fn hex<const SKIP: usize>(input: &[u8]) -> Option<DecodedView> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    in_runs(
        input,
        |byte| if digit(byte).is_some() { EncodingKind::Digit } else { EncodingKind::Other },
        HEX_RUN,
        SKIP,
        |run, view| {
            for pair in run.chunks_exact(2) {
                let byte = digit(input[pair[0]]).unwrap_or_default() << 4
                    | digit(input[pair[1]]).unwrap_or_default();
                view.push(byte, pair[0], pair[1] + 1);
            }
        },
    )
}

/// Decodes long runs of base64 digits, standard and URL-safe alike, from the run's digit number
/// `SKIP`. Line ends inside a run are skipped.
fn base64<const SKIP: usize>(input: &[u8]) -> Option<DecodedView> {
    let kind = |byte: u8| match byte {
        b'\r' | b'\n' => EncodingKind::Between,
        byte if sextet(byte).is_some() => EncodingKind::Digit,
        _ => EncodingKind::Other,
    };
    in_runs(input, kind, BASE64_RUN, SKIP, |run, view| {
        let (mut buffer, mut bits, mut before) = (0_u32, 0, 0);
        for &at in run {
            buffer = (buffer << 6 | sextet(input[at]).unwrap_or_default()) & 0xffff;
            bits += 6;
            if bits >= 8 {
                bits -= 8;
                view.push(((buffer >> bits) & 0xff) as u8, before, at + 1);
            }
            before = at;
        }
    })
}

fn sextet(byte: u8) -> Option<u32> {
    Some(u32::from(match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' | b'-' => 62,
        b'/' | b'_' => 63,
        _ => return None,
    }))
}

#[derive(PartialEq)]
enum EncodingKind {
    Digit,
    /// Not a digit, but does not end a run.
    Between,
    Other,
}

/// Calls `read` with the positions of the digits of each long run; a zero byte separates the output
/// of two runs.
fn in_runs(
    input: &[u8],
    kind: impl Fn(u8) -> EncodingKind,
    least: usize,
    skip: usize,
    read: impl Fn(&[usize], &mut DecodedView),
) -> Option<DecodedView> {
    let mut view = DecodedView::default();
    let mut run = Vec::new();
    for at in 0..=input.len() {
        match input.get(at).map_or(EncodingKind::Other, |byte| kind(*byte)) {
            EncodingKind::Digit => run.push(at),
            EncodingKind::Between => {}
            EncodingKind::Other => {
                if run.len() >= least + skip {
                    read(&run[skip..], &mut view);
                    view.push(0, at, at);
                }
                run.clear();
            }
        }
    }
    (!view.bytes.is_empty()).then_some(view)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(view: Option<DecodedView>) -> String {
        view.map(|view| String::from_utf8_lossy(&view.bytes).into_owned()).unwrap_or_default()
    }

    #[test]
    fn encodings_are_taken_off() {
        assert_eq!(text(escapes(br#"a\"\u0041\ud83d\ude00\u12\x42\q"#)), "a\"A😀\\u12B\\q");
        assert_eq!(text(percent(b"a%42%zz%2")), "aB%zz%2");
        assert_eq!(text(form(b"a+%42")), "a B");
        assert_eq!(text(entities(b"a&amp;&#66;&#x43;&no;&")), "a&BC&no;&");
        assert_eq!(text(hex::<0>(b"x6d65742D746f6b656ex")), "met-token\0");
        assert_eq!(text(base64::<0>(b"bWV0LXRv\r\na2Vu=")), "met-token\0");
        assert!(text(base64::<1>(b"AbWV0LXRva2Vu")).starts_with("met-token"));
        assert!(
            [escapes, percent, form, entities, hex::<0>, base64::<0>]
                .iter()
                .all(|decoder: &Decoder| decoder(b"some words").is_none())
        );
    }
}
