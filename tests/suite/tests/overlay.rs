//! Folders that are granted as overlays, played with the program: hostile guests, a terminal whose
//! run is killed, and a person who reads, applies and drops the changes.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use conclave_models::test_server::{Server, TestReply};
use conclave_test_support::{
    Rig, TestPostgres, calling, guest, postgres_or_skip, stock, toml_inline,
};
use serde_json::{Value, json};

use crate::cli::text;
use crate::resume_cli::{command, conclave, start};

const OVERLAY: &str = r#"grants.files = [{ dir = "data", at = "/folder", mode = "overlay" }]"#;

/// Runs a tool of a guest on the folder `data`, and returns its answer.
fn called(rig: &Rig, guest: &str, tool: &str, arguments: &Value, grant: &str) -> String {
    played(rig, &calling(guest, tool, arguments, grant))
}

/// Runs a config, and returns its answer.
fn played(rig: &Rig, config: &str) -> String {
    played_by(rig, config, |command| command)
}

/// Does the same, with a change to the command.
fn played_by(rig: &Rig, config: &str, change: impl Fn(&mut Command) -> &mut Command) -> String {
    std::fs::write(rig.folder().join("c.toml"), config).expect("it is written");
    let mut command = command(rig, &["run", "c.toml", "go", "--quiet"]);
    let output = change(&mut command).output().expect("the program runs");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    text(&output.stdout)
}

fn pairs(answer: &str) -> Vec<(String, String)> {
    serde_json::from_str(answer).unwrap_or_else(|error| panic!("{error}: {answer}"))
}

/// Returns the runs of the state folder, newest first.
fn runs(rig: &Rig) -> Vec<Value> {
    let output = conclave(rig, &["runs", "--json"]);
    let lines = text(&output.stdout);
    lines.lines().map(|line| serde_json::from_str(line).expect("it is JSON")).collect()
}

fn newest(rig: &Rig) -> String {
    runs(rig)[0]["run"].as_str().expect("it has a name").to_owned()
}

fn read(rig: &Rig, path: &str) -> String {
    let path = rig.folder().join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns the changes of a run, as the program writes them for scripts.
fn changes(rig: &Rig, run: &str) -> Vec<Value> {
    let output = conclave(rig, &["diff", run, "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    text(&output.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).expect("it is JSON"))
        .collect()
}

fn trapped() -> Rig {
    let rig = Rig::new()
        .with_file("data/a.txt", "inside")
        .with_file("data/sub/b.txt", "inside")
        .with_file("secret", "OUTSIDE");
    #[cfg(unix)]
    for (link, to) in [("link-up", "../secret"), ("link-dir", ".."), ("link-inside", "a.txt")] {
        std::os::unix::fs::symlink(to, rig.folder().join("data").join(link))
            .expect("a link can be made");
    }
    rig
}

fn assert_unharmed(rig: &Rig) {
    let (one, two) = (read(rig, "data/a.txt"), read(rig, "data/sub/b.txt"));
    assert_eq!(
        (one.as_str(), two.as_str(), read(rig, "secret").as_str()),
        ("inside", "inside", "OUTSIDE")
    );
    let names = std::fs::read_dir(rig.folder().join("data")).expect("it is there");
    assert!(names.count() <= 5, "nothing was added");
}

#[cfg(unix)]
#[test]
fn no_path_leads_out_of_an_overlay() {
    let rig = trapped();
    no_path_leads_out(&rig, |guest| called(&rig, guest, "run", &json!({}), OVERLAY));
}

#[cfg(unix)]
fn no_path_leads_out(rig: &Rig, run: impl Fn(&str) -> String) {
    let tried = pairs(&run("overlay_escape"));
    assert_eq!(tried.len(), 12);
    for (path, result) in &tried {
        assert!(!result.contains("READ"), "{path}: {result}");
        assert_eq!(result.matches("Denied").count(), 3, "{path}: {result}");
    }
    let tried = pairs(&run("files_write_escape"));
    for (path, result) in tried.iter().filter(|(path, _)| {
        // The rig has no such traps, and these names are files like any other.
        !["hard", "pipe", "socket", "device", "link-to-new", "link-absolute", "link-loop"]
            .iter()
            .any(|name| path.ends_with(name))
    }) {
        let refused = ["WROTE", "PATCHED", "MADE", "REMOVED"];
        assert!(!refused.iter().any(|done| result.contains(done)), "{path}: {result}");
    }
    assert_unharmed(rig);
}

#[cfg(unix)]
#[test]
fn a_database_opens_no_way_out_of_an_overlay() {
    let Some(database) = postgres_or_skip(TestPostgres::shared()) else { return };
    let rig = trapped();
    let store = database.url();
    let called = |guest: &str, tool: &str, arguments: &Value, grant: &str| {
        let config = calling(guest, tool, arguments, grant);
        played_by(&rig, &config, |command| command.env("CONCLAVE_STORE", &store))
    };
    no_path_leads_out(&rig, |guest| called(guest, "run", &json!({}), OVERLAY));
    let count = || {
        let rows = database.query(&["SELECT count(*) FROM conclave.overlay_files"]);
        rows.expect("the database answers").trim().to_owned()
    };
    let before = count();
    let answer = called("overlay_escape", "churn", &json!({ "times": 20 }), OVERLAY);
    assert_eq!((answer.trim(), count()), ("done", before));
    let grant = r#"grants.files = [{ dir = "data", at = "/folder", mode = "overlay", bytes = "10 kB", files = 20 }]"#;
    for (way, most) in [("bytes", "10"), ("files", "20")] {
        let answer = called("files_quota", "run", &json!({ "way": way }), grant);
        assert!(answer.starts_with(most) && answer.contains("QuotaExceeded"), "{way}: {answer}");
    }
    assert_unharmed(&rig);
}

#[cfg(unix)]
#[test]
fn a_removed_file_stays_removed_under_every_name() {
    let rig = trapped();
    let answers = pairs(&called(&rig, "overlay_escape", "resurrect", &json!({}), OVERLAY));
    let answers: Vec<&str> = answers.iter().map(|(_, answer)| answer.as_str()).collect();
    let [removed, direct, by_link, listed, patched, content, again] = answers[..] else {
        panic!("{answers:?}")
    };
    assert_eq!((removed, patched), ("Ok(())", "Ok(4)"));
    assert!(direct.contains("NotFound") && by_link.contains("NotFound"), "{answers:?}");
    assert_eq!(listed, "READ sub", "neither the file nor the link to it");
    assert_eq!(content, "READ \0\0\0x");
    assert!(again.starts_with("Ok(())") && again.contains("NotFound"), "{again}");
    assert_unharmed(&rig);
    let changes = changes(&rig, &newest(&rig));
    assert_eq!(changes.len(), 1);
    assert_eq!((&changes[0]["path"], &changes[0]["change"]), (&json!("a.txt"), &json!("removed")));
}

#[cfg(unix)]
#[test]
fn records_that_a_guest_forges_are_files_like_any_other() {
    let rig = trapped();
    let answers = pairs(&called(&rig, "overlay_escape", "forge", &json!({}), OVERLAY));
    let (files, forged) = answers
        .split_last_chunk::<2>()
        .map(|(forged, files)| (files, forged))
        .expect("nine answers");
    for (path, result) in forged {
        assert_eq!(result, "Ok(()) true", "{path}");
    }
    assert!(files.iter().all(|(_, content)| content == "READ inside"), "{files:?}");
    let paths: Vec<String> = changes(&rig, &newest(&rig))
        .iter()
        .map(|change| change["path"].as_str().unwrap_or_default().to_owned())
        .collect();
    assert_eq!(paths.len(), 7, "{paths:?}");
    assert_unharmed(&rig);
}

#[test]
fn the_quota_counts_what_the_run_changed_in_whatever_way() {
    let grant = r#"grants.files = [{ dir = "data", at = "/folder", mode = "overlay", bytes = "10 kB", files = 20 }]"#;
    for (way, most) in [
        ("bytes", 10),
        ("append", 10),
        ("sparse", 1),
        ("cut", 2),
        ("files", 20),
        ("directories", 20),
    ] {
        let rig = Rig::new().with_file("data/large", [0; 20_000]);
        let answer = called(&rig, "files_quota", "run", &json!({ "way": way }), grant);
        let (steps, how) = answer.split_once(": ").unwrap_or_else(|| panic!("{way}: {answer}"));
        assert!(how.contains("QuotaExceeded"), "{way}: {how}");
        assert_eq!(steps.parse::<u32>().ok(), Some(most), "{way}");
        let stored = rig.folder().join("state/stores/1/overlays");
        assert!(bytes_below(&stored) < 20_000, "{way}: {} bytes", bytes_below(&stored));
        assert_eq!(std::fs::read_dir(rig.folder().join("data")).expect("it is there").count(), 1);
    }
    let rig = Rig::new().with_file("data/a.txt", "inside");
    let limits = format!("{OVERLAY}\nlimits = {{ cpu = \"20 s\", wall = \"100 s\" }}");
    let answer = called(&rig, "overlay_escape", "churn", &json!({ "times": 300 }), &limits);
    assert_eq!(answer.trim(), "done");
    let stored = bytes_below(&rig.folder().join("state/stores/1/overlays"));
    assert!(stored < 40_000, "{stored} bytes for no change");
    assert_eq!(runs(&rig)[0]["pending_changes"], 0);
}

fn bytes_below(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let sizes = entries.map(|entry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => bytes_below(&entry.path()),
        metadata => metadata.map_or(0, |metadata| metadata.len()),
    });
    sizes.sum()
}

/// Returns a config of an agent that calls tools of two plugins, which were both granted the folder
/// as an overlay.
fn two_plugins(script: &Value) -> String {
    let plugin = |name: &str, component: &str| {
        format!(
            "[plugins.{name}]\nsource = \"{}\"\n{OVERLAY}\n[[policy]]\ntool = \"{name}.*\"\ndecide = \"allow\"\n",
            guest(component).display()
        )
    };
    format!(
        "entry = \"main\"\n[tasks.main]\nagent = \"actor\"\n[plugins.actor]\nsource = \"{}\"\n\
         grants.tools = [\"writer.*\", \"reader.*\"]\nconfig = {}\n{}{}",
        guest("acting_agent").display(),
        toml_inline(&json!({ "script": script })),
        plugin("writer", "overlay_escape"),
        plugin("reader", "files_read"),
    )
}

#[cfg(unix)]
#[test]
fn the_plugins_of_a_run_share_its_overlay_and_another_run_has_its_own() {
    let rig = trapped();
    let reads = json!({ "call": "reader.run", "arguments": { "path": "/folder/sub/work" } });
    let writes = json!({ "call": "writer.forge", "arguments": {} });
    let config = |script| two_plugins(&script);
    let write = |text: String| std::fs::write(rig.folder().join("c.toml"), text).expect("written");
    write(config(json!([writes, reads])));
    let output = conclave(&rig, &["run", "c.toml", "go", "--json"]);
    assert!(text(&output.stdout).contains("reverted"), "{}", text(&output.stdout));
    let first = newest(&rig);
    write(config(json!([reads])));
    let output = conclave(&rig, &["run", "c.toml", "go", "--json"]);
    let seen = text(&output.stdout);
    assert!(seen.contains("reader.run") && !seen.contains("reverted"), "{seen}");
    assert_eq!(changes(&rig, &first).len(), 7);
    assert_eq!(runs(&rig)[0]["pending_changes"], 0);
}

/// A model server that stops answering after some replies until it is released.
pub(crate) struct Model {
    pub(crate) server: Server,
    is_released: Arc<AtomicBool>,
}

impl Model {
    pub(crate) fn start(replies: &'static [&'static str], silent_at: usize) -> Self {
        let is_released = Arc::new(AtomicBool::new(false));
        let (released, given) = (Arc::clone(&is_released), AtomicUsize::new(0));
        let server = Server::answering(move |_| {
            let next = given.load(Ordering::SeqCst);
            if next == silent_at && !released.load(Ordering::SeqCst) {
                return TestReply::silence();
            }
            given.store(next + 1, Ordering::SeqCst);
            TestReply::says(replies.get(next).copied().unwrap_or("no more replies"))
        });
        Self { server, is_released }
    }

    /// Answers what it was silent about.
    pub(crate) fn release(&self) {
        self.is_released.store(true, Ordering::SeqCst);
    }

    /// Returns a rig with a project, and the config of an agent with a terminal in an overlay of it.
    pub(crate) fn rig(&self) -> Rig {
        Rig::new()
            .with_file("project/greet.sh", "echo Helo\n")
            .with_file("project/old.txt", "old\n")
            .with_file(
                "c.toml",
                format!(
                    "entry = \"fix\"\n[models.default]\nkind = \"openai\"\nurl = \"{}\"\nmodel = \"m\"\n\
                     [plugins.planner]\nsource = \"{}\"\ngrants.model = [\"default\"]\ngrants.tools = [\"terminal.*\"]\n\
                     [plugins.terminal]\nsource = \"{}\"\ngrants.files = [{{ dir = \"project\", at = \"/project\", mode = \"overlay\" }}]\n\
                     limits = {{ cpu = \"20 s\", scratch = \"512 KiB\" }}\n\
                     [tasks.fix]\nagent = \"planner\"\naction_plugins = [\"terminal\"]\nstuck_detection = false\n",
                    self.server.url(),
                    guest("planner").display(),
                    stock().join("terminal.wasm").display(),
                ),
            )
    }
}

pub(crate) const FIX: [&str; 5] = [
    r#"{"action": "add_task", "args": {"parent": "", "goal": "Fix", "subtasks": [{"goal": "One"}, {"goal": "Two"}]}}"#,
    r#"{"action": "run", "args": {"command": "cd /project && sed -i s/Helo/Hello/ greet.sh && mkdir -p new && echo n > new/n && rm old.txt"}}"#,
    r#"{"action": "finish", "args": {"outputs": {"answer": "one"}}}"#,
    r#"{"action": "run", "args": {"command": "sh greet.sh >> new/n; ls old.txt; cat new/n /proc/self/environ"}}"#,
    r#"{"action": "finish", "args": {"outputs": {"answer": "two"}}}"#,
];

#[test]
fn a_killed_run_resumes_with_its_changes_and_a_person_applies_them() {
    let model = Model::start(&FIX, 2);
    let rig = model.rig();
    let child = start(&rig, &["run", "c.toml", "Fix it."]);
    model.server.wait_for_requests(3);
    let run = newest(&rig);
    // A live run's changes can be read, and neither applied nor dropped.
    assert_eq!(changes(&rig, &run).len(), 3);
    for way in ["--apply", "--drop"] {
        let output = conclave(&rig, &["diff", &run, way, "--yes"]);
        assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    }
    rig.kill(child);
    model.release();
    let output = conclave(&rig, &["resume", &run, "--json"]);
    let seen = text(&output.stdout);
    assert!(seen.contains("n\\nHello\\n") || seen.contains("n\\\\nHello\\\\n"), "{seen}");
    assert!(!seen.contains("CONCLAVE_STATE"), "nothing of the host's environment: {seen}");
    let result: Value = serde_json::from_str(seen.lines().last().expect("a line")).expect("JSON");
    assert_eq!((&result["type"], &result["pending_changes"]), (&json!("result"), &json!(3)));
    assert_eq!(read(&rig, "project/greet.sh"), "echo Helo\n");

    let shown = text(&conclave(&rig, &["diff", &run]).stdout);
    let expected = "diff --git a/greet.sh b/greet.sh\n--- a/greet.sh\n+++ b/greet.sh\n@@ -1 +1 @@\n-echo Helo\n+echo Hello\n\
                    diff --git a/new/n b/new/n\nnew file mode 100644\n--- /dev/null\n+++ b/new/n\n@@ -0,0 +1,2 @@\n+n\n+Hello\n\
                    diff --git a/old.txt b/old.txt\ndeleted file mode 100644\n--- a/old.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-old\n";
    assert_eq!(shown, expected);
    // Without a terminal nothing is applied before somebody says so.
    let output = conclave(&rig, &["diff", &run, "--apply"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(rig.folder().join("project/old.txt").exists());
    let output = conclave(&rig, &["diff", &run, "--apply", "--yes"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(read(&rig, "project/greet.sh"), "echo Hello\n");
    assert_eq!(read(&rig, "project/new/n"), "n\nHello\n");
    assert!(!rig.folder().join("project/old.txt").exists());
    assert_eq!(runs(&rig)[0]["pending_changes"], 0);
    assert!(changes(&rig, &run).is_empty());

    // Who applied what, and when, stays.
    let applied = "3 changed files of project applied by operator";
    let output = conclave(&rig, &["diff", &run, "--apply", "--yes"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(text(&output.stderr).contains(applied), "{}", text(&output.stderr));
    assert!(text(&conclave(&rig, &["show", &run]).stdout).contains(applied));
    assert!(text(&conclave(&rig, &["runs"]).stdout).contains("done, applied"));
    let output = conclave(&rig, &["audit", &run, "--kind", "changes-applied", "--json"]);
    let entry: Value = serde_json::from_str(text(&output.stdout).trim()).expect("one entry");
    assert_eq!(entry["message"], "project: greet.sh, new/n, old.txt");
    assert_eq!((&entry["principal"], &entry["seq"]), (&json!("operator"), &Value::Null));
    // The audit distinguishes writes into an overlay. `sed -i` is one write, without a temporary file.
    let output = conclave(&rig, &["audit", &run, "--kind", "side-effect", "--json"]);
    let lines = text(&output.stdout);
    let entries = lines.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let mut told: Vec<String> =
        entries.map(|entry| entry["message"].as_str().expect("a text").to_owned()).collect();
    told.truncate(3);
    let expected = [
        "writes 11 B to an overlay: /project/greet.sh",
        "writes 2 B to an overlay: /project/new/n",
        "removes in an overlay: /project/old.txt",
    ];
    assert_eq!(told, expected);
    let shown = text(&conclave(&rig, &["show", &run]).stdout);
    assert!(shown.contains("write to overlay"), "{shown}");
    // With the run its decisions are removed.
    let output = conclave(&rig, &["store", "gc", "--keep", "0", "--yes"]);
    assert!(text(&output.stdout).contains("removed 1 run"), "{}", text(&output.stdout));
    let left = std::fs::read_dir(rig.folder().join("state/stores/1/overlays"));
    assert_eq!(left.map_or(0, Iterator::count), 0);
}

const BINARY: [&str; 4] = [
    FIX[0],
    r#"{"action": "run", "args": {"command": "cd /project && printf 'a\\0b' > new.bin && sed -i s/Helo/Hello/ greet.sh && echo old > old.txt"}}"#,
    FIX[2],
    FIX[4],
];

#[test]
fn a_patch_has_the_texts_beside_a_binary_file() {
    let model = Model::start(&BINARY, usize::MAX);
    let rig = model.rig();
    let output = conclave(&rig, &["run", "c.toml", "Fix it."]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    // Without a name it is the newest run with changes.
    let output = conclave(&rig, &["diff"]);
    let said = text(&output.stderr);
    assert!(said.contains("not in the patch: new.bin: a binary file, none -> 3 B"), "{said}");
    assert!(said.contains("not in the patch: old.txt: the same as in the folder"), "{said}");
    std::fs::write(rig.folder().join("p.patch"), &output.stdout).expect("it is written");
    let applied = Command::new("git")
        .args(["apply", "../p.patch"])
        .current_dir(rig.folder().join("project"))
        .output()
        .expect("git is there");
    assert!(applied.status.success(), "{}", text(&applied.stderr));
    assert_eq!(read(&rig, "project/greet.sh"), "echo Hello\n");
    // Without a run that has changes, it says so.
    let run = newest(&rig);
    let output = conclave(&rig, &["diff", &run, "--drop", "--yes"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let output = conclave(&rig, &["diff"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("no run has changes"), "{}", text(&output.stderr));
    let output = conclave(&rig, &["diff", "--json"]);
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(0), String::new()));
}

#[test]
fn a_folder_that_changed_meanwhile_is_not_overwritten_and_changes_are_not_lost() {
    let model = Model::start(&FIX, usize::MAX);
    let rig = model.rig();
    let output = conclave(&rig, &["run", "c.toml", "Fix it."]);
    let run = newest(&rig);
    let line = format!("3 changed files wait to be applied or dropped: conclave diff {run}");
    assert_eq!(text(&output.stderr).lines().last(), Some(line.as_str()));
    assert!(text(&output.stderr).contains("to an overlay"), "{}", text(&output.stderr));
    assert!(text(&conclave(&rig, &["show", &run]).stdout).contains("conclave diff"));
    // Elsewhere the folder is named, and nothing else is proposed.
    let (here, elsewhere) = (rig.folder().join("project"), rig.folder().join("moved"));
    std::fs::rename(&here, &elsewhere).expect("it is moved");
    let output = conclave(&rig, &["diff", &run, "--apply", "--yes"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("project is not there") && said.contains("move it back"), "{said}");
    std::fs::rename(&elsewhere, &here).expect("it is moved back");
    std::fs::write(rig.folder().join("project/greet.sh"), "echo mine\n").expect("it is written");
    let output = conclave(&rig, &["diff", &run, "--apply", "--yes"]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(said.contains("greet.sh: the file in the folder has changed"), "{said}");
    assert!(said.contains(&format!("conclave diff {run} greet.sh --drop")), "{said}");
    assert_eq!(read(&rig, "project/old.txt"), "old\n");
    // A copy of the store has the changes too.
    let output = conclave(&rig, &["store", "backup", "copy"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let output = conclave(&rig, &["diff", &run, "new", "--store", "copy/stores/1"]);
    assert!(text(&output.stdout).ends_with("+n\n+Hello\n"), "{}", text(&output.stdout));
    // No clean-up removes the run.
    let output = conclave(&rig, &["store", "gc", "--keep", "0", "--yes"]);
    assert!(text(&output.stdout).contains(&format!("kept {run}")), "{}", text(&output.stdout));
    let output = conclave(&rig, &["diff", &run, "greet.sh", "--drop", "--yes"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let output = conclave(&rig, &["diff", &run, "--apply", "--yes"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(read(&rig, "project/greet.sh"), "echo mine\n");
    assert_eq!(read(&rig, "project/new/n"), "n\nHello\n");
    let output = conclave(&rig, &["store", "gc", "--keep", "0", "--yes"]);
    assert!(text(&output.stdout).contains("removed 1 run"), "{}", text(&output.stdout));
}

#[test]
fn a_run_that_is_not_stored_gets_no_overlay() {
    let rig = Rig::new().with_file("data/a", "");
    let config = calling("overlay_escape", "run", &json!({}), OVERLAY);
    std::fs::write(rig.folder().join("c.toml"), config).expect("it is written");
    for options in [&["--no-journal"][..], &["--journal", "lines"]] {
        let output = conclave(&rig, &[&["run", "c.toml", "go"], options].concat());
        assert_eq!(output.status.code(), Some(2));
        let said = text(&output.stderr);
        assert!(said.contains("plugins.subject.grants.files: an overlay"), "{said}");
    }
}
