//! The decisions of all layers on an access, one below the other. Each names the line of the config
//! that decides it; the last line names the command that would allow the access.

use std::path::Path;

use conclave_core::config::Config;
use conclave_core::config::edit::Fragment;
use conclave_core::inspect::explain::{Explanation, LayerAnswer, LayerVerdict};
use serde_json::{Value, json};

use super::{BAD, FAINT, GOOD, ODD, one_line, paint};
use crate::program::error::CliError;
use crate::program::shell::{file_option, shell};
use crate::ui::show::show_path;
use crate::ui::stdout;

/// The column of a layer's text.
const BEHIND_LAYER: usize = 13;
/// The label of the command that grants.
const TO_ALLOW: &str = "to allow it:";
/// Columns of a layer's text.
const WIDTH: usize = 240;

/// The config in which the layers are looked up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConfigLines<'a> {
    pub(crate) config: Option<&'a Config>,
    pub(crate) file: &'a Path,
}

impl ConfigLines<'_> {
    /// The place of a layer's decision: `conclave.toml:31`.
    fn place(&self, answer: &LayerAnswer) -> Option<String> {
        let (config, key) = (self.config?, answer.key.as_ref()?);
        Some(format!("{}:{}", show_path(self.file), config.locate(key).line))
    }

    /// The command for the smallest grant, or the remedy's own words if it is not a grant.
    fn command(&self, explanation: &Explanation) -> Option<String> {
        let line = explanation.suggestion.as_deref()?;
        let Ok(fragment) = Fragment::parse(line) else { return Some(line.to_owned()) };
        let file = file_option(self.file);
        Some(format!(
            "conclave grant {} {}{file}",
            explanation.plugin,
            shell(&fragment.to_string())
        ))
    }
}

/// Prints lines that [`lines`] returned.
///
/// # Errors
/// If stdout cannot be written.
pub(crate) fn print(lines: &[String]) -> Result<(), CliError> {
    lines.iter().try_for_each(|line| match line {
        line if line.starts_with("  ") => stdout::hanging(BEHIND_LAYER, line),
        line if is_command(line) => stdout::unbroken(line),
        line => stdout::styled(line),
    })
}

/// Whether a line proposes a command. It is known by its style, which no text of a plugin can have:
/// a target may well contain the words.
fn is_command(line: &str) -> bool {
    line.starts_with(&paint(FAINT, TO_ALLOW))
}

/// The lines for users; the first one names the access.
pub(crate) fn lines(explanation: &Explanation, about: &str, at: &ConfigLines<'_>) -> Vec<String> {
    let mut lines = vec![about.to_owned()];
    for answer in &explanation.layers {
        let (mark, style) = match answer.verdict {
            LayerVerdict::Yes => ("✓", GOOD),
            LayerVerdict::Ask => ("?", ODD),
            LayerVerdict::No => ("✗", BAD),
            LayerVerdict::NotReached => ("·", FAINT),
        };
        let place = at
            .place(answer)
            // A rule's text names its place.
            .filter(|place| !answer.text.contains(place.as_str()))
            .map(|place| format!("  {}", paint(FAINT, place)))
            .unwrap_or_default();
        lines.push(format!(
            "  {} {:<8} {}{place}",
            paint(style, mark),
            answer.layer.as_str(),
            one_line(&answer.text, WIDTH)
        ));
    }
    if let Some(command) = at.command(explanation) {
        lines.push(format!(
            "{} {}",
            paint(FAINT, TO_ALLOW),
            paint(GOOD, one_line(&command, 4_096))
        ));
    }
    if let Some(why) = &explanation.no_suggestion {
        lines.push(paint(FAINT, one_line(why, WIDTH)));
    }
    lines
}

/// The question with its answer: `notes may read /notes/a.md`.
pub(crate) fn sentence(explanation: &Explanation, verb: &str) -> String {
    let answer = match explanation.verdict {
        LayerVerdict::Yes => paint(GOOD, "may"),
        LayerVerdict::Ask => paint(ODD, "may, if you say so,"),
        LayerVerdict::No | LayerVerdict::NotReached => paint(BAD, "may not"),
    };
    let target = one_line(&explanation.target, WIDTH);
    // Without a target, the verb has no object: `keep values of its own under`.
    let verb = if target.is_empty() { verb.trim_end_matches(" under") } else { verb };
    let gap = if target.is_empty() { "" } else { " " };
    format!("{} {answer} {verb}{gap}{target}", explanation.plugin)
}

/// The `--json` object: the explanation with its places and its command.
pub(crate) fn as_json(explanation: &Explanation, at: &ConfigLines<'_>) -> Value {
    let mut value = json!(explanation);
    for (layer, answer) in
        value["layers"].as_array_mut().into_iter().flatten().zip(&explanation.layers)
    {
        layer["location"] = json!(at.place(answer));
    }
    value["denied_by"] = json!(explanation.denied_by());
    value["command"] = json!(at.command(explanation));
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_with_the_words_of_a_proposal_is_broken_like_any_text() {
        let command = format!("{} {}", paint(FAINT, TO_ALLOW), paint(GOOD, "conclave grant a"));
        assert!(is_command(&command));
        let target = format!("a was refused /{} conclave grant a 'files = [\"/root\"]'", TO_ALLOW);
        assert!(!is_command(&target) && !is_command(&format!("{TO_ALLOW} conclave grant a")));
    }
}
