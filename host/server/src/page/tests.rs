use conclave_core::inspect::questions::{
    ApprovalSubject, DecisionWord, Question, QuestionKind, QuestionState, Settlement,
};
use conclave_core::policy::roles::{Role, RoleRefusal};
use conclave_core::types::approval::{ApprovalCause, ApprovalRequest, Asker, arguments_sha256};
use conclave_core::types::ids::{CallId, RoomId};
use serde_json::json;

use super::*;
use crate::api::views::PersonQuestion;
use conclave_core::types::ids::Millis;

/// A call that waits, with what a careless renderer would let through.
fn waiting(may_settle: Result<(), RoleRefusal>) -> PersonQuestion {
    let arguments =
        json!({ "path": "/notes/\u{441}\u{43e}\u{440}\u{443}.md", "text": "a  b\u{202e}<b>" });
    let request = ApprovalRequest {
        task: "desk".into(),
        caller: "actor".into(),
        led_by: vec!["relay".into()],
        delegators: Vec::new(),
        tool: "notes.save".to_owned(),
        executor: None,
        arguments,
        source: "c.toml:9".to_owned(),
        causes: vec![ApprovalCause::Grants],
        expires_ms: Some(60_000),
        risk: None,
        risk_reason: Some("<script>".to_owned()),
        problem: None,
    };
    let subject = ApprovalSubject {
        arguments_sha256: arguments_sha256(&request.arguments),
        request: Box::new(request),
        effects: vec!["write /notes".to_owned()],
    };
    let question = Question {
        id: "r:c1".to_owned(),
        run: RoomId::from("r"),
        room: RoomId::from("r"),
        call: CallId(1),
        chain: vec![Asker { task: "<desk>".into(), agent: "actor".into() }],
        kind: QuestionKind::Approval(subject),
        may_answer: Role::that_may(Action::Decide),
        since: Millis(0),
        expires_ms: Some(60_000),
        state: QuestionState::Open,
    };
    PersonQuestion { question, is_live: true, may_settle }
}

#[test]
fn a_question_shows_exactly_what_would_run_and_names_it_in_its_forms() {
    let question = waiting(Ok(()));
    let digest = question.question.subject().map(|subject| subject.arguments_sha256.clone());
    let page = inbox::view(&[question], None, Millis(20_000)).into_string();
    for text in [
        "look-alike: <bdi>",
        "copy.md",
        "a\\u{20}×2b\\u{202e}&lt;b&gt;",
        "<bdi>&lt;desk&gt;</bdi>",
        ", requested by relay",
        "write /notes",
        "c.toml:9",
        "&lt;script&gt;",
        "expires in 40 s",
        "action=\"/runs/r/questions/r%3Ac1\"",
    ] {
        assert!(page.contains(text), "{text}: {page}");
    }
    assert_eq!(page.matches(&format!("value=\"{}\"", digest.unwrap())).count(), 2, "{page}");
    assert!(!page.contains("<b>\"") && !page.contains("onclick") && !page.contains("style="));
}

#[test]
fn who_may_not_decide_gets_no_button_and_a_decided_call_has_none() {
    let refusal = RoleRefusal::MissingRole {
        action: Action::Decide,
        role: Role::Viewer,
        roles: vec![Role::Approver],
    };
    let mut decided = waiting(Ok(()));
    let settlement = Settlement {
        decision: DecisionWord::Approved,
        by: Some("a person at the server (p<b>)".to_owned()),
        at: None,
        message: None,
    };
    decided.question.state = QuestionState::OnItsWay { settlement };
    for (question, expected) in [
        (waiting(Err(refusal)), "`approver` may"),
        (decided, "(p&lt;b&gt;)</bdi>; the run has not"),
    ] {
        let page = inbox::view(&[question], None, Millis(0)).into_string();
        assert!(page.contains(expected) && !page.contains("<form"), "{page}");
        assert!(page.contains("copy.md"), "it can be read: {page}");
    }
}

#[test]
fn texts_of_others_are_escaped_and_look_alikes_marked() {
    let page = text::foreign("<b>\"x\"</b>\u{202e}&").into_string();
    assert_eq!(page, "<bdi>&lt;b&gt;&quot;x&quot;&lt;/b&gt;\\u{202e}&amp;</bdi>");
    let marked = text::foreign_block("p\u{430}ypal").into_string();
    assert!(marked.contains("look-alike") && marked.contains("paypal"), "{marked}");
    assert!(!text::foreign("Zürich").into_string().contains("look-alike"));
}

#[test]
fn an_address_has_the_values_that_there_are() {
    let query = [("text", Some("a&b")), ("kind", None), ("from", Some(""))];
    assert_eq!(text::address("/runs", query), "/runs?text=a%26b");
    assert_eq!(text::run_path("a/b\"<"), "/runs/a%2Fb%22%3C");
}

#[test]
fn who_has_no_access_gets_a_form_that_leads_to_the_page() {
    let failure = Failure::new(StatusCode::UNAUTHORIZED, "no_access", "no <access>");
    let form = LoginForm { page: "/runs/\"a", provider: Some("login.example.org") };
    let answer = refused(failure, Some(&form));
    assert_eq!(answer.status(), StatusCode::UNAUTHORIZED);
    let form = document("x", None, None, &html! { input value="/runs/\"a"; }).0;
    assert!(form.contains("value=\"/runs/&quot;a\"") && !form.contains("<nav"), "{form}");
    assert!(!form.contains("style=") && !form.contains("<script>"), "nothing stands inline");
}

#[test]
fn differences_are_escaped_and_decided_for_the_version_that_is_shown() {
    let file = json!({
        "path": "<a>.md", "old": null, "new": "x", "is_lost": false, "conflict": null,
        "difference": { "hunks": [{ "header": "@@", "lines": ["+<b>new</b>", " same", "-old"] }] },
    });
    let all = json!({ "version": "v1", "folders": [{ "folder": "notes", "files": [file] }] });
    let page = parts::differences(&all, "/runs/r/changes", true).into_string();
    assert!(page.contains("&lt;a&gt;.md") && page.contains("+&lt;b&gt;new&lt;/b&gt;"), "{page}");
    assert_eq!(page.matches("name=\"version\" value=\"v1\"").count(), 2, "{page}");
    let read = parts::differences(&all, "/runs/r/changes", false).into_string();
    assert!(read.contains("&lt;a&gt;.md") && !read.contains("<form"), "{read}");
    let none = json!({ "version": "v1", "folders": [] });
    assert!(!parts::differences(&none, "/runs/r/changes", true).into_string().contains("<form"));
}
