//! Changes of a plan in order, applied to the plan that the room keeps for an agent.

use conclave_core::types::plan::{Plan, PlanError};
use serde_json::{Value, json};

use super::Case;

pub(super) fn play(case: &Case<'_>) -> Result<Value, String> {
    let mut plan = Plan::default();
    let results = case
        .list("ops")?
        .iter()
        .map(|op| perform(&mut plan, op))
        .collect::<Result<Vec<Value>, String>>()?;
    let current = plan.current().map(|(id, _)| id);
    Ok(
        json!({ "results": results, "tree": plan.to_json(), "current": current, "text": plan.to_text(), "finished": plan.is_finished() }),
    )
}

fn perform(plan: &mut Plan, op: &Value) -> Result<Value, String> {
    let word = |at: usize| {
        op.get(at)
            .and_then(Value::as_str)
            .ok_or_else(|| format!("an op of a plan is ADD or SET with texts, not {op}"))
    };
    let done = match word(0)? {
        "add" => plan.add(word(1)?, word(2)?, op.get(3).unwrap_or(&Value::Null)).map(drop),
        "set" => plan.set_named(word(1)?, word(2)?),
        other => return Err(format!("a plan has no op {other:?}")),
    };
    Ok(match done {
        Ok(()) => json!("ok"),
        Err(PlanError::Malformed(_)) => json!("malformed"),
        Err(PlanError::InvalidState(_)) => json!("invalid-state"),
    })
}
