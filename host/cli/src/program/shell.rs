//! Arguments as a shell takes them, for commands that the program suggests.

use std::path::Path;

/// The default config.
pub(crate) const CONFIG: &str = "conclave.toml";

/// An argument as a shell takes it.
pub(crate) fn shell(argument: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@=,+".contains(c);
    if !argument.is_empty() && argument.chars().all(is_plain) {
        argument.to_owned()
    } else {
        format!("'{}'", argument.replace('\'', r"'\''"))
    }
}

/// ` --file FILE`, where it is not the one that is meant anyway.
pub(crate) fn file_option(file: &Path) -> String {
    if file == Path::new(CONFIG) {
        String::new()
    } else {
        format!(" --file {}", shell(&file.display().to_string()))
    }
}
