//! A client of the server's API that is as plain as possible: one connection, one request at a time.

use std::io;
use std::net::SocketAddr;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

/// The path of the API.
pub(super) const API: &str = "/api/v1";

/// A client with the token of a person, or with none.
pub(super) struct Client {
    address: SocketAddr,
    token: String,
    connection: Option<BufReader<TcpStream>>,
}

pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) text: String,
}

impl Answer {
    pub(super) fn body(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_default()
    }
}

impl Client {
    pub(super) fn new(address: SocketAddr, token: &str) -> Self {
        Self { address, token: token.to_owned(), connection: None }
    }

    /// Sends a request, and reads its answer. It is sent again if its connection had ended: with a
    /// key it takes effect once.
    pub(super) async fn request(
        &mut self,
        method: &str,
        path: &str,
        key: Option<&str>,
        body: &str,
    ) -> io::Result<Answer> {
        let head = head(self.address, &self.token, method, path);
        let key = key.map(|key| format!("Idempotency-Key: {key}\r\n")).unwrap_or_default();
        let length = body.len();
        let request = format!(
            "{head}{key}Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
        );
        // The server closes a connection that was idle for long.
        if let Some(connection) = self.connection.take()
            && let Ok(answer) = self.exchange(connection, &request).await
        {
            return Ok(answer);
        }
        let connection = BufReader::new(TcpStream::connect(self.address).await?);
        self.exchange(connection, &request).await
    }

    async fn exchange(
        &mut self,
        mut connection: BufReader<TcpStream>,
        request: &str,
    ) -> io::Result<Answer> {
        connection.get_mut().write_all(request.as_bytes()).await?;
        let (answer, closes) = read_answer(&mut connection).await?;
        self.connection = (!closes).then_some(connection);
        Ok(answer)
    }
}

/// The first lines of a request, without an empty line behind them.
pub(super) fn head(address: SocketAddr, token: &str, method: &str, path: &str) -> String {
    let access = match token {
        "" => String::new(),
        token => format!("Authorization: Bearer {token}\r\n"),
    };
    format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\n{access}")
}

/// Reads an answer with a length. Returns also whether the server closes the connection.
async fn read_answer(connection: &mut BufReader<TcpStream>) -> io::Result<(Answer, bool)> {
    let first = line(connection).await?;
    let status = first.split(' ').nth(1).and_then(|status| status.parse().ok());
    let status = status.ok_or(io::ErrorKind::InvalidData)?;
    let (mut length, mut closes) = (0, false);
    loop {
        let header = line(connection).await?.to_ascii_lowercase();
        match header.split_once(':') {
            None => break,
            Some(("content-length", value)) => {
                length = value.trim().parse().map_err(|_| io::ErrorKind::InvalidData)?;
            }
            Some(("connection", value)) => closes = value.trim() == "close",
            Some(_) => {}
        }
    }
    let mut body = vec![0; length];
    connection.read_exact(&mut body).await?;
    Ok((Answer { status, text: String::from_utf8_lossy(&body).into_owned() }, closes))
}

/// Reads a line, without its end.
pub(super) async fn line(connection: &mut BufReader<TcpStream>) -> io::Result<String> {
    let mut line = String::new();
    match connection.read_line(&mut line).await? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(line.trim_end_matches(['\r', '\n']).to_owned()),
    }
}
