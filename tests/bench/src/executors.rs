//! The executors of commands and of cells beside processes of the machine. Each call has a fresh
//! sandbox; a process has none.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use conclave_core::types::ids::PluginName;
use conclave_runtime::{Host, HostOptions};
use serde_json::{Value, json};

use crate::BenchError;
use crate::conclave;
use crate::measure::{self, Effort, Plan};
use crate::report::{Reach, Row, Rows, Side, Size};
use crate::sandbox_calls::{SandboxCalls, ToolAnswer};

const ECHO: &str = "terminal: echo in a fresh one";
const GREP: &str = "terminal: grep -rn over a small project";
const FIRST: &str = "Python: first cell";
const LATER: &str = "Python: later cell";
const SESSION: &str = "Python: cell 100 of a session";

/// What matches in the project, on two lines of each file.
const WORD: &str = "lighthouse";
const FILES: usize = 40;
const LINES: usize = 60;

const FIRST_CELL: &str = "\
import json, math
def area(radius):
    return math.pi * radius ** 2
rows = [{'radius': n, 'area': area(n)} for n in range(10)]
json.dumps(rows[1])";
const LATER_CELL: &str = "\
rows.append({'radius': 10, 'area': area(10)})
json.dumps(rows[-1])";
/// The cells of the session before the measured one.
const EARLIER: usize = 99;

/// Measures the `wanted` rows of the executors in `stock`.
pub(crate) async fn rows(
    stock: &Path,
    effort: Effort,
    wanted: &dyn Fn(&str) -> bool,
    rows: &mut Rows,
) -> Result<(), BenchError> {
    if wanted(ECHO) || wanted(GREP) {
        match Executor::load(stock, "terminal", "run", "command", Plan::medium(effort)).await? {
            Some(terminal) => terminal.commands(wanted, rows).await?,
            None => rows.skip("terminal", absent(stock, "terminal")),
        }
    }
    // A process of Python takes tens of milliseconds.
    if wanted(FIRST) || wanted(LATER) || wanted(SESSION) {
        match Executor::load(stock, "python", "run_ipython", "code", Plan::long(effort)).await? {
            Some(python) => python.cells(wanted, rows).await?,
            None => rows.skip("Python cells", absent(stock, "python")),
        }
    }
    Ok(())
}

fn absent(stock: &Path, name: &str) -> String {
    let path = stock.join(name).with_extension("wasm");
    format!("{} is not there; `cargo xtask build` says why", path.display())
}

/// A loaded executor.
struct Executor {
    calls: SandboxCalls,
    plugin: PluginName,
    tool: &'static str,
    /// The name of the argument that holds the command or the cell.
    argument: &'static str,
    /// The project's folder on the machine.
    project: PathBuf,
    plan: Plan,
}

impl Executor {
    /// Returns `None` if its component is not there.
    async fn load(
        stock: &Path,
        name: &str,
        tool: &'static str,
        argument: &'static str,
        plan: Plan,
    ) -> Result<Option<Self>, BenchError> {
        if !stock.join(name).with_extension("wasm").is_file() {
            return Ok(None);
        }
        let project = stock.with_file_name("bench-project");
        write_project(&project)
            .map_err(|cause| BenchError::Write { path: project.clone(), cause })?;
        let options = HostOptions { cache: Some(conclave::cache(stock)), ..HostOptions::default() };
        let host = Host::new(options).map_err(|error| BenchError::Conclave(error.to_string()))?;
        let calls = SandboxCalls::new(conclave::loaded(&host, stock, &config(name)).await?);
        let plugin = PluginName::from(name);
        Ok(Some(Self { calls, plugin, tool, argument, project, plan }))
    }

    async fn commands(
        &self,
        wanted: &dyn Fn(&str) -> bool,
        rows: &mut Rows,
    ) -> Result<(), BenchError> {
        if wanted(ECHO) {
            let (inside, outside) = ("echo hello", "echo hello");
            rows.keep(self.beside(ECHO, inside, "bash -c", outside, "hello", 600.0).await?);
        }
        if wanted(GREP) {
            let inside = format!("grep -rn {WORD} /project");
            let outside = format!("grep -rn {WORD} {}", self.project.display());
            rows.keep(self.beside(GREP, &inside, "bash -c", &outside, WORD, 5_000.0).await?);
        }
        Ok(())
    }

    async fn cells(
        &self,
        wanted: &dyn Fn(&str) -> bool,
        rows: &mut Rows,
    ) -> Result<(), BenchError> {
        const CELL: &str = "python3 -c";
        if wanted(FIRST) {
            let answer = "3.14159";
            rows.keep(self.beside(FIRST, FIRST_CELL, CELL, FIRST_CELL, answer, 4_000.0).await?);
        }
        if wanted(LATER) {
            let scratch = self.after([FIRST_CELL.to_owned()]).await?;
            let both = format!("{FIRST_CELL}\n{LATER_CELL}");
            let subject = Subject { input: self.input(LATER_CELL), scratch, answer: "314.159" };
            rows.keep(self.row(LATER, &subject, CELL, &both, 2_500.0).await?);
        }
        if wanted(SESSION) {
            rows.keep(self.session().await?);
        }
        Ok(())
    }

    /// Measures an input without a state beside a process that does the same.
    async fn beside(
        &self,
        what: &'static str,
        inside: &str,
        process: &'static str,
        outside: &str,
        answer: &'static str,
        most_micros: f64,
    ) -> Result<Row, BenchError> {
        let subject = Subject { input: self.input(inside), scratch: Arc::default(), answer };
        self.row(what, &subject, process, outside, most_micros).await
    }

    async fn row(
        &self,
        what: &'static str,
        subject: &Subject,
        process: &'static str,
        outside: &str,
        most_micros: f64,
    ) -> Result<Row, BenchError> {
        let memory = Size::Memory(self.checked(subject).await?.memory);
        let run = async || self.call(subject).await.map(drop);
        let plan = self.plan;
        let program = Process::find(process, outside);
        let (baseline, times) = match &program {
            Some(process) => {
                let outside = async || process.run();
                let (baseline, times) = measure::by_turns(plan, outside, run).await?;
                (Some(Side::new(process.shown, baseline)), times)
            }
            None => (None, measure::alone(plan, run).await?),
        };
        Ok(Row {
            what,
            baseline: baseline.map(|side| match program.as_ref().and_then(Process::memory) {
                Some(bytes) => side.with(Size::Memory(bytes)),
                None => side,
            }),
            subject: Side::new("stock plugin", times).with(memory),
            reach: Reach::AtMostMicros(most_micros),
        })
    }

    /// Measures the same cell as the second and as the hundredth of a session in which each cell
    /// adds a variable.
    async fn session(&self) -> Result<Row, BenchError> {
        let first = || std::iter::once(FIRST_CELL.to_owned());
        let cells = first().chain((1..EARLIER).map(|n| format!("value_{n} = area({n})")));
        let cell = |scratch| Subject { input: self.input(LATER_CELL), scratch, answer: "314.159" };
        let (second, last) = (cell(self.after(first()).await?), cell(self.after(cells).await?));
        let (of_second, of_last) =
            (self.checked(&second).await?.memory, self.checked(&last).await?.memory);
        let baseline = async || self.call(&second).await.map(drop);
        let subject = async || self.call(&last).await.map(drop);
        let (baseline, subject) = measure::by_turns(self.plan, baseline, subject).await?;
        Ok(Row {
            what: SESSION,
            baseline: Some(Side::new("cell 2", baseline).with(Size::Memory(of_second))),
            subject: Side::new("cell 100", subject).with(Size::Memory(of_last)),
            reach: Reach::AtMost(1.5),
        })
    }

    fn input(&self, text: &str) -> Arc<Value> {
        Arc::new(json!({ self.argument: text }))
    }

    async fn call(&self, subject: &Subject) -> Result<ToolAnswer, BenchError> {
        self.calls.tool(&self.plugin, self.tool, &subject.input, &subject.scratch).await
    }

    async fn checked(&self, subject: &Subject) -> Result<ToolAnswer, BenchError> {
        let answer = self.call(subject).await?;
        if answer.content.contains(subject.answer) {
            Ok(answer)
        } else {
            Err(BenchError::Answer(answer.content))
        }
    }

    /// Returns the state after these cells.
    async fn after(
        &self,
        cells: impl IntoIterator<Item = String>,
    ) -> Result<Arc<Vec<u8>>, BenchError> {
        let mut scratch = Arc::default();
        for cell in cells {
            let subject = Subject { input: self.input(&cell), scratch, answer: "" };
            let answer = self.call(&subject).await?;
            scratch = answer.scratch.map_or(subject.scratch, Arc::new);
        }
        Ok(scratch)
    }
}

/// A call that is measured.
struct Subject {
    input: Arc<Value>,
    scratch: Arc<Vec<u8>>,
    /// A part of the right answer.
    answer: &'static str,
}

/// A program of the machine with its arguments.
struct Process {
    /// The program and its option, as they are typed.
    shown: &'static str,
    text: String,
}

impl Process {
    /// Returns `None` if the machine does not have it.
    fn find(shown: &'static str, text: &str) -> Option<Self> {
        let process = Self { shown, text: text.to_owned() };
        process.run().is_ok().then_some(process)
    }

    fn run(&self) -> Result<(), BenchError> {
        self.output(&self.text).map(drop)
    }

    fn output(&self, text: &str) -> Result<String, BenchError> {
        let failed = |why: String| BenchError::Answer(format!("{}: {why}", self.shown));
        let output = Command::new(self.words().0)
            .args([self.words().1, text])
            .output()
            .map_err(|error| failed(error.to_string()))?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status.success() { Ok(said) } else { Err(failed(output.status.to_string())) }
    }

    fn words(&self) -> (&str, &str) {
        self.shown.split_once(' ').unwrap_or((self.shown, ""))
    }

    /// Returns the peak memory of the process in bytes; `None` if the system does not say, which
    /// only Linux does.
    fn memory(&self) -> Option<u64> {
        let status = match self.words().0 {
            "bash" => "\nwhile read -r line; do echo \"$line\"; done < /proc/self/status",
            _ => "\nprint(open('/proc/self/status').read())",
        };
        let said = self.output(&format!("{}{status}", self.text)).ok()?;
        let peak = said.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
        Some(peak.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()? * 1024)
    }
}

fn config(name: &str) -> String {
    let files = match name {
        "terminal" => {
            "grants.files = [{ dir = \"../bench-project\", at = \"/project\", mode = \"read\" }]"
        }
        _ => "",
    };
    format!(
        r#"
entry = "main"
[plugins.agent]
source = "../guests/agent_echo.wasm"
[plugins.{name}]
source = "{name}.wasm"
{files}
[tasks.main]
agent = "agent"
"#
    )
}

/// Writes the project: 40 files of 60 lines in five folders, about 100 KB.
fn write_project(folder: &Path) -> std::io::Result<()> {
    for file in 0..FILES {
        let below = folder.join(format!("part{}", file % 5));
        fs::create_dir_all(&below)?;
        let lines = (0..LINES).map(|line| {
            let word = if line % 30 == 7 { WORD } else { "harbour" };
            format!("{line}: the {word} of part {file}, and its keeper\n")
        });
        fs::write(below.join(format!("file{file}.txt")), lines.collect::<String>())?;
    }
    Ok(())
}
