//! Acting agents with real components: actions and their observations, plans, delegates,
//! micro-agents, and stuck detection.

mod astray;
mod browsing;
mod codeact;
mod commands;
mod delegates;
mod delegator;
mod hostile;
mod micro;
mod planner;
mod prompts;
mod speaking;
mod terminal;
mod workspace;

use conclave_models::test_server::{Server, TestReply};
use conclave_test_support::{Ran, guest, toml_inline};
use serde_json::{Value, json};

/// Returns the config of an agent that plays one action in each step and finishes with its
/// observations. `agent` contains additional lines of its plugin, `task` of its task, and `rest`
/// other tables.
fn acting(script: &Value, agent: &str, task: &str, rest: &str) -> String {
    format!(
        "entry = \"main\"\n[plugins.agent]\nsource = \"{}\"\nconfig = {}\n{agent}\n[tasks.main]\nagent = \"agent\"\n{task}\n{rest}\n",
        guest("acting_agent").display(),
        toml_inline(&json!({ "script": script })),
    )
}

/// Returns the config table of a guest that may carry out actions.
fn executor(guest: &str, name: &str, lines: &str) -> String {
    format!(
        "[plugins.{name}]\nsource = \"{}\"\n{lines}\n{}",
        conclave_test_support::guest(guest).display(),
        allowed(&format!("{name}.*"))
    )
}

/// Returns a rule that allows these tools without an approval, whatever their plugins are granted.
fn allowed(tools: &str) -> String {
    format!("[[policy]]\ntool = \"{tools}\"\ndecide = \"allow\"\n")
}

/// Returns the input of each of the agent's steps.
fn steps(ran: &Ran) -> Vec<Value> {
    let value = ran
        .outcome
        .value
        .clone()
        .or_else(|| serde_json::from_str(ran.content()).ok())
        .unwrap_or_default();
    let steps = value["steps"].as_array().cloned();
    steps.unwrap_or_else(|| {
        panic!(
            "it tells of no steps: {:?}: {}: {}",
            ran.status(),
            ran.outcome.reason,
            ran.content()
        )
    })
}

/// Returns the observations of its actions, in order.
fn observations(ran: &Ran) -> Vec<Value> {
    let since = steps(ran)
        .into_iter()
        .flat_map(|step| step["since"].as_array().cloned().unwrap_or_default());
    since
        .map(|past| past["observation"].clone())
        .filter(|observation| !observation.is_null())
        .collect()
}

/// Returns a model on a server that gives these answers in order and stores the requests.
fn model(answers: Vec<TestReply>) -> (Server, String) {
    let server = Server::start(answers);
    let lines = format!(
        "[models.default]\nkind = \"openai\"\nurl = \"{}\"\nmodel = \"test-model\"\nretries = 0\n",
        server.url()
    );
    (server, lines)
}

/// Returns the messages of each request to a model: role and text.
fn prompts(server: &Server) -> Vec<Vec<(String, String)>> {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let told = |message: &Value| (text(&message["role"]), text(&message["content"]));
    let asked = server.requests().into_iter().filter(|request| request.method == "POST");
    asked
        .map(|request| {
            request.json()["messages"].as_array().into_iter().flatten().map(told).collect()
        })
        .collect()
}

/// Returns an action in the fixed JSON, as a model writes it.
fn says(action: &Value) -> TestReply {
    TestReply::says(&action.to_string())
}
