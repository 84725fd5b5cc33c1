//! Stdin and stdout of a client, without a thread between them and the executor. A client waits for
//! each answer, and a hand-over to another thread and back would cost more than most calls.
//!
//! The descriptors stay blocking, because other processes may share them. So each read and write is
//! preceded by `poll`, and a write is no larger than what a writable pipe takes without blocking.

use std::io::{self, Stdin, Stdout};
use std::os::fd::AsFd;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};

/// The bytes that a pipe with space takes at once.
const PIECE: usize = 4_096;

/// Returns stdin and stdout for one client.
#[expect(
    deprecated,
    reason = "its replacement is unsafe, because a descriptor must stay open; these two are the process's own and never closed"
)]
pub(super) fn open() -> (Box<dyn AsyncRead + Send + Unpin>, Box<dyn AsyncWrite + Send + Unpin>) {
    let from: Box<dyn AsyncRead + Send + Unpin> =
        match AsyncFd::with_interest(io::stdin(), Interest::READABLE) {
            Ok(stdin) => Box::new(ClientInput(stdin)),
            // Files cannot be waited for, so they are read and written on threads.
            Err(_) => Box::new(tokio::io::stdin()),
        };
    let to: Box<dyn AsyncWrite + Send + Unpin> =
        match AsyncFd::with_interest(io::stdout(), Interest::WRITABLE) {
            Ok(stdout) => Box::new(ClientOutput(stdout)),
            Err(_) => Box::new(tokio::io::stdout()),
        };
    (from, to)
}

struct ClientInput(AsyncFd<Stdin>);

struct ClientOutput(AsyncFd<Stdout>);

impl AsyncRead for ClientInput {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            let mut guard = ready!(self.0.poll_read_ready(context))?;
            if !is_ready(self.0.get_ref(), PollFlags::IN)? {
                guard.clear_ready();
                continue;
            }
            // Not through the buffer of `Stdin`, which `poll` does not see.
            match rustix::io::read(self.0.get_ref(), buffer.initialize_unfilled()) {
                Ok(length) => {
                    buffer.advance(length);
                    return Poll::Ready(Ok(()));
                }
                Err(rustix::io::Errno::INTR) => {}
                // Its end may be one that does not block.
                Err(rustix::io::Errno::AGAIN) => guard.clear_ready(),
                Err(error) => return Poll::Ready(Err(error.into())),
            }
        }
    }
}

impl AsyncWrite for ClientOutput {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let piece = &bytes[..bytes.len().min(PIECE)];
        loop {
            let mut guard = ready!(self.0.poll_write_ready(context))?;
            if !is_ready(self.0.get_ref(), PollFlags::OUT)? {
                guard.clear_ready();
                continue;
            }
            match rustix::io::write(self.0.get_ref(), piece) {
                Ok(length) => return Poll::Ready(Ok(length)),
                Err(rustix::io::Errno::INTR) => {}
                // Its end may be one that does not block.
                Err(rustix::io::Errno::AGAIN) => guard.clear_ready(),
                Err(error) => return Poll::Ready(Err(error.into())),
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Whether a read or a write would not block. An error or a closed end is reported by the call
/// itself.
fn is_ready(stream: impl AsFd, what: PollFlags) -> io::Result<bool> {
    loop {
        let mut poll_fds = [PollFd::new(&stream, what)];
        match poll(&mut poll_fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) {
            Ok(ready) => return Ok(ready > 0),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
