//! The action `browse_interactive`: lines such as `goto("address")`, `click("3")` on a link by its
//! number, and `go_back()`. The page and the way to it are in the task's scratch. There are no
//! scripts and no forms, so every other action is refused in a sentence.

use conclave_sdk::{Outcome, Result, scratch};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{Form, Page, open};

/// Bytes of the addresses of a page's numbered links, and pages to go back to.
const LINK_BYTES: usize = 24 * 1024;
const MOST_BACK: usize = 20;
/// Characters of an address that are kept; longer ones have no number.
const ADDRESS_CHARS: usize = 1_024;
const KNOWN: &str = "goto(\"address\"), click(\"number of a link\"), go_back(), noop()";

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
enum Move {
    /// Opens an address.
    To(String),
    Back,
    /// Does nothing, because the observation has the whole page.
    Stay,
}

/// Carries out the lines in order, and returns the last page. A line that fails ends them.
pub(crate) fn act(actions: &str) -> Result<Outcome> {
    let mut session: Session = scratch::get()?.unwrap_or_default();
    let mut shown = None;
    let mut last = "";
    let mut problem = String::new();
    for line in actions.lines().map(str::trim).filter(|line| !is_comment(line)) {
        last = line;
        let next = match session.read(line) {
            Ok(next) => next,
            Err(why) => {
                problem = why;
                break;
            }
        };
        let Some(url) = session.leave(next) else { continue };
        let (page, links) = open(&url, Form::Numbered { most: LINK_BYTES });
        let is_error = page.error;
        (session.url, session.links) = (url, links);
        shown = Some(page);
        if is_error {
            break;
        }
    }
    // Without a move the page is opened again: nothing keeps its text.
    let page = match shown {
        Some(page) => page,
        None if !problem.is_empty() => Page { content: String::new(), status: 0, error: true },
        None if session.url.is_empty() => {
            Page { content: "No page is open.".to_owned(), status: 0, error: false }
        }
        None => {
            let (page, links) = open(&session.url, Form::Numbered { most: LINK_BYTES });
            session.links = links;
            page
        }
    };
    scratch::set(&session)?;
    told(&session.url, page, last, problem)
}

impl Session {
    /// Parses a line. The error is for the model.
    fn read(&self, line: &str) -> std::result::Result<Move, String> {
        let wrong = || format!("`{line}` is no action. These are: {KNOWN}.");
        let (name, rest) = line.split_once('(').ok_or_else(wrong)?;
        let argument = rest.trim_end().strip_suffix(')').ok_or_else(wrong)?;
        let argument = argument.split_once("\",").map_or(argument, |(first, _)| first);
        let argument = argument.trim().trim_matches(['"', '\'']);
        match name.trim() {
            "goto" if argument.is_empty() => Err(wrong()),
            "goto" => Ok(Move::To(argument.to_owned())),
            "click" => {
                let number = argument.trim_matches(['[', ']']).parse::<usize>().ok();
                let link = number.and_then(|number| self.links.get(number.checked_sub(1)?));
                let most = self.links.len();
                link.map(|link| Move::To(link.clone())).ok_or_else(|| match most {
                    0 => format!("`{line}`: the page has no links."),
                    _ => format!("`{line}`: the links of the page are 1 to {most}."),
                })
            }
            "go_back" if self.back.is_empty() => {
                Err("`go_back()`: there is no page before this one.".to_owned())
            }
            "go_back" => Ok(Move::Back),
            "noop" | "scroll" | "send_msg_to_user" => Ok(Move::Stay),
            name => Err(format!(
                "`{name}` is not possible: pages are read without scripts and forms. These are: {KNOWN}."
            )),
        }
    }

    /// Returns the address to open next, and updates the way back.
    fn leave(&mut self, next: Move) -> Option<String> {
        match next {
            Move::To(url) => {
                if !self.url.is_empty() && self.url.len() <= ADDRESS_CHARS {
                    self.back.push(self.url.clone());
                    let extra = self.back.len().saturating_sub(MOST_BACK);
                    self.back.drain(..extra);
                }
                Some(url)
            }
            Move::Back => self.back.pop(),
            Move::Stay => None,
        }
    }
}

fn is_comment(line: &str) -> bool {
    line.is_empty() || line.starts_with('#')
}

fn told(url: &str, page: Page, last: &str, problem: String) -> Result<Outcome> {
    let Page { content, status, error } = page;
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

    use super::{MOST_BACK, Move, Session, act};

    fn session() -> Session {
        let links = vec!["https://a.example/1".to_owned(), "https://a.example/2".to_owned()];
        Session { url: "https://a.example/".into(), links, back: Vec::new() }
    }

    #[test]
    fn lines_are_moves() {
        let session = session();
        for (line, expected) in [
            ("goto(\"b.example\")", Move::To("b.example".into())),
            ("goto('https://b.example/(x)')", Move::To("https://b.example/(x)".into())),
            ("click(\"2\")", Move::To("https://a.example/2".into())),
            ("click('[1]')", Move::To("https://a.example/1".into())),
            ("click(\"2\", button=\"right\")", Move::To("https://a.example/2".into())),
            ("scroll(0, 500)", Move::Stay),
            ("send_msg_to_user(\"Done.\")", Move::Stay),
        ] {
            assert_eq!(session.read(line), Ok(expected), "{line}");
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
            assert!(session.read(line).is_err_and(|why| why.contains(says)), "{line}");
        }
        assert!(Session::default().read("click(\"1\")").is_err_and(|why| why.contains("no links")));
    }

    #[test]
    fn the_way_back_is_bounded() {
        let mut session = session();
        for number in 0..2 * MOST_BACK {
            session.url = session.leave(Move::To(format!("https://a.example/{number}"))).unwrap();
        }
        assert_eq!(session.back.len(), MOST_BACK);
        let before = session.back.last().cloned();
        assert_eq!(session.leave(Move::Back), before);
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
