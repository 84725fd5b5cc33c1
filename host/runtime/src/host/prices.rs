//! The price file that a config names, read when the config is loaded. Its meaning belongs to the
//! core.

use std::fs;

use conclave_core::config::{Config, ProblemCode, Problems};

/// The maximum size of a price file in bytes.
const FILE_BYTES: u64 = 4 << 20;

/// Returns the config with its prices; `None` if it names no price file or an invalid one.
pub(super) fn read(config: &Config, problems: &mut Problems) -> Option<Config> {
    let file = config.prices.as_ref()?;
    let text = fs::metadata(&file.path).and_then(|found| {
        if found.len() > FILE_BYTES { Err(too_large()) } else { fs::read_to_string(&file.path) }
    });
    match text {
        Ok(text) => match config.priced(&text) {
            Ok((priced, warnings)) => {
                problems.0.extend(warnings.0);
                return Some(priced);
            }
            Err(found) => problems.0.extend(found.0),
        },
        Err(error) => {
            let what = format!("`{}` could not be read: {error}", file.display_path);
            let help = "write the path from the config's folder, or leave `prices` out";
            problems.push(config.problem(ProblemCode::UnreadableFile, "prices", what).help(help));
        }
    }
    None
}

fn too_large() -> std::io::Error {
    std::io::Error::new(std::io::ErrorKind::FileTooLarge, "it is larger than 4 MiB")
}
