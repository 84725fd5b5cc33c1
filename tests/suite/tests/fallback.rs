//! A task with several models, over loopback servers: which failures are passed on to the next one,
//! and what the user, the trace, `show` and `--json` say about it.

use std::process::Output;

use conclave_models::test_server::{Server, TestReply};
use conclave_test_support::Rig;
use serde_json::{Value, json};

use crate::cli::text;

/// Returns a chat agent whose task names these servers' models in their order.
fn rig(servers: &[&Server], more: &str) -> Rig {
    let name = |number: usize| format!("m{number}");
    let names: Vec<String> =
        (0..servers.len()).map(|number| format!("{:?}", name(number))).collect();
    let tables: String = servers
        .iter()
        .enumerate()
        .map(|(number, server)| {
            format!(
                "[models.{}]\nkind = \"openai\"\nurl = \"{}\"\nmodel = \"test-model\"\nretries = 0\n",
                name(number),
                server.url()
            )
        })
        .collect();
    let names = names.join(", ");
    let config = format!(
        "entry = \"desk\"\n{tables}[plugins.chat]\nsource = \"stock:chat\"\ngrants.model = [{names}]\n[tasks.desk]\nagent = \"chat\"\nmodel = [{names}]\n{more}\n"
    );
    Rig::new().with_file("c.toml", config)
}

fn conclave(rig: &Rig, arguments: &[&str]) -> Output {
    rig.conclave(arguments).output().expect("the program runs")
}

fn posts(server: &Server) -> usize {
    server.requests().iter().filter(|request| request.method == "POST").count()
}

fn refused(status: u16, code: &str) -> TestReply {
    TestReply::json(status, &json!({"error": {"message": "no", "code": code}}))
}

/// Failures of a server, and whether the next model is asked.
fn failures() -> [(&'static str, TestReply, bool); 8] {
    [
        ("unreachable", TestReply::hang_up(), true),
        ("overloaded", TestReply::error(503, "overloaded"), true),
        ("rate limited", TestReply::error(429, "slow down"), true),
        ("used up", refused(429, "insufficient_quota"), true),
        ("too long", refused(400, "context_length_exceeded"), true),
        ("refused key", TestReply::error(401, "bad key"), false),
        ("refused request", TestReply::error(400, "bad schema"), false),
        ("no such model", refused(404, "model_not_found"), false),
    ]
}

#[test]
fn a_failure_is_passed_on_by_its_kind_at_each_position() {
    for (name, reply, is_passed_on) in failures() {
        for position in 0..3 {
            let before = TestReply::error(503, "overloaded");
            let servers: Vec<Server> = (0..3)
                .map(|number| match number {
                    number if number < position => Server::start(vec![before.clone()]),
                    number if number == position => Server::start(vec![reply.clone()]),
                    _ => Server::start(vec![TestReply::says("From the next one.")]),
                })
                .collect();
            let rig = rig(&servers.iter().collect::<Vec<_>>(), "");
            let output = conclave(&rig, &["run", "c.toml", "Hello"]);
            let trace = text(&output.stderr);
            let is_answered = is_passed_on && position < 2;
            let said = if is_answered { "From the next one.\n" } else { "" };
            assert_eq!(text(&output.stdout), said, "{name} at {position}: {trace}");
            assert_eq!(output.status.success(), is_answered, "{name} at {position}: {trace}");
            let asked: Vec<usize> = servers.iter().map(posts).collect();
            let last = position + usize::from(is_answered);
            let expected: Vec<usize> = (0..3).map(|number| usize::from(number <= last)).collect();
            assert_eq!(asked, expected, "{name} at {position}");
            for next in 1..=last {
                assert!(trace.contains(&format!("m{next} is asked instead")), "{name}: {trace}");
            }
        }
    }
}

#[test]
fn the_journal_json_and_show_have_both_models() {
    let busy = Server::start(vec![TestReply::error(503, "overloaded")]);
    let well = Server::start(vec![TestReply::says("From the next one.")]);
    let rig = rig(&[&busy, &well], "");
    let output = conclave(&rig, &["run", "c.toml", "Hello", "--json"]);
    let lines: Vec<Value> = text(&output.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).expect("a line of JSON"))
        .collect();
    let notices = |kind: &str| -> Vec<Value> {
        let of_kind = |line: &&Value| line["notice"]["notice"] == kind;
        lines.iter().filter(of_kind).map(|line| line["notice"].clone()).collect()
    };
    let called: Vec<Value> =
        notices("model-called").iter().map(|notice| notice["model"].clone()).collect();
    assert_eq!(called, ["m0", "m1"], "{lines:?}");
    let answered = notices("model-answered");
    assert_eq!((&answered[0]["fallback"], &answered[1]["fallback"]), (&json!("m1"), &Value::Null));
    assert_eq!(answered[0]["trouble"]["kind"], "unavailable");
    let shown = text(&conclave(&rig, &["show"]).stdout);
    assert!(shown.contains("model m0") && shown.contains("m1 is asked instead"), "{shown}");
    assert!(shown.contains("model m1"), "{shown}");
}

#[test]
fn another_model_is_asked_only_while_nothing_was_shown() {
    let broken = || {
        let chunk = |text: &str| json!({"choices": [{"index": 0, "delta": {"content": text}}]});
        Server::start(vec![TestReply::events(&[chunk("Half of it")]).then_cut()])
    };
    let well = || Server::start(vec![TestReply::says("From the next one.")]);
    // `--json` shows text while it comes.
    let (first, second) = (broken(), well());
    let output = conclave(&rig(&[&first, &second], ""), &["run", "c.toml", "Hello", "--json"]);
    assert!(text(&output.stdout).contains("Half of it"));
    assert_eq!((output.status.success(), posts(&second)), (false, 0));
    let (first, second) = (broken(), well());
    let output = conclave(&rig(&[&first, &second], ""), &["run", "c.toml", "Hello"]);
    assert_eq!(text(&output.stdout), "From the next one.\n", "{}", text(&output.stderr));
    assert_eq!(posts(&second), 1);
}

#[test]
fn a_limit_of_requests_counts_every_model() {
    let busy = Server::start(vec![TestReply::error(503, "overloaded")]);
    let well = Server::start(vec![TestReply::says("never")]);
    let rig = rig(&[&busy, &well], "[limits.run]\nmodel_calls = 1");
    let output = conclave(&rig, &["run", "c.toml", "Hello"]);
    assert!(!output.status.success());
    assert_eq!((posts(&busy), posts(&well)), (1, 0), "{}", text(&output.stderr));
}

#[test]
fn check_names_the_grant_that_a_list_lacks() {
    let server = Server::start(vec![TestReply::says("never")]);
    let rig = rig(&[&server, &server], "");
    let config = std::fs::read_to_string(rig.folder().join("c.toml"))
        .expect("the config")
        .replace("grants.model = [\"m0\", \"m1\"]", "grants.model = [\"m0\"]");
    let rig = Rig::new().with_file("c.toml", config);
    let output = conclave(&rig, &["check", "c.toml"]);
    let told = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(told.contains("write `grants.model = [\"m0\", \"m1\"]` in [plugins.chat]"), "{told}");
}
