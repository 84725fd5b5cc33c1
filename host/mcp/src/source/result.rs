//! Conversion of a server's result to a tool outcome: text, value, and images as attachments. The
//! caller enforces the plugin's size limits.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use conclave_core::types::tool::ToolOutcome;
use conclave_runtime::blobs::Blobs;
use conclave_runtime::message::Blob;
use conclave_runtime::native::Failure;
use rmcp::model::{CallToolResult, ContentBlock, ResourceContents};

/// Converts the result of a call.
///
/// # Errors
/// The error that the tool reported.
pub(super) fn outcome(result: CallToolResult, blobs: &dyn Blobs) -> Result<ToolOutcome, Failure> {
    let mut attachments = Vec::new();
    let parts: Vec<String> =
        result.content.into_iter().map(|block| part(block, blobs, &mut attachments)).collect();
    let text = parts.join("\n");
    if result.is_error == Some(true) {
        return Err(Failure::new(if text.trim().is_empty() {
            "it gave no reason".to_owned()
        } else {
            text
        }));
    }
    let value = result.structured_content.filter(|value| !value.is_null());
    // A value without text is shown as JSON.
    let content = (!parts.is_empty() || value.is_none()).then_some(text);
    Ok(ToolOutcome { content, value, attachments, follow_up_calls: Vec::new() })
}

fn part(block: ContentBlock, blobs: &dyn Blobs, attachments: &mut Vec<Blob>) -> String {
    match block {
        ContentBlock::Text(text) => text.text,
        ContentBlock::Image(image) => {
            store_bytes(&image.data, &image.mime_type, blobs, attachments)
        }
        ContentBlock::Audio(audio) => {
            store_bytes(&audio.data, &audio.mime_type, blobs, attachments)
        }
        ContentBlock::ResourceLink(link) => format!("[resource {}: {}]", link.name, link.uri),
        ContentBlock::Resource(embedded) => match embedded.resource {
            ResourceContents::TextResourceContents { text, .. } => text,
            ResourceContents::BlobResourceContents { blob, mime_type, .. } => store_bytes(
                &blob,
                mime_type.as_deref().unwrap_or("application/octet-stream"),
                blobs,
                attachments,
            ),
            _ => "[a resource of an unknown kind]".to_owned(),
        },
        _ => "[something of an unknown kind]".to_owned(),
    }
}

/// Attaches bytes, and returns the text that stands for them.
fn store_bytes(
    data: &str,
    media_type: &str,
    blobs: &dyn Blobs,
    attachments: &mut Vec<Blob>,
) -> String {
    let Ok(bytes) = STANDARD.decode(data) else { return "[bytes that are no base64]".to_owned() };
    match blobs.keep(&bytes, media_type, None) {
        Ok(blob) => {
            let mark = format!("[{}, {} bytes]", blob.media_type, blob.length);
            attachments.push(blob);
            mark
        }
        Err(error) => format!("[{} bytes that could not be kept: {error}]", bytes.len()),
    }
}

#[cfg(test)]
mod tests {
    use conclave_runtime::blobs::MemoryBlobs;
    use serde_json::json;

    use super::*;

    fn of(result: serde_json::Value) -> Result<ToolOutcome, Failure> {
        outcome(serde_json::from_value(result).unwrap(), &MemoryBlobs::default())
    }

    #[test]
    fn texts_values_and_pictures_are_taken() {
        let image = json!({ "type": "image", "data": "AAEC", "mimeType": "image/png" });
        let text = json!({ "type": "text", "text": "one" });
        let all = of(json!({ "content": [text, image], "structuredContent": { "n": 1 } })).unwrap();
        assert_eq!(
            (all.content.as_deref(), all.value),
            (Some("one\n[image/png, 3 bytes]"), Some(json!({ "n": 1 })))
        );
        assert_eq!((all.attachments.len(), all.attachments[0].length), (1, 3));
        assert_eq!(of(json!({ "content": [], "structuredContent": [1] })).unwrap().content, None);
        assert_eq!(of(json!({ "content": [] })).unwrap().content.as_deref(), Some(""));
        assert!(
            of(json!({ "content": [{ "type": "image", "data": "%", "mimeType": "x" }] }))
                .unwrap()
                .attachments
                .is_empty()
        );
    }

    #[test]
    fn an_error_is_one() {
        let failure =
            of(json!({ "content": [{ "type": "text", "text": "no such page" }], "isError": true }))
                .unwrap_err();
        assert!(format!("{failure:?}").contains("no such page"));
    }
}
