//! The commands that the plugin adds to those of the library, or puts in their place.

mod curl;

use std::sync::Arc;
use std::time::Duration;

use bashkit::{
    Bash, BashBuilder, Builtin, BuiltinContext, CommandResolver, ExecResult, async_trait,
};

/// Commands of the library that are no commands of a usual machine.
const LEFT_OUT: [&str; 18] = [
    "assert", "csv", "dotenv", "git", "glob", "http", "inspect", "json", "log", "nano", "retry",
    "scp", "semver", "sftp", "ssh", "template", "verify", "vi",
];

/// Adds the commands to a shell.
pub(crate) fn add(builder: BashBuilder) -> BashBuilder {
    builder
        .builtin_filter(|name| !LEFT_OUT.contains(&name))
        .builtin("sleep", Box::new(Sleep))
        .builtin("curl", Box::new(curl::Curl))
        .builtin("wget", Box::new(curl::Wget))
        .command_resolver(Arc::new(Unknown))
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

/// Returns the time of an operand such as `1.5m`.
fn interval(operand: &str) -> Option<Duration> {
    let (number, seconds) = match operand.char_indices().next_back()? {
        (end, 's') => (&operand[..end], 1.0),
        (end, 'm') => (&operand[..end], 60.0),
        (end, 'h') => (&operand[..end], 3_600.0),
        (end, 'd') => (&operand[..end], 86_400.0),
        _ => (operand, 1.0),
    };
    if matches!(operand, "infinity" | "inf") {
        return Some(Duration::MAX);
    }
    let number: f64 = number.parse().ok().filter(|number: &f64| *number >= 0.0)?;
    Some(Duration::try_from_secs_f64(number * seconds).unwrap_or(Duration::MAX))
}

/// Reports a command that does not exist, with those that do.
struct Unknown;

impl CommandResolver for Unknown {
    fn resolve(&self, name: &str) -> Option<Arc<dyn Builtin>> {
        Some(Arc::new(UnknownCommand(name.to_owned())))
    }
}

struct UnknownCommand(String);

#[async_trait]
impl Builtin for UnknownCommand {
    async fn execute(&self, _: BuiltinContext<'_>) -> bashkit::Result<ExecResult> {
        let commands = add(Bash::builder()).build().builtin_names().join(" ");
        let text = format!(
            "bash: {}: command not found\nThis shell runs no programs of the machine. Its commands are: {commands}\n",
            self.0
        );
        Ok(ExecResult::err(text, 127))
    }
}
