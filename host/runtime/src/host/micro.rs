//! The files of micro-agents that a config names, read when the config is used. What they mean is the core's.

use std::fs::File;
use std::io::{self, Read};

use conclave_core::config::micro::LARGEST_FILE;
use conclave_core::config::{Config, ConfigPath, Problems};

/// The config with what those files say; none when it names none.
pub(super) fn read(config: &Config, problems: &mut Problems) -> Option<Config> {
    let files: Vec<_> = config.micro_files().map(|(task, file)| (task.clone(), file.clone())).collect();
    if files.is_empty() {
        return None;
    }
    let mut config = config.clone();
    for (task, file) in files {
        match text_of(&file) {
            Ok(text) => match config.take_micro(&task, &text) {
                Ok(found) | Err(found) => problems.0.extend(found.0),
            },
            Err(error) => {
                let what = format!("`{}` could not be read: {error}", file.shown);
                let problem = config.problem(&format!("tasks.{task}.micro"), what);
                problems.push(problem.help("write the path from the config's folder, or leave `micro` out"));
            }
        }
    }
    Some(config)
}

/// One byte more than a file may have, so that the core says what is wrong with it; a device without an end ends too.
fn text_of(file: &ConfigPath) -> io::Result<String> {
    let opened = File::open(&file.path)?;
    if opened.metadata()?.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    let mut text = String::new();
    opened.take(LARGEST_FILE as u64 + 1).read_to_string(&mut text)?;
    Ok(text)
}
