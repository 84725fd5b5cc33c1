//! `conclave chat` through pipes. A line of input is a message; the agent's answers go to stdout,
//! everything else to stderr. The look on a terminal is checked manually (docs/use/chat.md).

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Output, Stdio};

use conclave_models::test_server::{Server, TestReply};
use conclave_test_support::{Rig, calling, guest, stepping, stock};
use serde_json::{Value, json};

use crate::cli::{stalling, text};

fn start(rig: &Rig, arguments: &[&str]) -> Child {
    let mut command = rig.conclave(&[&["chat"], arguments].concat());
    command.env_remove("CONCLAVE_STATE").env("XDG_STATE_HOME", rig.folder());
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program runs")
}

/// Runs a whole conversation: these lines, then the end of input.
fn chat(rig: &Rig, arguments: &[&str], lines: &str) -> Output {
    let mut child = start(rig, arguments);
    // The program may have exited before it read everything.
    let _ = child.stdin.take().expect("it is piped").write_all(lines.as_bytes());
    child.wait_with_output().expect("it ends")
}

fn outcome(output: &Output) -> (Option<i32>, String) {
    (output.status.code(), text(&output.stdout))
}

/// Returns the stock chat agent with a model on this server.
fn with_model(server: &Server) -> Rig {
    let (chat, url) = (stock().join("chat.wasm"), server.url());
    let config = format!(
        "entry = \"chat\"\n[models.default]\nkind = \"openai\"\nurl = \"{url}\"\nmodel = \"m\"\ninput_price = 1.00\noutput_price = 2.00\n\
         [plugins.chat]\nsource = \"{}\"\ngrants.model = [\"default\"]\n[tasks.chat]\nagent = \"chat\"\n",
        chat.display()
    );
    Rig::new().with_file("c.toml", config)
}

#[test]
fn a_conversation_is_one_run_with_one_history() {
    let rig = Rig::new().with_file("c.toml", stepping("agent_history", "", ""));
    let output = chat(&rig, &["c.toml", "--journal", "kept"], "one\n\ntwo\nthree");
    let said = ["1 of 1", "3 of 3", "5 of 5"]
        .map(|count| format!("{count} messages, backwards the same\n"))
        .concat();
    assert_eq!(outcome(&output), (Some(0), said), "{}", text(&output.stderr));
    assert!(!text(&output.stderr).contains('\u{1b}'), "{}", text(&output.stderr));
    assert_eq!(
        std::fs::read_dir(rig.folder().join("kept")).expect("the folder is there").count(),
        1
    );
    assert!(
        !rig.folder().join("conclave/chat-history").exists(),
        "what a pipe says is nobody's history"
    );
}

#[test]
fn streamed_text_is_printed_once_and_summed_up() {
    let server = Server::start(vec![
        TestReply::streams(&["Hello", " you", ".\n"]),
        TestReply::says("Not streamed."),
    ]);
    let output = chat(&with_model(&server), &["c.toml", "first"], "second\n");
    assert_eq!(
        outcome(&output),
        (Some(0), "Hello you.\nNot streamed.\n".to_owned()),
        "{}",
        text(&output.stderr)
    );
    let stderr = text(&output.stderr);
    assert!(
        stderr.contains("10 tokens · $0.000013 · ") && stderr.contains("all: 20 tokens"),
        "{stderr}"
    );
    let sent = server.requests()[1].json();
    assert_eq!(sent["messages"].as_array().map(Vec::len), Some(3), "{sent}");
}

#[test]
fn a_pipe_gets_answers_and_no_drafts() {
    let piece = |text: &str| json!({ "choices": [{ "index": 0, "delta": { "content": text } }] });
    let cut = TestReply::events(&[piece("A dra"), piece("ft")]).then_cut();
    let server = Server::start(vec![cut, TestReply::streams(&["The ", "answer."])]);
    let output = chat(&with_model(&server), &["-q", "c.toml"], "1\n2\n");
    assert_eq!(outcome(&output), (Some(0), "The answer.\n".to_owned()), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("no answer"), "{}", text(&output.stderr));
}

#[test]
fn where_gates_check_what_people_read_only_what_passed_is_shown() {
    let server = Server::start(vec![
        TestReply::streams(&["Call ", "1234."]),
        TestReply::says("It is a secret."),
        TestReply::says("I cannot say."),
    ]);
    let rig = with_model(&server);
    let config = std::fs::read_to_string(rig.folder().join("c.toml")).expect("it was written");
    let gate = format!(
        "{config}[plugins.moderation]\nsource = \"{}\"\n[[gates]]\non = \"outbound\"\nplugin = \"moderation\"\n\
         [plugins.moderation.config]\nrules = [{{ pattern = '\\d{{4}}', replace = '…' }}, {{ pattern = 'secret', reason = 'no secrets' }}]\n",
        stock().join("moderation.wasm").display()
    );
    let rig = rig.with_file("c.toml", gate);
    let output = chat(&rig, &["c.toml", "first"], "second\n");
    let shown = "Call ….\nI cannot say.\n".to_owned();
    assert_eq!(outcome(&output), (Some(0), shown), "{}", text(&output.stderr));
    let told = server.requests()[2].json().to_string();
    assert!(
        told.contains("The user was not asked: gate moderation blocked it: no secrets"),
        "{told}"
    );
}

#[test]
fn an_agent_reads_what_its_tools_answer_before_the_person_speaks() {
    let config = calling("echo", "run", &json!({ "text": "from the tool" }), "");
    let output = chat(&Rig::new().with_file("c.toml", config), &["c.toml"], "go\n");
    assert_eq!(
        outcome(&output),
        (Some(0), "from the tool\n".to_owned()),
        "{}",
        text(&output.stderr)
    );
    assert!(text(&output.stderr).contains("calls #1 subject.run │"), "{}", text(&output.stderr));
}

#[test]
fn a_model_that_fails_costs_a_turn_and_not_the_conversation() {
    let down = TestReply::error(401, "Incorrect key");
    let server = Server::start(vec![
        down.clone(),
        down.clone(),
        down.clone(),
        down,
        TestReply::says("Here again."),
    ]);
    let output = chat(&with_model(&server), &["c.toml"], "1\n2\n3\n4\n5\n");
    assert_eq!(outcome(&output), (Some(0), "Here again.\n".to_owned()), "{}", text(&output.stderr));
    let stderr = text(&output.stderr);
    assert_eq!(stderr.matches("answered 401").count(), 4, "{stderr}");
    assert!(!stderr.contains("step failed"), "told once, not again as a fault: {stderr}");
}

#[test]
fn a_pipe_whose_last_message_had_no_answer_is_told_why() {
    let server =
        Server::start(vec![TestReply::says("fine"), TestReply::error(401, "Incorrect key")]);
    let rig = with_model(&server);
    let output = chat(&rig, &["c.toml"], "1\n2\n");
    assert_eq!(outcome(&output), (Some(3), "fine\n".to_owned()), "{}", text(&output.stderr));
    let mut runs = rig.conclave(&["runs", "--json"]);
    runs.env_remove("CONCLAVE_STATE").env("XDG_STATE_HOME", rig.folder());
    let listed = runs.output().expect("the program runs");
    let row: Value = serde_json::from_slice(&listed.stdout).expect("one run");
    assert_eq!(row["state"], "kill", "its user did not end it: {row}");
    assert!(row["reason"].as_str().unwrap_or_default().contains("got no answer"), "{row}");
    let output = chat(
        &Rig::new().with_file("c.toml", stepping("agent_panic", "", "")),
        &["c.toml"],
        "1\n2\n3\n4\n",
    );
    assert_eq!(outcome(&output), (Some(5), String::new()));
    assert_eq!(
        text(&output.stderr).matches("step failed │ it panicked").count(),
        4,
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn a_background_result_comes_in_between_and_the_end_of_the_input_waits_for_it() {
    let config = format!(
        "entry = \"desk\"\n[plugins.coordinator]\nsource = \"{coordinator}\"\ngrants.route = [\"answer\"]\ngrants.delegate = [\"digest\"]\n\
         [plugins.echo]\nsource = \"{}\"\n[plugins.immediate]\nsource = \"stock:immediate\"\ngrants.channels = [\"terminal\"]\n\
         [tasks.desk]\nagent = \"coordinator\"\nsubtasks = [\"answer\"]\n[tasks.answer]\nagent = \"echo\"\n\
         [tasks.digest]\nagent = \"echo\"\ndelivery_strategy = \"immediate\"\n",
        guest("agent_echo").display(),
        coordinator = guest("coordinator").display(),
    );
    let output = chat(&Rig::new().with_file("c.toml", config), &["c.toml"], "hello\n");
    let (code, said) = outcome(&output);
    // The result may come before the answer or after it.
    let mut lines: Vec<&str> = said.lines().collect();
    lines.sort_unstable();
    assert_eq!(
        (code, &lines[..]),
        (Some(0), &["Digest the folder.", "answer: hello"][..]),
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn commands_are_carried_out_and_not_said() {
    let rig = Rig::new()
        .with_file("c.toml", stepping("agent_echo", "", ""))
        .with_file("taken.md", "mine");
    let lines = "hello\n//etc\n/save page.md\n/save taken.md\n/attach c.toml\n/attach none\n/status\n/nonsense\nlast\\\nline\n/quit\nnever\n";
    let output = chat(&rig, &["c.toml", "--quiet"], lines);
    assert_eq!(
        outcome(&output),
        (Some(0), "hello\n/etc\nlast\nline\n".to_owned()),
        "{}",
        text(&output.stderr)
    );
    let page = std::fs::read_to_string(rig.folder().join("page.md")).expect("it was saved");
    assert_eq!(
        page,
        "# Conversation\n\n## You\n\nhello\n\n## main\n\nhello\n\n## You\n\n/etc\n\n## main\n\n/etc\n"
    );
    assert_eq!(
        std::fs::read_to_string(rig.folder().join("taken.md")).expect("it is there"),
        "mine"
    );
    let stderr = text(&output.stderr);
    for told in [
        "not overwritten",
        "c.toml (text/plain",
        "none cannot be attached",
        "used: ",
        "unknown command /nonsense",
    ] {
        assert!(stderr.contains(told), "{told}: {stderr}");
    }
}

#[test]
fn json_has_the_stream_and_says_whose_turn_it_is() {
    let server = Server::start(vec![TestReply::streams(&["Hel", "lo"])]);
    let output = chat(&with_model(&server), &["c.toml", "--json"], "hi\n/status\n");
    let lines: Vec<Value> = text(&output.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).expect("a line of JSON"))
        .collect();
    let of =
        |kind: &str| lines.iter().filter(|line| line["type"] == kind).cloned().collect::<Vec<_>>();
    assert_eq!(
        of("streamed").iter().map(|line| line["text"].clone()).collect::<Vec<_>>(),
        ["Hel", "lo"]
    );
    assert_eq!(
        of("question").iter().map(|line| line["prompt"].clone()).collect::<Vec<_>>(),
        ["Hello"]
    );
    assert_eq!(of("note").len(), 1, "{lines:?}");
    let last = lines.last().expect("there is a last line");
    assert_eq!(
        (&last["type"], &last["exit_code"], &last["outcome"]["status"]),
        (&json!("result"), &json!(0), &json!("USER_QUIT"))
    );
}

#[test]
fn what_a_rule_asks_about_is_refused_where_nobody_can_be_asked() {
    let rule = "[[policy]]\ntool = \"subject.run\"\ndecide = \"ask\"\n";
    let config = calling("echo", "run", &json!({ "text": "done anyway" }), "") + rule;
    let rig = Rig::new().with_file("c.toml", config);
    let output = chat(&rig, &["c.toml"], "go\n");
    assert_eq!(output.status.code(), Some(6), "{}", text(&output.stderr));
    let run = rig.conclave(&["run", "c.toml", "go"]).output().expect("the program runs");
    assert_eq!(run.status.code(), Some(6), "{}", text(&run.stderr));
    for output in [output, run] {
        let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
        assert!(
            (stdout.clone() + &stderr).contains("Not approved: no user can approve it"),
            "{stderr}"
        );
        assert!(!stdout.contains("done anyway"), "{stdout}");
        let called = "calls #1 subject.run │ {\"text\":\"done anyway\"}\n";
        assert!(stderr.contains(called) && stderr.contains(" #1 subject.run refused"), "{stderr}");
    }
}

#[test]
fn a_run_whose_key_is_not_taken_says_so_with_its_exit_code() {
    let server = Server::start(vec![TestReply::error(401, "Incorrect key")]);
    let rig = with_model(&server);
    let run = rig.conclave(&["run", "--quiet", "c.toml", "go"]).output().expect("the program runs");
    assert_eq!(outcome(&run), (Some(3), String::new()), "{}", text(&run.stderr));
    assert_eq!(text(&run.stderr).matches("Incorrect key").count(), 1, "{}", text(&run.stderr));
}

/// Returns a config with these limits: the time of each turn, and the tokens of all turns.
fn with_limits(server: &Server, limits: &str) -> Rig {
    let rig = with_model(server);
    let config = std::fs::read_to_string(rig.folder().join("c.toml")).expect("it was written");
    rig.with_file("c.toml", format!("{config}[limits.run]\n{limits}\n"))
}

#[test]
fn quiet_is_the_result_and_errors() {
    let server =
        Server::start(vec![TestReply::says("fine"), TestReply::error(401, "Incorrect key")]);
    let output = chat(&with_model(&server), &["c.toml", "--quiet"], "1\n2\n");
    assert_eq!(outcome(&output), (Some(3), "fine\n".to_owned()));
    let stderr = text(&output.stderr);
    assert_eq!(
        (stderr.matches("Incorrect key").count(), stderr.matches("no answer\n│ http://").count()),
        (1, 1),
        "{stderr}"
    );
}

#[test]
fn a_failure_is_told_once() {
    let server =
        Server::start(vec![TestReply::error(401, "Incorrect key"), TestReply::says("Here again.")]);
    let output = chat(&with_model(&server), &["c.toml"], "1\n2\n");
    assert_eq!(outcome(&output), (Some(0), "Here again.\n".to_owned()));
    let stderr = text(&output.stderr);
    assert_eq!(
        (stderr.matches("Incorrect key").count(), stderr.contains("nobody had a valid answer")),
        (1, false),
        "{stderr}"
    );
}

#[test]
fn an_empty_answer_is_told_as_one() {
    let server = Server::start(vec![TestReply::says(""), TestReply::says("Here.")]);
    let output = chat(&with_model(&server), &["c.toml"], "1\n2\n");
    assert_eq!(outcome(&output), (Some(0), "Here.\n".to_owned()), "{}", text(&output.stderr));
    let stderr = text(&output.stderr);
    assert!(
        stderr.contains("the model said nothing") && !stderr.contains("nobody had a valid answer"),
        "{stderr}"
    );
}

#[test]
fn an_answer_that_the_server_cut_says_so() {
    let cut = json!({
        "id": "1", "object": "chat.completion", "created": 1, "model": "m", "usage": { "prompt_tokens": 7, "completion_tokens": 3 },
        "choices": [{ "index": 0, "message": { "role": "assistant", "content": "Once upon" }, "finish_reason": "length" }]
    });
    let server = Server::start(vec![TestReply::json(200, &cut)]);
    let output = chat(&with_model(&server), &["c.toml"], "1\n");
    assert_eq!(outcome(&output), (Some(0), "Once upon\n".to_owned()), "{}", text(&output.stderr));
    assert!(
        text(&output.stderr).contains("the server cut the answer at its limit"),
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn a_limit_that_ends_the_conversation_says_how_to_raise_it() {
    let server = Server::start(vec![TestReply::says("fine")]);
    let output = chat(&with_limits(&server, "tokens = 15"), &["c.toml"], "1\n2\n3\n");
    assert_eq!(output.status.code(), Some(7), "{}", text(&output.stderr));
    let stderr = text(&output.stderr);
    assert!(
        stderr.contains("MAX_TOKENS") && stderr.contains("`tokens` under [limits.run]"),
        "{stderr}"
    );
}

#[test]
fn an_end_that_is_no_goodbye_says_what_it_is() {
    let rig = Rig::new().with_file("c.toml", stepping("agent_echo", "", "turns = 3"));
    let output = chat(&rig, &["c.toml", "--quiet"], "1\n2\n3\n4\n");
    assert_eq!(output.status.code(), Some(0));
    assert!(
        text(&output.stderr).contains("FIXED_TURNS │ main made the 3 steps"),
        "{}",
        text(&output.stderr)
    );
    let output = chat(
        &Rig::new().with_file("c.toml", stepping("agent_echo", "", "")),
        &["c.toml", "--quiet"],
        "1\nquit\n",
    );
    assert_eq!(text(&output.stderr), "", "the user said goodbye");
}

#[test]
fn a_word_of_farewell_is_no_turn_and_a_letter_is_none() {
    let rig = Rig::new().with_file("c.toml", stepping("agent_echo", "", ""));
    let output = chat(&rig, &["c.toml"], "one\nx\ntwo\nbye\nthree\n");
    assert_eq!(outcome(&output), (Some(0), "one\ntwo\n".to_owned()), "{}", text(&output.stderr));
    let stderr = text(&output.stderr);
    assert!(
        stderr.contains("x on its own would end the task, so it was not sent; /quit"),
        "{stderr}"
    );
    assert_eq!(stderr.matches("1 sandbox\n").count(), 2, "a summary for each turn: {stderr}");
    assert!(!stderr.contains("0 sandboxes"), "{stderr}");
    let langroid =
        Rig::new().with_file("c.toml", stepping("agent_echo", "", "compat = \"langroid\""));
    let output = chat(&langroid, &["c.toml"], "one\nx\ntwo\n");
    assert_eq!(outcome(&output), (Some(0), "one\n".to_owned()), "{}", text(&output.stderr));
}

#[test]
fn the_end_of_a_background_task_stands_in_its_column() {
    let told = text(&chat(&stalling(), &["c.toml"], "hello\n").stderr);
    let lines: Vec<&str> =
        told.lines().filter(|line| line.starts_with("  digest (task-1) ")).collect();
    let lines: Vec<&str> =
        lines.into_iter().filter(|line| !line.contains("answer counted (")).collect();
    let ended = "  digest (task-1) STALLED │ nobody in digest had a valid answer";
    assert!(lines.len() == 1 && lines[0].starts_with(ended), "{told}");
}

#[test]
fn a_turn_that_takes_too_long_is_stopped_and_the_conversation_goes_on() {
    let server = Server::start(vec![TestReply::silence(), TestReply::says("Here.")]);
    let output = chat(&with_limits(&server, "wall = \"10 s\""), &["c.toml"], "1\n2\n");
    assert_eq!(outcome(&output), (Some(0), "Here.\n".to_owned()), "{}", text(&output.stderr));
    assert!(
        text(&output.stderr).contains("the turn took longer than limits.run.wall"),
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn a_conversation_that_nobody_reads_ends_and_asks_no_model() {
    let server = Server::start(vec![TestReply::says("Nobody reads this.")]);
    let rig = with_model(&server);
    let mut child = start(&rig, &["c.toml"]);
    drop(child.stdout.take());
    let mut stdin = child.stdin.take().expect("it is piped");
    // The program may exit before it has read everything.
    let _ = stdin.write_all(b"1\n2\n3\n");
    // The input stays open, so the program does not exit because of its end.
    let status = child.wait().expect("it ends");
    drop(stdin);
    assert_eq!((status.code(), server.requests().len()), (Some(0), 1));
}

#[test]
fn a_conversation_without_a_word_is_none() {
    let rig = Rig::new().with_file("c.toml", stepping("agent_echo", "", ""));
    assert_eq!(outcome(&chat(&rig, &["c.toml"], "")), (Some(0), String::new()));
}

#[test]
fn a_program_stops_the_turn_with_a_line() {
    let server = Server::start(vec![TestReply::silence(), TestReply::says("Here.")]);
    let rig = with_model(&server);
    let mut child = start(&rig, &["c.toml", "--json", "one"]);
    let mut stdin = child.stdin.take().expect("it is piped");
    let mut lines =
        BufReader::new(child.stdout.take().expect("it is piped")).lines().map_while(Result::ok);
    // After the first event of the journal all components are compiled.
    assert!(lines.next().is_some_and(|line| line.contains("room-opened")));
    server.wait_for_requests(1);
    stdin.write_all(b"/stop\n").expect("it reads");
    server.wait_for_hang_ups(1);
    stdin.write_all(b"two\n").expect("it reads");
    drop(stdin);
    let told: Vec<String> = lines.collect();
    assert_eq!(child.wait().expect("it ends").code(), Some(0), "{told:#?}");
    assert!(
        told.iter().any(|line| line.contains("\"turn-stopped\""))
            && told.iter().any(|line| line.contains("Here.")),
        "{told:#?}"
    );
}

#[cfg(unix)]
#[test]
fn ctrl_c_stops_the_turn_and_the_next_message_is_answered() {
    let server = Server::start(vec![TestReply::silence(), TestReply::says("Here.")]);
    let rig = with_model(&server);
    let mut child = start(&rig, &["c.toml"]);
    let mut stdin = child.stdin.take().expect("it is piped");
    let mut stderr =
        BufReader::new(child.stderr.take().expect("it is piped")).lines().map_while(Result::ok);
    // Its plugins may have to be compiled first.
    assert!(stderr.any(|line| line.contains("data can leave")));
    stdin.write_all(b"one\n").expect("it reads");
    server.wait_for_requests(1);
    interrupt(&child);
    // The request is abandoned, so the turn has been stopped.
    server.wait_for_hang_ups(1);
    stdin.write_all(b"two\n").expect("it reads");
    drop(stdin);
    let told: Vec<String> = stderr.collect();
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(outcome(&output), (Some(0), "Here.\n".to_owned()), "{told:#?}");
    assert!(told.iter().any(|line| line.contains("stopped")), "{told:#?}");
    // The line of the turn counts what the stopped request sent.
    let of_turns: Vec<&String> = told.iter().filter(|line| line.contains(" sandbox")).collect();
    assert!(of_turns[0].starts_with("  about ") && of_turns[0].contains(" token"), "{told:#?}");
    assert!(of_turns[1].starts_with("  10 tokens · "), "{told:#?}");
    assert!(!told.iter().any(|line| line.contains("in all")), "{told:#?}");
}

#[cfg(unix)]
fn interrupt(child: &Child) {
    let killed =
        Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill runs");
    assert!(killed.success());
}
