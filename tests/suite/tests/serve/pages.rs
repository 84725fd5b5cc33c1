//! The pages over HTTP, as a browser without scripts reads them.

use conclave_test_support::until;
use serde_json::json;

use super::acting::waiting;
use super::client::{Response, Served};
use super::people::{begin, token};
use super::{WEB, echo};
use crate::cli::{conclave, text};

#[test]
fn a_run_and_its_events_are_read_without_a_script_by_who_may_read_it() {
    let rig = echo(WEB);
    let tokens = [("ada", "user"), ("bob", "user"), ("vera", "viewer")]
        .map(|(name, role)| token(&rig, name, role));
    let mut served = Served::start(&rig, &[]);
    let [ada, bob, vera] = tokens.each_ref().map(|token| served.log_in(token));
    served.with_cookie(&ada);
    let started = served.post("/api/v1/runs", &json!({ "text": "<b>Good</b> p\u{430}ypal" }));
    let room = started.body["run"].as_str().expect("a run").to_owned();
    let state = || served.get(&format!("/api/v1/runs/{room}")).body["state"].clone();
    until("its end", || (state() == "done").then_some(()));
    let list = served.get("/runs");
    assert_eq!(list.status, 200, "{}", list.text);
    assert!(list.text.contains(&format!("href=\"/runs/{room}\"")), "{}", list.text);
    let run = served.get(&format!("/runs/{room}"));
    assert_eq!(run.status, 200, "{}", run.text);
    assert!(run.text.contains("&lt;b&gt;Good&lt;/b&gt;"), "{}", run.text);
    assert!(!run.text.contains("<b>Good"), "{}", run.text);
    assert!(run.text.contains("look-alike"), "{}", run.text);
    let policy = run.header("content-security-policy").expect("each page has one");
    assert!(policy.contains("require-trusted-types-for 'script'") && !policy.contains("unsafe"));
    let id = run.text.split("<li id=\"e").nth(1).and_then(|rest| rest.split('"').next());
    let event = format!("/runs/{room}?event={}", id.expect("it has events"));
    assert!(served.get(&event).text.contains("<details open>"));
    // To another user the run does not exist; a viewer reads it.
    served.with_cookie(&bob);
    assert_eq!(served.get(&event).status, 404);
    assert!(!served.get("/runs").text.contains(&room));
    served.with_cookie(&vera);
    assert_eq!(served.get(&event).status, 200);
    // Without a session there is a form, and no run.
    served.with_cookie("");
    let form = served.get(&event);
    assert_eq!(form.status, 401);
    assert!(form.text.contains("action=\"/login\"") && !form.text.contains("Good"));
}

/// Sends a form of a page, as a browser does.
fn send_form(served: &Served, path: &str, fields: &[(&str, &str)]) -> Response {
    let encoded = |text: &str| -> String { text.bytes().map(|it| format!("%{it:02x}")).collect() };
    let fields: Vec<String> =
        fields.iter().map(|(name, value)| format!("{name}={}", encoded(value))).collect();
    served.post_form(path, &fields.join("&"))
}

/// The value of a hidden field of a page.
fn hidden<'a>(page: &'a Response, name: &str) -> &'a str {
    let mark = format!("name=\"{name}\" value=\"");
    let rest = page.text.split(&mark).nth(1);
    rest.and_then(|rest| rest.split('"').next()).unwrap_or_else(|| panic!("{name}: {}", page.text))
}

#[test]
fn an_approver_decides_by_a_form_and_whoever_comes_second_learns_who_did() {
    let rig = waiting();
    let people = [
        ("olga", "operator"),
        ("vera", "viewer"),
        ("petra", "approver"),
        ("paul", "approver"),
        ("ada", "user"),
    ];
    let tokens = people.map(|(name, role)| token(&rig, name, role));
    let mut served = Served::start(&rig, &[]);
    let [olga, vera, petra, paul, ada] = tokens.each_ref().map(|token| served.log_in(token));
    served.with_cookie(&olga);
    let started = served.post("/api/v1/runs", &json!({ "text": "go" }));
    let run = started.body["run"].as_str().expect("a run").to_owned();
    until("a question", || served.get("/inbox").text.contains("echo.run").then_some(()));
    let path = format!("/runs/{run}/questions/{run}:c1");
    fn approve(digest: &str) -> [(&str, &str); 2] {
        [("decision", "approve"), ("arguments_sha256", digest)]
    }
    // A viewer reads what waits, has no button, and decides nothing with a form of another page.
    served.with_cookie(&vera);
    let inbox = served.get("/inbox");
    assert!(
        inbox.text.contains("it ran") && !inbox.text.contains("data-decide="),
        "{}",
        inbox.text
    );
    assert!(!served.get(&format!("/runs/{run}")).text.contains("method=\"post\" action=\"/runs/"));
    served.with_cookie(&petra);
    let inbox = served.get("/inbox");
    let digest = hidden(&inbox, "arguments_sha256").to_owned();
    served.with_cookie(&vera);
    let refused = send_form(&served, &path, &approve(&digest));
    assert_eq!(refused.status, 403, "{}", refused.text);
    assert!(refused.text.contains("approver"), "{}", refused.text);
    // To another user the run does not exist.
    served.with_cookie(&ada);
    assert!(!served.get("/inbox").text.contains(&run));
    assert_eq!(send_form(&served, &path, &approve(&digest)).status, 404);
    // Another web site's form, and one about other arguments.
    served.with_cookie(&petra);
    let mut foreign = served.own();
    foreign[1].1 = "http://there".to_owned();
    assert_eq!(served.request("POST", &path, &foreign, "decision=approve").status, 403);
    let other = send_form(&served, &path, &approve(&"0".repeat(64)));
    assert_eq!(other.status, 409, "{}", other.text);
    assert!(other.text.contains("name=\"arguments_sha256\""), "it still waits: {}", other.text);
    // Twice, as by a double click: the second is the same decision.
    for _ in 0..2 {
        let decided = send_form(&served, &path, &approve(&digest));
        assert_eq!(decided.status, 303, "{}", decided.text);
        let inbox = decided.header("location").expect("it leads to the inbox");
        let inbox = served.get(inbox);
        assert_eq!(inbox.status, 200, "{}", inbox.text);
        assert!(inbox.text.contains("approved by <bdi>a person at the server (petra)"));
        assert!(inbox.text.contains("Nothing waits for a person"), "{}", inbox.text);
    }
    served.with_cookie(&paul);
    let late = send_form(&served, &path, &[("decision", "refuse"), ("arguments_sha256", &digest)]);
    assert_eq!(late.status, 409, "{}", late.text);
    assert!(late.text.contains("approved by a person at the server (petra)"), "{}", late.text);
    assert_eq!(served.get(&path).status, 303, "a form's address leads to its page");
    // The further pages of the run, each for those who may read it.
    let parts = ["background", "changes", "audit"].map(|part| format!("/runs/{run}/{part}"));
    let audit = served.get(&parts[2]);
    assert!(audit.text.contains("<td>approved</td>"), "{}", audit.text);
    assert!(audit.text.contains("<bdi>petra</bdi>"), "{}", audit.text);
    for (cookie, statuses) in [(&vera, [200, 200, 403]), (&ada, [404; 3])] {
        served.with_cookie(cookie);
        assert_eq!(parts.each_ref().map(|path| served.get(path).status), statuses);
    }
    served.with_cookie(&vera);
    assert_eq!(send_form(&served, &parts[1], &[("decision", "drop")]).status, 403);
    assert!(!served.get(&format!("/runs/{run}")).text.contains("/audit\""));
}

#[test]
fn an_operator_speaks_pauses_and_stops_by_forms() {
    let rig = waiting();
    let tokens =
        [("olga", "operator"), ("petra", "approver")].map(|(name, role)| token(&rig, name, role));
    let mut served = Served::start(&rig, &[]);
    let [olga, petra] = tokens.each_ref().map(|token| served.log_in(token));
    served.with_cookie(&olga);
    let started = served.post("/api/v1/runs", &json!({ "text": "go" }));
    let run = format!("/runs/{}", started.body["run"].as_str().expect("a run"));
    until("a question", || served.get("/inbox").text.contains("echo.run").then_some(()));
    let seen = hidden(&served.get(&run), "seen").to_owned();
    let say = [("text", "look into /docs"), ("seen", &*seen)];
    let act = |served: &Served, act: &str, fields: &[(&str, &str)]| {
        let answer = send_form(served, &format!("{run}/{act}"), fields);
        assert_eq!(answer.status, 303, "{act}: {}", answer.text);
        served.get(answer.header("location").expect("it leads to the run"))
    };
    for _ in 0..2 {
        assert!(act(&served, "messages", &say).text.contains("The run has the message"));
    }
    let paused = act(&served, "pause", &[("reason", "the <disk>")]);
    assert!(paused.text.contains("Paused: <bdi>the &lt;disk&gt;</bdi>"), "{}", paused.text);
    assert!(paused.text.contains(&format!("action=\"{run}/resume\"")));
    // An approver may do none of it.
    served.with_cookie(&petra);
    assert!(!served.get(&run).text.contains("method=\"post\" action=\"/runs/"));
    assert_eq!(send_form(&served, &format!("{run}/resume"), &[]).status, 403);
    served.with_cookie(&olga);
    act(&served, "resume", &[]);
    let ended = act(&served, "stop", &[("reason", "enough")]);
    assert!(ended.text.contains("The run has ended"), "{}", ended.text);
    assert!(!ended.text.contains("method=\"post\" action=\"/runs/"), "nothing is left to do");
    let id = &run["/runs/".len()..];
    let audit = served.get(&format!("/api/v1/runs/{id}/audit")).text;
    assert_eq!(audit.matches("\"kind\":\"message\"").count(), 1, "it was said once: {audit}");
}

#[test]
fn the_messages_of_a_conversation_are_events_of_its_run_with_their_senders() {
    let rig = echo(WEB);
    let ada = token(&rig, "ada", "user");
    let mut served = Served::start(&rig, &[]);
    let ada = served.log_in(&ada);
    served.with_cookie(&ada);
    let room = begin(&served);
    served.send(&room, "a", "Good <b>morning</b>.");
    served.events(&room, None).entry();
    assert_eq!(served.send(&room, "a", "Good night.").status, 409);
    assert_eq!(served.send(&room, "a", "Good <b>morning</b>.").body["duplicate"], true);
    let timeline = || served.get(&format!("/api/v1/runs/{room}/timeline")).body;
    let timeline = until("both", || {
        let all = timeline();
        let rows = all["rows"].as_array().cloned().unwrap_or_default();
        let rows: Vec<_> = rows.into_iter().filter(|row| row["type"] == "inbound").collect();
        (rows.len() == 2).then_some(rows)
    });
    let told = |row: usize, field: &str| timeline[row][field].clone();
    assert_eq!((told(0, "sender"), told(0, "channel")), (json!("ada"), json!("web")));
    assert_eq!(told(0, "text"), json!("Good <b>morning</b>."));
    assert_eq!(told(0, "outcome"), json!({ "outcome": "accepted" }));
    assert_eq!(told(1, "outcome")["outcome"], "refused", "{timeline:?}");
    assert!(told(1, "outcome")["reason"].to_string().contains("key"), "{timeline:?}");
    let page = served.get(&format!("/runs/{room}")).text;
    assert!(page.contains("<bdi>ada:</bdi>") && page.contains("Good &lt;b&gt;morning"), "{page}");
    assert!(page.contains("Good night.") && page.contains("not taken: the key"), "{page}");
    let shown = text(&conclave(&rig, &["show", &room]).stdout);
    assert!(shown.contains("ada:") && shown.contains("Good <b>morning</b>."), "{shown}");
}

/// The value of a figure of the server.
fn figure(served: &Served, name: &str) -> u64 {
    let figures = served.get("/metrics").text;
    let value = figures.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    value.unwrap_or_else(|| panic!("{name}: {figures}"))
}

#[test]
fn a_record_is_folded_once_for_all_who_look_at_its_run_and_an_unchanged_page_is_not_sent_again() {
    let rig = waiting();
    let olga = token(&rig, "olga", "operator");
    let mut served = Served::start(&rig, &[]);
    let olga = served.log_in(&olga);
    served.with_cookie(&olga);
    let started = served.post("/api/v1/runs", &json!({ "text": "go" }));
    let run = started.body["run"].as_str().expect("a run").to_owned();
    until("a question", || served.get("/inbox").text.contains("echo.run").then_some(()));
    let (page, api) = (format!("/runs/{run}"), format!("/api/v1/runs/{run}"));
    let records = || served.get(&api).body["records"].as_u64().expect("a number");
    let folded = || figure(&served, "conclave_folded_records_total ");
    assert_eq!(folded(), 0, "nobody has looked");
    for _ in 0..3 {
        for path in ["", "?kind=task", "/background"].map(|part| format!("{page}{part}")) {
            assert_eq!(served.get(&path).status, 200);
        }
        for view in ["timeline", "tasks", "budget"] {
            assert_eq!(served.get(&format!("{api}/{view}")).status, 200);
        }
    }
    assert_eq!((folded(), figure(&served, "conclave_folded_runs ")), (records(), 1));
    // Whoever has a copy gets no other one until there is another record.
    let known = |path: &str, tag: &str| {
        let mut headers = served.own();
        headers.push(("If-None-Match", tag.to_owned()));
        served.request("GET", path, &headers, "")
    };
    let timeline = format!("{api}/timeline");
    let tag = served.get(&timeline).header("etag").expect("a tag").to_owned();
    let same = known(&timeline, &tag);
    assert_eq!((same.status, same.text.as_str()), (304, ""));
    // The times of a page are shown anew from time to time.
    let page_tag = until("an unchanged page", || {
        let tag = served.get(&page).header("etag").expect("a tag").to_owned();
        (known(&page, &tag).status == 304).then_some(tag)
    });
    let before = records();
    assert_eq!(served.post(&format!("{api}/pause"), &json!({})).status, 200);
    until("its record", || (records() > before).then_some(()));
    for (path, tag) in [(&timeline, &tag), (&page, &page_tag)] {
        assert_eq!(known(path, tag).status, 200);
    }
    assert_eq!(folded(), records(), "only the new ones");
    for path in ["/inbox", "/api/v1/questions"] {
        assert!(served.get(path).text.contains("echo.run"), "it waits still");
    }
    assert_eq!(figure(&served, "conclave_read_questions_total "), 1, "however often it is listed");
}

/// A page, a view and a list that a reader has already are not sent again, and those that changed are.
#[test]
fn an_answer_that_is_the_same_is_sent_once() {
    let rig = waiting();
    let root = token(&rig, "root", "admin");
    let mut served = Served::start(&rig, &[]);
    let cookie = served.log_in(&root);
    served.with_cookie(&cookie);
    let run = served.post("/api/v1/runs", &json!({ "text": "go" })).body["run"].clone();
    let run = run.as_str().expect("a run").to_owned();
    until("a question", || served.get("/inbox").text.contains("echo.run").then_some(()));
    let paths = [
        "/runs".to_owned(),
        "/inbox".to_owned(),
        "/budgets".to_owned(),
        format!("/runs/{run}/audit"),
        format!("/runs/{run}/budget"),
        "/api/v1/runs".to_owned(),
        "/api/v1/questions".to_owned(),
        "/api/v1/budgets".to_owned(),
        format!("/api/v1/runs/{run}/audit"),
        format!("/api/v1/runs/{run}/why/c0"),
    ];
    let get = |path: &str, tag: Option<&String>| {
        let mut headers = served.own();
        headers.extend(tag.map(|tag| ("If-None-Match", tag.clone())));
        let answer = served.request("GET", path, &headers, "");
        let tag = answer.header("etag").map(str::to_owned);
        (answer.status, tag.unwrap_or_else(|| panic!("{path}: {}", answer.head)))
    };
    let tags: Vec<String> = paths.iter().map(|path| get(path, None).1).collect();
    let folded = || {
        let figures = served.get("/metrics").text;
        let line = figures.lines().find(|line| line.starts_with("conclave_folded_records_total "));
        line.expect("the figure").to_owned()
    };
    let before = folded();
    for (path, tag) in paths.iter().zip(&tags) {
        // The ages of runs are in minutes, so that the first second of one may change a page.
        let again = until("the same answer", || {
            let known = get(path, Some(tag));
            let now = get(path, Some(&known.1));
            (now.0 == 304).then_some(now)
        });
        assert_eq!(again.0, 304, "{path}");
    }
    assert_eq!(folded(), before, "nothing is folded for them");
    let settled = served
        .post(&format!("/api/v1/runs/{run}/questions/{run}:c1"), &json!({ "decision": "approve" }));
    assert_eq!(settled.status, 200, "{}", settled.text);
    until("the end", || {
        (served.get(&format!("/api/v1/runs/{run}")).body["state"] == "done").then_some(())
    });
    for (path, tag) in paths.iter().zip(&tags).filter(|(path, _)| !path.contains("/why/")) {
        assert_eq!(get(path, Some(tag)).0, 200, "{path}");
    }
}

#[test]
fn the_events_alone_are_what_a_script_fetches() {
    let rig = echo(WEB);
    let served = Served::start(&rig, &[]);
    let started = served.post("/api/v1/runs", &json!({ "text": "go" }));
    let run = format!("/runs/{}", started.body["run"].as_str().expect("a run"));
    let list = served.get(&format!("{run}?part=events&from=9999"));
    assert_eq!(list.status, 200, "{}", list.text);
    // An address behind the last event is that of the last events.
    assert!(
        list.text.contains("<ol class=\"rows\" data-from=\"0\" aria-label=\"Events 1 to "),
        "{}",
        list.text
    );
    assert!(!list.text.contains("class=\"tasks\""), "{}", list.text);
    assert!(served.get(&run).text.contains("class=\"tasks\""));
}

#[test]
fn rights_budgets_and_the_verified_audit_are_for_those_who_may_read_them() {
    let rig = waiting();
    let people = [("olga", "operator"), ("vera", "viewer"), ("ada", "user")];
    let tokens = people.map(|(name, role)| token(&rig, name, role));
    let mut served = Served::start(&rig, &[]);
    let [olga, vera, ada] = tokens.each_ref().map(|token| served.log_in(token));
    served.with_cookie(&olga);
    let started = served.post("/api/v1/runs", &json!({ "text": "go" }));
    let run = started.body["run"].as_str().expect("a run").to_owned();
    until("a question", || served.get("/inbox").text.contains("echo.run").then_some(()));
    let rights = served.get("/rights?plugin=actor&capability=tools&target=echo.run");
    assert_eq!(rights.status, 200, "{}", rights.text);
    for text in ["<svg", "after an approval", "may, after an approval,", "policy[0]"] {
        assert!(rights.text.contains(text), "{text}: {}", rights.text);
    }
    let unknown = served.get("/rights?plugin=actor&capability=tools&target=%3Cb%3E.x");
    assert!(unknown.text.contains("the tool &lt;b&gt;.x does not exist"), "{}", unknown.text);
    let can = served.get("/api/v1/can?plugin=actor&capability=tools&target=echo.run").body;
    assert_eq!((&can["verdict"], &can["denied_by"]), (&json!("ask"), &json!(null)), "{can}");
    let refused = served.get("/api/v1/can?plugin=echo&capability=fetch&target=https://a.example/");
    assert_eq!(refused.body["denied_by"], "manifest", "{}", refused.text);
    assert_eq!(served.get("/api/v1/can?plugin=echo&capability=fetch&write=true").status, 400);
    let map = served.get("/api/v1/rights").body;
    let call = json!({
        "from": "actor", "to": "echo", "by": "tool", "name": "echo.run", "asks": true,
    });
    let calls = map["calls"].as_array().expect("a list");
    assert!(calls.contains(&call) && calls.len() == 2, "{map}");
    assert_eq!(map["uses"]["runs"], 1, "{map}");
    let plugins = served.get("/api/v1/plugins").body;
    assert_eq!(plugins["plugins"].as_array().map(Vec::len), Some(2), "{plugins}");
    let budgets = served.get("/budgets");
    assert!(budgets.text.contains(&format!("/runs/{run}/budget")), "{}", budgets.text);
    assert_eq!(served.get(&format!("/runs/{run}/budget")).status, 200);
    let audit = served.get("/api/v1/audit").body;
    assert_eq!((&audit["is_intact"], &audit["chains"][0]["chain"]), (&json!(true), &json!(1)));
    assert!(audit["chains"][0]["lines"].as_u64() > Some(0), "{audit}");
    assert!(served.get("/audit").text.contains("intact"));
    let pages = ["/rights", "/api/v1/can", "/audit", "/api/v1/audit", "/budgets"];
    let statuses = |served: &Served| pages.map(|page| served.get(page).status);
    served.with_cookie(&vera);
    assert_eq!(statuses(&served), [200, 400, 403, 403, 200]);
    served.with_cookie(&ada);
    assert_eq!(statuses(&served), [403, 403, 403, 403, 200]);
    let budgets = served.get("/budgets");
    assert!(!budgets.text.contains(&run) && !budgets.text.contains("/rights"), "{}", budgets.text);
}

#[test]
fn selected_calls_are_refused_together_each_for_the_arguments_that_were_shown() {
    let rig = waiting();
    let tokens =
        [("olga", "operator"), ("petra", "approver")].map(|(name, role)| token(&rig, name, role));
    let mut served = Served::start(&rig, &[]);
    let [olga, petra] = tokens.each_ref().map(|token| served.log_in(token));
    served.with_cookie(&olga);
    let runs = [0, 1, 2].map(|_| {
        let started = served.post("/api/v1/runs", &json!({ "text": "go" }));
        started.body["run"].as_str().expect("a run").to_owned()
    });
    until("their questions", || {
        (served.get("/inbox").text.matches("id=\"q-").count() == 3).then_some(())
    });
    let digest = {
        served.with_cookie(&petra);
        let inbox = served.get("/inbox");
        assert!(inbox.text.contains("required by the rule at"), "{}", inbox.text);
        hidden(&inbox, "arguments_sha256").to_owned()
    };
    // One about other arguments, and one that nobody asks.
    let other = "0".repeat(64);
    let selected = [
        format!("{}:c1 {digest}", runs[0]),
        format!("{}:c1 {other}", runs[1]),
        format!("{}:c1 {digest}", runs[2]),
        format!("{}:c9 {digest}", runs[2]),
    ];
    let fields: Vec<(&str, &str)> = [("reason", "not today")]
        .into_iter()
        .chain(selected.iter().map(|selected| ("question", selected.as_str())))
        .collect();
    served.with_cookie(&olga);
    let denied = send_form(&served, "/inbox/refuse", &fields);
    assert!(denied.text.contains("0 calls were refused"), "{}", denied.text);
    assert_eq!(denied.text.matches("role=\"alert\"").count(), 4, "{}", denied.text);
    served.with_cookie(&petra);
    let refused = send_form(&served, "/inbox/refuse", &fields);
    assert_eq!(refused.status, 200, "{}", refused.text);
    assert!(refused.text.contains("2 calls were refused."), "{}", refused.text);
    assert_eq!(refused.text.matches("role=\"alert\"").count(), 2, "{}", refused.text);
    assert!(refused.text.contains(&format!("{}:c1", runs[1])), "{}", refused.text);
    let audit = served.get(&format!("/runs/{}/audit", runs[0]));
    assert!(audit.text.contains("not today"), "{}", audit.text);
    let inbox = served.get("/inbox");
    assert_eq!(inbox.text.matches("id=\"q-").count(), 1, "{}", inbox.text);
}
