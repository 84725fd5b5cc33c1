//! Attachments of a message: images and texts, stored in the host's blobs. A file's type is
//! detected from its bytes, not from its name.

use std::io::Read;
use std::path::{Path, PathBuf};

use conclave_core::types::message::Blob;
use conclave_core::types::text::show_size;
use conclave_runtime::blobs::Blobs;
use conclave_runtime::models::PROMPT_TEXT_MAX;

use crate::program::error::CliError;
use crate::ui::show::{ODD, show_path};
use crate::ui::stderr;

/// Bytes of one file: more than models accept, and too few to fill the memory.
const BYTES: u64 = 20 << 20;

/// The magic bytes of PDF.
const PDF: &[u8] = b"%PDF-";

/// The magic bytes of image formats, with their media types.
const IMAGES: [(&[u8], &str); 5] = [
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"II*\0", "image/tiff"),
    (b"BM", "image/bmp"),
];

/// Stores a file for a message.
///
/// # Errors
/// The reason, as text for the user.
pub(crate) fn attach(blobs: &dyn Blobs, path: &Path) -> Result<Blob, String> {
    let failed = |why: String| format!("{} cannot be attached: {why}", show_path(path));
    // Checked before the file is opened: opening a pipe blocks, and a device never ends.
    if std::fs::metadata(path).is_ok_and(|metadata| !metadata.is_file()) {
        return Err(failed("it is not a file".to_owned()));
    }
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(|error| failed(error.to_string()))?;
    file.take(BYTES + 1).read_to_end(&mut bytes).map_err(|error| failed(error.to_string()))?;
    if bytes.len() as u64 > BYTES {
        return Err(failed(format!("it is larger than {}", show_size(BYTES))));
    }
    let media_type = media_type(&bytes).ok_or_else(|| failed(unreadable(&bytes).to_owned()))?;
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
    blobs.keep(&bytes, media_type, name.as_deref()).map_err(|error| failed(error.to_string()))
}

/// Stores the files of a command line, and reports those that a model does not read.
///
/// # Errors
/// If a file cannot be attached; names the first one and the reason.
pub(crate) fn all(blobs: &dyn Blobs, paths: &[PathBuf]) -> Result<Vec<Blob>, CliError> {
    let attachments = paths.iter().map(|path| attach(blobs, path).map_err(CliError::usage));
    let attachments: Vec<Blob> = attachments.collect::<Result<_, _>>()?;
    for remark in attachments.iter().filter_map(remark) {
        stderr::styled(ODD, remark);
    }
    Ok(attachments)
}

/// Returns the remark about an attachment of which no model reads the content; `None` for others.
pub(crate) fn remark(blob: &Blob) -> Option<String> {
    let most = PROMPT_TEXT_MAX as u64;
    let is_long = blob.media_type.starts_with("text/") && blob.length > most;
    let name = show_path(blob.name.as_deref().unwrap_or("the text"));
    is_long.then(|| {
        format!(
            "{name} is longer than {}: a model reads its name and size only, not its text",
            show_size(most)
        )
    })
}

/// Returns why no model reads these bytes, and what to do.
fn unreadable(bytes: &[u8]) -> &'static str {
    if bytes.starts_with(PDF) {
        "PDF files are not read; attach its text, for example as `pdftotext` writes it, or its \
         pages as images"
    } else {
        "it is neither an image nor text in UTF-8"
    }
}

/// The media type, or `None` if no model reads such a file.
fn media_type(bytes: &[u8]) -> Option<&'static str> {
    let image = IMAGES
        .iter()
        .find(|(beginning, _)| bytes.starts_with(beginning))
        .map(|(_, media_type)| *media_type);
    let is_webp = bytes.starts_with(b"RIFF") && bytes.get(8..12) == Some(b"WEBP");
    let is_text = || {
        let is_utf8 = std::str::from_utf8(bytes).is_ok_and(|text| !text.contains('\0'));
        // A small PDF can be ASCII throughout, and says nothing to a model.
        is_utf8 && !bytes.starts_with(PDF)
    };
    image.or(is_webp.then_some("image/webp")).or_else(|| is_text().then_some("text/plain"))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use conclave_runtime::blobs::{Blobs as _, MemoryBlobs};
    use conclave_runtime::models::PROMPT_TEXT_MAX;

    use super::{attach, media_type, remark, unreadable};

    #[test]
    fn a_text_that_no_model_reads_is_reported() {
        let blobs = MemoryBlobs::default();
        let of = |bytes: &[u8], kind: &str| {
            let blob = blobs.keep(bytes, kind, Some("log.txt")).expect("it is kept");
            remark(&blob)
        };
        assert_eq!(of(&vec![b'a'; PROMPT_TEXT_MAX], "text/plain"), None);
        assert_eq!(of(&vec![b'a'; PROMPT_TEXT_MAX + 1], "image/png"), None);
        assert_eq!(
            of(&vec![b'a'; PROMPT_TEXT_MAX + 1], "text/plain").as_deref(),
            Some(
                "log.txt is longer than 64 KiB: a model reads its name and size only, not its text"
            )
        );
    }

    #[test]
    fn a_refused_file_is_refused_with_what_helps() {
        assert_eq!(media_type(b"%PDF-1.4\n1 0 obj\n"), None);
        assert!(unreadable(b"%PDF-1.4\n\xe2\xe3").contains("pdftotext"));
        // Text of another encoding is text to people.
        assert!(unreadable(b"caf\xe9").contains("UTF-8"));
    }

    #[test]
    fn the_media_type_is_detected_from_the_bytes() {
        assert_eq!(media_type(b"\x89PNG\r\n\x1a\n...."), Some("image/png"));
        assert_eq!(media_type(b"RIFF....WEBPVP8 "), Some("image/webp"));
        assert_eq!(media_type("Übersicht\n".as_bytes()), Some("text/plain"));
        assert_eq!(media_type(b"\x7fELF\x02\x01\0\0\xff"), None);
    }

    #[test]
    fn a_missing_attachment_is_named() {
        let why = attach(&MemoryBlobs::default(), Path::new("/no/such/file")).unwrap_err();
        assert!(why.starts_with("/no/such/file cannot be attached: "), "{why}");
        let why = attach(&MemoryBlobs::default(), Path::new("/dev/zero")).unwrap_err();
        assert_eq!(why, "/dev/zero cannot be attached: it is not a file");
    }
}
