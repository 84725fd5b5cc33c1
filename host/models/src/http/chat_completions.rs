//! Chat Completions: the form of its requests and replies. Does no I/O.

mod request;
mod wire;

pub(crate) use self::request::CompletionsBody;
pub(crate) use self::wire::{
    BoundedCalls, CALLS_MAX, CallPiece, Chunk, Content, FromItems, FunctionPiece, Items,
    ModelNames, TokenDetails, Tokens, WireChoice, WireText, index, is_something, json_text, object,
    some_amount, some_text, text,
};
use super::reply::Decoded;

/// Returns the meaning of a chunk, or of a whole reply.
///
/// # Errors
/// If it is not JSON of the API.
pub(crate) fn decode(json: &[u8]) -> Result<Decoded, serde_json::Error> {
    let chunk: Chunk = serde_json::from_slice(json)?;
    Ok(if chunk.is_error || chunk.object == "error" {
        Decoded::Error
    } else if chunk.choices.any || chunk.usage.is_some() {
        Decoded::Chunk(Box::new(chunk))
    } else {
        Decoded::Nothing
    })
}
