//! The child process: a host with several parallel runs. It resumes the existing ones and prints
//! its acknowledgements.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use conclave_runtime::approval::{Approval, ApprovalAnswer, ApprovalRequest};
use conclave_runtime::approve::Approver;
use conclave_runtime::channel::{Channels, HumanAnswer, OutgoingMessage};
use conclave_runtime::clock::{BoxFuture, Clock, SystemClock};
use conclave_runtime::completion::{Completion, ModelError, Prompt, StopReason, TokenUsage};
use conclave_runtime::config::Config;
use conclave_runtime::ids::{ChannelId, Millis, RoomId, TaskName};
use conclave_runtime::kv::Sqlite;
use conclave_runtime::models::{ModelClient, ModelFailure, TextSink};
use conclave_runtime::native::{Call, Failure, Plugin, Tool};
use conclave_runtime::subscribe::{Published, RunEvent, Subscriber, Subscribers};
use conclave_runtime::{
    Host, HostOptions, Prepared, ResumeError, RunInput, RunOptions, fail_points,
};
use serde_json::json;

use crate::kept::{self, Keep, digest};
use crate::talk;

/// A clock that jumps in the middle of the child's life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Clockwork {
    #[default]
    Steady,
    /// One hour back.
    Back,
    /// One day forward.
    Forward,
}

/// The configuration of a child.
#[derive(Clone, Debug)]
pub struct Child {
    /// The child's folder: `kept`, `files`, and the data of plugins.
    pub folder: PathBuf,
    pub guests: PathBuf,
    pub stock: PathBuf,
    pub cache: PathBuf,
    /// The port of the world.
    pub port: u16,
    pub runs: u32,
    pub keep: Keep,
    pub clockwork: Clockwork,
    /// A kill point, and the pass over it (counted from 1) that kills.
    pub kill: Option<(String, u64)>,
}

impl Child {
    /// Returns the arguments that [`of_words`](Self::of_words) parses.
    #[must_use]
    pub fn words(&self) -> String {
        let Self { folder, guests, stock, cache, port, runs, keep, clockwork, kill } = self;
        let kill = kill.clone().unwrap_or_default();
        json!([
            folder,
            guests,
            stock,
            cache,
            port,
            runs,
            keep.word(),
            format!("{clockwork:?}"),
            kill.0,
            kill.1
        ])
        .to_string()
    }

    /// Parses the arguments. `None` if they are malformed.
    #[must_use]
    pub fn of_words(words: &str) -> Option<Self> {
        let (folder, guests, stock, cache, port, runs, keep, clockwork, name, nth): (
            PathBuf,
            PathBuf,
            PathBuf,
            PathBuf,
            u16,
            u32,
            String,
            String,
            String,
            u64,
        ) = serde_json::from_str(words).ok()?;
        let clockwork = match clockwork.as_str() {
            "Back" => Clockwork::Back,
            "Forward" => Clockwork::Forward,
            _ => Clockwork::Steady,
        };
        let kill = (!name.is_empty()).then_some((name, nth));
        Some(Self {
            folder,
            guests,
            stock,
            cache,
            port,
            runs,
            keep: Keep::of_word(&keep)?,
            clockwork,
            kill,
        })
    }

    /// Runs until all runs have ended or the process is killed.
    ///
    /// # Errors
    /// Describes why the child could not start or resume.
    pub fn live(self) -> Result<(), String> {
        // The test harness may have begun a line, so end it first.
        say("");
        if let Some((name, nth)) = &self.kill {
            fail_points::arm(name, *nth);
        }
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        runtime.map_err(|error| error.to_string())?.block_on(self.go_on())
    }

    async fn go_on(self) -> Result<(), String> {
        let store = self.folder.join("kept");
        let (journals, blobs) = self.keep.open(&store)?;
        let begun = kept::read(&store)?.rooms;
        std::fs::create_dir_all(self.folder.join("files")).map_err(|error| error.to_string())?;
        let host = Host::new(HostOptions {
            cache: Some(self.cache.clone()),
            native: vec![
                tool("once", self.port, false),
                tool("many", self.port, true),
                tool("pay", self.port, false),
            ],
            models: [("default".to_owned(), Arc::new(Seller(self.port)) as Arc<dyn ModelClient>)]
                .into(),
            blobs,
            kv: Arc::new(Sqlite::new(self.folder.join("kv.sqlite"))),
            ..HostOptions::default()
        });
        let host = host.map_err(|error| error.to_string())?;
        let config = Config::parse("soak.toml", &self.folder.to_string_lossy(), &self.config())
            .map_err(|problems| problems.to_string())?;
        let prepared = Arc::new(host.load(&config).await.map_err(|error| error.to_string())?);
        say("ready");
        let clock = Arc::new(Jumping { began: Instant::now(), clockwork: self.clockwork });
        let mut running = tokio::task::JoinSet::new();
        for number in 0..self.runs {
            let room = RoomId::from(format!("run{number}"));
            let options = RunOptions {
                ids: Arc::new(room.clone()),
                journals: Arc::clone(&journals),
                subscribers: Subscribers::new([Arc::new(Acknowledges) as Arc<dyn Subscriber>]),
                approver: Arc::new(People(self.port)),
                channels: Arc::new(People(self.port)),
                clock: Arc::clone(&clock) as Arc<dyn Clock>,
                ..RunOptions::default()
            };
            let message =
                json!({ "url": format!("http://127.0.0.1:{}", self.port), "id": room.as_str() })
                    .to_string();
            let has_begun = begun.get(&room).is_some_and(|records| !records.is_empty());
            running.spawn(one(Arc::clone(&prepared), room, options, message, has_begun));
        }
        while let Some(ended) = running.join_next().await {
            ended.map_err(|error| error.to_string())??;
        }
        drop((running, journals, prepared, host));
        say("over");
        Ok(())
    }

    fn config(&self) -> String {
        let world = format!(
            "urls = [\"http://127.0.0.1:{}/*\"], methods = [\"POST\"], private = [\"127.0.0.1\"]",
            self.port
        );
        let guest = |name: &str| self.guests.join(format!("{name}.wasm")).display().to_string();
        let mut text = format!(
            r#"
entry = "main"
[models.default]
kind = "native"
[plugins.busy]
source = "{busy}"
grants.model = ["default"]
grants.tools = ["*"]
grants.fetch = {{ {world} }}
grants.files = [{{ dir = "files", at = "/data", mode = "read-write" }}]
grants.kv = true
grants.delegate = ["child"]
[plugins.probe]
source = "{probe}"
grants.fetch = {{ {world} }}
[plugins.counter]
source = "{counter}"
grants.kv = true
[plugins.strategy]
source = "{strategy}"
grants.channels = ["terminal"]
[tasks.main]
agent = "busy"
[tasks.child]
agent = "busy"
delivery_strategy = "strategy"
[limits.run]
wall = "20 min"
tool_calls = 1_000_000
"#,
            busy = guest("agent_busy"),
            probe = guest("fetch_probe"),
            counter = guest("kv_quota"),
            strategy = self.stock.join("immediate.wasm").display(),
        );
        for name in ["once", "many", "pay"] {
            let _ = writeln!(text, "[plugins.{name}]\nsource = \"native:{name}\"");
        }
        text + "[[policy]]\ntool = \"pay.*\"\ndecide = \"ask\"\n[[policy]]\ntool = \"*\"\ndecide = \"allow\"\n"
    }
}

/// Starts a run or resumes it.
async fn one(
    prepared: Arc<Prepared>,
    room: RoomId,
    options: RunOptions,
    message: String,
    has_begun: bool,
) -> Result<(), String> {
    let outcome = if has_begun {
        let session = prepared.reopen(&room, options).await;
        session
            .map_err(|error: ResumeError| error.to_string())?
            .resume()
            .await
            .map_err(|error| error.to_string())?
    } else {
        match prepared.reopen(&room, options.clone()).await {
            // The journal was created before the kill, but is empty.
            Ok(mut session) => {
                session.run(RunInput::from(message)).await.map_err(|error| error.to_string())?
            }
            Err(ResumeError::Unknown { .. }) => {
                let run =
                    prepared.start(Some(message), options).map_err(|error| error.to_string())?;
                run.outcome().await.map_err(|error| error.to_string())?
            }
            Err(error) => return Err(error.to_string()),
        }
    };
    say(&format!("ended {room} {:?}", outcome.status));
    Ok(())
}

/// Prints the line with a single write, so that a kill cannot leave a partial line.
pub(crate) fn say(line: &str) {
    let _ = std::io::stdout().lock().write_all(format!("{line}\n").as_bytes());
}

/// Acknowledges to the parent each record that was published.
pub(crate) struct Acknowledges;

impl Subscriber for Acknowledges {
    fn on(&self, happening: &Published) {
        if let RunEvent::Recorded { record } = &happening.what {
            say(&format!("ack {} {} {}", happening.room, record.seq, digest(record)));
        }
    }
}

/// Returns a native tool with a side effect in the world.
pub(crate) fn tool(name: &'static str, port: u16, is_idempotent: bool) -> Plugin {
    let schema = json!({ "type": "object", "required": ["id"], "properties": { "id": { "type": "string" } } });
    let tool =
        Tool::new("do", "Does something to the world.", schema, move |call: Call| async move {
            let id = call.arguments["id"].as_str().unwrap_or_default().to_owned();
            let answer = talk::post(port, &format!("/effect/{id}"), "").await;
            answer.map(|_| format!("ok {id}")).map_err(|error| Failure::new(error.to_string()))
        });
    Plugin::tools(name, [if is_idempotent { tool.idempotent() } else { tool }])
}

/// A model that buys its replies from the world.
pub(crate) struct Seller(pub(crate) u16);

impl ModelClient for Seller {
    fn complete(
        &self,
        prompt: Prompt,
        sink: Arc<dyn TextSink>,
    ) -> BoxFuture<'static, Result<Completion, ModelFailure>> {
        let port = self.0;
        Box::pin(async move {
            let key = Path::new("/model").join(key(&prompt)).display().to_string();
            let id = talk::post(port, &key, "")
                .await
                .map_err(|error| ModelError::Other { message: error.to_string() })?;
            sink.text("said");
            let usage = TokenUsage { input_tokens: 7, output_tokens: 3, ..TokenUsage::default() };
            let (content, model) = (Some(format!("said {id}")), "soak".to_owned());
            Ok(Completion {
                id,
                content,
                reasoning: None,
                tool_calls: Vec::new(),
                stop: StopReason::End,
                usage,
                model,
            })
        })
    }
}

/// Returns the key of a request. It begins with the run's name, so no two requests of a round share
/// a prompt.
fn key(prompt: &Prompt) -> String {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    format!("{prompt:?}").hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

/// The users and approvers. The world determines the duration of each answer.
struct People(u16);

impl Approver for People {
    fn decide(&self, request: ApprovalRequest) -> BoxFuture<'static, ApprovalAnswer> {
        let port = self.0;
        Box::pin(async move {
            ApprovalAnswer::from(
                match talk::post(port, "/approve/", &format!("{request:?}")).await {
                    Ok(_) => Approval::Approved,
                    Err(error) => Approval::Refused { reason: error.to_string() },
                },
            )
        })
    }
}

impl Channels for People {
    fn ask(&self, _: ChannelId, _: TaskName, _: String) -> BoxFuture<'static, Option<HumanAnswer>> {
        Box::pin(std::future::ready(None))
    }

    fn send(&self, message: OutgoingMessage) -> BoxFuture<'static, Result<(), String>> {
        let text = message.text;
        let port = self.0;
        Box::pin(async move {
            talk::post(port, "/speak/", &text).await.map(drop).map_err(|error| error.to_string())
        })
    }
}

/// The machine's clock, until it jumps.
struct Jumping {
    began: Instant,
    clockwork: Clockwork,
}

/// The time from the start to the jump.
const JUMP: Duration = Duration::from_millis(150);

impl Clock for Jumping {
    fn now(&self) -> Millis {
        let now = SystemClock.now();
        match self.clockwork {
            Clockwork::Back if self.began.elapsed() > JUMP => {
                Millis(now.0.saturating_sub(3_600_000))
            }
            Clockwork::Forward if self.began.elapsed() > JUMP => now.plus(86_400_000),
            _ => now,
        }
    }

    fn sleep_until(&self, at: Millis) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(Duration::from_millis(at.since(self.now()))))
    }
}
