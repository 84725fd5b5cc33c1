//! Commands of the library with a gap that agents meet. Each handles the gap, and leaves the rest
//! to the library.

use std::path::{Path, PathBuf};

use bashkit::{Builtin, BuiltinContext, ExecResult, FileSystem, async_trait, vfs_join};
use regex::Regex;

use super::library;

/// `date`, with an interval behind an absolute date, `-d "2024-02-28 +2 days"`, and with months and
/// years of the calendar, which the library takes for 30 and 365 days.
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
            && let Some((base, interval)) = split_interval(date)
            && let Some(epoch) = epoch_after(&context, base, interval).await?
        {
            args[index] = format!("{prefix}@{epoch}");
        }
        library(&context, "date", &args).await
    }
}

/// A signed interval of a date.
#[derive(Clone, Copy)]
enum Interval {
    Seconds(i64),
    Months(i64),
}

/// Returns the seconds since 1970 at an interval after a date. `None` if the library does not know
/// the date, or the result is out of range.
async fn epoch_after(
    context: &BuiltinContext<'_>,
    base: &str,
    interval: Interval,
) -> bashkit::Result<Option<i64>> {
    let numbers = async |date: &str, format: &str| -> bashkit::Result<Vec<i64>> {
        let args = ["-d".to_owned(), date.to_owned(), format.to_owned()];
        let shown = library(context, "date", &args).await?.stdout.text_lossy().into_owned();
        Ok(shown.split_whitespace().filter_map(|number| number.parse().ok()).collect())
    };
    let (date, seconds) = match interval {
        Interval::Seconds(seconds) => (base.to_owned(), seconds),
        Interval::Months(months) => {
            // Split at the first of the month: a day that the other month lacks runs into the next.
            let [year, month, day, hour, minute, second] =
                numbers(base, "+%Y %m %d %H %M %S").await?[..]
            else {
                return Ok(None);
            };
            let Some(month) = (year * 12 + month - 1).checked_add(months) else { return Ok(None) };
            let (year, month) = (month.div_euclid(12), month.rem_euclid(12) + 1);
            let first = format!("{year:04}-{month:02}-01 {hour:02}:{minute:02}:{second:02}");
            (first, (day - 1) * 86_400)
        }
    };
    let epoch = numbers(&date, "+%s").await?;
    Ok(epoch.first().and_then(|epoch| epoch.checked_add(seconds)))
}

/// Splits `2024-02-28 +2 days` into the date and the interval. Without a date in front it is now,
/// for months and years; the library knows the others.
fn split_interval(text: &str) -> Option<(&str, Interval)> {
    let (is_past, text) = match text.strip_suffix(" ago") {
        Some(text) => (true, text),
        None => (false, text),
    };
    let (rest, unit) = text.trim_end().rsplit_once(' ')?;
    let rest = rest.trim_end();
    let (base, number) = rest.rsplit_once(' ').unwrap_or(("", rest));
    let number: i64 = match number {
        "next" => 1,
        "last" => -1,
        number => number.parse().ok()?,
    };
    let times = |count: i64| number.checked_mul(if is_past { -count } else { count });
    let interval = match unit.strip_suffix('s').unwrap_or(unit) {
        "sec" | "second" => Interval::Seconds(times(1)?),
        "min" | "minute" => Interval::Seconds(times(60)?),
        "hour" => Interval::Seconds(times(3_600)?),
        "day" => Interval::Seconds(times(86_400)?),
        "week" => Interval::Seconds(times(604_800)?),
        "month" => Interval::Months(times(1)?),
        "year" => Interval::Months(times(12)?),
        _ => return None,
    };
    let base = base.trim_end();
    match base.chars().next() {
        Some(first) if first.is_ascii_digit() || first == '@' => Some((base, interval)),
        None if matches!(interval, Interval::Months(_)) => Some(("now", interval)),
        _ => None,
    }
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

/// `cp` and `mv`, whose errors name the file that is the reason: a source that is not there, or the
/// target.
pub(super) struct Transfer {
    pub(super) name: &'static str,
}

#[async_trait]
impl Builtin for Transfer {
    async fn execute(&self, context: BuiltinContext<'_>) -> bashkit::Result<ExecResult> {
        let mut result = library(&context, self.name, context.args).await?;
        let target = context.args.last().map_or("", String::as_str);
        let mut errors = String::new();
        for line in result.stderr.text_lossy().lines() {
            errors += &self.reworded(&context, line, target).await.unwrap_or(line.to_owned());
            errors.push('\n');
        }
        result.stderr = errors.into();
        Ok(result)
    }
}

impl Transfer {
    /// Returns the line with the file that is the reason; `None` if it is another message.
    async fn reworded(
        &self,
        context: &BuiltinContext<'_>,
        line: &str,
        target: &str,
    ) -> Option<String> {
        let (_, rest) = line.split_once(": cannot copy '").or(line.split_once(": cannot move '"))?;
        let (source, reason) = rest.rsplit_once("': ")?;
        let reason = reason.strip_prefix("io error: ").unwrap_or(reason);
        let what = match context.fs.exists(&vfs_join(context.cwd, source)).await {
            Ok(false) => format!("cannot stat '{source}'"),
            _ if self.name == "mv" => format!("cannot move '{source}' to '{target}'"),
            _ => format!("cannot create regular file '{target}'"),
        };
        Some(format!("{}: {what}: {reason}", self.name))
    }
}

/// `tar`, which reports an archive that it cannot open; the library's ends the script.
pub(super) struct Tar;

#[async_trait]
impl Builtin for Tar {
    async fn execute(&self, context: BuiltinContext<'_>) -> bashkit::Result<ExecResult> {
        library(&context, "tar", context.args).await.or_else(|error| match &error {
            bashkit::Error::Io(_) => {
                let text = format!(
                    "tar: Cannot open: {}\ntar: Error is not recoverable: exiting now\n",
                    reason(&error)
                );
                Ok(ExecResult::err(text, 2))
            }
            _ => Err(error),
        })
    }
}

/// `cmp`, which counts bytes and says so, as GNU's.
pub(super) struct Cmp;

#[async_trait]
impl Builtin for Cmp {
    async fn execute(&self, context: BuiltinContext<'_>) -> bashkit::Result<ExecResult> {
        let mut result = library(&context, "cmp", context.args).await?;
        let shown = result.stdout.text_lossy().replace(" differ: char ", " differ: byte ");
        result.stdout = shown.into();
        Ok(result)
    }
}

/// The words of Linux for an error of the library's file systems.
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

/// The arguments without an option, alone or in a cluster, and whether it was there.
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
