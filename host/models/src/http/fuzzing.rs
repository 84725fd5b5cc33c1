//! Drives a [`ReplyReader`] like the exchange over HTTP does.

use conclave_core::config::ThinkingMarks;
use conclave_core::types::completion::{Completion, ModelApi};

use super::names::ToolNames;
use super::quote::Quoter;
use super::reply::{ReplyError, ReplyReader};
use super::thinking::ThinkingFormat;
use crate::{ApiKey, TextSink};

pub(crate) fn read<'a>(
    pieces: impl IntoIterator<Item = &'a [u8]>,
    api: ModelApi,
    limit: u64,
    key: ApiKey,
    sink: &dyn TextSink,
) -> (Result<Completion, &'static str>, String) {
    let quoter = Quoter::new([key]);
    let marks = ThinkingMarks::default();
    let mut reply = ReplyReader::new(api, limit, quoter.clone(), ThinkingFormat::new(Some(marks)));
    for piece in pieces {
        if let Err(error) = reply.handle_bytes(piece, sink) {
            return failed(&error, &quoter);
        }
        if reply.is_done() {
            break;
        }
    }
    match reply.finish(&ToolNames::default(), "model", sink) {
        Ok(completion) => (Ok(completion), String::new()),
        Err(error) => failed(&error, &quoter),
    }
}

/// Returns the name of the error, and the server's text as the operator sees it.
fn failed(error: &ReplyError, quoter: &Quoter) -> (Result<Completion, &'static str>, String) {
    match error {
        ReplyError::TooLong => (Err("too long"), String::new()),
        ReplyError::NotUnderstood { beginning } => (Err("not understood"), quoter.quote(beginning)),
        ReplyError::Server(error) => (Err("server"), quoter.quote(&error.message)),
        ReplyError::BrokenOff => (Err("broken off"), String::new()),
    }
}
