//! The files that are searched: text, not hidden, not too large. It knows the granted folders; it does not look for words.

use conclave_sdk::files::{self, FileError, Found, Kind};
use conclave_sdk::{Result, progress};
use serde::Serialize;

/// A larger file is data more often than text.
const MOST_BYTES_OF_A_FILE: u64 = 1024 * 1024;
/// All files together: what a call can read and cut in a few tenths of a second.
const MOST_BYTES: u64 = 4 * 1024 * 1024;
const MOST_FILES: usize = 2_000;

/// A file's whole text.
pub(crate) struct Text {
    pub(crate) path: String,
    pub(crate) text: String,
}

/// What could be read within the bounds.
pub(crate) struct Texts {
    pub(crate) files: Vec<Text>,
    pub(crate) left_out: usize,
}

/// A file as `list` shows it.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct Listing {
    pub(crate) path: String,
    pub(crate) bytes: u64,
}

/// Every file that is not hidden, in the order of the paths.
pub(crate) fn listings() -> Result<Vec<Listing>> {
    let roots = files::roots();
    if roots.is_empty() {
        // Asking lets the host refuse, and so tell the operator what to grant.
        files::list("/")?;
    }
    let mut listings = Vec::new();
    for root in roots {
        let mut walk = files::walk(&root.path);
        while let Some(found) = walk.next() {
            let Found { path, entry } = found?;
            if entry.name.starts_with('.') {
                walk.skip_folder();
            } else if entry.kind == Kind::File {
                listings.push(Listing { path, bytes: entry.length });
            }
        }
    }
    Ok(listings)
}

/// The texts among them.
pub(crate) fn texts() -> Result<Texts> {
    let listings = listings()?;
    let total = listings.len() as u64;
    let mut texts = Texts { files: Vec::new(), left_out: 0 };
    let mut bytes = 0;
    for (listing, done) in listings.into_iter().zip(0..) {
        if listing.bytes > MOST_BYTES_OF_A_FILE || bytes + listing.bytes > MOST_BYTES || texts.files.len() == MOST_FILES {
            texts.left_out += 1;
            continue;
        }
        match files::read(&listing.path) {
            Ok(content) => {
                bytes += content.len() as u64;
                texts.files.extend(text(content).map(|text| Text { path: listing.path, text }));
            }
            Err(FileError::QuotaExceeded(_)) => texts.left_out += 1,
            // It was there when the folder was listed; somebody else works in it.
            Err(FileError::NotFound) => {}
            Err(error) => return Err(error.into()),
        }
        if done % 100 == 99 {
            progress::report(done + 1, total, "reading");
        }
    }
    Ok(texts)
}

/// None for what is no text: a zero byte never is.
fn text(content: Vec<u8>) -> Option<String> {
    if content.contains(&0) {
        return None;
    }
    String::from_utf8(content).ok()
}

#[cfg(test)]
mod tests {
    use super::text;

    #[test]
    fn binary_files_are_no_text() {
        assert_eq!(text(b"lit in 1844".to_vec()).as_deref(), Some("lit in 1844"));
        assert_eq!(text(b"\x7fELF\0\0".to_vec()), None);
        assert_eq!(text(vec![0xff, 0xfe]), None);
    }
}
