//! Several calls of one message, carried out in the room's round.

use conclave_runtime::action::Observation;
use conclave_runtime::ids::CallId;
use conclave_runtime::notice::Notice;
use serde_json::{Value, json};

use super::Case;
use super::confirm::{PLACE, called};
use super::stage::{Move, Seen, Stage, Told};

pub(super) async fn parallel(case: &Case<'_>) -> Result<Value, String> {
    if let Some(declared) = case.get("declared").and_then(Value::as_object) {
        let names: Vec<String> = declared.keys().cloned().collect();
        return at_once(&names, case.flag("same_tool")).await;
    }
    let calls = case.list("calls")?;
    let name = |call: &Value| {
        call.as_str()
            .or_else(|| call.get("tool")?.as_str())
            .or_else(|| call.get("name")?.as_str())
            .map(str::to_owned)
    };
    let names = calls
        .iter()
        .map(|call| name(call).ok_or_else(|| format!("{call} is no call")))
        .collect::<Result<Vec<String>, String>>()?;
    let seen = round(&names, calls).await?;
    let results = seen
        .since
        .last()
        .into_iter()
        .flat_map(|since| since.iter())
        .filter_map(|past| past.observation.as_ref());
    let event = |told: &Observation| match told {
        Observation::Tool(result) if !result.is_error => json!("observation"),
        told => json!({ "agent_error": told.content() }),
    };
    let events: Vec<Value> = results.map(event).collect();
    let (executed, discarded) = by_call(&names, seen.executed);
    Ok(json!({ "events": events, "executed": executed, "discarded": discarded }))
}

/// Splits the calls into those whose tools ran, once per run, and the others, in the order of the
/// message. The tools report their runs. Their order depends on the scheduler, because they begin
/// at the same time. An uncalled tool comes last.
fn by_call(names: &[String], mut ran: Vec<String>) -> (Vec<String>, Vec<String>) {
    let (mut executed, mut discarded) = (Vec::new(), Vec::new());
    for name in names {
        match ran.iter().position(|other| other == name) {
            Some(at) => executed.push(ran.swap_remove(at)),
            None => discarded.push(name.clone()),
        }
    }
    ran.sort_unstable();
    executed.extend(ran);
    (executed, discarded)
}

/// Plays a round. `finish` is a tool whose result ends the task.
async fn round(names: &[String], calls: &[Value]) -> Result<Seen, String> {
    let mut tools: Vec<(String, Vec<Told>)> = Vec::new();
    for (name, call) in names.iter().zip(calls) {
        let told = match call.get("raises").and_then(Value::as_str) {
            Some(raised) => Told::Fails(raised.to_owned()),
            None => Told::Value(json!("done")),
        };
        match tools.iter_mut().find(|(known, _)| known == name) {
            Some((_, all)) => all.push(told),
            None => tools.push((name.clone(), vec![told])),
        }
    }
    let listed: Vec<String> = tools
        .iter()
        .map(|(name, _)| match name.as_str() {
            "finish" => "{ tool = \"world.finish\", final = true }".to_owned(),
            name => format!("\"world.{name}\""),
        })
        .collect();
    let words: Vec<&str> = names.iter().map(String::as_str).collect();
    let task = format!("tools = [{}]\n", listed.join(", "));
    Stage { tools, task, ..Stage::of(vec![Move::Turn(called(&words))]) }.play().await
}

/// Reports which calls ran one after another and whether two ran at once, from the notices of their
/// starts and ends.
async fn at_once(names: &[String], same_tool: bool) -> Result<Value, String> {
    let tools: Vec<String> =
        names.iter().map(|name| if same_tool { "t".to_owned() } else { name.clone() }).collect();
    let seen = round(&tools, &vec![Value::Null; tools.len()]).await?;
    let mut spans: Vec<Span> = Vec::new();
    for (at, notice) in seen.notices().enumerate() {
        match notice {
            Notice::ToolCalled { call, arguments, .. } => {
                let place = arguments
                    .get(PLACE)
                    .and_then(Value::as_u64)
                    .and_then(|place| names.get(usize::try_from(place).ok()?));
                let name = place
                    .ok_or_else(|| {
                        format!("a tool was called that the case does not call: {arguments}")
                    })?
                    .clone();
                spans.push(Span { call: *call, name, begins: at, ends: usize::MAX });
            }
            Notice::ToolAnswered { call: Some(call), .. } => {
                spans.iter_mut().filter(|span| span.call == *call).for_each(|span| span.ends = at);
            }
            _ => {}
        }
    }
    if spans.len() != names.len() {
        return Err(format!("{} of {} calls ran", spans.len(), names.len()));
    }
    Ok(json!({ "serialised": serialised(&spans), "parallel": overlaps(&spans) }))
}

/// The time from the notice of a call's start to that of its end.
struct Span {
    call: CallId,
    name: String,
    begins: usize,
    ends: usize,
}

impl Span {
    fn overlaps(&self, other: &Self) -> bool {
        self.begins < other.ends && other.begins < self.ends
    }
}

fn overlaps(spans: &[Span]) -> bool {
    spans
        .iter()
        .enumerate()
        .any(|(at, span)| spans[at + 1..].iter().any(|other| span.overlaps(other)))
}

/// Returns groups of calls that do not overlap.
fn serialised(spans: &[Span]) -> Vec<Vec<&str>> {
    let mut groups: Vec<Vec<&Span>> = Vec::new();
    for span in spans {
        match groups.iter_mut().find(|group| group.iter().all(|other| !other.overlaps(span))) {
            Some(group) => group.push(span),
            None => groups.push(vec![span]),
        }
    }
    groups.retain(|group| group.len() > 1);
    groups
        .into_iter()
        .map(|group| group.into_iter().map(|span| span.name.as_str()).collect())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn each_call_is_executed_as_often_as_its_tool_ran() {
        let called = texts(&["a", "b", "a"]);
        assert_eq!(by_call(&called, texts(&["b", "a"])), (texts(&["a", "b"]), texts(&["a"])));
        assert_eq!(
            by_call(&called, texts(&["b", "a", "a", "c"])),
            (texts(&["a", "b", "a", "c"]), texts(&[]))
        );
        assert_eq!(by_call(&called, Vec::new()), (Vec::new(), called));
    }

    #[test]
    fn calls_are_serialised_only_when_none_overlaps_another() {
        let span = |name: &str, begins: usize, ends: usize| Span {
            call: CallId(begins as u64),
            name: name.to_owned(),
            begins,
            ends,
        };
        let one_by_one = [span("a", 0, 1), span("b", 2, 3)];
        assert_eq!((serialised(&one_by_one), overlaps(&one_by_one)), (vec![vec!["a", "b"]], false));
        let at_once = [span("a", 0, 2), span("b", 1, 3)];
        assert_eq!((serialised(&at_once).len(), overlaps(&at_once)), (0, true));
        let one_beside = [span("a", 0, 2), span("c", 1, 5), span("b", 3, 4)];
        assert_eq!((serialised(&one_beside), overlaps(&one_beside)), (vec![vec!["a", "b"]], true));
    }
}
