//! The tools of an agent: a step, a tool call, and a step whose model gets the list of all tools.
//! One tool is a component, which is called; the others only fill the agent's toolbox.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use conclave_core::protocol::notice::Notice;
use conclave_runtime::models::ModelClient;
use conclave_runtime::native::{Call, Plugin, Tool};
use conclave_runtime::subscribe::{Published, RunEvent, Subscriber, Subscribers};
use conclave_runtime::{Host, HostOptions, Prepared, RunOptions};

use super::history::Ready;
use super::series::{Curve, Rounds};
use super::{Place, failed};
use crate::BenchError;

const TOOLS: [u64; 4] = [1, 10, 100, 1_000];
/// The number of tasks in one round.
const TASKS: usize = 200;

pub(super) async fn curve(place: &Place<'_>) -> Result<Curve, BenchError> {
    let mut step = Rounds::new("a step");
    let mut call = Rounds::new("a tool call in a sandbox");
    let mut listed = Rounds::new("a step with all in its prompt");
    let mut sizes = Vec::new();
    for &tools in place.sizes(&TOOLS) {
        let host = host(tools)?;
        let caller = place.load(&host, &config(tools, "caller")).await?;
        let chat = place.load(&host, &config(tools, "chat")).await?;
        sizes.push((tools, caller, chat));
    }
    for _ in 0..place.rounds() {
        for (tools, caller, chat) in &sizes {
            let (steps, calls) = stages(caller).await?;
            step.take(*tools, steps);
            call.take(*tools, calls);
            let mut times = Vec::with_capacity(TASKS);
            for _ in 0..TASKS {
                let began = Instant::now();
                let run = chat.start(Some("go".to_owned()), RunOptions::default());
                let outcome = run.map_err(failed)?.outcome().await.map_err(failed)?;
                times.push(began.elapsed());
                if outcome.content.as_deref() != Some(crate::rows::QUESTION) {
                    return Err(BenchError::Answer(format!("{outcome:?}")));
                }
            }
            listed.take(*tools, times);
        }
    }
    Ok(Curve {
        what: super::TOOLS.to_owned(),
        axis: "tools that the agent may call".to_owned(),
        series: vec![step.series(), call.series(), listed.series()],
        remark: None,
    })
}

fn host(tools: u64) -> Result<Host, BenchError> {
    let schema = serde_json::json!({
        "type": "object",
        "required": ["place"],
        "properties": {
            "place": { "type": "string", "description": "The name of a town." },
            "hours": { "type": "integer", "description": "Hours from now." },
        },
    });
    let tool = |number| {
        let name = format!("tool_{number}");
        let body = |_: Call| async { Ok("x") };
        Tool::new(&name, "The forecast of the wind at a place.", schema.clone(), body)
    };
    Host::new(HostOptions {
        models: [("default".to_owned(), Arc::new(Ready) as Arc<dyn ModelClient>)].into(),
        native: vec![Plugin::tools("others", (1..tools).map(tool))],
        ..HostOptions::default()
    })
    .map_err(failed)
}

fn config(tools: u64, agent: &str) -> String {
    let text = "0123456789abcdef".repeat(64);
    let (others, granted) = if tools > 1 {
        ("[plugins.others]\nsource = \"native:others\"", r#"["echo.*", "others.*"]"#)
    } else {
        ("", r#"["echo.*"]"#)
    };
    let agent = match agent {
        "caller" => format!(
            "[plugins.agent]\nsource = \"agent_caller.wasm\"\ngrants.tools = {granted}\n\
             config = {{ tool = \"echo.run\", arguments = {{ text = \"{text}\" }} }}"
        ),
        _ => format!(
            "[plugins.agent]\nsource = \"../stock/chat.wasm\"\ngrants.model = [\"default\"]\n\
             grants.tools = {granted}\n[models.default]\nkind = \"native\""
        ),
    };
    format!(
        "entry = \"main\"\n{agent}\n[plugins.echo]\nsource = \"echo.wasm\"\n{others}\n\
         [tasks.main]\nagent = \"agent\"\nturns = 4\n"
    )
}

/// Returns the times of the first steps and of the tool calls of tasks.
async fn stages(caller: &Prepared) -> Result<(Vec<Duration>, Vec<Duration>), BenchError> {
    let stages = Arc::new(Stages::default());
    for _ in 0..TASKS {
        let subscribers = Subscribers::new([Arc::clone(&stages) as Arc<dyn Subscriber>]);
        let options = RunOptions { subscribers, ..RunOptions::default() };
        let run = caller.start(Some("go".to_owned()), options).map_err(failed)?;
        run.outcome().await.map_err(failed)?;
    }
    let stages = stages.0.lock().unwrap_or_else(PoisonError::into_inner);
    let (mut steps, mut calls) = (Vec::new(), Vec::new());
    for pair in stages.windows(2) {
        match (pair[0].0, pair[1].0) {
            (Stage::Step, Stage::Call) => steps.push(pair[1].1.duration_since(pair[0].1)),
            (Stage::Call, Stage::Answer) => calls.push(pair[1].1.duration_since(pair[0].1)),
            _ => {}
        }
    }
    if steps.len() == TASKS && calls.len() == TASKS {
        Ok((steps, calls))
    } else {
        Err(BenchError::Answer(format!("{} calls of {TASKS} tasks", calls.len())))
    }
}

#[derive(Clone, Copy)]
enum Stage {
    Step,
    Call,
    Answer,
}

/// The beginnings of steps and of calls, and the ends of calls.
#[derive(Default)]
struct Stages(Mutex<Vec<(Stage, Instant)>>);

impl Subscriber for Stages {
    fn on(&self, happening: &Published) {
        let stage = match &happening.what {
            RunEvent::Notice { notice: Notice::StepStarted { .. } } => Stage::Step,
            RunEvent::Notice { notice: Notice::ToolCalled { .. } } => Stage::Call,
            RunEvent::Notice { notice: Notice::ToolAnswered { .. } } => Stage::Answer,
            _ => return,
        };
        let mut stages = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        stages.push((stage, Instant::now()));
    }
}
