//! An agent for the demo: makes `weather` misbehave in every way, one call per step, and still
//! answers.

use conclave_sdk::{Agent, Result, ToolOutput, Turn, View, call, finish, pick};
use serde_json::{Value, json};

/// The order, from quiet to loud.
const TOUR: [&str; 6] = ["read_key", "climb", "call_home", "hoard", "spin", "dive"];

struct Tour;

impl Agent for Tour {
    fn step(view: &View) -> Result<Turn> {
        let outputs = view.tool_outputs();
        if let Some(output) = outputs.iter().find(|output| output.name.ends_with(".temperature")) {
            return Ok(finish(answer(output)));
        }
        let next = usize::try_from(view.iteration())?;
        Ok(match TOUR.get(next) {
            Some(tool) => call(format!("weather.{tool}"), json!({})),
            None if next == TOUR.len() => call("weather.temperature", json!({ "place": "Oslo" })),
            None => finish("The weather plugin gave no temperature."),
        })
    }
}

fn answer(output: &ToolOutput) -> String {
    let report: Value =
        serde_json::from_str(output.value.as_ref().unwrap_or(&output.content)).unwrap_or_default();
    match (pick::<String>(&report, "/place"), pick::<f64>(&report, "/celsius")) {
        (Ok(place), Ok(celsius)) => format!("{place}: {celsius:.1} °C"),
        _ => output.content.clone(),
    }
}

conclave_sdk::export!(agent: Tour, asks: [tools]);
