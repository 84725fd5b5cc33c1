//! `conclave trajectory show FILE`: a log as a timeline, with a line for each event.

use std::collections::HashMap;

use anstyle::Style;
use conclave_core::trajectory::{
    Body, Era, Filter, Loaded, LogProblem, Observation, SdkEvent, TrajectoryEvent, TreeError,
    search, tree_of, unmatched_events,
};
use serde_json::{Value, json};

use super::log;
use crate::args::{OutputArgs, TrajectoryShow};
use crate::program::error::CliError;
use crate::program::exit;
use crate::ui::show::listing::Listing;
use crate::ui::show::table::{self, Cells, Column};
use crate::ui::show::{BAD, FAINT, NAME, one_line, plural, printable};
use crate::ui::stdout;

/// Characters of an event that are laid out; the line is then cut at the terminal's width.
const SHOWN: usize = 2_000;
const COLUMNS: [Column; 5] = [
    Column { head: "N", most: 12, goes: 0 },
    Column { head: "WHEN", most: 26, goes: 2 },
    Column { head: "SOURCE", most: 12, goes: 1 },
    Column { head: "WHAT", most: 24, goes: 0 },
    Column { head: "MESSAGE", most: usize::MAX, goes: 0 },
];

pub(super) fn show(args: &TrajectoryShow, output: OutputArgs) -> Result<u8, CliError> {
    let filter = filter(args)?;
    let loaded = log::read(&args.file)?;
    let (events, Loaded { sdk, era, .. }) = (log::own_events(&loaded), &loaded);
    let (form, all) = (era.unwrap_or(Era::V2025), events.len() + sdk.len());
    let (found, later) = match &args.branch {
        Some(leaf) => (Vec::new(), of_sdk(sdk, &filter, Some(&branch(sdk, leaf)?))),
        None => (numbered(events, &filter), of_sdk(sdk, &filter, None)),
    };
    let problems: Vec<LogProblem> =
        loaded.problems.iter().cloned().chain(out_of_place(sdk)).collect();
    let unanswered = unanswered(sdk);
    let listed = found.len() + later.len();
    let part = format!("{listed} of {}", plural(all as u64, "event", "events"));
    let empty = match (all, problems.is_empty()) {
        (0, true) => "the log is empty",
        (0, false) => "",
        _ => &part,
    };
    let item = |n: &i64, event: Value| json!({ "type": "event", "n": n, "event": event });
    let rows = found.iter().map(|(n, event)| row(*n, event, form));
    let items = found.iter().map(|(n, event)| item(n, event.to_json(form)));
    Listing {
        rows: table::rows(&COLUMNS, rows.chain(later.iter().map(|(n, event)| sdk_row(*n, event)))),
        json: items.chain(later.iter().map(|(n, event)| item(n, event.to_json()))),
        empty: empty.to_owned(),
        notes: if listed < all { vec![part.clone()] } else { Vec::new() },
    }
    .print(output)?;
    if output.json {
        for number in &unanswered {
            stdout::json(json!({ "type": "unanswered", "n": number }))?;
        }
        for problem in &problems {
            stdout::json(
                json!({ "type": "problem", "at": problem.at, "message": problem.text, "raw": problem.raw }),
            )?;
        }
    } else {
        if !output.quiet {
            log::report_unanswered(&unanswered);
        }
        log::tell(&problems);
    }
    Ok(if problems.is_empty() { exit::OK } else { exit::FAILED })
}

fn filter(args: &TrajectoryShow) -> Result<Filter, CliError> {
    let date = |option: &str, text: &Option<String>| {
        text.as_deref()
            .map(|text| {
                if is_date(text) {
                    Ok(text.replacen(' ', "T", 1))
                } else {
                    Err(no_date(option, text))
                }
            })
            .transpose()
    };
    let until = date("--until", &args.until)?;
    let filter = Filter {
        include_types: args.types.clone(),
        exclude_types: args.not_type.clone(),
        source: args.source.clone(),
        start_date: date("--since", &args.since)?,
        // Timestamps are compared as text, and a timestamp of that day is longer than the day. The
        // suffix sorts after all of them.
        end_date: until.map(|date| if date.len() == 10 { format!("{date}T99") } else { date }),
        query: args.text.clone(),
        start_id: args.from,
        end_id: args.to,
        reverse: args.reverse,
        limit: args.limit,
        ..Filter::default()
    };
    let sdk: Vec<&str> = SdkEvent::kinds().collect();
    match filter.unknown_types().into_iter().find(|name| !sdk.contains(name)) {
        Some(name) => Err(CliError::usage(format!("{name:?} is not a type of event"))
            .hint("types are run, run-action, run-observation, action, observation, CmdRunAction, MessageEvent")),
        None => Ok(filter),
    }
}

fn no_date(option: &str, text: &str) -> CliError {
    CliError::usage(format!("{option}: {text:?} is neither a day nor a timestamp"))
        .hint("write it as 2024-07-01 or 2024-07-01T12:00:00")
}

/// Whether the text begins with a day.
fn is_date(text: &str) -> bool {
    let day = text.get(..10).unwrap_or_default();
    let is_day = day.len() == 10
        && day
            .char_indices()
            .all(|(at, c)| if matches!(at, 4 | 7) { c == '-' } else { c.is_ascii_digit() });
    is_day && matches!(text.as_bytes().get(10), None | Some(b'T' | b' '))
}

/// The events that pass the filter, with their numbers: their ids, or else their positions.
fn numbered<'a>(events: &'a [TrajectoryEvent], filter: &Filter) -> Vec<(i64, &'a TrajectoryEvent)> {
    // By address, since the filter returns references into the list.
    let positions: HashMap<*const TrajectoryEvent, usize> = events
        .iter()
        .enumerate()
        .map(|(place, event)| (std::ptr::from_ref(event), place))
        .collect();
    let place = |event: &TrajectoryEvent| {
        positions.get(&std::ptr::from_ref(event)).copied().unwrap_or_default()
    };
    search(events, filter)
        .into_iter()
        .map(|event| (event.id.unwrap_or_else(|| number(place(event))), event))
        .collect()
}

fn number(place: usize) -> i64 {
    i64::try_from(place).unwrap_or(i64::MAX)
}

/// Returns the positions of the SDK's event with this id and of its ancestors (O-120).
///
/// # Errors
/// If there is no such event, or if its parents do not lead to the beginning of the log.
fn branch(events: &[SdkEvent], leaf: &str) -> Result<Vec<usize>, CliError> {
    let path = tree_of(events).0.path_to_root(Some(leaf));
    path.map_err(|error| {
        CliError::usage(format!("--branch {}: {error}", printable(leaf)))
            .hint("`--json` shows the `id` of each event")
    })
}

/// The problems of the SDK's event tree: duplicate ids and missing parents.
fn out_of_place(events: &[SdkEvent]) -> impl Iterator<Item = LogProblem> {
    let of = |(at, error): (usize, TreeError)| LogProblem {
        at: format!("event {at}"),
        text: error.to_string(),
        raw: None,
    };
    tree_of(events).1.into_iter().map(of)
}

/// The numbers of the SDK's actions without an answer, refusal or failure (O-121).
fn unanswered(events: &[SdkEvent]) -> Vec<i64> {
    // By address, since the unmatched events are references into the list.
    let positions: HashMap<*const SdkEvent, usize> =
        events.iter().enumerate().map(|(at, event)| (std::ptr::from_ref(event), at)).collect();
    unmatched_events(events)
        .into_iter()
        .filter_map(|event| positions.get(&std::ptr::from_ref(event)).copied().map(number))
        .collect()
}

/// The same for events of the SDK, numbered by position, and only for those in `branch` if it is
/// given.
fn of_sdk<'a>(
    events: &'a [SdkEvent],
    filter: &Filter,
    branch: Option<&[usize]>,
) -> Vec<(i64, &'a SdkEvent)> {
    let names =
        |names: &[String], event: &SdkEvent| names.iter().any(|name| is_sdk_type(event.kind, name));
    let dated = |event: &SdkEvent| match &event.timestamp {
        Some(at) => {
            filter.start_date.as_ref().is_none_or(|start| at >= start)
                && filter.end_date.as_ref().is_none_or(|end| at <= end)
        }
        None => true,
    };
    let matches_query = |event: &SdkEvent| {
        let query = filter.query.as_deref().map(str::to_lowercase);
        query.is_none_or(|query| event.to_json().to_string().to_lowercase().contains(&query))
    };
    let matches_filter = |(n, event): &(i64, &SdkEvent)| {
        (filter.include_types.is_empty() || names(&filter.include_types, event))
            && !names(&filter.exclude_types, event)
            && filter.source.as_deref().is_none_or(|source| source == event.source.name())
            && filter.start_id.is_none_or(|start| *n >= start)
            && filter.end_id.is_none_or(|end| *n <= end)
            && dated(event)
            && matches_query(event)
    };
    let is_on_branch = |place: &usize| branch.is_none_or(|branch| branch.contains(place));
    let placed = events.iter().enumerate().filter(|(place, _)| is_on_branch(place));
    let mut found: Vec<_> =
        placed.map(|(place, event)| (number(place), event)).filter(matches_filter).collect();
    if filter.reverse {
        found.reverse();
    }
    found.truncate(filter.limit.filter(|limit| *limit > 0).unwrap_or(usize::MAX));
    found
}

fn is_sdk_type(kind: &str, name: &str) -> bool {
    kind == name
        || (name == "action" && kind == "ActionEvent")
        || (name == "observation" && kind == "ObservationEvent")
}

fn row(number: i64, event: &TrajectoryEvent, form: Era) -> Cells {
    let (style, what) = match &event.body {
        Body::Action(_) => (NAME, event.kind().to_owned()),
        Body::Observation(observation) => {
            let style = if observation.is_error() { BAD } else { FAINT };
            (
                style,
                event.cause.map_or_else(
                    || event.kind().to_owned(),
                    |cause| format!("{} ‹{cause}›", event.kind()),
                ),
            )
        }
    };
    vec![
        (FAINT, number.to_string()),
        (FAINT, when(event.timestamp.as_deref())),
        (
            Style::new(),
            event.source.as_ref().map(|source| source.name().to_owned()).unwrap_or_default(),
        ),
        (style, what),
        (Style::new(), one_line(&summary(event, form), SHOWN)),
    ]
}

/// The event's line, with its result if that says more.
fn summary(event: &TrajectoryEvent, form: Era) -> String {
    let message = event.message(form);
    let content = event.observation().map(Observation::content).unwrap_or_default().trim();
    match (message.is_empty(), content.is_empty() || message.contains(content)) {
        (true, true) => fields(event, form),
        (_, true) => message,
        (true, false) => content.to_owned(),
        (false, false) => format!("{message} · {content}"),
    }
}

/// The fields of an event without a line of its own.
fn fields(event: &TrajectoryEvent, form: Era) -> String {
    let value = event.to_json(form);
    let details = value.get("args").or_else(|| value.get("extras")).and_then(Value::as_object);
    let is_said = |value: &&Value| {
        !matches!(value, Value::Null | Value::Bool(false)) && value.as_str() != Some("")
    };
    let field = |(name, value): (&String, &Value)| {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        format!("{name}: {text}")
    };
    details
        .into_iter()
        .flatten()
        .filter(|(_, value)| is_said(value))
        .map(field)
        .collect::<Vec<_>>()
        .join(" · ")
}

fn sdk_row(number: i64, event: &SdkEvent) -> Cells {
    let style = match event.kind {
        "ActionEvent" | "MessageEvent" => NAME,
        "AgentErrorEvent" | "ConversationErrorEvent" => BAD,
        _ => FAINT,
    };
    vec![
        (FAINT, number.to_string()),
        (FAINT, when(event.timestamp.as_deref())),
        (Style::new(), event.source.name().to_owned()),
        (style, event.kind.to_owned()),
        (Style::new(), one_line(&sdk_said(event), SHOWN)),
    ]
}

/// The text of an SDK event, if its kind is known to have any.
fn sdk_said(event: &SdkEvent) -> String {
    let of = |key: &str| event.payload.get(key).map(words).unwrap_or_default();
    let text = match event.kind {
        "MessageEvent" => of("llm_message"),
        "SystemPromptEvent" => of("system_prompt"),
        "ActionEvent" => {
            let why = event.text("summary").map_or_else(|| of("thought"), str::to_owned);
            let call = event
                .payload
                .get("tool_call")
                .and_then(|call| call.get("arguments"))
                .map(words)
                .unwrap_or_default();
            return [of("tool_name"), call, why]
                .into_iter()
                .filter(|part| !part.is_empty())
                .collect::<Vec<_>>()
                .join(" · ");
        }
        "ObservationEvent" => format!("{} · {}", of("tool_name"), of("observation")),
        "AgentErrorEvent" => of("error"),
        "ConversationErrorEvent" => format!("{}: {}", of("code"), of("detail")),
        "UserRejectObservation" => of("rejection_reason"),
        "Condensation" | "CondensationSummaryEvent" => of("summary"),
        _ => String::new(),
    };
    if text.is_empty() && !event.payload.is_empty() {
        Value::Object(event.payload.clone()).to_string()
    } else {
        text
    }
}

/// The texts of a value: a message's parts, a tool's result, or the value itself.
fn words(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(parts) => {
            parts.iter().map(words).filter(|text| !text.is_empty()).collect::<Vec<_>>().join(" ")
        }
        Value::Object(map) => {
            match ["text", "content", "output", "error"].iter().find_map(|key| map.get(*key)) {
                Some(inner) => words(inner),
                None => value.to_string(),
            }
        }
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

/// A readable timestamp, without the `T` and without fractions of a second.
fn when(timestamp: Option<&str>) -> String {
    let text = timestamp.unwrap_or_default();
    match text.get(..19).filter(|_| is_date(text)) {
        Some(second) => second.replacen('T', " ", 1),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use conclave_core::trajectory::load;

    use super::*;

    const LOG: &str = r#"{"id": 0, "timestamp": "2024-07-01T12:00:00", "source": "user", "action": "message", "args": {"content": "List\u001b[2J"}}
{"id": 1, "timestamp": "2024-07-01T12:00:01.5", "source": "agent", "action": "run", "args": {"command": "ls", "background": false}}
{"id": 2, "timestamp": "2024-07-02T12:00:02", "source": "agent", "cause": 1, "observation": "run", "content": "a\nb", "extras": {"command": "ls", "command_id": -1, "exit_code": 0}}
{"id": 3, "timestamp": "2024-07-02T12:00:03", "source": "agent", "cause": 1, "observation": "error", "content": "no disk"}
"#;

    fn args(file: &str) -> TrajectoryShow {
        TrajectoryShow {
            file: file.into(),
            types: Vec::new(),
            not_type: Vec::new(),
            source: None,
            text: None,
            since: None,
            until: None,
            from: None,
            to: None,
            branch: None,
            reverse: false,
            limit: None,
        }
    }

    fn numbers_with(change: impl FnOnce(&mut TrajectoryShow)) -> Vec<i64> {
        let mut args = args("-");
        change(&mut args);
        let loaded = load(LOG);
        numbered(&loaded.events, &filter(&args).unwrap())
            .into_iter()
            .map(|(number, _)| number)
            .collect()
    }

    #[test]
    fn filters_select_events_by_type_source_and_text() {
        assert_eq!(numbers_with(|_| {}), [0, 1, 2, 3]);
        assert_eq!(numbers_with(|args| args.types = vec!["run".to_owned()]), [1, 2]);
        assert_eq!(numbers_with(|args| args.not_type = vec!["observation".to_owned()]), [0, 1]);
        assert_eq!(numbers_with(|args| args.source = Some("user".to_owned())), [0]);
        assert_eq!(numbers_with(|args| args.text = Some("NO DISK".to_owned())), [3]);
        assert_eq!(numbers_with(|args| args.since = Some("2024-07-02".to_owned())), [2, 3]);
        assert_eq!(
            numbers_with(|args| args.until = Some("2024-07-01".to_owned())),
            [0, 1],
            "of a day, all of it"
        );
        assert_eq!(numbers_with(|args| args.until = Some("2024-07-01 12:00:00".to_owned())), [0]);
        assert_eq!(numbers_with(|args| (args.from, args.to) = (Some(1), Some(2))), [1, 2]);
        assert_eq!(numbers_with(|args| (args.reverse, args.limit) = (true, Some(2))), [3, 2]);
    }

    #[test]
    fn unknown_filter_values_are_refused() {
        let refused = |change: fn(&mut TrajectoryShow)| {
            let mut args = args("-");
            change(&mut args);
            filter(&args).unwrap_err().to_string()
        };
        assert!(refused(|args| args.types = vec!["rnu".to_owned()]).contains("\"rnu\""));
        assert!(
            refused(|args| args.since = Some("yesterday".to_owned()))
                .contains("--since: \"yesterday\"")
        );
        assert!(refused(|args| args.until = Some("2024-7-1".to_owned())).contains("--until"));
        assert!(
            filter(&TrajectoryShow { types: vec!["ActionEvent".to_owned()], ..args("-") }).is_ok()
        );
    }

    #[test]
    fn a_line_shows_source_kind_and_cause() {
        let loaded = load(LOG);
        let line = |at: usize| {
            row(0, &loaded.events[at], Era::V2024)
                .into_iter()
                .map(|(_, text)| text)
                .collect::<Vec<_>>()
                .join("|")
        };
        assert_eq!(line(0), "0|2024-07-01 12:00:00|user|message|List\\u{1b}[2J");
        assert_eq!(line(1), "0|2024-07-01 12:00:01|agent|run|Running command: ls");
        assert!(
            line(2).starts_with("0|2024-07-02 12:00:02|agent|run ‹1›|")
                && line(2).ends_with("· a b"),
            "{}",
            line(2)
        );
        assert_eq!(row(0, &loaded.events[3], Era::V2024)[3].0, BAD);
    }

    #[test]
    fn sdk_events_are_shown_as_lines() {
        let sdk = r#"[{"kind": "MessageEvent", "source": "user", "timestamp": "2026-01-02T03:04:05", "llm_message": {"role": "user", "content": [{"type": "text", "text": "Hi"}]}},
            {"kind": "PauseEvent", "source": "user"},
            {"kind": "AgentErrorEvent", "source": "agent", "error": "no tool", "tool_name": "x", "tool_call_id": "1"}]"#;
        let loaded = load(sdk);
        assert_eq!((loaded.sdk.len(), loaded.problems.len()), (3, 0), "{:?}", loaded.problems);
        let all = of_sdk(&loaded.sdk, &Filter::default(), None);
        assert_eq!(sdk_row(0, all[0].1)[4].1, "Hi");
        assert_eq!(sdk_row(2, all[2].1)[3], (BAD, "AgentErrorEvent".to_owned()));
        let only = Filter { include_types: vec!["PauseEvent".to_owned()], ..Filter::default() };
        assert_eq!(
            of_sdk(&loaded.sdk, &only, None)
                .into_iter()
                .map(|(number, _)| number)
                .collect::<Vec<_>>(),
            [1]
        );
        let words = Filter {
            query: Some("NO TOOL".to_owned()),
            reverse: true,
            limit: Some(1),
            ..Filter::default()
        };
        assert_eq!(of_sdk(&loaded.sdk, &words, None)[0].0, 2);
    }

    const BRANCHES: &str = r#"[{"kind": "PauseEvent", "id": "a"}, {"kind": "PauseEvent", "id": "b"},
        {"kind": "PauseEvent", "id": "c", "parent_id": "a"}, {"kind": "PauseEvent", "id": "c", "parent_id": "z"}]"#;

    #[test]
    fn a_branch_is_an_event_and_its_ancestors() {
        let loaded = load(BRANCHES);
        let path = branch(&loaded.sdk, "c").unwrap();
        let events = of_sdk(&loaded.sdk, &Filter::default(), Some(&path));
        assert_eq!(events.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [0, 2]);
        assert!(
            branch(&loaded.sdk, "x").unwrap_err().to_string().contains("--branch x: unknown-id")
        );
    }

    #[test]
    fn a_broken_event_tree_is_a_problem() {
        let problems: Vec<LogProblem> = out_of_place(&load(BRANCHES).sdk).collect();
        assert!(
            matches!(problems.as_slice(), [one] if one.at == "event 3" && one.text.starts_with("duplicate-id")),
            "{problems:?}"
        );
    }

    #[test]
    fn unanswered_actions_are_listed_by_number() {
        let action = |id: &str| {
            json!({ "kind": "ActionEvent", "id": id, "thought": [], "action": {}, "tool_name": "t", "tool_call_id": id, "tool_call": {},
                "llm_response_id": "r" })
        };
        let answer = json!({ "kind": "ObservationEvent", "observation": {}, "action_id": "a", "tool_name": "t", "tool_call_id": "a" });
        let loaded = load(&json!([action("a"), action("b"), answer]).to_string());
        assert_eq!((unanswered(&loaded.sdk), loaded.problems), (vec![1], vec![]));
    }
}
