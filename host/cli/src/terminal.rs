//! The terminal as the channel of `run`: questions are asked on stderr and answered on stdin, speeches are printed on stderr.

use std::sync::Arc;

use conclave_core::ids::{ChannelId, TaskName};
use conclave_runtime::channel::{Answer, Channels, Speech};
use conclave_runtime::clock::BoxFuture;

use crate::interrupt::Interrupts;
use crate::person::{Person, Question, Reply};
use crate::screen::Screen;
use crate::show::{FAINT, paint, printable};

/// The person who typed the command.
pub(crate) struct Terminal {
    pub(crate) person: Arc<Person>,
    pub(crate) screen: Arc<Screen>,
    pub(crate) interrupts: Interrupts,
}

impl Channels for Terminal {
    fn ask(&self, _: ChannelId, task: TaskName, prompt: String) -> BoxFuture<'static, Option<Answer>> {
        let (person, interrupts) = (Arc::clone(&self.person), self.interrupts.clone());
        Box::pin(async move {
            if !person.is_there() {
                return None;
            }
            let asked = format!("{task} asks you > ");
            let question = Question { text: format!("{}\n", printable(&prompt)), ..Question::message(asked) };
            match person.ask(question).await {
                Reply::Line(line) => Some(line.trim_end().to_owned().into()),
                Reply::Interrupted => {
                    interrupts.raise();
                    // The run is stopped: an answer now would end it as if nobody were there.
                    std::future::pending().await
                }
                Reply::End => None,
            }
        })
    }

    fn speak(&self, speech: Speech) -> BoxFuture<'static, Result<(), String>> {
        let text = speech.text;
        let text = printable(&text);
        let lines: Vec<String> = text.lines().map(|line| format!("      {} {line}", paint(FAINT, "│"))).collect();
        self.screen.line(lines.join("\n"));
        Box::pin(std::future::ready(Ok(())))
    }
}
