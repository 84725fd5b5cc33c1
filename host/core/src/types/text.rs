//! Text for people: the one list of deceptive characters, for config problems, logs and the
//! terminal, amounts with their units, and what stays of a long text.

use icu_properties::props::{DefaultIgnorableCodePoint, Emoji, GeneralCategory};
use icu_properties::{CodePointMapData, CodePointSetData};

pub use conclave_trajectory::{cut_bytes, cut_chars};

/// Whether the character controls a terminal, is invisible or changes the reading direction, so
/// that its text can read as another. The list follows Unicode properties: ignorable characters,
/// and those without a known appearance.
#[must_use]
pub fn is_deceptive(c: char) -> bool {
    if c.is_ascii() {
        return c.is_ascii_control();
    }
    // Invisible or without a look of their own, but classified as symbols: the Braille blank, the
    // place of an object, and notes without a head.
    let is_blank = matches!(c, '\u{2800}' | '\u{fffc}' | '\u{1d159}');
    // Marks of music, which show only on a note.
    let is_part_of_note = matches!(c, '\u{1d165}'..='\u{1d169}' | '\u{1d16d}'..='\u{1d182}');
    is_blank || is_part_of_note || is_default_ignorable(c) || has_no_known_look(c)
}

/// Whether the character is drawn on the one before it, such as an accent.
#[must_use]
pub fn is_mark(c: char) -> bool {
    use GeneralCategory::{EnclosingMark, NonspacingMark};
    let kind = CodePointMapData::<GeneralCategory>::new().get(c);
    !c.is_ascii() && matches!(kind, EnclosingMark | NonspacingMark)
}

fn is_default_ignorable(c: char) -> bool {
    CodePointSetData::new::<DefaultIgnorableCodePoint>().contains(c)
}

/// Whether it is a control or format character, a line or paragraph separator, for private use, or
/// unassigned.
fn has_no_known_look(c: char) -> bool {
    use GeneralCategory::{
        Control, Format, LineSeparator, ParagraphSeparator, PrivateUse, Surrogate, Unassigned,
    };
    matches!(
        CodePointMapData::<GeneralCategory>::new().get(c),
        Control | Format | LineSeparator | ParagraphSeparator | PrivateUse | Surrogate | Unassigned
    )
}

const ZERO_WIDTH_JOINER: char = '\u{200d}';
/// The variation selector that requests the colored form.
const EMOJI_STYLE: char = '\u{fe0f}';

/// Whether the character is part of the emoji before it: it joins the next emoji to it, or requests
/// color. Anywhere else such a character is deceptive.
#[must_use]
pub fn is_emoji_joiner(before: Option<char>, c: char) -> bool {
    match c {
        ZERO_WIDTH_JOINER => before.is_some_and(|before| is_emoji(before) || before == EMOJI_STYLE),
        EMOJI_STYLE => before.is_some_and(is_emoji),
        _ => false,
    }
}

/// Whether the character can begin an emoji; digits and the like are excluded, although Unicode
/// lists them.
fn is_emoji(c: char) -> bool {
    !c.is_ascii() && CodePointSetData::new::<Emoji>().contains(c)
}

/// A size with the largest unit that divides it: `64 MiB`. A config can hold it.
#[must_use]
pub fn show_size(bytes: u64) -> String {
    show(bytes, &[("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)])
}

/// A duration with the largest unit that divides it: `300 ms`. A config can hold it.
#[must_use]
pub fn show_duration(ms: u64) -> String {
    show(ms, &[("h", 3_600_000), ("min", 60_000), ("s", 1_000), ("ms", 1)])
}

/// A command as a shell would read it, with quotes around the words that need them.
#[must_use]
pub fn show_command(program: &str, arguments: &[String]) -> String {
    let is_plain = |word: &str| {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
        !word.is_empty() && word.chars().all(plain)
    };
    let quoted = |word: &str| match is_plain(word) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    };
    let words = arguments.iter().map(String::as_str);
    [program].into_iter().chain(words).map(quoted).collect::<Vec<_>>().join(" ")
}

/// The program and the arguments of a command with quotes as [`show_command`] writes them; `None`
/// if a quote is open.
#[must_use]
pub fn read_command(text: &str) -> Option<(String, Vec<String>)> {
    let (mut words, mut word, mut quoted) = (Vec::new(), None::<String>, false);
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\'' => {
                quoted = !quoted;
                word.get_or_insert_default();
            }
            ' ' if !quoted => words.extend(word.take()),
            '\\' if !quoted => word.get_or_insert_default().push(chars.next()?),
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    if quoted || words.is_empty() {
        return None;
    }
    let program = words.remove(0);
    Some((program, words))
}

/// A number in groups of three digits: `50 000`.
#[must_use]
pub fn show_number(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<&str> = digits
        .as_bytes()
        .rchunks(3)
        .rev()
        .filter_map(|group| std::str::from_utf8(group).ok())
        .collect();
    groups.join(" ")
}

fn show(amount: u64, units: &[(&str, u64)]) -> String {
    let unit = units.iter().find(|(_, factor)| amount >= *factor && amount.is_multiple_of(*factor));
    unit.map_or_else(|| amount.to_string(), |(name, factor)| format!("{} {name}", amount / factor))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_command_is_shown_with_the_quotes_that_it_needs() {
        let command = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
            show_command("/bin/git", &words)
        };
        assert_eq!(command(&["log", "-n1", "a=b"]), "/bin/git log -n1 a=b");
        assert_eq!(
            command(&["two words", "", "*", "it's"]),
            r"/bin/git 'two words' '' '*' 'it'\''s'"
        );
        assert_eq!(read_command("git 'open"), None);
        assert_eq!(read_command("  "), None);
    }

    proptest! {
        #[test]
        fn a_shown_command_is_read_as_it_was(
            program in "[a-z/ ']{1,8}",
            arguments in prop::collection::vec(r"[-a-z *'\\é]{0,8}", 0..5),
        ) {
            let command = show_command(&program, &arguments);
            prop_assert_eq!(read_command(&command), Some((program, arguments)));
        }
    }

    /// B13: six families of such characters passed an earlier list.
    #[test]
    fn characters_that_a_reader_cannot_see_or_know_are_deceptive() {
        let deceptive = [
            '\u{0}',
            '\u{1b}',
            '\u{7f}',
            '\u{9b}',
            '\u{ad}',
            '\u{34f}',
            '\u{61c}',
            '\u{115f}',
            '\u{17b4}',
            '\u{180b}',
            '\u{180d}',
            '\u{180f}',
            '\u{200b}',
            '\u{200d}',
            '\u{2028}',
            '\u{202e}',
            '\u{2066}',
            '\u{2800}',
            '\u{3164}',
            '\u{fe00}',
            '\u{fe0f}',
            '\u{feff}',
            '\u{ffa0}',
            '\u{fff0}',
            '\u{fff8}',
            '\u{fff9}',
            '\u{e000}',
            '\u{13430}',
            '\u{1bca0}',
            '\u{1d173}',
            '\u{1d17a}',
            '\u{e0001}',
            '\u{e0041}',
            '\u{e0100}',
            '\u{f0000}',
            '\u{10ffff}',
            '\u{378}',
        ];
        for c in deceptive {
            assert!(is_deceptive(c), "{}", c.escape_unicode());
        }
        for c in " aZ09~\u{a0}éß\u{301}漢字한글привет\u{5d0}\u{627}क€→│🎉❤\u{fffd}\u{3000}".chars()
        {
            assert!(!is_deceptive(c), "{}", c.escape_unicode());
        }
    }

    #[test]
    fn a_character_is_part_of_a_picture_behind_one_alone() {
        for (before, c, expected) in [
            ('\u{1f469}', '\u{200d}', true),
            ('\u{2764}', '\u{fe0f}', true),
            ('\u{fe0f}', '\u{200d}', true),
            ('a', '\u{fe0f}', false),
            ('1', '\u{fe0f}', false),
            ('\u{fe0f}', '\u{fe0f}', false),
            ('\u{2764}', '\u{fe00}', false),
            ('क', '\u{200d}', false),
        ] {
            assert_eq!(
                is_emoji_joiner(Some(before), c),
                expected,
                "{} {}",
                before.escape_unicode(),
                c.escape_unicode()
            );
        }
        assert!(!is_emoji_joiner(None, '\u{200d}'));
    }
}
