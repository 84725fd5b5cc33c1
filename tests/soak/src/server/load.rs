//! The runs of a soak, and the people who start them, speak to them and decide about their calls.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::check::Journalled;
use super::client::{API, Answer, Client};
use super::{LOOK, ServerPlan, ServerReport};

/// People at work at once. The server has 32 requests that act at once.
const PEOPLE: usize = 16;
const PAUSE: Duration = Duration::from_millis(30);

#[derive(Default)]
struct Counts {
    decided: AtomicU64,
    /// The runs that have not ended.
    open: AtomicU64,
    /// Requests that failed and were sent again.
    repeated: AtomicU64,
    /// Decisions about calls that did not wait when they arrived.
    unneeded: AtomicU64,
}

pub(super) struct Load {
    address: SocketAddr,
    token: String,
    count: usize,
    /// Calls of each run that wait for an approval.
    approvals: usize,
    pub(super) runs: Vec<String>,
    counts: Arc<Counts>,
    people: JoinSet<Result<(), String>>,
}

impl Load {
    pub(super) fn new(address: SocketAddr, token: &str, plan: &ServerPlan) -> Self {
        let (token, people) = (token.to_owned(), JoinSet::new());
        let (count, approvals) = (plan.runs, plan.approvals);
        Self { address, token, count, approvals, runs: Vec::new(), counts: Arc::default(), people }
    }

    /// Starts all runs, and waits until each waits for an approval.
    pub(super) async fn begin(&mut self) -> Result<(), String> {
        let mut person = self.person();
        for number in 0..self.count {
            let body = json!({ "text": format!("work {number}") }).to_string();
            let answer = person.post("/runs", &format!("start-{number}"), &body).await?;
            let run = answer.body()["run"].as_str().map(str::to_owned);
            self.runs.push(run.ok_or_else(|| format!("no run was started: {}", answer.text))?);
        }
        for run in &self.runs {
            while person.waiting(run).await? == Waiting::No {
                tokio::time::sleep(PAUSE).await;
            }
        }
        Ok(())
    }

    /// Lets people decide about the runs until they have ended.
    pub(super) fn work(&mut self) {
        self.counts.open.store(self.runs.len() as u64, Ordering::Relaxed);
        for share in 0..PEOPLE {
            let runs: Vec<_> = self.runs.iter().skip(share).step_by(PEOPLE).cloned().collect();
            let person = self.person();
            self.people.spawn(person.attend(runs));
        }
    }

    fn person(&self) -> Person {
        let client = Client::new(self.address, &self.token);
        Person { client, counts: Arc::clone(&self.counts) }
    }

    /// Waits until so many calls are decided.
    pub(super) async fn until_decided(&mut self, due: u64, most: Duration) -> Result<(), String> {
        let counts = Arc::clone(&self.counts);
        self.until(most, || counts.decided.load(Ordering::Relaxed) >= due).await
    }

    /// Waits until all runs have ended.
    pub(super) async fn until_ended(&mut self, most: Duration) -> Result<(), String> {
        let counts = Arc::clone(&self.counts);
        self.until(most, || counts.open.load(Ordering::Relaxed) == 0).await
    }

    async fn until(&mut self, most: Duration, is_so: impl Fn() -> bool) -> Result<(), String> {
        let began = Instant::now();
        while !is_so() {
            while let Some(ended) = self.people.try_join_next() {
                ended.map_err(|error| error.to_string())??;
            }
            if began.elapsed() > most {
                let open = self.counts.open.load(Ordering::Relaxed);
                return Err(format!("{open} runs have not ended after {most:?}"));
            }
            tokio::time::sleep(LOOK).await;
        }
        Ok(())
    }

    /// Checks that each run has its end, and each acknowledged message and decision once.
    pub(super) fn check(&self, journals: &[Vec<Journalled>], report: &mut ServerReport) {
        for (run, journal) in self.runs.iter().zip(journals) {
            let controls = journal.iter().filter(|it| it.value["event"] == "control-received");
            let count = |kind: &str| {
                let is_so = |it: &&Journalled| it.value["message"]["event"] == kind;
                controls.clone().filter(is_so).count()
            };
            let (decisions, calls) = (count("decided"), settled(journal));
            if (decisions, calls) != (self.approvals, self.approvals) {
                report.problems.push(format!(
                    "{run} has {decisions} decisions about {calls} calls, and asked about {}",
                    self.approvals
                ));
            }
        }
        report.row("calls decided", self.counts.decided.load(Ordering::Relaxed));
        let unneeded = self.counts.unneeded.load(Ordering::Relaxed);
        report.row("decisions about calls that did not wait any more", unneeded);
        let repeated = self.counts.repeated.load(Ordering::Relaxed);
        report.row("requests sent again after a failure", repeated);
    }
}

/// The number of different calls that people decided about.
fn settled(journal: &[Journalled]) -> usize {
    let calls = journal.iter().filter(|it| it.value["message"]["event"] == "decided");
    let calls: std::collections::BTreeSet<String> =
        calls.map(|it| it.value["message"]["call"].to_string()).collect();
    calls.len()
}

#[derive(PartialEq, Eq)]
enum Waiting {
    No,
    /// For a decision about this call.
    Call(String),
    Ended,
}

/// Somebody who starts runs and decides about their calls.
struct Person {
    client: Client,
    counts: Arc<Counts>,
}

impl Person {
    /// Decides about these runs until they have ended.
    async fn attend(mut self, mut runs: Vec<String>) -> Result<(), String> {
        while !runs.is_empty() {
            let mut open = Vec::new();
            for run in runs {
                match self.waiting(&run).await? {
                    Waiting::Ended => {
                        self.counts.open.fetch_sub(1, Ordering::Relaxed);
                        continue;
                    }
                    Waiting::Call(id) => self.approve(&run, &id).await?,
                    Waiting::No => {}
                }
                open.push(run);
            }
            runs = open;
            tokio::time::sleep(PAUSE).await;
        }
        Ok(())
    }

    async fn approve(&mut self, run: &str, id: &str) -> Result<(), String> {
        let body = json!({ "decision": "approve" }).to_string();
        let (path, key) = (format!("/runs/{run}/questions/{id}"), format!("approve-{id}"));
        let answer = self.post(&path, &key, &body).await?;
        let count = match answer.status {
            200 => &self.counts.decided,
            _ => &self.counts.unneeded,
        };
        count.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    async fn waiting(&mut self, run: &str) -> Result<Waiting, String> {
        let answer = self.send("GET", &format!("/runs/{run}"), None, "").await?;
        let row = answer.body();
        match row["state"].as_str().unwrap_or_default() {
            "done" => return Ok(Waiting::Ended),
            "running" | "waiting" | "interrupted" => {}
            state => return Err(format!("{run} is {state}: {row}")),
        }
        let waits = row["waits"].as_array().into_iter().flatten();
        let call = waits.filter_map(|wait| wait["id"].as_str()).next();
        Ok(call.map_or(Waiting::No, |id| Waiting::Call(id.to_owned())))
    }

    async fn post(&mut self, path: &str, key: &str, body: &str) -> Result<Answer, String> {
        self.send("POST", path, Some(key), body).await
    }

    /// Sends a request until it is answered. With its key it takes effect once.
    async fn send(
        &mut self,
        method: &str,
        path: &str,
        key: Option<&str>,
        body: &str,
    ) -> Result<Answer, String> {
        let began = Instant::now();
        let path = format!("{API}{path}");
        loop {
            let answered = self.client.request(method, &path, key, body).await;
            let failure = match answered {
                Ok(answer) if (200..300).contains(&answer.status) => return Ok(answer),
                Ok(answer) if is_unneeded(&answer) => return Ok(answer),
                Ok(answer) if is_temporary(&answer) => {
                    format!("{}: {}", answer.status, answer.text)
                }
                Ok(answer) => return Err(format!("{path}: {} {}", answer.status, answer.text)),
                Err(error) => error.to_string(),
            };
            if began.elapsed() > super::PATIENCE {
                return Err(format!("{path} fails again and again: {failure}"));
            }
            self.counts.repeated.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// Whether the decision came too late, as after a run was resumed behind it.
fn is_unneeded(answer: &Answer) -> bool {
    let code = answer.body()["code"].clone();
    [json!("question_not_found"), json!("already_decided")].contains(&code)
}

/// Whether the same request may be answered later: the server is busy, starts, or has not gone on
/// with the run yet.
fn is_temporary(answer: &Answer) -> bool {
    let code = answer.body()["code"].clone();
    let waits: [Value; 2] = [json!("run_interrupted"), json!("run_in_use")];
    matches!(answer.status, 429 | 500..) || waits.contains(&code)
}
