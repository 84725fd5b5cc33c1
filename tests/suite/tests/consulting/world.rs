//! A host with scripted models, an approver, and an agent that follows a script of actions.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use conclave_core::config::Config;
use conclave_core::protocol::event::Record;
use conclave_core::protocol::notice::Notice;
use conclave_core::types::approval::{Approval, ApprovalAnswer, ApprovalRequest};
use conclave_core::types::ids::RoomId;
use conclave_core::types::message::Message;
use conclave_core::types::outcome::Outcome;
use conclave_runtime::approve::Approver;
use conclave_runtime::clock::BoxFuture;
use conclave_runtime::completion::{Completion, Prompt, PromptPiece, StopReason, TokenUsage};
use conclave_runtime::engine::EngineSettings;
use conclave_runtime::journal::{Journals, MemoryJournals};
use conclave_runtime::models::{ModelClient, ModelFailure, TextSink};
use conclave_runtime::subscribe::{Published, RunEvent, Subscriber, Subscribers};
use conclave_runtime::{Host, HostOptions, Prepared, RunOptions};
use conclave_test_support::{cache, guest, stock};
use serde_json::Value;
use tokio::sync::Semaphore;

/// Returns a model's answer to its nth prompt.
type Says = dyn Fn(usize, &[Message]) -> Completion + Send + Sync;

/// A model with scripted answers, which stores its prompts.
pub(super) struct Scripted {
    says: Box<Says>,
    shown: Mutex<Vec<Vec<Message>>>,
    /// Each answer waits for one of these permits.
    open: Arc<Semaphore>,
}

impl Scripted {
    pub(super) fn new(
        says: impl Fn(usize, &[Message]) -> Completion + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self {
            says: Box::new(says),
            shown: Mutex::default(),
            open: Arc::new(Semaphore::new(Semaphore::MAX_PERMITS / 2)),
        })
    }

    /// Returns a model that answers only when the test permits it.
    pub(super) fn slow(
        says: impl Fn(usize, &[Message]) -> Completion + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self {
            says: Box::new(says),
            shown: Mutex::default(),
            open: Arc::new(Semaphore::new(0)),
        })
    }

    pub(super) fn answer_all(&self) {
        self.open.add_permits(Semaphore::MAX_PERMITS / 2);
    }

    /// Returns the entries of every prompt in order. Drafts are messages of their responders.
    pub(super) fn shown(&self) -> Vec<Vec<Message>> {
        lock(&self.shown).clone()
    }
}

impl ModelClient for Scripted {
    fn complete(
        &self,
        prompt: Prompt,
        _: Arc<dyn TextSink>,
    ) -> BoxFuture<'static, Result<Completion, ModelFailure>> {
        let entries = entries(&prompt);
        let mut shown = lock(&self.shown);
        let completion = (self.says)(shown.len(), &entries);
        shown.push(entries);
        let open = Arc::clone(&self.open);
        Box::pin(async move {
            drop(open.acquire().await);
            Ok(completion)
        })
    }
}

fn entries(prompt: &Prompt) -> Vec<Message> {
    let mut entries = Vec::new();
    for piece in &prompt.pieces {
        match piece {
            PromptPiece::System { .. } => {}
            PromptPiece::History { messages, start, end } => {
                entries.extend((*start..*end).filter_map(|place| {
                    messages.get(place).map(|message| Message::clone(message))
                }));
            }
            PromptPiece::Draft { draft } => {
                let mut message = Message::new(u64::MAX, draft.role, "draft");
                message.content = Some(draft.content.clone());
                entries.push(message);
            }
        }
    }
    entries
}

/// Returns a completion with this text and no tool call.
pub(super) fn says(text: &str) -> Completion {
    let (id, model, usage) = ("1".to_owned(), "scripted".to_owned(), TokenUsage::default());
    Completion {
        id,
        content: Some(text.to_owned()),
        reasoning: None,
        tool_calls: Vec::new(),
        stop: StopReason::End,
        usage,
        model,
    }
}

/// An approver with scripted decisions, which stores its requests.
pub(super) struct Decides {
    decide: Box<dyn Fn(&ApprovalRequest) -> Approval + Send + Sync>,
    asked: Mutex<Vec<ApprovalRequest>>,
}

impl Approver for Decides {
    fn decide(&self, request: ApprovalRequest) -> BoxFuture<'static, ApprovalAnswer> {
        let approval = (self.decide)(&request);
        lock(&self.asked).push(request);
        Box::pin(std::future::ready(approval.into()))
    }
}

#[derive(Default)]
struct Told(Mutex<Vec<Notice>>);

impl Subscriber for Told {
    fn on(&self, happening: &Published) {
        if let RunEvent::Notice { notice: told } = &happening.what {
            lock(&self.0).push(told.clone());
        }
    }
}

/// A host for one test.
pub(super) struct World {
    host: Host,
    folder: tempfile::TempDir,
    told: Arc<Told>,
    approver: Arc<Decides>,
    /// The journals of the newest run.
    journals: Mutex<MemoryJournals>,
}

impl World {
    pub(super) fn new() -> Self {
        Self::with(EngineSettings::default(), Vec::new())
    }

    pub(super) fn with(engine: EngineSettings, models: Vec<(&str, &Arc<Scripted>)>) -> Self {
        let cache = Some(cache());
        let models = models
            .into_iter()
            .map(|(name, model)| (name.to_owned(), Arc::clone(model) as Arc<dyn ModelClient>))
            .collect();
        let host = Host::new(HostOptions { cache, models, engine, ..HostOptions::default() })
            .expect("the engine starts");
        let folder = tempfile::tempdir().expect("a test can make a folder");
        std::fs::create_dir(folder.path().join("box")).expect("a test can make a folder");
        let refuses =
            |_: &ApprovalRequest| Approval::Refused { reason: "no user can approve it".to_owned() };
        let approver = Arc::new(Decides { decide: Box::new(refuses), asked: Mutex::default() });
        Self { host, folder, told: Arc::default(), approver, journals: Mutex::default() }
    }

    /// Creates a world with this approver. The folder belongs to the world.
    pub(super) fn deciding(
        mut self,
        decide: impl Fn(&ApprovalRequest, &Path) -> Approval + Send + Sync + 'static,
    ) -> Self {
        let folder = self.folder.path().join("box");
        self.approver = Arc::new(Decides {
            decide: Box::new(move |request| decide(request, &folder)),
            asked: Mutex::default(),
        });
        self
    }

    pub(super) fn host(&self) -> &Host {
        &self.host
    }

    /// Returns the content of a file in the granted folder.
    pub(super) fn file(&self, name: &str) -> Option<String> {
        std::fs::read_to_string(self.folder.path().join("box").join(name)).ok()
    }

    /// Writes a file to the granted folder.
    pub(super) fn put(&self, name: &str, content: &str) {
        std::fs::write(self.folder.path().join("box").join(name), content)
            .expect("a test can write a file");
    }

    pub(super) fn asked(&self) -> Vec<ApprovalRequest> {
        lock(&self.approver.asked).clone()
    }

    pub(super) fn told(&self) -> Vec<Notice> {
        lock(&self.told.0).clone()
    }

    pub(super) async fn prepare(&self, config: &str) -> Prepared {
        let folder = self.folder.path().to_string_lossy().into_owned();
        let config = Config::parse("conclave.toml", &folder, config)
            .unwrap_or_else(|problems| panic!("{problems}\n{config}"));
        let prepared =
            self.host.prepare(&config, &(Arc::new(|_| {}) as conclave_runtime::Follow)).await;
        prepared.unwrap_or_else(|problems| panic!("{problems}"))
    }

    pub(super) fn options(&self, journals: Arc<dyn Journals>) -> RunOptions {
        RunOptions {
            ids: Arc::new(RoomId::from("test")),
            journals,
            approver: Arc::clone(&self.approver) as Arc<dyn Approver>,
            subscribers: Subscribers::new([Arc::clone(&self.told) as Arc<dyn Subscriber>]),
            ..RunOptions::default()
        }
    }

    pub(super) async fn run(&self, config: &str, message: &str) -> Outcome {
        let journals = MemoryJournals::default();
        *lock(&self.journals) = journals.clone();
        let options = self.options(Arc::new(journals));
        let run = self
            .prepare(config)
            .await
            .start(Some(message.to_owned()), options)
            .expect("a journal in memory opens");
        Outcome::clone(&run.outcome().await.expect("a journal in memory holds"))
    }

    pub(super) fn records(&self) -> Vec<Arc<Record>> {
        lock(&self.journals).records(&RoomId::from("test"))
    }
}

/// Returns the config of an agent that follows a script. `task` contains additional lines of its
/// task, `rest` other tables.
pub(super) fn acting(script: &Value, grants: &str, task: &str, rest: &str) -> String {
    format!(
        "entry = \"main\"\n[tasks.main]\nagent = \"actor\"\n{task}\n[plugins.actor]\nsource = \"{}\"\n{grants}\nconfig = {{ script = {} }}\n{rest}",
        guest("acting_agent").display(),
        inline(script)
    )
}

/// Returns the config table of a stock plugin.
pub(super) fn stocked(name: &str, lines: &str) -> String {
    format!(
        "[plugins.{name}]\nsource = \"{}\"\n{lines}\n",
        stock().join(format!("{name}.wasm")).display()
    )
}

/// Returns the config table of a test guest under another name.
pub(super) fn hostile(guest: &str, name: &str, lines: &str) -> String {
    format!(
        "[plugins.{name}]\nsource = \"{}\"\n{lines}\n",
        conclave_test_support::guest(guest).display()
    )
}

/// Converts a JSON value into an inline TOML value.
pub(super) fn inline(value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            let fields: Vec<String> = fields
                .iter()
                .map(|(key, value)| format!("{} = {}", Value::from(key.as_str()), inline(value)))
                .collect();
            format!("{{ {} }}", fields.join(", "))
        }
        Value::Array(items) => {
            format!("[{}]", items.iter().map(inline).collect::<Vec<_>>().join(", "))
        }
        other => other.to_string(),
    }
}

/// Returns the input of each step of the scripted agent.
pub(super) fn steps(outcome: &Outcome) -> Vec<Value> {
    let told =
        outcome.value.clone().or_else(|| serde_json::from_str(outcome.content.as_deref()?).ok());
    let steps = told.as_ref().and_then(|told| told["steps"].as_array().cloned());
    steps.unwrap_or_else(|| panic!("the script did not come to its end: {outcome:?}"))
}

/// Returns the newest entry in the input of that step.
pub(super) fn seen(steps: &[Value], step: usize) -> Value {
    steps[step]["since"]
        .as_array()
        .and_then(|since| since.last())
        .map(|past| past["observation"].clone())
        .unwrap_or_default()
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
