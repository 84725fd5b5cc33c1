//! The work of the runs: a script of acts for each, which its agent follows, one act in a step. The
//! name of a room says everything, so that all workers and the checks agree without a message.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use conclave_runtime::Capability;
use conclave_runtime::action::{Action, Turn};
use conclave_runtime::delegation::Delegation;
use conclave_runtime::ids::RoomId;
use conclave_runtime::models::ModelClient;
use conclave_runtime::native::{self, Failure, IntoTurn, Plugin, Step};
use conclave_runtime::{Host, HostOptions, Prepared, store::Store};
use serde_json::json;

use crate::child::{Seller, tool};

/// The beginning of the names of all runs.
const PREFIX: &str = "run";

/// What is special about a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Plain,
    /// Waits for a decision, which approves its call.
    Approved,
    /// Waits for a decision, which refuses its call.
    Refused,
    /// Waits for a decision that never comes, until a timer ends the wait.
    Lapsed,
    /// Asks its user.
    Asking,
}

/// An act of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    /// A call whose effect must happen once.
    Effect(String),
    /// A call that may be repeated.
    Repeatable,
    /// A child room in the background.
    Delegate,
    /// A call that waits for a decision.
    Pay,
    /// A call whose decision lapses.
    Lapse,
    Ask,
}

/// The script of a room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Script {
    pub(crate) kind: Kind,
    pub(crate) acts: Vec<Act>,
}

/// Returns the name of a run.
pub(crate) fn run_of(number: u64) -> RoomId {
    RoomId::from(format!("{PREFIX}{number}"))
}

/// Returns the number in the name of a run.
pub(crate) fn number_of(run: &RoomId) -> u64 {
    run.run().as_str().trim_start_matches(PREFIX).parse().unwrap_or_default()
}

/// Whether the office tells the run something while it works.
pub(crate) fn is_told(run: &RoomId) -> bool {
    number_of(run) % 4 == 1
}

/// Whether the office stops the run while it works.
pub(crate) fn is_stopped(run: &RoomId) -> bool {
    number_of(run) % 9 == 4
}

pub(crate) fn is_child(room: &RoomId) -> bool {
    room.run() != *room
}

impl Script {
    pub(crate) fn of(room: &RoomId) -> Self {
        if is_child(room) {
            let acts = (0..2).map(|number| Act::Effect(format!("effect-{number}"))).collect();
            return Self { kind: Kind::Plain, acts };
        }
        let number = number_of(room);
        let kinds = [Kind::Plain, Kind::Approved, Kind::Lapsed, Kind::Asking, Kind::Refused];
        let kind = kinds[usize::try_from(number % 5).unwrap_or_default()];
        let mut acts: Vec<Act> =
            (0..3 + number % 4).map(|number| Act::Effect(format!("effect-{number}"))).collect();
        acts.insert(1, Act::Delegate);
        acts.push(Act::Repeatable);
        let special = match kind {
            Kind::Plain => None,
            Kind::Approved | Kind::Refused => Some(Act::Pay),
            Kind::Lapsed => Some(Act::Lapse),
            Kind::Asking => Some(Act::Ask),
        };
        if let Some(special) = special {
            acts.insert(3, special);
            acts.push(Act::Effect("last".to_owned()));
        }
        Self { kind, acts }
    }
}

/// Returns the name of an effect of a room in the world.
pub(crate) fn effect(room: &RoomId, name: &str) -> String {
    format!("{room}/{name}")
}

/// Returns the result of a room.
pub(crate) fn result(room: &RoomId) -> String {
    format!("result of {room}")
}

/// Loads the config of all hosts.
pub(crate) async fn load(
    stock: &Path,
    cache: &Path,
    port: u16,
    store: &Store,
) -> Result<(Arc<Host>, Arc<Prepared>), String> {
    let host = Host::new(HostOptions {
        cache: Some(cache.to_owned()),
        native: vec![
            clerk(),
            tool("once", port, false),
            tool("many", port, true),
            tool("pay", port, false),
            tool("lapse", port, false),
        ],
        models: [("default".to_owned(), Arc::new(Seller(port)) as Arc<dyn ModelClient>)].into(),
        blobs: store.blobs(),
        ..HostOptions::default()
    });
    let host = Arc::new(host.map_err(|error| error.to_string())?);
    let config = conclave_runtime::config::Config::parse("cluster.toml", "", &config(stock))
        .map_err(|problems| problems.to_string())?;
    let prepared = host.load(&config).await.map_err(|error| error.to_string())?;
    Ok((host, Arc::new(prepared)))
}

fn config(stock: &Path) -> String {
    let mut text = format!(
        r#"
entry = "main"
[models.default]
kind = "native"
[plugins.clerk]
source = "native:clerk"
limits.wall = "1 h"
grants.model = ["default"]
grants.tools = ["*"]
grants.delegate = ["child"]
[plugins.strategy]
source = "{strategy}"
grants.channels = ["terminal"]
[tasks.main]
agent = "clerk"
on_no_tool_call = "user"
[tasks.child]
agent = "clerk"
delivery_strategy = "strategy"
[limits.run]
wall = "2 h"
tool_calls = 1_000_000
"#,
        strategy = stock.join("immediate.wasm").display(),
    );
    for name in ["once", "many", "pay", "lapse"] {
        let _ =
            writeln!(text, "[plugins.{name}]\nsource = \"native:{name}\"\nlimits.wall = \"1 h\"");
    }
    text + "[[policy]]\ntool = \"pay.*\"\ndecide = \"ask\"\n\
        [[policy]]\ntool = \"lapse.*\"\ndecide = \"ask\"\nexpires = \"3 s\"\n\
        [[policy]]\ntool = \"*\"\ndecide = \"allow\"\n"
}

/// The agent of all tasks.
fn clerk() -> Plugin {
    Plugin::agent("clerk", |step: Step| async move { take_step(&step).await })
        .asks(Capability::Model, "each step asks it")
        .asks(Capability::Tools, "most acts are calls")
        .asks(Capability::Delegate, "a part is done in the background")
}

async fn take_step(step: &Step) -> Result<Turn, Failure> {
    let room = step.host.room();
    let acts = Script::of(room).acts;
    step.complete().await?;
    let call = |tool: &str, name: &str| native::call(tool, json!({ "id": effect(room, name) }));
    let number = usize::try_from(step.view.iteration).unwrap_or(usize::MAX);
    Ok(match acts.get(number) {
        Some(Act::Effect(name)) => call("once.do", name),
        Some(Act::Repeatable) => call("many.do", "many.do"),
        Some(Act::Pay) => call("pay.do", "pay"),
        Some(Act::Lapse) => call("lapse.do", "lapse"),
        Some(Act::Ask) => native::say(format!("a question of {room}")),
        Some(Act::Delegate) => {
            let delegation = Delegation {
                worker: "child".to_owned(),
                description: format!("a part of {room}"),
                context: json!({}),
                ..Delegation::default()
            };
            Action::DelegateTask(Box::new(delegation)).into_turn()
        }
        None => native::finish(result(room)),
    })
}
