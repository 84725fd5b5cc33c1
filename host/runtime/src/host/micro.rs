//! The files of micro-agents and knowledge that a config names, read when the config is loaded.
//! Their meaning belongs to the core.

use std::fs::File;
use std::io::{self, Read};

use conclave_core::config::micro::LARGEST_FILE;
use conclave_core::config::{Config, ConfigPath, ProblemCode, Problems};

/// Returns the config with the content of those files; `None` if it names none.
pub(super) fn read(config: &Config, problems: &mut Problems) -> Option<Config> {
    let micro: Vec<_> =
        config.micro_files().map(|(task, file)| (task.clone(), file.clone())).collect();
    let knowledge: Vec<_> = config
        .knowledge_files()
        .map(|(task, index, file)| (task.clone(), index, file.clone()))
        .collect();
    if micro.is_empty() && knowledge.is_empty() {
        return None;
    }
    let mut resolved = config.clone();
    for (task, file) in micro {
        let read = |text: &str| resolved.take_micro(&task, text);
        take(config, &file, &format!("tasks.{task}.prompt_agent"), read, problems);
    }
    for (task, index, file) in knowledge {
        let read = |text: &str| resolved.take_knowledge(&task, index, text);
        take(config, &file, &format!("tasks.{task}.knowledge[{index}]"), read, problems);
    }
    Some(resolved)
}

/// Reads one file; `key` is its place in the config.
fn take(
    config: &Config,
    file: &ConfigPath,
    key: &str,
    read: impl FnOnce(&str) -> Result<Problems, Problems>,
    problems: &mut Problems,
) {
    match text_of(file) {
        Ok(text) => match read(&text) {
            Ok(found) | Err(found) => problems.0.extend(found.0),
        },
        Err(error) => {
            let what = format!("`{}` could not be read: {error}", file.display_path);
            let name = if key.ends_with(']') { "the entry" } else { "`prompt_agent`" };
            let help = format!("write the path from the config's folder, or leave {name} out");
            problems.push(config.problem(ProblemCode::UnreadableFile, key, what).help(help));
        }
    }
}

/// Returns at most one byte more than the limit, so that the core reports the excess. The limit
/// also stops at a device without an end.
fn text_of(file: &ConfigPath) -> io::Result<String> {
    let opened = File::open(&file.path)?;
    if opened.metadata()?.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    let mut text = String::new();
    opened.take(LARGEST_FILE as u64 + 1).read_to_string(&mut text)?;
    Ok(text)
}
