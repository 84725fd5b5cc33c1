//! The pages over HTTP, as a browser without scripts reads them.

use super::client::Served;
use super::people::{begin, token};
use super::{WEB, echo};

#[test]
fn a_run_and_its_events_are_read_without_a_script_by_who_may_read_it() {
    let rig = echo(WEB);
    let tokens = [("ada", "user"), ("bob", "user"), ("vera", "viewer")]
        .map(|(name, role)| token(&rig, name, role));
    let mut served = Served::start(&rig, &[]);
    let [ada, bob, vera] = tokens.each_ref().map(|token| served.log_in(token));
    served.with_cookie(&ada);
    let room = begin(&served);
    served.send(&room, "a", "<b>Good</b> p\u{430}ypal");
    served.events(&room, None).entry_so(|entry| entry["kind"] == "answer");
    let list = served.get("/runs");
    assert_eq!(list.status, 200, "{}", list.text);
    assert!(list.text.contains(&format!("href=\"/runs/{room}\"")), "{}", list.text);
    let run = served.get(&format!("/runs/{room}"));
    assert_eq!(run.status, 200, "{}", run.text);
    assert!(run.text.contains("&lt;b&gt;Good&lt;/b&gt;") && !run.text.contains("<b>Good"));
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
