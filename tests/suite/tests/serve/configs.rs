//! Several configs at one server: a request names its config, lists show those that the person sees,
//! and nobody learns anything of a config where the person has no role.

use std::collections::BTreeSet;

use conclave_test_support::{Rig, stepping, until};
use serde_json::{Value, json};

use super::WEB;
use super::acting::{Client, refusal, waiting};
use super::client::{Response, Served};
use super::people::{person_of_config, token, token_for};
use crate::cli::{conclave, text};

/// Two configs, `a.toml` and `b/conclave.toml`, whose runs wait for an approval.
fn two() -> Rig {
    let config = std::fs::read_to_string(waiting().folder().join("c.toml")).expect("it is there");
    Rig::new().with_file("a.toml", &config).with_file("b/conclave.toml", &config)
}

fn serve(rig: &Rig, arguments: &[&str]) -> Served {
    Served::start_configs(rig, &["a.toml", "b/conclave.toml"], arguments)
}

/// Starts a run of a config, and waits until it asks. Returns the run and the id of the call.
fn start(client: &Client<'_>, config: &str, words: &str) -> (String, String) {
    let body = json!({ "text": words, "config": config });
    let started = client.post("/runs", None, &body);
    assert_eq!(started.status, 201, "{}", started.text);
    let run = started.body["run"].as_str().expect("a run").to_owned();
    (run.clone(), client.question(&run))
}

fn values<'a>(list: &'a Value, rows: &str, field: &str) -> Vec<&'a str> {
    let rows = list[rows].as_array().expect("a list");
    rows.iter().map(|row| row[field].as_str().unwrap_or("nothing")).collect()
}

#[test]
fn a_request_names_its_config_and_lists_show_all_or_one() {
    let rig = two();
    let zoe = token(&rig, "zoe", "admin");
    let mut served = serve(&rig, &[]);
    let client = Client { served: &served, token: &zoe };
    let configs = client.get("/configs");
    assert_eq!(values(&configs, "configs", "config"), ["a", "b"]);
    assert_eq!(configs["configs"][0]["channel"], "web");
    assert_eq!(
        (&configs["configs"][1]["entry"], &configs["configs"][1]["role"]),
        (&json!("desk"), &json!("admin"))
    );
    // None is chosen for the person.
    let refused = client.post("/runs", None, &json!({ "text": "go" }));
    assert_eq!(refusal(&refused), (400, "config_required"));
    assert_eq!(refused.body["configs"], json!(["a", "b"]));
    let refused = client.post("/runs", None, &json!({ "text": "go", "config": "c" }));
    assert_eq!(refusal(&refused), (404, "config_not_found"));
    // A key is one of its config.
    let of = |config: &str| json!({ "text": "go", "config": config });
    let first = client.post("/runs", Some("k"), &of("a"));
    let other = client.post("/runs", Some("k"), &of("b"));
    assert_eq!((first.status, other.status), (201, 201), "{}{}", first.text, other.text);
    assert_ne!(first.body["run"], other.body["run"]);
    assert_eq!((&first.body["config"], &other.body["config"]), (&json!("a"), &json!("b")));
    assert_eq!(client.post("/runs", Some("k"), &of("b")).body["run"], other.body["run"]);
    let (third, question) = start(&client, "b", "again");
    // Lists of all, of one, and some at a time.
    let all = client.get("/runs");
    assert_eq!(values(&all, "runs", "config"), ["b", "b", "a"], "the newest first");
    assert_eq!(values(&client.get("/runs?config=a"), "runs", "config"), ["a"]);
    let mut paged = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = client.get(&format!("/runs?limit=1&cursor={cursor}"));
        paged.extend(values(&page, "runs", "run").into_iter().map(str::to_owned));
        let Some(next) = page["next"].as_str() else { break };
        next.clone_into(&mut cursor);
    }
    assert_eq!(paged, values(&all, "runs", "run"));
    client.question(first.body["run"].as_str().expect("a run"));
    let asked: BTreeSet<_> = values(&client.get("/questions"), "questions", "config")
        .into_iter()
        .map(str::to_owned)
        .collect();
    assert_eq!(asked, BTreeSet::from(["a".to_owned(), "b".to_owned()]));
    assert_eq!(values(&client.get("/questions?config=a"), "questions", "config"), ["a"]);
    // A run's address is enough, and a wrong config beside it is none of its own.
    assert_eq!(client.get(&format!("/runs/{third}"))["config"], "b");
    assert_eq!(client.get(&format!("/runs/{third}?config=b"))["config"], "b");
    let wrong = client.request("GET", &format!("/runs/{third}?config=a"), None, "");
    assert_eq!(refusal(&wrong), (404, "run_not_found"));
    let settled = client.settle((&third, &question), &json!({ "decision": "approve" }));
    assert_eq!(settled.status, 200, "{}", settled.text);
    client.until_state(&third, "done");
    // The page, its conversations and the figures.
    let cookie = served.log_in(&zoe);
    served.with_cookie(&cookie);
    let figures = served.get("/metrics").text;
    assert!(figures.contains("conclave_runs{config=\"b\",state=\"done\"} 1"), "{figures}");
    assert!(figures.contains("conclave_stored_records{config=\"a\"} "), "{figures}");
    let page = served.get("/runs").text;
    assert!(page.contains("href=\"/runs?config=a\"") && page.contains(&third), "{page}");
    let page = served.get("/runs?config=a").text;
    assert!(!page.contains(&third) && page.contains("name=\"config\" value=\"a\""), "{page}");
    assert!(served.get("/inbox?config=a").text.contains("echo.run"));
    let begun = served.post_form("/runs", "seen=1&config=b&text=by+form");
    let address = begun.header("location").expect("it leads to the run").to_owned();
    assert!(served.get(&address).text.contains("by form"), "{address}");
    let again = served.post_form("/runs", "seen=1&config=b&text=by+form");
    assert_eq!(again.header("location"), Some(&*address), "a double click is one run");
    let unnamed = served.post_form("/runs", "seen=1&text=by+form");
    assert_eq!(unnamed.status, 400, "{}", unnamed.text);
    let refused = served.post("/api/conversations", &json!({}));
    assert_eq!((refused.status, &refused.body["error"]), (400, &json!("config_required")));
    for config in ["a", "b"] {
        let begun = served.post(&format!("/api/conversations?config={config}"), &json!({}));
        assert_eq!(begun.status, 201, "{}", begun.text);
    }
    let list = served.get("/api/conversations").body;
    assert_eq!(values(&list, "conversations", "config"), ["a", "b"]);
    assert_eq!(list["configs"], json!(["a", "b"]));
    let id = list["conversations"][1]["id"].as_str().expect("an id");
    assert_eq!(served.send(id, "a", "hello").status, 200);
    assert_eq!(served.events(id, None).entry()["text"], "hello");
}

/// The paths of the API, of the page and of the conversations that name a run.
pub(super) fn paths_of_run(run: &str, question: &str) -> Vec<(&'static str, String)> {
    let mut paths = Vec::new();
    for view in ["", "/tasks", "/timeline", "/audit", "/budget", "/changes", "/events", "/why/c1"] {
        paths.push(("GET", format!("/api/v1/runs/{run}{view}")));
    }
    for act in ["messages", "stop", "pause", "resume", "changes"] {
        paths.push(("POST", format!("/api/v1/runs/{run}/{act}")));
    }
    paths.push(("POST", format!("/api/v1/runs/{run}/questions/{question}")));
    for view in ["", "/background", "/changes", "/audit"] {
        paths.push(("GET", format!("/runs/{run}{view}")));
    }
    for act in ["messages", "stop", "pause", "resume", "changes"] {
        paths.push(("POST", format!("/runs/{run}/{act}")));
    }
    for (method, act) in [("GET", "events"), ("POST", "messages"), ("POST", "stop")] {
        paths.push((method, format!("/api/conversations/{run}/{act}")));
    }
    paths
}

/// A body that the address takes, so that nothing but the run decides the answer.
pub(super) fn body_of(path: &str) -> &'static str {
    match path.rsplit('/').next().unwrap_or_default() {
        "messages" if path.starts_with("/api/conversations") => r#"{"key":"k","text":"hello"}"#,
        "messages" => r#"{"text":"hello"}"#,
        "changes" => r#"{"decision":"drop"}"#,
        "stop" | "pause" | "resume" => "{}",
        _ => r#"{"decision":"approve"}"#,
    }
}

#[test]
fn who_has_a_role_at_one_config_learns_nothing_of_another() {
    check_wall(&[]);
}

#[test]
fn configs_with_one_store_learn_nothing_of_each_other() {
    check_wall(&["--store", "one"]);
}

/// Checks that a person of one config sees nothing of the other.
fn check_wall(arguments: &[&str]) {
    let rig = two();
    let [ada, bea] = [("ada", "a.toml"), ("quentin", "b/conclave.toml")]
        .map(|(name, config)| token_for(&rig, name, "admin", config));
    let served = serve(&rig, arguments);
    let [ada, bea] = [&ada, &bea].map(|token| Client { served: &served, token });
    let (own, _) = start(&ada, "a", "my own words");
    let (foreign, question) = start(&bea, "b", "secret words");
    let conversation = bea.served.request(
        "POST",
        "/api/conversations",
        &[
            ("Host", served.address().to_owned()),
            ("Authorization", format!("Bearer {}", bea.token)),
        ],
        "{}",
    );
    let conversation = conversation.body["id"].as_str().expect("of the only config").to_owned();
    let as_ada = |method: &str, path: &str, body: &str| {
        let headers = [
            ("Host", served.address().to_owned()),
            ("Authorization", format!("Bearer {}", ada.token)),
        ];
        served.request(method, path, &headers, body)
    };
    let is_silent = |path: &str, answer: &Response| {
        let text = answer.text.replace("?settled=", "");
        for secret in
            [foreign.as_str(), &conversation, "secret words", "quentin", "\"b\"", "b/conclave"]
        {
            assert!(!text.contains(secret), "{path} tells {secret}: {}", answer.text);
        }
    };
    // A run of the other config is one that does not exist, to the byte.
    let missing = "0".repeat(foreign.len());
    for id in [&foreign, &conversation] {
        for (method, path) in paths_of_run(id, &question) {
            let body = body_of(&path);
            let answer = as_ada(method, &path, body);
            let same = as_ada(method, &path.replace(id.as_str(), &missing), body);
            assert_eq!(answer.status, same.status, "{method} {path}: {}", answer.text);
            let told = answer.text.replace(id.as_str(), &missing);
            assert_eq!(told, same.text, "{method} {path}");
            assert!((400..500).contains(&answer.status), "{method} {path}: {}", answer.status);
            for query in ["?config=b", "?config=nothing"] {
                let named = as_ada(method, &format!("{path}{query}"), body);
                assert_eq!(named.status, 404, "{method} {path}: {}", named.text);
            }
        }
    }
    // Nor does a list, a count or a page show anything of it.
    for path in [
        "/api/v1/configs",
        "/api/v1/runs",
        "/api/v1/runs?text=secret",
        "/api/v1/questions",
        "/api/conversations",
        "/metrics",
        "/runs",
        "/runs?text=words",
        "/inbox",
        &format!("/inbox?settled={question}"),
        "/api/v1/budgets",
        "/api/v1/rights",
        "/api/v1/plugins",
        "/api/v1/can?plugin=echo&capability=files&target=a",
        "/api/v1/audit",
        "/rights",
        "/budgets",
        "/audit",
    ] {
        let answer = as_ada("GET", path, "");
        // The audit of a store is that of all its runs.
        let is_shared = !arguments.is_empty() && path.ends_with("/audit");
        let status = if is_shared { 403 } else { 200 };
        assert_eq!(answer.status, status, "{path}: {}", answer.text);
        is_silent(path, &answer);
        let [other, none] = ["b", "nothing"].map(|config| {
            let sign = if path.contains('?') { '&' } else { '?' };
            as_ada("GET", &format!("{path}{sign}config={config}"), "")
        });
        assert_eq!((other.status, &other.text), (404, &none.text), "{path}");
        is_silent(path, &other);
    }
    assert_eq!(values(&ada.get("/runs"), "runs", "run"), [own.as_str()]);
    assert_eq!(values(&ada.get("/configs"), "configs", "config"), ["a"]);
    let figures = as_ada("GET", "/metrics", "").text;
    assert!(figures.contains("conclave_approvals_pending{config=\"a\"} 1"), "{figures}");
    // A cursor of the other config is one of no run.
    let cursor = ada.request("GET", &format!("/runs?cursor={foreign}"), None, "");
    assert_eq!(refusal(&cursor), (400, "bad_arguments"));
    for config in ["b", "nothing"] {
        let started = ada.post("/runs", None, &json!({ "text": "go", "config": config }));
        assert_eq!(refusal(&started), (404, "config_not_found"));
        is_silent("/runs", &started);
    }
    // Of the only config that one sees, nothing has to be said.
    let started = ada.post("/runs", None, &json!({ "text": "go" }));
    assert_eq!((started.status, &started.body["config"]), (201, &json!("a")));
    assert_eq!(bea.get(&format!("/runs/{foreign}"))["state"], "running", "nothing was done to it");
    let stopped = bea.post(&format!("/runs/{foreign}/stop"), None, &json!({}));
    assert_eq!((stopped.status, &stopped.body["state"]), (200, &json!("ended")));
    assert_eq!(ada.get(&format!("/runs/{own}"))["state"], "running", "nor to the own one");
}

#[test]
fn the_roles_of_a_person_are_those_at_each_config() {
    let config = std::fs::read_to_string(two().folder().join("a.toml")).expect("it is there");
    let (ada, users) = person_of_config("ada", "user");
    let ada = ada.as_str();
    let viewer = users.replace("\"user\"", "\"viewer\"");
    let rig = Rig::new()
        .with_file("a.toml", format!("{config}{users}\n"))
        .with_file("b.toml", format!("{config}{viewer}\n"))
        .with_file("c.toml", &config);
    let served = Served::start_configs(&rig, &["a.toml", "bee=b.toml", "c.toml"], &[]);
    // The printed address leads to the config without people, and to no other.
    let printed = served.get("/api/v1/configs").body;
    assert_eq!(values(&printed, "configs", "config"), ["c"]);
    let client = Client { served: &served, token: ada };
    let configs = client.get("/configs");
    assert_eq!(values(&configs, "configs", "config"), ["a", "bee"]);
    assert_eq!(values(&configs, "configs", "role"), ["user", "viewer"]);
    let at = |config: &str| client.post("/runs", None, &json!({ "text": "go", "config": config }));
    assert_eq!(at("a").status, 201);
    assert_eq!(refusal(&at("bee")), (403, "missing_role"));
    assert_eq!(refusal(&at("c")), (404, "config_not_found"));
    // A page about several leads to what the person may see at one of them.
    let mut served = served;
    let cookie = served.log_in(ada);
    served.with_cookie(&cookie);
    let leads_to_rights = |page: &str| served.get(page).text.contains("href=\"/rights");
    assert!(leads_to_rights("/runs") && leads_to_rights("/runs?config=bee"));
    assert!(!leads_to_rights("/runs?config=a"), "a user does not read rights");
    let page = served.get("/runs").text;
    assert!(page.contains("href=\"/rights?config=bee\""), "where the person reads them: {page}");
}

#[test]
fn the_printed_address_opens_each_config_and_one_may_have_runs_only() {
    let web = stepping("agent_echo", "", "") + WEB;
    let rig = Rig::new()
        .with_file("chat.toml", &web)
        .with_file("desk.toml", &web)
        .with_file("job.toml", stepping("agent_echo", "", ""));
    let all = ["chat.toml", "desk.toml", "job.toml"];
    let served = Served::start_configs(&rig, &all, &["--store", "one"]);
    let list = served.get("/api/conversations").body;
    assert_eq!(values(&list, "conversations", "config"), ["chat", "desk"], "each has begun one");
    assert_eq!(list["configs"], json!(["chat", "desk"]));
    let refused = served.post("/api/conversations?config=job", &json!({}));
    assert_eq!((refused.status, &refused.body["error"]), (404, &json!("unknown_channel")));
    let started = served.post("/api/v1/runs", &json!({ "text": "go", "config": "job" }));
    assert_eq!(started.status, 201, "{}", started.text);
    let run = started.body["run"].as_str().expect("a run").to_owned();
    until("the run's end", || {
        (served.get(&format!("/api/v1/runs/{run}")).body["state"] == "done").then_some(())
    });
    // Of one store each config has its own, also after a restart.
    let rooms = values(&list, "conversations", "id").into_iter().map(str::to_owned);
    let rooms: Vec<String> = rooms.collect();
    served.send(&rooms[1], "a", "hello");
    served.events(&rooms[1], None).entry_so(|entry| entry["kind"] == "answer");
    let served = served.killed().start_again(&rig);
    let list = served.get("/api/conversations").body;
    assert_eq!(values(&list, "conversations", "id"), rooms);
    assert_eq!(served.entries(&rooms[1]).len(), 2);
    let runs = |config: &str| served.get(&format!("/api/v1/runs?config={config}")).body;
    assert_eq!(values(&runs("job"), "runs", "run"), [run.as_str()]);
    assert_eq!(values(&runs("desk"), "runs", "run"), [rooms[1].as_str()]);
    assert_eq!(served.get("/readyz").status, 200);
}

#[test]
fn names_and_options_that_fit_no_config_alone_are_refused() {
    let web = stepping("agent_echo", "", "") + WEB;
    let rig = Rig::new().with_file("a/conclave.toml", &web).with_file("a.toml", &web);
    for (words, says) in [
        (&["a.toml", "a/conclave.toml"][..], "both have the name a"),
        (&["a.toml", "b=a.toml"], "is named twice"),
        (
            &["a.toml", "b=a/conclave.toml", "--room", "desk"],
            "--room names the rooms of one config",
        ),
        (&["a.toml", "b=a/conclave.toml", "--channel", "desk"], "no channel desk of kind `web`"),
    ] {
        let refused = conclave(&rig, &[&["serve"], words].concat());
        assert_eq!(refused.status.code(), Some(2), "{words:?}");
        assert!(text(&refused.stderr).contains(says), "{}", text(&refused.stderr));
    }
}
