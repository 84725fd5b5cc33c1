//! `conclave plugin new NAME --kind KIND`: writes the crate of a plugin that builds, passes its
//! tests and runs as it is. It needs no network and no repository: the SDK and the contract are in
//! this program.

mod kinds;

use std::path::{Path, PathBuf};

use conclave_core::config::check_name;
use conclave_core::types::wording::quoted;
use serde_json::json;

use crate::args::{Language, NewPlugin, OutputArgs};
use crate::program::error::CliError;
use crate::program::exit;
use crate::program::shell::shell;
use crate::state::config_file::create;
use crate::state::sdk;
use crate::state::toolchain::SDK;
use crate::ui::show::{FAINT, GOOD, paint, plural, show_path, unwritten};
use crate::ui::{stderr, stdout};

/// Names that collide with the SDK's crates, or with a plugin of the new config.
const RESERVED: [&str; 5] =
    ["conclave-sdk", "conclave-sdk-macros", "conclave-manifest", "conclave-trajectory", "chat"];

pub(crate) fn new(args: &NewPlugin, output: OutputArgs) -> Result<u8, CliError> {
    let folder = args.folder.clone().unwrap_or_else(|| PathBuf::from(&args.name));
    check_name(&args.name).map_err(|why| {
        CliError::usage(format!("{} cannot be the name of a plugin: {why}", shell(&args.name)))
            .hint("use lower-case letters, digits, `-` and `_`, with a letter first")
    })?;
    if RESERVED.contains(&args.name.as_str()) {
        let what = format!("{} is the name of a crate or plugin that the new one uses", args.name);
        return Err(CliError::usage(what).hint("choose another name"));
    }
    let is_empty = std::fs::read_dir(&folder).map_or(true, |mut entries| entries.next().is_none());
    if !is_empty || folder.is_file() {
        let what = format!("{} already exists, and is not empty", show_path(&folder));
        return Err(CliError::usage(what).hint("name another folder with --folder"));
    }
    let own = args.sdk.as_deref().map(|path| path_of_sdk(path, args.lang)).transpose()?;
    let path = match &own {
        Some(path) => path.display().to_string(),
        None => format!("{SDK}/{}", args.lang.sdk()),
    };
    // In JSON and TOML the path stands within a string already.
    let dependency = if args.lang == Language::Rust { quoted(&path) } else { path };
    let exclude = if own.is_none() { format!("exclude = [\"{SDK}\"]") } else { String::new() };
    let mut files = kinds::files(args.kind, args.lang, &args.name, &dependency, &exclude);
    if own.is_none() {
        files.extend(
            sdk::files(args.lang).map(|(name, text)| (format!("{SDK}/{name}"), text.to_owned())),
        );
    }
    let was_there = folder.is_dir();
    if let Err(error) = write_all(&folder, &files) {
        // Only what this command made: the folder was empty, or not there.
        let made = if was_there { entries(&folder) } else { vec![folder.clone()] };
        for path in made {
            let removed = match path.is_dir() {
                true => std::fs::remove_dir_all(&path),
                false => std::fs::remove_file(&path),
            };
            // The failure that led here is the one to report.
            let _ = removed;
        }
        return Err(error);
    }
    let is_crate = args.lang == Language::Rust;
    if let Some(workspace) = outer_workspace(&folder).filter(|_| is_crate && !output.quiet) {
        stderr::warning(format_args!(
            "{} takes every folder as a member, and this crate is a workspace of its own: write `exclude = [{}]` under [workspace] there",
            show_path(&workspace),
            quoted(&folder.file_name().unwrap_or_default().to_string_lossy())
        ));
    }
    tell(&folder, args, files.len(), output)
}

/// Returns the absolute path of the SDK for a language, in a checkout of the repository or on its
/// own.
fn path_of_sdk(path: &Path, language: Language) -> Result<PathBuf, CliError> {
    let candidates = [path.join(language.sdk()), path.to_owned()];
    let name = if language == Language::Js { "@conclave/sdk" } else { "conclave-sdk" };
    let is_sdk = |path: &&PathBuf| {
        std::fs::read_to_string(path.join(language.project_file()))
            .is_ok_and(|text| text.contains(&format!("\"{name}\"")))
    };
    let found = candidates.iter().find(is_sdk).and_then(|path| path.canonicalize().ok());
    found.ok_or_else(|| {
        CliError::usage(format!("{} is not the SDK", show_path(path)))
            .hint("name a checkout of Conclave, or the folder of its SDK; without --sdk, the SDK of this program is written beside the plugin")
    })
}

fn write_all(folder: &Path, files: &[(String, String)]) -> Result<(), CliError> {
    files.iter().try_for_each(|(name, text)| write(&folder.join(name), text))
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

/// The manifest of an enclosing workspace whose members are named by a pattern, so that cargo takes
/// the new crate for one of them.
fn outer_workspace(folder: &Path) -> Option<PathBuf> {
    let canonical_path = folder.canonicalize().ok()?;
    canonical_path.ancestors().skip(1).map(|above| above.join("Cargo.toml")).find(|file| {
        let Ok(text) = std::fs::read_to_string(file) else { return false };
        let members = text.split_once("[workspace]").and_then(|(_, rest)| {
            let (_, rest) = rest.split_once("members")?;
            rest.split_once(']').map(|(members, _)| members)
        });
        members.is_some_and(|members| members.contains('*'))
    })
}

fn write(path: &Path, text: &str) -> Result<(), CliError> {
    let failed = |error: std::io::Error| unwritten(path, &error);
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent).map_err(failed)?;
    }
    create(path, text, false).map_err(failed)
}

fn tell(folder: &Path, args: &NewPlugin, count: usize, output: OutputArgs) -> Result<u8, CliError> {
    let folder_argument = shell(&folder.display().to_string());
    let next = [
        format!("cd {folder_argument}"),
        "conclave plugin build".to_owned(),
        kinds::test_command(args.kind).to_owned(),
        format!("conclave run {}", shell(kinds::message(args.kind))),
    ];
    if output.json {
        stdout::json(json!({
            "type": "plugin",
            "folder": folder.display().to_string(),
            "kind": args.kind.as_str(),
            "lang": args.lang.as_str(),
            "next": next,
        }))?;
    } else if !output.quiet {
        stderr::line(format_args!(
            "{} {}: a plugin of kind {}, {}",
            paint(GOOD, "wrote"),
            show_path(folder),
            args.kind.as_str(),
            plural(count as u64, "file", "files")
        ));
        let code = match args.lang {
            Language::Rust => ("src/lib.rs", "the plugin, with a native test (cargo test)"),
            Language::Python => ("app.py", "the plugin; test_app.py tests it natively (pytest)"),
            Language::Js => {
                ("app.js", "the plugin; app.test.js tests it natively (npm install && npm test)")
            }
        };
        for (file, what) in [
            code,
            ("conclave-plugin.toml", "what it is, and what it asks for"),
            ("cases.json", "what is played to the component, with what must come of it"),
            ("conclave.toml", "a config that uses it, with replies from a file"),
        ] {
            stderr::line(format_args!("  {file:<22}{}", paint(FAINT, what)));
        }
        stderr::line(format_args!("\n{}", paint(FAINT, "next")));
        next.iter().try_for_each(|command| stdout::line(format_args!("  {command}")))?;
    }
    Ok(exit::OK)
}
