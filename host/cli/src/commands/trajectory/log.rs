//! Reads a log from a file, from stdin, or from a folder with a file for each event.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use conclave_core::trajectory::{Era, Loaded, LogProblem, TrajectoryEvent, load, translate};

use crate::program::error::CliError;
use crate::ui::show::{ODD, one_line, paint, plural, show_path, unread};
use crate::ui::stderr;

/// Characters of a problem's reason that are shown.
const REASON: usize = 400;

/// Reads the log with that name.
///
/// # Errors
/// If no log there can be read at all.
pub(super) fn read(file: &Path) -> Result<Loaded, CliError> {
    let failed = |error: &std::io::Error| unread(file, error);
    if file.as_os_str() == "-" {
        let mut bytes = Vec::new();
        std::io::stdin()
            .read_to_end(&mut bytes)
            .map_err(|error| CliError::usage(format!("stdin could not be read: {error}")))?;
        return Ok(load(&String::from_utf8_lossy(&bytes)));
    }
    if !file.is_dir() {
        let bytes = fs::read(file).map_err(|error| failed(&error))?;
        return Ok(load(&String::from_utf8_lossy(&bytes)));
    }
    // The folder of a whole conversation has its events in a subfolder.
    let below = file.join("events");
    let folder = if below.is_dir() { below } else { file.to_owned() };
    let names = files(&folder).map_err(|error| failed(&error))?;
    if names.is_empty() {
        let what = format!(
            "{} contains no events: no file in it is named like an event of a log",
            show_path(folder)
        );
        return Err(CliError::usage(what)
            .hint("files of events are named 0.json or event-00000-5f0a….json"));
    }
    let mut all = Loaded::default();
    let mut votes = [0_usize; 2];
    let mut own = Vec::new();
    for path in names {
        let name =
            path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let loaded = match fs::read(&path) {
            Ok(bytes) => load(&String::from_utf8_lossy(&bytes)),
            // The other events are shown regardless.
            Err(error) => {
                all.problems.push(LogProblem {
                    at: name,
                    text: format!("It could not be read: {error}."),
                    raw: None,
                });
                continue;
            }
        };
        votes[0] += usize::from(loaded.era == Some(Era::V2024));
        votes[1] += usize::from(loaded.era == Some(Era::V2025));
        own.extend(own_events(&loaded).iter().cloned());
        all.sdk.extend(loaded.sdk);
        all.problems.extend(
            loaded
                .problems
                .into_iter()
                .map(|problem| LogProblem { at: format!("{name}, {}", problem.at), ..problem }),
        );
    }
    // Translated together, because an event's result may be in another file.
    own.extend(translate(&all.sdk));
    all.events = own;
    // The era of most files: a single odd one must not decide for the log.
    all.era = match votes[0].cmp(&votes[1]) {
        std::cmp::Ordering::Greater => Some(Era::V2024),
        std::cmp::Ordering::Less => Some(Era::V2025),
        std::cmp::Ordering::Equal => None,
    };
    Ok(all)
}

/// The log's own events, without the translated events of the SDK behind them.
pub(super) fn own_events(loaded: &Loaded) -> &[TrajectoryEvent] {
    let translated = translate(&loaded.sdk).len();
    &loaded.events[..loaded.events.len().saturating_sub(translated)]
}

/// Returns the files of single events, sorted by number.
fn files(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut files: Vec<(u64, PathBuf)> = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let number = path.file_name().and_then(|name| name.to_str()).and_then(number);
        files.extend(number.map(|number| (number, path)));
    }
    // As numbers: by their names, 10 would come before 2.
    files.sort();
    Ok(files.into_iter().map(|(_, path)| path).collect())
}

/// The number in `12.json` or `event-00012-5f0a91c0.json`.
fn number(name: &str) -> Option<u64> {
    let stem = name.strip_suffix(".json")?;
    let digits = stem.strip_prefix("event-").unwrap_or(stem).split('-').next()?;
    digits.parse().ok()
}

/// Prints the actions without an answer: they were in progress when the log ended, or their answers
/// were lost.
pub(super) fn report_unanswered(numbers: &[i64]) {
    if !numbers.is_empty() {
        let actions = plural(numbers.len() as u64, "action has", "actions have");
        let list = numbers.iter().map(i64::to_string).collect::<Vec<_>>().join(", ");
        stderr::line(format_args!("{} {actions} no answer: {list}", paint(ODD, "unanswered:")));
    }
}

/// Reports on stderr which events could not be read, and where.
pub(super) fn tell(problems: &[LogProblem]) {
    for problem in problems {
        stderr::line(format_args!(
            "{} {}: {}",
            paint(ODD, "unreadable:"),
            one_line(&problem.at, 80),
            one_line(&problem.text, REASON)
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_read_in_the_order_of_its_numbers() {
        let temp = tempfile::tempdir().unwrap();
        let events = temp.path().join("events");
        fs::create_dir(&events).unwrap();
        let event =
            |text: &str| format!(r#"{{"action": "message", "args": {{"content": "{text}"}}}}"#);
        for (name, text) in [
            ("10.json", event("ten")),
            ("2.json", event("two")),
            ("base.json", "{}".to_owned()),
            ("3.json", "{oops".to_owned()),
        ] {
            fs::write(events.join(name), text).unwrap();
        }
        for folder in [temp.path(), &events] {
            let loaded = read(folder).unwrap();
            let messages: Vec<String> =
                loaded.events.iter().map(|event| event.message(Era::V2025)).collect();
            assert_eq!(messages, ["two", "ten"]);
            assert_eq!(loaded.problems.len(), 1);
            assert!(loaded.problems[0].at.starts_with("3.json, "), "{:?}", loaded.problems);
        }
    }

    #[test]
    fn a_missing_or_empty_log_is_an_error() {
        let temp = tempfile::tempdir().unwrap();
        assert!(read(temp.path()).unwrap_err().to_string().contains("contains no events"));
        assert!(
            read(&temp.path().join("no.json"))
                .unwrap_err()
                .to_string()
                .contains("could not be read")
        );
    }

    #[test]
    fn names_of_events_have_numbers() {
        for (name, expected) in [
            ("0.json", Some(0)),
            ("event-00012-5f0a91c0.json", Some(12)),
            ("base_state.json", None),
            ("12.txt", None),
            ("event-x.json", None),
        ] {
            assert_eq!(number(name), expected, "{name}");
        }
    }
}
