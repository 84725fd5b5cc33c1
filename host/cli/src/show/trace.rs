//! The run as it goes on, one line for each thing that a person would want to know.

use std::collections::HashMap;
use std::io::Write;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use conclave_core::action::Action;
use conclave_core::event::Event;
use conclave_core::fault::CallReport;
use conclave_core::grant::DenialRecord;
use conclave_core::ids::{PluginName, RoomId, TaskName};
use conclave_core::message::{Entity, Message, Signal};
use conclave_core::notice::Notice;
use conclave_runtime::subscribe::{Happening, Level, Subscriber, What};

use super::{BAD, FAINT, GOOD, NAME, ODD, bytes, one_line, paint, time};

/// How wide the text of a line may be.
const WIDTH: usize = 100;

/// Calls in one message from which on they are told together: a screen full of the same line tells nothing.
const TOGETHER: usize = 4;

/// Prints a run to stderr.
pub(crate) struct Trace {
    started: Instant,
    verbose: bool,
    counts: Mutex<Counts>,
    /// Calls that are told together, by room and task.
    batches: Mutex<HashMap<(RoomId, TaskName), Batch>>,
}

/// Calls of one message that are told together.
#[derive(Debug, Default)]
struct Batch {
    left: usize,
    answered: usize,
    wall_us: u64,
    memory: u64,
}

/// What the last line sums up.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) sandboxes: u64,
    pub(crate) denials: u64,
    pub(crate) faults: u64,
    pub(crate) tokens: u64,
    pub(crate) cost_micro_usd: u64,
}

impl Trace {
    pub(crate) fn new(verbose: bool) -> Self {
        Self { started: Instant::now(), verbose, counts: Mutex::default(), batches: Mutex::default() }
    }

    /// What was counted so far.
    pub(crate) fn counts(&self) -> Counts {
        *self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self, change: impl FnOnce(&mut Counts)) {
        change(&mut self.counts.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn line(&self, who: &str, text: &str) {
        let at = self.started.elapsed().as_secs_f64();
        // A closed stderr is no reason to stop a run.
        let _ =
            writeln!(anstream::stderr(), "{} {} {text}", paint(FAINT, format_args!("{at:>6.2}")), paint(NAME, format_args!("{who:<13}")));
    }

    fn told(&self, room: &RoomId, notice: &Notice) {
        match notice {
            Notice::MessagePosted { task, agent, message } => {
                self.begin_batch(room, task, agent, message);
                self.posted(agent, message);
            }
            Notice::StepStalled { task, stalled, of } => {
                self.line(task.as_str(), &paint(FAINT, format_args!("nobody had an answer ({stalled} of {of})")));
            }
            Notice::ToolCalled { task, caller, name, arguments, .. } => {
                if self.is_batched(room, task) {
                    return;
                }
                self.line(caller.as_str(), &format!("calls {name} {}", paint(FAINT, one_line(&arguments.to_string(), 70))));
            }
            Notice::ToolAnswered { task, name, content, is_error, fault, report, .. } => {
                let plugin = name.split('.').next().unwrap_or(name);
                if self.answer_batched(room, task, plugin, report) && !*is_error {
                    return;
                }
                let text = if *is_error { paint(BAD, one_line(content, 2 * WIDTH)) } else { one_line(content, WIDTH - 20) };
                self.count(|counts| counts.faults += u64::from(fault.is_some()));
                self.line(plugin, &format!("{text}  {}", paint(FAINT, cost(report))));
            }
            Notice::PluginFaulted { plugin, fault, .. } => {
                self.count(|counts| counts.faults += 1);
                self.line(plugin.as_str(), &format!("{} {}", paint(BAD, "stopped:"), one_line(&fault.message, WIDTH)));
            }
            Notice::Denied { plugin, record } => self.denied(plugin, record),
            Notice::ModelAnswered { tokens, cost_micro_usd, error, .. } => {
                self.count(|counts| {
                    counts.tokens += tokens;
                    counts.cost_micro_usd += cost_micro_usd.unwrap_or_default();
                });
                if let Some(error) = error {
                    self.line("model", &paint(BAD, one_line(error, WIDTH)));
                }
            }
            Notice::BackgroundStarted { task, .. } => self.line(task.as_str(), "started in the background"),
            Notice::BackgroundEnded { .. } | Notice::ModelCalled { .. } | Notice::TaskStarted { .. } => {}
            Notice::Delivered { agent, strategy, channel, .. } => {
                self.line(agent.as_str(), &format!("finished; delivered by {strategy} on {channel}"));
            }
            Notice::NotDelivered { agent, reason, .. } => {
                self.line(agent.as_str(), &format!("finished; {} {}", paint(ODD, "not delivered:"), one_line(reason, WIDTH)));
            }
            Notice::TaskEnded { task, status, reason } if !status.is_success() => {
                self.line(task.as_str(), &format!("{} {}", paint(BAD, status.as_str()), one_line(reason, WIDTH)));
            }
            Notice::TaskEnded { .. } | Notice::ResultReady { .. } => {}
        }
    }

    fn begin_batch(&self, room: &RoomId, task: &TaskName, agent: &PluginName, message: &Message) {
        if self.verbose || message.sender != Entity::Llm || message.tool_calls.len() < TOGETHER {
            return;
        }
        let mut names: Vec<&str> = message.tool_calls.iter().map(|call| call.name.as_str()).collect();
        names.dedup();
        let calls = message.tool_calls.len();
        self.line(agent.as_str(), &format!("calls {} {calls} times", one_line(&names.join(", "), 60)));
        let batch = Batch { left: calls, ..Batch::default() };
        self.batches.lock().unwrap_or_else(PoisonError::into_inner).insert((room.clone(), task.clone()), batch);
    }

    fn is_batched(&self, room: &RoomId, task: &TaskName) -> bool {
        self.batches.lock().unwrap_or_else(PoisonError::into_inner).contains_key(&(room.clone(), task.clone()))
    }

    /// Counts an answer of a batch; the last one is told for all of them.
    fn answer_batched(&self, room: &RoomId, task: &TaskName, plugin: &str, report: &CallReport) -> bool {
        let mut batches = self.batches.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (room.clone(), task.clone());
        let Some(batch) = batches.get_mut(&key) else { return false };
        batch.answered += 1;
        batch.wall_us += report.wall_us;
        batch.memory = batch.memory.max(report.memory);
        if batch.answered == batch.left {
            let all = CallReport { wall_us: batch.wall_us, memory: batch.memory, ..CallReport::default() };
            self.line(plugin, &format!("{} answers  {}", batch.answered, paint(FAINT, format_args!("{} in all", cost(&all)))));
            batches.remove(&key);
        }
        true
    }

    fn posted(&self, agent: &PluginName, message: &Message) {
        let who = match message.sender {
            Entity::User => message.sender_name.as_str(),
            _ => agent.as_str(),
        };
        let text = one_line(message.text(), 70);
        match (&message.signal, &message.recipient) {
            (Some(Signal::Done { .. }), _) if message.sender == Entity::Llm => self.line(who, &paint(GOOD, "is done")),
            (Some(Signal::Rejected), _) => self.line(who, &format!("{} {text}", paint(ODD, "gives up:"))),
            (_, Some(recipient)) => self.line(who, &format!("passes to {recipient}: {}", paint(FAINT, text))),
            _ if matches!(message.action, Some(Action::Talk { .. })) => self.line(who, &format!("says: {text}")),
            _ if message.action.is_some() || !message.tool_calls.is_empty() || message.sender == Entity::Agent => {}
            _ => self.line(who, &format!("says: {}", paint(FAINT, text))),
        }
    }

    fn denied(&self, plugin: &PluginName, record: &DenialRecord) {
        self.count(|counts| counts.denials += 1);
        let denial = &record.denial;
        self.line(plugin.as_str(), &format!("{} {}: {}", paint(BAD, "DENIED"), denial.capability, one_line(&denial.target, 70)));
        let mut more = format!("{} says no: {}", record.layer.as_str(), one_line(&record.reason, 120));
        if let Some(suggestion) = &record.suggestion {
            more.push_str(&format!("\n                       to allow it: {suggestion}"));
        }
        let _ = writeln!(anstream::stderr(), "                     {}", paint(FAINT, more));
    }
}

impl Subscriber for Trace {
    fn on(&self, happening: &Happening) {
        match &happening.what {
            What::Told { told } => self.told(&happening.room, told),
            What::Recorded { record } => {
                if is_sandbox(&record.event) {
                    self.count(|counts| counts.sandboxes += 1);
                }
            }
            What::Denied { plugin, record, .. } => self.denied(plugin, record),
            What::Logged { plugin, level, message, .. } => {
                if self.verbose || *level >= Level::Info {
                    self.line(plugin.as_str(), &paint(FAINT, format_args!("log: {}", one_line(message, WIDTH))));
                }
            }
            What::Progressed { plugin, done, total, message, .. } => {
                let of = total.map(|total| format!(" of {total}")).unwrap_or_default();
                self.line(plugin.as_str(), &paint(FAINT, format_args!("{done}{of} {}", one_line(message, 60))));
            }
        }
    }
}

/// The event is the end of a call in a sandbox of its own.
fn is_sandbox(event: &Event) -> bool {
    matches!(event, Event::AgentStepped { .. } | Event::AgentResponded { .. } | Event::ToolAnswered { .. } | Event::StrategyDecided { .. })
}

fn cost(report: &CallReport) -> String {
    if report.wall_us == 0 {
        return String::new();
    }
    format!("{} · {}", time(Duration::from_micros(report.wall_us)), bytes(report.memory))
}
