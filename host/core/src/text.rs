//! Text that a stranger wrote, made safe to show. One list of what can deceive a reader, for config problems, logs and the terminal.

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
