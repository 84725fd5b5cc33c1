//! `cargo xtask weight`: the sizes of the optimised program, of the files beside it and of the stock
//! components, held against `tests/counts/weight.txt`. They depend on no machine's speed, so a gate
//! can fail on them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::process::ExitCode;

use crate::counts::{parsed, spelled};
use crate::failure::XtaskFailure;
use crate::place::{Checkout, files_below};
use crate::program::{self, BuiltProgram, CodeTarget, ProgramBuild};

const RECORDED: &str = "tests/counts/weight.txt";
/// The rows, by name.
const PROGRAM: &str = "program-bytes";
const FILES: &str = "program-files-bytes";
const COMPONENTS: &str = "stock-components-bytes";
/// The growth in percent that no one has to explain.
const TOLERANCE: u64 = 5;

type Weights = BTreeMap<String, u64>;

pub(crate) fn run(place: &Checkout, arguments: &[String]) -> Result<ExitCode, XtaskFailure> {
    let record = match arguments {
        [] => false,
        [word] if word == "--record" => true,
        other => {
            return Err(XtaskFailure::usage(format!(
                "cargo xtask weight takes only --record, not `{}`",
                other.join(" ")
            )));
        }
    };
    let build =
        ProgramBuild { profile: program::OPTIMISED, target: None, code: CodeTarget::ThisMachine };
    let Some(built) = build.last(place) else {
        return Err(XtaskFailure::new(
            "there is no optimised program to weigh: run `cargo xtask install`".to_owned(),
        ));
    };
    let weights = of_program(place, &built);
    print!("{}", table(&weights, &read(place).unwrap_or_default()));
    if record {
        let file = place.root.join(RECORDED);
        fs::write(&file, written(&weights))
            .map_err(|error| XtaskFailure::io("write", &file, &error))?;
        return Ok(ExitCode::SUCCESS);
    }
    compare(&weights, &read(place)?).map(|()| ExitCode::SUCCESS)
}

/// Fails if the stock components, which the tests have just built, became larger.
pub(crate) fn check_components(place: &Checkout) -> Result<(), XtaskFailure> {
    compare(&of_components(place), &read(place)?)
}

fn of_program(place: &Checkout, built: &BuiltProgram) -> Weights {
    let (program, files) = built.weight();
    let mut weights = of_components(place);
    weights.insert(PROGRAM.to_owned(), program);
    weights.insert(FILES.to_owned(), files);
    weights
}

fn of_components(place: &Checkout) -> Weights {
    let files = files_below(&place.stock(), ".wasm");
    let sizes = files.iter().filter_map(|file| fs::metadata(file).ok());
    Weights::from([(COMPONENTS.to_owned(), sizes.map(|file| file.len()).sum())])
}

fn read(place: &Checkout) -> Result<Weights, XtaskFailure> {
    Ok(parsed(&place.read(RECORDED)?))
}

fn written(weights: &Weights) -> String {
    let mut text =
        "# Sizes of the optimised program, written by `cargo xtask weight --record`.\n".to_owned();
    for (name, bytes) in weights {
        let _ = writeln!(text, "{name:<24}{:>14}", spelled(*bytes));
    }
    text
}

fn table(weights: &Weights, recorded: &Weights) -> String {
    let mut text = format!("{:<24}{:>14}{:>14}\n", "part", "now", "recorded");
    for (name, bytes) in weights {
        let before = recorded.get(name).map_or("–".to_owned(), |bytes| spelled(*bytes));
        let _ = writeln!(text, "{name:<24}{:>14}{before:>14}", spelled(*bytes));
    }
    text
}

/// Fails for each row above what is recorded. What became smaller is no fault.
fn compare(weights: &Weights, recorded: &Weights) -> Result<(), XtaskFailure> {
    let mut lines = Vec::new();
    for (name, bytes) in weights {
        let Some(before) = recorded.get(name) else {
            lines.push(format!("    {name} is not recorded"));
            continue;
        };
        if *bytes * 100 > before * (100 + TOLERANCE) {
            let percent = (bytes - before) * 100 / before.max(&1);
            lines.push(format!(
                "    {name} is {}, {percent} % more than the {} recorded",
                spelled(*bytes),
                spelled(*before)
            ));
        }
    }
    if lines.is_empty() {
        return Ok(());
    }
    Err(XtaskFailure::new(format!(
        "\n{}\n\nIf it is meant, write {RECORDED} anew (`cargo xtask weight --record`) and say in the \
         commit what it is for.",
        lines.join("\n")
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weights(pairs: &[(&str, u64)]) -> Weights {
        pairs.iter().map(|(name, bytes)| ((*name).to_owned(), *bytes)).collect()
    }

    #[test]
    fn only_growth_above_five_percent_fails() {
        let recorded = weights(&[(PROGRAM, 1_000), (FILES, 2_000)]);
        let refused = |bytes| {
            compare(&weights(&[(PROGRAM, bytes)]), &recorded).err().map(|failure| failure.text)
        };
        assert_eq!((refused(1_050), refused(10)), (None, None));
        assert!(refused(1_060).unwrap().contains("program-bytes is 1_060, 6 % more"));
        let other = compare(&weights(&[("other", 1)]), &recorded).unwrap_err().text;
        assert!(other.contains("other is not recorded"), "{other}");
    }

    #[test]
    fn what_is_written_is_read_again() {
        let all = weights(&[(PROGRAM, 55_123_456), (FILES, 12)]);
        assert_eq!(parsed(&written(&all)), all);
    }
}
