//! Pages with the stock browser: read as text, or an observation with the reason of a failure.

use conclave_core::types::outcome::Status;
use conclave_models::test_server::{Server, TestReply};
use conclave_test_support::Rig;
use serde_json::{Value, json};

use super::{acting, allowed, executor, observations, steps};

const PAGE: &str = "<html><head><title>Skerryvore</title><script>steal()</script></head>\
                    <body><h1>The light</h1><p>It is <b>48</b> m tall. <a href=\"/v1/more\">More</a></p></body></html>";

fn browse(url: &str) -> Value {
    json!({ "action": "browse", "args": { "url": url } })
}

#[test]
fn a_picture_that_an_executor_attaches_reaches_the_agent() {
    let click =
        json!({ "action": "browse_interactive", "args": { "browser_actions": "click('7')" } });
    let config = acting(
        &json!([browse("https://light.example/"), click]),
        "grants.tools = [\"browser.*\"]",
        "action_plugins = [\"browser\"]",
        &executor("stub_browser", "browser", ""),
    );
    let ran = Rig::new().run(&config, "go");
    assert_eq!(ran.status(), Status::Done, "{}", ran.outcome.reason);
    assert_eq!(ran.denials(), []);
    let attached: Vec<Value> =
        steps(&ran).into_iter().map(|step| step["attached"].clone()).collect();
    assert_eq!(
        attached,
        [
            json!([]),
            json!(["page.png (image/png): browse"]),
            json!(["page.png (image/png): browse_interactive"])
        ]
    );
}

#[test]
fn a_page_is_read_and_what_is_none_says_why() {
    let server = Server::answering(|request| match request.path.as_str() {
        "/v1/light" => TestReply::bytes(200, "text/html; charset=utf-8", PAGE),
        "/v1/picture" => TestReply::bytes(200, "image/png", [0x89, 0x50]),
        _ => TestReply::bytes(404, "text/html", "<h1>Not here</h1>"),
    });
    let (light, missing, picture) =
        (server.url() + "/light", server.url() + "/none", server.url() + "/picture");
    let elsewhere = "https://elsewhere.example/x";
    let script = json!([
        browse(&light),
        browse(&missing),
        browse(&picture),
        browse(elsewhere),
        browse("no address")
    ]);
    let browser = format!(
        "[plugins.browser]\nsource = \"stock:browser\"\ngrants.fetch = {{ urls = [\"{}/*\"], private = [\"127.0.0.1\"] }}\n{}",
        server.url(),
        allowed("browser.*")
    );
    let ran = Rig::new().run(
        &acting(
            &script,
            "grants.tools = [\"browser.*\"]",
            "action_plugins = [\"browser\"]",
            &browser,
        ),
        "go",
    );
    assert_eq!(ran.status(), Status::Done, "{}", ran.outcome.reason);
    let seen = observations(&ran);
    assert_eq!(seen.len(), 5, "{seen:#?}");

    assert_eq!(
        (&seen[0]["url"], &seen[0]["status"], &seen[0]["error"]),
        (&json!(light), &json!(200), &json!(false))
    );
    let text = seen[0]["content"].as_str().unwrap_or_default();
    assert!(
        text.contains("# The light") && text.contains("48") && text.contains("/v1/more)"),
        "{text}"
    );
    assert!(!text.contains("steal") && !text.contains("<p>"), "{text}");

    assert_eq!(
        (&seen[1]["status"], &seen[1]["error"], &seen[1]["content"]),
        (&json!(404), &json!(true), &json!("# Not here"))
    );
    assert_eq!((&seen[2]["status"], &seen[2]["error"]), (&json!(200), &json!(true)), "{}", seen[2]);
    for (seen, url) in [(&seen[3], elsewhere), (&seen[4], "no address")] {
        assert_eq!(
            (&seen["url"], &seen["error"], &seen["status"]),
            (&json!(url), &json!(true), &json!(0)),
            "{seen}"
        );
        assert!(
            seen["content"].as_str().is_some_and(|text| text.contains("could not be opened")),
            "{seen}"
        );
    }
    let denied = ran.denials();
    let fetch = denied
        .iter()
        .find(|record| record.denial.target.contains("elsewhere"))
        .unwrap_or_else(|| panic!("{denied:?}"));
    assert!(
        fetch
            .suggestion
            .as_deref()
            .is_some_and(|line| line.starts_with("[plugins.browser] grants.fetch")),
        "{fetch:?}"
    );
    let reached: Vec<String> = server.requests().into_iter().map(|request| request.path).collect();
    assert_eq!(reached, ["/v1/light", "/v1/none", "/v1/picture"]);
}
