//! Text for people. One list of what can deceive a reader, for config problems, logs and the terminal; amounts with their units.

/// The character steers a terminal, hides itself or turns the reading direction, so that text with it can read as something else.
#[must_use]
pub fn is_deceptive(c: char) -> bool {
    c.is_control()
        || matches!(c,
            // Invisible: soft hyphen, joiners, fillers, byte-order mark, annotation marks
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180e}' | '\u{200b}'..='\u{200f}'
            | '\u{2060}'..='\u{206f}' | '\u{2800}' | '\u{3164}' | '\u{feff}' | '\u{ffa0}' | '\u{fff9}'..='\u{fffb}'
            // Line ends that are none to a reader of lines, and marks that turn the direction
            | '\u{2028}'..='\u{202e}')
        || ('\u{e0000}'..='\u{e0fff}').contains(&c)
}

/// The character joins the picture before it to the next one, as in many emoji: what joins nothing else deceives nobody.
#[must_use]
pub fn joins_pictures(before: Option<char>, c: char) -> bool {
    c == '\u{200d}' && before.is_some_and(|before| matches!(before, '\u{1f000}'..='\u{1faff}' | '\u{2600}'..='\u{27bf}' | '\u{fe0f}'))
}

/// A size as people write it, with the largest unit that divides it: `64 MiB`. A config reads it back.
#[must_use]
pub fn show_size(bytes: u64) -> String {
    show(bytes, &[("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)])
}

/// A duration as people write it, with the largest unit that divides it: `300 ms`. A config reads it back.
#[must_use]
pub fn show_duration(ms: u64) -> String {
    show(ms, &[("h", 3_600_000), ("min", 60_000), ("s", 1_000), ("ms", 1)])
}

/// A number in groups of three digits: `50 000`.
#[must_use]
pub fn show_number(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<&str> = digits.as_bytes().rchunks(3).rev().filter_map(|group| std::str::from_utf8(group).ok()).collect();
    groups.join(" ")
}

fn show(amount: u64, units: &[(&str, u64)]) -> String {
    let unit = units.iter().find(|(_, factor)| amount >= *factor && amount.is_multiple_of(*factor));
    unit.map_or_else(|| amount.to_string(), |(name, factor)| format!("{} {name}", amount / factor))
}
