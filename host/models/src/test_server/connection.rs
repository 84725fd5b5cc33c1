//! A minimal HTTP/1.1 for the test server: requests with a length, and chunked answers.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};

use super::SeenRequest;
use super::answer::{ReplyEnd, TestReply};

/// Maximum bytes of a request body; most are small, some hold an image.
const BODY_MAX: u64 = 64 << 20;

/// Reads the next request; `None` if the client has closed the connection.
pub(super) fn read_request(stream: &TcpStream) -> io::Result<Option<SeenRequest>> {
    // A client sends no request before the answer, so no buffered bytes are lost.
    let mut reader = BufReader::new(stream);
    let Some(first) = read_line(&mut reader)? else { return Ok(None) };
    let mut words = first.split(' ').map(str::to_owned);
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let mut headers = BTreeMap::new();
    while let Some(line) = read_line(&mut reader)?.filter(|line| !line.is_empty()) {
        if let Some((name, value)) = line.split_once(':') {
            headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
        }
    }
    let length =
        headers.get("content-length").and_then(|length| length.parse().ok()).unwrap_or(0u64);
    let mut body = Vec::new();
    reader.take(length.min(BODY_MAX)).read_to_end(&mut body)?;
    Ok(Some(SeenRequest { method, path, headers, body }))
}

fn read_line(reader: &mut impl BufRead) -> io::Result<Option<String>> {
    let mut line = String::new();
    let length = reader.read_line(&mut line)?;
    Ok((length > 0).then(|| line.trim_end().to_owned()))
}

/// Writes an answer; returns whether the connection can be reused.
///
/// # Errors
/// If the client closed the connection during the answer.
pub(super) fn write_answer(mut stream: &TcpStream, answer: &TestReply) -> io::Result<bool> {
    if let Some(status) = answer.status {
        let mut head = format!("HTTP/1.1 {status} As Scripted\r\ntransfer-encoding: chunked\r\n");
        answer.headers.iter().for_each(|(name, value)| head += &format!("{name}: {value}\r\n"));
        head += "\r\n";
        stream.write_all(head.as_bytes())?;
        for piece in answer.body.chunks(answer.piece) {
            let mut chunk = format!("{:x}\r\n", piece.len()).into_bytes();
            chunk.extend_from_slice(piece);
            chunk.extend_from_slice(b"\r\n");
            stream.write_all(&chunk)?;
        }
    }
    match answer.ending {
        ReplyEnd::Proper => {
            stream.write_all(b"0\r\n\r\n")?;
            Ok(true)
        }
        ReplyEnd::Cut => {
            stream.shutdown(Shutdown::Both)?;
            Ok(false)
        }
        ReplyEnd::Silence => {
            // Ends when the client closes, since it sends no second request before the answer.
            io::copy(&mut stream, &mut io::sink())?;
            Err(io::ErrorKind::ConnectionAborted.into())
        }
    }
}
