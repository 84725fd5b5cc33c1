//! An incremental parser of server-sent events. It does no I/O, accepts any chunk boundaries and
//! does not interpret the events. Reconnecting is not supported, so `id` and `retry` are skipped.

/// A server-sent event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StreamEvent {
    /// The field `event`, usually empty.
    pub kind: String,
    /// The lines of the field `data`, joined by newlines. Invalid UTF-8 is replaced.
    pub data: String,
}

/// A line or an event exceeds the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an event of the stream is larger than {limit} bytes")]
pub(crate) struct EventTooLarge {
    pub limit: usize,
}

/// The state of the parser.
#[derive(Debug)]
pub(crate) struct EventStream {
    limit: usize,
    line: Vec<u8>,
    kind: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
    /// Whether the last byte was a carriage return, so that a line feed belongs to it.
    after_return: bool,
    is_first_line: bool,
}

impl EventStream {
    /// Returns a parser that buffers at most about `limit` bytes.
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            limit,
            line: Vec::new(),
            kind: Vec::new(),
            data: Vec::new(),
            has_data: false,
            after_return: false,
            is_first_line: true,
        }
    }

    /// Parses further bytes, and appends complete events to `events`.
    ///
    /// # Errors
    /// If an event is too large; the parser must not be used afterwards.
    pub(crate) fn handle_bytes(
        &mut self,
        bytes: &[u8],
        events: &mut Vec<StreamEvent>,
    ) -> Result<(), EventTooLarge> {
        let mut rest = bytes;
        while let Some(first) = rest.first() {
            if std::mem::take(&mut self.after_return) && *first == b'\n' {
                rest = &rest[1..];
                continue;
            }
            let Some(end) = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r')) else {
                return self.keep(rest);
            };
            self.keep(&rest[..end])?;
            self.after_return = rest[end] == b'\r';
            rest = &rest[end + 1..];
            events.extend(self.end_line());
        }
        Ok(())
    }

    /// Returns the event at the end of the stream, if any. The standard drops it, but some servers
    /// do not terminate their last event.
    pub(crate) fn finish(mut self) -> Option<StreamEvent> {
        if !self.line.is_empty() {
            self.end_line();
        }
        self.end_event()
    }

    fn keep(&mut self, bytes: &[u8]) -> Result<(), EventTooLarge> {
        if self.line.len() + self.kind.len() + self.data.len() + bytes.len() > self.limit {
            return Err(EventTooLarge { limit: self.limit });
        }
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    fn end_line(&mut self) -> Option<StreamEvent> {
        let mut line = std::mem::take(&mut self.line);
        let event = self.read_line(&line);
        // Reuses the buffer, for one allocation per stream instead of one per line.
        line.clear();
        self.line = line;
        event
    }

    fn read_line(&mut self, line: &[u8]) -> Option<StreamEvent> {
        let line = if std::mem::take(&mut self.is_first_line) {
            line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line)
        } else {
            line
        };
        if line.is_empty() {
            return self.end_event();
        }
        let (field, value) = match line.iter().position(|byte| *byte == b':') {
            Some(colon) => (&line[..colon], &line[colon + 1..]),
            None => (line, &[][..]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match field {
            b"data" => {
                if std::mem::replace(&mut self.has_data, true) {
                    self.data.push(b'\n');
                }
                self.data.extend_from_slice(value);
            }
            b"event" => {
                self.kind.clear();
                self.kind.extend_from_slice(value);
            }
            // Also skips comments, which have an empty field name.
            _ => {}
        }
        None
    }

    fn end_event(&mut self) -> Option<StreamEvent> {
        let text = |bytes: &mut Vec<u8>| {
            let text = String::from_utf8_lossy(bytes).into_owned();
            bytes.clear();
            text
        };
        let event = StreamEvent { kind: text(&mut self.kind), data: text(&mut self.data) };
        std::mem::take(&mut self.has_data).then_some(event)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{EventStream, EventTooLarge, StreamEvent};

    fn read<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<StreamEvent> {
        let mut stream = EventStream::new(10_000);
        let mut events = Vec::new();
        for piece in pieces {
            stream.handle_bytes(piece, &mut events).unwrap();
        }
        events.extend(stream.finish());
        events
    }

    fn data(text: &str) -> Vec<String> {
        read([text.as_bytes()]).into_iter().map(|event| event.data).collect()
    }

    #[test]
    fn line_ends_of_every_kind_are_read() {
        for end in ["\n", "\r", "\r\n"] {
            assert_eq!(
                data(&["data: a", "data:b", "", "data: c", "", ""].join(end)),
                ["a\nb", "c"]
            );
        }
    }

    #[test]
    fn comments_unknown_fields_and_events_without_data_give_nothing() {
        assert_eq!(
            data(": alive\n\nid: 7\nretry: 3\nno colon\n\nevent: ping\n\ndata: a\n\n"),
            ["a"]
        );
    }

    #[test]
    fn only_one_space_is_left_out_and_a_field_may_be_empty() {
        assert_eq!(data("data:  a\n\ndata\n\ndata:\ndata\n\n"), [" a", "", "\n"]);
    }

    #[test]
    fn an_event_has_a_kind_and_it_does_not_stay() {
        let event =
            |kind: &str, data: &str| StreamEvent { kind: kind.to_owned(), data: data.to_owned() };
        let events = read([
            &b"event: ping\nevent: error\ndata: x\n\ndata: y\n\nevent: lost\n\ndata: z\n\n"[..],
        ]);
        assert_eq!(events, [event("error", "x"), event("", "y"), event("", "z")]);
    }

    #[test]
    fn a_byte_order_mark_is_skipped_at_the_start_only() {
        assert_eq!(data("\u{feff}data: a\n\n\u{feff}data: b\n\ndata: c\n\n"), ["a", "c"]);
    }

    #[test]
    fn the_last_event_needs_no_end() {
        assert_eq!(data("data: a\n\ndata: b"), ["a", "b"]);
        assert_eq!(data("data: a\n"), ["a"]);
    }

    #[test]
    fn what_is_not_utf8_is_replaced() {
        assert_eq!(read([&b"data: a\xff\xe2\x82\n\n"[..]])[0].data, "a\u{fffd}\u{fffd}");
    }

    #[test]
    fn a_large_event_is_refused_in_one_line_and_in_many() {
        for bytes in [b"data: 0123456789".repeat(2), b"data: 0123\n".repeat(20)] {
            let mut stream = EventStream::new(30);
            assert_eq!(
                stream.handle_bytes(&bytes, &mut Vec::new()),
                Err(EventTooLarge { limit: 30 })
            );
        }
        let mut stream = EventStream::new(30);
        let mut events = Vec::new();
        assert_eq!(stream.handle_bytes(&b"data: 0123\n\n".repeat(20), &mut events), Ok(()));
        assert_eq!(events.len(), 20);
    }

    #[test]
    fn a_stream_cut_at_every_byte_gives_the_same() {
        let text = "\u{feff}event: a\r\ndata: €\r\n\r\n: c\rdata: x\rdata:y\r\rdata: [DONE]\n\n"
            .as_bytes();
        let complete = read([text]);
        assert_eq!(complete.len(), 3);
        assert_eq!(read(text.chunks(1)), complete);
        for cut in 0..=text.len() {
            assert_eq!(read([&text[..cut], &text[cut..]]), complete, "cut at {cut}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_cut_anyhow_give_the_same(
            lines in prop::collection::vec(
                prop_oneof![
                    Just(b"data: ".to_vec()), Just(b"data".to_vec()), Just(b"event:".to_vec()), Just(b"\n".to_vec()), Just(b"\r".to_vec()),
                    Just(b"\r\n".to_vec()), Just(b":".to_vec()), Just(b"\xef\xbb\xbf".to_vec()), prop::collection::vec(any::<u8>(), 0..4),
                ],
                0..40,
            ),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
        ) {
            let bytes = lines.concat();
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let complete = read([&bytes[..]]);
            prop_assert_eq!(read(cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]])), complete.clone());
            prop_assert_eq!(read(bytes.chunks(1)), complete);
        }
    }
}
