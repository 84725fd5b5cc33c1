//! `cargo xtask features`: the libraries and the program compile without a warning with each of
//! their features alone, with none and with all. Cargo unites the features of a workspace, so the other checks
//! see only all of them together.

use std::process::ExitCode;

use crate::arguments;
use crate::failure::XtaskFailure;
use crate::files;
use crate::phase::{self, Phases};
use crate::place::Checkout;
use crate::toml;

/// The libraries that programs embed and the program, with their folders and the target that is
/// checked.
const PACKAGES: [(&str, &str, &[&str]); 8] = [
    ("conclave-trajectory", "host/trajectory", &["--lib"]),
    ("conclave-core", "host/core", &["--lib"]),
    ("conclave-models", "host/models", &["--lib"]),
    ("conclave-runtime", "host/runtime", &["--lib"]),
    ("conclave-mcp", "host/mcp", &["--lib"]),
    ("conclave-otlp", "host/otlp", &["--lib"]),
    ("conclave-server", "host/server", &["--lib"]),
    ("conclave-host", "host/cli", &["--bin", "conclave"]),
];
/// Features that only the repository's own tests and builds use.
const INTERNAL: [&str; 2] = ["kill-points", "precompile"];

pub(crate) fn run(place: &Checkout, arguments: &[String]) -> Result<ExitCode, XtaskFailure> {
    let [] = arguments::flags("features", [], arguments)?;
    let mut sets = Vec::new();
    for (package, folder, target) in PACKAGES {
        let path = place.root.join(folder).join("Cargo.toml");
        let text = files::read(&path)?;
        sets.extend(sets_of(&text).into_iter().map(|set| (package, target, set)));
    }
    let mut phases = Phases::new(place, sets.len(), false);
    for (package, target, set) in &sets {
        let label = format!("{package} {}", set.join(" "));
        phases.check(label.trim(), || check(place, package, target, set))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the options of cargo for each set of features of a package.
fn sets_of(manifest: &str) -> Vec<Vec<String>> {
    let option = |word: &str| word.to_owned();
    let features: Vec<String> = toml::keys(manifest, "[features]")
        .filter(|name| name != "default" && !INTERNAL.contains(&name.as_str()))
        .collect();
    let mut sets = vec![vec![option("--no-default-features")]];
    if features.len() > 1 {
        let options_of = |name: &String| {
            vec![option("--no-default-features"), option("--features"), name.clone()]
        };
        sets.extend(features.iter().map(options_of));
    }
    if !features.is_empty() {
        sets.push(vec![option("--features"), features.join(",")]);
    }
    sets
}

/// Checks the program without any feature, as `cargo xtask demo` builds it: what is behind a feature
/// must not be missing there. All other builds of the tests have all features.
pub(crate) fn check_demo(place: &Checkout) -> Result<(), XtaskFailure> {
    let none = ["--no-default-features".to_owned()];
    check(place, "conclave-host", &["--bin", "conclave"], &none)
}

/// Fails with the warnings of a package.
fn check(
    place: &Checkout,
    package: &str,
    target: &[&str],
    set: &[String],
) -> Result<(), XtaskFailure> {
    let mut command = place.cargo(["check", "--quiet", "--package", package]);
    command.args(target).args(set);
    phase::without_warnings(&mut command).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_is_checked_with_none_each_and_all_of_its_features() {
        let manifest = "[package]\nname = \"x\"\n\n[features]\ndefault = []\na = []\nb = [\"a\"]\n\
                        kill-points = []\n\n[dependencies]\nserde = \"1\"\n";
        let sets: Vec<String> = sets_of(manifest).iter().map(|set| set.join(" ")).collect();
        assert_eq!(
            sets,
            [
                "--no-default-features",
                "--no-default-features --features a",
                "--no-default-features --features b",
                "--features a,b",
            ]
        );
        assert_eq!(sets_of("[package]\n"), [["--no-default-features"]]);
    }
}
