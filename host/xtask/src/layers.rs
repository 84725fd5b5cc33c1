//! The layers of tests: each can be run alone and is timed. The packages come from the workspace,
//! so a new one is tested without a change here. It belongs to the layer `runtime` until it is
//! listed.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use crate::failure::XtaskFailure;
use crate::place::Checkout;
use crate::toml;

/// The package whose tests run real components through the whole host, or start the program. Its
/// modules belong to several layers.
pub(crate) const SUITE: &str = "conclave-suite";

/// Members of the workspace without tests of their own, with the reason.
const UNTESTED: [(&str, &str); 2] = [
    (
        "conclave-guests",
        "components for wasm only; the gate `guests_are_tested` looks that the suite runs each",
    ),
    (
        "conclave-libfuzzer",
        "the entry point of conclave-fuzz under libFuzzer, outside of the workspace; `cargo xtask fuzz` builds it",
    ),
];

/// The artefacts that a layer's tests need besides their own binaries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Needs {
    Nothing,
    /// The stock plugins, which some packages include.
    Stock,
    /// The stock plugins, the guests and the program.
    All,
}

/// Tests that are run and timed together.
#[derive(Debug)]
pub(crate) struct TestLayer {
    pub(crate) name: &'static str,
    pub(crate) holds: &'static str,
    /// The packages whose tests all belong to the layer; `prefix-*` matches every package with that
    /// prefix.
    packages: &'static [&'static str],
    /// The modules of the suite that belong to the layer.
    pub(crate) modules: &'static [&'static str],
    pub(crate) needs: Needs,
}

/// The layers, from the quickest to the one with the most requirements.
pub(crate) const LAYERS: [TestLayer; 7] = [
    TestLayer {
        name: "core",
        holds: "the room and everything else that is decided without IO; the chores themselves",
        packages: &["conclave-core", "conclave-trajectory", "conclave-script", "conclave-xtask"],
        modules: &[],
        needs: Needs::Nothing,
    },
    // Includes every package that no other layer lists.
    TestLayer {
        name: RUNTIME,
        holds: "the host around it: store, sandbox, models, MCP, the kits; every package that no other layer names",
        packages: &[],
        modules: &[],
        needs: Needs::Stock,
    },
    TestLayer {
        name: "guests",
        holds: "plugins by themselves, and guests that try what they may not",
        packages: &["conclave-plugin-*", "conclave-condensing", "conclave-prose"],
        modules: &[
            "any_component",
            "blobs",
            "by_hand",
            "capabilities",
            "compile",
            "contract",
            "fetch",
            "files_write",
            "gates",
            "kv",
            "limits",
            "loading",
            "neighbours",
            "parking",
            "wasi",
        ],
        needs: Needs::All,
    },
    TestLayer {
        name: THE_SUITE,
        holds: "whole runs of real components in one process; conformance; kills",
        packages: &["conclave-conformance", "conclave-counts-sandbox", "conclave-soak"],
        modules: &[],
        needs: Needs::All,
    },
    TestLayer {
        name: "cli",
        holds: "the program: its parts, and what it does when it is started",
        packages: &["conclave-host"],
        modules: &[
            "archive",
            "audit",
            "chat",
            "cli",
            "cli_batch",
            "cli_trace",
            "demo",
            "keeping",
            "lock",
            "looking",
            "models",
            "operate",
            "overlay",
            "resume_cli",
            "steering_cli",
            "tasks_cli",
            "trajectory_cli",
        ],
        needs: Needs::All,
    },
    TestLayer {
        name: DOCS,
        holds: "examples in the code's documentation, and what pages show",
        packages: &[],
        modules: &["docs"],
        needs: Needs::All,
    },
    TestLayer {
        name: FOREIGN,
        holds: "programs that others wrote: LiteLLM, MCP servers and clients; plugins in Python and JavaScript",
        packages: &[],
        modules: &[],
        needs: Needs::All,
    },
];

const RUNTIME: &str = "runtime";
const THE_SUITE: &str = "suite";
pub(crate) const DOCS: &str = "docs";
pub(crate) const FOREIGN: &str = "foreign";

/// A member of the workspace.
#[derive(Clone, Debug, Default)]
pub(crate) struct Package {
    pub(crate) name: String,
    /// The folder, relative to the repository.
    pub(crate) folder: String,
    /// The packages of the repository that it depends on, also for its tests only.
    pub(crate) dependencies: BTreeSet<String>,
}

/// Returns the tested packages, ordered by name.
pub(crate) fn tested(place: &Checkout) -> Result<Vec<Package>, XtaskFailure> {
    let mut packages = members(place)?;
    packages.retain(|package| UNTESTED.iter().all(|(name, _)| *name != package.name));
    Ok(packages)
}

/// Returns the members of the workspace, ordered by name.
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

/// Returns the folder of a member, or the folders that a final `*` matches.
fn matching(place: &Checkout, member: &str) -> Vec<PathBuf> {
    let Some(parent) = member.strip_suffix("/*") else { return vec![place.root.join(member)] };
    let entries = fs::read_dir(place.root.join(parent)).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
}

impl TestLayer {
    pub(crate) fn by_name(name: &str) -> Option<&'static Self> {
        LAYERS.iter().find(|layer| layer.name == name)
    }

    /// Returns the packages whose tests all belong to this layer.
    pub(crate) fn packages<'a>(&self, tested: &'a [Package]) -> Vec<&'a str> {
        let own = tested
            .iter()
            .map(|package| package.name.as_str())
            .filter(|name| layer_of(name) == Some(self.name));
        own.collect()
    }

    /// Returns whether the layer has tests in the suite.
    pub(crate) fn has_suite(&self) -> bool {
        self.name == THE_SUITE || !self.modules.is_empty()
    }

    /// Returns whether a test of the suite belongs to the layer.
    pub(crate) fn has_test(&self, name: &str) -> bool {
        let is_in =
            |module: &str| name.strip_prefix(module).is_some_and(|rest| rest.starts_with("::"));
        if self.name == THE_SUITE {
            !layered_modules().any(is_in)
        } else {
            self.modules.iter().any(|module| is_in(module))
        }
    }

    /// Returns the layer's tests as a filter expression of nextest.
    pub(crate) fn expression(&self, tested: &[Package]) -> String {
        let mut parts: Vec<String> =
            self.packages(tested).iter().map(|name| format!("package(={name})")).collect();
        if self.name == THE_SUITE {
            parts.push(format!("(package(={SUITE}) - {})", of_modules(layered_modules())));
        } else if !self.modules.is_empty() {
            parts.push(format!(
                "(package(={SUITE}) & {})",
                of_modules(self.modules.iter().copied())
            ));
        }
        parts.join(" + ")
    }
}

/// Returns the modules of the suite that belong to another layer than `suite`.
pub(crate) fn layered_modules() -> impl Iterator<Item = &'static str> {
    LAYERS.iter().flat_map(|layer| layer.modules.iter().copied())
}

fn of_modules(modules: impl Iterator<Item = &'static str>) -> String {
    format!("test(/^({})::/)", modules.collect::<Vec<_>>().join("|"))
}

/// Returns the layer of a package; `None` for the suite itself, which belongs to several.
fn layer_of(package: &str) -> Option<&'static str> {
    if package == SUITE {
        return None;
    }
    let names = |pattern: &str| {
        pattern.strip_suffix('*').map_or(pattern == package, |start| package.starts_with(start))
    };
    Some(
        LAYERS
            .iter()
            .find(|layer| layer.packages.iter().any(|pattern| names(pattern)))
            .map_or(RUNTIME, |layer| layer.name),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::files_below;

    fn here() -> Checkout {
        Checkout::find().unwrap_or_else(|failure| panic!("{}", failure.text))
    }

    fn packages() -> Vec<Package> {
        tested(&here()).unwrap_or_else(|failure| panic!("{}", failure.text))
    }

    /// A crate added to the workspace is tested by default. This test finds the folders in a
    /// different way.
    #[test]
    fn every_crate_of_the_repository_is_tested_or_says_why_not() {
        let place = here();
        let mut found: Vec<String> = ["host", "sdk", "plugins", "docs", "tests"]
            .iter()
            .flat_map(|folder| files_below(&place.root.join(folder), "/Cargo.toml"))
            .filter_map(|file| toml::string(&fs::read_to_string(file).ok()?, "[package]", "name"))
            .filter(|name| UNTESTED.iter().all(|(untested, _)| untested != name))
            .collect();
        found.sort();
        let tested: Vec<String> = packages().into_iter().map(|package| package.name).collect();
        assert_eq!(tested, found);
    }

    #[test]
    fn a_crate_that_nobody_has_heard_of_is_of_a_layer() {
        assert_eq!(layer_of("conclave-brand-new"), Some("runtime"));
        assert_eq!(
            (layer_of("conclave-plugin-new"), layer_of("conclave-core")),
            (Some("guests"), Some("core"))
        );
        let new = [Package { name: "conclave-brand-new".to_owned(), ..Package::default() }];
        let of: Vec<&str> = LAYERS
            .iter()
            .filter(|layer| !layer.packages(&new).is_empty())
            .map(|layer| layer.name)
            .collect();
        assert_eq!(of, ["runtime"]);
    }

    #[test]
    fn every_test_is_of_one_layer_and_what_layers_name_is_there() {
        let tested = packages();
        for package in &tested {
            let of = LAYERS
                .iter()
                .filter(|layer| layer.packages(&tested).contains(&package.name.as_str()))
                .count();
            assert_eq!(of, usize::from(package.name != SUITE), "{}", package.name);
        }
        for pattern in LAYERS.iter().flat_map(|layer| layer.packages) {
            let start = pattern.trim_end_matches('*');
            assert!(
                tested.iter().any(|package| package.name.starts_with(start)),
                "there is no package {pattern}"
            );
        }
        let suite = here()
            .read("tests/suite/tests/suite.rs")
            .unwrap_or_else(|failure| panic!("{}", failure.text));
        let mut modules: Vec<&str> = layered_modules().collect();
        for module in &modules {
            assert!(
                suite.lines().any(|line| line == format!("mod {module};")),
                "the suite has no module {module}"
            );
        }
        let count = modules.len();
        modules.sort_unstable();
        modules.dedup();
        assert_eq!(modules.len(), count, "a module is of one layer");
    }

    #[test]
    fn a_test_of_the_suite_is_of_the_layer_of_its_module_wherever_its_name_occurs() {
        let of = |name: &str| {
            LAYERS
                .iter()
                .filter(|layer| layer.has_test(name))
                .map(|layer| layer.name)
                .collect::<Vec<_>>()
        };
        assert_eq!(of("kv::a_quota"), ["guests"]);
        assert_eq!(of("chat::kv::a_quota"), ["cli"]);
        assert_eq!(of("kvs::a_quota"), ["suite"]);
        assert_eq!(of("consulting::kv::a_quota"), ["suite"]);
    }

    #[test]
    fn a_layer_is_a_filter() {
        let docs = TestLayer::by_name("docs").map(|layer| layer.expression(&packages()));
        assert_eq!(docs.as_deref(), Some("(package(=conclave-suite) & test(/^(docs)::/))"));
        let suite = TestLayer::by_name("suite")
            .map(|layer| layer.expression(&packages()))
            .unwrap_or_default();
        assert!(suite.starts_with(
            "package(=conclave-conformance) + package(=conclave-counts-sandbox) + \
             package(=conclave-soak) + (package(=conclave-suite) - test(/^(any_component|"
        ));
    }
}
