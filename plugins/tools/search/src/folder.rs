//! The searched files: text, not hidden, not too large. This module reads the granted folders, and
//! searches for nothing.

use conclave_prose::{LARGEST_TEXT, one_line};
use conclave_sdk::files::{self, EntryKind, FileErrorKind, Found};
use conclave_sdk::{Error, Result, progress};
use serde::Serialize;

/// Bytes per call to the host.
const PAGE: u32 = 128 * 1024;
/// Bytes of all files together that a call can read and split in a few tenths of a second.
const MOST_BYTES: u64 = 4 * 1024 * 1024;
const MOST_FILES: usize = 2_000;

/// A file's whole text.
pub(crate) struct Text {
    pub(crate) path: String,
    pub(crate) text: String,
}

/// The texts within the bounds.
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

/// Returns every file that is not hidden, in the order of the paths.
pub(crate) fn listings() -> Result<Vec<Listing>> {
    let roots = files::roots();
    if roots.is_empty() {
        // The call lets the host refuse, and so report the missing grant to the operator.
        files::list("/")?;
    }
    let mut listings = Vec::new();
    for root in roots {
        let mut walk = files::walk(&root.path);
        while let Some(found) = walk.next() {
            let Found { path, entry } = found?;
            if entry.name.starts_with('.') {
                walk.skip_folder();
            } else if entry.kind == EntryKind::File {
                listings.push(Listing { path, bytes: entry.length });
            }
        }
    }
    Ok(listings)
}

/// Returns the text files among them.
pub(crate) fn texts() -> Result<Texts> {
    let listings = listings()?;
    let total = listings.len() as u64;
    let mut texts = Texts { files: Vec::new(), left_out: 0 };
    let mut bytes = 0;
    for (listing, done) in listings.into_iter().zip(0..) {
        if listing.bytes > LARGEST_TEXT
            || bytes + listing.bytes > MOST_BYTES
            || texts.files.len() == MOST_FILES
        {
            texts.left_out += 1;
            continue;
        }
        match within_the_cap(|offset| files::read_at(&listing.path, offset, PAGE)) {
            Ok(None) => texts.left_out += 1,
            Ok(Some(content)) => {
                bytes += content.len() as u64;
                texts.files.extend(text(content).map(|text| Text { path: listing.path, text }));
            }
            Err(error) => match error.kind {
                FileErrorKind::QuotaExceeded(_) => texts.left_out += 1,
                // The file was removed after the folder was listed.
                FileErrorKind::NotFound => {}
                _ => return Err(error.into()),
            },
        }
        if done % 100 == 99 {
            progress::report(done + 1, total, "reading");
        }
    }
    Ok(texts)
}

/// Returns one file's text. A file too large to search is too large to read.
pub(crate) fn read(path: &str) -> Result<String> {
    match within_the_cap(|offset| files::read_at(path, offset, PAGE))? {
        Some(content) => String::from_utf8(content)
            .map_err(|_| Error::other(format!("{} is not text in UTF-8", one_line(path)))),
        None => Err(too_large(path)),
    }
}

fn too_large(path: &str) -> Error {
    let mib = LARGEST_TEXT / (1024 * 1024);
    Error::invalid_arguments(format!(
        "path: {} is larger than {mib} MiB, and such files are not read",
        one_line(path)
    ))
}

/// Returns the whole content, read page by page because its length is unknown. `None` as soon as it
/// exceeds the cap.
fn within_the_cap<E>(read_at: impl Fn(u64) -> Result<Vec<u8>, E>) -> Result<Option<Vec<u8>>, E> {
    let mut content = Vec::new();
    while content.len() as u64 <= LARGEST_TEXT {
        let page = read_at(content.len() as u64)?;
        if page.is_empty() {
            return Ok(Some(content));
        }
        content.extend(page);
    }
    Ok(None)
}

/// `None` for binary content: text never contains a zero byte.
fn text(content: Vec<u8>) -> Option<String> {
    if content.contains(&0) {
        return None;
    }
    String::from_utf8(content).ok()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::convert::Infallible;

    use super::{Error, LARGEST_TEXT, PAGE, text, too_large, within_the_cap};

    /// What reading a file of that length gives, and how many bytes were read for it.
    fn reading(length: u64) -> (Option<usize>, u64) {
        let read = Cell::new(0);
        let content = within_the_cap(|offset| {
            let page = vec![b'x'; (length - offset).min(PAGE.into()) as usize];
            read.set(read.get() + page.len() as u64);
            Ok::<_, Infallible>(page)
        });
        (content.unwrap().map(|content| content.len()), read.get())
    }

    #[test]
    fn a_file_is_read_up_to_the_cap() {
        assert_eq!(reading(0).0, Some(0));
        assert_eq!(reading(LARGEST_TEXT).0, Some(LARGEST_TEXT as usize));
        assert_eq!(reading(LARGEST_TEXT + 1).0, None);
        let (content, read) = reading(30 * LARGEST_TEXT);
        assert!(content.is_none() && read <= LARGEST_TEXT + u64::from(PAGE), "{read}");
    }

    #[test]
    fn a_large_file_is_the_wrong_argument() {
        let expected = "path: /folder/a\\nb.csv is larger than 1 MiB, and such files are not read";
        assert_eq!(too_large("/folder/a\nb.csv"), Error::InvalidArguments(expected.into()));
    }

    #[test]
    fn binary_files_are_no_text() {
        assert_eq!(text(b"lit in 1844".to_vec()).as_deref(), Some("lit in 1844"));
        assert_eq!(text(b"\x7fELF\0\0".to_vec()), None);
        assert_eq!(text(vec![0xff, 0xfe]), None);
    }
}
