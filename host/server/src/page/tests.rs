use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use conclave_core::inspect::grant_use::{GrantEntry, UseState};
use conclave_core::inspect::questions::{
    ApprovalSubject, DecisionWord, Question, QuestionKind, QuestionState, Settlement,
};
use conclave_core::inspect::rights_map::{
    CallKind, CallRight, PluginNode, Reach, ReachKind, RightsMap,
};
use conclave_core::permissions::grants::{FileGrant, FileMode, Grants};
use conclave_core::permissions::manifest::Manifest;
use conclave_core::permissions::policy_rules::Policy;
use conclave_core::policy::roles::{Role, RoleRefusal};
use conclave_core::setup::{PluginFacts, PluginSetup, Provenance, Setup};
use conclave_core::types::approval::{ApprovalCause, ApprovalRequest, Asker, arguments_sha256};
use conclave_core::types::capability::Capability;
use conclave_core::types::ids::{CallId, RoomId};
use conclave_core::types::limits::{PluginLimits, RunLimits};
use conclave_core::types::plugin_kind::PluginKind;
use conclave_core::types::tool::ToolSpec;
use conclave_runtime::store::{ChainCheck, StoreCheck};
use serde_json::json;

use super::*;
use crate::api::rights::GrantUses;
use crate::api::views::PersonQuestion;
use crate::cached::Cached;
use conclave_core::types::ids::Millis;

/// A call that waits, with what a careless renderer would let through.
fn waiting(may_settle: Result<(), RoleRefusal>) -> PersonQuestion {
    waiting_by(setup(Vec::new()), may_settle)
}

/// The inbox with this question.
fn inbox_of(question: PersonQuestion, now: Millis) -> String {
    let files = inbox::FilesNow::of(&question);
    inbox::view(&[(question, files)], (None, true), now).into_string()
}

/// A config with a plugin `notes` that has these folders.
fn setup(files: Vec<FileGrant>) -> Setup {
    let plugin = PluginSetup {
        facts: PluginFacts {
            manifest: Manifest::default(),
            kinds: [PluginKind::Tools].into(),
            tools: vec![ToolSpec { name: "save".to_owned(), ..ToolSpec::default() }],
            sha256: "00".to_owned(),
            mcp: false,
            server: String::new(),
            confinement: None,
            provenance: Provenance::default(),
        },
        grants: Grants { files, ..Grants::default() },
        limits: PluginLimits::default(),
        config: json!({}),
    };
    Setup {
        entry: "desk".into(),
        tasks: BTreeMap::new(),
        plugins: [("notes".into(), plugin.into())].into(),
        models: BTreeMap::new(),
        channels: Arc::default(),
        gates: Vec::new(),
        observers: Vec::new(),
        policy: Policy::default(),
        policy_now: None,
        limits: RunLimits::default(),
    }
}

fn waiting_by(setup: Setup, may_settle: Result<(), RoleRefusal>) -> PersonQuestion {
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
        setup: Arc::new(setup),
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
    let message = "Note <it> down.\nNow.".to_owned();
    PersonQuestion { config: None, question, message, is_live: true, may_settle, may_inspect: true }
}

#[test]
fn a_question_shows_exactly_what_would_run_and_names_it_in_its_forms() {
    let question = waiting(Ok(()));
    let digest = question.question.subject().map(|subject| subject.arguments_sha256.clone());
    let page = inbox_of(question, Millis(20_000));
    for text in [
        "no rule of the config matches",
        "look-alike: <bdi>",
        "copy.md",
        "a\\u{20}×2b\\u{202e}&lt;b&gt;",
        "<bdi>&lt;desk&gt;</bdi>",
        ", requested by relay",
        "write /notes",
        "c.toml:9",
        "&lt;script&gt;",
        "expires in 40 s",
        "for <bdi>actor</bdi>",
        "Note &lt;it&gt; down.</bdi>",
        "action=\"/runs/r/questions/r%3Ac1\"",
    ] {
        assert!(page.contains(text), "{text}: {page}");
    }
    let digest = digest.unwrap();
    assert_eq!(page.matches(&format!("value=\"{digest}\"")).count(), 2, "{page}");
    assert!(page.contains(&format!("name=\"question\" value=\"r:c1 {digest}\"")), "{page}");
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
        let page = inbox_of(question, Millis(0));
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
    assert_eq!(text::path_part("a b+ü:c1"), "a%20b%2B%C3%BC%3Ac1");
}

#[test]
fn who_has_no_access_gets_a_form_that_leads_to_the_page() {
    let failure = Failure::new(StatusCode::UNAUTHORIZED, "no_access", "no <access>");
    let form =
        LoginForm { page: "/runs/\"a", provider: Some("login.example.org"), was_refused: false };
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

/// The rights of a plugin whose names a careless page would show as markup.
fn rights() -> RightsMap {
    let node = |name: &str, reaches: Vec<Reach>| PluginNode {
        plugin: name.into(),
        kinds: [PluginKind::Tools].into(),
        tasks: Vec::new(),
        rights: Vec::new(),
        reaches,
    };
    let folder =
        Reach { kind: ReachKind::Folder, name: "<docs>/".to_owned(), how: "read".to_owned() };
    let call = |from: &str, to: &str, asks| CallRight {
        from: from.into(),
        to: to.into(),
        by: CallKind::Tool,
        name: format!("{to}.run"),
        asks,
    };
    RightsMap {
        plugins: vec![node("desk", Vec::new()), node("n\u{43e}tes", vec![folder])],
        // A circle, and a call of itself.
        calls: vec![
            call("desk", "n\u{43e}tes", true),
            call("n\u{43e}tes", "desk", false),
            call("desk", "desk", false),
        ],
        data_can_leave: "nowhere".to_owned(),
    }
}

#[tokio::test]
async fn rights_are_drawn_and_said_in_words_with_what_was_not_used() {
    let entry = |state| GrantEntry {
        plugin: "desk".into(),
        capability: Capability::Tools,
        entry: format!("<{state:?}>.*"),
        state,
    };
    let entries = [UseState::Used, UseState::Unused, UseState::NotRecorded].map(entry).into();
    let uses = GrantUses { entries, runs: 3, since: Some(Millis(0)), unread: 1 };
    let cached = Cached::default();
    let uses = cached.get((Duration::ZERO, Duration::MAX), || std::future::ready(Some(uses))).await;
    let page = rights::view(&rights(), uses.as_deref(), Millis(0)).into_string();
    for text in [
        "look-alike: <bdi>",
        "&lt;docs&gt;/",
        "after an approval",
        "class=\"asks\"",
        "&lt;Unused&gt;.*",
        "only compute",
        "1 run could not be read",
        "href=\"#p1\"",
    ] {
        assert!(page.contains(text), "{text}: {page}");
    }
    assert!(!page.contains("NotRecorded") && !page.contains("&lt;Used"), "{page}");
    assert!(!page.contains("<docs>") && !page.contains("style="), "{page}");
}

#[test]
fn the_file_that_a_call_replaces_is_compared_for_who_decides_alone() {
    let temp = tempfile::tempdir().unwrap();
    std::fs::write(temp.path().join("a.md"), "one\n<two>\n").unwrap();
    let folder = || FileGrant {
        dir: temp.path().to_string_lossy().into_owned(),
        display_path: "./notes".to_owned(),
        at: "/notes".to_owned(),
        mode: FileMode::ReadWrite,
        bytes: 1,
        files: 1,
    };
    let about = |may_settle| {
        let mut question = waiting_by(setup(vec![folder()]), may_settle);
        if let QuestionKind::Approval(subject) = &mut question.question.kind {
            subject.request.arguments = json!({ "path": "/notes/a.md", "text": "one\nthree\n" });
        }
        inbox_of(question, Millis(0))
    };
    let page = about(Ok(()));
    for text in ["-<bdi>&lt;two&gt;</bdi>", "+<bdi>three</bdi>", "10 B now: "] {
        assert!(page.contains(text), "{text}: {page}");
    }
    let refusal = RoleRefusal::MissingRole {
        action: Action::Decide,
        role: Role::Viewer,
        roles: vec![Role::Approver],
    };
    let page = about(Err(refusal));
    assert!(!page.contains("two") && !page.contains("now: "), "{page}");
    assert!(!page.contains("name=\"question\"") && !page.contains("refuse-selected"), "{page}");
}

#[test]
fn calls_that_were_not_refused_are_named_with_the_reason() {
    let failure = Failure::new(StatusCode::CONFLICT, "decided", "<ada> decided");
    let settled = vec![("r:c1".to_owned(), Ok(())), ("r:c<2>".to_owned(), Err(failure))];
    let line = inbox::selected_outcome(settled).into_string();
    for text in ["1 call was refused.", "r:c&lt;2&gt;", "&lt;ada&gt; decided"] {
        assert!(line.contains(text), "{text}: {line}");
    }
    assert!(inbox::selected_outcome(Vec::new()).into_string().contains("No call was selected"));
}

#[tokio::test]
async fn a_verification_names_each_chain_and_where_it_is_broken() {
    let chain = |chain, broken_at| ChainCheck {
        chain,
        lines: 1_200,
        head: format!("{chain}abc"),
        broken_at,
    };
    let check = StoreCheck {
        chains: vec![chain(1, None), chain(2, Some(7))],
        problems: vec!["line 7 of audit chain 2 <was> changed".to_owned()],
        ..StoreCheck::default()
    };
    let cached = Cached::default();
    let check = cached.get((Duration::ZERO, Duration::MAX), || std::future::ready(Some(check)));
    let page = audit::view(check.await.as_deref(), Millis(0)).into_string();
    for text in ["1abc", "2abc", "at line 7", "&lt;was&gt;", "changed"] {
        assert!(page.contains(text), "{text}: {page}");
    }
    assert!(audit::view(None, Millis(0)).into_string().contains("being verified"));
}

#[test]
fn markdown_of_agents_becomes_elements_and_never_markup_of_theirs() {
    let text = "# <b>Head</b>\n- **a** [x](https://a.example/)\n- [y](javascript:alert(1))\n\n```\n<i>\u{202e}\n```";
    let page = text::markdown(text).into_string();
    for text in [
        "<p class=\"heading\">&lt;b&gt;Head&lt;/b&gt;</p>",
        "<strong>a</strong>",
        "<a href=\"https://a.example/\" rel=\"noopener noreferrer nofollow ugc\">https://a.example/</a>",
        "[y](javascript:alert(1))",
        "<pre><code>&lt;i&gt;\\u{202e}</code></pre>",
    ] {
        assert!(page.contains(text), "{text}: {page}");
    }
    assert_eq!(page.matches("<a ").count(), 1, "{page}");
    assert!(text::markdown("p\u{430}ypal").into_string().contains("look-alike"));
}
