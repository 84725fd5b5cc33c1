//! Arguments as a shell takes them, for commands that the program suggests.

use std::path::Path;

use conclave_core::types::text::is_deceptive;

/// The default config.
pub(crate) const CONFIG: &str = "conclave.toml";

/// The argument quoted for a shell. Characters that could steer a terminal are written as escapes
/// in `$'…'`, which bash, zsh and ksh read as the characters themselves.
pub(crate) fn shell(argument: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@=,+".contains(c);
    let is_shown = |c: char| !is_deceptive(c);
    if !argument.is_empty() && argument.chars().all(is_plain) {
        argument.to_owned()
    } else if argument.chars().all(is_shown) {
        format!("'{}'", argument.replace('\'', r"'\''"))
    } else {
        let quoted = argument.chars().map(|c| match c {
            '\\' | '\'' => format!("\\{c}"),
            c if is_shown(c) => c.to_string(),
            // Bytes in octal: `\U` needs a UTF-8 locale, and bash 3.2 has none. Three digits, since a
            // shell reads up to three.
            c => c.encode_utf8(&mut [0; 4]).bytes().map(|byte| format!("\\{byte:03o}")).collect(),
        });
        format!("$'{}'", quoted.collect::<String>())
    }
}

/// ` --file FILE`; empty for the default config.
pub(crate) fn file_option(file: &Path) -> String {
    if file == Path::new(CONFIG) {
        String::new()
    } else {
        format!(" --file {}", shell(&file.display().to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::shell;

    #[test]
    fn arguments_are_quoted_without_characters_that_steer_a_terminal() {
        for (argument, quoted) in [
            ("a/b.toml", "a/b.toml"),
            ("", "''"),
            ("it's $HOME", r"'it'\''s $HOME'"),
            ("Häuser", "'Häuser'"),
            ("dir = \"…\"", "'dir = \"…\"'"),
            ("a\n\u{1b}[2J'\\b", r"$'a\012\033[2J\'\\b'"),
            ("a\u{202e}b", r"$'a\342\200\256b'"),
        ] {
            assert_eq!(shell(argument), quoted);
        }
    }
}
