//! Texts and amounts in pages. Texts of others are shown by the core's rules: what a reader could
//! miss is escaped, and a word that resembles another is marked.

use conclave_core::inspect::amounts::{ago, moment};
use conclave_core::inspect::foreign_text::{escaped, look_alike, readable};
use conclave_core::inspect::telling::Tone;
use conclave_core::types::ids::Millis;
use maud::{Markup, html};

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
