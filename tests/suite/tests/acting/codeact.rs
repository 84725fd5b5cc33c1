//! The stock agent CodeAct with a terminal: tags and native calls, observations, and wrong answers.

use conclave_core::types::outcome::Status;
use conclave_models::test_server::{Server, TestReply};
use conclave_test_support::{Ran, Rig};
use serde_json::{Value, json};

use super::{allowed, model, prompts};

/// Runs the agent with a terminal on the folder `work`. `task` has more lines of its task.
fn run(replies: Vec<TestReply>, task: &str) -> (Ran, Rig, Server) {
    let (server, models) = model(replies);
    let config = format!(
        "entry = \"main\"\n{models}\n[plugins.codeact]\nsource = \"stock:codeact\"\ngrants.model = [\"default\"]\n\
         grants.tools = [\"terminal.*\"]\ngrants.route = [\"done\"]\n[plugins.terminal]\nsource = \"stock:terminal\"\n\
         grants.files = [{{ dir = \"work\", at = \"/work\", mode = \"read-write\" }}]\n{}\
         [tasks.main]\nagent = \"codeact\"\naction_plugins = [\"terminal\"]\ntools = [\"terminal.run\", \"done\"]\n{task}\n",
        allowed("terminal.*")
    );
    let rig = Rig::new().with_file("work/a.txt", "one\n");
    let ran = rig.run(&config, "What is in a.txt?");
    (ran, rig, server)
}

fn last(prompt: &[(String, String)]) -> &(String, String) {
    prompt.last().expect("a message")
}

#[test]
fn tags_are_run_and_their_observations_are_the_next_message() {
    let look = "I look.\n<execute_bash>\ncat a.txt; ls missing\n</execute_bash>";
    let invented = format!("{look}\nOBSERVATION:\nwrong\n<finish>wrong</finish>");
    let write = "<execute_bash>\necho two > b.txt\n</execute_bash>";
    let replies = [&invented, write, "<finish>one</finish>"].map(TestReply::says).into();
    let (ran, rig, server) = run(replies, "tool_format = \"off\"");
    assert_eq!((ran.status(), ran.content()), (Status::Done, "one"), "{}", ran.outcome.reason);
    let written = std::fs::read_to_string(rig.folder().join("work/b.txt"));
    assert_eq!(written.ok().as_deref(), Some("two\n"));
    let asked = prompts(&server);
    assert_eq!(asked.len(), 3);
    assert!(server.requests().iter().all(|request| request.json()["tools"].is_null()));
    let how = &asked[0][0].1;
    assert!(how.contains("<execute_bash>") && !how.contains("<execute_ipython>"), "{how}");
    // The model reads its own words, without the observation that it invented.
    let (role, said) = &asked[1][asked[1].len() - 2];
    assert_eq!((role.as_str(), said.as_str()), ("assistant", look));
    let (role, observation) = last(&asked[1]);
    assert_eq!(role, "user");
    assert!(observation.starts_with("--- OBSERVATION ---"), "{observation}");
    assert!(observation.contains("one\\n"), "{observation}");
    assert!(observation.ends_with("[Command finished with exit code 2]"), "{observation}");
    assert!(last(&asked[2]).1.ends_with("[Command finished with exit code 0]"), "{:?}", asked[2]);
}

#[test]
fn native_calls_are_run_and_done_ends_the_task() {
    let replies = vec![
        TestReply::calls(&[("terminal.run", json!({ "command": "cat a.txt; false" }))]),
        TestReply::calls(&[("done", json!({ "content": "one" }))]),
    ];
    let (ran, _, server) = run(replies, "");
    assert_eq!((ran.status(), ran.content()), (Status::Done, "one"), "{}", ran.outcome.reason);
    let requests = server.requests();
    let names = |request: &Value| -> Vec<String> {
        let tools = request["tools"].as_array().into_iter().flatten();
        tools.map(|tool| tool["function"]["name"].to_string()).collect()
    };
    let offered = names(&requests[0].json());
    assert_eq!(offered.len(), 2, "{offered:?}");
    let (role, result) = last(&prompts(&server)[1]).clone();
    assert_eq!(
        (role.as_str(), result.as_str()),
        ("tool", "one\n[Command finished with exit code 1]")
    );
}

#[test]
fn a_wrong_tag_goes_back_to_the_model_with_the_remedy() {
    let wrong = "<execute_shell>cat a.txt</execute_shell>";
    let replies = [wrong, "<finish>It cannot be read.</finish>"].map(TestReply::says).into();
    let (ran, _, server) = run(replies, "tool_format = \"off\"");
    assert_eq!((ran.status(), ran.content()), (Status::Done, "It cannot be read."));
    let told = &prompts(&server)[1];
    let told = told.iter().map(|(_, text)| text.as_str()).collect::<String>();
    assert!(told.contains("There is no tag <execute_shell>") && told.contains(wrong), "{told}");
}

/// Without a user, the operator's rule says whether a message ends the task.
#[test]
fn a_message_without_an_action_continues_or_ends_as_the_task_says() {
    let replies = || ["I will look.", "<finish>one</finish>"].map(TestReply::says).to_vec();
    let (ended, _, _) = run(replies(), "");
    assert_eq!((ended.status(), ended.content()), (Status::Done, "I will look."));
    let (continued, _, server) =
        run(replies(), "on_no_tool_call = { nudge = \"Please continue.\" }");
    assert_eq!((continued.status(), continued.content()), (Status::Done, "one"));
    assert!(last(&prompts(&server)[1]).1.contains("Please continue."));
}

/// Its user answers a question, and the agent goes on.
#[test]
fn a_message_without_an_action_asks_the_user_who_is_there() {
    let replies = ["Which file?", "<finish>one</finish>"].map(TestReply::says).to_vec();
    let (server, models) = model(replies);
    let config = format!(
        "entry = \"main\"\n{models}\n[plugins.codeact]\nsource = \"stock:codeact\"\ngrants.model = [\"default\"]\n\
         [tasks.main]\nagent = \"codeact\"\non_no_tool_call = \"user\"\n"
    );
    let ran = Rig::new().with_answers(&["a.txt"]).run(&config, "What is in it?");
    assert_eq!((ran.status(), ran.content()), (Status::Done, "one"), "{}", ran.outcome.reason);
    assert_eq!(last(&prompts(&server)[1]), &("user".to_owned(), "a.txt".to_owned()));
}

/// The agent that browses has the executor; CodeAct has neither it nor the pages in its history.
#[test]
fn browsing_is_delegated_and_follows_links_by_their_numbers() {
    let pages = Server::answering(|request| match request.path.as_str() {
        "/v1/towers" => TestReply::bytes(
            200,
            "text/html",
            "<a href=muckle>Muckle</a> <a href=skerryvore>Skerryvore</a>",
        ),
        "/v1/skerryvore" => {
            TestReply::bytes(200, "text/html", "<h1>Skerryvore</h1><p>It is 48 m tall.</p>")
        }
        _ => TestReply::bytes(404, "text/html", "none"),
    });
    let towers = format!("{}/towers", pages.url());
    let replies = [
        format!("Its height.\n<execute_browse>\n{towers}\n</execute_browse>"),
        format!("I open it.\n```\ngoto(\"{towers}\")\n```"),
        "A form.\n```\nfill(\"1\", \"height\")\n```".to_owned(),
        "The second.\n```\nclick(\"2\")\n```".to_owned(),
        "```\nsend_msg_to_user(\"48 m\")\n```".to_owned(),
        "<finish>It is 48 m tall.</finish>".to_owned(),
    ];
    let (server, models) = model(replies.iter().map(|reply| TestReply::says(reply)).collect());
    let config = format!(
        "entry = \"main\"\n{models}\n[plugins.codeact]\nsource = \"stock:codeact\"\ngrants.model = [\"default\"]\n\
         grants.delegate = [\"web\"]\nconfig.browsing = \"web\"\n[plugins.browsing]\nsource = \"stock:browsing\"\n\
         grants.model = [\"default\"]\ngrants.tools = [\"browser.*\"]\n[plugins.browser]\nsource = \"stock:browser\"\n\
         grants.fetch = {{ urls = [\"{}/*\"], private = [\"127.0.0.1\"] }}\n{}\
         [tasks.main]\nagent = \"codeact\"\ntool_format = \"off\"\n\
         [tasks.web]\nagent = \"browsing\"\naction_plugins = [\"browser\"]\ntool_format = \"off\"\n",
        pages.url(),
        allowed("browser.*")
    );
    let ran = Rig::new().run(&config, "How tall is Skerryvore?");
    assert_eq!(
        (ran.status(), ran.content()),
        (Status::Done, "It is 48 m tall."),
        "{}",
        ran.outcome.reason
    );
    let reached: Vec<String> = pages.requests().into_iter().map(|request| request.path).collect();
    assert_eq!(reached, ["/v1/towers", "/v1/skerryvore"]);
    let asked = prompts(&server);
    assert_eq!(asked.len(), 6);
    let task = asked[1].iter().map(|(_, text)| text.as_str()).collect::<String>();
    assert!(task.contains(&format!("I should start with: {towers}")), "{task}");
    for (prompt, says) in [
        (2, "Muckle [1] Skerryvore [2]"),
        (3, "`fill` is not possible"),
        (4, "It is 48 m tall."),
        (5, "48 m"),
    ] {
        assert!(last(&asked[prompt]).1.contains(says), "{says}: {:?}", asked[prompt]);
    }
    let of_codeact = asked[5].iter().map(|(_, text)| text.as_str()).collect::<String>();
    assert!(!of_codeact.contains("Muckle"), "{of_codeact}");
}
