//! Runs every `$ …` line of the documentation's `console` blocks, in the order of its page, in a
//! shell with `conclave` on its path.
//!
//! Each page has a stage: a folder with the files that the page mentions. A line may need a prior
//! event, such as a run in progress or a pending call. The stage produces it right before the line.
//! `ELSEWHERE` names the lines that are not run, with the reason. A new page or line runs without
//! an entry here and must exit with 0.

use std::process::{Child, Command, Output, Stdio};

use conclave_test_support::registry::TestRegistry;
use conclave_test_support::{Rig, cache, guest, guests, program};
use serde_json::Value;

use super::blocks::blocks;
use super::{read, root};
use crate::cli::text;
use crate::resume_cli::{kill, until};

/// Lines that no test runs, by their prefix, with the reason.
const ELSEWHERE: [(&str, &str); 26] = [
    (
        "cargo xtask ",
        "starts the tests themselves; xtask's own tests hold that these commands exist",
    ),
    ("cargo test", "the reader's own crate"),
    ("python3 -m venv ", "downloads a toolchain of another language"),
    ("cp docs/write-plugins/contract/", "prepares a build by a toolchain of another language"),
    ("venv/bin/componentize-py ", "a toolchain of another language"),
    ("npm install ", "downloads a toolchain of another language"),
    ("npx ", "a toolchain of another language"),
    ("conclave plugin new word-count", AUTHORING),
    ("conclave plugin new polite", AUTHORING),
    ("conclave plugin new my-gate", AUTHORING),
    ("conclave plugin new my-condenser", AUTHORING),
    ("conclave plugin new my-memory", AUTHORING),
    ("conclave plugin new my-analyzer", AUTHORING),
    ("conclave plugin new keeper", FIRST_AGENT),
    ("mkdir pages && echo", FIRST_AGENT),
    ("conclave run \"When was Skerryvore lit?\"", FIRST_AGENT),
    (
        "conclave run \"When is high water at Oban?\"",
        "played by `languages::the_pages_are_built_and_tested_as_they_are_written`",
    ),
    ("conclave plugin build", AUTHORING),
    ("conclave plugin test", AUTHORING),
    ("conclave run \"How many words has this?\"", AUTHORING),
    ("conclave run \"How tall is the light?\"", AUTHORING),
    (
        "conclave run conclave.toml \"What is here?\" --model https://",
        "reaches a server on the network",
    ),
    ("createdb ", DATABASE),
    ("echo 'db.example:", DATABASE),
    ("conclave run --store postgres://", DATABASE),
    ("conclave worker ", DATABASE),
];

const DATABASE: &str =
    "needs a database on another machine; `cargo xtask demo --cluster` has one of its own";

const FIRST_AGENT: &str =
    "played by `authoring::the_first_agent_of_the_page_is_built_tested_and_run`";
const AUTHORING: &str =
    "played by `authoring::a_plugin_of_each_kind_is_written_built_tested_and_run`";

/// Pages whose commands need a component that the reader builds.
const BUILT: [&str; 4] = [
    "docs/write-plugins/first-tool.md",
    "docs/write-plugins/strategy.md",
    "docs/write-plugins/observer.md",
    "docs/write-plugins/contract.md",
];

/// Lines with an exit code other than 0, by their prefix.
const ENDS_WITH: [(&str, &str, i32); 13] = [
    ("docs/use/operate.md", "conclave plugin call weather.wasm\n", 2),
    ("docs/use/operate.md", "conclave run conclave.toml \"How warm", 5),
    ("docs/use/operate.md", "conclave plugin upgrade weather", 6),
    ("docs/use/operate.md", "conclave plugin call stock:search read", 1),
    ("docs/use/operate.md", "conclave plugin call weather.wasm climb", 1),
    ("docs/use/lock.md", "conclave plugin upgrade notes", 6),
    ("docs/use/runs.md", "conclave approve RUN:CALL\n", 6),
    ("docs/use/runs.md", "conclave approve RUN:CALL --arguments", 6),
    ("docs/use/runs.md", "conclave can notes files", 1),
    ("docs/use/runs.md", "conclave can chat tools", 1),
    ("docs/use/runs.md", "conclave can weather fetch", 1),
    ("docs/use/runs.md", "conclave can weather secrets", 1),
    ("docs/use/operate.md", "conclave can weather files", 1),
];

/// A line of a page.
struct Line {
    page: String,
    place: String,
    command: String,
}

fn lines() -> Vec<Line> {
    let mut found: Vec<Line> = Vec::new();
    for block in blocks("console") {
        let mut continues = false;
        for (line, number) in block.text.lines().zip(block.line + 1..) {
            if continues {
                let last = found.last_mut().expect("a line that continues was begun");
                last.command.push('\n');
                last.command.push_str(line);
            } else if let Some(command) = line.strip_prefix("$ ") {
                let place = format!("{}:{number}", block.page);
                found.push(Line { page: block.page.clone(), place, command: command.to_owned() });
            } else {
                continue;
            }
            continues = line.ends_with('\\');
        }
    }
    found
}

/// The folder and the state of one page.
struct Stage {
    rig: Rig,
    page: String,
    under_way: Option<Child>,
    /// The registry that a page calls `registry.example`.
    registry: Option<TestRegistry>,
}

/// Returns a config whose agent calls a tool that needs an approval, then answers.
fn asking() -> String {
    format!(
        "entry = \"answer\"\n[tasks.answer]\nagent = \"actor\"\n[plugins.actor]\nsource = \"{}\"\ngrants.tools = [\"echo.*\"]\n\
         config = {{ script = [{{ call = \"echo.run\", arguments = {{ text = \"it ran\" }} }}] }}\n[plugins.echo]\nsource = \"{}\"\n\
         [[policy]]\ntool = \"echo.run\"\ndecide = \"ask\"\n",
        guest("acting_agent").display(),
        guest("echo").display()
    )
}

impl Stage {
    fn of(page: &str) -> Self {
        let weather = std::fs::read(guest("weather")).expect("guests are built before tests");
        let fetching =
            std::fs::read(guest("secret_sender")).expect("guests are built before tests");
        let rig = Rig::new().with_file("asking.toml", asking());
        let rig = match page {
            "README.md" => rig.with_file("stranger.wasm", weather),
            "docs/use/operate.md" | "docs/use/registry.md" => {
                rig.with_file("weather.wasm", weather)
            }
            "docs/use/runs.md" => rig
                .with_file("weather.wasm", fetching)
                .with_file("token.txt", "a token of the test")
                .with_file("hint.txt", "Look at the tower.\n")
                .with_file("library/page.md", "Skerryvore was first lit in 1844."),
            "docs/write-plugins/any-component.md" => {
                let program = std::fs::read(guest("plain_program")).expect("guests are built");
                rig.with_file("shout.wasm", program)
            }
            "docs/use/overlays.md" => {
                ["overlay.toml", "overlay-replies.json", "project/greet.sh", "project/test.sh"]
                    .iter()
                    .fold(rig, |rig, file| {
                        rig.with_file(file, read(&root().join("docs/examples").join(file)))
                    })
            }
            "docs/use/trace.md" => {
                let (config, folder) = ("docs/examples/demo.toml", root().join("docs"));
                let text = read(&root().join(config))
                    .replace("../../target/conclave/guests", &guests().display().to_string())
                    .replace("\"../../docs\"", &format!("{:?}", folder.display().to_string()));
                rig.with_file(config, text)
            }
            "docs/use/acting.md" => rig
                .with_file("FILE", read(&root().join("tests/data/trajectory/pairs-2024-07.json"))),
            _ => rig,
        };
        let mut stage = Self { rig, page: page.to_owned(), under_way: None, registry: None };
        match page {
            "docs/use/lock.md"
            | "docs/use/models.md"
            | "docs/use/background.md"
            | "docs/write-plugins/any-component.md" => {
                stage.hidden("conclave init");
            }
            "docs/use/registry.md" => stage.registry = Some(TestRegistry::start()),
            "docs/use/runs.md" => {
                stage.hidden("conclave init");
                stage.hidden("conclave add stock:notes --as notes --grant 'kv = true'");
                stage.hidden("conclave add ./weather.wasm --as weather --grant 'fetch = [\"https://api.met.no/*\"]'");
            }
            _ => {}
        }
        stage
    }

    fn shell(&self, line: &str) -> Command {
        let program = program();
        let folder = program.parent().expect("a program lies in a folder");
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = self.rig.bare("sh");
        command
            .args(["-c", line])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command.env("PATH", format!("{}:{path}", folder.display()));
        command.env("CONCLAVE_CACHE", cache()).env("CONCLAVE_STATE", self.rig.root().join("state"));
        if self.is_at_root() {
            command.current_dir(root());
        }
        command
    }

    /// Returns whether the page's lines name files of the repository.
    fn is_at_root(&self) -> bool {
        self.page == "docs/use/chat.md"
    }

    fn run(&self, line: &str) -> Output {
        self.shell(line).output().expect("a shell runs")
    }

    /// Runs a command that the page does not show and that must succeed. Returns its stdout.
    fn hidden(&mut self, line: &str) -> String {
        let output = self.run(line);
        assert!(
            output.status.success(),
            "{}: {line}\n{}{}",
            self.page,
            text(&output.stdout),
            text(&output.stderr)
        );
        text(&output.stdout)
    }

    fn json(&mut self, line: &str) -> Vec<Value> {
        self.hidden(&format!("{line} --json"))
            .lines()
            .map(|line| serde_json::from_str(line).expect("a line of JSON"))
            .collect()
    }

    /// Begins a run that waits for an approval, in its own process.
    fn begin_run(&mut self) {
        self.end_run();
        self.under_way = Some(
            self.shell("exec conclave run asking.toml 'Is it in season?' --approvals wait")
                .spawn()
                .expect("a shell runs"),
        );
        until("a call that waits", || (!self.run_ids("approvals").is_empty()).then_some(()));
    }

    fn run_ids(&mut self, what: &str) -> Vec<Value> {
        self.json(&format!("conclave {what}"))
    }

    /// Creates a run whose process was killed in the middle, and whose pending call was approved
    /// afterwards.
    fn cut_off_run(&mut self) {
        self.begin_run();
        kill(self.under_way.take().expect("it was begun"));
        let call = self.call();
        self.hidden(&format!("conclave approve {call} --yes"));
    }

    fn end_run(&mut self) {
        if let Some(child) = self.under_way.take() {
            kill(child);
            let run = self.newest();
            self.hidden(&format!("conclave stop {run}"));
        }
    }

    fn newest(&mut self) -> String {
        self.json("conclave runs")
            .first()
            .and_then(|run| run["run"].as_str().map(str::to_owned))
            .unwrap_or_default()
    }

    fn call(&mut self) -> String {
        self.json("conclave approvals")
            .first()
            .and_then(|call| call["id"].as_str().map(str::to_owned))
            .unwrap_or_default()
    }

    /// Produces the state that this line needs.
    fn before(&mut self, command: &str) {
        let is = |start: &str| command.starts_with(start);
        match self.page.as_str() {
            "README.md" if is("conclave why") => {
                self.hidden("conclave init desk.toml");
                self.hidden("conclave run desk.toml 'What is a grant?'");
            }
            "docs/use/acting.md" | "docs/use/runs.md" if is("conclave pause") => self.begin_run(),
            "docs/use/acting.md" if is("conclave trajectory export") => {
                self.cut_off_run();
                self.hidden("conclave resume --approvals wait");
            }
            "docs/use/acting.md" if is("conclave trajectory replay") => {
                self.hidden("sed 's/\"ask\"/\"allow\"/' asking.toml > conclave.toml");
            }
            // Produces a denial: the search has no access to the parent folder.
            "docs/use/runs.md" if is("conclave why 3f2a:17") => {
                self.hidden("conclave run conclave.toml 'What is a grant?'");
            }
            "docs/use/runs.md" if is("conclave resume") && self.under_way.is_none() => {
                self.cut_off_run()
            }
            "docs/use/runs.md"
                if is("conclave approvals") || is("conclave approve") || is("conclave refuse") =>
            {
                self.begin_run()
            }
            "docs/use/operate.md" if is("conclave run conclave.toml \"How warm") => {
                let lock = self.rig.folder().join("conclave.lock");
                let pinned = read(&lock);
                assert!(pinned.contains("Climbs out of its folder."), "{pinned}");
                std::fs::write(&lock, pinned.replace("Climbs out of its folder.", "Climbs."))
                    .expect("the lock can be written");
            }
            "docs/use/operate.md" if is("conclave grant chat") => {
                self.hidden("conclave plugin upgrade weather --yes");
            }
            "docs/use/operate.md" if is("conclave revoke weather files") => {
                self.hidden("conclave grant weather 'files = [\"library\"]'");
            }
            "docs/use/operate.md" if is("conclave why") => {
                self.hidden("conclave run conclave.toml 'What is a grant?'");
            }
            "docs/use/operate.md" if is("conclave resume") || is("conclave stop") => {
                self.cut_off_run()
            }
            "docs/use/lock.md" if is("conclave plugin upgrade notes") => {
                self.hidden("conclave add stock:notes --as notes --grant 'kv = true'");
                let lock = self.rig.folder().join("conclave.lock");
                let pinned = read(&lock);
                std::fs::write(&lock, pinned.replace("Keeps", "Kept"))
                    .expect("the lock can be written");
            }
            _ => {}
        }
    }

    /// Returns the line with the page's run, call and event replaced by those of this stage.
    fn fitted(&mut self, command: &str) -> String {
        let mut command = command.replace("/path/to/conclave", &root().display().to_string());
        // The page's call belongs to another tool than the stage's.
        command = command.replace(r#"{"path": "/notes/a.md"}"#, r#"{"text": "other words"}"#);
        if let Some(registry) = &self.registry {
            command = command.replace("registry.example", &registry.host());
        }
        if command.contains("3f2a91c0:c7") {
            command = command.replace("3f2a91c0:c7", &self.call());
        }
        if ["3f2a", "RUN"].iter().any(|name| command.contains(name)) {
            let run = self.newest();
            command = command
                .replace("3f2a91c0", &run)
                .replace("3f2a:17", &format!("{run}:3"))
                .replace("3f2a", &run)
                .replace("RUN", &run);
        }
        command
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if let Some(child) = self.under_way.take() {
            kill(child);
        }
    }
}

/// Returns the exit code of the line: from the table, or 0.
fn expected(page: &str, command: &str) -> i32 {
    let whole = format!("{}\n", command.split("  #").next().unwrap_or_default().trim_end());
    let shown = whole.replace("3f2a91c0:c7", "RUN:CALL");
    ENDS_WITH
        .iter()
        .find(|(on, start, _)| *on == page && shown.starts_with(start))
        .map_or(0, |(_, _, code)| *code)
}

#[test]
fn every_command_in_the_pages_runs() {
    let mut stage: Option<Stage> = None;
    let mut problems = Vec::new();
    let mut ran = 0;
    for line in lines() {
        let is_elsewhere = ELSEWHERE.iter().any(|(start, _)| line.command.starts_with(start));
        if is_elsewhere || BUILT.contains(&line.page.as_str()) {
            continue;
        }
        if stage.as_ref().is_none_or(|stage| stage.page != line.page) {
            stage = Some(Stage::of(&line.page));
        }
        let stage = stage.as_mut().expect("a page has a stage");
        stage.before(&line.command);
        let fitted = stage.fitted(&line.command);
        let output = stage.run(&fitted);
        ran += 1;
        let code = expected(&line.page, &line.command);
        if output.status.code() != Some(code) {
            let ended = output.status.code();
            let said = format!("{}{}", text(&output.stdout), text(&output.stderr));
            problems.push(format!(
                "{}: $ {}\nended with {ended:?}, not {code}:\n{said}",
                line.place, line.command
            ));
        }
    }
    assert!(problems.is_empty(), "\n{}", problems.join("\n"));
    assert!(ran > 45, "{ran}");
}

/// Follows the page about a first tool as a reader does: its files, built by its commands, without
/// a network.
#[test]
fn a_first_tool_is_built_and_run() {
    let page = "docs/write-plugins/first-tool.md";
    let stage = Stage::of(page);
    let crate_of_page = stage.rig.folder().join("tides");
    let mut built = 0;
    for line in lines().iter().filter(|line| line.page == page) {
        // A watching command never ends.
        if line.command.contains("watch") {
            continue;
        }
        built += 1;
        let folder = if built == 1 { "." } else { "tides" };
        let sdk = format!("plugin new tides --sdk {}", root().display());
        let command = line.command.replace("plugin new tides", &sdk);
        let output = stage.shell(&format!("cd {folder} && {command}"));
        let output = offline(output).output().expect("a shell runs");
        assert!(
            output.status.success(),
            "{}: $ {}\n{}{}",
            line.place,
            line.command,
            text(&output.stdout),
            text(&output.stderr)
        );
        if built == 1 {
            write_files_of(page, &crate_of_page);
        }
        let said = text(&output.stdout);
        match line.command.split_once("conclave ") {
            Some((_, "plugin test")) => assert!(said.ends_with("2 cases: 0 failed\n"), "{said}"),
            Some((_, command)) if command.starts_with("run") => {
                assert_eq!(said, "High water at Oban is at 06:12 and 18:40.\n");
            }
            _ => {}
        }
    }
    assert_eq!(built, 8);
}

/// Builds offline from the workspace's dependencies and without optimization, because only the
/// behavior is tested.
fn offline(mut command: Command) -> Command {
    for name in ["HOME", "CARGO_HOME", "RUSTUP_HOME", "RUSTUP_TOOLCHAIN"] {
        command.envs(std::env::var_os(name).map(|value| (name, value)));
    }
    command.env("CARGO_NET_OFFLINE", "true");
    command
        .env("CARGO_PROFILE_RELEASE_LTO", "off")
        .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "0")
        .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16");
    command
}

/// Writes the files that the page shows.
fn write_files_of(page: &str, folder: &std::path::Path) {
    let mut written = 0;
    for block in ["toml", "rust", "json"].into_iter().flat_map(blocks) {
        if block.page == page && !block.label().is_empty() {
            let file = folder.join(block.label());
            std::fs::write(file, block.text).expect("a test can write a file");
            written += 1;
        }
    }
    assert_eq!(written, 5);
    // Uses dependencies that an earlier run of the tests built.
    let warm = conclave_test_support::stock().join("../first-tool");
    std::fs::create_dir_all(&warm).expect("a test can make a folder");
    std::os::unix::fs::symlink(&warm, folder.join("target")).expect("a test can make a link");
}

/// Checks that every exception in the tables matches a line of a page.
#[test]
fn exceptions_are_lines_of_pages() {
    let lines = lines();
    for (start, _) in ELSEWHERE {
        assert!(
            lines.iter().any(|line| line.command.starts_with(start)),
            "no page has a line that begins `{start}`"
        );
    }
    for (page, start, _) in ENDS_WITH {
        let found = lines.iter().any(|line| {
            let shown =
                format!("{}\n", line.command.split("  #").next().unwrap_or_default().trim_end());
            line.page == page && shown.replace("3f2a91c0:c7", "RUN:CALL").starts_with(start)
        });
        assert!(found, "{page} has no line that begins `{start}`");
    }
}
