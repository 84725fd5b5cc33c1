//! Loads every `toml` block of the documentation, because readers copy them.
//!
//! A block without a label is `conclave.toml`, whole or a part of it. A part is completed with the
//! items that it refers to but omits, such as a task's agent or a plugin named by a rule. It is
//! then loaded like any config: parsed, its components loaded, and checked against their manifests.
//! A label names another file, or the table that contains the keys (`toml [tasks.main]`).

use std::collections::BTreeSet;
use std::path::Path;

use conclave_core::config::Config;
use conclave_core::permissions::manifest::Manifest;
use conclave_core::types::host_tool::HostTool;
use conclave_test_support::{Rig, guest, stock, toml_inline};
use serde_json::{Map, Value, json};

use super::blocks::{Block, blocks};
use super::{read, root};

/// Components that pages name and readers write, each with the guest that replaces it here.
const STRANGERS: [(&str, &str); 8] = [
    ("./weather.wasm", "secret_sender"),
    ("./guard.wasm", "hostile_gate"),
    ("reader.wasm", "agent_caller"),
    ("shout.wasm", "plain_program"),
    ("target/wasm32-wasip2/release/tides.wasm", "weather"),
    ("target/wasm32-wasip2/release/polite.wasm", "strategy_silent"),
    ("slack.wasm", "slack"),
    ("./mail.wasm", "secret_sender"),
];

/// Plugins that pages name by their purpose, each with the stock plugin that replaces it here.
const STAND_INS: [(&str, &str); 7] = [
    ("chat", "chat"),
    ("research", "chat"),
    ("librarian", "chat"),
    ("digest", "chat"),
    ("desk", "chat"),
    ("git", "workspace"),
    ("tickets", "search"),
];

#[test]
fn every_config_in_the_pages_loads() {
    let mut loaded = 0;
    let mut problems = Vec::new();
    for block in blocks("toml") {
        let checked = match block.label() {
            "" => config(&block, &block.text),
            "Cargo.toml" => cargo(&block.text),
            // It runs in the test that builds the page's plugin.
            "conclave.toml" => Config::parse("conclave.toml", "", &block.text)
                .map(drop)
                .map_err(|problems| problems.to_string()),
            "conclave-plugin.toml" => manifest(&block.text),
            "prices.toml" => prices(&block),
            table if table.starts_with('[') => config(&block, &format!("{table}\n{}", block.text)),
            other => Err(format!("no test reads a block of the kind `{other}`")),
        };
        loaded += 1;
        problems.extend(
            checked.err().map(|problem| format!("{}:\n{problem}\n{}", block.place(), block.text)),
        );
    }
    assert!(problems.is_empty(), "\n{}", problems.join("\n"));
    assert!(loaded > 40, "{loaded}");
}

/// Checks that an unknown component, key or value in a block is reported, so that the test above
/// can fail.
#[test]
fn a_config_that_does_not_load_is_found() {
    let block = |text: &str| Block {
        page: "a page".to_owned(),
        line: 1,
        info: "toml".to_owned(),
        text: text.to_owned(),
    };
    for wrong in [
        "[plugins.wait-for-idle]\ncomponent = \"wait-for-idle\"\n",
        "[plugins.desk]\nsource = \"chat\"\n[tasks.desk]\nagent = \"desk\"\n",
        "[tasks.main]\ndeadlines = \"2 min\"\n",
        "[plugins.search]\nsource = \"stock:search\"\ngrants.fetch = [\"http://*\"]\n",
    ] {
        let found = config(&block(wrong), wrong);
        assert!(found.is_err(), "{wrong}");
    }
}

fn config(block: &Block, text: &str) -> Result<(), String> {
    let table: toml::Table = toml::from_str(text).map_err(|error| error.to_string())?;
    let mut value = serde_json::to_value(table).map_err(|error| error.to_string())?;
    let rig = Rig::new()
        .with_file("replies.json", "{\"replies\": [\"Yes.\"]}")
        .with_file("prices.toml", "[\"large-*\"]\ninput = 1.0\noutput = 2.0\n")
        .with_file("token.txt", "a token of the test")
        .with_file("agents/git.md", "---\ntriggers: [git]\n---\nCommit small.\n")
        .with_file("agents/docker.md", "---\ntriggers: [docker]\n---\nImages are pinned.\n")
        .with_file(
            "agents/reviewer.md",
            "---\nname: reviewer\ndescription: Reviews.\n---\nYou review.\n",
        );
    let fields = value.as_object_mut().ok_or("it is no table")?;
    let rig = complete(fields, rig);
    let folder = rig.folder().display().to_string();
    Config::parse("conclave.toml", &folder, &toml_of(fields)).map_err(|found| found.to_string())?;
    // The value that a page takes from the environment was parsed. The test provides it in a file.
    take_from_file(fields);
    // The tools of an MCP server are known only while it runs, and no server runs here.
    if block.text.contains("mcp = {") {
        return Ok(());
    }
    // It is there only with pip, and takes a minute to compile. The tests of `languages` run it.
    if block.text.contains("stock:python") {
        return Ok(());
    }
    let whole = toml_of(fields);
    rig.prepare(&whole).map(drop).map_err(|found| format!("{found}\ncompleted:\n{whole}"))
}

fn toml_of(fields: &Map<String, Value>) -> String {
    fields.iter().map(|(key, value)| format!("{key} = {}\n", toml_inline(value))).collect()
}

fn take_from_file(config: &mut Map<String, Value>) {
    for (kind, key) in [("secrets", "from"), ("models", "key"), ("channels", "secret")] {
        for value in table(config, kind).values_mut() {
            if value[key].get("env").is_some() {
                value[key] = json!({ "file": "token.txt" });
            }
        }
    }
}

/// Adds the items that a part of a config refers to, and creates the files and folders that it
/// names.
fn complete(config: &mut Map<String, Value>, mut rig: Rig) -> Rig {
    let mut named = Named::default();
    named.read(config);
    let entry = named.tasks.iter().next().cloned().unwrap_or_else(|| "main".to_owned());
    named.tasks.insert(entry.clone());
    config.entry("entry").or_insert(json!(entry));
    let tasks = table(config, "tasks");
    for name in &named.tasks {
        let task = tasks.entry(name).or_insert_with(|| json!({}));
        if task.get("agent").is_none() {
            task["agent"] = json!("chat");
            named.plugins.insert("chat".to_owned());
        }
    }
    let plugins = table(config, "plugins");
    if named
        .plugins
        .iter()
        .any(|name| needed_grants(name).iter().any(|(grant, _)| *grant == "tools"))
    {
        named.plugins.insert("search".to_owned());
    }
    for name in &named.plugins {
        let plugin = plugins.entry(name).or_insert_with(|| json!({}));
        // A block that is a whole config must load as shown. Only the omitted items are added.
        let stranger = format!("./{name}.wasm");
        if plugin.get("source").is_none() && STRANGERS.iter().any(|(file, _)| *file == stranger) {
            plugin["source"] = json!(stranger);
        } else if plugin.get("source").is_none() {
            let stock = STAND_INS
                .iter()
                .find(|(called, _)| called == name)
                .map_or(name.as_str(), |(_, stock)| stock);
            plugin["source"] = json!(format!("stock:{stock}"));
            for (grant, value) in needed_grants(stock) {
                let grants = plugin
                    .as_object_mut()
                    .expect("it is a table")
                    .entry("grants")
                    .or_insert_with(|| json!({}));
                grants.as_object_mut().expect("it is a table").entry(grant).or_insert(value);
            }
            if stock == "chat" && !named.tools.is_empty() {
                plugin["grants"]["tools"] = json!(named.tools);
            }
            if stock == "chat" && !named.workers.is_empty() {
                plugin["grants"]["delegate"] = json!(named.workers);
            }
        }
    }
    for name in &named.channels {
        table(config, "channels").entry(name).or_insert_with(|| json!({ "kind": "text" }));
    }
    table(config, "models")
        .entry("default")
        .or_insert_with(|| json!({ "kind": "scripted", "replies": "replies.json" }));
    for plugin in table(config, "plugins").values() {
        let source = plugin["source"].as_str().unwrap_or_default();
        if let Some((file, name)) = STRANGERS.iter().find(|(file, _)| *file == source) {
            rig = rig.with_file(
                file,
                std::fs::read(guest(name)).expect("guests are built before tests"),
            );
        }
        let read = plugin["grants"]["exec"].get("read").and_then(Value::as_array);
        let folders = plugin["grants"]["files"].as_array().into_iter().chain(read);
        for folder in folders.flatten() {
            let folder = folder.get("dir").unwrap_or(folder).as_str().unwrap_or_default();
            std::fs::create_dir_all(rig.folder().join(folder)).expect("a test can make a folder");
        }
    }
    rig
}

/// Returns the grants without which a stock plugin does not load.
fn needed_grants(stock: &str) -> Vec<(&'static str, Value)> {
    match stock {
        "chat" | "micro" | "summary" => vec![("model", json!(["default"]))],
        "immediate" | "wait-for-idle" | "queued" | "digest-delivery" => {
            vec![("channels", json!(["terminal"]))]
        }
        "search" | "workspace" => vec![("files", json!(["docs"]))],
        "notes" => vec![("kv", json!(true))],
        _ => Vec::new(),
    }
}

fn table<'a>(config: &'a mut Map<String, Value>, name: &str) -> &'a mut Map<String, Value> {
    config.entry(name).or_insert_with(|| json!({})).as_object_mut().expect("it is a table")
}

/// The names that a part of a config refers to.
#[derive(Default)]
struct Named {
    tasks: BTreeSet<String>,
    plugins: BTreeSet<String>,
    channels: BTreeSet<String>,
    /// The tasks that `delegate_task` names.
    workers: BTreeSet<String>,
    /// The plugin tools that tasks offer.
    tools: BTreeSet<String>,
}

impl Named {
    fn read(&mut self, config: &Map<String, Value>) {
        let config = Value::Object(config.clone());
        for (name, task) in entries(&config["tasks"]) {
            self.tasks.insert(name.to_owned());
            for key in ["agent", "delivery_strategy", "memory"] {
                self.plugins.extend(text(&task[key]));
            }
            self.plugins.extend(text(&task["condense"]["plugin"]));
            self.plugins.extend(text(&task["confirm"]["analyzer"]));
            self.plugins.extend(texts(&task["action_plugins"]));
            self.tasks.extend(texts(&task["subtasks"]));
            self.tasks.extend(texts(&task["handoff"]).filter(|name| name != "user"));
            self.channels.extend(texts(&task["background"]["channels"]));
            for tool in task["tools"].as_array().into_iter().flatten() {
                self.tasks.extend(text(&tool["task"]));
                self.workers.extend(text(&tool["task"]));
                let tool = tool["tool"].as_str().or(tool.as_str()).unwrap_or_default();
                self.of_tool(tool);
                self.tools.extend(tool.contains('.').then(|| tool.to_owned()));
            }
        }
        for (name, plugin) in entries(&config["plugins"]) {
            self.plugins.insert(name.to_owned());
            let grants = &plugin["grants"];
            let is_host_tool = |name: &String| HostTool::from_name(name).is_some();
            self.tasks.extend(texts(&grants["route"]).filter(|name| !is_host_tool(name)));
            self.tasks.extend(texts(&grants["delegate"]));
            self.tasks.extend(texts(&grants["delegate"]["tasks"]));
            self.channels.extend(texts(&grants["channels"]));
            texts(&grants["tools"]).for_each(|tool| self.of_tool(&tool));
        }
        for rule in config["policy"].as_array().into_iter().flatten() {
            self.of_tool(rule["tool"].as_str().unwrap_or_default());
            self.plugins.extend(text(&rule["caller"]));
        }
        for gate in config["gates"].as_array().into_iter().flatten() {
            self.plugins.extend(text(&gate["plugin"]));
        }
        for (_, channel) in entries(&config["channels"]) {
            self.tasks.extend(texts(&channel["visibility"]));
        }
        self.channels.remove("terminal");
    }

    fn of_tool(&mut self, tool: &str) {
        self.plugins.extend(tool.split_once('.').map(|(plugin, _)| plugin.to_owned()));
    }
}

fn entries(value: &Value) -> impl Iterator<Item = (&str, &Value)> {
    value.as_object().into_iter().flatten().map(|(name, value)| (name.as_str(), value))
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

fn texts(value: &Value) -> impl Iterator<Item = String> {
    value.as_array().into_iter().flatten().filter_map(text)
}

fn manifest(part: &str) -> Result<(), String> {
    let plugin = "[plugin]\nname = \"tides\"\nversion = \"0.1.0\"\ncontract = \"0.1\"\ndescription = \"Tides.\"\nlicense = \"MIT\"\n";
    let whole = if part.contains("[plugin]") { part.to_owned() } else { format!("{plugin}{part}") };
    Manifest::from_toml("conclave-plugin.toml", &whole).map(drop).map_err(|error| error.to_string())
}

/// Checks a part of a `Cargo.toml`: its paths into this repository lead to packages with these
/// names and features.
fn cargo(part: &str) -> Result<(), String> {
    let table: toml::Table = toml::from_str(part).map_err(|error| error.to_string())?;
    let named = table.get("dependencies").or_else(|| table.get("dev-dependencies"));
    let dependencies = named.and_then(toml::Value::as_table).unwrap_or(&table);
    for (name, dependency) in dependencies {
        let Some(path) = dependency.get("path").and_then(toml::Value::as_str) else { continue };
        let path = path
            .strip_prefix("/path/to/conclave/")
            .ok_or_else(|| format!("{name}: {path} is not in this repository"))?;
        let package: toml::Table =
            toml::from_str(&read(&root().join(Path::new(path)).join("Cargo.toml")))
                .map_err(|error| error.to_string())?;
        let found = package["package"]["name"].as_str();
        if found != Some(name.as_str()) {
            return Err(format!("{path} is the package {found:?}, not {name}"));
        }
        for feature in
            dependency.get("features").and_then(toml::Value::as_array).into_iter().flatten()
        {
            let known = package.get("features").and_then(toml::Value::as_table);
            let optional = package["dependencies"].get(feature.as_str().unwrap_or_default());
            if !known.is_some_and(|known| known.contains_key(feature.as_str().unwrap_or_default()))
                && optional.is_none()
            {
                return Err(format!("{name} has no feature {feature:?}"));
            }
        }
    }
    Ok(())
}

fn prices(block: &Block) -> Result<(), String> {
    let rig = Rig::new()
        .with_file("prices.toml", &block.text)
        .with_file("replies.json", "{\"replies\": [\"Yes.\"]}");
    let config = "entry = \"main\"\nprices = \"prices.toml\"\n[models.default]\nkind = \"scripted\"\nreplies = \"replies.json\"\n\
                  [plugins.chat]\nsource = \"stock:chat\"\ngrants.model = [\"default\"]\n[tasks.main]\nagent = \"chat\"\n";
    assert!(stock().is_dir(), "the stock plugins are built before tests");
    rig.prepare(config).map(drop).map_err(|problems| problems.to_string())
}
