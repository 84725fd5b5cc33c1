//! Log-in at a provider of OpenID Connect, as a browser with a jar of cookies does it.

use std::collections::BTreeMap;

use conclave_test_servers::TestProvider;
use conclave_test_support::{Rig, until};
use serde_json::json;

use super::client::{Response, Served};
use super::people::{begin, token};
use super::{WEB, echo};

/// A browser without scripts.
struct Browser<'s> {
    served: &'s Served,
    cookies: BTreeMap<String, String>,
}

impl<'s> Browser<'s> {
    fn new(served: &'s Served) -> Self {
        Self { served, cookies: BTreeMap::new() }
    }

    fn cookie(&self) -> String {
        let pairs = self.cookies.iter().map(|(name, value)| format!("{name}={value}"));
        pairs.collect::<Vec<_>>().join("; ")
    }

    /// Opens an address to which a page of this site leads: `same-origin`, or another one.
    fn open(&mut self, path: &str, site: &str) -> Response {
        let headers = [
            ("Host", self.served.address().to_owned()),
            ("Cookie", self.cookie()),
            ("Sec-Fetch-Site", site.to_owned()),
        ];
        let answer = self.served.request("GET", path, &headers, "");
        for line in answer.head.lines() {
            let Some((name, value)) = line.split_once(": ") else { continue };
            let pair = value.split(';').next().and_then(|pair| pair.split_once('='));
            if let Some((cookie, content)) = pair
                && name.eq_ignore_ascii_case("set-cookie")
            {
                assert!(value.contains("HttpOnly"), "{value}");
                if value.contains("Max-Age=0") {
                    self.cookies.remove(cookie);
                } else {
                    self.cookies.insert(cookie.to_owned(), content.to_owned());
                }
            }
        }
        answer
    }

    /// Goes to the provider and logs in there. Returns the address to which it leads back.
    fn visit(&mut self, provider: &TestProvider, page: &str) -> String {
        let begun = self.open(&format!("/login/oidc?page={page}"), "same-origin");
        assert_eq!(begun.status, 303, "{}", begun.text);
        let back = provider.log_in(begun.header("location").expect("it leads there"));
        let back = back.expect("the provider logs in");
        let own = format!("http://{}", self.served.address());
        back.strip_prefix(&own).expect("it leads back").to_owned()
    }

    /// Logs in, and ends at a page.
    fn log_in(&mut self, provider: &TestProvider, page: &str) -> Response {
        let back = self.visit(provider, page);
        self.open(&back, "cross-site")
    }
}

fn served(provider: &TestProvider, lines: &str) -> (Rig, Served) {
    let (client, secret) = provider.client();
    let rig = echo(&format!(
        "{WEB}[server.oidc]\nissuer = \"{}\"\nclient_id = \"{client}\"\n\
         client_secret = {{ env = \"TEST_OIDC_SECRET\" }}\n{lines}\n",
        provider.issuer()
    ));
    let served = Served::start_with_variables(&rig, &[("TEST_OIDC_SECRET", secret.to_owned())]);
    assert_eq!(served.token(), "", "no address gives access");
    (rig, served)
}

#[test]
fn a_person_of_a_provider_logs_in_acts_under_a_name_of_its_own_and_loses_access() {
    let provider = TestProvider::start().expect("it starts");
    provider.change(|it| {
        it.person.insert("groups".to_owned(), json!(["staff"]));
        it.is_refreshable = true;
    });
    let roles = "refresh = \"1 s\"\nroles = { staff = \"user\" }";
    let (rig, mut served) = served(&provider, roles);
    let own = token(&rig, "ada-17", "admin");
    let mut browser = Browser::new(&served);
    // A page without access leads to the provider, and back to that page.
    let refused = browser.open("/runs/r?event=1", "none");
    assert_eq!(refused.status, 401);
    let link = "href=\"/login/oidc?page=%2Fruns%2Fr\"";
    assert!(refused.text.contains(link), "{}", refused.text);
    let script = browser.open("/api/conversations", "same-origin");
    assert_eq!((script.status, &script.body["login"]), (401, &json!("/login/oidc")));
    let ended = browser.log_in(&provider, "%2Fruns%2Fr");
    assert_eq!(
        (ended.status, ended.header("refresh")),
        (200, Some("0;url=/runs/r")),
        "{}",
        ended.text
    );
    assert_eq!(browser.cookies.len(), 1, "that of the log-in is gone: {:?}", browser.cookies);
    let cookie = browser.cookie();
    // It acts under a name that nobody with a token can have.
    served.with_cookie(&cookie);
    let room = begin(&served);
    let listed = served.get("/api/v1/runs").body;
    assert_eq!(listed["runs"][0]["principal"], "oidc:ada-17", "{listed}");
    let bearer =
        [("Host", served.address().to_owned()), ("Authorization", format!("Bearer {own}"))];
    // The server looks for new tokens each 400 ms.
    let run = until("the token counts", || {
        let run = served.request("GET", &format!("/api/v1/runs/{room}"), &bearer, "");
        (run.status != 401).then_some(run)
    });
    assert_eq!((run.status, &run.body["principal"]), (200, &json!("oidc:ada-17")), "{}", run.text);
    // The provider is asked again and again, until it takes the access away: streams end too.
    let stream = served.events(&room, None);
    until("two refreshes", || (provider.refreshes() > 1).then_some(()));
    assert_eq!(served.get("/api/conversations").status, 200);
    provider.change(|it| drop(it.claims.insert("groups".to_owned(), json!([]))));
    stream.until_end();
    assert_eq!(served.get("/api/conversations").status, 401);
    assert_eq!(served.request("GET", "/api/conversations", &bearer, "").status, 200);
}

#[test]
fn a_log_in_that_is_not_the_browsers_own_or_has_no_role_ends_at_a_page_that_says_so() {
    let provider = TestProvider::start().expect("it starts");
    let (_rig, served) = served(&provider, "roles = { staff = \"user\" }");
    let (mut ada, mut bob) = (Browser::new(&served), Browser::new(&served));
    let refused = ada.log_in(&provider, "%2Finbox");
    assert_eq!(refused.status, 403, "{}", refused.text);
    assert!(refused.text.contains("no role") && refused.text.contains("Try again"));
    provider.change(|it| drop(it.person.insert("groups".to_owned(), json!(["staff"]))));
    // An address that is caught is of no use to another browser, and of none later.
    let caught = ada.visit(&provider, "%2Finbox");
    assert_eq!(bob.open(&caught, "cross-site").status, 400);
    bob.visit(&provider, "%2Finbox");
    assert_eq!(bob.open(&caught, "cross-site").status, 400);
    assert_eq!(ada.open(&caught, "cross-site").status, 200);
    assert_eq!(ada.open(&caught, "cross-site").status, 400);
    assert_eq!(ada.open("/inbox", "same-origin").status, 200);
    // Another site cannot begin a log-in, and none leads to another site.
    assert_eq!(bob.open("/login/oidc?page=%2Fruns", "cross-site").status, 403);
    let back = bob.visit(&provider, "https%3A%2F%2Fevil.test%2Fruns%0d%0aX-Y%3A%20z");
    let ended = bob.open(&back, "cross-site");
    assert_eq!(ended.header("refresh"), Some("0;url=/runs"), "{}", ended.head);
    // Without its provider nobody logs in, and a page says so.
    let back = bob.visit(&provider, "%2Finbox");
    provider.change(|it| it.is_down = true);
    let failed = bob.open(&back, "cross-site");
    assert_eq!(failed.status, 403, "{}", failed.text);
    assert!(failed.text.contains("provider") && failed.text.contains("Try again"));
}

#[test]
fn of_several_configs_the_one_with_the_provider_begins_and_ends_a_log_in() {
    let provider = TestProvider::start().expect("it starts");
    provider.change(|it| drop(it.person.insert("groups".to_owned(), json!(["staff"]))));
    let (client, secret) = provider.client();
    let plain = std::fs::read_to_string(echo(WEB).folder().join("c.toml")).expect("it is there");
    let rig = echo(&format!(
        "{WEB}[server.oidc]\nissuer = \"{}\"\nclient_id = \"{client}\"\n\
         client_secret = {{ env = \"TEST_OIDC_SECRET\" }}\nroles = {{ staff = \"user\" }}\n",
        provider.issuer()
    ))
    .with_file("a.toml", plain);
    let words = ["serve", "a.toml", "c.toml", "--listen", "127.0.0.1:0"].map(str::to_owned);
    let variables = [("TEST_OIDC_SECRET", secret.to_owned())];
    let served = Served::start_with(&rig, words.into(), &variables);
    let mut browser = Browser::new(&served);
    let ended = browser.log_in(&provider, "%2Finbox");
    assert_eq!(ended.status, 200, "{}", ended.text);
    let configs = browser.open("/api/v1/configs", "same-origin").body;
    assert_eq!(configs["configs"].as_array().map(Vec::len), Some(1), "{configs}");
    assert_eq!(configs["configs"][0]["config"], "c");
    // Neither the session nor the name of a config without a provider is in the way of another one.
    for config in ["a", "c", "none"] {
        let begun = browser.open(&format!("/login/oidc?config={config}"), "same-origin");
        assert_eq!(begun.status, 303, "{config}: {}", begun.text);
    }
}

#[test]
fn one_log_in_is_a_session_at_each_config_of_its_client_where_the_person_has_a_role() {
    let provider = TestProvider::start().expect("it starts");
    provider.change(|it| {
        it.person.insert("groups".to_owned(), json!(["staff"]));
        it.is_refreshable = true;
    });
    let (client, secret) = provider.client();
    let plain = std::fs::read_to_string(echo(WEB).folder().join("c.toml")).expect("it is there");
    let config = |client: &str, roles: &str| {
        format!(
            "{plain}[server.oidc]\nissuer = \"{}\"\nclient_id = \"{client}\"\nrefresh = \"1 s\"\n\
             client_secret = {{ env = \"TEST_OIDC_SECRET\" }}\nroles = {{ {roles} }}\n",
            provider.issuer()
        )
    };
    let rig = Rig::new()
        .with_file("a.toml", config(client, "staff = \"user\""))
        .with_file("b.toml", config(client, "staff = \"admin\", others = \"viewer\""))
        .with_file("c.toml", config(client, "leads = \"admin\""))
        .with_file("d.toml", config("another-client", "staff = \"admin\""));
    let words = ["serve", "a.toml", "b.toml", "c.toml", "d.toml", "--listen", "127.0.0.1:0"];
    let variables = [("TEST_OIDC_SECRET", secret.to_owned())];
    let served = Served::start_with(&rig, words.map(str::to_owned).into(), &variables);
    let mut browser = Browser::new(&served);
    assert_eq!(browser.log_in(&provider, "%2Finbox").status, 200);
    let mut seen = || {
        let configs = browser.open("/api/v1/configs", "same-origin").body;
        let rows = configs["configs"].as_array().cloned().unwrap_or_default();
        rows.iter().map(|row| format!("{} {}", row["config"], row["role"])).collect::<Vec<_>>()
    };
    assert_eq!(seen(), ["\"a\" \"user\"", "\"b\" \"admin\""]);
    until("two refreshes", || (provider.refreshes() > 1).then_some(()));
    assert_eq!(seen().len(), 2);
    // Without the role at the config that asks the provider, nobody is asked about the others.
    provider.change(|it| drop(it.claims.insert("groups".to_owned(), json!(["others"]))));
    until("all sessions end", || seen().is_empty().then_some(()));
}
