//! Snippets with bash's own output as the oracle: `tests/data/shell`.
//!
//! `CONCLAVE_CORPUS=record cargo test -p conclave-plugin-terminal bash` records the output of this
//! machine's bash anew.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use conclave_sdk::testing::FakeHost;
use serde::{Deserialize, Serialize};

use super::run;

/// A script, or several for one shell.
#[derive(Deserialize)]
#[serde(untagged)]
enum Snippet {
    One(String),
    Several(Vec<String>),
}

/// Output and exit code; of several scripts, all output and the last code.
#[derive(Debug, Deserialize, PartialEq, Serialize)]
struct Answer {
    output: String,
    exit_code: i64,
}

/// Snippets by `group.name`.
type Snippets = BTreeMap<String, Vec<String>>;

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../tests/data/shell").join(name)
}

fn text(name: &str) -> String {
    fs::read_to_string(data(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn snippets() -> Snippets {
    let groups: BTreeMap<String, BTreeMap<String, Snippet>> =
        toml::from_str(&text("snippets.toml")).unwrap_or_else(|error| panic!("{error}"));
    let mut snippets = Snippets::new();
    for (group, named) in groups {
        for (name, snippet) in named {
            let scripts = match snippet {
                Snippet::One(script) => vec![script],
                Snippet::Several(scripts) => scripts,
            };
            snippets.insert(format!("{group}.{name}"), scripts);
        }
    }
    snippets
}

/// Returns the files of the working directory, by their path in it.
fn files() -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut folders = vec![data("files")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("the folder is in the repository").flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let name = path.strip_prefix(data("files")).expect("it is below").display().to_string();
            files.insert(name, fs::read(path).expect("it can be read"));
        }
    }
    files
}

/// Runs a snippet in the terminal.
fn in_terminal(scripts: &[String]) -> Answer {
    let mut host = FakeHost::new().writable("/work");
    for (name, content) in files() {
        host = host.file(&format!("/work/{name}"), content);
    }
    let mut answer = Answer { output: String::new(), exit_code: 0 };
    for script in scripts {
        let (output, exit_code) = run(&mut host, script);
        answer.output.push_str(&output);
        if !output.is_empty() {
            answer.output.push('\n');
        }
        answer.exit_code = exit_code;
    }
    answer
}

/// Runs a snippet in the machine's bash.
fn in_bash(scripts: &[String]) -> Answer {
    let folder = tempfile::tempdir().expect("a test can make a folder");
    let work = folder.path().join("work");
    for (name, content) in files() {
        let path = work.join(name);
        fs::create_dir_all(path.parent().expect("it is below")).expect("a test can make folders");
        fs::write(path, content).expect("a test can write files");
    }
    let output = Command::new("bash")
        .args(["--noprofile", "--norc", "-c"])
        .arg(format!("exec 2>&1\n{}", scripts.join("\n")))
        .env_clear()
        .envs([("PATH", "/usr/local/bin:/usr/bin:/bin"), ("LC_ALL", "C.UTF-8")])
        .env("HOME", folder.path())
        .current_dir(&work)
        .stdin(Stdio::null())
        .output()
        .expect("bash is on this machine");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let text = text.replace(&work.display().to_string(), "/work");
    let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    let exit_code = output.status.code().unwrap_or(-1).into();
    Answer { output: text + end, exit_code }
}

/// Removes what depends on how a shell is started, and on the locale: the name and the line in front
/// of an error, and the form of quotes in it.
fn comparable(answer: &Answer) -> Answer {
    let output = answer.output.replace(['\u{2018}', '\u{2019}'], "'");
    let line = |line: &str| match line.strip_prefix("bash: ") {
        Some(rest) => match rest.strip_prefix("line ").and_then(|rest| rest.split_once(": ")) {
            Some((number, rest)) if number.parse::<u32>().is_ok() => rest.to_owned(),
            _ => rest.to_owned(),
        },
        None => line.to_owned(),
    };
    let lines: Vec<String> = output.lines().map(line).collect();
    Answer { output: lines.join("\n"), exit_code: answer.exit_code }
}

#[test]
fn snippets_answer_as_bash_does() {
    let snippets = snippets();
    if std::env::var("CONCLAVE_CORPUS").as_deref() == Ok("record") {
        let recorded: BTreeMap<&String, Answer> =
            snippets.iter().map(|(name, scripts)| (name, in_bash(scripts))).collect();
        let json = serde_json::to_string_pretty(&recorded).expect("it has text keys");
        fs::write(data("bash.json"), json + "\n").expect("the repository can be written");
    }
    let recorded: BTreeMap<String, Answer> =
        serde_json::from_str(&text("bash.json")).expect("it was recorded");
    let differences: BTreeMap<String, String> =
        toml::from_str(&text("differences.toml")).unwrap_or_else(|error| panic!("{error}"));
    assert!(
        snippets.keys().eq(recorded.keys()),
        "snippets and bash.json do not match: record it anew with CONCLAVE_CORPUS=record"
    );
    let mut report = String::new();
    let mut differ = BTreeSet::new();
    for (name, scripts) in &snippets {
        let (terminal, bash) = (in_terminal(scripts), &recorded[name]);
        if comparable(&terminal) != comparable(bash) {
            differ.insert(name.clone());
            if !differences.contains_key(name) {
                report += &format!("{name}: {scripts:?}\n  here {terminal:?}\n  bash {bash:?}\n");
            }
        }
    }
    let listed: BTreeSet<String> = differences.into_keys().collect();
    let mended: Vec<&String> = listed.difference(&differ).collect();
    println!(
        "{} of {} snippets answer as bash does",
        snippets.len() - differ.len(),
        snippets.len()
    );
    assert!(report.is_empty(), "not in differences.toml:\n{report}");
    assert!(mended.is_empty(), "these no longer differ: {mended:?}");
    assert!(snippets.len() >= 150 && differ.len() * 20 <= snippets.len(), "{}", differ.len());
}
