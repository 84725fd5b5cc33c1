//! The file of a prompt agent (O-093), or of triggered knowledge (O-126): inputs, outputs and a
//! prompt, as YAML between two lines of `---` and Markdown below. Pure: takes a text, and returns
//! every mistake with line, column and remedy. Files are untrusted, so large, deep or recursive
//! ones are refused early. Does not run the agent.
//!
//! ```text
//! ---
//! name: coder
//! description: Does one task in a code base.
//! inputs:
//!   task: what to do
//! outputs:
//!   summary: what was changed
//! ---
//! You are a coder. Do this, and nothing else: {{ inputs.task }}
//! ```

mod node;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;
use serde_saphyr::{DuplicateKeyPolicy, Location, MergeKeyPolicy, Spanned};

use node::Node;

use super::problem::{Problems, SourceText, Span};
use super::{Config, ConfigPath, ProblemCode, WantedTool};
use crate::setup::{Knowledge, MicroAgent};
use crate::types::ids::{PluginName, TaskName};
use crate::types::wording::{code, string, suggest};

/// The limit of a whole file in bytes.
pub const LARGEST_FILE: usize = 256 * 1024;
/// The limit of inputs, of outputs, of tools and of triggers.
const MOST_ENTRIES: usize = 100;
/// The limit of a name in bytes.
const LONGEST_NAME: usize = 64;
/// The limit of nesting between the lines of `---`, which hold a list of names and sentences.
const MOST_DEPTH: usize = 8;
const MOST_NODES: usize = 2_000;
/// The limit in bytes of a name between braces with its blanks; the search for the closing braces
/// ends there.
const LONGEST_PLACE: usize = 256;
/// The limit of reported errors, and of warnings.
const MOST_PROBLEMS: usize = 20;

/// The keys with a meaning here.
const KEYS: [&str; 7] = ["name", "description", "inputs", "outputs", "agent", "tools", "triggers"];
/// Keys for other programs, which are accepted and ignored.
const IDLE_KEYS: [&str; 5] = ["type", "version", "author", "license", "metadata"];

/// The content of a prompt agent's file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MicroFile {
    /// The name that the file gives itself.
    pub name: Option<String>,
    /// The description, for tasks that may delegate to it.
    pub description: String,
    /// The inputs: name, and type or meaning.
    pub inputs: BTreeMap<String, String>,
    /// The required outputs.
    pub outputs: BTreeMap<String, String>,
    /// The agent that it was written for: the plugin of its task, or the task.
    pub agent: Option<String>,
    /// The tools that it requires.
    pub tools: Vec<String>,
    /// The triggers in a user's message; only for knowledge.
    pub triggers: Vec<String>,
    /// The prompt with placeholders for the inputs; [`render`] fills them.
    pub prompt: String,
    /// Possible mistakes.
    pub warnings: Problems,
    spans: MicroPlaces,
}

/// The positions in the file of the parts that are checked against the config.
#[derive(Clone, Debug, Default, PartialEq)]
struct MicroPlaces {
    agent: Span,
    /// One span for each tool.
    tools: Vec<Span>,
    /// The span of the key.
    triggers: Span,
    inputs: Span,
    outputs: Span,
}

/// Parses a prompt agent's file. `file` is its name, for people.
///
/// # Errors
/// All mistakes of the file, in the order of its lines.
pub fn read(file: &str, text: &str) -> Result<MicroFile, Problems> {
    read_as(file, text, true)
}

/// Parses a file. With `is_prompt`, its text has placeholders for inputs; knowledge is literal
/// text, braces included.
fn read_as(file: &str, text: &str, is_prompt: bool) -> Result<MicroFile, Problems> {
    if text.len() > LARGEST_FILE {
        let source = SourceText::new(file, "");
        let what = format!("the file has {} bytes, and {LARGEST_FILE} are allowed", text.len());
        return Err(Problems(vec![
            source
                .problem(ProblemCode::OutOfRange, &(0..0), what)
                .help("shorten the prompt: what it refers to can be read with a tool"),
        ]));
    }
    let mut reader = MicroReader {
        source: SourceText::new(file, text),
        problems: Problems::default(),
        errors: 0,
        warnings: 0,
    };
    let mut micro = MicroFile::default();
    let Some((front, body)) = split(&mut reader, text) else { return Err(reader.problems) };
    reader.front(&mut micro, &text[front.clone()], front.start);
    micro.prompt = text[body.clone()].trim().to_owned();
    if micro.prompt.is_empty() {
        let what = if is_prompt { "there is no prompt" } else { "there is no text" };
        let help = if is_prompt {
            "write what the agent is to do below the second line of ---"
        } else {
            "write what is to be known below the second line of ---"
        };
        reader.error(
            ProblemCode::MissingKey,
            &(body.start.saturating_sub(1)..body.start),
            what,
            help,
        );
    }
    if is_prompt {
        reader.prompt(&micro, &text[body.clone()], body.start);
    }
    let problems = reader.problems.in_order();
    if problems.has_errors() {
        return Err(problems);
    }
    micro.warnings = problems;
    Ok(micro)
}

impl Config {
    /// The prompt agents' files, each with the name of its task.
    pub fn micro_files(&self) -> impl Iterator<Item = (&TaskName, &ConfigPath)> {
        self.tasks.iter().filter_map(|(name, task)| Some((name, task.micro_file.as_ref()?)))
    }

    /// The knowledge files, each with the name of its task and its index in the list.
    pub fn knowledge_files(&self) -> impl Iterator<Item = (&TaskName, usize, &ConfigPath)> {
        let files =
            self.tasks.iter().map(|(name, task)| (name, task.knowledge_files.iter().enumerate()));
        files.flat_map(|(name, files)| files.map(move |(index, file)| (name, index, file)))
    }

    /// Adds the content of a knowledge file to its task, and returns the warnings.
    ///
    /// # Errors
    /// All mistakes of the file, and a key of it that would have no effect.
    pub fn take_knowledge(
        &mut self,
        name: &TaskName,
        index: usize,
        text: &str,
    ) -> Result<Problems, Problems> {
        let found = self
            .tasks
            .get_mut(name)
            .and_then(|task| task.knowledge_files.get(index).cloned().map(|path| (task, path)));
        let Some((task, path)) = found else { return Ok(Problems::default()) };
        let micro = read_as(&path.display_path, text, false)?;
        let source = SourceText::new(&path.display_path, text);
        let mut problems = Problems::default();
        if micro.triggers.is_empty() {
            let what = "the file has no triggers, so no agent would read it";
            let help = format!(
                "name such words under `triggers`, or put the text into `system` of [tasks.{name}]: its agent reads that in any case"
            );
            problems.push(source.problem(ProblemCode::MissingKey, &(0..3), what).help(help));
        }
        for (fields, key, span) in [
            (&micro.inputs, "inputs", &micro.spans.inputs),
            (&micro.outputs, "outputs", &micro.spans.outputs),
        ] {
            if !fields.is_empty() {
                let what =
                    format!("knowledge cannot have {}: it is read, and does not run", code(key));
                let help = "leave them out, or make the file the prompt of a task of its own (`prompt_agent`), without `triggers`";
                problems.push(source.problem(ProblemCode::Conflict, span, what).help(help));
            }
        }
        check_agent(&source, &micro, name, &task.setup.agent, &mut problems);
        if problems.has_errors() {
            return Err(problems);
        }
        task.wanted_tools.extend(wanted_tools(&source, &micro, name));
        task.setup.knowledge.push(Arc::new(Knowledge {
            file: path.display_path,
            name: micro.name,
            triggers: micro.triggers,
            text: micro.prompt,
        }));
        Ok(micro.warnings)
    }

    /// Adds the content of a prompt agent's file to its task, and returns the warnings. The task's
    /// own keys take precedence.
    ///
    /// # Errors
    /// All mistakes of the file.
    pub fn take_micro(&mut self, name: &TaskName, text: &str) -> Result<Problems, Problems> {
        let Some((task, path)) = self
            .tasks
            .get_mut(name)
            .and_then(|task| task.micro_file.clone().map(|path| (task, path)))
        else {
            return Ok(Problems::default());
        };
        let micro = read(&path.display_path, text)?;
        let source = SourceText::new(&path.display_path, text);
        let mut problems = Problems::default();
        if !micro.triggers.is_empty() {
            let what = "a prompt has no triggers: the agent of the task always reads it";
            let help = format!(
                "name this file under `knowledge` of the task whose agent is to read it when a user says one of these words \
                 (`knowledge = [{}]`), or leave `triggers` out",
                string(&path.display_path)
            );
            problems.push(
                source.problem(ProblemCode::Conflict, &micro.spans.triggers, what).help(help),
            );
        }
        check_agent(&source, &micro, name, &task.setup.agent, &mut problems);
        if problems.has_errors() {
            return Err(problems);
        }
        task.wanted_tools.extend(wanted_tools(&source, &micro, name));
        if task.setup.description.is_empty() {
            task.setup.description = micro.description;
        }
        task.setup.system = micro.prompt.into();
        task.setup.prompt_agent =
            Some(Arc::new(MicroAgent { inputs: micro.inputs, outputs: micro.outputs }));
        Ok(micro.warnings)
    }
}

/// Reports an agent other than the task's.
fn check_agent(
    source: &SourceText,
    micro: &MicroFile,
    task: &TaskName,
    agent: &PluginName,
    problems: &mut Problems,
) {
    let Some(agent_name) = micro
        .agent
        .as_ref()
        .filter(|agent_name| **agent_name != *agent.as_str() && **agent_name != *task.as_str())
    else {
        return;
    };
    let what = format!(
        "the file is for the agent {}, and the agent of [tasks.{task}] is {}",
        code(agent_name),
        code(agent.as_str())
    );
    let help =
        format!("write `agent: {agent}`, or leave `agent` out: the config says who reads the file");
    problems.push(source.problem(ProblemCode::Conflict, &micro.spans.agent, what).help(help));
}

fn wanted_tools(source: &SourceText, micro: &MicroFile, task: &TaskName) -> Vec<WantedTool> {
    let to_wanted_tool = |(name, span): (&String, &Span)| {
        let what = format!(
            "the file wants the tool {}, which the agent of [tasks.{task}] is not offered",
            code(name)
        );
        let help = "grant it to the agent's plugin (`grants.tools`) and name it in the task's `tools` where it has that list, or leave it \
                    out here: a file gives nobody a right";
        WantedTool {
            name: name.clone(),
            missing: source.problem(ProblemCode::UnknownTool, span, what).help(help),
        }
    };
    micro.tools.iter().zip(&micro.spans.tools).map(to_wanted_tool).collect()
}

/// Inserts inputs into a prompt: `{{ inputs.task }}`, `{{ state.inputs.task }}` and `${task}`.
/// Texts are inserted unchanged, other values as JSON. Unknown names stay. Inserted text is not
/// scanned again, so an input cannot refer to another.
#[must_use]
pub fn render(prompt: &str, inputs: &Value) -> String {
    let mut rendered = String::with_capacity(prompt.len());
    let mut rest = 0;
    for place in placeholders(prompt) {
        let Some(value) = place.name.and_then(|name| inputs.get(name)) else { continue };
        rendered.push_str(&prompt[rest..place.span.start]);
        match value {
            Value::String(text) => rendered.push_str(text),
            value => rendered.push_str(&value.to_string()),
        }
        rest = place.span.end;
    }
    rendered.push_str(&prompt[rest..]);
    rendered
}

/// The text after the prompt that describes the required outputs; empty if there are none.
#[must_use]
pub fn outputs_text(outputs: &BTreeMap<String, String>) -> String {
    if outputs.is_empty() {
        return String::new();
    }
    let lines = outputs.iter().map(|(name, meaning)| {
        if meaning.is_empty() { format!("- {name}") } else { format!("- {name}: {meaning}") }
    });
    format!(
        "When you are done, give a JSON object with these keys:\n{}",
        lines.collect::<Vec<_>>().join("\n")
    )
}

/// The error for a model whose outputs are incomplete; `None` if they are complete.
#[must_use]
pub fn missing_outputs(outputs: &BTreeMap<String, String>, values: &Value) -> Option<String> {
    let missing: Vec<_> = outputs
        .keys()
        .filter(|name| values.get(name.as_str()).is_none())
        .map(|name| code(name))
        .collect();
    let text = || format!("The outputs lack {}. {}", missing.join(" and "), outputs_text(outputs));
    (!missing.is_empty()).then(text)
}

/// The error for a caller whose inputs are incomplete; `None` if they are complete.
#[must_use]
pub fn missing_inputs(inputs: &BTreeMap<String, String>, values: &Value) -> Option<String> {
    let missing: Vec<_> = inputs
        .keys()
        .filter(|name| values.get(name.as_str()).is_none())
        .map(|name| code(name))
        .collect();
    (!missing.is_empty()).then(|| format!("The inputs lack {}.", missing.join(" and ")))
}

/// Returns the spans between the lines of `---`, and below them.
fn split(reader: &mut MicroReader, text: &str) -> Option<(Span, Span)> {
    let start = if text.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 };
    let is_fence = |line: &str| line.trim_end() == "---";
    let mut lines = text[start..].split_inclusive('\n');
    let first = lines.next().unwrap_or_default();
    if !is_fence(first) {
        let help = "begin the file with a line of ---, then name, description, inputs and outputs, then a line of ---, then the prompt";
        reader.error(
            ProblemCode::Syntax,
            &(start..start + first.trim_end().len()),
            "the file of a prompt agent begins with a line of ---",
            help,
        );
        return None;
    }
    let front = start + first.len();
    let mut end = front;
    for line in lines {
        if is_fence(line) {
            return Some((front..end, end + line.len()..text.len()));
        }
        end += line.len();
    }
    reader.error(
        ProblemCode::Syntax,
        &(start..start + 3),
        "the head of the file has no end",
        "put a line of --- above the prompt",
    );
    None
}

struct MicroReader {
    source: SourceText,
    problems: Problems,
    errors: usize,
    warnings: usize,
}

impl MicroReader {
    fn error(
        &mut self,
        code: ProblemCode,
        span: &Span,
        what: impl Into<String>,
        help: impl Into<String>,
    ) {
        self.errors += 1;
        if self.errors <= MOST_PROBLEMS {
            self.problems.push(self.source.problem(code, span, what).help(help));
        }
    }

    fn warn(&mut self, span: &Span, what: impl Into<String>, help: impl Into<String>) {
        self.warnings += 1;
        if self.warnings <= MOST_PROBLEMS {
            let problem = self.source.problem(ProblemCode::NoEffect, span, what);
            self.problems.push(problem.help(help).as_warning());
        }
    }

    fn front(&mut self, micro: &mut MicroFile, yaml: &str, base: usize) {
        if yaml.trim().is_empty() {
            return;
        }
        let nodes: Spanned<Node> = match serde_saphyr::from_str_with_options(yaml, options()) {
            Ok(nodes) => nodes,
            Err(error) => {
                let span = error
                    .location()
                    .map_or(base..base + 1, |location| span_of(location, yaml, base));
                let (what, help) = explained(error.without_snippet());
                self.error(ProblemCode::Syntax, &span, what, help);
                return;
            }
        };
        let at = |node: &Spanned<Node>| span_of(node.referenced, yaml, base);
        let Node::Map(entries) = &nodes.value else {
            self.error(
                ProblemCode::WrongType,
                &at(&nodes),
                "keys and values are expected here",
                "write `key: value` on lines of their own",
            );
            return;
        };
        for (key, node) in entries {
            let span = span_of(key.referenced, yaml, base);
            match key.value.as_str() {
                "name" => micro.name = self.text(node, &at(node)),
                "description" => micro.description = self.text(node, &at(node)).unwrap_or_default(),
                "agent" => {
                    micro.agent = self.text(node, &at(node));
                    micro.spans.agent = at(node);
                }
                "inputs" => {
                    micro.inputs = self.fields(node, &at);
                    micro.spans.inputs = span;
                }
                "outputs" => {
                    micro.outputs = self.fields(node, &at);
                    micro.spans.outputs = span;
                }
                "tools" => {
                    (micro.tools, micro.spans.tools) = self.list(node, &at).into_iter().unzip()
                }
                "triggers" => {
                    micro.triggers =
                        self.list(node, &at).into_iter().map(|(trigger, _)| trigger).collect();
                    micro.spans.triggers = span;
                }
                other if IDLE_KEYS.contains(&other) => {}
                "mcp_tools" => {
                    self.error(
                        ProblemCode::Unavailable,
                        &span,
                        "a prompt agent starts no servers",
                        "name them in conclave.toml, and their tools under `tools`",
                    );
                }
                other => {
                    let help = suggest(other, &KEYS, "key").unwrap_or_default();
                    self.error(
                        ProblemCode::UnknownKey,
                        &span,
                        format!("there is no key {}", code(other)),
                        help,
                    );
                }
            }
        }
    }

    fn text(&mut self, node: &Spanned<Node>, span: &Span) -> Option<String> {
        let text = node.value.text();
        if text.is_none() && !matches!(node.value, Node::Null) {
            self.error(
                ProblemCode::WrongType,
                span,
                format!("this is {}, and a text is wanted", node.value.kind()),
                "write a text, between quotes if it has a colon",
            );
        }
        text
    }

    /// Reads texts, each with its span.
    fn list(
        &mut self,
        node: &Spanned<Node>,
        at: &impl Fn(&Spanned<Node>) -> Span,
    ) -> Vec<(String, Span)> {
        let items = match &node.value {
            Node::List(items) => items,
            Node::Null => return Vec::new(),
            other => {
                self.error(
                    ProblemCode::WrongType,
                    &at(node),
                    format!("this is {}, and a list is wanted", other.kind()),
                    "write `[a, b]`, or lines that begin with `- `",
                );
                return Vec::new();
            }
        };
        if self.are_too_many(items.len(), &at(node)) {
            return Vec::new();
        }
        let mut texts = Vec::with_capacity(items.len());
        for item in items {
            let span = at(item);
            match self.text(item, &span) {
                Some(text) if !text.trim().is_empty() => texts.push((text, span)),
                Some(_) => self.error(
                    ProblemCode::InvalidValue,
                    &span,
                    "this is empty",
                    "write a word, or leave the entry out",
                ),
                None => {}
            }
        }
        texts
    }

    /// Reads names with their types or meanings: `task: string`, or a list of `{name, description}`
    /// as in 2025.
    fn fields(
        &mut self,
        node: &Spanned<Node>,
        at: &impl Fn(&Spanned<Node>) -> Span,
    ) -> BTreeMap<String, String> {
        let mut fields = BTreeMap::new();
        let (names, length): (Vec<_>, usize) = match &node.value {
            Node::Map(entries) => (
                entries
                    .iter()
                    .map(|(key, node)| (Some(key.value.clone()), at(node), node))
                    .collect(),
                entries.len(),
            ),
            Node::List(items) => (
                items.iter().map(|item| (item.value.field("name"), at(item), item)).collect(),
                items.len(),
            ),
            Node::Null => return fields,
            other => {
                self.error(
                    ProblemCode::WrongType,
                    &at(node),
                    format!("this is {}, and names are wanted", other.kind()),
                    "write `name: what it is` on lines of their own",
                );
                return fields;
            }
        };
        if self.are_too_many(length, &at(node)) {
            return fields;
        }
        for (name, span, node) in names {
            match name {
                Some(name) if is_name(&name) => {
                    let meaning = self.meaning(node, &span);
                    if fields.insert(name.clone(), meaning).is_some() {
                        self.error(
                            ProblemCode::Duplicate,
                            &span,
                            format!("{} is named twice", code(&name)),
                            "leave one of them out",
                        );
                    }
                }
                Some(name) => {
                    let what = format!("{} cannot be a name", code(&name));
                    self.error(
                        ProblemCode::InvalidName,
                        &span,
                        what,
                        format!(
                            "take letters, digits, `_` and `-`, at most {LONGEST_NAME} of them"
                        ),
                    );
                }
                None => self.error(
                    ProblemCode::MissingKey,
                    &span,
                    "this has no name",
                    "write `name: what it is`",
                ),
            }
        }
        fields
    }

    fn meaning(&mut self, node: &Spanned<Node>, span: &Span) -> String {
        match &node.value {
            Node::Null => String::new(),
            Node::Map(_) => {
                let parts = ["type", "description"].iter().filter_map(|key| node.value.field(key));
                parts.collect::<Vec<_>>().join(": ")
            }
            _ => self.text(node, span).unwrap_or_default(),
        }
    }

    fn are_too_many(&mut self, length: usize, span: &Span) -> bool {
        if length > MOST_ENTRIES {
            self.error(
                ProblemCode::OutOfRange,
                span,
                format!("there are {length} of these, and {MOST_ENTRIES} are allowed"),
                "leave some of them out",
            );
        }
        length > MOST_ENTRIES
    }

    /// Reports the parts of the prompt that are neither plain text nor a placeholder of an input.
    fn prompt(&mut self, micro: &MicroFile, body: &str, base: usize) {
        let mut reported_texts = BTreeSet::new();
        for place in placeholders(body) {
            let span = base + place.span.start..base + place.span.end;
            let raw_text = &body[place.span.clone()];
            match (place.is_block, place.name) {
                (true, _) => {
                    let what =
                        "templates are not run here: blocks and comments of Jinja have no meaning";
                    self.error(
                        ProblemCode::InvalidValue,
                        &span,
                        what,
                        "write the text itself, and `{{ inputs.name }}` where an input belongs",
                    );
                }
                (false, Some(name)) if micro.inputs.contains_key(name) => {}
                (false, name) if reported_texts.insert(raw_text) => {
                    let known: Vec<&str> = micro.inputs.keys().map(String::as_str).collect();
                    let help = match name.and_then(|name| suggest(name, &known, "input")) {
                        Some(help) => help,
                        None => "name it under `inputs`, or leave it if it is text".to_owned(),
                    };
                    self.warn(
                        &span,
                        format!("{} names no input, so it stays as it is", code(raw_text)),
                        help,
                    );
                }
                _ => {}
            }
        }
    }
}

/// Text between braces.
struct Placeholder<'a> {
    span: Span,
    /// The input that it names; `None` if it is something else.
    name: Option<&'a str>,
    is_block: bool,
}

/// The placeholders of a prompt, in order.
fn placeholders(prompt: &str) -> Vec<Placeholder<'_>> {
    let mut placeholders = Vec::new();
    let (mut from, mut endless) = (0, BTreeSet::new());
    while let Some(start) = prompt[from..].find(['{', '$']).map(|found| from + found) {
        let rest = &prompt[start..];
        let (opening, closing) = match rest.as_bytes() {
            [b'{', b'{', ..] => ("{{", "}}"),
            [b'{', b'%', ..] => ("{%", "%}"),
            [b'{', b'#', ..] => ("{#", "#}"),
            [b'$', b'{', ..] => ("${", "}"),
            _ => {
                from = start + 1;
                continue;
            }
        };
        let is_block = matches!(opening, "{%" | "{#");
        let inside = &rest[opening.len()..];
        // A placeholder is on one line; only blocks may be longer. Each missing end is searched
        // once, or many of them would take quadratic time.
        let length = match (is_block, endless.contains(closing)) {
            (true, true) => None,
            (true, false) => inside.find(closing),
            (false, _) => {
                let near = &inside[..inside.floor_char_boundary(LONGEST_PLACE)];
                near.lines().next().unwrap_or_default().find(closing)
            }
        };
        let Some(length) = length else {
            if is_block {
                endless.insert(closing);
            }
            from = start + opening.len();
            continue;
        };
        let end = start + opening.len() + length + closing.len();
        let inner = rest[opening.len()..opening.len() + length].trim();
        let name = match opening {
            "{{" => inner.strip_prefix("state.").unwrap_or(inner).strip_prefix("inputs."),
            "${" => Some(inner),
            _ => None,
        };
        placeholders.push(Placeholder {
            span: start..end,
            name: name.filter(|name| is_name(name)),
            is_block,
        });
        from = end;
    }
    placeholders
}

fn is_name(name: &str) -> bool {
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-');
    (1..=LONGEST_NAME).contains(&name.len()) && name.chars().all(is_letter)
}

fn options() -> serde_saphyr::Options {
    serde_saphyr::options! {
        // Aliases let a small file expand to a large one, and nothing here needs them.
        budget: serde_saphyr::budget! {
            max_depth: MOST_DEPTH, flow_nesting_limit: MOST_DEPTH, max_nodes: MOST_NODES, max_events: 4 * MOST_NODES,
            max_aliases: 0, max_anchors: 0, max_documents: 1, max_total_scalar_bytes: LARGEST_FILE,
        },
        duplicate_keys: DuplicateKeyPolicy::Error,
        merge_keys: MergeKeyPolicy::AsOrdinary,
        with_snippet: false,
    }
}

/// The mistake in the YAML, with its remedy.
fn explained(error: &serde_saphyr::Error) -> (String, &'static str) {
    if matches!(error, serde_saphyr::Error::Budget { .. }) {
        let what =
            "this is too large or too deep, or it refers to itself or begins another document";
        return (
            what.to_owned(),
            "write plain keys and values: no `&anchors`, no `*aliases`, and nothing deeper than inputs and outputs",
        );
    }
    let text = error.render_with_formatter(&serde_saphyr::UserMessageFormatter);
    let first = text.lines().next().unwrap_or_default();
    // Its line is counted from below the first ---.
    let what = first.rsplit_once(" at line ").map_or(first, |(what, _)| what);
    (
        format!("not valid YAML for a prompt agent: {what}"),
        "write `key: value` on lines of their own, and a text with colons or braces between quotes",
    )
}

/// The span in the file; `yaml` begins at `base`.
fn span_of(location: Location, yaml: &str, base: usize) -> Span {
    let (offset, length) = match (location.span().byte_offset(), location.span().byte_len()) {
        (Some(offset), length) => (usize::try_from(offset).unwrap_or_default(), length),
        (None, _) => (offset_of(location, yaml), None),
    };
    let start = base + offset.min(yaml.len());
    let length = length.and_then(|length| usize::try_from(length).ok()).unwrap_or(1).max(1);
    start..(start + length).min(base + yaml.len()).max(start)
}

fn offset_of(location: Location, yaml: &str) -> usize {
    let (line, column) = (location.line().saturating_sub(1), location.column().saturating_sub(1));
    let before = yaml
        .split_inclusive('\n')
        .take(usize::try_from(line).unwrap_or(usize::MAX))
        .map(str::len)
        .sum::<usize>();
    let rest = yaml.get(before..).unwrap_or_default();
    let within = rest
        .char_indices()
        .nth(usize::try_from(column).unwrap_or(usize::MAX))
        .map_or(0, |(offset, _)| offset);
    before + within
}

#[cfg(test)]
mod tests;
