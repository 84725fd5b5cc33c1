//! `conclave init [FILE]`: writes a commented config that runs at once, and the schema with which
//! editors check it.

mod folder;
mod template;

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use conclave_core::config::{Config, schema};
use serde_json::json;

use crate::args::{Init, OutputArgs};
use crate::program::error::CliError;
use crate::program::exit;
use crate::program::shell::shell;
use crate::state::config_file::create;
use crate::ui::show::{FAINT, GOOD, ODD, paint, show_path, unwritten};
use crate::ui::{stderr, stdout};

use folder::ProjectFolder;
use template::{Model, replies, script, text};

pub(crate) fn init(args: &Init, output: OutputArgs) -> Result<u8, CliError> {
    let file =
        if args.file.is_dir() { args.file.join(crate::args::CONFIG) } else { args.file.clone() };
    let beside = file.parent().map_or_else(PathBuf::new, Path::to_owned);
    if !beside.as_os_str().is_empty() && !beside.is_dir() {
        return Err(CliError::usage(format!("the folder {} does not exist", show_path(beside)))
            .hint("create it, or name a file elsewhere"));
    }
    let model = args.model.as_deref().map(Model::parse).transpose()?;
    if file.exists() && !args.force {
        let what = format!("{} already exists", show_path(&file));
        return Err(CliError::usage(what).hint("name another file, or overwrite it with --force"));
    }
    let folder = ProjectFolder::choose(&beside, args.folder.as_deref(), args.yes)?;
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let text = text(&name, &folder, model.as_ref());
    // Before anything is written, so that values that do not fit leave no files behind.
    let config = Config::parse(&show_path(&file), &beside.to_string_lossy(), &text);
    config.map_err(|problems| {
        CliError::usage(format!("{}\n\n{problems}", "these values make the config invalid"))
    })?;
    let script = beside.join(script(&name));
    let replies = model.is_none().then(|| replies(&folder));
    // The same script is left from an attempt that failed behind it, and is no obstacle.
    let new_replies =
        replies.filter(|replies| std::fs::read_to_string(&script).ok().as_deref() != Some(replies));
    if new_replies.is_some() && script.exists() && !args.force {
        let what = format!("{} already exists", show_path(&script));
        return Err(CliError::usage(what).hint("move it elsewhere, or overwrite it with --force"));
    }
    write_schema(&beside.join(schema::FILE))?;
    if let Some(replies) = new_replies {
        create(&script, &replies, args.force).map_err(|error| unwritten(&script, &error))?;
    }
    folder.make().map_err(|error| unwritten(&folder.path, &error))?;
    // Last: while it is missing, the same command can be repeated without --force.
    create(&file, &text, args.force).map_err(|error| unwritten(&file, &error))?;
    let answerer = model.as_ref().map_or(Answerer::Script(&script), Answerer::Model);
    tell(&file, &folder, &answerer, output)
}

/// Writes the schema. A schema of another version of this program is replaced; any other file is
/// left alone.
fn write_schema(path: &Path) -> Result<(), CliError> {
    let schema = schema::json_schema();
    let text = format!("{schema:#}\n");
    let failed = |error: std::io::Error| unwritten(path, &error);
    match create(path, &text, false) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            let old = std::fs::read_to_string(path).unwrap_or_default();
            let is_ours = serde_json::from_str::<serde_json::Value>(&old)
                .is_ok_and(|old| old["title"] == schema["title"]);
            if !is_ours {
                let what = format!(
                    "{} already exists, and is not a schema of this program",
                    show_path(path)
                );
                return Err(CliError::usage(what).hint("move it elsewhere; nothing was written"));
            }
            create(path, &text, true).map_err(failed)
        }
        written => written.map_err(failed),
    }
}

/// What answers in the new config.
enum Answerer<'a> {
    Model(&'a Model),
    /// The file of the replies.
    Script(&'a Path),
}

fn tell(
    file: &Path,
    folder: &ProjectFolder,
    answerer: &Answerer<'_>,
    output: OutputArgs,
) -> Result<u8, CliError> {
    let file_argument = shell(&file.display().to_string());
    let next = match answerer {
        Answerer::Model(_) => format!("conclave chat {file_argument}"),
        Answerer::Script(_) => format!("conclave run {file_argument} {:?}", folder.question()),
    };
    if output.json {
        stdout::json(json!({
            "type": "config",
            "file": file.display().to_string(),
            "changed": true,
            "granted": { "files": folder.path.display().to_string() },
            "replies": match answerer {
                Answerer::Model(_) => None,
                Answerer::Script(script) => Some(script.display().to_string()),
            },
            "next": next,
        }))?;
    } else if !output.quiet {
        let new = if folder.is_new { ", a new folder with one page" } else { "" };
        stderr::line(format_args!("{} {}", paint(GOOD, "wrote"), show_path(file)));
        stderr::line(format_args!(
            "  search may read {}/{new}; no other plugin may access files",
            show_path(&folder.path)
        ));
        match answerer {
            Answerer::Model(model) => {
                stderr::line(format_args!(
                    "  chat may use {} at {}: {}",
                    model.name,
                    model.url,
                    paint(ODD, "everything that it reads is sent there")
                ));
            }
            Answerer::Script(script) => {
                stderr::line(format_args!(
                    "  a script, {}, stands for a model; no key, no network: no data can leave",
                    show_path(script)
                ));
            }
        }
        stderr::line(format_args!("\n{}", paint(FAINT, "next")));
        stdout::line(format_args!("  {next}\n  conclave check {file_argument}"))?;
    }
    Ok(exit::OK)
}
