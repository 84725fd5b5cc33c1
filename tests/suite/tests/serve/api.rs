//! API v1: the document of its routes, the list of runs, and their records as events.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::client::{Event, Events, Served};
use super::people::{begin, token};
use super::{WEB, delegating, echo};

/// The paths that need no session.
const OPEN: [&str; 3] = ["/healthz", "/readyz", "/api/session"];

/// Reads the records up to one of this kind. Returns their numbers, and the id of the last one.
fn numbers(events: &mut Events, kind: &str) -> (Vec<u64>, String) {
    let mut numbers = Vec::new();
    loop {
        let event = events.next();
        assert_eq!(event.kind, "record");
        numbers.extend(event.data["seq"].as_u64());
        if event.data["event"] == kind {
            return (numbers, event.id.expect("each record has an id"));
        }
    }
}

#[test]
fn every_documented_route_answers_and_only_some_answer_a_stranger() {
    let rig = echo(WEB);
    let served = Served::start(&rig, &[]);
    let room = served.only_room();
    let document = served.get("/api/v1/openapi.json").body;
    let paths = document["paths"].as_object().expect("a document");
    assert!(paths.len() > 10, "{document}");
    for (path, operations) in paths {
        let path = path.replace("{run}", &room).replace("{id}", &room).replace("{call}", "c0");
        for method in operations.as_object().expect("operations").keys() {
            let method = method.to_uppercase();
            assert!(method == "GET" || method == "POST", "{method} {path}");
            // Nothing but runs and conversations can be changed.
            let is_change = ["/api/session", "/api/conversations", "/api/v1/runs", "/hooks/"]
                .iter()
                .any(|changed| path.starts_with(changed));
            assert!(method == "GET" || is_change, "{method} {path}");
            let strange = [served.own()[0].clone(), served.own()[1].clone()];
            let refused = served.request(&method, &path, &strange, "{}");
            assert_eq!(refused.status == 401, !OPEN.contains(&path.as_str()), "{method} {path}");
            if path.starts_with("/hooks/") {
                // A session takes the place of no signature.
                let refused = served.request(&method, &path, &served.own(), "{}");
                assert_eq!(refused.body["code"], "wrong_signature", "{path}");
                continue;
            }
            if path.ends_with("/events") {
                served.stream(&path, None).next();
                continue;
            }
            let answer = served.request(&method, &path, &served.own(), "{}");
            // The room has made no call yet.
            let is_there = !path.contains("/why/") || answer.body["code"] == "call_not_found";
            let wrong: &[u16] = if is_there && path.contains("/why/") { &[] } else { &[404] };
            assert!(
                ![&[401, 405, 500], wrong].concat().contains(&answer.status),
                "{path}: {}",
                answer.text
            );
            for header in ["access-control-allow-origin", "access-control-allow-credentials"] {
                assert_eq!(answer.header(header), None, "{path}");
            }
        }
    }
    let missing = served.get("/api/v1/no-such-route");
    assert_eq!((missing.status, &missing.body["code"]), (404, &json!("not_found")));
    assert_eq!(missing.header("content-type"), Some("application/problem+json"));
    // What a run is made of is the operator's alone.
    for field in [
        "config",
        "plugins",
        "source",
        "grants",
        "policy",
        "secrets",
        "limits",
        "models",
        "url",
        "role",
        "scope",
        "principal",
        "expression",
    ] {
        let body = json!({ "text": "go", field: {} });
        let refused = served.post("/api/v1/runs", &body);
        assert_eq!(
            (refused.status, &refused.body["code"]),
            (422, &json!("bad_arguments")),
            "{field}"
        );
    }
    let method = served.post("/api/v1/questions", &json!({}));
    assert_eq!((method.status, &method.body["code"]), (405, &json!("wrong_method")));
}

#[test]
fn a_reader_gets_each_record_once_also_after_a_restart() {
    let rig = echo(WEB);
    let served = Served::start(&rig, &[]);
    let room = served.only_room();
    let path = format!("/api/v1/runs/{room}/events");
    // A run is in the store once its room has handled something.
    served.send(&room, "a", "one");
    served.events(&room, None).entry();
    let mut live = served.stream(&path, None);
    let first = numbers(&mut live, "room-opened").0;
    let mut all = first.clone();
    let (more, last) = numbers(&mut live, "agent-stepped");
    all.extend(more);
    assert_eq!(all, (0..all.len() as u64).collect::<Vec<_>>(), "without a gap");
    let opened = served.stream(&path, None).next().data;
    assert_eq!((&opened["seq"], &opened["principal"]), (&json!(0), &json!("operator")));
    // A reader that comes again gets what follows.
    let served = served.killed().start_again(&rig);
    served.send(&room, "b", "two");
    let mut again = served.stream(&path, Some(&last));
    let (more, _) = numbers(&mut again, "agent-stepped");
    assert_eq!(more[0], all.len() as u64, "{more:?}");
    let from_start = numbers(&mut served.stream(&path, None), "room-opened").0;
    assert_eq!(from_start, first);
    // One whose last record is none of this store must drop what it has, and gets everything.
    let mut anew = served.stream(&path, Some("2.41"));
    assert_eq!(anew.next().kind, "reset");
    assert_eq!(numbers(&mut anew, "room-opened").0, first);
}

/// The streams share what is read from the store, and none is read twice for them.
#[test]
fn a_thousand_readers_get_each_record_once() {
    let rig = echo(WEB);
    let served = Served::start(&rig, &[]);
    let room = served.only_room();
    let path = format!("/api/v1/runs/{room}/events");
    served.send(&room, "a", "one");
    served.events(&room, None).entry_so(|entry| entry["kind"] == "answer");
    let mut readers: Vec<_> = (0..1_000).map(|_| served.stream(&path, None)).collect();
    for key in ["b", "c"] {
        assert_eq!(served.send(&room, key, "more").status, 200);
    }
    for reader in &mut readers {
        let mut all = Vec::new();
        for _ in 0..3 {
            all.extend(numbers(reader, "agent-stepped").0);
        }
        assert_eq!(all, (0..all.len() as u64).collect::<Vec<_>>());
    }
}

#[test]
fn the_records_of_child_rooms_are_in_the_stream_of_their_run() {
    let rig = delegating();
    let served = Served::start(&rig, &[]);
    let room = served.only_room();
    let path = format!("/api/v1/runs/{room}/events");
    served.send(&room, "a", "hello");
    served.events(&room, None).entry_so(|entry| entry["kind"] == "result");
    let mut live = served.stream(&path, None);
    let mut seen: BTreeMap<String, u64> = BTreeMap::new();
    let mut events = Vec::new();
    // The child opens in the middle, and its parent has a record of its end.
    let is_end = |event: &Event| event.data["event"] == "background-ended";
    while !events.last().is_some_and(is_end) {
        let event = live.next();
        let of = event.data["room"].as_str().expect("a room").to_owned();
        let count = seen.entry(of).or_default();
        assert_eq!(event.data["seq"], *count, "in the order of each room");
        *count += 1;
        events.push(event);
    }
    assert!(seen.len() == 2 && seen.keys().all(|of| of.starts_with(&room)), "{seen:?}");
    // Behind the same record, the next one is the same.
    for pair in events.windows(2) {
        let again = served.stream(&path, pair[0].id.as_deref()).next();
        assert_eq!((&again.id, &again.data), (&pair[1].id, &pair[1].data));
    }
}

#[test]
fn runs_are_listed_by_pages_and_to_those_who_may_read_them() {
    let rig = echo(WEB);
    let tokens = [("ada", "user"), ("bob", "user"), ("vera", "viewer")]
        .map(|(name, role)| token(&rig, name, role));
    let mut served = Served::start(&rig, &[]);
    let [ada, bob, vera] = tokens.each_ref().map(|token| served.log_in(token));
    served.with_cookie(&bob);
    let begin_and_say = |served: &Served| {
        let room = begin(served);
        served.send(&room, "a", "Good morning.");
        served.events(&room, None).entry();
        room
    };
    let foreign = begin_and_say(&served);
    served.with_cookie(&ada);
    let own = [begin_and_say(&served), begin_and_say(&served)];
    let run_ids = |list: &Value| -> Vec<String> {
        let rows = list["runs"].as_array().cloned().unwrap_or_default();
        rows.iter().filter_map(|row| Some(row["run"].as_str()?.to_owned())).collect()
    };
    let mut listed = Vec::new();
    let mut path = "/api/v1/runs?limit=1".to_owned();
    loop {
        let page = served.get(&path).body;
        assert!(run_ids(&page).len() <= 1, "{page}");
        listed.extend(run_ids(&page));
        let Some(next) = page["next"].as_str() else { break };
        path = format!("/api/v1/runs?limit=1&cursor={next}");
    }
    listed.sort();
    assert_eq!(listed, own);
    let run = served.get(&format!("/api/v1/runs/{}", own[0])).body;
    assert_eq!((&run["principal"], &run["state"]), (&json!("ada"), &json!("running")));
    assert!(run["room_list"].is_array() && run["waits"].is_array(), "{run}");
    assert!(run.get("store").is_none() && run.get("config").is_none(), "no path: {run}");
    for path in [format!("/api/v1/runs/{foreign}"), "/api/v1/runs/nobodys".to_owned()] {
        for path in [path.clone(), format!("{path}/events")] {
            let refused = served.get(&path);
            assert_eq!((refused.status, &refused.body["code"]), (404, &json!("run_not_found")));
        }
    }
    let refused = served.get("/api/v1/runs?config=x");
    assert_eq!((refused.status, &refused.body["code"]), (404, &json!("config_not_found")));
    for query in ["?store=x", "?limit=x", "?cursor=nobodys"] {
        let refused = served.get(&format!("/api/v1/runs{query}"));
        assert_eq!((refused.status, &refused.body["code"]), (400, &json!("bad_arguments")));
    }
    let refused = served.get("/metrics");
    assert_eq!((refused.status, &refused.body["code"]), (403, &json!("missing_role")));
    served.with_cookie(&vera);
    assert_eq!(run_ids(&served.get("/api/v1/runs").body).len(), 3);
    // A cursor stays one when its run is removed: the list goes on with those before it.
    let started = served.get(&format!("/api/v1/runs/{}", own[1])).body["started"].clone();
    let behind = served.get(&format!("/api/v1/runs?cursor={started}.gone")).body;
    assert!(run_ids(&behind).contains(&own[0]), "{behind}");
    let figures = served.get("/metrics");
    assert!(figures.text.contains("conclave_runs{state=\"running\"} 3"), "{}", figures.text);
}
