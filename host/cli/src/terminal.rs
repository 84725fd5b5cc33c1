//! The terminal as a channel: questions are asked on stderr and answered on stdin, speeches are printed on stderr.

use std::io::{IsTerminal, Write};

use conclave_core::ids::{ChannelId, TaskName};
use conclave_runtime::channel::Channels;
use conclave_runtime::clock::BoxFuture;

use crate::show::{FAINT, NAME, paint, printable};

/// The person who typed the command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terminal {
    pub(crate) quiet: bool,
}

impl Channels for Terminal {
    fn ask(&self, _: ChannelId, task: TaskName, prompt: String) -> BoxFuture<'static, Option<String>> {
        Box::pin(async move {
            if !std::io::stdin().is_terminal() {
                return None;
            }
            // Reading blocks, so it gets a thread of its own; an abandoned question leaves that thread behind until a line comes.
            let line = tokio::task::spawn_blocking(move || {
                let mut err = anstream::stderr();
                let _ = write!(err, "{}\n{} asks you {} ", printable(&prompt), paint(NAME, task), paint(FAINT, ">"));
                let _ = err.flush();
                let mut line = String::new();
                std::io::stdin().read_line(&mut line).ok().filter(|read| *read > 0).map(|_| line)
            });
            line.await.ok().flatten().map(|line| line.trim_end().to_owned())
        })
    }

    fn speak(&self, _: ChannelId, text: String, _: bool) -> BoxFuture<'static, Result<(), String>> {
        let quiet = self.quiet;
        Box::pin(async move {
            if quiet {
                return Ok(());
            }
            let mut block = String::new();
            for line in printable(&text).lines() {
                block.push_str(&format!("      {} {line}\n", paint(FAINT, "│")));
            }
            anstream::stderr().write_all(block.as_bytes()).map_err(|error| format!("stderr could not be written: {error}"))
        })
    }
}
