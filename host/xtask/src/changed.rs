//! `cargo xtask test --changed`: the tests that a change can reach, by crate and by guest. A file of
//! unknown effect reaches every test.

use std::collections::BTreeSet;
use std::process::Command;

use crate::components;
use crate::failure::XtaskFailure;
use crate::layers::{Package, SUITE};
use crate::place::Checkout;
use crate::program;
use crate::sources;

/// Dependencies that no `Cargo.toml` names: the dependent, and the package that it runs or embeds.
/// `prefix-*` matches every package with that prefix.
const UNNAMED: [(&str, &str); 6] = [
    // It starts the program.
    (SUITE, "conclave-host"),
    // Its build script embeds the components.
    ("conclave-stock", "conclave-plugin-*"),
    // They run stock plugins and guests.
    (SUITE, "conclave-plugin-*"),
    ("conclave-test-support", "conclave-plugin-*"),
    ("conclave-test-support", GUESTS),
    ("conclave-soak", GUESTS),
];
const GUESTS: &str = "conclave-guests";
/// The tests that look at every page.
const PAGES: [&str; 3] = ["conclave-core", "conclave-host", "conclave-xtask"];
const GUESTS_FOLDER: &str = "tests/guests/";
const MODULES_FOLDER: &str = "tests/suite/tests/";
/// The folders with tests that run single guests by name.
const RUNNERS: [&str; 5] = [
    "tests/conformance/",
    "tests/counts-sandbox/",
    "tests/soak/",
    "tests/support/",
    MODULES_FOLDER,
];

/// The tests that a change can reach.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Reach {
    /// The packages of which all tests are reached.
    pub(crate) packages: BTreeSet<String>,
    /// The reached modules of the suite.
    pub(crate) modules: BTreeSet<String>,
    /// A changed file that can reach every test.
    pub(crate) global_file: Option<String>,
}

impl Reach {
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the tests as a filter expression of nextest.
    pub(crate) fn expression(&self) -> String {
        if self.global_file.is_some() {
            return "all()".to_owned();
        }
        let packages = self.packages.iter().map(|name| format!("package(={name})"));
        let modules =
            self.modules.iter().map(|name| format!("(package(={SUITE}) & test(/^{name}::/))"));
        packages.chain(modules).collect::<Vec<_>>().join(" + ")
    }

    /// Returns the reached packages and modules for display.
    pub(crate) fn described(&self) -> String {
        if let Some(file) = &self.global_file {
            return format!("every test, because of {file}");
        }
        let modules = self.modules.iter().map(|name| format!("{SUITE}::{name}"));
        self.packages.iter().cloned().chain(modules).collect::<Vec<_>>().join(", ")
    }
}

/// Returns the reach of the files that differ between the working folder and `base`, or the commit
/// at which the current branch left it.
pub(crate) fn reach(
    place: &Checkout,
    members: &[Package],
    base: &str,
) -> Result<Reach, XtaskFailure> {
    let sources =
        Sources { members, guests: components::guests(place)?, tests: test_files(place)? };
    Ok(sources.reach(&changed_files(place, base)?))
}

fn changed_files(place: &Checkout, base: &str) -> Result<Vec<String>, XtaskFailure> {
    let mut files = Vec::new();
    let differing = ["diff", "--name-only", "-z", "--no-renames", "--merge-base", base, "--"];
    for words in [&differing[..], &["ls-files", "-z", "--others", "--exclude-standard"]] {
        let mut command = Command::new("git");
        command.args(words).current_dir(&place.root);
        let output = program::output_of(&mut command)?;
        let text = String::from_utf8_lossy(&output).into_owned();
        files.extend(text.split('\0').filter(|file| !file.is_empty()).map(str::to_owned));
    }
    Ok(files)
}

/// The files of tests that run guests, with their text.
fn test_files(place: &Checkout) -> Result<Vec<(String, String)>, XtaskFailure> {
    let mut files = sources::read(place)?;
    files.retain(|(path, _)| RUNNERS.iter().any(|folder| path.starts_with(folder)));
    Ok(files)
}

/// The parts of the repository that decide which tests a file reaches.
struct Sources<'a> {
    members: &'a [Package],
    guests: Vec<String>,
    tests: Vec<(String, String)>,
}

impl Sources<'_> {
    fn reach(&self, files: &[String]) -> Reach {
        let mut reach = Reach::default();
        let mut changed = BTreeSet::new();
        for file in files {
            if let Some(guest) = self.guest_of(file) {
                self.add_runners(guest, &mut reach, &mut changed);
            } else if let Some(module) = module_of(file) {
                reach.modules.insert(module.to_owned());
            } else if file.ends_with(".md") {
                reach.modules.insert("docs".to_owned());
                reach.packages.extend(PAGES.map(str::to_owned));
            } else if let Some(package) = self.package_of(file) {
                changed.insert(package.to_owned());
            } else {
                reach.global_file.get_or_insert_with(|| file.clone());
            }
        }
        reach.packages.append(&mut self.with_dependents(changed));
        if reach.packages.contains(SUITE) {
            reach.modules.clear();
        }
        // It has no tests of its own.
        reach.packages.remove(GUESTS);
        reach
    }

    /// Returns the guest to which a file belongs alone.
    fn guest_of(&self, file: &str) -> Option<&str> {
        let (folder, name) = file.strip_prefix(GUESTS_FOLDER)?.split_once('/')?;
        let name = match folder {
            "src" => name.strip_suffix(".rs")?,
            "manifests" => name.strip_suffix(".toml")?,
            _ => return None,
        };
        self.guests.iter().map(String::as_str).find(|guest| *guest == name)
    }

    /// Adds the tests whose source names the guest.
    fn add_runners(&self, guest: &str, reach: &mut Reach, changed: &mut BTreeSet<String>) {
        let (quoted, in_path) = (format!("\"{guest}\""), format!("{guest}.wasm"));
        let names_it = |text: &str| text.contains(&quoted) || text.contains(&in_path);
        for (file, _) in self.tests.iter().filter(|(_, text)| names_it(text)) {
            if let Some(module) = module_of(file) {
                reach.modules.insert(module.to_owned());
            } else if let Some(package) = self.package_of(file) {
                changed.insert(package.to_owned());
            }
        }
    }

    fn package_of(&self, file: &str) -> Option<&str> {
        let is_in = |package: &&Package| {
            file.strip_prefix(&package.folder).is_some_and(|rest| rest.starts_with('/'))
        };
        // The longest one, should a package lie in the folder of another.
        let found = self.members.iter().filter(is_in).max_by_key(|package| package.folder.len());
        found.map(|package| package.name.as_str())
    }

    /// Returns these packages and all that depend on them.
    fn with_dependents(&self, mut reached: BTreeSet<String>) -> BTreeSet<String> {
        loop {
            let dependents: Vec<String> = self
                .members
                .iter()
                .filter(|package| !reached.contains(&package.name))
                .filter(|package| reached.iter().any(|name| depends(package, name)))
                .map(|package| package.name.clone())
                .collect();
            if dependents.is_empty() {
                return reached;
            }
            reached.extend(dependents);
        }
    }
}

fn depends(package: &Package, on: &str) -> bool {
    let matches = |pattern: &str| {
        pattern.strip_suffix('*').map_or(pattern == on, |prefix| on.starts_with(prefix))
    };
    package.dependencies.contains(on)
        || UNNAMED.iter().any(|(dependent, of)| *dependent == package.name && matches(of))
}

/// Returns the module of the suite to which a file belongs; `None` for the file that lists them.
fn module_of(file: &str) -> Option<&str> {
    let rest = file.strip_prefix(MODULES_FOLDER)?;
    let module = rest.split_once('/').map(|(folder, _)| folder).or(rest.strip_suffix(".rs"))?;
    (module != "suite").then_some(module)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layers;

    fn package(name: &str, folder: &str, dependencies: &[&str]) -> Package {
        Package {
            name: name.to_owned(),
            folder: folder.to_owned(),
            dependencies: dependencies.iter().map(|name| (*name).to_owned()).collect(),
        }
    }

    fn reached(files: &[&str]) -> Reach {
        let members = [
            package("conclave-core", "host/core", &[]),
            package("conclave-host", "host/cli", &["conclave-core", "conclave-stock"]),
            package("conclave-stock", "host/stock", &[]),
            package("conclave-sdk", "sdk/rust", &[]),
            package("conclave-plugin-chat", "plugins/agents/chat", &["conclave-sdk"]),
            package(GUESTS, "tests/guests", &["conclave-sdk"]),
            package("conclave-test-support", "tests/support", &["conclave-core"]),
            package("conclave-soak", "tests/soak", &["conclave-core"]),
            package(SUITE, "tests/suite", &["conclave-test-support"]),
        ];
        let tests = [
            ("tests/suite/tests/limits.rs", "let ran = exceeds(\"spin\");"),
            ("tests/suite/tests/docs/commands.rs", "source = \"spin.wasm\""),
            ("tests/suite/tests/kv.rs", "guest(\"spinner\")"),
            ("tests/soak/src/lives.rs", "guest(\"agent_busy\")"),
        ];
        let tests = tests.map(|(file, text)| (file.to_owned(), text.to_owned())).to_vec();
        let guests = ["spin", "agent_busy"].map(str::to_owned).to_vec();
        let files: Vec<String> = files.iter().map(|file| (*file).to_owned()).collect();
        Sources { members: &members, guests, tests }.reach(&files)
    }

    fn names(reach: &Reach) -> Vec<&str> {
        reach.packages.iter().map(String::as_str).collect()
    }

    #[test]
    fn a_crate_reaches_what_depends_on_it() {
        let stock = reached(&["host/stock/build.rs"]);
        assert_eq!(names(&stock), ["conclave-host", "conclave-stock", SUITE]);
        assert_eq!(
            names(&reached(&["host/core/src/lib.rs", "tests/suite/tests/kv.rs"])),
            ["conclave-core", "conclave-host", "conclave-soak", SUITE, "conclave-test-support"]
        );
        assert!(reached(&[]).is_empty());
    }

    #[test]
    fn a_stock_plugin_reaches_the_program_that_embeds_it() {
        assert_eq!(
            names(&reached(&["plugins/agents/chat/src/lib.rs"])),
            [
                "conclave-host",
                "conclave-plugin-chat",
                "conclave-stock",
                SUITE,
                "conclave-test-support"
            ]
        );
    }

    #[test]
    fn a_guest_reaches_the_tests_that_name_it() {
        let spin = reached(&["tests/guests/src/spin.rs"]);
        assert_eq!((names(&spin), spin.global_file.as_ref()), (vec![], None));
        assert_eq!(
            spin.expression(),
            format!(
                "(package(={SUITE}) & test(/^docs::/)) + (package(={SUITE}) & test(/^limits::/))"
            )
        );
        assert_eq!(
            reached(&["tests/guests/manifests/agent_busy.toml"]).expression(),
            "package(=conclave-soak)"
        );
    }

    #[test]
    fn what_all_guests_are_made_of_reaches_all_that_run_one() {
        for file in ["tests/guests/src/lib.rs", "sdk/rust/src/lib.rs"] {
            let all = reached(&[file]);
            let names = names(&all);
            assert!(names.contains(&SUITE) && names.contains(&"conclave-soak"), "{names:?}");
            assert!(!names.contains(&GUESTS) && !names.contains(&"conclave-core"), "{names:?}");
        }
    }

    #[test]
    fn a_page_reaches_the_tests_of_pages_and_an_unknown_file_every_test() {
        let page = reached(&["docs/use/runs.md"]);
        assert_eq!((names(&page), page.described().contains("docs")), (PAGES.to_vec(), true));
        for file in ["Cargo.lock", "wit/types.wit", "tests/data/room/a.json"] {
            let reach = reached(&[file, "docs/use/runs.md"]);
            assert_eq!(
                (reach.global_file.as_deref(), reach.expression()),
                (Some(file), "all()".to_owned())
            );
        }
    }

    /// The names that this file knows are those of the repository.
    #[test]
    fn dependencies_of_the_repository_are_known() {
        let place = Checkout::find().unwrap_or_else(|failure| panic!("{}", failure.text));
        let members = layers::members(&place).unwrap_or_else(|failure| panic!("{}", failure.text));
        let has = |name: &str| {
            let prefix = name.trim_end_matches('*');
            members.iter().any(|package| package.name.starts_with(prefix))
        };
        for name in UNNAMED.iter().flat_map(|(dependent, of)| [dependent, of]).chain(&PAGES) {
            assert!(has(name), "there is no package {name}");
        }
        let sources = Sources { members: &members, guests: Vec::new(), tests: Vec::new() };
        let reached = sources.with_dependents(["conclave-trajectory".to_owned()].into());
        let of = |prefix: &str| members.iter().filter(|it| it.name.starts_with(prefix)).count();
        let found = |prefix: &str| reached.iter().filter(|it| it.starts_with(prefix)).count();
        assert_eq!(found("conclave-plugin-"), of("conclave-plugin-"));
        for name in ["conclave-core", "conclave-host", "conclave-sdk", GUESTS, SUITE] {
            assert!(reached.contains(name), "{name}: {reached:?}");
        }
    }
}
