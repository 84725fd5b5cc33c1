//! Compares `docs/reference/postgres-schema.md` with the statements that make the tables.

use std::collections::{BTreeMap, BTreeSet};

use crate::place::{Checkout, files_below};

const PAGE: &str = "docs/reference/postgres-schema.md";
const STATEMENTS: &str = "host/runtime/src/storage/store/postgres/schema";

type Columns = BTreeMap<String, BTreeSet<String>>;

/// The tables with their columns, and the functions.
#[derive(Debug, Default, PartialEq, Eq)]
struct Schema {
    columns: Columns,
    functions: BTreeSet<String>,
}

impl Schema {
    fn of_statements(text: &str) -> Self {
        let mut schema = Self::default();
        let mut table: Option<String> = None;
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("CREATE TABLE ") {
                table = Some(word(rest));
                schema.columns.entry(word(rest)).or_default();
            } else if let Some(rest) = line.strip_prefix("DROP TABLE ") {
                schema.columns.remove(&word(rest));
            } else if let Some(rest) = line.strip_prefix("CREATE FUNCTION ") {
                schema.functions.insert(word(rest));
            } else if let Some((name, column)) =
                line.strip_prefix("ALTER TABLE ").and_then(|rest| rest.split_once(" ADD COLUMN "))
            {
                schema.columns.entry(word(name)).or_default().insert(word(column));
            } else if line.starts_with(')') {
                table = None;
            } else if let Some(name) = &table {
                let column = word(line.trim_start());
                if !column.is_empty() {
                    schema.columns.entry(name.clone()).or_default().insert(column);
                }
            }
        }
        schema
    }

    /// A table of the schema is a paragraph that begins with its name, and behind it a table of its
    /// columns, of which a row may name several. Functions are the rows of a table of functions.
    fn of_page(text: &str) -> Self {
        let mut schema = Self::default();
        let mut table = String::new();
        let mut is_of_functions = false;
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("**`") {
                table = word(rest);
                is_of_functions = false;
                schema.columns.entry(table.clone()).or_default();
            } else if line.starts_with("| function |") {
                is_of_functions = true;
            } else if let Some(rest) = line.strip_prefix("| `") {
                let cell = rest.split(" | ").next().unwrap_or_default();
                let names = cell.split(", `").map(word);
                if is_of_functions {
                    schema.functions.extend(names);
                } else {
                    schema.columns.entry(table.clone()).or_default().extend(names);
                }
            }
        }
        schema
    }
}

/// The name at the start of a text; empty if it starts with something else, such as a keyword.
fn word(text: &str) -> String {
    text.chars().take_while(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || *c == '_').collect()
}

#[test]
fn the_page_of_the_schema_names_every_table_column_and_function() {
    let place = Checkout::find().unwrap_or_else(|failure| panic!("{}", failure.text));
    let read = |path: &str| place.read(path).unwrap_or_else(|failure| panic!("{}", failure.text));
    let files = files_below(&place.root.join(STATEMENTS), ".sql");
    let statements: String = files.iter().map(|file| read(&place.relative(file))).collect();
    let (made, documented) = (Schema::of_statements(&statements), Schema::of_page(&read(PAGE)));
    for (table, columns) in &made.columns {
        let known = documented.columns.get(table);
        assert_eq!(known, Some(columns), "{PAGE}, the columns of `{table}`");
    }
    assert_eq!(documented, made, "{PAGE}");
    assert!(made.columns.len() > 10 && made.functions.len() > 3, "{made:?}");
}

#[test]
fn columns_and_tables_of_later_migrations_count() {
    let statements = "CREATE TABLE a (\n    -- Which.\n    x BIGINT NOT NULL,\n    PRIMARY KEY (x)\n) \
                      WITH (fillfactor = 10);\nCREATE INDEX i ON a (x);\nALTER TABLE a ADD COLUMN y TEXT;\n\
                      CREATE TABLE b (\n    x BIGINT\n);\nDROP TABLE b;\n\
                      CREATE FUNCTION f(of_x BIGINT) RETURNS VOID\n";
    let page = "**`a`**: what it is.\n\n| column | meaning |\n|---|---|\n| `x` | which |\n| `y` | a text |\n\n\
                | function | meaning |\n|---|---|\n| `f` | does it |\n";
    assert_eq!(Schema::of_statements(statements), Schema::of_page(page));
    assert_ne!(Schema::of_statements(statements), Schema::of_page(&page.replace("`y`", "`z`")));
}
