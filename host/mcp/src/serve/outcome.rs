//! Conversion of a tool's or task's outcome to an MCP result. A refusal becomes an error result, so
//! that the client's model reads it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use conclave_core::types::outcome::Outcome;
use conclave_core::types::tool::{ToolError, ToolOutcome};
use conclave_runtime::blobs::Blobs;
use conclave_runtime::message::Blob;
use rmcp::model::{CallToolResult, ContentBlock, ResourceContents};
use serde_json::Value;

/// Maximum bytes of an attachment in a result.
const ATTACHMENT: u64 = 4 << 20;

pub(super) fn of_tool(
    tool: &str,
    answer: Result<ToolOutcome, ToolError>,
    blobs: &dyn Blobs,
) -> CallToolResult {
    let outcome = match answer {
        Ok(outcome) => outcome,
        Err(error) => return failed(error.to_text(tool)),
    };
    let mut result = result(outcome.content, outcome.value, &outcome.attachments, blobs);
    for call in &outcome.follow_up_calls {
        result.content.push(ContentBlock::text(format!(
            "[It wants {} to be called next, which is not done here.]",
            call.name
        )));
    }
    result
}

pub(super) fn of_run(outcome: &Outcome, blobs: &dyn Blobs) -> CallToolResult {
    if outcome.status.is_success() && outcome.content.is_some() {
        return result(outcome.content.clone(), outcome.value.clone(), &[], blobs);
    }
    let text = outcome.content.as_ref().map(|text| format!("\n{text}")).unwrap_or_default();
    failed(format!("{}: {}{text}", outcome.status.as_str(), outcome.reason))
}

pub(super) fn failed(text: String) -> CallToolResult {
    CallToolResult::error(vec![ContentBlock::text(text)])
}

fn result(
    content: Option<String>,
    value: Option<Value>,
    attachments: &[Blob],
    blobs: &dyn Blobs,
) -> CallToolResult {
    let value = value.filter(|value| !value.is_null());
    // For clients that ignore structured values, the text contains them.
    let text = content.or_else(|| value.as_ref().map(Value::to_string)).unwrap_or_default();
    let mut blocks = vec![ContentBlock::text(text)];
    blocks.extend(attachments.iter().map(|blob| attached(blob, blobs)));
    let mut result = CallToolResult::success(blocks);
    // Older revisions only accept objects.
    result.structured_content = value.filter(Value::is_object);
    result
}

fn attached(blob: &Blob, blobs: &dyn Blobs) -> ContentBlock {
    let is_sent = blob.length <= ATTACHMENT;
    let bytes = if is_sent { blobs.read(&blob.sha256) } else { Ok(None) };
    let bytes = match bytes {
        Ok(bytes) => bytes,
        // The cause is the operator's, and may name a server.
        Err(_) => {
            return ContentBlock::text(format!(
                "[an attachment that cannot be read now: {}, {} bytes]",
                blob.media_type, blob.length
            ));
        }
    };
    match bytes {
        Some(bytes) if blob.media_type.starts_with("image/") => {
            ContentBlock::image(STANDARD.encode(&*bytes), blob.media_type.clone())
        }
        Some(bytes) if blob.media_type.starts_with("audio/") => {
            ContentBlock::audio(STANDARD.encode(&*bytes), blob.media_type.clone())
        }
        Some(bytes) => {
            let name = blob.name.as_deref().unwrap_or(&blob.sha256);
            let uri = format!("conclave:attachment/{}", percent_encoded(name));
            let is_text = blob.media_type.starts_with("text/");
            let resource = match std::str::from_utf8(&bytes).ok().filter(|_| is_text) {
                Some(text) => ResourceContents::text(text, uri),
                None => ResourceContents::blob(STANDARD.encode(&*bytes), uri),
            };
            ContentBlock::resource(resource.with_mime_type(blob.media_type.clone()))
        }
        None => ContentBlock::text(format!(
            "[an attachment that is not sent: {}, {} bytes]",
            blob.media_type, blob.length
        )),
    }
}

/// A name as a part of an address.
fn percent_encoded(name: &str) -> String {
    let mut encoded = String::with_capacity(name.len());
    for byte in name.bytes() {
        match byte {
            byte if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) => {
                encoded.push(char::from(byte));
            }
            byte => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}
