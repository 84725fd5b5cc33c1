//! The user as the channel of a conversation. The channel asks for the next message when it is the
//! user's turn, and returns without asking while the agent has more to do. Commands are executed
//! here.

use std::io::IsTerminal;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use anstyle::Style;
use conclave_core::types::delegation::BackgroundRecord;
use conclave_core::types::delivery::DeliveryState;
use conclave_core::types::ids::{BackgroundId, ChannelId, TaskName};
use conclave_core::types::message::Blob;
use conclave_core::types::request::RoomRequest;
use conclave_core::types::text::show_size;
use conclave_runtime::RoomHandle;
use conclave_runtime::blobs::Blobs;
use conclave_runtime::channel::{Channels, HumanAnswer, OutgoingMessage};
use conclave_runtime::clock::BoxFuture;
use conclave_runtime::control::ControlCommand;
use serde_json::json;

use super::command::{self, ChatCommand, TypedLine};
use super::conversation::{NextSpeaker, TerminalChat};
use crate::state::attach;
use crate::ui::interrupt::Interrupts;
use crate::ui::screen::{Screen, columns, total_columns};
use crate::ui::show::foreign;
use crate::ui::show::tally::RunTally;
use crate::ui::show::usage;
use crate::ui::show::{FAINT, NAME, ODD, paint, plural, printable, time};
use crate::ui::stdout;
use crate::ui::terminal::is_terminal;
use crate::ui::user::{TerminalUser, UserQuestion, UserReply};

/// A word with which a user ends a task (L-086).
const GOODBYE: &str = "quit";

/// The user's side of a conversation. Clones share their state.
#[derive(Clone)]
pub(crate) struct UserChannel(Arc<ChannelState>);

pub(crate) struct ChannelState {
    pub(crate) user: Arc<TerminalUser>,
    pub(crate) screen: Arc<Screen>,
    pub(crate) conversation: Arc<TerminalChat>,
    pub(crate) tally: Arc<RunTally>,
    pub(crate) interrupts: Interrupts,
    pub(crate) blobs: Arc<dyn Blobs>,
    /// Attachments of the next message.
    pub(crate) attachments: Mutex<Vec<Blob>>,
    pub(crate) entry: TaskName,
    /// The permission summary, for `/status`.
    pub(crate) rights: String,
    pub(crate) json: bool,
    /// Whether the user has ended the conversation.
    pub(crate) has_ended: AtomicBool,
    /// Whether background tasks are stopped at the end of the conversation.
    pub(crate) stops_background: AtomicBool,
    /// The handle of the room, set once the room is open.
    pub(crate) handle: OnceLock<RoomHandle>,
}

impl UserChannel {
    /// Adds attachments to the first message.
    pub(crate) fn attach(&self, attachments: Vec<Blob>) {
        *self.0.attachments() = attachments;
    }

    /// Takes the attachments of the first message.
    pub(crate) fn take_attachments(&self) -> Vec<Blob> {
        self.0.take_attachments()
    }

    pub(crate) fn new(inner: ChannelState) -> Self {
        Self(Arc::new(inner))
    }

    /// Stores the handle of the open room.
    pub(crate) fn open(&self, handle: RoomHandle) {
        let _ = self.0.handle.set(handle);
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.0.has_ended.load(Ordering::SeqCst)
    }

    /// Resolves, once, when the conversation is over and its background tasks are not waited for.
    pub(crate) async fn let_go(&self) {
        self.0.conversation.is_over().await;
        if !self.0.stops_background.swap(false, Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
    }

    /// Returns the next message, or `None` if the user has ended the conversation.
    pub(crate) async fn next_message(&self) -> Option<HumanAnswer> {
        self.0.next_message(&self.0.entry).await
    }
}

impl ChannelState {
    /// Returns the next message for a task, or `None` if the user has ended the conversation.
    async fn next_message(&self, task: &TaskName) -> Option<HumanAnswer> {
        let short_goodbyes_quit = self.conversation.short_goodbyes_quit(task);
        let mut has_pressed = false;
        loop {
            let line = match self.user.ask(UserQuestion::message("> ")).await {
                UserReply::Line(line) => line,
                UserReply::Interrupted => {
                    // One Ctrl-C may only mean to clear the line; two in a row look for the way
                    // out.
                    if std::mem::replace(&mut has_pressed, true) {
                        self.tell(&paint(FAINT, "  Ctrl-D or /quit ends the conversation"));
                    }
                    continue;
                }
                UserReply::End => match self.end(true).await {
                    true => return None,
                    false => continue,
                },
            };
            has_pressed = false;
            match command::parse(&line, short_goodbyes_quit) {
                TypedLine::Message(text) => {
                    self.conversation.begin_turn(&text);
                    self.interrupts.turn_begins();
                    return Some(HumanAnswer {
                        text,
                        attachments: self.take_attachments(),
                        ..HumanAnswer::default()
                    });
                }
                TypedLine::Command(ChatCommand::Quit) if self.end(false).await => return None,
                TypedLine::Command(command) => self.carry_out(&command),
                TypedLine::Wrong(why) => self.tell(&format!("  {}", paint(ODD, printable(&why)))),
                TypedLine::Empty => {}
            }
        }
    }

    /// Ends the conversation, unless the user prefers to wait for background tasks. `input_is_over`
    /// means that no more input can arrive.
    async fn end(&self, input_is_over: bool) -> bool {
        let background = self.conversation.background();
        let mut stops = false;
        if !background.is_empty() && self.user.is_there() {
            let verb = if background.len() == 1 { "runs" } else { "run" };
            let tasks = plural(background.len() as u64, "task", "tasks");
            let text = format!(
                "  {tasks} still {verb} in the background: {}",
                paint(NAME, background.join(", "))
            );
            let reply = self
                .user
                .ask(UserQuestion::short(
                    text,
                    "  [s] stop them  [w] wait for them  [c] continue the conversation  > ",
                ))
                .await;
            match reply {
                UserReply::Line(line) if line.trim().eq_ignore_ascii_case("c") => return false,
                UserReply::Line(line) if line.trim().eq_ignore_ascii_case("w") => {}
                _ => stops = true,
            }
        } else if !background.is_empty() {
            // A pipe cannot be asked. Closing it waits for the remaining results; `/quit` does not.
            stops = !input_is_over;
        }
        self.stops_background.store(stops, Ordering::SeqCst);
        self.has_ended.store(true, Ordering::SeqCst);
        if !stops && self.user.is_there() {
            self.report_wait();
        }
        // From here on Ctrl-C can only stop the background tasks.
        self.interrupts.turn_begins();
        true
    }

    /// Says why a conversation that has ended goes on: its strategies hold results back, which can
    /// take minutes.
    fn report_wait(&self) {
        let tasks = self.handle.get().map(RoomHandle::tasks).unwrap_or_default();
        let is_held = |task: &&Arc<BackgroundRecord>| {
            let state = &task.delivery.state;
            matches!(state, DeliveryState::Waiting | DeliveryState::Delivering)
                && task.ended.is_some()
        };
        let pending = tasks.iter().filter(is_held).count() as u64;
        if pending > 0 {
            let results = plural(pending, "background result is", "background results are");
            let what = format!("  {results} yet to be delivered; Ctrl-C ends without waiting");
            self.tell(&paint(FAINT, what));
        }
    }

    fn carry_out(&self, command: &ChatCommand) {
        match command {
            ChatCommand::Help => self.tell(command::HELP),
            ChatCommand::Status => self.tell(&self.status()),
            ChatCommand::Stop => self.tell("  the agent is not running"),
            ChatCommand::Tasks => self.tell(&self.tasks()),
            ChatCommand::Cancel(task) => {
                let reason = "cancelled by the user".to_owned();
                self.ask_of(task, |task| RoomRequest::CancelTask { task, reason });
            }
            ChatCommand::Tell(task, text) => {
                if self.ask_of(task, |task| RoomRequest::TellTask { task, text: text.clone() }) {
                    self.tell(&paint(
                        FAINT,
                        format_args!("  {} reads it in its next step", printable(task)),
                    ));
                }
            }
            ChatCommand::Attach(path) => self.attach(path),
            ChatCommand::Save(path) => match self.conversation.save(path) {
                Ok(()) => self.tell(&paint(
                    FAINT,
                    format_args!("  saved to {}", printable(&path.display().to_string())),
                )),
                Err(why) => self.tell(&format!("  {}", paint(ODD, printable(&why)))),
            },
            // Handled by the caller.
            ChatCommand::Quit => {}
        }
    }

    /// The background tasks, one per line.
    fn tasks(&self) -> String {
        let tasks = self.conversation.background_tasks();
        if tasks.is_empty() {
            return paint(FAINT, "  no background task is running");
        }
        let line = |(id, task, age): &(BackgroundId, TaskName, Duration)| {
            format!("  {id} {} for {}", paint(NAME, task), time(*age))
        };
        tasks.iter().map(line).collect::<Vec<_>>().join("\n")
    }

    /// Sends the room a request about a running background task. Returns false if no task has this
    /// name.
    fn ask_of(&self, task: &str, what: impl FnOnce(BackgroundId) -> RoomRequest) -> bool {
        let found = self
            .conversation
            .background_tasks()
            .into_iter()
            .map(|(id, ..)| id)
            .find(|id| id.as_str() == task);
        let (Some(id), Some(handle)) = (found, self.handle.get()) else {
            self.tell(&format!(
                "  {}",
                paint(
                    ODD,
                    format_args!(
                        "no background task {} is running; /tasks lists them",
                        printable(task)
                    )
                )
            ));
            return false;
        };
        handle.control(ControlCommand::Ask { what: Box::new(what(id)) });
        true
    }

    /// Takes the attachments of the next message.
    fn take_attachments(&self) -> Vec<Blob> {
        std::mem::take(&mut *self.attachments())
    }

    fn attachments(&self) -> MutexGuard<'_, Vec<Blob>> {
        self.attachments.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn attach(&self, path: &Path) {
        match attach::attach(&*self.blobs, path) {
            Ok(blob) => {
                let name = printable(blob.name.as_deref().unwrap_or_default());
                let what = format!(
                    "  {name} ({}, {}) is attached to the next message",
                    blob.media_type,
                    show_size(blob.length)
                );
                let remark = attach::remark(&blob);
                self.attachments().push(blob);
                self.tell(&paint(FAINT, what));
                if let Some(remark) = remark {
                    self.tell(&paint(ODD, format_args!("  {remark}")));
                }
            }
            Err(why) => self.tell(&format!("  {}", paint(ODD, printable(&why)))),
        }
    }

    fn status(&self) -> String {
        let counts = self.tally.counts();
        let background = self.conversation.background();
        let background =
            if background.is_empty() { "none".to_owned() } else { background.join(", ") };
        let used = format!(
            "{} · {}",
            usage::spent(counts),
            plural(counts.sandboxes, "sandbox", "sandboxes")
        );
        format!("{}\n  used: {used}\n  background tasks: {background}", self.rights)
    }

    /// Prints a note about the conversation itself.
    fn tell(&self, text: &str) {
        if self.json {
            let text = anstream::adapter::strip_str(text).to_string();
            // The final result takes the same way, and reports an stdout that cannot be written.
            let _ = stdout::queue_json(json!({ "type": "note", "text": text.trim() }));
            return;
        }
        self.screen.notice(text);
    }

    /// Whether a pipe's last message got no answer, and no other result is to come.
    fn has_failed(&self) -> bool {
        !self.user.is_there()
            && self.conversation.failure().is_some()
            && self.conversation.background().is_empty()
    }

    async fn ask_user(&self, task: TaskName, prompt: String) -> Option<HumanAnswer> {
        // A background task asks: its question is no turn of the conversation.
        if task != self.entry && !self.conversation.holds(&task) {
            if !self.user.is_there() {
                return None;
            }
            let text = format!(
                "  {} asks you:\n{}",
                paint(NAME, &task),
                foreign::block(prompt.trim(), Style::new(), 2, columns())
            );
            let reply = self.user.ask(UserQuestion::short(text, format!("  to {task} > "))).await;
            return if let UserReply::Line(line) = reply { Some(line.into()) } else { None };
        }
        if self.conversation.next() == NextSpeaker::Agent {
            return Some(HumanAnswer::pass());
        }
        self.conversation.show_question(&prompt);
        self.conversation.stop_is_counted().await;
        self.conversation.end_turn();
        self.interrupts.turn_is_over();
        if self.json {
            let _ =
                stdout::queue_json(json!({ "type": "question", "task": task, "prompt": prompt }));
        }
        let answer = self.next_message(&task).await;
        if answer.is_none() && self.has_failed() {
            // A goodbye would list the run among those that its user ended.
            if let Some(handle) = self.handle.get() {
                handle.stop("the conversation ended, and its last message got no answer");
            }
            return None;
        }
        Some(answer.unwrap_or_else(|| GOODBYE.to_owned().into()))
    }
}

impl Channels for UserChannel {
    fn ask(
        &self,
        _: ChannelId,
        task: TaskName,
        prompt: String,
    ) -> BoxFuture<'static, Option<HumanAnswer>> {
        let inner = Arc::clone(&self.0);
        Box::pin(async move { inner.ask_user(task, prompt).await })
    }

    fn serves(&self, channel: &ChannelId) -> bool {
        is_terminal(channel)
    }

    fn send(&self, message: OutgoingMessage) -> BoxFuture<'static, Result<(), String>> {
        // The event stream already contains it.
        if self.0.json {
            return Box::pin(std::future::ready(Ok(())));
        }
        if std::io::stdout().is_terminal() {
            self.0.screen.notice(foreign::block(
                message.text.trim(),
                Style::new(),
                2,
                total_columns(),
            ));
        } else {
            // A result for the reader of the pipe, as in a run. The conversation's end reports an
            // stdout that cannot be written.
            let _ = stdout::queue(format!("{}\n", stdout::safe(message.text.trim())));
        }
        Box::pin(std::future::ready(Ok(())))
    }
}

/// Updates the status line periodically.
pub(crate) async fn keep_status(conversation: &TerminalChat) {
    loop {
        tokio::time::sleep(Duration::from_millis(250)).await;
        conversation.tick();
    }
}
