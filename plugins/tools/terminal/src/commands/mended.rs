//! Commands of the library with a gap that agents meet. Each handles the gap, and leaves the rest
//! to the library.

use std::path::{Path, PathBuf};

use bashkit::{Builtin, BuiltinContext, ExecResult, FileSystem, async_trait, vfs_join};
use regex::Regex;

use super::library;

/// `date`, with an absolute date followed by an interval: `-d "2024-02-28 +2 days"`.
pub(super) struct Date;

#[async_trait]
impl Builtin for Date {
    async fn execute(&self, context: BuiltinContext<'_>) -> bashkit::Result<ExecResult> {
        let mut args = context.args.to_vec();
        let text = args.iter_mut().enumerate().find_map(|(index, arg)| match arg.as_str() {
            "-d" | "--date" => Some((index + 1, "")),
            _ if arg.starts_with("--date=") => Some((index, "--date=")),
            _ => None,
        });
        if let Some((index, prefix)) = text
            && let Some(date) = args.get(index).and_then(|arg| arg.strip_prefix(prefix))
            && let Some((base, seconds)) = split_interval(date)
        {
            let asked = ["-d".to_owned(), base.to_owned(), "+%s".to_owned()];
            let epoch = library(&context, "date", &asked).await?;
            if let Ok(epoch) = epoch.stdout.text_lossy().trim().parse::<i64>() {
                args[index] = format!("{prefix}@{}", epoch.saturating_add(seconds));
            }
        }
        library(&context, "date", &args).await
    }
}

/// Splits `2024-02-28 +2 days` into the date and the seconds. `None` without a date in front, or for
/// months and years, whose length differs.
fn split_interval(text: &str) -> Option<(&str, i64)> {
    let (is_past, text) = match text.strip_suffix(" ago") {
        Some(text) => (true, text),
        None => (false, text),
    };
    let (rest, unit) = text.trim_end().rsplit_once(' ')?;
    let seconds = match unit.strip_suffix('s').unwrap_or(unit) {
        "sec" | "second" => 1,
        "min" | "minute" => 60,
        "hour" => 3_600,
        "day" => 86_400,
        "week" => 604_800,
        _ => return None,
    };
    let (base, number) = rest.trim_end().rsplit_once(' ')?;
    let base = base.trim_end();
    if !base.starts_with(|letter: char| letter.is_ascii_digit() || letter == '@') {
        return None;
    }
    let number: i64 = number.parse().ok()?;
    number.checked_mul(if is_past { -seconds } else { seconds }).map(|seconds| (base, seconds))
}

/// `expr STRING : PATTERN`, with the basic regular expressions of POSIX.
pub(super) struct Expr;

#[async_trait]
impl Builtin for Expr {
    async fn execute(&self, context: BuiltinContext<'_>) -> bashkit::Result<ExecResult> {
        let (text, pattern) = match context.args {
            [text, operator, pattern] if operator == ":" => (text, pattern),
            [operator, text, pattern] if operator == "match" => (text, pattern),
            _ => return library(&context, "expr", context.args).await,
        };
        let Ok(regex) = Regex::new(&format!("^(?:{})", extended(pattern))) else {
            return Ok(ExecResult::err("expr: invalid regular expression\n", 2));
        };
        let captures = regex.captures(text);
        let found = match &captures {
            Some(captures) if captures.len() > 1 => {
                captures.get(1).map_or("", |group| group.as_str()).to_owned()
            }
            Some(captures) => captures[0].chars().count().to_string(),
            None if regex.captures_len() > 1 => String::new(),
            None => "0".to_owned(),
        };
        let code = i32::from(found.is_empty() || found == "0");
        Ok(ExecResult::with_code(found + "\n", code))
    }
}

/// Converts a basic regular expression: there `\(` is a group and `(` a letter.
fn extended(basic: &str) -> String {
    let mut out = String::new();
    let mut letters = basic.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => match letters.next() {
                Some(escaped @ ('(' | ')' | '{' | '}' | '|' | '+' | '?')) => out.push(escaped),
                Some(escaped) => out.extend(['\\', escaped]),
                None => out.push_str(r"\\"),
            },
            '(' | ')' | '{' | '}' | '|' | '+' | '?' => out.extend(['\\', letter]),
            _ => out.push(letter),
        }
    }
    out
}

/// `tee`, which reports a file that it cannot write and continues; the library's ends the script.
pub(super) struct Tee;

#[async_trait]
impl Builtin for Tee {
    async fn execute(&self, context: BuiltinContext<'_>) -> bashkit::Result<ExecResult> {
        let (mut appends, mut files) = (false, Vec::new());
        for arg in context.args {
            match arg.as_str() {
                "-a" | "--append" | "-ai" | "-ia" => appends = true,
                "-i" | "--ignore-interrupts" | "-p" | "--" => {}
                option if option.starts_with('-') && option.len() > 1 => {
                    return library(&context, "tee", context.args).await;
                }
                file => files.push(file),
            }
        }
        let input = context.stdin.map(|input| input.as_bytes()).unwrap_or_default();
        let mut result = ExecResult::ok_bytes(input.to_vec());
        let mut errors = String::new();
        for file in files {
            let path = vfs_join(context.cwd, file);
            let written = if appends {
                context.fs.append_file(&path, input).await
            } else {
                context.fs.write_file(&path, input).await
            };
            if let Err(error) = written {
                errors += &format!("tee: {file}: {}\n", reason(&error));
                result.exit_code = 1;
            }
        }
        result.stderr = errors.into();
        Ok(result)
    }
}

/// Returns the words of Linux for an error of the library's file systems.
pub(super) fn reason(error: &bashkit::Error) -> String {
    let bashkit::Error::Io(error) = error else { return error.to_string() };
    match error.kind() {
        std::io::ErrorKind::NotFound => "No such file or directory".to_owned(),
        std::io::ErrorKind::PermissionDenied => "Permission denied".to_owned(),
        std::io::ErrorKind::IsADirectory => "Is a directory".to_owned(),
        std::io::ErrorKind::NotADirectory => "Not a directory".to_owned(),
        _ => match error.to_string().as_str() {
            "parent directory not found" => "No such file or directory".to_owned(),
            "is a directory" => "Is a directory".to_owned(),
            other => other.to_owned(),
        },
    }
}

/// `zcat`.
pub(super) struct Zcat;

#[async_trait]
impl Builtin for Zcat {
    async fn execute(&self, context: BuiltinContext<'_>) -> bashkit::Result<ExecResult> {
        let args: Vec<String> =
            ["-d", "-c"].into_iter().map(str::to_owned).chain(context.args.to_vec()).collect();
        library(&context, "gzip", &args).await
    }
}

/// `unzip`, with `-q`.
pub(super) struct Unzip;

#[async_trait]
impl Builtin for Unzip {
    async fn execute(&self, context: BuiltinContext<'_>) -> bashkit::Result<ExecResult> {
        let (args, is_quiet) = without(context.args, 'q');
        let mut result = library(&context, "unzip", &args).await?;
        if is_quiet {
            result.stdout = "".into();
        }
        Ok(result)
    }
}

/// `zip`, with `-q` and `-r`.
pub(super) struct Zip;

#[async_trait]
impl Builtin for Zip {
    async fn execute(&self, context: BuiltinContext<'_>) -> bashkit::Result<ExecResult> {
        let (args, is_quiet) = without(context.args, 'q');
        let (args, is_recursive) = without(&args, 'r');
        let mut files = Vec::new();
        for arg in args {
            let path = vfs_join(context.cwd, &arg);
            let is_directory =
                context.fs.stat(&path).await.is_ok_and(|found| found.file_type.is_dir());
            if is_recursive && is_directory {
                let below = files_below(&*context.fs, &path).await?;
                let name = |file: &PathBuf| {
                    let rest = file.strip_prefix(&path).ok()?.to_str()?;
                    Some(format!("{}/{rest}", arg.trim_end_matches('/')))
                };
                files.extend(below.iter().filter_map(name));
            } else {
                files.push(arg);
            }
        }
        let mut result = library(&context, "zip", &files).await?;
        if is_quiet {
            result.stdout = "".into();
        }
        Ok(result)
    }
}

/// Returns the files below a directory, in the order of their paths.
async fn files_below(fs: &dyn FileSystem, directory: &Path) -> bashkit::Result<Vec<PathBuf>> {
    let (mut files, mut directories) = (Vec::new(), vec![directory.to_owned()]);
    while let Some(directory) = directories.pop() {
        for entry in fs.read_dir(&directory).await? {
            let path = vfs_join(&directory, &entry.name);
            if entry.metadata.file_type.is_dir() {
                directories.push(path);
            } else {
                files.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}

/// Returns the arguments without an option, alone or in a cluster, and whether it was there.
fn without(args: &[String], option: char) -> (Vec<String>, bool) {
    let mut is_there = false;
    let mut kept = Vec::new();
    for arg in args {
        let is_cluster = arg.len() > 1
            && arg.starts_with('-')
            && arg[1..].chars().all(|letter| letter.is_ascii_alphanumeric());
        if !is_cluster || !arg.contains(option) {
            kept.push(arg.clone());
            continue;
        }
        is_there = true;
        let rest: String = arg.chars().filter(|letter| *letter != option).collect();
        kept.extend((rest.len() > 1).then_some(rest));
    }
    (kept, is_there)
}
