//! Calls through the door that people use: an MCP client on stdio against the program, beside other
//! servers on this machine. A server that is not installed is skipped.

use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

use serde_json::{Value, json};

use crate::BenchError;
use crate::durable::Folder;
use crate::measure::{self, Effort, Plan, Times};
use crate::report::{Reach, Row, Rows, Side};

const WASSETTE: &str = "MCP call on stdio, 1 KB, without a journal; and Wassette's";
const TYPESCRIPT: &str = "MCP call on stdio, 1 KB, without a journal; and the TypeScript SDK's";
const FASTMCP: &str = "MCP call on stdio, 1 KB, without a journal; and FastMCP's";
const KEPT: &str = "MCP call on stdio, 1 KB, that only computes; in the default journal";
const READS: &str = "MCP call on stdio, 1 KB, that reads a file; in the default journal";
const AT_ONCE: &str = "MCP call on stdio, of 64 in flight; without a journal";
const AT_ONCE_KEPT: &str = "MCP call on stdio, of 64 in flight; in the default journal";
const START: &str = "start of an MCP server, to its list of tools";

/// The calls in flight of the rows about many.
const IN_FLIGHT: usize = 64;

/// Measures the `wanted` rows with the program at `program`.
pub(crate) async fn rows(
    program: &Path,
    guests: &Path,
    effort: Effort,
    wanted: &dyn Fn(&str) -> bool,
    rows: &mut Rows,
) -> Result<(), BenchError> {
    let all = [WASSETTE, TYPESCRIPT, FASTMCP, KEPT, READS, AT_ONCE, AT_ONCE_KEPT, START];
    if !all.iter().any(|row| wanted(row)) {
        return Ok(());
    }
    if Command::new(program).arg("--version").stdout(Stdio::null()).status().is_err() {
        let why =
            format!("{} does not start: install it, or name it with --program", program.display());
        rows.skip("MCP on stdio", why);
        return Ok(());
    }
    let doors = Doors::prepare(program, guests, Plan::medium(effort))?;
    for (row, does, most, peer) in [
        (WASSETTE, "Wassette, the same component", 0.9, doors.wassette()),
        (TYPESCRIPT, "the TypeScript SDK, node", 1.0, doors.typescript()?),
        (FASTMCP, "FastMCP, python3", 0.9, doors.fastmcp()?),
    ] {
        if !wanted(row) {
            continue;
        }
        match Client::start(peer) {
            Ok(peer) => rows.keep(doors.beside(row, (does, Reach::AtMost(most)), peer).await?),
            Err(error) => rows.skip(row, error.to_string()),
        }
    }
    if wanted(KEPT) {
        let reach = Reach::AtMost(1.3);
        rows.keep(doors.kept(KEPT, &Call::greet(), Sync::None, reach).await?);
    }
    if wanted(READS) {
        let reach = Reach::AtMost(1.3);
        rows.keep(doors.kept(READS, &Call::read(), Sync::One, reach).await?);
    }
    if wanted(AT_ONCE) {
        let times = doors.at_once(&["--no-journal"]).await?;
        rows.keep(per_second(AT_ONCE, times, 8_000.0));
    }
    if wanted(AT_ONCE_KEPT) {
        rows.keep(per_second(AT_ONCE_KEPT, doors.at_once(&[]).await?, 5_000.0));
    }
    if wanted(START) {
        let started = async || Client::start(doors.conclave(&["--no-journal"])).map(drop);
        let times = measure::alone(Plan::long(effort), started).await?;
        let subject = Side::new("the program, two components", times);
        rows.keep(Row {
            what: START,
            baseline: None,
            subject,
            reach: Reach::AtMostMicros(20_000.0),
        });
    }
    Ok(())
}

fn per_second(what: &'static str, times: Times, least: f64) -> Row {
    let subject = Side::new("the program", times);
    Row { what, baseline: None, subject, reach: Reach::PerSecond(least) }
}

/// The number of syncs that a call waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sync {
    None,
    One,
}

/// The program and the files of the rows.
struct Doors {
    program: PathBuf,
    component: PathBuf,
    folder: Folder,
    plan: Plan,
}

impl Doors {
    fn prepare(program: &Path, guests: &Path, plan: Plan) -> Result<Self, BenchError> {
        let guests = std::path::absolute(guests)
            .map_err(|cause| BenchError::Component { path: guests.to_owned(), cause })?;
        let component = guests.join("plain_functions.wasm");
        // A name is looked for on the PATH; a path must not depend on the folder of the rows.
        let program = match program.components().count() {
            1 => program.to_owned(),
            _ => std::path::absolute(program)
                .map_err(|cause| BenchError::Component { path: program.to_owned(), cause })?,
        };
        let folder = Folder::make(&guests, "doors")?;
        let doors = Self { program, component, folder, plan };
        doors.write("note", &"x".repeat(1_024))?;
        let reads = guests.join("files_read.wasm");
        let data = doors.folder.path();
        let config = format!(
            "entry = \"main\"\n[plugins.plain]\nsource = {:?}\n[plugins.reads]\nsource = {reads:?}\n\
             grants.files = [{{ dir = {data:?}, at = \"/data\", mode = \"read\" }}]\n\
             [plugins.echo]\nsource = {:?}\n[tasks.main]\nagent = \"echo\"\n",
            doors.component,
            guests.join("agent_echo.wasm"),
        );
        doors.write("conclave.toml", &config)?;
        Ok(doors)
    }

    fn write(&self, name: &str, text: &str) -> Result<PathBuf, BenchError> {
        let path = self.folder.path().join(name);
        std::fs::write(&path, text)
            .map_err(|cause| BenchError::Write { path: path.clone(), cause })?;
        Ok(path)
    }

    fn command(&self, program: impl AsRef<OsStr>, args: &[&OsStr]) -> Command {
        let mut command = Command::new(program);
        command.args(args).current_dir(self.folder.path());
        command
    }

    fn conclave(&self, args: &[&str]) -> Command {
        let mut command = self.command(&self.program, &["mcp", "conclave.toml"].map(OsStr::new));
        command.args(args).env("CONCLAVE_STATE", self.folder.path().join("state"));
        command
    }

    /// Returns Wassette with the component in its folder.
    fn wassette(&self) -> Command {
        let folder = self.folder.path().join("wassette");
        // A missing copy shows itself as a server without the tool.
        let _ = std::fs::create_dir_all(&folder)
            .and_then(|()| std::fs::copy(&self.component, folder.join("plain.wasm")));
        self.command("wassette", &["run".as_ref(), "--component-dir".as_ref(), folder.as_os_str()])
    }

    /// Returns a server with the package `@modelcontextprotocol/sdk`, which node finds by
    /// `CONCLAVE_BENCH_NODE`, a folder with `node_modules`.
    fn typescript(&self) -> Result<Command, BenchError> {
        let script = self.write("server.cjs", TYPESCRIPT_SERVER)?;
        let mut command = self.command("node", &[script.as_os_str()]);
        if let Some(folder) = std::env::var_os("CONCLAVE_BENCH_NODE") {
            command.env("NODE_PATH", PathBuf::from(folder).join("node_modules"));
        }
        Ok(command)
    }

    fn fastmcp(&self) -> Result<Command, BenchError> {
        let script = self.write("server.py", FASTMCP_SERVER)?;
        let python = std::env::var_os("CONCLAVE_BENCH_PYTHON").unwrap_or(OsString::from("python3"));
        Ok(self.command(python, &[script.as_os_str()]))
    }

    async fn beside(
        &self,
        what: &'static str,
        (does, reach): (&'static str, Reach),
        mut peer: Client,
    ) -> Result<Row, BenchError> {
        let mut subject = Client::start(self.conclave(&["--no-journal"]))?;
        let (of_peer, of_subject) = (Call::of(&peer)?, Call::greet());
        let (baseline, times) = measure::by_turns(
            self.plan,
            async || peer.call(&of_peer),
            async || subject.call(&of_subject),
        )
        .await?;
        let (baseline, subject) =
            (Side::new(does, baseline), Side::new("the program, a component in Rust", times));
        Ok(Row { what, baseline: Some(baseline), subject, reach })
    }

    /// Compares a call in the default journal with one without a journal, and a sync if it waits for
    /// one.
    async fn kept(
        &self,
        what: &'static str,
        call: &Call,
        sync: Sync,
        reach: Reach,
    ) -> Result<Row, BenchError> {
        let mut without = Client::start(self.conclave(&["--no-journal"]))?;
        let mut with = Client::start(self.conclave(&[]))?;
        let path = self.folder.path().join("sync");
        let failed = |cause| BenchError::Write { path: path.clone(), cause };
        let mut file = std::fs::File::create(&path).map_err(failed)?;
        let (baseline, times) = measure::by_turns(
            self.plan,
            async || {
                without.call(call)?;
                if sync == Sync::One {
                    file.write_all(&[0; 32 << 10])
                        .and_then(|()| file.sync_data())
                        .map_err(failed)?;
                }
                Ok(())
            },
            async || with.call(call),
        )
        .await?;
        let does = match sync {
            Sync::None => "without a journal",
            Sync::One => "without a journal, and one fsync",
        };
        let (baseline, subject) = (Side::new(does, baseline), Side::new("the program", times));
        Ok(Row { what, baseline: Some(baseline), subject, reach })
    }

    /// Returns the times of calls of which [`IN_FLIGHT`] are in flight, each as its share of a round.
    async fn at_once(&self, args: &[&str]) -> Result<Times, BenchError> {
        let mut client = Client::start(self.conclave(args))?;
        let call = Call::greet();
        let mut shares = Vec::new();
        measure::alone(self.plan, async || {
            let began = Instant::now();
            client.calls(&call, IN_FLIGHT)?;
            shares.push(began.elapsed() / u32::try_from(IN_FLIGHT).unwrap_or(u32::MAX));
            Ok(())
        })
        .await?;
        Ok(Times::of(shares))
    }
}

/// A call of about 1 KB.
struct Call {
    tool: String,
    arguments: Value,
}

impl Call {
    fn greet() -> Self {
        Self { tool: "plain.greet".to_owned(), arguments: json!({ "name": "x".repeat(1_024) }) }
    }

    fn read() -> Self {
        Self { tool: "reads.run".to_owned(), arguments: json!({ "path": "/data/note" }) }
    }

    /// Returns the call of a peer's tool, whose name ends with `greet`.
    fn of(peer: &Client) -> Result<Self, BenchError> {
        let tool = peer.tools.iter().find(|tool| tool.ends_with("greet"));
        let tool = tool.ok_or_else(|| BenchError::Answer(format!("tools: {:?}", peer.tools)))?;
        Ok(Self { tool: tool.clone(), ..Self::greet() })
    }
}

/// A client with its server, which ends with it.
struct Client {
    server: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    tools: Vec<String>,
    id: u64,
    line: String,
}

impl Client {
    /// Starts a server, and lists its tools.
    fn start(mut command: Command) -> Result<Self, BenchError> {
        let name = command.get_program().to_string_lossy().into_owned();
        let failed = |why: &dyn std::fmt::Display| BenchError::Answer(format!("{name}: {why}"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut server = command.spawn().map_err(|error| failed(&error))?;
        let (Some(to), Some(from)) = (server.stdin.take(), server.stdout.take()) else {
            return Err(failed(&"no pipes"));
        };
        let (from, tools) = (BufReader::new(from), Vec::new());
        let mut client = Self { server, to, from, tools, id: 0, line: String::new() };
        client.ask(
            "initialize",
            json!({
                "protocolVersion": "2025-06-18",
                "capabilities": {},
                "clientInfo": { "name": "bench", "version": "1" },
            }),
        )?;
        client.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }))?;
        let listed = client.ask("tools/list", json!({}))?;
        let names = listed["result"]["tools"].as_array().into_iter().flatten();
        client.tools = names.filter_map(|tool| Some(tool["name"].as_str()?.to_owned())).collect();
        Ok(client)
    }

    fn call(&mut self, call: &Call) -> Result<(), BenchError> {
        self.calls(call, 1)
    }

    /// Sends so many calls, and waits for all answers.
    fn calls(&mut self, call: &Call, count: usize) -> Result<(), BenchError> {
        for _ in 0..count {
            self.id += 1;
            let params = json!({ "name": call.tool, "arguments": call.arguments });
            let request = json!({ "jsonrpc": "2.0", "id": self.id, "method": "tools/call", "params": params });
            self.send(&request)?;
        }
        for _ in 0..count {
            self.read()?;
            if !self.line.contains("xxxx") || self.line.contains("\"isError\":true") {
                return Err(BenchError::Answer(self.line.chars().take(500).collect()));
            }
        }
        Ok(())
    }

    fn ask(&mut self, method: &str, params: Value) -> Result<Value, BenchError> {
        self.id += 1;
        self.send(&json!({ "jsonrpc": "2.0", "id": self.id, "method": method, "params": params }))?;
        self.read()?;
        serde_json::from_str(&self.line).map_err(|error| BenchError::Answer(error.to_string()))
    }

    fn send(&mut self, message: &Value) -> Result<(), BenchError> {
        // In one write, as clients send it.
        let line = format!("{message}\n");
        self.to.write_all(line.as_bytes()).map_err(|error| BenchError::Answer(error.to_string()))
    }

    /// Reads the next answer. Notifications of a server are skipped.
    fn read(&mut self) -> Result<(), BenchError> {
        loop {
            self.line.clear();
            match self.from.read_line(&mut self.line) {
                Ok(0) => return Err(BenchError::Answer("the server ended".to_owned())),
                Ok(_) if self.line.contains("\"method\"") && !self.line.contains("\"result\"") => {}
                Ok(_) => return Ok(()),
                Err(error) => return Err(BenchError::Answer(error.to_string())),
            }
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

const TYPESCRIPT_SERVER: &str = r#"
const { McpServer } = require("@modelcontextprotocol/sdk/server/mcp.js");
const { StdioServerTransport } = require("@modelcontextprotocol/sdk/server/stdio.js");
const { z } = require("zod");
const server = new McpServer({ name: "bench", version: "1" });
server.registerTool("greet", { inputSchema: { name: z.string() } }, async ({ name }) => ({
  content: [{ type: "text", text: `Hello, ${name}` }],
}));
server.connect(new StdioServerTransport());
"#;

const FASTMCP_SERVER: &str = r#"
from fastmcp import FastMCP
server = FastMCP("bench")
@server.tool
def greet(name: str) -> str:
    return f"Hello, {name}"
server.run(show_banner=False)
"#;
