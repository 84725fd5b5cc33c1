//! `ls` with the columns of GNU's `-l`, which agents and scripts read. The library's has fewer.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bashkit::{Builtin, BuiltinContext, ExecResult, FileType, Metadata, async_trait, vfs_join};

use super::mended::reason;

/// Half a year: older files show the year in place of the time.
const RECENT: Duration = Duration::from_secs(15_778_476);
/// Bytes of a directory, and of a block.
const BLOCK: u64 = 4096;

/// The command `ls`.
pub(super) struct Ls;

#[derive(Default)]
struct Options {
    shows_hidden: bool,
    shows_dots: bool,
    is_long: bool,
    is_human: bool,
    is_recursive: bool,
    is_reversed: bool,
    by_time: bool,
    by_size: bool,
    is_unsorted: bool,
    lists_directories: bool,
    marks_kind: bool,
    marks_directories: bool,
    hides_owner: bool,
    hides_group: bool,
}

struct Entry {
    /// As it is shown.
    name: String,
    path: PathBuf,
    metadata: Metadata,
    target: Option<PathBuf>,
}

#[async_trait]
impl Builtin for Ls {
    async fn execute(&self, context: BuiltinContext<'_>) -> bashkit::Result<ExecResult> {
        let (options, mut names) = match parse(context.args) {
            Ok(parsed) => parsed,
            Err(option) => {
                let text = format!(
                    "ls: invalid option -- '{option}'\nTry 'ls --help' for more information.\n"
                );
                return Ok(ExecResult::err(text, 2));
            }
        };
        if names.is_empty() {
            names.push(".".to_owned());
        }
        let (mut errors, mut files, mut directories) = (String::new(), Vec::new(), Vec::new());
        for name in names {
            let path = vfs_join(context.cwd, &name);
            match entry(&context, &name, path, options.is_long || name.ends_with('/')).await {
                Ok(entry) if is_directory(&entry) && !options.lists_directories => {
                    directories.push(entry);
                }
                Ok(entry) => files.push(entry),
                Err(error) => {
                    errors += &format!("ls: cannot access '{name}': {}\n", reason(&error));
                }
            }
        }
        let mut out = String::new();
        let has_headers = files.len() + directories.len() > 1 || !errors.is_empty();
        show(&mut out, &options, files);
        sort(&options, &mut directories);
        directories.reverse();
        while let Some(directory) = directories.pop() {
            if has_headers || options.is_recursive {
                let gap = if out.is_empty() { "" } else { "\n" };
                out += &format!("{gap}{}:\n", directory.name);
            }
            let entries = match children(&context, &options, &directory).await {
                Ok(entries) => entries,
                Err(error) => {
                    let name = &directory.name;
                    errors += &format!("ls: cannot open directory '{name}': {}\n", reason(&error));
                    continue;
                }
            };
            if options.is_long {
                let blocks: u64 = entries.iter().map(|entry| length(entry).div_ceil(BLOCK)).sum();
                out += &format!("total {}\n", blocks * BLOCK / 1024);
            }
            if options.is_recursive {
                let mut below = Vec::new();
                for entry in &entries {
                    if is_directory(entry) && !matches!(entry.name.as_str(), "." | "..") {
                        let name =
                            format!("{}/{}", directory.name.trim_end_matches('/'), entry.name);
                        let metadata = entry.metadata.clone();
                        below.push(Entry {
                            name,
                            path: entry.path.clone(),
                            metadata,
                            target: None,
                        });
                    }
                }
                sort(&options, &mut below);
                directories.extend(below.into_iter().rev());
            }
            show(&mut out, &options, entries);
        }
        let code = if errors.is_empty() { 0 } else { 2 };
        let mut result = ExecResult::with_code(out, code);
        result.stderr = errors.into();
        Ok(result)
    }
}

fn parse(args: &[String]) -> Result<(Options, Vec<String>), String> {
    let (mut options, mut names, mut is_over) = (Options::default(), Vec::new(), false);
    for arg in args {
        match arg.as_str() {
            name if is_over || name == "-" || !name.starts_with('-') => names.push(name.to_owned()),
            "--" => is_over = true,
            "--all" => options.set('a')?,
            "--almost-all" => options.set('A')?,
            "--recursive" => options.set('R')?,
            "--reverse" => options.set('r')?,
            "--human-readable" => options.set('h')?,
            "--directory" => options.set('d')?,
            "--classify" => options.set('F')?,
            option if option.starts_with("--color") || option.starts_with("--time-style") => {}
            option if option.starts_with("--") => return Err(option.to_owned()),
            cluster => cluster.chars().skip(1).try_for_each(|letter| options.set(letter))?,
        }
    }
    Ok((options, names))
}

impl Options {
    fn set(&mut self, letter: char) -> Result<(), String> {
        match letter {
            'a' => (self.shows_hidden, self.shows_dots) = (true, true),
            'A' => self.shows_hidden = true,
            'l' => self.is_long = true,
            'g' => (self.is_long, self.hides_owner) = (true, true),
            'o' => (self.is_long, self.hides_group) = (true, true),
            'n' => self.is_long = true,
            'h' => self.is_human = true,
            'R' => self.is_recursive = true,
            'r' => self.is_reversed = true,
            't' => self.by_time = true,
            'S' => self.by_size = true,
            'U' => self.is_unsorted = true,
            'f' => (self.shows_hidden, self.shows_dots, self.is_unsorted) = (true, true, true),
            'd' => self.lists_directories = true,
            'F' => self.marks_kind = true,
            'p' => self.marks_directories = true,
            '1' | 'C' | 'x' | 'm' | 'k' | 'G' | 'N' | 'v' | 'X' | 'c' | 'u' | 'L' | 'H' => {}
            other => return Err(other.to_string()),
        }
        Ok(())
    }
}

async fn entry(
    context: &BuiltinContext<'_>,
    name: &str,
    path: PathBuf,
    is_link_shown: bool,
) -> bashkit::Result<Entry> {
    let mut metadata = context.fs.lstat(&path).await?;
    let mut target = None;
    if metadata.file_type == FileType::Symlink {
        let link = context.fs.read_link(&path).await?;
        let aim = vfs_join(path.parent().unwrap_or(Path::new("/")), &link);
        if !is_link_shown && let Ok(found) = context.fs.stat(&aim).await {
            return Ok(Entry { name: name.to_owned(), path: aim, metadata: found, target: None });
        }
        metadata.size = link.as_os_str().len() as u64;
        target = Some(link);
    }
    Ok(Entry { name: name.to_owned(), path, metadata, target })
}

async fn children(
    context: &BuiltinContext<'_>,
    options: &Options,
    directory: &Entry,
) -> bashkit::Result<Vec<Entry>> {
    let mut entries = Vec::new();
    if options.shows_dots {
        let above = directory.path.parent().unwrap_or(&directory.path).to_owned();
        entries.push(entry(context, ".", directory.path.clone(), true).await?);
        entries.push(entry(context, "..", above, true).await?);
    }
    for found in context.fs.read_dir(&directory.path).await? {
        if found.name.starts_with('.') && !options.shows_hidden {
            continue;
        }
        let path = vfs_join(&directory.path, &found.name);
        if found.metadata.file_type == FileType::Symlink {
            entries.push(entry(context, &found.name, path, true).await?);
        } else {
            let (name, metadata) = (found.name, found.metadata);
            entries.push(Entry { name, path, metadata, target: None });
        }
    }
    Ok(entries)
}

fn sort(options: &Options, entries: &mut [Entry]) {
    if options.is_unsorted {
        return;
    }
    entries.sort_by(|one, other| one.name.cmp(&other.name));
    if options.by_size {
        entries.sort_by_key(|entry| std::cmp::Reverse(length(entry)));
    }
    if options.by_time {
        entries.sort_by_key(|entry| std::cmp::Reverse(entry.metadata.modified));
    }
    if options.is_reversed {
        entries.reverse();
    }
}

fn show(out: &mut String, options: &Options, mut entries: Vec<Entry>) {
    sort(options, &mut entries);
    let size = |entry: &Entry| {
        if options.is_human { human(length(entry)) } else { length(entry).to_string() }
    };
    let width = entries.iter().map(|entry| size(entry).len()).max().unwrap_or(0);
    for entry in &entries {
        if options.is_long {
            let links = if is_directory(entry) { 2 } else { 1 };
            let owner = if options.hides_owner { "" } else { " agent" };
            let group = if options.hides_group { "" } else { " agent" };
            let (mode, size, time) = (mode(&entry.metadata), size(entry), time(entry));
            *out += &format!("{mode} {links}{owner}{group} {size:>width$} {time} ");
        }
        *out += &entry.name;
        if let Some(target) = entry.target.as_ref().filter(|_| options.is_long) {
            *out += &format!(" -> {}", target.display());
        } else {
            out.push_str(mark(options, entry));
        }
        out.push('\n');
    }
}

fn is_directory(entry: &Entry) -> bool {
    entry.metadata.file_type.is_dir()
}

fn length(entry: &Entry) -> u64 {
    if is_directory(entry) { BLOCK } else { entry.metadata.size }
}

fn mark(options: &Options, entry: &Entry) -> &'static str {
    match entry.metadata.file_type {
        FileType::Directory if options.marks_kind || options.marks_directories => "/",
        FileType::Symlink if options.marks_kind => "@",
        FileType::Fifo if options.marks_kind => "|",
        FileType::File if options.marks_kind && entry.metadata.mode & 0o111 != 0 => "*",
        _ => "",
    }
}

fn mode(metadata: &Metadata) -> String {
    let kind = match metadata.file_type {
        FileType::Directory => 'd',
        FileType::Symlink => 'l',
        FileType::Fifo => 'p',
        FileType::File => '-',
    };
    let mut text = String::from(kind);
    for shift in [6, 3, 0] {
        let bits = metadata.mode >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(if bits & 1 != 0 { 'x' } else { '-' });
    }
    if metadata.mode & 0o1000 != 0 {
        text.replace_range(9.., if metadata.mode & 1 != 0 { "t" } else { "T" });
    }
    text
}

fn human(size: u64) -> String {
    let (mut number, mut units) = (size as f64, ["", "K", "M", "G", "T"].into_iter());
    let mut unit = units.next().unwrap_or_default();
    while number >= 1024.0
        && let Some(next) = units.next()
    {
        (number, unit) = (number / 1024.0, next);
    }
    if unit.is_empty() {
        size.to_string()
    } else if number < 10.0 {
        format!("{:.1}{unit}", (number * 10.0).ceil() / 10.0)
    } else {
        format!("{:.0}{unit}", number.ceil())
    }
}

/// The time of the last change, as GNU's `ls` shows it in UTC.
fn time(entry: &Entry) -> String {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let modified = entry.metadata.modified;
    let since = modified.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let (year, month, day) = civil(since / 86_400);
    let month = MONTHS[month];
    let age = SystemTime::now().duration_since(modified).unwrap_or_default();
    if age > RECENT {
        return format!("{month} {day:>2}  {year}");
    }
    format!("{month} {day:>2} {:02}:{:02}", since / 3_600 % 24, since / 60 % 60)
}

/// The year, the month from 0 and the day of a day since 1970.
fn civil(mut days: u64) -> (u64, usize, u64) {
    let is_leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let mut year = 1970;
    while days >= 365 + u64::from(is_leap(year)) {
        days -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let february = 28 + u64::from(is_leap(year));
    for (month, length) in
        [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31].into_iter().enumerate()
    {
        if days < length {
            return (year, month, days + 1);
        }
        days -= length;
    }
    (year, 11, 31)
}
