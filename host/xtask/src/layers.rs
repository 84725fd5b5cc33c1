//! The layers of tests: each can be run alone and is timed. Which tests belong to a layer is said
//! in `host/xtask/nextest.toml`; here is what a layer needs before they can run.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use crate::failure::XtaskFailure;
use crate::place::Checkout;
use crate::toml;

/// The package whose tests run real components through the whole host, or start the program. Its
/// modules belong to several layers.
pub(crate) const SUITE: &str = "conclave-suite";
/// The components for wasm. The check `guests_are_tested` looks that the suite runs each.
const GUESTS: &str = "conclave-guests";

/// All packages with tests, as cargo selects them. A new member of the workspace is tested by
/// default.
pub(crate) const TESTED: [&str; 4] = ["--all-features", "--workspace", "--exclude", GUESTS];
/// The modules of the suite with tests that talk to programs that others wrote. Those tests are
/// `#[ignore]`d, because only the layer `foreign` has the programs.
pub(crate) const FOREIGN_MODULES: [&str; 4] = ["servers", "mcp", "languages", "web"];
/// The packages of the layer `core`. They are built alone when no other layer is run, so that the
/// layer is quick.
const CORE: [&str; 4] =
    ["conclave-core", "conclave-trajectory", "conclave-script", "conclave-xtask"];

/// The artefacts that a layer's tests need besides their own binaries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Needs {
    Nothing,
    /// The stock plugins, which some packages include.
    Stock,
    /// The stock plugins, the guests and the program.
    All,
}

impl Needs {
    /// The packages that are built for layers that need this, as cargo selects them. Cargo unifies
    /// the features of packages that are built together: where the host is needed, all are built
    /// together, so that nothing is built twice with different features.
    pub(crate) fn packages(self) -> Vec<&'static str> {
        match self {
            Self::Nothing => {
                let core = CORE.iter().flat_map(|name| ["-p", *name]);
                core.chain(["--all-features"]).collect()
            }
            Self::Stock | Self::All => TESTED.to_vec(),
        }
    }
}

/// Tests that are run and timed together.
#[derive(Debug)]
pub(crate) struct TestLayer {
    /// The name, which is that of a test group of nextest.
    pub(crate) name: &'static str,
    pub(crate) holds: &'static str,
    pub(crate) needs: Needs,
}

pub(crate) const DOCS: &str = "docs";
/// The layer that is no test group: its tests are ignored, and run with the programs that they
/// talk to.
pub(crate) const FOREIGN: &str = "foreign";

/// The layer that is no test group either: its tests are those of other layers, with another store.
pub(crate) const POSTGRES: &str = "postgres";

/// The layers, from the quickest to the one with the most requirements.
pub(crate) const LAYERS: [TestLayer; 8] = [
    TestLayer {
        name: "core",
        holds: "the room and everything else that is decided without IO; the chores themselves",
        needs: Needs::Nothing,
    },
    TestLayer {
        name: "runtime",
        holds: "the host around it: store, sandbox, models, MCP, the kits; every package that no other layer names",
        needs: Needs::Stock,
    },
    TestLayer {
        name: "guests",
        holds: "plugins by themselves, and guests that try what they may not",
        needs: Needs::All,
    },
    TestLayer {
        name: "suite",
        holds: "whole runs of real components in one process; conformance; kills",
        needs: Needs::All,
    },
    TestLayer {
        name: "cli",
        holds: "the program: its parts, and what it does when it is started",
        needs: Needs::All,
    },
    TestLayer {
        name: DOCS,
        holds: "examples in the code's documentation, and what pages show",
        needs: Needs::All,
    },
    TestLayer {
        name: POSTGRES,
        holds: "tests of any store once more, with their stores in PostgreSQL",
        needs: Needs::All,
    },
    TestLayer {
        name: FOREIGN,
        holds: "programs that others wrote: LiteLLM, MCP servers and clients; plugins in Python and JavaScript; browsers, proxies",
        needs: Needs::All,
    },
];

impl TestLayer {
    pub(crate) fn by_name(name: &str) -> Option<&'static Self> {
        LAYERS.iter().find(|layer| layer.name == name)
    }
}

/// A member of the workspace.
#[derive(Clone, Debug, Default)]
pub(crate) struct Package {
    pub(crate) name: String,
    /// The folder, relative to the repository.
    pub(crate) folder: String,
    /// The packages of the repository that it depends on, also for its tests only.
    pub(crate) dependencies: BTreeSet<String>,
}

/// The members of the workspace, ordered by name.
pub(crate) fn members(place: &Checkout) -> Result<Vec<Package>, XtaskFailure> {
    let members = toml::list(&place.read("Cargo.toml")?, "[workspace]", "members");
    let mut packages = Vec::new();
    for member in &members {
        for folder in matching(place, member) {
            let Ok(text) = fs::read_to_string(folder.join("Cargo.toml")) else { continue };
            let name = toml::string(&text, "[package]", "name")
                .ok_or_else(|| XtaskFailure::new(format!("{} has no name", folder.display())))?;
            packages.push(Package {
                name,
                folder: place.relative(&folder),
                dependencies: toml::keys(&text, "dependencies]")
                    .filter(|name| name.starts_with("conclave-"))
                    .collect(),
            });
        }
    }
    packages.sort_by(|a, b| a.name.cmp(&b.name));
    if packages.is_empty() {
        return Err(XtaskFailure::new("the workspace's Cargo.toml lists no members"));
    }
    Ok(packages)
}

/// The folder of a member, or the folders that a final `*` matches.
fn matching(place: &Checkout, member: &str) -> Vec<PathBuf> {
    let Some(parent) = member.strip_suffix("/*") else { return vec![place.root.join(member)] };
    let entries = fs::read_dir(place.root.join(parent)).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::place::files_below;

    /// The entry point of conclave-fuzz under libFuzzer, which `cargo xtask fuzz` builds.
    const OUTSIDE: &str = "conclave-libfuzzer";

    fn here() -> Checkout {
        Checkout::find().unwrap_or_else(|failure| panic!("{}", failure.text))
    }

    fn read(path: &str) -> String {
        here().read(path).unwrap_or_else(|failure| panic!("{}", failure.text))
    }

    /// Nothing but the members of the workspace is tested. This test finds the crates in a
    /// different way.
    #[test]
    fn every_crate_of_the_repository_is_a_member() {
        let place = here();
        let mut crates: Vec<String> = ["host", "sdk", "plugins", "docs", "tests"]
            .iter()
            .flat_map(|folder| files_below(&place.root.join(folder), "/Cargo.toml"))
            .filter_map(|file| toml::string(&fs::read_to_string(file).ok()?, "[package]", "name"))
            .filter(|name| name != OUTSIDE)
            .collect();
        crates.sort();
        let members = members(&place).unwrap_or_else(|failure| panic!("{}", failure.text));
        let members: Vec<String> = members.into_iter().map(|package| package.name).collect();
        assert_eq!(members, crates);
    }

    #[test]
    fn every_layer_is_a_group_of_nextest() {
        let config = read("host/xtask/nextest.toml");
        let groups = toml::keys(&config, "[test-groups]").collect::<BTreeSet<_>>();
        let layers = LAYERS.iter().map(|layer| layer.name);
        let layers = layers.filter(|name| ![POSTGRES, FOREIGN].contains(name));
        assert_eq!(groups, layers.map(str::to_owned).collect());
        for group in &groups {
            assert!(config.contains(&format!("\ntest-group = \"{group}\"\n")), "{group}");
        }
    }

    #[test]
    fn the_core_is_built_of_the_packages_that_belong_to_it() {
        let packages = CORE.map(|name| format!("package(={name})"));
        let filter = format!("filter = \"{}\"\ntest-group = \"core\"", packages.join(" + "));
        assert!(read("host/xtask/nextest.toml").contains(&filter), "{filter}");
    }

    /// nextest refuses the name of a package that is not there, and takes any name of a test.
    #[test]
    fn modules_of_the_suite_that_a_layer_names_are_there() {
        let (config, suite) = (read("host/xtask/nextest.toml"), read("tests/suite/tests/suite.rs"));
        let lists = config.split("test(/^(").skip(1).filter_map(|rest| rest.split(')').next());
        let modules: Vec<&str> = lists.flat_map(|list| list.split('|')).collect();
        for module in modules.iter().chain(&FOREIGN_MODULES) {
            assert!(
                suite.lines().any(|line| line == format!("mod {module};")),
                "the suite has no module {module}"
            );
        }
        assert_eq!(modules.iter().collect::<BTreeSet<_>>().len(), modules.len(), "{modules:?}");
    }

    /// Nothing but the layer `foreign` runs a test of the suite that is `#[ignore]`d.
    #[test]
    fn every_ignored_test_of_the_suite_belongs_to_the_layer_of_foreign_programs() {
        let folder = here().root.join("tests/suite/tests");
        let mut with_ignored = BTreeSet::new();
        for file in files_below(&folder, ".rs") {
            let text = fs::read_to_string(&file).unwrap_or_default();
            if text.lines().any(|line| line.trim_start().starts_with("#[ignore")) {
                let path = here().relative(Path::new(&file));
                let module = path.trim_start_matches("tests/suite/tests/");
                let module = module.split(['/', '.']).next().unwrap_or_default().to_owned();
                with_ignored.insert(module);
            }
        }
        assert_eq!(with_ignored, FOREIGN_MODULES.map(str::to_owned).into());
    }
}
