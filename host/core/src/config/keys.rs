//! Every key of conclave.toml, with a line of documentation: the reader accepts exactly these, so the list is complete by construction.
//! A JSON schema and the operator's manual can be made from it.

/// A key that this or a later version knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// The table that it stands in; `NAME` is any name, `[]` an entry of a list. Empty: the top level.
    pub table: &'static str,
    pub name: &'static str,
    /// A line that could be written; empty for a table, and for keys of later versions.
    pub example: &'static str,
    /// One sentence.
    pub doc: &'static str,
    /// This version reads it. The others are refused by name, never ignored.
    pub available: bool,
}

const fn key(table: &'static str, name: &'static str, example: &'static str, doc: &'static str) -> Key {
    Key { table, name, example, doc, available: true }
}

const fn later(table: &'static str, name: &'static str, doc: &'static str) -> Key {
    Key { table, name, example: "", doc, available: false }
}

const PLUGIN: &str = "plugins.NAME";
/// Where grants stand.
pub(crate) const GRANTS: &str = "plugins.NAME.grants";
const TOOLS: &str = "plugins.NAME.grants.tools";
const MODEL: &str = "plugins.NAME.grants.model";
const DELEGATE: &str = "plugins.NAME.grants.delegate";
const FILES: &str = "plugins.NAME.grants.files[]";
const ROOMS: &str = "plugins.NAME.grants.rooms";
const LIMITS: &str = "plugins.NAME.limits";
const TASK: &str = "tasks.NAME";
const RUN: &str = "limits.run";

/// All keys, in the order in which a manual would explain them.
pub const KEYS: &[Key] = &[
    key("", "entry", r#"entry = "desk""#, "The task that gets the message."),
    key("", "models", "", "Models, each under a name of its own; `default` is meant when none is named."),
    key("", "plugins", "", "Plugins, each under a name of its own; what is not listed is not loaded."),
    key("", "tasks", "", "Tasks, each under a name of its own: who works, with what, who comes next."),
    key("", "limits", "", "Hard stops."),
    later("", "policy", "Which tool calls a person must approve."),
    key("models.NAME", "kind", r#"kind = "scripted""#, "How the model is reached; `scripted` reads its replies from a file."),
    key("models.NAME", "replies", r#"replies = "replies.json""#, "The file of a scripted model's replies, from the config's folder."),
    key("models.NAME", "input_price", "input_price = 0.25", "US dollars for a million tokens of input."),
    key("models.NAME", "output_price", "output_price = 2.00", "US dollars for a million tokens of output."),
    later("models.NAME", "url", "Where a model server listens."),
    later("models.NAME", "model", "The model's name at its server."),
    later("models.NAME", "key", "Where the host finds the key of a model server."),
    key(PLUGIN, "source", r#"source = "./x.wasm""#, "`stock:` and a name, or the path of a .wasm file from the config's folder."),
    key(PLUGIN, "grants", r#"grants.tools = ["search.*"]"#, "What the plugin may touch; what is not listed is not allowed."),
    key(PLUGIN, "limits", r#"limits = { memory = "64 MiB" }"#, "What one call of the plugin may use up."),
    key(PLUGIN, "config", r#"config = { units = "celsius" }"#, "The plugin's own settings."),
    key(GRANTS, "tools", r#"grants.tools = ["search.*"]"#, "The tools that an agent may call."),
    key(GRANTS, "model", r#"grants.model = ["default"]"#, "The models that it may ask."),
    key(GRANTS, "delegate", r#"grants.delegate = ["digest"]"#, "The tasks that it may start in the background."),
    key(GRANTS, "route", r#"grants.route = ["answer"]"#, "Whom it may address: tasks, `user`, orchestration tools."),
    key(GRANTS, "files", r#"grants.files = [{ dir = "docs", at = "/docs", mode = "read" }]"#, "The directories that it may read."),
    key(GRANTS, "rooms", r#"grants.rooms = ["terminal"]"#, "The channels that a delivery strategy may speak on."),
    later(GRANTS, "fetch", "The addresses that it may reach."),
    later(GRANTS, "kv", "A private store."),
    later(GRANTS, "secrets", "Secrets that the host puts in for it."),
    later(GRANTS, "exec", "Programs that it may run."),
    later(GRANTS, "blobs", "Attachments that it may keep."),
    key(TOOLS, "names", r#"names = ["search.*"]"#, "`plugin.tool`, `plugin.*` or `*`."),
    key(TOOLS, "calls", "calls = 20", "Calls in the whole run."),
    key(MODEL, "names", r#"names = ["default"]"#, "Names of models."),
    key(MODEL, "tokens", "tokens = 50_000", "Tokens in the whole run, input and output."),
    key(MODEL, "cost_usd", "cost_usd = 0.20", "US dollars in the whole run."),
    key(MODEL, "calls", "calls = 20", "Completions in the whole run."),
    key(DELEGATE, "tasks", r#"tasks = ["digest"]"#, "Names of tasks."),
    key(DELEGATE, "at_once", "at_once = 1", "How many may run at the same time; 1 when it is not given."),
    key(DELEGATE, "total", "total = 8", "How many in the whole run; 8 when it is not given."),
    key(FILES, "dir", r#"dir = "docs""#, "The directory, from the config's folder."),
    key(FILES, "at", r#"at = "/docs""#, "Where the plugin sees it: `/` and one name."),
    key(FILES, "mode", r#"mode = "read""#, "How it may be used."),
    later(FILES, "bytes", "Bytes that may be written."),
    later(FILES, "files", "Files that may be made."),
    key(ROOMS, "channels", r#"channels = ["terminal"]"#, "Names of channels."),
    key(ROOMS, "messages", "messages = 5", "Messages in the whole run."),
    key(LIMITS, "memory", r#"memory = "64 MiB""#, "All memories together, from 64 KiB to 1 GiB."),
    key(LIMITS, "cpu", r#"cpu = "500 ms""#, "Computing in one call; counted in ticks of 10 ms."),
    key(LIMITS, "wall", r#"wall = "2 s""#, "One call, waiting included."),
    key(LIMITS, "output", r#"output = "256 KiB""#, "What crosses to the host in one host call or answer."),
    key(LIMITS, "log", r#"log = "64 KiB""#, "Log lines and progress in one call."),
    key(LIMITS, "host_calls", "host_calls = 100_000", "Calls of host functions in one call."),
    key(LIMITS, "handles", "handles = 256", "Resources of the host held at once."),
    key(LIMITS, "read", r#"read = "64 MiB""#, "What one call may read from files."),
    key(LIMITS, "scratch", r#"scratch = "64 KiB""#, "What it may remember from call to call."),
    key(LIMITS, "at_once", "at_once = 32", "Calls into the plugin under way at once."),
    key(TASK, "agent", r#"agent = "librarian""#, "The plugin that does the work."),
    key(TASK, "description", r#"description = "Answers from the library.""#, "For people, and for agents that may hand work to it."),
    key(TASK, "system", r#"system = "You are a librarian.""#, "The system message of its agent."),
    key(TASK, "subtasks", r#"subtasks = ["answer"]"#, "Tasks that are tried in this order."),
    key(TASK, "tools", r#"tools = ["search.find"]"#, "Narrows what its agent was granted; all of it when it is not given."),
    key(TASK, "deliver", r#"deliver = "immediate""#, "The plugin that delivers its result when it ran in the background."),
    key(TASK, "interactive", "interactive = true", "The user is asked after each step of somebody else."),
    key(TASK, "turns", "turns = 10", "Steps of one activation."),
    key(TASK, "max_stalled_steps", "max_stalled_steps = 5", "Steps without a valid answer before it ends; 5 when it is not given."),
    key(TASK, "done_if_response", r#"done_if_response = ["llm"]"#, "An answer of one of these seats ends it: llm, agent, user."),
    key(TASK, "done_if_no_response", r#"done_if_no_response = ["user"]"#, "No answer of one of these seats ends it: llm, agent, user."),
    key(TASK, "handle_llm_no_tool", r#"handle_llm_no_tool = "done""#, "What becomes of an agent's message without a tool call."),
    key(TASK, "agent_seat", r#"agent_seat = "host-then-component""#, "Who answers on the agent seat."),
    key(TASK, "allow_null_result", "allow_null_result = true", "Without a valid answer the other side says that it does not know."),
    key("tasks.NAME.handle_llm_no_tool", "nudge", r#"nudge = "Call a tool.""#, "This text goes back to the agent."),
    key("limits", "run", r#"run = { wall = "5 min" }"#, "Hard stops of the whole tree of tasks."),
    key(RUN, "wall", r#"wall = "5 min""#, "Time from the first message."),
    key(RUN, "turns", "turns = 40", "Steps of agents."),
    key(RUN, "tokens", "tokens = 100_000", "Tokens of all models, input and output."),
    key(RUN, "cost_usd", "cost_usd = 0.50", "US dollars of all models whose price is known."),
    key(RUN, "depth", "depth = 3", "Background tasks within background tasks."),
];

/// The keys of one table.
pub(crate) fn of_table(table: &str) -> impl Iterator<Item = &'static Key> {
    KEYS.iter().filter(move |key| key.table == table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_listed_once_with_an_example_that_is_toml() {
        for (index, key) in KEYS.iter().enumerate() {
            assert!(!KEYS[..index].iter().any(|other| (other.table, other.name) == (key.table, key.name)), "{key:?}");
            assert!(key.doc.ends_with('.'), "{key:?}");
            let parsed = toml::de::DeTable::parse(key.example).map(|table| table.get_ref().len());
            assert!(parsed == Ok(usize::from(!key.example.is_empty())), "{key:?}");
        }
    }
}
