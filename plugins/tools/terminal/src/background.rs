//! Background commands. No instance lives between two calls, so a command runs in slices, one for
//! each poll: a command of its script, or one turn of a loop of its script. The time that a slice
//! waits, such as in `sleep`, passes between the polls: the next slice runs when it is over.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bashkit::ShellState;
use bashkit::parser::{Command, CommandList, CompoundCommand, ListOperator};
use serde::{Deserialize, Serialize};

use crate::script::{commands_of, printed};
use crate::shell::{self, End};
use crate::state::TerminalState;

/// Slices that a poll runs when nothing waits. A loop without `sleep` is otherwise one turn for
/// each poll.
const SLICES: usize = 100;
/// The longest time that one slice waits before it is interrupted, such as a loop in a function.
const LONGEST_SLICE: Duration = Duration::from_secs(24 * 60 * 60);
/// Variables of a turn of a loop: how it ended, which pass of the inner loop runs, and the exit
/// code of the body.
const ENDED_BY: &str = "__terminal_ended_by";
const PART: &str = "__terminal_part";
const CODE: &str = "__terminal_code";
/// The variable that a piece sets at its end if others follow: its exit code.
const PASSED: &str = "__terminal_passed";
/// The array in which a `for` collects its words.
const WORDS: &str = "__terminal_words";

/// A background command between two polls.
#[derive(Deserialize, Serialize)]
pub(crate) struct Job {
    command: String,
    /// What is left to run, the next one last.
    steps: Vec<Step>,
    /// The shell of its own: it begins as the terminal's, and changes nothing there.
    shell: Option<ShellState>,
    /// The time before which it waits, in milliseconds since 1970.
    due_ms: u64,
    exit_code: i32,
    /// Whether the rest of the steps is skipped, such as after `exit`.
    is_over: bool,
}

/// A piece of a script.
#[derive(Deserialize, Serialize)]
enum Step {
    /// Commands as text.
    Script(String),
    /// A loop before its condition.
    Loop {
        /// As text; it succeeds if another turn follows.
        condition: String,
        body: String,
        /// Runs after each turn, also after `continue`.
        after: String,
    },
    /// A loop over words, the next one last.
    Each { variable: String, words: Vec<String>, body: String },
}

/// What a poll returns.
#[derive(Default)]
pub(crate) struct Slice {
    pub(crate) output: String,
    /// `None` while the command runs.
    pub(crate) exit_code: Option<i32>,
}

impl Job {
    pub(crate) fn new(command: &str, shell: Option<ShellState>) -> Self {
        Self {
            command: command.to_owned(),
            steps: vec![Step::Script(command.to_owned())],
            shell,
            due_ms: 0,
            exit_code: 0,
            is_over: false,
        }
    }

    pub(crate) fn command(&self) -> &str {
        &self.command
    }

    /// Runs slices until one waits or writes, or the command ends.
    pub(crate) fn advance(&mut self, state: &mut TerminalState) -> Slice {
        let now = now_ms();
        let mut slice = Slice::default();
        for _ in 0..SLICES {
            if self.due_ms > now || !slice.output.is_empty() {
                return slice;
            }
            let Some(step) = self.steps.pop().filter(|_| !self.is_over) else {
                slice.exit_code = Some(self.exit_code);
                return slice;
            };
            let waited = self.take_step(step, state, &mut slice);
            if !waited.is_zero() {
                self.due_ms =
                    now.saturating_add(u64::try_from(waited.as_millis()).unwrap_or(u64::MAX));
            }
        }
        slice
    }
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

impl Job {
    /// Runs a step, or replaces it with its pieces. Returns the time that it waited.
    fn take_step(&mut self, step: Step, state: &mut TerminalState, slice: &mut Slice) -> Duration {
        match step {
            Step::Script(text) => match pieces(&text) {
                Pieces::Whole => self.run(&text, state, slice),
                Pieces::Steps(steps) => {
                    self.steps.extend(steps.into_iter().rev());
                    Duration::ZERO
                }
                Pieces::Words { variable, collect, body } => {
                    let waited = self.run(&collect, state, slice);
                    let words = self.take_words();
                    self.steps.push(Step::Each { variable, words, body });
                    waited
                }
            },
            Step::Loop { condition, body, after } => {
                let turn = turn(&condition, &body, &after);
                let waited = self.run(&turn, state, slice);
                if self.turn_is_followed() {
                    self.steps.push(Step::Loop { condition, body, after });
                }
                waited
            }
            Step::Each { variable, mut words, body } => {
                let Some(word) = words.pop() else { return Duration::ZERO };
                let quoted = word.replace('\'', r"'\''");
                let turn = turn(&format!("{variable}='{quoted}'"), &body, ":");
                let waited = self.run(&turn, state, slice);
                if self.turn_is_followed() {
                    self.steps.push(Step::Each { variable, words, body });
                }
                waited
            }
        }
    }

    fn run(&mut self, text: &str, state: &mut TerminalState, slice: &mut Slice) -> Duration {
        // What follows has to know whether the shell ended, such as by `exit` or `set -e`.
        let is_followed = !self.steps.is_empty();
        let marked = format!("{text}\n{PASSED}=$?");
        let text = if is_followed { marked.as_str() } else { text };
        let ran = shell::run(state, &mut self.shell, text, LONGEST_SLICE);
        slice.output.push_str(&ran.output);
        self.exit_code = ran.end.code();
        let passed = self.shell.as_mut().and_then(|shell| shell.variables.remove(PASSED));
        match passed.and_then(|code| code.parse().ok()) {
            Some(code) => {
                self.exit_code = code;
                if let Some(shell) = &mut self.shell {
                    shell.last_exit_code = code;
                }
            }
            None if is_followed => self.is_over = true,
            None => self.is_over = ran.end == End::TimedOut,
        }
        ran.waited
    }

    /// Returns whether a turn ended as usual or with `continue`, and forgets its variables.
    fn turn_is_followed(&mut self) -> bool {
        let Some(shell) = &mut self.shell else { return false };
        let ended_by = shell.variables.remove(ENDED_BY);
        shell.variables.remove(PART);
        if let Some(code) = shell.variables.remove(CODE) {
            self.exit_code = code.parse().unwrap_or(self.exit_code);
        }
        ended_by.as_deref() == Some("more")
    }

    /// Returns the words that a `for` collected, the first one last.
    fn take_words(&mut self) -> Vec<String> {
        let words = self.shell.as_mut().and_then(|shell| shell.arrays.remove(WORDS));
        let mut words: Vec<(usize, String)> = words.into_iter().flatten().collect();
        words.sort_unstable_by_key(|(index, _)| std::cmp::Reverse(*index));
        words.into_iter().map(|(_, word)| word).collect()
    }
}

/// The script of one turn of a loop. `continue` leads to the second pass of the inner loop, `break`
/// out of it.
fn turn(condition: &str, body: &str, after: &str) -> String {
    format!(
        "{ENDED_BY}=none\nif {condition}\nthen\n{ENDED_BY}=broken\nfor {PART} in first second\ndo\n\
         if [ \"${PART}\" = second ]\nthen {ENDED_BY}=more\nbreak\nfi\n{body}\n{CODE}=$?\ndone\n\
         if [ \"${ENDED_BY}\" = more ]\nthen {after}\nfi\nfi"
    )
}

/// A script taken apart.
enum Pieces {
    /// It runs as it is.
    Whole,
    Steps(Vec<Step>),
    /// A `for` over words, which the shell has to expand first.
    Words {
        variable: String,
        collect: String,
        body: String,
    },
}

fn pieces(text: &str) -> Pieces {
    let Some(mut commands) = commands_of(text) else { return Pieces::Whole };
    while let [Command::Compound(CompoundCommand::BraceGroup(inner), redirects)] = &commands[..]
        && redirects.is_empty()
    {
        commands = inner.clone();
    }
    if !commands.iter().all(stands_alone) {
        return Pieces::Whole;
    }
    let commands: Vec<Command> = commands.into_iter().flat_map(chains).collect();
    match &commands[..] {
        [Command::Compound(compound, redirects)] if redirects.is_empty() => turns(compound),
        [] | [_] => Pieces::Whole,
        commands => {
            let step = |command| Step::Script(printed(std::slice::from_ref(command)));
            Pieces::Steps(commands.iter().map(step).collect())
        }
    }
}

/// Splits `a; b && c` into `a` and `b && c`.
fn chains(command: Command) -> Vec<Command> {
    let Command::List(list) = command else { return vec![command] };
    let mut chains: Vec<(Command, Vec<(ListOperator, Command)>)> = vec![(*list.first, Vec::new())];
    for (operator, next) in list.rest {
        match chains.last_mut() {
            Some((_, links)) if operator != ListOperator::Semicolon => links.push((operator, next)),
            _ => chains.push((next, Vec::new())),
        }
    }
    let chain = |(first, rest): (Command, Vec<_>)| {
        if rest.is_empty() {
            return first;
        }
        Command::List(CommandList { first: Box::new(first), rest, span: list.span })
    };
    chains.into_iter().map(chain).collect()
}

fn turns(compound: &CompoundCommand) -> Pieces {
    match compound {
        CompoundCommand::While(found) => Pieces::Steps(vec![Step::Loop {
            condition: printed(&found.condition),
            body: printed(&found.body),
            after: ":".to_owned(),
        }]),
        CompoundCommand::Until(found) => Pieces::Steps(vec![Step::Loop {
            condition: format!("! {}", printed(&found.condition)),
            body: printed(&found.body),
            after: ":".to_owned(),
        }]),
        CompoundCommand::ArithmeticFor(found) => {
            let arithmetic = |text: &str| match text.trim() {
                "" => ":".to_owned(),
                text => format!("(( {text} ))"),
            };
            let turns = Step::Loop {
                condition: arithmetic(&found.condition),
                body: printed(&found.body),
                after: arithmetic(&found.step),
            };
            Pieces::Steps(vec![Step::Script(arithmetic(&found.init)), turns])
        }
        CompoundCommand::For(found) if found.words.is_some() => {
            let collect = format!("{WORDS}+=(\"${}\")", found.variable);
            let Some(collect) = commands_of(&collect) else { return Pieces::Whole };
            let mut words = found.clone();
            words.body = collect;
            let words = Command::Compound(CompoundCommand::For(words), Vec::new());
            Pieces::Words {
                variable: found.variable.clone(),
                collect: format!("{WORDS}=()\n{}", printed(&[words])),
                body: printed(&found.body),
            }
        }
        _ => Pieces::Whole,
    }
}

/// Whether a command may run in a slice of its own. Jobs, traps, descriptors and arguments of
/// the shell end with a slice.
fn stands_alone(command: &Command) -> bool {
    match command {
        Command::Simple(simple) => {
            let word = |word: &bashkit::parser::Word| word.raw.clone().unwrap_or_default();
            match word(&simple.name).as_str() {
                "trap" | "exec" | "wait" | "jobs" | "fg" | "disown" | "shift" | "coproc" => false,
                "set" => simple.args.iter().all(|argument| word(argument) != "--"),
                _ => true,
            }
        }
        Command::List(list) => {
            let is_job = |operator: &ListOperator| *operator == ListOperator::Background;
            stands_alone(&list.first)
                && list.rest.iter().all(|(operator, next)| !is_job(operator) && stands_alone(next))
        }
        Command::Compound(CompoundCommand::Coproc(_), _) => false,
        Command::Compound(..) | Command::Pipeline(_) | Command::Function(_) => true,
    }
}
