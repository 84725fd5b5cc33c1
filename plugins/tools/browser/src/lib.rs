//! Browser: opens a page with one request and returns its readable text. As an executor it handles
//! the action `browse` (O-139), without scripts, pictures or clicks. A page that cannot be opened
//! is a `browse` observation with `error`, so that the agent can try another address.
//! `browse_interactive` follows the links of a page by their numbers.

mod body;
mod html;
mod interactive;
mod link;
mod tokens;

use conclave_sdk::{Call, Error, Outcome, Result, ToolSpec, Toolset, fetch};
use conclave_trajectory::truncate;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use body::Kind;

/// Bytes of a response that are read.
const MOST_BYTES: usize = 10 * 1024 * 1024;
/// Characters that are returned of a page, and of an error page.
const MOST_CHARS: usize = 100_000;
const MOST_CHARS_OF_ERROR: usize = 10_000;

#[derive(Deserialize)]
struct Browse {
    url: String,
}

/// The result of opening an address.
#[derive(Debug, Default, PartialEq, Eq)]
struct Page {
    content: String,
    /// The addresses of the links with numbers, which count from 1.
    links: Vec<String>,
    /// The status; 0 without a response.
    status: u16,
    error: bool,
}

#[derive(Deserialize)]
struct BrowseInteractive {
    browser_actions: String,
}

struct Browser;

impl Toolset for Browser {
    fn list() -> Result<Vec<ToolSpec>> {
        let schema = json!({
            "type": "object",
            "required": ["url"],
            "properties": { "url": { "type": "string", "description": "The address, such as `https://example.org/page`." } },
        });
        let what = "Opens a page of the web and gives its text with headings, lists, tables and links. Scripts do not run. \
                    Plain text and JSON come as they are.";
        let moves = json!({
            "type": "object",
            "required": ["browser_actions"],
            "properties": { "browser_actions": {
                "type": "string",
                "description": "One action in each line: goto(\"address\"), click(\"number of a link\"), go_back().",
            } },
        });
        let walks = "Follows links: opens a page and gives its text, with a number in brackets behind each link to click.";
        Ok(vec![
            ToolSpec::new("browse", what, schema.to_string()),
            ToolSpec::new("browse_interactive", walks, moves.to_string()),
        ])
    }

    fn call(name: &str, arguments: Value, _: &Call) -> Result<Outcome> {
        // Irrelevant arguments of the fixed JSON, such as a thought, are accepted.
        if name == "browse_interactive" {
            let BrowseInteractive { browser_actions } = parsed(arguments)?;
            return interactive::act(&browser_actions);
        }
        let Browse { url } = parsed(arguments)?;
        outcome(&url, open(&url, 0))
    }
}

fn parsed<T: DeserializeOwned>(arguments: Value) -> Result<T> {
    serde_json::from_value(arguments).map_err(|error| Error::invalid_arguments(error.to_string()))
}

/// Opens an address. Links have numbers as far as their addresses fit into `number_bytes`.
fn open(url: &str, number_bytes: usize) -> Page {
    let answer = fetch::get(address(url))
        .header("accept", "text/html, text/plain, application/json, */*;q=0.5")
        .send();
    match answer {
        Ok(response) => {
            // The whole body, or its beginning if it is too large.
            let mut bytes = response.bytes();
            bytes.truncate(MOST_BYTES);
            let content_type = response.header("content-type");
            let from = response.url();
            page(response.status(), content_type.as_deref(), &bytes, &from, number_bytes)
        }
        Err(error) => refused(url, &error),
    }
}

/// The address in the form of `fetch`: with a scheme, without a fragment.
fn address(url: &str) -> String {
    let url = url.trim().split('#').next().unwrap_or_default();
    if url.contains("://") || url.is_empty() { url.to_owned() } else { format!("https://{url}") }
}

fn page(
    status: u16,
    content_type: Option<&str>,
    bytes: &[u8],
    address: &str,
    number_bytes: usize,
) -> Page {
    let is_failure = status >= 400;
    let (content, links) = match body::kind(content_type, bytes) {
        Kind::Html => html::readable(&body::decoded(bytes, content_type), address, number_bytes),
        Kind::Text => (without_controls(&body::decoded(bytes, content_type)), Vec::new()),
        Kind::Other => {
            let kind = content_type.unwrap_or("an unknown kind");
            let content = format!(
                "{address} answered with {} bytes of {kind}, in which there is no text to read.",
                bytes.len()
            );
            return Page { content, status, error: true, ..Page::default() };
        }
    };
    let content = match content.trim() {
        "" if is_failure => {
            format!("{address} answered with the status {status} and nothing else.")
        }
        "" => "The page has no text. It may be made by scripts, which do not run here.".to_owned(),
        _ => truncate(&content, if is_failure { MOST_CHARS_OF_ERROR } else { MOST_CHARS }),
    };
    Page { content, links, status, error: is_failure }
}

fn without_controls(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_control() || matches!(letter, '\n' | '\t')).collect()
}

/// O-139: a refusal or failure is returned in the page's place. The host has reported a refusal to
/// the operator.
fn refused(url: &str, error: &Error) -> Page {
    let why = match error {
        Error::Denied(denial) => format!("this address is not granted ({})", denial.detail),
        error => error.to_string(),
    };
    let content = format!("{} could not be opened: {why}", truncate(url, 500));
    Page { content, error: true, ..Page::default() }
}

/// A plain success is text only. Facts that the host cannot know are added in the fixed form.
fn outcome(url: &str, page: Page) -> Result<Outcome> {
    let Page { content, status, error, .. } = page;
    if status == 200 && !error {
        return Ok(Outcome::text(content));
    }
    let extras = json!({ "url": url, "trigger_by_action": "browse", "screenshot": "", "status_code": status, "error": error });
    let observation = json!({ "observation": "browse", "content": content, "extras": extras });
    Outcome::text(content).with_value(&json!({ "observation": observation }))
}

conclave_sdk::export!(toolset: Browser);

#[cfg(test)]
mod tests {
    use conclave_sdk::{Denial, Error};
    use serde_json::{Value, json};

    use super::{MOST_CHARS, Page, address, outcome, refused};

    const AT: &str = "https://a.example/";

    fn page(status: u16, kind: Option<&str>, bytes: &[u8], address: &str) -> Page {
        super::page(status, kind, bytes, address, 0)
    }

    #[test]
    fn addresses_get_a_scheme_and_lose_their_fragment() {
        for (url, expected) in [
            (" example.org/x#y ", "https://example.org/x"),
            ("http://a.example", "http://a.example"),
            ("", ""),
        ] {
            assert_eq!(address(url), expected);
        }
    }

    #[test]
    fn pages_are_read_by_their_kind() {
        let shown = |kind: &str, body: &str| page(200, Some(kind), body.as_bytes(), AT).content;
        assert_eq!(shown("text/html", "<h1>A</h1><p>b"), "# A\n\nb");
        assert_eq!(shown("text/plain", "<h1>A</h1>\n"), "<h1>A</h1>\n");
        assert_eq!(shown("application/json", "{\"a\": \"\u{1b}[0m\"}"), "{\"a\": \"[0m\"}");
        assert_eq!(
            shown("text/html", "<div id=app></div>"),
            "The page has no text. It may be made by scripts, which do not run here."
        );
    }

    #[test]
    fn what_is_no_text_is_an_error() {
        let expected = "https://a.example/ answered with 4 bytes of image/png, in which there is no text to read.";
        assert_eq!(
            page(200, Some("image/png"), b"\x89PNG", AT),
            Page { content: expected.into(), status: 200, error: true, ..Page::default() }
        );
    }

    #[test]
    fn a_failure_keeps_its_page_and_status() {
        let missing = page(404, Some("text/html"), b"<h1>Not here</h1>", AT);
        let content = "# Not here".to_owned();
        assert_eq!(missing, Page { content, status: 404, error: true, ..Page::default() });
        assert_eq!(
            page(500, None, b"", AT).content,
            "https://a.example/ answered with the status 500 and nothing else."
        );
    }

    #[test]
    fn a_long_page_is_cut() {
        let long = page(200, Some("text/plain"), &vec![b'x'; 3 * MOST_CHARS], AT).content;
        assert!(
            long.len() < MOST_CHARS + 100
                && long.contains("[... Observation truncated due to length ...]")
        );
    }

    #[test]
    fn a_refusal_is_an_observation_of_its_own() {
        let denial = Denial {
            capability: "fetch".into(),
            target: AT.into(),
            detail: "no address of this host is granted".into(),
        };
        let outcome = outcome(AT, refused(AT, &Error::Denied(denial))).unwrap();
        let value: Value = serde_json::from_str(&outcome.value.unwrap()).unwrap();
        let observation = &value["observation"];
        let expected = "https://a.example/ could not be opened: this address is not granted (no address of this host is granted)";
        assert_eq!(
            (&observation["observation"], &observation["content"]),
            (&json!("browse"), &json!(expected))
        );
        assert_eq!(
            (&observation["extras"]["error"], &observation["extras"]["status_code"]),
            (&json!(true), &json!(0))
        );
        assert_eq!(observation["extras"]["url"], AT);
        assert_eq!(outcome.content.as_deref(), Some(expected));
    }

    #[test]
    fn a_success_is_only_text() {
        let page = Page { content: "a".into(), status: 200, ..Page::default() };
        let outcome = outcome(AT, page).unwrap();
        assert_eq!((outcome.content.as_deref(), outcome.value), (Some("a"), None));
    }
}
