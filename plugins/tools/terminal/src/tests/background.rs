//! Background commands: slices, waits, loops, ends and kills.

use conclave_sdk::testing::FakeHost;
use serde_json::{Value, json};

use super::{call, observed, run};

fn host() -> FakeHost {
    FakeHost::new().writable("/work")
}

/// Starts a background command, and returns its id.
fn start(host: &mut FakeHost, command: &str) -> i64 {
    let outcome = call(host, "run", json!({ "command": command, "background": true }));
    let value: Value = serde_json::from_str(outcome.value.as_deref().expect("it has a value"))
        .expect("it is JSON");
    assert!(value["background"]["poll_ms"].is_u64());
    let id = value["background"]["command_id"].as_i64().expect("it has an id");
    let (content, code) = observed(&outcome);
    assert!(content.ends_with(&format!("command_id {id}")) && code == 0, "{content}");
    id
}

/// Polls once, and returns the output and the exit code.
fn poll(host: &mut FakeHost, id: i64) -> (String, Option<i64>) {
    let outcome = call(host, "poll", json!({ "command_id": id }));
    let value: Value = serde_json::from_str(outcome.value.as_deref().expect("it has a value"))
        .expect("it is JSON");
    (outcome.content.unwrap_or_default(), value["exit_code"].as_i64())
}

/// Polls to the end, and returns all output and the exit code.
fn follow(host: &mut FakeHost, id: i64) -> (String, i64) {
    let mut all = String::new();
    for _ in 0..1_000 {
        let (output, code) = poll(host, id);
        all += &output;
        if let Some(code) = code {
            return (all, code);
        }
    }
    panic!("it does not end: {all}");
}

#[test]
fn output_comes_in_slices_and_the_exit_code_last() {
    let mut host = host();
    let id = start(&mut host, "echo a\necho b\nexit 5\necho never");
    assert_eq!(poll(&mut host, id), ("a\n".to_owned(), None));
    assert_eq!(poll(&mut host, id), ("b\n".to_owned(), None));
    assert_eq!(follow(&mut host, id), (String::new(), 5));
    let (gone, _) = observed(&call(&mut host, "poll", json!({ "command_id": id })));
    assert_eq!(gone, format!("There is no background command with id {id}."));
}

#[test]
fn scripts_end_as_in_one_piece() {
    let cases = [
        ("echo a; echo b", "a\nb\n", 0),
        ("false", "", 1),
        ("set -e\necho a\nfalse\necho b", "a\n", 1),
        ("x=1\nf() { echo \"f $x\"; }\nf", "f 1\n", 0),
        ("for i in 1 2 3; do [ $i = 2 ] && continue; echo $i; done", "1\n3\n", 0),
        ("for i in 1 2 3; do [ $i = 2 ] && break; echo $i; done; echo end", "1\nend\n", 0),
        ("for f in \"a b\" 'c' \"it's\"; do echo \"<$f>\"; done", "<a b>\n<c>\n<it's>\n", 0),
        ("for i in; do echo never; done", "", 0),
        ("i=0; while ((i < 3)); do echo $i; ((i++)); done; echo $i", "0\n1\n2\n3\n", 0),
        ("i=0; until [ $i -ge 2 ]; do i=$((i+1)); echo $i; done", "1\n2\n", 0),
        ("for ((i=0;i<4;i++)); do ((i==1)) && continue; echo $i; done", "0\n2\n3\n", 0),
        ("for i in a b; do for j in 1 2; do echo $i$j; done; done", "a1\na2\nb1\nb2\n", 0),
        ("while true; do echo once; exit 7; done; echo never", "once\n", 7),
        ("{ echo a; echo b; }; cat <<EOF\nhere $((1+1))\nEOF", "a\nb\nhere 2\n", 0),
        ("seq 3 | while read n; do echo \"n$n\"; done", "n1\nn2\nn3\n", 0),
        ("(sleep 0.001; echo late) & echo early; wait; echo done", "early\nlate\ndone\n", 0),
        ("trap 'echo bye' EXIT; echo hi", "hi\nbye\n", 0),
        ("if then", "", 2),
        ("", "", 0),
    ];
    for (script, expected, code) in cases {
        let mut host = host();
        let id = start(&mut host, script);
        let (output, ended) = follow(&mut host, id);
        if code == 2 {
            assert!(output.contains("syntax error"), "{script}: {output}");
        } else {
            assert_eq!(output, expected, "{script}");
        }
        assert_eq!(ended, code, "{script}");
    }
}

#[test]
fn a_wait_lasts_until_the_time_is_over() {
    let mut host = host();
    let id = start(&mut host, "echo a; sleep 3600; echo b");
    assert_eq!(poll(&mut host, id), ("a\n".to_owned(), None));
    for _ in 0..3 {
        assert_eq!(poll(&mut host, id), (String::new(), None));
    }
}

#[test]
fn an_endless_loop_runs_a_turn_for_each_poll_and_is_killed() {
    let mut host = host();
    let id = start(&mut host, "n=0; while :; do echo $((++n)); done");
    for turn in 1..=5 {
        assert_eq!(poll(&mut host, id), (format!("{turn}\n"), None));
    }
    let (killed, code) = observed(&call(&mut host, "kill", json!({ "command_id": id })));
    assert_eq!((killed, code), (format!("Background command with id {id} has been killed."), 0));
    let (gone, _) = observed(&call(&mut host, "kill", json!({ "command_id": id })));
    assert_eq!(gone, format!("There is no background command with id {id}."));
}

#[test]
fn it_shares_files_with_the_shell_and_nothing_else() {
    let mut host = host();
    run(&mut host, "x=shell; cd /tmp");
    let id = start(&mut host, "echo \"$x\" > from_job; x=job; cd /");
    assert_eq!(follow(&mut host, id), (String::new(), 0));
    assert_eq!(run(&mut host, "cat /tmp/from_job; echo $x; pwd").0, "shell\nshell\n/tmp");
    assert_eq!(run(&mut host, "echo $__terminal_ended_by ${!__terminal*}").0, "");
}

#[test]
fn ids_are_not_used_again() {
    let mut host = host();
    let first = start(&mut host, "true");
    follow(&mut host, first);
    assert_eq!(start(&mut host, "true"), first + 1);
}
