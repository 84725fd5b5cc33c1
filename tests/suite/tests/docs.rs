//! The claims of the documentation: links lead to existing targets, tables name existing tests,
//! examples load, and the page of config keys is generated from the keys.

mod blocks;
mod codes;
mod commands;
mod configs;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use conclave_core::config::{Config, KEYS, KeyDefault};
use conclave_core::protocol::notice::Notice;
use conclave_core::types::outcome::Status;
use conclave_test_support::{Rig, guests};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .expect("the repository is there")
}

fn pages() -> Vec<PathBuf> {
    let mut pages = Vec::new();
    let mut folders = vec![root().join("docs")];
    pages.extend(
        [
            "README.md",
            "ARCHITECTURE.md",
            "SECURITY.md",
            "CONTRIBUTING.md",
            "tests/guests/README.md",
        ]
        .map(|page| root().join(page)),
    );
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("it is a folder").flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                pages.push(path);
            }
        }
    }
    pages
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn every_link_to_a_file_leads_somewhere() {
    let mut links = 0;
    for page in pages() {
        for part in read(&page).split("](").skip(1) {
            let Some((target, _)) = part.split_once(')') else { continue };
            let file = target.split('#').next().unwrap_or_default();
            if file.is_empty() || file.contains("://") || file.contains(' ') {
                continue;
            }
            links += 1;
            let linked = page.parent().expect("a page lies in a folder").join(file);
            assert!(linked.exists(), "{} links to {file}, which is not there", page.display());
        }
    }
    assert!(links > 20, "{links}");
}

#[test]
fn every_link_to_a_heading_leads_somewhere() {
    let mut links = 0;
    for page in pages() {
        for part in read(&page).split("](").skip(1) {
            let Some((file, heading)) =
                part.split_once(')').and_then(|(target, _)| target.split_once('#'))
            else {
                continue;
            };
            if file.contains("://")
                || file.contains(' ')
                || !(file.is_empty() || file.ends_with(".md"))
            {
                continue;
            }
            links += 1;
            let folder = page.parent().expect("a page lies in a folder");
            let linked = if file.is_empty() { page.clone() } else { folder.join(file) };
            let is_there = headings(&read(&linked)).any(|known| known == heading);
            assert!(is_there, "{} links to {file}#{heading}, which is not there", page.display());
        }
    }
    assert!(links > 40, "{links}");
}

/// Returns the anchors that GitHub gives the headings of a page, without those of repeated
/// headings.
fn headings(page: &str) -> impl Iterator<Item = String> {
    let mut is_open = false;
    let lines = page.lines().filter(move |line| {
        is_open ^= line.starts_with("```");
        !is_open && line.starts_with('#')
    });
    lines.map(|line| {
        let title = line.trim_start_matches('#').trim().to_lowercase();
        let kept = |letter: &char| letter.is_alphanumeric() || [' ', '-', '_'].contains(letter);
        title.chars().filter(kept).map(|letter| if letter == ' ' { '-' } else { letter }).collect()
    })
}

/// Readers start at the index, so a page that it omits would not be found.
#[test]
fn the_index_names_every_page() {
    let docs = root().join("docs");
    let index = read(&docs.join("README.md"));
    let rules = read(&docs.join("internals/rules/README.md"));
    for page in pages().iter().filter_map(|page| page.strip_prefix(&docs).ok()) {
        let page = page.display().to_string();
        let is_named = match page.strip_prefix("internals/rules/") {
            Some(rule) if rule != "README.md" => rules.contains(&format!("]({rule})")),
            _ => page == "README.md" || index.contains(&format!("]({page})")),
        };
        assert!(is_named, "no index links to docs/{page}");
    }
}

#[test]
fn every_page_begins_with_who_needs_it() {
    let docs = root().join("docs");
    for page in pages().iter().filter(|page| page.starts_with(&docs)) {
        let text = read(page);
        let mut lines = text.lines().filter(|line| !line.is_empty());
        let (title, first) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
        let is_said = title.starts_with("# ") && first.starts_with("For ");
        assert!(is_said, "{} begins with `{title}` and `{first}`", page.display());
    }
}

/// The first screen must lead to few places, including the index.
#[test]
fn the_readme_leads_to_the_index_and_at_most_seven_other_pages() {
    let readme = read(&root().join("README.md"));
    let (_, next) = readme.split_once("**Read next:**").expect("it says what to read next");
    let (next, _) = next.split_once("\n\n").expect("a paragraph ends");
    let links = next.matches("](").count();
    assert!(next.contains("](docs/README.md)") && links <= 8, "{links} links: {next}");
}

/// A long name in a page's code span is a test; `…` stands for its end.
#[test]
fn the_tests_that_pages_name_are_there() {
    let sources = all_sources();
    let mut named = 0;
    for page in pages() {
        for test in read(&page).split('`').skip(1).step_by(2) {
            let (start, end) = match test.strip_suffix('…') {
                Some(start) => (start, ""),
                None => (test, "("),
            };
            let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
            if start.matches('_').count() < 5 || !start.chars().all(is_name) {
                continue;
            }
            named += 1;
            let is_there = sources.contains(&format!("fn {start}{end}"));
            assert!(is_there, "{} names {test}, which is not there", page.display());
        }
    }
    assert!(named > 300, "{named}");
}

/// `cargo xtask attacks` runs the tests of these tables by name, also those with a short one.
#[test]
fn the_tests_that_the_tables_of_attacks_name_are_there() {
    let sources = all_sources();
    let mut named = 0;
    let page = read(&root().join("docs/reference/security.md"));
    for row in page.lines().filter(|line| line.starts_with("| ")) {
        let tests = row.rsplit('|').nth(1).expect("a row has columns");
        for test in tests.split('`').skip(1).step_by(2) {
            named += 1;
            let is_there = sources.contains(&format!("fn {test}("));
            assert!(is_there, "docs/reference/security.md names {test}, which is not there");
        }
    }
    assert!(named > 200, "{named}");
}

/// The text of all Rust in which tests stand.
fn all_sources() -> String {
    let folders = ["tests", "host", "sdk", "plugins"];
    let files = folders.into_iter().flat_map(|folder| sources_below(&root().join(folder)));
    files.map(|file| read(&file)).collect()
}

fn sources_below(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("it is a folder").flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(sources_below(&path));
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            found.push(path);
        }
    }
    found
}

/// A page of rules names the files of each rule: `- **L-058** … (`room/steps.rs`)`.
#[test]
fn rules_live_in_the_files_that_their_pages_name() {
    let mut named = 0;
    for page in pages()
        .iter()
        .filter(|page| page.parent().is_some_and(|folder| folder.ends_with("docs/internals/rules")))
    {
        let text = read(page);
        for entry in text.split("\n- **").skip(1) {
            let entry = entry.split("\n\n").next().unwrap_or_default();
            let (rule, rest) = entry.split_once("**").expect("an entry begins with its number");
            let Some(files) =
                rest.trim_end().strip_suffix("`)").and_then(|rest| rest.rsplit_once("(`"))
            else {
                continue;
            };
            for file in files.1.split(['`', ',', ' ', '\n']).filter(|file| !file.is_empty()) {
                named += 1;
                let of_core =
                    !["host/", "tests/", "wit/"].iter().any(|folder| file.starts_with(folder));
                let path = root().join(if of_core {
                    format!("host/core/src/{file}")
                } else {
                    file.to_owned()
                });
                let is_cited = read(&path)
                    .split(|c: char| !c.is_alphanumeric() && c != '-')
                    .any(|word| word == rule);
                assert!(is_cited, "{}: {file} does not cite {rule}", page.display());
            }
        }
    }
    assert!(named > 150, "{named}");
}

/// Returns an example with the repository's documents, in a folder of its own.
fn example(name: &str) -> (Rig, String) {
    let folder = root().join("docs/examples");
    let config = read(&folder.join(name))
        .replace("\"../../docs\"", &format!("{:?}", root().join("docs").display().to_string()))
        .replace("../../target/conclave/guests", &guests().display().to_string());
    let replies = [
        "chat",
        "acting",
        "terminal",
        "overlay",
        "programs",
        "supervisor",
        "pipeline",
        "cluster",
        "voice",
        "digest-delivery",
        "handoff",
    ]
    .map(|name| format!("{name}-replies.json"));
    let project = ["project/greet.sh", "project/test.sh"].map(str::to_owned);
    let files = replies.iter().chain(&project);
    (files.fold(Rig::new(), |rig, file| rig.with_file(file, read(&folder.join(file)))), config)
}

#[test]
fn the_example_of_an_agent_that_acts_works_through_its_plan() {
    let (rig, config) = example("acting.toml");
    let ran = rig.run(&config, "What is an action, and who carries it out?");
    assert_eq!(ran.status(), Status::Done, "{}", ran.outcome.reason);
    assert!(ran.content().contains("In a sentence: An agent says what to do"), "{}", ran.content());
    let read: Vec<&str> = ran
        .notices()
        .filter_map(|notice| match notice {
            Notice::ToolCalled { name, .. } => Some(name.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(read, ["workspace.read", "workspace.read"]);
    assert!(ran.answers().iter().all(|answer| !answer.is_error), "{:?}", ran.answers());
}

#[test]
fn the_example_of_a_terminal_runs_its_commands() {
    let (rig, config) = example("terminal.toml");
    let ran = rig.run(&config, "How many pages are there, and which is the longest?");
    assert_eq!(ran.status(), Status::Done, "{}", ran.outcome.reason);
    let answers: Vec<String> = ran.answers().into_iter().map(|answer| answer.content).collect();
    let [count, longest] = &answers[..] else { panic!("{answers:?}") };
    assert_eq!(count, "more than twenty pages in /docs");
    assert!(longest.ends_with(".md"), "{longest}");
}

/// Where the kernel cannot confine programs, each command is refused with the reason.
#[test]
fn the_example_of_programs_runs_its_commands() {
    let (rig, config) = example("programs.toml");
    let ran = rig.run(&config, "Which scripts has the project, and do they differ?");
    assert_eq!(ran.status(), Status::Done, "{}", ran.outcome.reason);
    let answers: Vec<String> = ran.answers().into_iter().map(|answer| answer.content).collect();
    let [list, names, lines] = &answers[..] else { panic!("{answers:?}") };
    assert_eq!(list.lines().count(), 3, "{list}");
    if ran.denials().is_empty() {
        assert!(names.contains("greet.sh\\ntest.sh\\n"), "{names}");
        assert!(lines.contains(" total") && lines.contains("\"exit_code\":0"), "{lines}");
    } else {
        let reasons: Vec<String> = ran.denials().into_iter().map(|record| record.reason).collect();
        let is_unconfined = |reason: &String| reason.contains("the program cannot be confined");
        assert!(reasons.iter().all(is_unconfined), "{reasons:?}");
    }
}

#[test]
fn the_example_of_a_supervisor_revises_until_it_is_approved() {
    let (rig, config) = example("supervisor.toml");
    let ran = rig.run(&config, "Write a sentence about the Skerryvore light.");
    assert_eq!(ran.status(), Status::Done, "{}", ran.outcome.reason);
    assert_eq!(
        ran.content(),
        "First lit in 1844, the Skerryvore light stands 48 metres tall on a reef south of Tiree."
    );
}

/// A reviewer that never approves, or whose answer is malformed, is not an approval (R-132).
#[test]
fn a_supervisor_whose_reviewer_does_not_approve_says_so() {
    for never in ["{\"approved\": false, \"feedback\": \"too short\"}", "Looks good to me!"] {
        let (rig, config) = example("supervisor.toml");
        let replies = serde_json::json!({ "rules": [{ "when": "Review the result", "reply": never }], "replies": ["A light."] });
        let rig = rig.with_file("supervisor-replies.json", replies.to_string());
        let ran = rig.run(
            &config.replace("revisions = 3", "revisions = 1"),
            "Write a sentence about the Skerryvore light.",
        );
        assert_eq!(ran.status(), Status::Rejected, "{}", ran.content());
        let said = format!("{} {}", ran.outcome.reason, ran.content());
        assert!(said.contains("revised once and is not approved"), "{said}");
    }
}

#[test]
fn a_supervisor_names_the_worker_that_failed_and_keeps_what_others_gave() {
    for workers in ["[\"write\", \"nobody\"]", "[\"nobody\", \"write\"]"] {
        let (rig, config) = example("supervisor.toml");
        let rig = rig.with_file("supervisor-replies.json", "{\"replies\": [\"A light.\"]}");
        let config = config
            .replace(
                "workers = [\"research\", \"write\"], mode = \"sequential\"",
                &format!("workers = {workers}, mode = \"parallel\""),
            )
            .replace(
                "[\"research\", \"write\", \"review\"]",
                "{ tasks = [\"nobody\", \"write\"], at_once = 2 }",
            )
            + "[plugins.pipeline]\nsource = \"stock:pipeline\"\ngrants.delegate = [\"write\"]\n[tasks.nobody]\nagent = \"pipeline\"\n";
        let ran = rig.run(&config, "Write a sentence about the Skerryvore light.");
        assert_eq!(ran.status(), Status::Rejected, "{}", ran.content());
        let said = format!("{} {}", ran.outcome.reason, ran.content());
        assert!(
            said.contains("nobody failed: No stages are configured")
                && said.contains("## write\n\nA light."),
            "{workers}: {said}"
        );
    }
}

#[test]
fn the_example_of_a_pipeline_goes_through_its_stages() {
    let (rig, config) = example("pipeline.toml");
    let ran = rig.run(&config, "Write a sentence about the Skerryvore light.");
    assert_eq!(
        (ran.status(), ran.content()),
        (Status::Done, "Skerryvore, lit in 1844, stands on a reef south of Tiree.")
    );
}

/// Its replies are rules, so a worker that takes the task over gets the reply of the same stage.
#[test]
fn the_example_of_a_cluster_goes_through_its_stages() {
    let (rig, config) = example("cluster.toml");
    let replies = read(&root().join("docs/examples/cluster-replies.json"));
    let at_once = replies.replace("\"delay_ms\": 4000,", "");
    assert_ne!(at_once, replies, "the model takes its time");
    let ran = rig.with_file("cluster-replies.json", at_once).run(&config, "Describe Skerryvore.");
    assert_eq!(
        (ran.status(), ran.content()),
        (Status::Done, "Skerryvore, lit in 1844, stands on a reef south of Tiree.")
    );
}

#[test]
fn the_example_of_a_voice_tells_each_result_on_the_phone() {
    let (rig, config) = example("voice.toml");
    let ran = rig.run(&config, "How tall is the Skerryvore light, and who built it?");
    assert_eq!(ran.status(), Status::Done, "{}", ran.outcome.reason);
    let on_phone: Vec<&str> = ran
        .heard
        .iter()
        .filter(|(channel, _)| channel.as_str() == "phone")
        .map(|(_, text)| text.as_str())
        .collect();
    let all = on_phone.join("\n");
    assert!(
        all.matches("48 metres").count() == 1 && all.matches("Alan Stevenson").count() == 1,
        "{:?}",
        ran.heard
    );
}

#[test]
fn the_example_of_a_digest_tells_three_results_in_one_turn() {
    let (rig, config) = example("digest-delivery.toml");
    let ran = rig.run(&config, "Look after the lights of Skerryvore, Bell Rock and Muckle Flugga.");
    let together: Vec<&str> = ran
        .heard
        .iter()
        .map(|(_, text)| text.as_str())
        .filter(|text| text.contains("Skerryvore is lit."))
        .collect();
    assert_eq!(together.len(), 1, "{:?}", ran.heard);
    assert!(
        together[0].contains("Bell Rock is lit.") && together[0].contains("Muckle Flugga is dark"),
        "{together:?}"
    );
}

#[test]
fn the_example_of_a_handoff_ends_with_the_answer_of_the_task_that_got_the_conversation() {
    let (rig, config) = example("handoff.toml");
    let ran = rig.run(&config, "I was charged twice for May.");
    assert_eq!(ran.status(), Status::Done, "{}", ran.outcome.reason);
    assert!(
        ran.content().starts_with("The second charge for May was a mistake."),
        "{}",
        ran.content()
    );
    let moved: Vec<(&str, Option<&str>, &str)> = ran
        .notices()
        .filter_map(|notice| match notice {
            Notice::HandedOff { from, to, phase, .. } => {
                Some((from.as_str(), to.as_ref().map(|to| to.as_str()), phase.as_str()))
            }
            _ => None,
        })
        .collect();
    assert_eq!(moved, [("triage", Some("billing"), "refund")]);
}

#[test]
fn the_examples_load() {
    let folder = root().join("docs/examples");
    for name in [
        "demo.toml",
        "chat.toml",
        "acting.toml",
        "terminal.toml",
        "overlay.toml",
        "programs.toml",
        "supervisor.toml",
        "pipeline.toml",
        "cluster.toml",
        "voice.toml",
        "digest-delivery.toml",
        "handoff.toml",
    ] {
        let (rig, config) = example(name);
        rig.prepare(&config).map(drop).unwrap_or_else(|problems| panic!("{name}:\n{problems}"));
    }
    let hostile = read(&folder.join("hostile.toml"));
    Config::parse("hostile.toml", "", &hostile)
        .map(drop)
        .unwrap_or_else(|problems| panic!("{problems}"));
}

/// `UPDATE_DOCS=1 cargo xtask test config_keys` writes the page.
#[test]
fn the_page_of_config_keys_is_made_from_the_keys() {
    let mut page = String::from(
        "# conclave.toml\n\nFor people who write a config: every key, with an example, its default and its meaning.\n\n\
         Made from the keys that the program reads; `cargo xtask test` checks it. Every other key is an error. Paths start at the\n\
         file's own folder. A default of – is an empty text or list, or no limit.\n\
         [The demo's config](../examples/demo.toml) shows the keys at work.\n",
    );
    let mut table = None;
    for key in KEYS.iter() {
        if table != Some(key.table) {
            let title = if key.table.is_empty() {
                "Top of the file".to_owned()
            } else {
                format!("`[{}]`", key.table)
            };
            let _ = write!(
                page,
                "\n## {title}\n\n| key | example | default | meaning |\n|---|---|---|---|\n"
            );
            table = Some(key.table);
        }
        let cell = |text: &str| text.replace('|', "\\|");
        let example =
            if key.example.is_empty() { String::new() } else { format!("`{}`", cell(key.example)) };
        let default = match key.default {
            KeyDefault::Required => "required".to_owned(),
            KeyDefault::Depends(words) => cell(words),
            _ => key.default.written().map_or("–".to_owned(), |value| format!("`{value}`")),
        };
        let _ = writeln!(page, "| `{}` | {example} | {default} | {} |", key.name, cell(key.doc));
    }
    let path = root().join("docs/reference/config.md");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &page).expect("the page can be written");
    }
    assert_eq!(read(&path), page, "run `UPDATE_DOCS=1 cargo xtask test config_keys`");
}
