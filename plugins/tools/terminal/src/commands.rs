//! The commands that the plugin adds to those of the library, or puts in their place.

mod curl;
mod ls;
mod mended;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bashkit::{
    Bash, BashBuilder, Builtin, BuiltinContext, CommandResolver, ExecOptions, ExecResult,
    async_trait,
};

/// Commands of the library that are no commands of a usual machine.
const LEFT_OUT: [&str; 18] = [
    "assert", "csv", "dotenv", "git", "glob", "http", "inspect", "json", "log", "nano", "retry",
    "scp", "semver", "sftp", "ssh", "template", "verify", "vi",
];

/// Adds the commands to a shell. `listed` says whether this call has listed them.
pub(crate) fn add(builder: BashBuilder, listed: &Arc<AtomicBool>) -> BashBuilder {
    builder
        .builtin_filter(|name| !LEFT_OUT.contains(&name))
        .builtin("sleep", Box::new(Sleep))
        .builtin("curl", Box::new(curl::Curl))
        .builtin("wget", Box::new(curl::Wget))
        .builtin("ls", Box::new(ls::Ls))
        .builtin("cmp", Box::new(mended::Cmp))
        .builtin("cp", Box::new(mended::Transfer { name: "cp" }))
        .builtin("mv", Box::new(mended::Transfer { name: "mv" }))
        .builtin("tar", Box::new(mended::Tar))
        .builtin("date", Box::new(mended::Date))
        .builtin("expr", Box::new(mended::Expr))
        .builtin("tee", Box::new(mended::Tee))
        .builtin("unzip", Box::new(mended::Unzip))
        .builtin("zcat", Box::new(mended::Zcat))
        .builtin("zip", Box::new(mended::Zip))
        .command_resolver(Arc::new(Unknown(Arc::clone(listed))))
}

/// Runs the library's own command of a name that the plugin took.
async fn library(
    context: &BuiltinContext<'_>,
    name: &str,
    args: &[String],
) -> bashkit::Result<ExecResult> {
    let mut shell = Bash::builder().fs(Arc::clone(&context.fs)).cwd(context.cwd.as_path());
    for (name, value) in context.env {
        shell = shell.env(name, value);
    }
    let mut command = name.to_owned();
    for arg in args {
        command += &format!(" '{}'", arg.replace('\'', r"'\''"));
    }
    let mut options = ExecOptions::new();
    if let Some(stdin) = context.stdin {
        options = options.stdin(stdin.clone());
    }
    shell.build().exec_with_options(&command, options).await
}

/// `sleep` without the library's limit of a minute.
struct Sleep;

#[async_trait]
impl Builtin for Sleep {
    async fn execute(&self, context: BuiltinContext<'_>) -> bashkit::Result<ExecResult> {
        let operands: Vec<&String> = context.args.iter().filter(|arg| *arg != "--").collect();
        if operands.is_empty() {
            return Ok(ExecResult::err("sleep: missing operand\n", 1));
        }
        let mut total = Duration::ZERO;
        for operand in operands {
            let Some(time) = interval(operand) else {
                let text = format!("sleep: invalid time interval '{operand}'\n");
                return Ok(ExecResult::err(text, 1));
            };
            total = total.saturating_add(time);
        }
        bashkit::time::sleep(total).await;
        Ok(ExecResult::ok(""))
    }
}

/// The time of an operand such as `1.5m`.
fn interval(operand: &str) -> Option<Duration> {
    if matches!(operand, "infinity" | "inf") {
        return Some(Duration::MAX);
    }
    let (number, seconds) = match operand.char_indices().next_back()? {
        (end, 's') => (&operand[..end], 1.0),
        (end, 'm') => (&operand[..end], 60.0),
        (end, 'h') => (&operand[..end], 3_600.0),
        (end, 'd') => (&operand[..end], 86_400.0),
        _ => (operand, 1.0),
    };
    let number: f64 = number.parse().ok().filter(|number: &f64| *number >= 0.0)?;
    Some(Duration::try_from_secs_f64(number * seconds).unwrap_or(Duration::MAX))
}

/// Commands of other machines that run Python.
const PYTHON: [&str; 7] = ["ipython", "pip", "pip3", "pytest", "python", "python3", "uv"];

/// Reports a command that does not exist; the first one of a call with those that do.
struct Unknown(Arc<AtomicBool>);

impl CommandResolver for Unknown {
    fn resolve(&self, name: &str) -> Option<Arc<dyn Builtin>> {
        Some(Arc::new(UnknownCommand { name: name.to_owned(), listed: Arc::clone(&self.0) }))
    }
}

struct UnknownCommand {
    name: String,
    listed: Arc<AtomicBool>,
}

#[async_trait]
impl Builtin for UnknownCommand {
    async fn execute(&self, _: BuiltinContext<'_>) -> bashkit::Result<ExecResult> {
        let mut text = format!("bash: {}: command not found\n", self.name);
        if PYTHON.contains(&self.name.as_str()) {
            text += "Python runs only in cells, by the action run_ipython, if the task has it.\n";
        } else if !self.listed.swap(true, Ordering::Relaxed) {
            // The list has 1 KB, which a script with several such commands would repeat.
            let commands = add(Bash::builder(), &self.listed).build().builtin_names().join(" ");
            text += &format!("No programs of the machine run here. The commands are: {commands}\n");
        }
        Ok(ExecResult::err(text, 127))
    }
}
