//! Native tests of plugins: a host that grants what a test says, and the task that an agent, a
//! responder, an analyzer, a condenser, a judge or a simulated user reads.

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use serde_json::{Value, json};

use crate::bindings::agent::conclave::plugin::state::{
    PastAction, Peer, RemainingBudgets, RunMetrics, ToolSummary,
};
use crate::channel::Proof;
use crate::delivery::{EndedTask, TaskStatus};
use crate::fetch::Header;
use crate::judge::{Answer, Ending, TaskResult};
use crate::model::{Completion, StopReason};
use crate::native::{self, Fake, FakeResponse};
use crate::{Message, Role, ToolCall, Usage, View};

pub use crate::native::FakeRequest;

/// A host for native tests. It grants what the test names, and denies everything else. Its files,
/// keys and answers are in memory, and belong to the thread of the test.
///
/// ```
/// use conclave_sdk::testing::FakeHost;
/// use conclave_sdk::{Error, Result, files, tool};
///
/// /// High water at a place.
/// #[tool]
/// fn high_water(place: String) -> Result<String> {
///     let table = files::read_to_string("/tides/today.txt")?;
///     let line = table.lines().find(|line| line.starts_with(&place));
///     line.map(str::to_owned).ok_or_else(|| Error::invalid_arguments("place: there is no table"))
/// }
///
/// let mut host = FakeHost::new().file("/tides/today.txt", "Oban 06:12 18:40");
/// assert_eq!(host.run(|| high_water("Oban".into())).unwrap(), "Oban 06:12 18:40");
/// // Without the grant, the plugin gets the refusal of a real host.
/// assert!(matches!(FakeHost::new().run(|| high_water("Oban".into())), Err(Error::Denied(_))));
/// ```
#[derive(Clone, Debug, Default)]
pub struct FakeHost {
    fake: Fake,
    config: Option<String>,
    scratch: Vec<u8>,
}

impl FakeHost {
    /// Returns a host that grants nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the plugin's settings: an object.
    #[must_use]
    pub fn config(mut self, settings: Value) -> Self {
        self.config = Some(settings.to_string());
        self
    }

    /// Puts a file into a folder that may be read. The folder is the first part of the path.
    #[must_use]
    pub fn file(mut self, path: &str, content: impl AsRef<[u8]>) -> Self {
        let root = path.match_indices('/').nth(1).map_or(path, |(end, _)| &path[..end]);
        self.grant(root, false);
        self.fake.files.insert(path.to_owned(), content.as_ref().to_vec());
        self
    }

    /// Grants a folder for writing, such as `/out`.
    #[must_use]
    pub fn writable(mut self, folder: &str) -> Self {
        self.grant(folder, true);
        self
    }

    fn grant(&mut self, folder: &str, writable: bool) {
        match self.fake.roots.iter_mut().find(|(root, _)| root == folder) {
            Some((_, is_writable)) => *is_writable |= writable,
            None => self.fake.roots.push((folder.to_owned(), writable)),
        }
    }

    /// Grants the key-value store, with this key in it.
    #[must_use]
    pub fn key(mut self, key: &str, value: impl AsRef<[u8]>) -> Self {
        let keys = self.fake.kv.get_or_insert_with(BTreeMap::new);
        keys.insert(key.to_owned(), value.as_ref().to_vec());
        self
    }

    /// Grants the key-value store.
    #[must_use]
    pub fn kv(mut self) -> Self {
        self.fake.kv.get_or_insert_with(BTreeMap::new);
        self
    }

    /// Grants an address, whole and with its query, and answers requests there.
    #[must_use]
    pub fn response(self, url: &str, status: u16, body: impl AsRef<[u8]>) -> Self {
        self.response_with(url, status, &[], body)
    }

    /// Does the same with headers of the answer.
    #[must_use]
    pub fn response_with(
        mut self,
        url: &str,
        status: u16,
        headers: &[(&str, &str)],
        body: impl AsRef<[u8]>,
    ) -> Self {
        let header = |(name, value): &(&str, &str)| Header {
            name: name.to_lowercase(),
            value: (*value).to_owned(),
        };
        let headers = headers.iter().map(header).collect();
        let body = body.as_ref().to_vec();
        self.fake.responses.insert(url.to_owned(), FakeResponse { status, headers, body });
        self
    }

    /// Grants a model, whose next answer is this text.
    #[must_use]
    pub fn reply(self, text: &str) -> Self {
        self.completion(Some(text), Vec::new())
    }

    /// Grants a model, whose next answer calls this tool.
    #[must_use]
    pub fn reply_with_call(self, tool: &str, arguments: &Value) -> Self {
        let call = ToolCall {
            id: "1".to_owned(),
            name: tool.to_owned(),
            arguments: arguments.to_string(),
        };
        self.completion(None, vec![call])
    }

    fn completion(mut self, text: Option<&str>, tool_calls: Vec<ToolCall>) -> Self {
        let replies = self.fake.replies.get_or_insert_with(VecDeque::new);
        let stop_reason =
            if tool_calls.is_empty() { StopReason::End } else { StopReason::ToolCalls };
        replies.push_back(Completion {
            id: format!("completion-{}", replies.len() + 1),
            content: text.map(str::to_owned),
            reasoning: None,
            tool_calls,
            stop_reason,
            usage: Usage {
                input_tokens: 0,
                cached_input_tokens: 0,
                output_tokens: 0,
                cost_micro_usd: None,
            },
            model: "fake".to_owned(),
        });
        self
    }

    /// Grants a secret. Its placeholder is `<secret NAME>`.
    #[must_use]
    pub fn secret(mut self, name: &str) -> Self {
        self.fake.secrets.push(name.to_owned());
        self
    }

    /// Makes this proof of a request to a channel valid. No other is.
    #[must_use]
    pub fn proof(mut self, proof: Proof) -> Self {
        self.fake.proofs.push(proof);
        self
    }

    /// Grants another tool, such as `search.find`, which always answers with this text.
    #[must_use]
    pub fn tool(mut self, name: &str, answer: &str) -> Self {
        self.fake.tools.insert(name.to_owned(), answer.to_owned());
        self
    }

    /// Grants a command, such as `git log main`, which always ends with this exit code and output.
    #[must_use]
    pub fn program(mut self, command: &str, exit_code: u8, stdout: &str) -> Self {
        self.fake.programs.insert(command.to_owned(), (exit_code, stdout.to_owned()));
        self
    }

    /// Grants the conversation of the task that calls the tool: its pending message carries the call.
    #[must_use]
    pub fn history(mut self, task: TaskSnapshot) -> Self {
        self.fake.history = Some(Box::new(task));
        self
    }

    /// Runs the plugin's code on this host. Its writes remain for the next run, also after a panic.
    pub fn run<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let before = native::fake(|fake| std::mem::replace(fake, std::mem::take(&mut self.fake)));
        let config = native::set_config(self.config.clone());
        let scratch = native::scratch();
        native::set_scratch(std::mem::take(&mut self.scratch));
        let result = catch_unwind(AssertUnwindSafe(work));
        self.scratch = native::scratch();
        native::set_scratch(scratch);
        native::set_config(config);
        self.fake = native::fake(|fake| std::mem::replace(fake, before));
        result.unwrap_or_else(|panic| resume_unwind(panic))
    }

    /// The calls of other tools, with their arguments, oldest first.
    pub fn calls(&self) -> &[(String, Value)] {
        &self.fake.calls
    }

    /// The programs that ran, oldest first: command, directory, input.
    pub fn ran(&self) -> &[(String, Option<String>, Vec<u8>)] {
        &self.fake.ran
    }

    /// The content of a file; `None` if there is none.
    pub fn content(&self, path: &str) -> Option<&[u8]> {
        self.fake.files.get(path).map(Vec::as_slice)
    }

    /// The value of a key; `None` if there is none.
    pub fn value(&self, key: &str) -> Option<&[u8]> {
        self.fake.kv.as_ref()?.get(key).map(Vec::as_slice)
    }

    /// The requests that were sent, oldest first.
    pub fn requests(&self) -> &[FakeRequest] {
        &self.fake.requests
    }
}

/// A background task that completed without an answer, as a start for a test's own:
/// `EndedTask { attempts: 2, ..ended("a") }`.
pub fn ended(task_id: &str) -> EndedTask {
    EndedTask {
        task_id: task_id.to_owned(),
        worker: "worker".to_owned(),
        description: "Find out.".to_owned(),
        status: TaskStatus::Completed,
        output: None,
        error: None,
        duration_ms: 1_000,
        attempts: 0,
        metadata: "{}".to_owned(),
    }
}

/// A task as a test describes it. [`view`](Self::view) returns an agent's view of it.
///
/// ```
/// use conclave_sdk::testing::TaskSnapshot;
/// use conclave_sdk::{Agent, Result, Turn, View, finish};
///
/// struct Parrot;
///
/// impl Agent for Parrot {
///     fn step(view: &View) -> Result<Turn> {
///         let heard = view.pending().map(|message| message.content);
///         Ok(finish(heard.unwrap_or_default()))
///     }
/// }
///
/// assert_eq!(Parrot::step(&TaskSnapshot::asked("hello").view()), Ok(finish("hello")));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct TaskSnapshot {
    /// The task's name in the operator's config.
    pub task_name: String,
    /// The caller's inputs, beside the message: an object.
    pub inputs: Value,
    /// The message that waits for an answer.
    pub pending: Option<Message>,
    /// The messages of the agent's history, oldest first, including the pending one.
    pub history: Vec<Message>,
    /// The actions and observations since the previous step.
    pub since_last_step: Vec<PastAction>,
    /// The user's latest message.
    pub latest_user_message: Option<String>,
    /// The plan.
    pub plan: Value,
    /// The id of the plan's node in progress.
    pub current_plan_node: Option<String>,
    /// The outputs of the latest `finish` or `reject`; null before the first.
    pub outputs: Value,
    /// The last error that was reported to the agent.
    pub last_error: Option<String>,
    /// The tools that the agent may call.
    pub tools: Vec<ToolSummary>,
    /// The tasks that it may delegate or send messages to.
    pub peers: Vec<Peer>,
    /// The rest of each budget.
    pub remaining: RemainingBudgets,
    /// The usage of the run.
    pub metrics: RunMetrics,
    /// The number of delegations above this task.
    pub delegate_level: u32,
    /// The number of earlier steps.
    pub iteration: u32,
}

impl Default for TaskSnapshot {
    /// The first step of a task named `main`, without a message and without limits.
    fn default() -> Self {
        Self {
            task_name: "main".to_owned(),
            inputs: json!({}),
            pending: None,
            history: Vec::new(),
            since_last_step: Vec::new(),
            latest_user_message: None,
            plan: json!([]),
            current_plan_node: None,
            outputs: Value::Null,
            last_error: None,
            tools: Vec::new(),
            peers: Vec::new(),
            remaining: RemainingBudgets {
                turns: None,
                tokens: None,
                cost_micro_usd: None,
                wall_ms: None,
                model_calls: None,
                tool_calls: None,
            },
            metrics: RunMetrics {
                turns: 0,
                tokens: 0,
                cost_micro_usd: 0,
                model_calls: 0,
                tool_calls: 0,
            },
            delegate_level: 0,
            iteration: 0,
        }
    }
}

impl TaskSnapshot {
    /// Returns a task whose user has just said this.
    pub fn asked(text: &str) -> Self {
        Self::default().says(Role::User, text)
    }

    /// Adds a message to the history, which is pending then.
    #[must_use]
    pub fn says(mut self, sender: Role, text: &str) -> Self {
        if sender == Role::User {
            self.latest_user_message = Some(text.to_owned());
        }
        let seq = self.history.len() as u64;
        let message = message(seq, sender, text);
        self.history.push(message.clone());
        self.pending = Some(message);
        self
    }

    /// An agent's view of this task.
    pub fn view(&self) -> View<'_> {
        View::of_snapshot(self)
    }
}

/// A message without calls and attachments.
pub fn message(seq: u64, sender: Role, text: &str) -> Message {
    let sender_name = match sender {
        Role::Llm => "llm",
        Role::Agent => "agent",
        Role::User => "user",
        Role::System => "system",
    };
    Message {
        seq,
        sender,
        sender_name: sender_name.to_owned(),
        recipient: None,
        content: text.to_owned(),
        tool_calls: Vec::new(),
        tool_results: Vec::new(),
        attachments: Vec::new(),
        labels: Vec::new(),
        extra: Vec::new(),
    }
}

/// An answer of the model that the host takes, and that does not end the task.
pub fn answer(text: &str) -> Answer {
    let message = message(0, Role::Llm, text);
    Answer { message, responder: "llm".to_owned(), valid: true, done: false }
}

/// The end of a task that is done with this result.
pub fn ending(text: &str) -> Ending {
    let reason = "the model said that it is done".to_owned();
    Ending { status: "DONE".to_owned(), reason, result: TaskResult::text(text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_grant_every_import_is_denied_and_none_aborts() {
        use crate::{Error, blobs, fetch, files, kv, model, secrets};
        assert!(files::roots().is_empty());
        let denied = [
            files::read("/a").map(drop).map_err(Error::from),
            files::write("/a", "x").map_err(Error::from),
            files::remove("/a").map_err(Error::from),
            files::list("/").map(drop).map_err(Error::from),
            kv::get("a").map(drop).map_err(Error::from),
            kv::set("a", "x").map_err(Error::from),
            kv::delete("a").map_err(Error::from),
            kv::all_keys("").map(drop).map_err(Error::from),
            fetch::get("https://a.example").send().map(drop),
            model::answer().map(drop).map_err(Error::from),
            secrets::placeholder("a").map(drop).map_err(Error::Denied),
        ];
        for denied in denied {
            assert!(matches!(denied, Err(Error::Denied(_))), "{denied:?}");
        }
        assert!(model::start(&model::Request::default()).is_err());
        assert!(blobs::read("0", 0, 1).is_err());
        let blob = blobs::put("x", "text/plain", None).expect("blobs need no grant");
        assert_eq!(blobs::read_all(&blob).expect("it was put"), b"x");
    }

    #[test]
    fn files_are_those_of_the_granted_folders() {
        use crate::files::{self, EntryKind, FileErrorKind};
        let host = FakeHost::new().file("/notes/a.md", "one").file("/notes/sub/b.md", "two");
        let mut host = host.writable("/out");
        host.run(|| {
            let names = |path| -> Vec<(String, EntryKind)> {
                let entries = files::list(path).expect("it is a folder");
                entries.into_iter().map(|entry| (entry.name, entry.kind)).collect()
            };
            let notes =
                [("a.md".to_owned(), EntryKind::File), ("sub".to_owned(), EntryKind::Directory)];
            assert_eq!(names("/notes"), notes);
            assert_eq!(names("/out"), []);
            assert_eq!(files::walk("/notes").count(), 3);
            assert_eq!(files::read_at("/notes/a.md", 1, 9), Ok(b"ne".to_vec()));
            assert_eq!(files::read("/notes/sub").unwrap_err().kind, FileErrorKind::NotAFile);
            assert_eq!(files::read("/notes/c.md").unwrap_err().kind, FileErrorKind::NotFound);
            assert_eq!(files::list("/notes/a.md").unwrap_err().kind, FileErrorKind::NotADirectory);
            for path in ["/notes/../out/x", "/notesx/a", "/etc/passwd"] {
                let refused = files::read(path).unwrap_err();
                assert!(matches!(refused.kind, FileErrorKind::Denied(_)), "{path}");
            }
            let refused = files::write("/notes/a.md", "x").unwrap_err();
            assert!(matches!(refused.kind, FileErrorKind::Denied(_)));
            assert_eq!(files::write_at("/out/x", 2, b"cd", false), Ok(4));
            assert_eq!(files::write("/out/x", "ab"), Ok(()));
            assert_eq!(files::remove("/out/absent"), Ok(()));
        });
        assert_eq!(host.content("/out/x"), Some(&b"ab"[..]));
    }

    #[test]
    fn other_tools_answer_and_their_calls_are_known() {
        use crate::toolbox::{self, Request};
        let mut host = FakeHost::new().tool("search.find", "the tide turns at six");
        host.run(|| {
            assert_eq!(toolbox::tools()[0].name, "search.find");
            let requests =
                ["search.find", "search.drop"].map(|name| Request::new(name, json!({ "q": 1 })));
            let answers = toolbox::call_all(requests);
            assert_eq!(answers[0].as_ref().expect("it is granted").text(), "the tide turns at six");
            assert!(matches!(&answers[1], Err(crate::Error::Denied(_))));
        });
        assert_eq!(host.calls(), [("search.find".to_owned(), json!({ "q": 1 }))]);
        assert!(toolbox::tools().is_empty());
    }

    #[test]
    fn keys_answers_replies_and_settings_are_those_of_the_test() {
        use crate::{config, fetch, kv, model};
        let url = "https://a.example/x?n=1";
        let mut host = FakeHost::new()
            .config(json!({ "units": "celsius" }))
            .key("b", "2")
            .secret("token")
            .response_with(url, 503, &[("Retry-After", "2")], "later")
            .reply("one")
            .reply_with_call("search.find", &json!({ "query": "q" }));
        host.run(|| {
            kv::set("a", "1").expect("it is granted");
            assert_eq!(kv::all_keys("").expect("it is granted"), ["a", "b"]);
            assert_eq!(kv::keys("", Some("a"), 9).expect("it is granted"), ["b"]);
            let request =
                fetch::get("https://a.example/x").query([("n", 1)]).bearer_secret("token");
            let answer = request.send().expect("it is granted");
            assert_eq!(
                answer.json::<Value>(),
                Err(crate::Error::Unavailable { retry_after_ms: Some(2_000) })
            );
            assert_eq!(model::answer().expect("a reply").content.as_deref(), Some("one"));
            assert_eq!(model::answer().expect("a reply").tool_calls[0].name, "search.find");
            assert!(model::answer().is_err(), "there are two replies");
            assert_eq!(config::get::<Value>().expect("settings")["units"], "celsius");
        });
        assert_eq!(host.value("a"), Some(&b"1"[..]));
        assert_eq!(host.requests()[0].headers[0].value, "Bearer <secret token>");
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            host.run(|| {
                crate::scratch::set(&7).expect("it is small");
                panic!("as a test does");
            })
        }));
        assert!(panicked.is_err());
        assert_eq!(host.run(crate::scratch::get::<u32>), Ok(Some(7)));
        assert_eq!(crate::scratch::get::<u32>(), Ok(None));
        // Outside of the host nothing of it is left.
        assert!(kv::get("a").is_err());
        assert_eq!(config::get::<Value>().expect("settings"), json!({}));
    }

    #[test]
    fn a_snapshot_is_read_like_a_task_of_the_host() {
        let mut task = TaskSnapshot::asked("one").says(Role::Llm, "two");
        task.inputs = json!({ "days": 3 });
        for number in 0..40 {
            task = task.says(Role::Agent, &number.to_string());
        }
        let view = task.view();
        assert_eq!(view.pending().map(|message| message.content).as_deref(), Some("39"));
        assert_eq!(view.latest_user_message().as_deref(), Some("one"));
        assert_eq!(view.history_length(), 42);
        let texts: Vec<String> = view.history().map(|message| message.content).collect();
        assert_eq!((texts.len(), texts[1].as_str(), texts[41].as_str()), (42, "two", "39"));
        let back = view.history().next_back().map(|message| message.seq);
        assert_eq!(back, Some(41));
        #[derive(serde::Deserialize, PartialEq, Debug)]
        struct Inputs {
            days: u32,
        }
        assert_eq!(view.inputs::<Inputs>(), Ok(Inputs { days: 3 }));
        assert!(view.inputs::<u32>().is_err());
        assert_eq!(view.outputs(), Ok(Value::Null));
        assert_eq!(view.remaining().turns, None);
    }
}
