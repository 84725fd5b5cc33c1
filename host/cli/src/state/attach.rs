//! Attachments of a message: images and texts, stored in the host's blobs. A file's type is
//! detected from its bytes, not from its name.

use std::io::Read;
use std::path::{Path, PathBuf};

use conclave_core::types::message::Blob;
use conclave_core::types::text::show_size;
use conclave_runtime::blobs::Blobs;

use crate::program::error::CliError;
use crate::ui::show::show_path;

/// Bytes of one file: more than models accept, and too few to fill the memory.
const BYTES: u64 = 20 << 20;

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
    let media_type =
        media_type(&bytes).ok_or_else(|| failed("it is neither an image nor text".to_owned()))?;
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
    blobs.keep(&bytes, media_type, name.as_deref()).map_err(|error| failed(error.to_string()))
}

/// Stores the files of a command line.
///
/// # Errors
/// If a file cannot be attached; names the first one and the reason.
pub(crate) fn all(blobs: &dyn Blobs, paths: &[PathBuf]) -> Result<Vec<Blob>, CliError> {
    paths.iter().map(|path| attach(blobs, path).map_err(CliError::usage)).collect()
}

/// The media type, or `None` if no model reads such a file.
fn media_type(bytes: &[u8]) -> Option<&'static str> {
    let image = IMAGES
        .iter()
        .find(|(beginning, _)| bytes.starts_with(beginning))
        .map(|(_, media_type)| *media_type);
    let is_webp = bytes.starts_with(b"RIFF") && bytes.get(8..12) == Some(b"WEBP");
    let is_text = || std::str::from_utf8(bytes).is_ok_and(|text| !text.contains('\0'));
    image.or(is_webp.then_some("image/webp")).or_else(|| is_text().then_some("text/plain"))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use conclave_runtime::blobs::MemoryBlobs;

    use super::{attach, media_type};

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
