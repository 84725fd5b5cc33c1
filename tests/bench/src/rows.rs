//! The rows of the benchmark table: the two sides of each comparison, and the target ratio.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use conclave_core::types::view::AgentView;
use conclave_runtime::engine::{Engine, EngineSettings};
use conclave_runtime::plugin::{Cache, Loader};

use crate::BenchError;
use crate::acting;
use crate::bare::{self, Allocator, Request, Tool};
use crate::bare_agent::Agent;
use crate::conclave::{self, Hosted};
use crate::decision::Decisions;
use crate::delivery::Cycles;
use crate::doors;
use crate::durable::{Durable, Waiting};
use crate::executors;
use crate::languages;
use crate::measure::{self, Effort, Plan, Times};
use crate::neighbour::Noise;
use crate::report::{Reach, Report, Row, Rows, Side};

/// The content of the messages.
pub(crate) const QUESTION: &str = "When was Skerryvore lit, and who built the tower?";

/// The environment of every row.
struct Bench {
    effort: Effort,
    wasm: Vec<u8>,
    engine: wasmtime::Engine,
    tool: Tool,
    /// About 1 KB, which the guest `echo` returns.
    request: Request,
    hosted: Hosted,
}

const FRESH: &str = "tool call in a fresh sandbox, 1 KB";
const STEP: &str = "agent step in a fresh sandbox, history of 10";
const LONG: &str = "agent step with a model, history of 10 000";
const TASK: &str = "task: step, tool call, step; in memory";
const RUN: &str = "two steps of a run, among the last 1 000 of 10 000";
const ACTING: &str = "step and answer of an agent that acts, history of 10 000";
const PLAN: &str = "agent step with a model, plan of 1 000 tasks";
const CYCLE: &str = "delegate, complete, deliver in a turn; in memory";
const AT_ONCE: &str = "the same, each of 1 000 at once in one room";
const BATCH: &str = "task of a batch of 1 000, four at once";
const ALLOCATOR: &str = "what the pool brings";
const WARM: &str = "what a fresh sandbox costs";
const LOAD: &str = "plugin load, cached";
const DECISION: &str = "policy decision, the last of 21 rules; and a grant";
const MANY_RULES: &str = "policy decision, the last of 1 000 rules; and of 21";
const DURABLE: &str = "64 tasks at once: step, tool call, step; durable";
const DURABLE_ALONE: &str = "one task at a time: step, tool call, step; durable";
const RESUME: &str = "resume of a run of 100 000 events";
const REPLAY: &str = "replay of one event, of 20 000";
const WAITING: &str = "tasks that wait for a model: the start of one";
const NEIGHBOUR: &str = "tool call in a fresh sandbox, 1 KB, beside a noisy plugin";

/// The folders of the components.
pub(crate) struct Folders<'a> {
    pub(crate) guests: &'a Path,
    pub(crate) stock: &'a Path,
    pub(crate) languages: &'a Path,
    /// The program `conclave`.
    pub(crate) program: &'a Path,
}

/// Measures the `wanted` rows, one after the other.
pub(crate) async fn all(
    folders: &Folders<'_>,
    effort: Effort,
    wanted: &dyn Fn(&str) -> bool,
) -> Result<Report, BenchError> {
    let guests = folders.guests;
    let bench = Bench::prepare(guests, effort).await?;
    let mut rows = Rows::default();
    if wanted(FRESH) {
        rows.keep(bench.fresh_call().await?);
    }
    if wanted(STEP) {
        rows.keep(bench.step(guests).await?);
    }
    if wanted(LONG) {
        rows.keep(bench.long_history().await?);
    }
    if wanted(TASK) {
        rows.keep(bench.task(guests).await?);
    }
    if wanted(RUN) {
        rows.keep(bench.long_run().await?);
    }
    if wanted(ACTING) {
        rows.keep(bench.acting(guests).await?);
    }
    if wanted(PLAN) {
        rows.keep(bench.long_plan().await?);
    }
    if wanted(CYCLE) {
        rows.keep(bench.cycle(guests).await?);
    }
    if wanted(AT_ONCE) {
        rows.keep(bench.cycles_at_once(guests).await?);
    }
    if wanted(BATCH) {
        rows.keep(bench.batch().await?);
    }
    if wanted(ALLOCATOR) {
        rows.keep(bench.allocator().await?);
    }
    if wanted(WARM) {
        rows.keep(bench.warm_call().await?);
    }
    if wanted(LOAD) {
        rows.keep(bench.load(guests).await?);
    }
    if wanted(DECISION) {
        rows.keep(bench.decision().await?);
    }
    if wanted(MANY_RULES) {
        rows.keep(bench.many_rules().await?);
    }
    if wanted(DURABLE) {
        rows.keep(bench.durable(guests, DURABLE, 64).await?);
    }
    if wanted(DURABLE_ALONE) {
        rows.keep(bench.durable(guests, DURABLE_ALONE, 1).await?);
    }
    if wanted(RESUME) {
        rows.keep(bench.resume(guests).await?);
    }
    if wanted(REPLAY) {
        rows.keep(bench.replay(guests).await?);
    }
    if wanted(WAITING) {
        rows.keep(bench.waiting(guests).await?);
    }
    if wanted(NEIGHBOUR) {
        rows.keep(bench.neighbour(guests).await?);
    }
    languages::rows(folders.languages, effort, wanted, &mut rows).await?;
    executors::rows(folders.stock, effort, wanted, &mut rows).await?;
    doors::rows(folders.program, guests, effort, wanted, &mut rows).await?;
    Ok(Report::new(effort == Effort::Quick, rows))
}

impl Bench {
    async fn prepare(guests: &Path, effort: Effort) -> Result<Self, BenchError> {
        let path = guests.join("echo.wasm");
        let wasm = fs::read(&path).map_err(|cause| BenchError::Component { path, cause })?;
        let engine = bare::engine(Allocator::Pool)?;
        let tool = Tool::compile(&engine, &wasm)?;
        let text = "0123456789abcdef".repeat(64);
        let arguments = serde_json::json!({ "text": text });
        let request = Request { tool: "run".to_owned(), arguments: arguments.to_string() };
        let hosted = Hosted::prepare(guests, &arguments).await?;
        for answer in [tool.call_fresh(&request).await?, hosted.call_fresh().await?] {
            if !answer.contains(&text) {
                return Err(BenchError::Answer(answer));
            }
        }
        Ok(Self { effort, wasm, engine, tool, request, hosted })
    }

    async fn fresh_call(&self) -> Result<Row, BenchError> {
        let baseline = async || self.call_fresh(&self.tool).await;
        let subject = async || self.hosted.call_fresh().await.map(drop);
        let (baseline, subject) =
            measure::by_turns(Plan::short(self.effort), baseline, subject).await?;
        Ok(Row {
            what: FRESH,
            baseline: Some(side("bare wasmtime", baseline)),
            subject: side("Conclave", subject),
            reach: Reach::AtMost(1.5),
        })
    }

    async fn step(&self, guests: &Path) -> Result<Row, BenchError> {
        let agent = self.bare_agent(guests)?;
        let view = conclave::view(10);
        for answer in [agent.step(10).await?, self.hosted.step("agent", view.clone()).await?] {
            if !answer.contains(QUESTION) {
                return Err(BenchError::Answer(answer));
            }
        }
        let baseline = async || agent.step(10).await.map(drop);
        let subject = async || self.hosted.step("agent", view.clone()).await.map(drop);
        let (baseline, subject) =
            measure::by_turns(Plan::short(self.effort), baseline, subject).await?;
        Ok(Row {
            what: STEP,
            baseline: Some(side("bare wasmtime", baseline)),
            subject: side("Conclave", subject),
            reach: Reach::AtMost(2.0),
        })
    }

    async fn long_history(&self) -> Result<Row, BenchError> {
        let (short, long) = (conclave::view(10), conclave::view(10_000));
        let baseline = async || self.hosted.step("chat", short.clone()).await.map(drop);
        let subject = async || self.hosted.step("chat", long.clone()).await.map(drop);
        let (baseline, subject) =
            measure::by_turns(Plan::short(self.effort), baseline, subject).await?;
        Ok(Row {
            what: LONG,
            baseline: Some(side("history of 10", baseline)),
            subject: side("history of 10 000", subject),
            reach: Reach::AtMost(1.2),
        })
    }

    /// Measures a task beside the same three calls on bare wasmtime. In Langroid it takes 23 ms.
    async fn task(&self, guests: &Path) -> Result<Row, BenchError> {
        let agent = self.bare_agent(guests)?;
        let baseline = async || {
            agent.step(1).await?;
            self.call_fresh(&self.tool).await?;
            agent.step(3).await.map(drop)
        };
        let subject = async || self.hosted.run_task().await;
        let (baseline, subject) =
            measure::by_turns(Plan::short(self.effort), baseline, subject).await?;
        Ok(Row {
            what: TASK,
            baseline: Some(side("its calls, bare", baseline)),
            subject: side("Conclave", subject),
            reach: Reach::AtMost(2.2),
        })
    }

    fn bare_agent(&self, guests: &Path) -> Result<Agent, BenchError> {
        let path = guests.join("agent_echo.wasm");
        let wasm = fs::read(&path).map_err(|cause| BenchError::Component { path, cause })?;
        Agent::compile(&self.engine, &wasm)
    }

    /// Measures one long run. Messages, lineage and loop detection grow with it, but the cost of a
    /// step must not.
    async fn long_run(&self) -> Result<Row, BenchError> {
        let steps = self.hosted.run_steps().await?;
        let of = |from: usize| Times::of(steps.iter().skip(from / 2).take(500).copied().collect());
        let (baseline, subject) = (of(1_000), of(9_000));
        Ok(Row {
            what: RUN,
            baseline: Some(side("steps 1 000 to 2 000", baseline)),
            subject: side("the last 1 000", subject),
            reach: Reach::AtMost(1.2),
        })
    }

    /// Measures one long acting run. Each step adds an action and an observation to the history,
    /// and the agent sees only the newest ones.
    async fn acting(&self, guests: &Path) -> Result<Row, BenchError> {
        const STEPS: usize = 10_000;
        let steps = acting::steps(self.hosted.host(), guests, STEPS).await?;
        let of = |from: usize| Times::of(steps.iter().skip(from).take(500).copied().collect());
        let (baseline, subject) = (of(10), of(STEPS - 500));
        Ok(Row {
            what: ACTING,
            baseline: Some(side("from history of 10 on", baseline)),
            subject: side("the last 500", subject),
            reach: Reach::AtMost(1.2),
        })
    }

    /// Measures steps with a long plan. An agent that does not read its plan must not pay for it.
    async fn long_plan(&self) -> Result<Row, BenchError> {
        let without = conclave::view(10);
        let with = AgentView { plan: Arc::new(acting::plan(1_000)?), ..without.clone() };
        let baseline = async || self.hosted.step("chat", without.clone()).await.map(drop);
        let subject = async || self.hosted.step("chat", with.clone()).await.map(drop);
        let (baseline, subject) =
            measure::by_turns(Plan::short(self.effort), baseline, subject).await?;
        Ok(Row {
            what: PLAN,
            baseline: Some(side("no plan", baseline)),
            subject: side("1 000 tasks", subject),
            reach: Reach::AtMost(1.2),
        })
    }

    /// Measures a delegation cycle. The baseline, the same in RoomKit 0.6.13, takes 0.9 ms and runs
    /// elsewhere. The target is 1/15 of it.
    async fn cycle(&self, guests: &Path) -> Result<Row, BenchError> {
        let cycles = Cycles::open(self.hosted.host(), guests).await?;
        let times = measure::alone(Plan::short(self.effort), async || cycles.one().await).await?;
        Ok(Row {
            what: CYCLE,
            baseline: None,
            subject: side("Conclave", times),
            reach: Reach::AboutMicros(60.0),
        })
    }

    /// Measures parallel delegation cycles. RoomKit delivers 324 per second. The target is ten
    /// times as many.
    async fn cycles_at_once(&self, guests: &Path) -> Result<Row, BenchError> {
        let mut each = Vec::new();
        for _ in 0..if self.effort == Effort::Quick { 3 } else { 20 } {
            // Each round has its own room, because a room keeps only the newest thousand task
            // records.
            each.push(Cycles::open(self.hosted.host(), guests).await?.at_once(1_000).await?);
        }
        Ok(Row {
            what: AT_ONCE,
            baseline: None,
            subject: side("Conclave", Times::of(each)),
            reach: Reach::AboutMicros(309.0),
        })
    }

    async fn batch(&self) -> Result<Row, BenchError> {
        const TASKS: u32 = 1_000;
        let (mut one_by_one, mut at_once) = (Vec::new(), Vec::new());
        for _ in 0..if self.effort == Effort::Quick { 3 } else { 20 } {
            let began = Instant::now();
            for _ in 0..TASKS {
                self.hosted.run_task().await?;
            }
            one_by_one.push(began.elapsed() / TASKS);
            at_once.push(self.on_all_processors(TASKS)? / TASKS);
        }
        Ok(Row {
            what: BATCH,
            baseline: Some(side("one after the other", Times::of(one_by_one))),
            subject: side("on all processors", Times::of(at_once)),
            reach: Reach::AtMost(0.6),
        })
    }

    /// Returns the time of a batch on an executor with a thread for each processor, as the program
    /// has one.
    fn on_all_processors(&self, tasks: u32) -> Result<Duration, BenchError> {
        let run = || {
            let executor = tokio::runtime::Builder::new_multi_thread()
                .enable_all()
                .build()
                .map_err(BenchError::Executor)?;
            let began = Instant::now();
            executor.block_on(self.hosted.run_batch(tasks))?;
            Ok(began.elapsed())
        };
        // An executor cannot wait for another one on its own thread.
        std::thread::scope(|scope| scope.spawn(run).join())
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    async fn allocator(&self) -> Result<Row, BenchError> {
        let on_demand = Tool::compile(&bare::engine(Allocator::OnDemand)?, &self.wasm)?;
        let baseline = async || self.call_fresh(&on_demand).await;
        let subject = async || self.call_fresh(&self.tool).await;
        let (baseline, subject) =
            measure::by_turns(Plan::short(self.effort), baseline, subject).await?;
        Ok(Row {
            what: ALLOCATOR,
            baseline: Some(side("on-demand memory", baseline)),
            subject: side("pool", subject),
            reach: Reach::Nothing,
        })
    }

    async fn warm_call(&self) -> Result<Row, BenchError> {
        let mut kept = self.tool.instantiate().await?;
        let baseline = async || kept.call(&self.request).await.map(drop);
        let subject = async || self.call_fresh(&self.tool).await;
        let (baseline, subject) =
            measure::by_turns(Plan::short(self.effort), baseline, subject).await?;
        Ok(Row {
            what: WARM,
            baseline: Some(side("instance kept", baseline)),
            subject: side("instance per call", subject),
            reach: Reach::Nothing,
        })
    }

    /// Measures loading. Both sides are Conclave's: hash, manifest, code, list of tools. The
    /// baseline is about twice as slow here as in a release build, because this profile builds the
    /// compiler with little optimization.
    async fn load(&self, guests: &Path) -> Result<Row, BenchError> {
        let engine = Engine::new(&EngineSettings::default())
            .map_err(|error| BenchError::Conclave(error.to_string()))?;
        let cache = Cache::open(&conclave::cache(guests))
            .map_err(|error| BenchError::Conclave(error.to_string()))?;
        let (compiling, caching) =
            (Loader::new(engine.clone(), None), Loader::new(engine, Some(cache)));
        conclave::load(&caching, &self.wasm).await?;
        let baseline = async || conclave::load(&compiling, &self.wasm).await;
        let subject = async || conclave::load(&caching, &self.wasm).await;
        let (baseline, subject) =
            measure::by_turns(Plan::long(self.effort), baseline, subject).await?;
        Ok(Row {
            what: LOAD,
            baseline: Some(side("compile", baseline)),
            subject: side("from the cache", subject),
            reach: Reach::Faster(50.0),
        })
    }

    /// Returns the times of a decision. It is far below the resolution of the clock, so each time
    /// covers a thousand.
    fn time_decisions(&self, decide: impl Fn() -> bool) -> Times {
        const EACH: u32 = 1_000;
        let samples = if self.effort == Effort::Quick { 200 } else { 2_000 };
        let times = (0..samples).map(|_| {
            let began = Instant::now();
            let allowed = (0..EACH).filter(|_| decide()).count();
            std::hint::black_box(allowed);
            began.elapsed() / EACH
        });
        Times::of(times.collect())
    }

    async fn decision(&self) -> Result<Row, BenchError> {
        let decisions = Decisions::prepare(21)?;
        let baseline = self.time_decisions(|| decisions.require());
        let subject = self.time_decisions(|| decisions.decide());
        Ok(Row {
            what: DECISION,
            baseline: Some(side("grant", baseline)),
            subject: side("policy", subject),
            reach: Reach::AboutMicros(1.0),
        })
    }

    async fn many_rules(&self) -> Result<Row, BenchError> {
        let (few, many) = (Decisions::prepare(21)?, Decisions::prepare(1_000)?);
        let baseline = self.time_decisions(|| few.decide());
        let subject = self.time_decisions(|| many.decide());
        Ok(Row {
            what: MANY_RULES,
            baseline: Some(side("21 rules", baseline)),
            subject: side("1 000 rules", subject),
            reach: Reach::AboutMicros(3.0),
        })
    }

    /// Measures calls beside a busy neighbor, which computes endlessly in its own thread. The same
    /// calls are measured without it.
    async fn neighbour(&self, guests: &Path) -> Result<Row, BenchError> {
        let plan = Plan::short(self.effort);
        let quiet = async || self.hosted.call_fresh().await.map(drop);
        let baseline = measure::alone(plan, quiet).await?;
        let noise = Noise::start(self.hosted.host(), guests).await?;
        let subject = measure::alone(plan, quiet).await?;
        drop(noise);
        Ok(Row {
            what: NEIGHBOUR,
            baseline: Some(side("alone", baseline)),
            subject: side("beside it", subject),
            reach: Reach::P99AtMost(1.5),
        })
    }

    /// Measures durable runs, whose events are stored in groups. The baseline stores none, but pays
    /// one fsync in the same folder for each group.
    async fn durable(
        &self,
        guests: &Path,
        what: &'static str,
        tasks: u32,
    ) -> Result<Row, BenchError> {
        let rounds = if self.effort == Effort::Quick { 10 } else { 100 };
        let (baseline, subject) =
            Durable::open(guests)?.rounds(&self.hosted, tasks, rounds).await?;
        Ok(Row {
            what,
            baseline: Some(side("none kept, and an fsync for each group", baseline)),
            subject: side("all kept", subject),
            reach: Reach::AtMost(1.3),
        })
    }

    /// Measures resuming. A snapshot that is at most 1 000 events old is read, and what came after.
    async fn resume(&self, guests: &Path) -> Result<Row, BenchError> {
        let times = if self.effort == Effort::Quick { 3 } else { 20 };
        let subject = Durable::open(guests)?.resume(&self.hosted, 100_000, times).await?;
        Ok(Row {
            what: RESUME,
            baseline: None,
            subject: side("Conclave", subject),
            reach: Reach::AboutMicros(1_000_000.0),
        })
    }

    async fn replay(&self, guests: &Path) -> Result<Row, BenchError> {
        let times = if self.effort == Effort::Quick { 3 } else { 20 };
        let (baseline, subject) = Durable::open(guests)?.replay(&self.hosted, times).await?;
        Ok(Row {
            what: REPLAY,
            baseline: Some(side("folded", baseline)),
            subject: side("read from the store and folded", subject),
            reach: Reach::PerSecond(50_000.0),
        })
    }

    /// Measures waiting tasks: the first hundred against the last hundred.
    async fn waiting(&self, guests: &Path) -> Result<Row, BenchError> {
        let tasks = if self.effort == Effort::Quick { 2_000 } else { 100_000 };
        let Waiting { first, last, kib, instances } = Waiting::measure(guests, tasks).await?;
        Ok(Row {
            what: WAITING,
            baseline: Some(side("one of the first 100", first)),
            subject: side("one of the last 100", last),
            reach: Reach::Waiting { most: 1.2, kib: 32.0, measured_kib: kib, instances },
        })
    }

    async fn call_fresh(&self, tool: &Tool) -> Result<(), BenchError> {
        tool.call_fresh(&self.request).await.map(drop)
    }
}

fn side(does: &'static str, times: Times) -> Side {
    Side::new(does, times)
}
