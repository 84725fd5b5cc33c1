//! Texts and amounts in pages. Texts of others are shown by the core's rules: what a reader could
//! miss is escaped, and a word that resembles another is marked.

use conclave_core::inspect::amounts::{ago, moment};
use conclave_core::inspect::foreign_text::{escaped, look_alike, readable};
use conclave_core::inspect::telling::Tone;
use conclave_core::types::ids::Millis;
use conclave_runtime::store::{RunRow, RunState};
use maud::{Markup, html};

use crate::markdown::{self, Block, Inline};

/// How a page is left by a link in a text: the other site learns nothing of it.
const LINK: &str = "noopener noreferrer nofollow ugc";
/// Bytes of a text up to which look-alikes are searched.
const SEARCHED: usize = 64 << 10;

/// A text of others within a line.
pub(super) fn foreign(text: &str) -> Markup {
    html! { bdi { (readable(text)) } (warning(text)) }
}

/// A text of others with its lines.
pub(super) fn foreign_block(text: &str) -> Markup {
    html! { pre.foreign dir="auto" { (readable(text)) } (warning(text)) }
}

/// A text that a person decides about, within a line: runs of blanks are escaped too.
pub(super) fn exact(text: &str) -> Markup {
    html! { bdi { (escaped(text)) } (mark(look_alike(text))) }
}

/// A text that a person decides about, with its lines.
pub(super) fn exact_block(text: &str) -> Markup {
    html! { pre.foreign dir="auto" { (escaped(text)) } (mark(look_alike(text))) }
}

/// The mark of a text with a word that resembles another.
fn warning(text: &str) -> Markup {
    // The sign of a text that was cut is not the text's.
    let text = text.trim_end_matches('…');
    let is_searched = !text.is_ascii() && text.len() <= SEARCHED;
    mark(is_searched.then(|| look_alike(text)).flatten())
}

fn mark(found: Option<(String, String)>) -> Markup {
    html! {
        @if let Some((word, seen)) = found {
            " " span.alike {
                "look-alike: " bdi { (readable(&word)) } " resembles " bdi { (readable(&seen)) }
            }
        }
    }
}

/// A message of the server as a sentence: programs get it with a small letter and without a period.
pub(super) fn sentence(message: &str) -> String {
    let mut letters = message.chars();
    let first = letters.next().map(|letter| letter.to_uppercase().to_string());
    let end = if message.ends_with(['.', '?', '!']) { "" } else { "." };
    first.map(|first| format!("{first}{}{end}", letters.as_str())).unwrap_or_default()
}

/// The time of something, as its age; the date appears on hovering.
pub(super) fn age(at: Millis, now: Millis) -> Markup {
    let date = moment(at);
    let machine = date.replace(' ', "T");
    html! { time datetime={ (machine) "Z" } title={ (date) " UTC" } { (ago(at, now)) } }
}

/// A word with the color of its tone.
pub(super) fn badge(tone: Tone, word: &str) -> Markup {
    html! { span class={ "badge " (tone_class(tone)) } { (word) } }
}

/// The first line of a run's message.
pub(super) fn first_line(text: &str) -> &str {
    text.trim().lines().next().unwrap_or("(no message)")
}

/// The state of a run. What waits for a person is more than running.
pub(super) fn state(run: &RunRow, is_waiting: bool) -> Markup {
    let (tone, word) = match is_waiting && !matches!(run.state, RunState::Ended(_)) {
        true => (Tone::Odd, "waits for a person".to_owned()),
        false => run.state.in_words(&run.command),
    };
    badge(tone, &word)
}

/// The class with the color of a tone.
pub(super) fn tone_class(tone: Tone) -> &'static str {
    match tone {
        Tone::Plain => "t-plain",
        Tone::Faint => "t-faint",
        Tone::Name => "t-name",
        Tone::Good => "t-good",
        Tone::Odd => "t-odd",
        Tone::Bad => "t-bad",
    }
}

/// The address of a page with a query, whose empty values are left out.
pub(super) fn address<'a>(
    path: &str,
    query: impl IntoIterator<Item = (&'a str, Option<&'a str>)>,
) -> String {
    let mut pairs = url::form_urlencoded::Serializer::new(String::new());
    for (name, value) in query {
        value.filter(|value| !value.is_empty()).inspect(|value| {
            pairs.append_pair(name, value);
        });
    }
    let query = pairs.finish();
    if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") }
}

/// The path of a run's page.
pub(super) fn run_path(run: &str) -> String {
    format!("/runs/{}", path_part(run))
}

/// A name as one part of a path.
pub(super) fn path_part(name: &str) -> String {
    let query: String = url::form_urlencoded::byte_serialize(name.as_bytes()).collect();
    // A plus is a blank in a query alone. That of a name is escaped already.
    query.replace('+', "%20")
}

/// A text of an agent with its Markdown. Each word is shown as in [`foreign_block`].
pub(super) fn markdown(text: &str) -> Markup {
    html! { div.markdown dir="auto" { (blocks(&markdown::blocks(text))) } (warning(text)) }
}

fn blocks(all: &[Block]) -> Markup {
    html! {
        @for block in all {
            @match block {
                Block::Paragraph { inlines: parts } => p { (inlines(parts)) },
                // The headings of a page are its own.
                Block::Heading { inlines: parts, .. } => p.heading { (inlines(parts)) },
                Block::List { items } => ul {
                    @for item in items {
                        li class={ "m" (item.depth) } {
                            span.mark { (item.mark) } span { (inlines(&item.inlines)) }
                        }
                    }
                },
                Block::Quote { blocks: quoted } => blockquote { (blocks(quoted)) },
                Block::Code { text } => pre { code { (readable(text)) } },
                Block::Rule => hr;,
            }
        }
    }
}

fn inlines(all: &[Inline]) -> Markup {
    html! {
        @for part in all {
            @match part {
                Inline::Text { text } => (readable(text)),
                Inline::Code { text } => code { (readable(text)) },
                Inline::Strong { inlines: parts } => strong { (inlines(parts)) },
                Inline::Emphasis { inlines: parts } => em { (inlines(parts)) },
                Inline::Link { url } => a href=(url) rel=(LINK) { (url) },
                Inline::Break => br;,
            }
        }
    }
}
