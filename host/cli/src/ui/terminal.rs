//! The terminal as the channel of `run`: questions appear on stderr and are answered on stdin, and
//! messages appear on stderr.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use anstyle::Style;
use conclave_core::config::TERMINAL;
use conclave_core::types::ids::{ChannelId, TaskName};
use conclave_runtime::channel::{Channels, HumanAnswer, OutgoingMessage};
use conclave_runtime::clock::BoxFuture;

use crate::ui::interrupt::Interrupts;
use crate::ui::screen::{Screen, columns, total_columns};
use crate::ui::show::{FAINT, NAME, ODD, foreign, one_line, paint, plural};
use crate::ui::user::{TerminalUser, UserQuestion, UserReply};

/// Columns of the results that a message is about.
const ABOUT: usize = 60;

/// The user who typed the command.
pub(crate) struct Terminal {
    pub(crate) user: Arc<TerminalUser>,
    /// The answers to the next questions, which the user is not asked.
    pub(crate) answers: Arc<Mutex<VecDeque<String>>>,
    /// The number of answers that `--answers` gave; 0 without it.
    pub(crate) answers_given: usize,
    /// Whether a question waits for `conclave answer` rather than for the user here.
    pub(crate) waits: bool,
    pub(crate) screen: Arc<Screen>,
    pub(crate) interrupts: Interrupts,
}

/// Whether the channel is the one that the commands at a terminal serve. A simulated voice is heard
/// there too, and is served by the host's simulation.
pub(crate) fn is_terminal(channel: &ChannelId) -> bool {
    channel.as_str() == TERMINAL
}

/// The channels of a command that serves none of them.
#[cfg(feature = "mcp")]
pub(crate) struct NoClient;

#[cfg(feature = "mcp")]
impl Channels for NoClient {
    fn ask(&self, _: ChannelId, _: TaskName, _: String) -> BoxFuture<'static, Option<HumanAnswer>> {
        Box::pin(std::future::ready(None))
    }

    fn serves(&self, _: &ChannelId) -> bool {
        false
    }

    fn send(&self, message: OutgoingMessage) -> BoxFuture<'static, Result<(), String>> {
        let reason = format!("nobody serves {} here", message.channel);
        Box::pin(std::future::ready(Err(reason)))
    }
}

impl Channels for Terminal {
    fn ask(
        &self,
        _: ChannelId,
        task: TaskName,
        prompt: String,
    ) -> BoxFuture<'static, Option<HumanAnswer>> {
        let (user, interrupts) = (Arc::clone(&self.user), self.interrupts.clone());
        let answer = self.answers.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        let (screen, answer_count, waits) =
            (Arc::clone(&self.screen), self.answers_given, self.waits);
        Box::pin(async move {
            let prompt_line = format!("{task} asks you > ");
            let text = format!("{}\n", foreign::block(prompt.trim(), Style::new(), 0, columns()));
            if let Some(answer) = answer {
                let answer_block = foreign::block(answer.trim(), Style::new(), 2, columns());
                screen.line(format_args!(
                    "{}{}\n{answer_block}",
                    text,
                    paint(NAME, prompt_line.trim_end())
                ));
                return Some(answer.into());
            }
            if waits {
                let how = "      waits for an answer; `conclave answer` lists it with its id";
                screen.line(format_args!(
                    "{text}{}\n{}",
                    paint(ODD, format_args!(" ?    {task} asks its user")),
                    paint(FAINT, how)
                ));
                // The room takes the answer of a control message, and drops this future.
                return std::future::pending().await;
            }
            if !user.is_there() {
                if answer_count > 0 {
                    let used = plural(answer_count as u64, "answer", "answers");
                    let what = format!(
                        "      --answers is used up after {used}, so {task} gets none to its question:"
                    );
                    screen.line(format_args!("{}\n{}", paint(ODD, what), text.trim_end()));
                }
                return None;
            }
            let question = UserQuestion { text, ..UserQuestion::message(prompt_line) };
            match user.ask(question).await {
                UserReply::Line(line) => Some(line.trim_end().to_owned().into()),
                UserReply::Interrupted => {
                    interrupts.raise();
                    // The run is being stopped: an answer now would end it as if there were no
                    // user.
                    std::future::pending().await
                }
                UserReply::End => None,
            }
        })
    }

    fn serves(&self, channel: &ChannelId) -> bool {
        is_terminal(channel)
    }

    fn send(&self, message: OutgoingMessage) -> BoxFuture<'static, Result<(), String>> {
        let text = foreign::block(message.text.trim(), Style::new(), 6, total_columns());
        // A message of a responder stands below its line of the trace.
        let results: Vec<&str> = message.tasks.iter().map(|id| id.as_str()).collect();
        if results.is_empty() {
            self.screen.agent_text(text);
        } else {
            let about = paint(NAME, format_args!("      {}", one_line(&results.join(", "), ABOUT)));
            self.screen.agent_text(format!("{about}\n{text}"));
        }
        Box::pin(std::future::ready(Ok(())))
    }
}
