//! Parses the body of a reply incrementally. The first byte decides between one JSON value and an
//! event stream, because servers ignore the requested form and mislabel it. Does no I/O, and
//! accepts any chunk boundaries.

use conclave_core::types::completion::{Completion, ModelApi};

use super::answer::{AnswerTooLong, ServerReply};
use super::chat_completions::{self, Chunk};
use super::messages_api::EventReader;
use super::names::ToolNames;
use super::quote::Quoter;
use super::repair::repaired;
use super::responses_api::ResponseReader;
use super::server_error::ServerError;
use super::thinking::ThinkingFormat;
use crate::TextSink;
use crate::event_stream::{EventStream, StreamEvent};

/// Maximum ratio of stream bytes to text bytes: a stream wraps every few letters in some hundred
/// bytes of JSON.
const WRAPPING: u64 = 64;

/// Some servers begin a body with it, although JSON and event streams are UTF-8.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// Bytes shown of a body that is no answer.
const BEGINNING: usize = 400;

/// Why a body is no answer.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub(crate) enum ReplyError {
    #[error("the answer is larger than allowed")]
    TooLong,
    #[error("the answer is not one of the API")]
    NotUnderstood { beginning: String },
    #[error("the server reports an error in its answer")]
    Server(ServerError),
    #[error("the answer broke off")]
    BrokenOff,
}

impl From<AnswerTooLong> for ReplyError {
    fn from(_: AnswerTooLong) -> Self {
        Self::TooLong
    }
}

/// The meaning of one JSON value of a reply.
#[derive(Debug)]
pub(crate) enum Decoded {
    Chunk(Box<Chunk>),
    /// A chunk after which nothing more follows.
    Last(Box<Chunk>),
    /// Nothing more follows.
    End,
    /// The value is an error.
    Error,
    /// Other data between the chunks, which some servers send.
    Nothing,
}

/// Reads the JSON values of one API.
#[derive(Debug)]
enum Decoder {
    ChatCompletions,
    Responses(ResponseReader),
    Messages(EventReader),
}

impl Decoder {
    fn new(api: ModelApi) -> Self {
        match api {
            ModelApi::ChatCompletions => Self::ChatCompletions,
            ModelApi::Responses => Self::Responses(ResponseReader::default()),
            ModelApi::Messages => Self::Messages(EventReader::default()),
        }
    }

    fn decode(&mut self, json: &[u8]) -> Result<Decoded, serde_json::Error> {
        match self {
            Self::ChatCompletions => chat_completions::decode(json),
            Self::Responses(response) => response.decode(json),
            Self::Messages(events) => events.decode(json),
        }
    }
}

#[derive(Debug)]
enum Form {
    Unknown,
    Whole(Vec<u8>),
    Events(EventStream),
}

/// A reply that is being read.
#[derive(Debug)]
pub(crate) struct ReplyReader {
    quoter: Quoter,
    limit: u64,
    received: u64,
    form: Form,
    decoder: Decoder,
    beginning: Vec<u8>,
    /// A byte order mark, or its first bytes.
    partial_mark: Vec<u8>,
    answer: ServerReply,
    has_chunks: bool,
    is_done: bool,
}

impl ReplyReader {
    /// Returns a reader with a limit in bytes, which masks the quoter's secrets.
    pub(crate) fn new(api: ModelApi, limit: u64, quoter: Quoter, thinking: ThinkingFormat) -> Self {
        let answer = ServerReply::new(limit, quoter.clone(), thinking);
        Self {
            quoter,
            limit,
            received: 0,
            form: Form::Unknown,
            decoder: Decoder::new(api),
            beginning: Vec::new(),
            partial_mark: Vec::new(),
            answer,
            has_chunks: false,
            is_done: false,
        }
    }

    /// Returns the reader of an answer that may have so many tokens.
    pub(crate) fn with_max_output(mut self, max_output: Option<u64>) -> Self {
        self.answer.set_max_output(max_output);
        self
    }

    /// Whether nothing more needs to be read.
    pub(crate) fn is_done(&self) -> bool {
        self.is_done
    }

    /// Whether the reply would be complete if it ended here.
    pub(crate) fn is_finished(&self) -> bool {
        self.answer.is_finished()
    }

    /// Parses further bytes; new text goes to the sink.
    ///
    /// # Errors
    /// If the reply is too long or invalid.
    pub(crate) fn handle_bytes(
        &mut self,
        bytes: &[u8],
        sink: &dyn TextSink,
    ) -> Result<(), ReplyError> {
        self.received = self.received.saturating_add(bytes.len() as u64);
        // Kept for the error message, with enough bytes to mask a secret at its end.
        let length = bytes.len().min(self.quoter.window(BEGINNING) - self.beginning.len());
        self.beginning.extend_from_slice(&bytes[..length]);
        let mut bytes = bytes;
        let start;
        if matches!(self.form, Form::Unknown) {
            let partial_mark = std::mem::take(&mut self.partial_mark);
            start = [&partial_mark[..], bytes].concat();
            // Servers send white space to keep the connection alive while the model computes.
            bytes = start.trim_ascii_start();
            if BYTE_ORDER_MARK.starts_with(bytes) {
                self.partial_mark = bytes.to_vec();
                return Ok(());
            }
            bytes = bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes).trim_ascii_start();
            self.form = match bytes.first() {
                None => return Ok(()),
                Some(b'{' | b'[' | b'"' | b'<') => Form::Whole(Vec::new()),
                Some(_) => Form::Events(EventStream::new(
                    usize::try_from(self.limit).unwrap_or(usize::MAX),
                )),
            };
        }
        match &mut self.form {
            Form::Unknown => Ok(()),
            Form::Whole(_) if self.received > self.limit => Err(ReplyError::TooLong),
            Form::Whole(body) => {
                body.extend_from_slice(bytes);
                Ok(())
            }
            Form::Events(_) if self.received > self.limit.saturating_mul(WRAPPING) => {
                Err(ReplyError::TooLong)
            }
            Form::Events(stream) => {
                let mut events = Vec::new();
                stream.handle_bytes(bytes, &mut events).map_err(|_| ReplyError::TooLong)?;
                events.into_iter().try_for_each(|event| self.handle_event(&event, sink))
            }
        }
    }

    /// Ends the reply, because the body has ended or the rest is not needed.
    ///
    /// # Errors
    /// If the reply is invalid or incomplete.
    pub(crate) fn finish(
        mut self,
        names: &ToolNames<'_>,
        model: &str,
        sink: &dyn TextSink,
    ) -> Result<Completion, ReplyError> {
        match std::mem::replace(&mut self.form, Form::Unknown) {
            Form::Unknown => return Err(self.not_understood()),
            Form::Whole(body) => {
                self.handle_json(&body, sink)?;
                if !self.has_chunks {
                    return Err(self.not_understood());
                }
            }
            Form::Events(stream) => {
                if let Some(event) = stream.finish()
                    && !self.is_done
                {
                    // A partial event means that the stream broke off, which is reported below.
                    self.handle_event(&event, sink).or_else(|error| match error {
                        ReplyError::NotUnderstood { .. } if self.has_chunks => Ok(()),
                        error => Err(error),
                    })?;
                }
                if !self.has_chunks {
                    return Err(self.not_understood());
                }
                if !self.is_done && !self.answer.is_finished() {
                    return Err(ReplyError::BrokenOff);
                }
            }
        }
        if self.answer.is_given_up() {
            return Err(ReplyError::BrokenOff);
        }
        Ok(self.answer.finish(names, model, sink))
    }

    fn handle_event(&mut self, event: &StreamEvent, sink: &dyn TextSink) -> Result<(), ReplyError> {
        match event.data.trim() {
            _ if self.is_done => Ok(()),
            "[DONE]" => {
                self.is_done = true;
                Ok(())
            }
            "" => Ok(()),
            data if event.kind == "error" => {
                Err(ReplyError::Server(ServerError::read(data.as_bytes(), &self.quoter)))
            }
            data => self.handle_json(data.as_bytes(), sink),
        }
    }

    fn handle_json(&mut self, json: &[u8], sink: &dyn TextSink) -> Result<(), ReplyError> {
        let decoded = self.decoder.decode(json).or_else(|error| {
            let text = std::str::from_utf8(json).ok();
            self.decoder.decode(text.and_then(repaired).ok_or(error)?.as_bytes())
        });
        match decoded.map_err(|_| self.not_understood())? {
            Decoded::Chunk(chunk) => {
                self.has_chunks = true;
                Ok(self.answer.handle_chunk(*chunk, sink)?)
            }
            Decoded::Last(chunk) => {
                self.has_chunks = true;
                self.is_done = true;
                Ok(self.answer.handle_chunk(*chunk, sink)?)
            }
            Decoded::End => {
                self.is_done = true;
                Ok(())
            }
            Decoded::Error => Err(ReplyError::Server(ServerError::read(json, &self.quoter))),
            // If there is nothing else, `finish` reports it.
            Decoded::Nothing => Ok(()),
        }
    }

    fn not_understood(&self) -> ReplyError {
        ReplyError::NotUnderstood { beginning: self.quoter.beginning(&self.beginning, BEGINNING) }
    }
}

#[cfg(test)]
mod tests;
