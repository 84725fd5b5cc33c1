//! Servers with endless interim responses.

use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use tokio::io::ReadBuf;

use super::*;

/// A server that repeats one text after the request, and never blocks its reader.
struct Endless {
    is_asked: bool,
    reader: Option<Waker>,
    text: &'static [u8],
    sent: Arc<AtomicU64>,
}

impl AsyncRead for Endless {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.is_asked {
            self.reader = Some(context.waker().clone());
            return Poll::Pending;
        }
        let sent = usize::try_from(self.sent.load(Ordering::Relaxed)).unwrap();
        let before = buffer.filled().len();
        let text: Vec<u8> = self
            .text
            .iter()
            .copied()
            .cycle()
            .skip(sent % self.text.len())
            .take(buffer.remaining())
            .collect();
        buffer.put_slice(&text);
        self.sent.fetch_add((buffer.filled().len() - before) as u64, Ordering::Relaxed);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Endless {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.is_asked = true;
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Returns the error of a request to such a server, and the bytes read from it.
async fn read_interim(text: &'static str, limit: u64) -> (Option<ConnectionError>, u64) {
    let sent = Arc::new(AtomicU64::new(0));
    let interim = Arc::new(Interim::new(limit));
    let url = Url::parse("http://a.example/").unwrap();
    let parts = RequestParts { method: "GET".to_owned(), url, headers: Vec::new(), body: None };
    let request = request(parts, &interim).unwrap();
    let server =
        Endless { is_asked: false, reader: None, text: text.as_bytes(), sent: Arc::clone(&sent) };
    let outcome = exchange(server, request, &interim).await;
    (outcome.err(), sent.load(Ordering::Relaxed))
}

/// B12: counted in bytes, so that the result does not depend on the machine's speed.
#[tokio::test]
async fn endless_interim_answers_end_after_the_first_bytes() {
    for text in [
        "HTTP/1.1 100 Continue\r\n\r\n",
        "HTTP/1.1 102 Processing\r\n\r\n",
        "HTTP/1.1 103 Early Hints\r\nlink: </style.css>\r\n\r\n",
    ] {
        let (trouble, bytes) = read_interim(text, 4 << 20).await;
        assert_eq!(
            trouble,
            Some(ConnectionError::NoAnswer("the server sent more than 16 interim answers")),
            "{text}"
        );
        assert!(bytes <= 16 << 10, "{bytes} bytes were read of {text:?}");
    }
}

#[tokio::test]
async fn bytes_of_interim_answers_count_against_the_limit() {
    const HINT: &str = concat!(
        "HTTP/1.1 103 Early Hints\r\nlink: ",
        "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789",
        "\r\n\r\n"
    );
    let (trouble, bytes) = read_interim(HINT, 1_000).await;
    assert_eq!(trouble, Some(ConnectionError::TooLong));
    assert!(bytes <= 16 << 10, "{bytes}");
}
