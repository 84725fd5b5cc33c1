//! A strict reader of a spanned TOML tree: it checks keys and types, and collects problems without
//! stopping. Knows TOML and the list of keys, not their meaning.

use serde::de::DeserializeOwned;
use serde_json::Value;
use toml::de::{DeTable, DeValue};

use super::keys::{self, ConfigKey, KEYS, ValueShape};
use super::names::{NAME_MAX, check_name};
use super::problem::{ConfigProblem, SourceText, Span};
use super::problem_code::ProblemCode;
use super::{langroid, mcp};
use crate::types::capability::Capability;
use crate::types::wording::{code, nearest, string, suggest};

/// The collector of problems.
pub(crate) struct ConfigReader {
    pub(crate) source: SourceText,
    pub(crate) problems: Vec<ConfigProblem>,
    /// Missing keys. Dropped if a syntax error may have hidden the keys.
    pub(crate) absences: Vec<ConfigProblem>,
    plugins: DeclaredPlugins,
}

/// The plugins of the config, for lines that help texts propose.
#[derive(Default)]
struct DeclaredPlugins {
    /// Plugins that are granted a model or tools, as agents are.
    agents: Vec<String>,
    others: Vec<String>,
}

impl DeclaredPlugins {
    fn read(entries: &DeTable<'_>) -> Self {
        fn table<'e, 'a>(entries: &'e DeTable<'a>, key: &str) -> Option<&'e DeTable<'a>> {
            entries.get(key)?.get_ref().as_table()
        }
        let is_agent = |plugin: &DeValue<'_>| {
            let grants = plugin.as_table().and_then(|plugin| table(plugin, "grants"));
            let has = |key| grants.is_some_and(|grants| grants.contains_key(key));
            has("model") || has("tools")
        };
        let mut declared = Self::default();
        for (name, plugin) in table(entries, "plugins").into_iter().flatten() {
            let name = name.get_ref();
            if check_name(name).is_ok() {
                let list = match is_agent(plugin.get_ref()) {
                    true => &mut declared.agents,
                    false => &mut declared.others,
                };
                list.push(name.to_string());
            }
        }
        declared
    }

    /// A valid line for the key in the table at `place`. Plugins of the example are replaced
    /// by those of the config, if it has any that fit.
    fn line(&self, key: &ConfigKey, place: &TablePath) -> Option<String> {
        let is_other = |name: &&String| place.header.strip_prefix("plugins.") != Some(name);
        let agent = self.agents.iter().chain(&self.others).next();
        let tools = self.others.iter().chain(&self.agents).find(is_other);
        let mut line = key.example.to_owned();
        if let Some(agent) = agent {
            line = line.replace(&string(keys::EXAMPLE_AGENT), &string(agent));
        }
        if let Some(tools) = tools {
            line = line.replace(&string(keys::EXAMPLE_TOOLS), &string(&format!("{tools}.*")));
        }
        (!line.is_empty()).then(|| format!("write {}", code(&line)))
    }
}

impl ConfigReader {
    pub(crate) fn new(source: SourceText) -> Self {
        let plugins = DeclaredPlugins::default();
        Self { source, problems: Vec::new(), absences: Vec::new(), plugins }
    }

    pub(crate) fn error(
        &mut self,
        code: ProblemCode,
        span: &Span,
        what: impl Into<String>,
        help: impl Into<Option<String>>,
    ) {
        self.problems.push(self.source.problem(code, span, what).maybe_help(help.into()));
    }

    /// Adds an error about a value that may be a secret: the line is not shown.
    pub(crate) fn secret_error(
        &mut self,
        span: &Span,
        what: impl Into<String>,
        help: impl Into<Option<String>>,
    ) {
        let problem = self.source.problem(ProblemCode::PlaintextKey, span, what);
        self.problems.push(problem.maybe_help(help.into()).without_excerpt());
    }

    /// Adds a problem about a missing key, which only counts if the whole file could be parsed.
    pub(crate) fn absence(
        &mut self,
        span: &Span,
        what: impl Into<String>,
        help: impl Into<Option<String>>,
    ) {
        let problem = self.source.problem(ProblemCode::MissingKey, span, what);
        self.absences.push(problem.maybe_help(help.into()));
    }

    /// Adds an error about a feature of a later version.
    pub(crate) fn unavailable(&mut self, span: &Span, what: &str, help: impl Into<Option<String>>) {
        let what = format!("{} is not available in this version", code(what));
        self.error(ProblemCode::Unavailable, span, what, help);
    }
}

/// The position of a table for people: the header and the keys below it.
#[derive(Clone, Debug, Default)]
pub(crate) struct TablePath {
    pub(crate) header: String,
    pub(crate) below: String,
}

impl TablePath {
    /// `in [plugins.search] limits`.
    pub(crate) fn within(&self) -> String {
        match (self.header.as_str(), self.below.as_str()) {
            ("", _) => "at the top level".to_owned(),
            (header, "") => format!("in [{header}]"),
            (header, below) => format!("in [{header}] {below}"),
        }
    }

    /// The name of a key here: `grants.fetch`.
    fn name(&self, key: &str) -> String {
        if self.below.is_empty() { key.to_owned() } else { format!("{}.{key}", self.below) }
    }
}

/// A table whose keys were checked.
#[derive(Clone)]
pub(crate) struct Table<'a> {
    pub(crate) place: TablePath,
    /// The name in the list of keys: `plugins.NAME.limits`.
    kind: &'static str,
    /// The span of the key, or of the value if there is no key.
    pub(crate) span: Span,
    entries: &'a DeTable<'a>,
}

impl<'a> Table<'a> {
    /// Returns the table of the whole file.
    pub(crate) fn root(reader: &mut ConfigReader, entries: &'a DeTable<'a>) -> Self {
        reader.plugins = DeclaredPlugins::read(entries);
        let root = Self { place: TablePath::default(), kind: "", span: 0..0, entries };
        root.check_keys(reader);
        root
    }

    fn check_keys(&self, reader: &mut ConfigReader) {
        for (key, _) in self.entries {
            let name = key.get_ref();
            if !keys::of_table(self.kind).any(|known| known.name == name) {
                let what = format!("unknown key {} {}", code(name), self.place.within());
                reader.error(ProblemCode::UnknownKey, &key.span(), what, self.meant(name));
            }
        }
    }

    /// The known key that an unknown one most likely stands for.
    fn meant(&self, name: &str) -> Option<String> {
        if let Some(help) = langroid::help(name).filter(|_| self.kind == keys::TASK) {
            return Some(help.to_owned());
        }
        let known: Vec<&str> = keys::of_table(self.kind).map(|key| key.name).collect();
        if let Some(near) = nearest(name, known.iter().copied()) {
            return Some(format!("did you mean {}?", code(near)));
        }
        if self.kind == keys::GRANTS && Capability::from_name(name).is_some_and(Capability::is_own)
        {
            return Some(format!("leave it out: every plugin has {}", code(name)));
        }
        // Few configs have a server's program, whose limits have the names of others.
        let is_named = |key: &&ConfigKey| key.name == name;
        let first = KEYS.iter().filter(is_named).find(|key| !mcp::is_of_program(key));
        match first.or_else(|| KEYS.iter().find(is_named)) {
            Some(ConfigKey { table: "", .. }) => Some(format!(
                "{} stands at the top of the file, before the first table",
                code(name)
            )),
            Some(key) => Some(format!("{} stands in {}", code(name), code(key.table))),
            None => suggest(name, &known, "keys here"),
        }
    }

    /// The value of a key of this version; `None` if it is absent.
    pub(crate) fn get(&self, name: &str) -> Option<SpannedValue<'a>> {
        let key = keys::of_table(self.kind).find(|key| key.name == name);
        debug_assert!(key.is_some(), "`{name}` of [{}] is not among the keys", self.kind);
        let key = key?;
        let (written, value) = self.entries.get_key_value(name)?;
        Some(SpannedValue {
            name: self.place.name(name),
            place: self.place.clone(),
            key,
            key_span: written.span(),
            span: value.span(),
            value: value.get_ref(),
        })
    }

    /// Reads a key in the form that the list of keys declares; `None` if it is absent or invalid.
    pub(crate) fn read<T: DeserializeOwned>(
        &self,
        reader: &mut ConfigReader,
        name: &str,
    ) -> Option<T> {
        self.get(name)?.read(reader)
    }

    /// Reads a key into a field that holds the default. The default stays if the key is absent or
    /// invalid.
    pub(crate) fn set<T: DeserializeOwned>(
        &self,
        reader: &mut ConfigReader,
        name: &str,
        field: &mut T,
    ) {
        if let Some(value) = self.read(reader, name) {
            *field = value;
        }
    }

    /// Returns the value of a required key; its absence is a problem.
    pub(crate) fn require(
        &self,
        reader: &mut ConfigReader,
        name: &str,
    ) -> Option<SpannedValue<'a>> {
        let found = self.get(name);
        // The problem of a misspelled key names this one.
        if found.is_none() && !self.is_misspelled(name) {
            let example = keys::of_table(self.kind)
                .find(|key| key.name == name)
                .and_then(|key| reader.plugins.line(key, &self.place));
            reader.absence(
                &self.span,
                format!("{} is missing {}", code(name), self.place.within()),
                example,
            );
        }
        found
    }

    /// Whether an unknown key of the table is most likely this one.
    fn is_misspelled(&self, name: &str) -> bool {
        let known = || keys::of_table(self.kind).map(|key| key.name);
        let mut unknown = self.entries.keys().map(|key| key.get_ref());
        unknown.any(|key| known().all(|name| name != key) && nearest(key, known()) == Some(name))
    }

    /// Returns all tables under names that the operator chooses, such as those of `[plugins]`.
    pub(crate) fn named_tables(
        &self,
        reader: &mut ConfigReader,
        section: &str,
        kind: &'static str,
    ) -> Vec<(&'a str, Span, Table<'a>)> {
        let Some(entries) = self
            .get(section)
            .and_then(|item| item.entries(reader, &format!("tables such as [{section}.x]")))
        else {
            return Vec::new();
        };
        let mut found = Vec::new();
        for (key, value) in entries {
            let name: &'a str = key.get_ref();
            let above: String = [&self.place.header, &self.place.below]
                .into_iter()
                .filter(|part| !part.is_empty())
                .map(|part| format!("{part}."))
                .collect();
            let name_start: String = name.chars().take(NAME_MAX).collect();
            let header = format!("{above}{section}.{name_start}");
            let Some(entries) = value.get_ref().as_table() else {
                let what = format!("{} must be a table", code(&header));
                reader.error(
                    ProblemCode::WrongType,
                    &key.span(),
                    what,
                    format!("write the header `[{header}]`, and its keys below"),
                );
                continue;
            };
            let place = TablePath { header, below: String::new() };
            found.push((name, key.span(), Table { place, kind, span: key.span(), entries }));
        }
        found
    }
}

/// A value with its span.
#[derive(Clone)]
pub(crate) struct SpannedValue<'a> {
    /// The name for people: `grants.tools`, or `grants.tools[0]`.
    pub(crate) name: String,
    place: TablePath,
    key: &'static ConfigKey,
    pub(crate) key_span: Span,
    pub(crate) span: Span,
    pub(crate) value: &'a DeValue<'a>,
}

impl<'a> SpannedValue<'a> {
    /// A valid line for the key.
    pub(crate) fn example(&self, reader: &ConfigReader) -> Option<String> {
        reader.plugins.line(self.key, &self.place)
    }

    /// Reports that the value has another type.
    pub(crate) fn expected(&self, reader: &mut ConfigReader, what: &str) {
        let found = match self.value {
            DeValue::String(_) => "a string",
            DeValue::Integer(_) => "a number",
            DeValue::Float(_) => "a fraction",
            DeValue::Boolean(_) => "true or false",
            DeValue::Datetime(_) => "a date",
            DeValue::Array(_) => "a list",
            DeValue::Table(_) => "a table",
        };
        let example = self.example(reader);
        let what = format!("{} must be {what}, not {found}", code(&self.name));
        reader.error(ProblemCode::WrongType, &self.span, what, example);
    }

    /// Reports that the value has the right type but is invalid.
    pub(crate) fn wrong(
        &self,
        reader: &mut ConfigReader,
        problem: &str,
        help: impl Into<Option<String>>,
    ) {
        self.reject(reader, ProblemCode::InvalidValue, problem, help);
    }

    /// Reports a problem of the value with another cause.
    pub(crate) fn reject(
        &self,
        reader: &mut ConfigReader,
        cause: ProblemCode,
        problem: &str,
        help: impl Into<Option<String>>,
    ) {
        let help = help.into().or_else(|| self.example(reader));
        reader.error(cause, &self.span, format!("{} {problem}", code(&self.name)), help);
    }

    /// Reads the value in the form that the list of keys declares, with its bounds and words.
    pub(crate) fn read<T: DeserializeOwned>(&self, reader: &mut ConfigReader) -> Option<T> {
        let value = self.json_of(&self.key.shape, reader)?;
        Some(serde_json::from_value(value).expect("the form of a key fits its field"))
    }

    fn json_of(&self, shape: &ValueShape, reader: &mut ConfigReader) -> Option<Value> {
        Some(match *shape {
            ValueShape::Text => self.string(reader)?.into(),
            ValueShape::Choice(_) => self.choice(reader)?.into(),
            ValueShape::Flag => self.boolean(reader)?.into(),
            ValueShape::Whole { least, most } => self.whole_number(reader, least, most)?.into(),
            ValueShape::Size { least, most } => self.size(reader, least, most)?.into(),
            ValueShape::Duration { least, most } => self.duration(reader, least, most)?.into(),
            ValueShape::Dollars => self.dollars(reader)?.into(),
            ValueShape::Spending => self.spending(reader)?.into(),
            ValueShape::Factor => self.factor(reader)?.into(),
            ValueShape::List(entry) => {
                let entries = self.list(reader)?;
                entries.iter().filter_map(|item| item.json_of(entry, reader)).collect()
            }
            // One of several forms, and tables, are read where their meaning is known.
            ValueShape::Either(_)
            | ValueShape::Table(_)
            | ValueShape::Named(_)
            | ValueShape::Texts
            | ValueShape::Free => return None,
        })
    }

    pub(crate) fn string(&self, reader: &mut ConfigReader) -> Option<&'a str> {
        if let DeValue::String(text) = self.value {
            return Some(text);
        }
        self.expected(reader, "a string");
        None
    }

    pub(crate) fn boolean(&self, reader: &mut ConfigReader) -> Option<bool> {
        let found = self.value.as_bool();
        if found.is_none() {
            self.expected(reader, "true or false");
        }
        found
    }

    /// Reads a string that is one of the words of its key; otherwise reports the nearest one.
    pub(crate) fn choice(&self, reader: &mut ConfigReader) -> Option<&'static str> {
        let text = self.string(reader)?;
        let known = self.key.shape.words();
        let found = known.iter().find(|known| **known == text).copied();
        if found.is_none() {
            self.wrong(
                reader,
                &format!("cannot be {}", code(text)),
                suggest(text, known, "it can be"),
            );
        }
        found
    }

    /// Returns the entries of a list.
    pub(crate) fn list(&self, reader: &mut ConfigReader) -> Option<Vec<SpannedValue<'a>>> {
        let DeValue::Array(entries) = self.value else {
            self.expected(reader, "a list");
            return None;
        };
        let item = |(index, value): (usize, &'a toml::Spanned<DeValue<'a>>)| SpannedValue {
            name: format!("{}[{index}]", self.name),
            place: self.place.clone(),
            key: self.key,
            key_span: value.span(),
            span: value.span(),
            value: value.get_ref(),
        };
        Some(entries.iter().enumerate().map(item).collect())
    }

    /// Returns the entries of a table whose keys the operator chooses.
    pub(crate) fn members(&self, reader: &mut ConfigReader) -> Vec<(&'a str, SpannedValue<'a>)> {
        let entries = self.entries(reader, "a table").into_iter().flatten();
        let item = |(key, value): (
            &'a toml::Spanned<std::borrow::Cow<'a, str>>,
            &'a toml::Spanned<DeValue<'a>>,
        )| {
            let name: &'a str = key.get_ref();
            let item = SpannedValue {
                name: format!("{}.{name}", self.name),
                place: self.place.clone(),
                key: self.key,
                key_span: key.span(),
                span: value.span(),
                value: value.get_ref(),
            };
            (name, item)
        };
        entries.map(item).collect()
    }

    /// The value under a key of this table, which the operator chose.
    pub(crate) fn below(
        &self,
        key: &toml::Spanned<toml::de::DeString<'a>>,
        value: &'a toml::Spanned<DeValue<'a>>,
    ) -> SpannedValue<'a> {
        let name =
            format!("{}.{}", self.name, key.get_ref().chars().take(NAME_MAX).collect::<String>());
        SpannedValue {
            name,
            key_span: key.span(),
            span: value.span(),
            value: value.get_ref(),
            ..self.clone()
        }
    }

    /// Whether it is a list without entries.
    pub(crate) fn is_empty_list(&self) -> bool {
        self.value.as_array().is_some_and(|entries| entries.is_empty())
    }

    /// Reads a table of this kind and checks its keys.
    pub(crate) fn table(&self, reader: &mut ConfigReader, kind: &'static str) -> Option<Table<'a>> {
        let entries = self.entries(reader, "a table")?;
        let (header, below) = match self.place.header.as_str() {
            "" => (self.name.clone(), String::new()),
            "limits" => (format!("limits.{}", self.name), String::new()),
            header => (header.to_owned(), self.name.clone()),
        };
        let table = Table {
            place: TablePath { header, below },
            kind,
            span: self.key_span.clone(),
            entries,
        };
        table.check_keys(reader);
        Some(table)
    }

    pub(crate) fn entries(&self, reader: &mut ConfigReader, what: &str) -> Option<&'a DeTable<'a>> {
        let found = self.value.as_table();
        if found.is_none() {
            self.expected(reader, what);
        }
        found
    }
}

impl Table<'_> {
    /// Checks the keys of a table of `named_tables`. A separate step, because a table of a later
    /// version is refused as a whole.
    pub(crate) fn checked(self, reader: &mut ConfigReader) -> Self {
        self.check_keys(reader);
        self
    }
}
