//! People with tokens of their own: what each role may do, whose conversation it is, and the end of
//! a revoked token.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use conclave_test_support::{Rig, until};
use serde_json::{Value, json};

use super::client::{Response, Served};
use super::{WEB, echo};
use crate::cli::{conclave, text};

/// Gives a person a token.
pub(crate) fn token(rig: &Rig, name: &str, role: &str) -> String {
    add(rig, name, role, &[]).trim().to_owned()
}

/// Gives a person a token for the server of one config.
pub(super) fn token_for(rig: &Rig, name: &str, role: &str, config: &str) -> String {
    add(rig, name, role, &["--config", config]).trim().to_owned()
}

/// Returns a person's token, and the lines of a config with its hash. Nothing is stored.
pub(super) fn person_of_config(name: &str, role: &str) -> (String, String) {
    let printed = add(&Rig::new(), name, role, &["--for-config"]);
    let (token, lines) = printed.split_once("\n\n").expect("a token, and lines for the config");
    (token.trim().to_owned(), lines.to_owned())
}

fn add(rig: &Rig, name: &str, role: &str, more: &[&str]) -> String {
    let words = [&["server", "token", "add", name, "--role", role], more].concat();
    let made = conclave(rig, &words);
    assert_eq!(made.status.code(), Some(0), "{}", text(&made.stderr));
    text(&made.stdout)
}

/// Begins a conversation, and returns its id.
pub(super) fn begin(served: &Served) -> String {
    let begun = served.post("/api/conversations", &json!({}));
    assert_eq!(begun.status, 201, "{}", begun.text);
    begun.body["id"].as_str().expect("it has an id").to_owned()
}

fn ids(served: &Served) -> Vec<String> {
    let list = served.get("/api/conversations").body;
    let rows = list["conversations"].as_array().cloned().unwrap_or_default();
    rows.iter().filter_map(|row| row["id"].as_str().map(str::to_owned)).collect()
}

fn refusal(response: &Response) -> (u16, &str) {
    (response.status, response.body["error"].as_str().unwrap_or_default())
}

#[test]
fn a_user_has_conversations_of_its_own_and_a_role_reaches_as_far_as_it_says() {
    let rig = echo(WEB);
    let tokens = [("ada", "user"), ("bob", "user"), ("vera", "viewer"), ("olga", "operator")]
        .map(|(name, role)| token(&rig, name, role));
    let mut served = Served::start(&rig, &[]);
    assert_eq!(served.token(), "", "no address gives access");
    assert_eq!(refusal(&served.get("/api/conversations")), (401, "no_access"));
    let [ada, bob, vera, olga] = tokens.each_ref().map(|token| served.log_in(token));
    served.with_cookie(&ada);
    let room = begin(&served);
    served.send(&room, "a", "Mine.");
    assert_eq!(ids(&served), [room.as_str()]);
    // To another user it does not exist, whatever is asked of it.
    served.with_cookie(&bob);
    assert_eq!(ids(&served), [""; 0]);
    let events = format!("/api/conversations/{room}/events");
    let stop = format!("/api/conversations/{room}/stop");
    let missing = served.get("/api/conversations/no-such-room/events");
    for answer in
        [served.get(&events), served.send(&room, "b", "x"), served.post(&stop, &json!({}))]
    {
        assert_eq!(refusal(&answer), refusal(&missing));
        assert_eq!(refusal(&answer), (404, "room_not_found"));
    }
    let own = begin(&served);
    assert_eq!(ids(&served), [own.as_str()]);
    // A viewer reads, and changes nothing.
    served.with_cookie(&vera);
    assert_eq!(ids(&served), [own.as_str(), room.as_str()]);
    assert_eq!(served.events(&room, None).entry()["text"], "Mine.");
    for answer in [
        served.send(&room, "c", "x"),
        served.post(&stop, &json!({})),
        served.post("/api/conversations", &json!({})),
    ] {
        assert_eq!(refusal(&answer), (403, "missing_role"), "{}", answer.text);
        assert!(answer.body["message"].as_str().is_some_and(|it| it.contains("operator")));
    }
    // An operator speaks in everybody's, under a name of its own.
    served.with_cookie(&olga);
    assert_eq!(served.send(&room, "d", "I help.").status, 200);
    served.events(&room, None).entry_so(|entry| entry["text"] == "I help.");
    // What was done in whose name is in the store, and outlives the process.
    let runs = conclave(&rig, &["runs", "--json"]);
    let runs = text(&runs.stdout);
    let rows = runs.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let owners: Vec<_> = rows
        .filter_map(|row| Some((row["run"].as_str()?.to_owned(), row["principal"].clone())))
        .collect();
    assert!(owners.contains(&(room.clone(), json!("ada"))), "{runs}");
    assert!(owners.contains(&(own, json!("bob"))), "{runs}");
    let mut served = served.killed().start_again(&rig);
    let bob = served.log_in(&tokens[1]);
    served.with_cookie(&bob);
    assert_eq!(refusal(&served.get(&events)), (404, "room_not_found"));
    let olga = served.log_in(&tokens[3]);
    served.with_cookie(&olga);
    let mut records = served.stream(&format!("/api/v1/runs/{room}/events"), None);
    let helped = loop {
        let inbound = records.next().data["what"]["inbound"].clone();
        if inbound["text"] == "I help." {
            break inbound;
        }
    };
    assert_eq!(helped["sender"], "olga");
}

#[test]
fn a_revoked_token_ends_its_sessions_and_its_streams() {
    let rig = echo(WEB);
    let (ada, bob) = (token(&rig, "ada", "user"), token(&rig, "bob", "admin"));
    let mut served = Served::start(&rig, &[]);
    let (cookie_of_ada, cookie_of_bob) = (served.log_in(&ada), served.log_in(&bob));
    served.with_cookie(&cookie_of_ada);
    let room = begin(&served);
    let mut stream = served.events(&room, None);
    stream.status(|_| true);
    let revoked = conclave(&rig, &["server", "token", "revoke", "ada"]);
    assert_eq!(revoked.status.code(), Some(0), "{}", text(&revoked.stderr));
    stream.until_end();
    assert_eq!(refusal(&served.get("/api/conversations")), (401, "no_access"));
    let again = served.post("/api/session", &json!({ "token": ada }));
    assert_eq!(refusal(&again), (401, "no_access"));
    served.with_cookie(&cookie_of_bob);
    assert_eq!(ids(&served), [room.as_str()], "others stay");
    let twice = conclave(&rig, &["server", "token", "revoke", "ada"]);
    assert_eq!(twice.status.code(), Some(2), "{}", text(&twice.stderr));
}

#[test]
fn a_programs_token_is_in_a_header_and_nothing_else_says_who_asks() {
    let rig = echo(WEB);
    let (ada, vera) = (token(&rig, "ada", "admin"), token(&rig, "vera", "viewer"));
    let served = Served::start(&rig, &[]);
    let host = ("Host", served.address().to_owned());
    let bearer = |token: &str| ("Authorization", format!("Bearer {token}"));
    let path = "/api/conversations";
    let begun = served.request("POST", path, &[host.clone(), bearer(&ada)], "{}");
    assert_eq!(begun.status, 201, "{}", begun.text);
    let last = if ada.ends_with('0') { '1' } else { '0' };
    let wrong = format!("{}{last}", &ada[..ada.len() - 1]);
    for token in ["", "ada", wrong.as_str(), &ada.replace("ada.", "vera.")] {
        let answer = served.request("GET", path, &[host.clone(), bearer(token)], "");
        assert_eq!(refusal(&answer), (401, "no_access"), "{token}");
    }
    // A role comes from the token, and a page of another site may not use even that.
    let claims = [("X-Role", "admin".to_owned()), ("X-Forwarded-User", "ada".to_owned())];
    let headers = [&[host.clone(), bearer(&vera)][..], &claims].concat();
    let answer = served.request("POST", path, &headers, "{\"role\":\"admin\"}");
    assert_eq!(refusal(&answer), (403, "missing_role"));
    let foreign = ("Origin", "http://evil.test".to_owned());
    let answer = served.request("GET", path, &[host, bearer(&ada), foreign], "");
    assert_eq!(refusal(&answer), (403, "wrong_origin"));
    // Its secret is in no file but where its person keeps it.
    drop(served);
    let secret = &ada["ada.".len()..];
    let mut folders = vec![rig.root().to_owned()];
    while let Some(folder) = folders.pop() {
        for file in std::fs::read_dir(folder).expect("a folder").flatten().map(|it| it.path()) {
            if file.is_dir() {
                folders.push(file);
            } else if file.extension().is_none_or(|kind| kind != "cwasm")
                && let Ok(bytes) = std::fs::read(&file)
            {
                let has = bytes.windows(secret.len()).any(|part| part == secret.as_bytes());
                assert!(!has, "{}", file.display());
            }
        }
    }
}

#[test]
fn a_programs_first_requests_may_all_come_at_once() {
    let rig = echo(WEB);
    let ada = token(&rig, "ada", "viewer");
    let served = Served::start(&rig, &[]);
    let headers =
        [("Host", served.address().to_owned()), ("Authorization", format!("Bearer {ada}"))];
    let answers: Vec<u16> = std::thread::scope(|scope| {
        let request = || served.request("GET", "/api/v1/runs", &headers, "").status;
        let all: Vec<_> = (0..32).map(|_| scope.spawn(request)).collect();
        all.into_iter().map(|one| one.join().expect("it answers")).collect()
    });
    assert_eq!(answers, [200; 32]);
}

#[test]
fn a_flood_under_the_name_of_a_person_keeps_that_person_not_out() {
    let rig = echo(WEB);
    let ada = token(&rig, "ada", "viewer");
    let served = Served::start(&rig, &[]);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let flood = |sender: usize| {
            let (served, is_over) = (&served, &is_over);
            move || {
                let mut statuses = BTreeSet::new();
                for number in 0.. {
                    let wrong = format!("ada.{:064x}", sender * 1_000_000 + number);
                    let answer = served.post("/api/session", &json!({ "token": wrong }));
                    statuses.insert(answer.status);
                    if is_over.load(Ordering::Relaxed) {
                        return statuses;
                    }
                }
                statuses
            }
        };
        let floods: Vec<_> = (0..32).map(|sender| scope.spawn(flood(sender))).collect();
        // Both ways to log in, again and again.
        for _ in 0..5 {
            served.log_in(&ada);
            let bearer = ("Authorization", format!("Bearer {ada}"));
            let headers = [("Host", served.address().to_owned()), bearer];
            assert_eq!(served.request("GET", "/api/v1/runs", &headers, "").status, 200);
        }
        is_over.store(true, Ordering::Relaxed);
        for flood in floods {
            let statuses = flood.join().expect("it ends");
            assert!(statuses.iter().all(|status| [401, 429].contains(status)), "{statuses:?}");
        }
    });
}

#[test]
fn a_person_of_a_config_logs_in_with_the_token_that_was_printed_for_it() {
    let plain = echo(WEB);
    let args = ["server", "token", "add", "ada", "--role", "viewer", "--for-config"];
    let made = text(&conclave(&plain, &args).stdout);
    let (token, lines) = made.split_once("\n\n").expect("a token, and lines for the config");
    let listed = conclave(&plain, &["server", "token", "list", "--json"]);
    assert_eq!(text(&listed.stdout), "", "nothing is stored");
    let rig = echo(&format!("{WEB}{lines}\n"));
    let mut served = Served::start(&rig, &[]);
    let cookie = served.log_in(token.trim());
    served.with_cookie(&cookie);
    assert_eq!(ids(&served), [""; 0]);
    assert_eq!(refusal(&served.post("/api/conversations", &json!({}))), (403, "missing_role"));
}

#[test]
fn the_first_token_ends_the_access_of_the_printed_address_without_a_restart() {
    let rig = echo(WEB);
    let mut served = Served::start(&rig, &[]);
    let room = served.only_room();
    let printed = served.token().to_owned();
    let stream = served.events(&room, None);
    assert_eq!(served.get("/api/conversations").status, 200);
    let vera = token(&rig, "vera", "viewer");
    // Also those that read already.
    stream.until_end();
    assert_eq!(refusal(&served.get("/api/conversations")), (401, "no_access"));
    let again = served.post("/api/session", &json!({ "token": printed }));
    assert_eq!(refusal(&again), (401, "no_access"));
    let cookie = served.log_in(&vera);
    served.with_cookie(&cookie);
    assert_eq!(ids(&served), [room.as_str()], "a viewer reads what was begun before");
    // The address is not valid again when nobody has a token any more.
    conclave(&rig, &["server", "token", "revoke", "vera"]);
    until("the revoked token gives no access", || {
        (served.get("/api/conversations").status == 401).then_some(())
    });
    let again = served.post("/api/session", &json!({ "token": printed }));
    assert_eq!(refusal(&again), (401, "no_access"));
}

#[test]
fn a_trusted_proxy_says_who_it_is_and_nobody_else_does() {
    let with_proxy = |from: &str| {
        let proxy = format!(
            "[server.proxy]\nheader = \"X-Forwarded-User\"\nfrom = [\"{from}\"]\n\
             [server.users.\"ada@example.org\"]\nrole = \"user\"\n"
        );
        let rig = echo(&format!("{WEB}{proxy}"));
        let served = Served::start(&rig, &[]);
        (rig, served)
    };
    let list = |served: &Served, names: &[&str]| {
        let mut headers = served.own();
        headers.retain(|(name, _)| *name != "Cookie");
        headers.extend(names.iter().map(|name| ("x-FORWARDED-user", (*name).to_owned())));
        served.request("GET", "/api/conversations", &headers, "")
    };
    let (_rig, served) = with_proxy("127.0.0.1/32");
    assert_eq!(served.token(), "", "no address gives access");
    assert_eq!(list(&served, &["ada@example.org"]).status, 200);
    assert_eq!(refusal(&list(&served, &[])), (401, "no_access"));
    assert_eq!(refusal(&list(&served, &["bob"])), (403, "no_access"));
    let two = list(&served, &["ada@example.org", "bob"]);
    assert_eq!(refusal(&two), (400, "wrong_proxy_header"));
    // The header is no defence against other web sites, which a browser sends with it.
    let foreign = [
        ("Host", served.address().to_owned()),
        ("Origin", "http://evil.example".to_owned()),
        ("X-Forwarded-User", "ada@example.org".to_owned()),
    ];
    let refused = served.request("POST", "/api/conversations", &foreign, "{}");
    assert_eq!(refusal(&refused), (403, "wrong_origin"));
    // Another address than the proxy's names nobody.
    let (_rig, served) = with_proxy("192.0.2.1");
    assert_eq!(refusal(&list(&served, &["ada@example.org"])), (401, "no_access"));
}

#[test]
fn whoever_logs_out_has_no_access_and_its_streams_end() {
    let rig = echo(WEB);
    let token = token(&rig, "ada", "user");
    let mut served = Served::start(&rig, &[]);
    let [here, elsewhere] = [(), ()].map(|()| served.log_in(&token));
    served.with_cookie(&here);
    assert!(served.get("/runs").text.contains("Log out"));
    let room = begin(&served);
    let stream = served.events(&room, None);
    let out = served.post("/logout", &json!({}));
    assert_eq!((out.status, out.header("location")), (303, Some("/runs")), "{}", out.text);
    assert!(out.header("set-cookie").is_some_and(|cookie| cookie.contains("Max-Age=0")));
    stream.until_end();
    assert_eq!(served.get("/api/conversations").status, 401);
    served.with_cookie(&elsewhere);
    assert_eq!(ids(&served), [room.as_str()], "another browser stays");
}
