//! A conversation on the whole host: an agent that follows a script of actions, the executors that
//! carry them out, and the observations of both.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use conclave_core::types::outcome::Status;
use conclave_runtime::config::Config;
use conclave_runtime::subscribe::{Published, RunEvent, Subscriber, Subscribers};
use conclave_runtime::{RunInput, RunOptions};
use serde_json::{Value, json};

use crate::Runner;
use crate::case_store::any_journals;
use crate::toml_text::{string, value};

/// The folder of the stock plugins, one level above the guests.
const STOCK_WORKSPACE: &str = "workspace";

/// A plugin with tools that carry out actions.
pub(super) struct Executor {
    name: &'static str,
    /// The name of its component.
    source: String,
    config: Value,
    /// Additional lines of its config table.
    grants: String,
}

impl Executor {
    /// Returns the simulated shell.
    pub(super) fn terminal(first_id: i64, timeout_s: Option<i64>) -> Self {
        let config = json!({ "first_id": first_id, "timeout_s": timeout_s.unwrap_or(120) });
        Self { name: "terminal", source: "stub_terminal".to_owned(), config, grants: String::new() }
    }

    /// Returns the stock workspace over an empty folder.
    pub(super) fn workspace() -> Self {
        Self {
            name: "workspace",
            source: STOCK_WORKSPACE.to_owned(),
            config: json!({}),
            grants: String::new(),
        }
    }

    /// Returns an executor whose `run` never ends.
    pub(super) fn spinning() -> Self {
        Self {
            name: "spin",
            source: "spin".to_owned(),
            config: json!({}),
            grants: "limits = { cpu = \"200 ms\" }\n".to_owned(),
        }
    }

    /// Returns an executor with a tool for each of these kinds, which answers any call.
    pub(super) fn of_tools(kinds: &[Value]) -> Self {
        let tools: Vec<Value> = kinds
            .iter()
            .map(|kind| {
                let effects = json!({ "agent": { "do": "text", "text": "done" } });
                json!({ "name": kind, "description": "", "input_schema": { "type": "object" }, "effects": effects })
            })
            .collect();
        let script = json!({ "tools": tools }).to_string();
        Self {
            name: "tools",
            source: "script_tools".to_owned(),
            config: json!({ "script": script }),
            grants: String::new(),
        }
    }
}

/// A conversation to play.
pub(super) struct Conversation {
    script: Vec<Value>,
    executors: Vec<Executor>,
    /// The task's `confirm`, in TOML.
    confirm: Option<String>,
    /// The behavior of the risk analyzer, if there is one.
    analyzer: Option<String>,
    /// The folder of the workspace.
    folder: PathBuf,
    /// The initial contents of the workspace: a file with these bytes, or a folder for `None`.
    files: Vec<(String, Option<Vec<u8>>)>,
}

impl Conversation {
    pub(super) fn new(script: Vec<Value>, executors: Vec<Executor>) -> Self {
        static FOLDERS: AtomicU64 = AtomicU64::new(0);
        let number = FOLDERS.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir()
            .join(format!("conclave-conformance-{}-{number}", std::process::id()));
        Self { files: Vec::new(), script, executors, confirm: None, analyzer: None, folder }
    }

    /// Adds these initial files to the workspace.
    pub(super) fn with_files(self, files: Vec<(String, Option<Vec<u8>>)>) -> Self {
        Self { files, ..self }
    }

    /// Makes every action wait for consent.
    pub(super) fn confirming(self) -> Self {
        Self { confirm: Some("\"always\"".to_owned()), ..self }
    }

    /// Makes risky actions wait for consent. The analyzer either reports `low` or is broken:
    /// `trap`, `spin`.
    pub(super) fn assessed(self, mode: &str) -> Self {
        let confirm = "{ policy = \"risky\", threshold = \"medium\", unknown = false, analyzer = \"analyzer\" }";
        Self { confirm: Some(confirm.to_owned()), analyzer: Some(mode.to_owned()), ..self }
    }

    fn text(&self, runner: &Runner) -> Result<String, String> {
        let source = |source: &str| {
            let stock = runner
                .folder
                .parent()
                .filter(|_| source == STOCK_WORKSPACE)
                .map(|parent| parent.join("stock"));
            string(
                &stock
                    .as_ref()
                    .unwrap_or(&runner.folder)
                    .join(format!("{source}.wasm"))
                    .to_string_lossy(),
            )
        };
        let table = |name: &str, of: &str, config: &Value, more: &str| {
            let config = value(config).ok_or("a script holds null")?;
            Ok::<String, String>(format!(
                "\n[plugins.{name}]\nsource = {}\nconfig = {config}\n{more}",
                source(of)
            ))
        };
        let mut text = "entry = \"main\"\n".to_owned();
        let names: Vec<String> =
            self.executors.iter().map(|executor| string(executor.name)).collect();
        let tools: Vec<String> =
            self.executors.iter().map(|executor| string(&format!("{}.*", executor.name))).collect();
        let tools = if tools.is_empty() {
            String::new()
        } else {
            format!("grants.tools = [{}]\n", tools.join(", "))
        };
        text += &table("agent", "acting_agent", &json!({ "script": self.script }), &tools)?;
        for Executor { name, source, config, grants } in &self.executors {
            let folder = match source == STOCK_WORKSPACE {
                true => format!(
                    "grants.files = [{{ dir = {}, at = \"/work\", mode = \"read-write\" }}]\n",
                    string(&self.folder.to_string_lossy())
                ),
                false => String::new(),
            };
            // Allow all tools by rule: only the task's `confirm` may ask for consent, not the
            // plugin's capabilities.
            let allowed = format!(
                "[[policy]]\ntool = {}\ndecide = \"allow\"\n",
                string(&format!("{name}.*"))
            );
            text += &table(name, source, config, &(grants.clone() + &folder + &allowed))?;
        }
        if let Some(mode) = &self.analyzer {
            text += &table(
                "analyzer",
                "hostile_analyzer",
                &json!({ "mode": mode }),
                "limits = { cpu = \"200 ms\" }\n",
            )?;
        }
        text += "\n[tasks.main]\nagent = \"agent\"\n";
        if !names.is_empty() {
            text += &format!("action_plugins = [{}]\n", names.join(", "));
        }
        if let Some(confirm) = &self.confirm {
            text += &format!("confirm = {confirm}\n");
        }
        Ok(text)
    }

    /// Plays the conversation to its end.
    ///
    /// # Errors
    /// If the conversation could not be played.
    pub(super) async fn hold(&self, runner: &Runner) -> Result<Told, String> {
        let made = std::fs::create_dir_all(&self.folder).and_then(|()| {
            self.files.iter().try_for_each(|(name, bytes)| {
                let path = self.folder.join(name);
                bytes.as_ref().map_or_else(
                    || std::fs::create_dir_all(&path),
                    |bytes| std::fs::write(&path, bytes),
                )
            })
        });
        made.map_err(|error| format!("{}: {error}", self.folder.display()))?;
        let told = self.play(runner).await;
        // A failure is harmless: the folder is in the system's temporary folder.
        let _ = std::fs::remove_dir_all(&self.folder);
        told
    }

    async fn play(&self, runner: &Runner) -> Result<Told, String> {
        let text = self.text(runner)?;
        let config = Config::parse("conclave.toml", "/", &text)
            .map_err(|problems| format!("the config is refused:\n{problems}"))?;
        let prepared = runner
            .host
            .load(&config)
            .await
            .map_err(|error| format!("the config does not fit:\n{error}"))?;
        let records = Arc::new(Records::default());
        let subscribers = Subscribers::new([
            Arc::clone(&records) as Arc<dyn Subscriber>,
            crate::bound::counter(),
        ]);
        let options =
            RunOptions { subscribers, journals: any_journals()?, ..RunOptions::default() };
        let mut session = prepared.session(options).map_err(|error| error.to_string())?;
        let outcome = session
            .run(RunInput { content: Some("go".to_owned()), ..RunInput::default() })
            .await
            .map_err(|error| error.to_string())?;
        let value = outcome
            .value
            .clone()
            .or_else(|| serde_json::from_str(outcome.content.as_deref()?).ok())
            .unwrap_or_default();
        let records =
            std::mem::take(&mut *records.0.lock().unwrap_or_else(PoisonError::into_inner));
        let ended = format!("it ended as {:?}: {}", outcome.status, outcome.reason);
        Ok(Told {
            status: outcome.status,
            steps: value["steps"].as_array().cloned().unwrap_or_default(),
            records,
            script: self.script.clone(),
            ended,
        })
    }
}

/// Loads every component once, so that no case waits for the compiler.
pub(super) async fn warm_up(runner: &Runner) -> Result<(), String> {
    let executors = vec![
        Executor::terminal(1, None),
        Executor::workspace(),
        Executor::spinning(),
        Executor::of_tools(&[json!("edit")]),
    ];
    let all = Conversation::new(Vec::new(), executors);
    // Loading fails without the workspace's folder.
    std::fs::create_dir_all(&all.folder).map_err(|error| error.to_string())?;
    let folder = all.folder.clone();
    let all = all.assessed("low");
    let config = Config::parse("conclave.toml", "/", &all.text(runner)?)
        .map_err(|problems| format!("the config is refused:\n{problems}"))?;
    let loaded = runner
        .host
        .load(&config)
        .await
        .map(drop)
        .map_err(|error| format!("the config does not fit:\n{error}"));
    let _ = std::fs::remove_dir_all(folder);
    loaded
}

/// The records of a run's journal.
#[derive(Default)]
struct Records(Mutex<Vec<Value>>);

impl Subscriber for Records {
    fn on(&self, happening: &Published) {
        if let RunEvent::Recorded { record } = &happening.what {
            let record = serde_json::to_value(record).unwrap_or_default();
            self.0.lock().unwrap_or_else(PoisonError::into_inner).push(record);
        }
    }
}

/// The agent's observations and the run's journal.
pub(super) struct Told {
    steps: Vec<Value>,
    records: Vec<Value>,
    script: Vec<Value>,
    ended: String,
    pub(super) status: Status,
}

impl Told {
    /// Returns the observation of this action, in the reference's form.
    pub(super) fn observation(&self, action: usize) -> Result<Value, String> {
        let step = self
            .steps
            .get(action + 1)
            .ok_or_else(|| format!("there is no step after action {action}: {}", self.ended))?;
        let since = step["since"].as_array().into_iter().flatten().rev();
        let mut answers =
            since.map(|past| &past["observation"]).filter(|observation| !observation.is_null());
        let answer =
            answers.next().ok_or_else(|| format!("nothing answered action {action}: {step}"))?;
        Ok(formed(answer))
    }

    /// Returns the error that answered the first action, and whether the agent took another step.
    pub(super) fn outlived(&self) -> Result<Value, String> {
        let told = self.observation(0)?;
        Ok(
            json!({ "observation": told["observation"], "content": told["content"], "loop_continues": self.steps.len() > 1 }),
        )
    }

    /// Returns the whole journal as text.
    pub(super) fn stored(&self) -> String {
        Value::from(self.records.clone()).to_string()
    }

    /// Returns the lines that the terminal reports to have run.
    pub(super) fn ran(&self) -> Value {
        self.records
            .iter()
            .rev()
            .find_map(|record| found(record, "ran"))
            .cloned()
            .unwrap_or_default()
    }

    /// Returns the kinds of the actions whose tools have run. In the journal each tool result
    /// follows the step that called it.
    pub(super) fn executed(&self) -> Vec<Value> {
        let (mut steps, mut executed) = (0_usize, Vec::new());
        for record in &self.records {
            match record["event"].as_str() {
                Some("agent-stepped") => steps += 1,
                Some("tool-answered") => executed.extend(
                    steps
                        .checked_sub(1)
                        .and_then(|step| Some(self.script.get(step)?["action"].clone())),
                ),
                _ => {}
            }
        }
        executed
    }
}

fn found<'a>(value: &'a Value, key: &str) -> Option<&'a Value> {
    match value {
        Value::Object(fields) => {
            fields.get(key).or_else(|| fields.values().find_map(|field| found(field, key)))
        }
        Value::Array(items) => items.iter().find_map(|item| found(item, key)),
        _ => None,
    }
}

/// Converts the field names of the acting agent into those of rule O-003.
fn formed(told: &Value) -> Value {
    let named = |name: &str, extras: Value| json!({ "observation": name, "content": told["content"], "extras": extras });
    let has = |key: &str| told.get(key).is_some();
    if has("error") && !has("url") {
        json!({ "observation": "error", "content": told["error"], "extras": {} })
    } else if has("null") {
        json!({ "observation": "null", "content": "", "extras": {} })
    } else if has("command") {
        named(
            "run",
            json!({ "command_id": told["id"], "command": told["command"], "exit_code": told["exit_code"] }),
        )
    } else if has("code") {
        named("run_ipython", json!({ "code": told["code"] }))
    } else if has("url") {
        named(
            "browse",
            json!({ "url": told["url"], "status_code": told["status"], "error": told["error"] }),
        )
    } else if has("path") {
        named("read", json!({ "path": told["path"] }))
    } else if has("written") {
        json!({ "observation": "write", "content": "", "extras": { "path": told["written"] } })
    } else if has("success") {
        json!({ "observation": "success", "content": told["success"], "extras": {} })
    } else if has("memories") {
        json!({ "observation": "recall", "content": "", "extras": { "memories": told["memories"] } })
    } else if told["is_error"] == json!(true) {
        json!({ "observation": "error", "content": told["content"], "extras": {} })
    } else {
        told.clone()
    }
}
