//! The action `browse_interactive`: lines such as `goto("address")`, `click("3")` on a link by its
//! number, and `go_back()`. The page and the way to it are in the task's scratch. There are no
//! scripts and no forms, so every other action is refused in a sentence.

use conclave_sdk::{Outcome, Result, scratch};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{Page, open};

/// Bytes of the addresses of a page's numbered links.
const LINK_BYTES: usize = 24 * 1024;
/// Pages to go back to, and the bytes that the address of each may have. A longer one is skipped.
const MOST_BACK: usize = 20;
const BACK_BYTES: usize = 1_024;
const ACTIONS: &str = "goto(\"address\"), click(\"number of a link\"), go_back(), noop()";

/// The state of a task's browser.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Session {
    url: String,
    /// The addresses of the page's links, in the order of their numbers, which count from 1.
    links: Vec<String>,
    back: Vec<String>,
}

/// The effect of one line.
#[derive(Debug, PartialEq, Eq)]
enum Navigation {
    /// Opens an address.
    To(String),
    Back,
    /// Does nothing, because the observation has the whole page.
    Stay,
}

/// Carries out the lines in order, up to the first that fails. The outcome has the last page.
pub(crate) fn act(actions: &str) -> Result<Outcome> {
    let mut session: Session = scratch::get()?.unwrap_or_default();
    let mut opened: Option<Page> = None;
    let mut last = "";
    let mut problem = String::new();
    for line in actions.lines().map(str::trim).filter(|line| !is_comment(line)) {
        if opened.as_ref().is_some_and(|page| page.error) {
            break;
        }
        last = line;
        match session.parse(line) {
            Ok(next) => opened = session.destination(next).map(|url| session.open(url)).or(opened),
            Err(why) => {
                problem = why;
                break;
            }
        }
    }
    let page = match opened {
        Some(page) => page,
        None if !problem.is_empty() => Page { error: true, ..Page::default() },
        None if session.url.is_empty() => {
            Page { content: "No page is open.".to_owned(), ..Page::default() }
        }
        // Without a navigation the page is opened again: nothing stores its text.
        None => session.open(session.url.clone()),
    };
    scratch::set(&session)?;
    outcome(&session.url, page, last, problem)
}

impl Session {
    /// Parses a line. The error is for the model.
    fn parse(&self, line: &str) -> std::result::Result<Navigation, String> {
        let wrong = || format!("`{line}` is no action. These are: {ACTIONS}.");
        let (name, rest) = line.split_once('(').ok_or_else(wrong)?;
        let argument = rest.trim_end().strip_suffix(')').ok_or_else(wrong)?;
        let argument = first_argument(argument.trim());
        match name.trim() {
            "goto" if argument.is_empty() => Err(wrong()),
            "goto" => Ok(Navigation::To(argument.to_owned())),
            "click" => {
                let number = argument.trim_matches(['[', ']']).parse::<usize>().ok();
                let link = number.and_then(|number| self.links.get(number.checked_sub(1)?));
                let most = self.links.len();
                link.map(|link| Navigation::To(link.clone())).ok_or_else(|| match most {
                    0 => format!("`{line}`: the page has no links."),
                    _ => format!("`{line}`: the links of the page are 1 to {most}."),
                })
            }
            "go_back" if self.back.is_empty() => {
                Err("`go_back()`: there is no page before this one.".to_owned())
            }
            "go_back" => Ok(Navigation::Back),
            "noop" | "scroll" | "send_msg_to_user" => Ok(Navigation::Stay),
            name => Err(format!(
                "`{name}` is not possible: pages are read without scripts and forms. These are: {ACTIONS}."
            )),
        }
    }

    /// The address to which a line leads, if it leaves the page. Updates the way back.
    fn destination(&mut self, next: Navigation) -> Option<String> {
        match next {
            Navigation::To(url) => {
                if !self.url.is_empty() && self.url.len() <= BACK_BYTES {
                    self.back.push(self.url.clone());
                    let extra = self.back.len().saturating_sub(MOST_BACK);
                    self.back.drain(..extra);
                }
                Some(url)
            }
            Navigation::Back => self.back.pop(),
            Navigation::Stay => None,
        }
    }

    fn open(&mut self, url: String) -> Page {
        let mut page = open(&url, LINK_BYTES);
        (self.url, self.links) = (url, std::mem::take(&mut page.links));
        page
    }
}

/// The first argument without its quotes, if it is quoted; else the whole text.
fn first_argument(arguments: &str) -> &str {
    for quote in ['"', '\''] {
        if let Some(quoted) = arguments.strip_prefix(quote) {
            return quoted.split(quote).next().unwrap_or_default().trim();
        }
    }
    arguments
}

fn is_comment(line: &str) -> bool {
    line.is_empty() || line.starts_with('#')
}

fn outcome(url: &str, page: Page, last: &str, problem: String) -> Result<Outcome> {
    let Page { content, status, error, .. } = page;
    let content = format!("{problem}\n\n{content}").trim().to_owned();
    let extras = json!({
        "url": url, "screenshot": "", "status_code": status, "error": error || !problem.is_empty(),
        "last_browser_action": last, "last_browser_action_error": problem,
        "trigger_by_action": "browse_interactive",
    });
    let observation = json!({ "observation": "browse", "content": content, "extras": extras });
    Outcome::text(content).with_value(&json!({ "observation": observation }))
}

#[cfg(test)]
mod tests {
    use conclave_sdk::testing::FakeHost;
    use serde_json::Value;

    use super::{MOST_BACK, Navigation, Session, act};

    fn session() -> Session {
        let links = vec!["https://a.example/1".to_owned(), "https://a.example/2".to_owned()];
        Session { url: "https://a.example/".into(), links, back: Vec::new() }
    }

    #[test]
    fn lines_are_moves() {
        let session = session();
        for (line, expected) in [
            ("goto(\"b.example\")", Navigation::To("b.example".into())),
            ("goto('https://b.example/(x)')", Navigation::To("https://b.example/(x)".into())),
            ("click(\"2\")", Navigation::To("https://a.example/2".into())),
            ("click('[1]')", Navigation::To("https://a.example/1".into())),
            ("click(\"2\", button=\"right\")", Navigation::To("https://a.example/2".into())),
            ("click('2', button='right')", Navigation::To("https://a.example/2".into())),
            ("scroll(0, 500)", Navigation::Stay),
            ("send_msg_to_user(\"Done.\")", Navigation::Stay),
        ] {
            assert_eq!(session.parse(line), Ok(expected), "{line}");
        }
    }

    #[test]
    fn what_is_not_possible_says_what_is() {
        let session = session();
        for (line, says) in [
            ("fill(\"3\", \"text\")", "without scripts and forms"),
            ("click(\"3\")", "the links of the page are 1 to 2"),
            ("go_back()", "no page before"),
            ("open it", "goto("),
            ("goto()", "goto("),
        ] {
            assert!(session.parse(line).is_err_and(|why| why.contains(says)), "{line}");
        }
        assert!(
            Session::default().parse("click(\"1\")").is_err_and(|why| why.contains("no links"))
        );
    }

    #[test]
    fn the_way_back_is_bounded() {
        let mut session = session();
        for number in 0..2 * MOST_BACK {
            session.url =
                session.destination(Navigation::To(format!("https://a.example/{number}"))).unwrap();
        }
        assert_eq!(session.back.len(), MOST_BACK);
        let before = session.back.last().cloned();
        assert_eq!(session.destination(Navigation::Back), before);
    }

    #[test]
    fn links_have_numbers_that_can_be_clicked_in_a_later_call() {
        let mut host = FakeHost::new()
            .response("https://a.example/", 200, "<html><a href=b>More</a>")
            .response("https://a.example/b", 200, "<html><p>48 m</p>");
        let mut content = |actions: &str| {
            let outcome = host.run(|| act(actions)).unwrap();
            let value: Value = serde_json::from_str(&outcome.value.unwrap()).unwrap();
            let observation = &value["observation"];
            let extras = &observation["extras"];
            let text = observation["content"].as_str().unwrap_or_default().to_owned();
            (text, extras["url"].as_str().unwrap_or_default().to_owned(), extras["error"] == true)
        };
        let first = ("More [1]".to_owned(), "https://a.example/".to_owned(), false);
        assert_eq!(content("noop()"), ("No page is open.".to_owned(), String::new(), false));
        assert_eq!(content("goto(\"https://a.example/\")"), first);
        let second = ("48 m".to_owned(), "https://a.example/b".to_owned(), false);
        assert_eq!(content("# the details\nclick(\"1\")"), second);
        assert_eq!(content("go_back()"), first);
        let (text, _, is_error) = content("fill(\"1\", \"x\")");
        assert!(is_error && text.starts_with("`fill` is not possible"), "{text}");
        assert_eq!(content("noop()"), first);
    }
}
