//! Conversion of a server's tools to plugin tools: names in our form and short descriptions. Other
//! statements of the server are dropped. No tool refuses its server: one that cannot be served is
//! left out, with a note.

use std::collections::BTreeMap;

use conclave_core::config::ServerTools;
use conclave_core::config::foreign_names::aliases;
use conclave_runtime::servers::ServerNote;
use rmcp::model::Tool;
use serde_json::{Map, Value};

use crate::text::display;

/// Maximum bytes of a description; a longer one is truncated. Its contents are checked later, like
/// those of all plugins.
const DESCRIPTION: usize = 4 << 10;
/// Maximum served tools of one server.
const TOOLS_MAX: usize = 256;
/// Maximum characters of a server's name for a tool in texts.
const NAME: usize = 128;
/// Maximum number of tools that one note names.
const NAMED: usize = 8;

/// The tools as the server lists them.
#[derive(Default)]
pub(super) struct ToolList {
    pub(super) tools: Vec<Tool>,
    /// The number of tools that had one of the server's keys where none can be redacted.
    pub(super) with_key: usize,
    /// The limit at which reading the list ended; `None` if all of it was read.
    pub(super) cut_after: Option<String>,
}

/// An admitted tool.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Admitted {
    /// The name in Conclave.
    pub(super) name: String,
    /// The name at the server.
    pub(super) original: String,
    pub(super) description: String,
    pub(super) schema: Value,
}

/// The tools that are served of a list.
pub(super) struct Admission {
    /// In the order of their names here.
    pub(super) tools: Vec<Admitted>,
    pub(super) notes: Vec<ServerNote>,
    /// Whether tools were left out because there are too many.
    is_cut: bool,
}

impl Admission {
    /// Chooses and names the tools of a list. The first of more than `TOOLS_MAX` are those that the
    /// server lists first.
    pub(super) fn of(plugin: &str, list: &ToolList, choice: &ServerTools) -> Self {
        let mut notes = Vec::new();
        let all = named_tools(plugin, &list.tools, choice, &mut notes);
        let names: Vec<(&str, &str)> =
            all.iter().map(|tool| (tool.own.original.as_str(), tool.own.name.as_str())).collect();
        notes.extend(unmatched(&choice.unmatched(&names), names.len()));
        let chosen = all.iter().filter(|tool| choice.covers(&tool.own.original, &tool.own.name));
        let mut chosen: Vec<&NamedTool> = chosen.collect();
        notes
            .extend(chosen.get(TOOLS_MAX).map(|first| too_many(chosen.len(), &first.own.original)));
        let is_cut = chosen.len() > TOOLS_MAX || list.cut_after.is_some();
        chosen.truncate(TOOLS_MAX);
        notes.extend(list.notes());
        let hashed: Vec<&Admitted> =
            chosen.iter().filter(|tool| tool.is_hashed).map(|tool| &tool.own).collect();
        notes.extend(renamed(plugin, &hashed));
        let mut tools: Vec<Admitted> = chosen.iter().map(|tool| tool.own.clone()).collect();
        tools.sort_by(|a, b| a.name.cmp(&b.name));
        Self { tools, notes, is_cut }
    }

    /// Whether a later list of the same server has the admitted tools, and no others that would be
    /// served. Which tools are the first of too many may differ: the order of a list is not part of
    /// what was admitted.
    pub(super) fn still_holds(&self, plugin: &str, list: &ToolList, choice: &ServerTools) -> bool {
        if !self.is_cut {
            return Self::of(plugin, list, choice).tools == self.tools;
        }
        let listed = named_tools(plugin, &list.tools, choice, &mut Vec::new());
        self.tools.iter().all(|tool| listed.iter().any(|other| other.own == *tool))
    }

    /// Returns why no tool is served.
    pub(super) fn why_empty(&self) -> String {
        if self.notes.is_empty() {
            return "it has no tools".to_owned();
        }
        let notes: Vec<&str> = self.notes.iter().map(|note| note.message.as_str()).collect();
        format!("it has no tools to serve: {}", notes.join("; "))
    }
}

impl ToolList {
    fn notes(&self) -> impl Iterator<Item = ServerNote> {
        let with_key = (self.with_key > 0).then(|| ServerNote {
            message: format!(
                "{} left out: one of the server's keys is a part of its description where only other words can be",
                count(self.with_key, "tool is", "tools are")
            ),
            help: None,
        });
        let cut = self.cut_after.as_ref().map(|limit| ServerNote {
            message: format!(
                "the list of its tools is longer than {limit}; the tools after these are left out"
            ),
            help: None,
        });
        with_key.into_iter().chain(cut)
    }
}

/// A tool with its name here.
struct NamedTool {
    own: Admitted,
    /// Whether the name has a hash.
    is_hashed: bool,
}

/// Names the tools of a list, in its order. Leaves out those without a name and those whose name
/// was listed before.
fn named_tools(
    plugin: &str,
    tools: &[Tool],
    choice: &ServerTools,
    notes: &mut Vec<ServerNote>,
) -> Vec<NamedTool> {
    let is_name = |name: &&str| !name.is_empty();
    let names =
        aliases(plugin, tools.iter().map(|tool| &*tool.name).filter(is_name), &choice.rename);
    let mut named_tools: Vec<NamedTool> = Vec::with_capacity(names.len());
    let mut positions: BTreeMap<&str, usize> = BTreeMap::new();
    let (mut nameless, mut twice) = (0_usize, Vec::new());
    for tool in tools {
        let Some(alias) = names.get(&*tool.name) else {
            nameless += 1;
            continue;
        };
        let own = Admitted::new(&alias.name, tool);
        match positions.get(&*tool.name) {
            None => {
                positions.insert(&tool.name, named_tools.len());
                named_tools.push(NamedTool { own, is_hashed: alias.is_hashed });
            }
            Some(place) => {
                twice.push(tool.name.to_string());
                // The server decides which one a call reaches; the order of its list must not.
                let other = &mut named_tools[*place].own;
                if own.text() < other.text() {
                    *other = own;
                }
            }
        }
    }
    if nameless > 0 {
        let message =
            format!("{} left out: the name is empty", count(nameless, "tool is", "tools are"));
        notes.push(ServerNote { message, help: None });
    }
    if !twice.is_empty() {
        let message = format!("{} listed more than once, and served once", are(&twice));
        notes.push(ServerNote { message, help: None });
    }
    named_tools
}

impl Admitted {
    /// The description begins with the server's name for the tool, if that is another one: texts
    /// of the server use it, and the lock pins it with the description.
    fn new(name: &str, tool: &Tool) -> Self {
        let described = tool.description.as_deref().unwrap_or_default();
        let beginning = |bytes| &described[..described.floor_char_boundary(bytes)];
        let description = match *name == *tool.name {
            true => beginning(DESCRIPTION).to_owned(),
            false => {
                let theirs = format!("({}) ", display(&tool.name, NAME));
                let rest = beginning(DESCRIPTION.saturating_sub(theirs.len()));
                format!("{theirs}{rest}").trim_end().to_owned()
            }
        };
        let schema = schema(&tool.input_schema);
        Self { name: name.to_owned(), original: tool.name.to_string(), description, schema }
    }

    /// The tool's texts, for an order that does not depend on the list.
    fn text(&self) -> (&str, String) {
        (&self.description, self.schema.to_string())
    }
}

fn too_many(chosen: usize, first: &str) -> ServerNote {
    ServerNote {
        message: format!(
            "the first {TOOLS_MAX} of {chosen} tools are served, in the server's order; those from {} on are left out",
            quoted(first)
        ),
        help: Some(
            "choose: `tools = [\"NAME\", \"PREFIX*\"]` in the `mcp` table of its source".to_owned(),
        ),
    }
}

fn unmatched(entries: &[&str], tools: usize) -> Option<ServerNote> {
    let names: Vec<String> = entries.iter().map(|entry| (*entry).to_owned()).collect();
    (!entries.is_empty()).then(|| ServerNote {
        message: format!(
            "{} in `tools` or `rename`, and none of the server's {} called so",
            are(&names),
            count(tools, "tool is", "tools is")
        ),
        help: Some("correct the name, or leave it out".to_owned()),
    })
}

/// The note on tools whose names here have a hash.
fn renamed(plugin: &str, tools: &[&Admitted]) -> Option<ServerNote> {
    let first = tools.first()?;
    let pair = |tool: &&Admitted| format!("{} is `{plugin}.{}`", quoted(&tool.original), tool.name);
    let pairs: Vec<String> = tools.iter().take(NAMED).map(pair).collect();
    Some(ServerNote {
        message: format!(
            "names of tools are other ones here: {}{}",
            pairs.join(", "),
            more(tools.len())
        ),
        help: Some(format!(
            "choose a name: `rename = {{ {} = \"NAME\" }}` in the `mcp` table of its source",
            quoted(&first.original)
        )),
    })
}

/// The names with their verb: `"a" and 3 more are`.
fn are(names: &[String]) -> String {
    let listed: Vec<String> = names.iter().take(NAMED).map(|name| quoted(name)).collect();
    let verb = if names.len() == 1 { "is" } else { "are" };
    format!("{}{} {verb}", listed.join(", "), more(names.len()))
}

/// The server's name for a tool in quotation marks, harmless and short.
fn quoted(name: &str) -> String {
    format!("{:?}", display(name, NAME))
}

fn more(count: usize) -> String {
    match count.saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    }
}

fn count(count: usize, one: &str, several: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { several })
}

/// The schema without `$schema`. Tools only use what the dialects have in common, and a dialect
/// other than ours would be refused.
fn schema(schema: &Map<String, Value>) -> Value {
    let mut schema = schema.clone();
    schema.remove("$schema");
    schema.entry("type").or_insert_with(|| Value::String("object".to_owned()));
    Value::Object(schema)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(names: &[&str]) -> ToolList {
        let tool = |name: &&str| Tool::new((*name).to_owned(), "Does.", Map::new());
        ToolList { tools: names.iter().map(tool).collect(), ..ToolList::default() }
    }

    fn admit(names: &[&str], choice: &ServerTools) -> Admission {
        Admission::of("srv", &list(names), choice)
    }

    fn served(admission: &Admission) -> Vec<(&str, &str)> {
        admission.tools.iter().map(|tool| (tool.name.as_str(), tool.original.as_str())).collect()
    }

    #[test]
    fn a_description_names_the_tool_as_the_server_does() {
        let admission = admit(&["echo", "getSum"], &ServerTools::default());
        let texts: Vec<&str> =
            admission.tools.iter().map(|tool| tool.description.as_str()).collect();
        assert_eq!(texts, ["Does.", "(getSum) Does."]);
        assert!(admission.notes.is_empty(), "letters alone are no news");
    }

    #[test]
    fn a_tool_without_a_name_and_a_second_one_are_left_out() {
        let admission = admit(&["get", "", "get"], &ServerTools::default());
        assert_eq!(served(&admission), [("get", "get")]);
        assert_eq!(admission.notes.len(), 2, "{:?}", admission.notes);
        assert!(admit(&[""], &ServerTools::default()).why_empty().contains("the name is empty"));
    }

    #[test]
    fn the_order_of_a_list_changes_nothing() {
        let names = ["GET", "get", "поиск", "getSum", "get-sum", ""];
        let (mut backward, choice) = (names, ServerTools::default());
        backward.reverse();
        let admission = admit(&names, &choice);
        assert_eq!(admission.tools, admit(&backward, &choice).tools);
        assert!(admission.still_holds("srv", &list(&backward), &choice));
        assert!(!admission.still_holds("srv", &list(&["get"]), &choice));
    }

    #[test]
    fn of_too_many_the_first_are_served_also_after_a_restart() {
        let names: Vec<String> = (0..300).map(|n| format!("t{n}")).collect();
        let mut names: Vec<&str> = names.iter().map(String::as_str).collect();
        let choice = ServerTools::default();
        let admission = admit(&names, &choice);
        assert_eq!(admission.tools.len(), TOOLS_MAX);
        assert!(admission.notes[0].message.contains("from \"t256\" on"), "{:?}", admission.notes);
        names.reverse();
        assert!(admission.still_holds("srv", &list(&names), &choice));
        assert!(!admission.still_holds("srv", &list(&names[200..299]), &choice));
    }

    #[test]
    fn the_operator_chooses_and_renames() {
        let choice = ServerTools {
            chosen: Some(vec!["GET".to_owned(), "list_*".to_owned(), "gone".to_owned()]),
            rename: BTreeMap::from([("GET".to_owned(), "get_upper".to_owned())]),
        };
        let admission = admit(&["GET", "get", "list_a", "list_b"], &choice);
        assert_eq!(
            served(&admission),
            [("get_upper", "GET"), ("list_a", "list_a"), ("list_b", "list_b")]
        );
        let [note] = admission.notes.as_slice() else { panic!("{:?}", admission.notes) };
        assert!(note.message.contains("\"gone\" is in `tools`"), "{note:?}");
    }
}
