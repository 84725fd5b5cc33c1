//! One plugin with a tool for each promise of the pages, an agent and a strategy.

use conclave_sdk::delivery::{Context, Decision, DeliveryStrategy, Wake, deliver};
use conclave_sdk::{Agent, Error, Result, Turn, View, fetch, files, finish, kv, model, scratch, tool};

/// Fail with an error of its own.
#[tool]
fn fails(
    /// What to look up.
    text: String,
) -> Result<String> {
    conclave_sdk::log::error!("app.rs: there is no {text}");
    Err(Error::other(format!("there is no {text}")))
}

/// Read a file.
#[tool]
fn opened(
    /// The file.
    path: String,
) -> Result<String> {
    files::read_to_string(&path)
}

/// Count its calls.
#[tool]
fn counted() -> Result<u32> {
    let count = kv::get_json::<u32>("count")?.unwrap_or(0) + 1;
    kv::set_json("count", &count)?;
    Ok(count)
}

/// Fetch a page.
#[tool]
fn fetched(
    /// The page.
    url: String,
) -> Result<String> {
    fetch::get(url).send()?.text()
}

/// Never end.
#[tool]
fn spins() -> Result<u32> {
    loop {
        std::hint::spin_loop();
    }
}

/// Take memory without end.
#[tool]
fn grows() -> Result<u32> {
    let mut held = Vec::new();
    loop {
        held.push(vec![1_u8; 1 << 20]);
        std::hint::black_box(&held);
    }
}

struct Desk;

impl Agent for Desk {
    fn step(_: &View) -> Result<Turn> {
        let steps = scratch::get::<u32>()?.unwrap_or(0) + 1;
        scratch::set(&steps)?;
        let answer = model::answer()?;
        Ok(if answer.tool_calls.is_empty() {
            finish(format!("{} ({steps})", answer.content.unwrap_or_default()))
        } else {
            answer.into()
        })
    }
}

struct AtOnce;

impl DeliveryStrategy for AtOnce {
    fn decide(_: Wake, context: &Context) -> Result<Vec<Decision>> {
        let pending = context.pending_results();
        Ok(if pending.is_empty() { Vec::new() } else { vec![deliver(pending.into_iter().map(|ended| ended.task_id))] })
    }
}

conclave_sdk::export!(tools: [fails, opened, counted, fetched, spins, grows], agent: Desk, delivery: AtOnce);
