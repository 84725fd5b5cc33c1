//! The command lines of commands that take a few flags, or pass their arguments on.

use crate::failure::XtaskFailure;

/// Which of its flags a command got that takes nothing else.
pub(crate) fn flags<const N: usize>(
    command: &str,
    known: [&str; N],
    arguments: &[String],
) -> Result<[bool; N], XtaskFailure> {
    let mut has = [false; N];
    for word in arguments {
        let flag = if word == "-v" { "--verbose" } else { word };
        let Some(at) = known.iter().position(|known| *known == flag) else {
            let takes = if N == 0 { "no options".to_owned() } else { known.join(", ") };
            return Err(XtaskFailure::usage(format!(
                "cargo xtask {command} does not know `{word}`: it takes {takes}"
            )));
        };
        has[at] = true;
    }
    Ok(has)
}

/// Whether `--verbose` is among the arguments, and those that belong to the program that a command
/// runs.
pub(crate) fn passed_on(arguments: &[String]) -> (bool, Vec<&String>) {
    let is_verbose = |word: &&String| *word == "--verbose" || *word == "-v";
    let (verbose, passed): (Vec<&String>, Vec<&String>) =
        arguments.iter().filter(|word| *word != "--").partition(is_verbose);
    (!verbose.is_empty(), passed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn a_flag_that_a_command_does_not_take_is_refused() {
        let known = ["--record", "--verbose"];
        let read = |list: &[&str]| flags("counts", known, &words(list)).ok();
        assert_eq!(read(&[]), Some([false, false]));
        assert_eq!(read(&["-v", "--record"]), Some([true, true]));
        assert_eq!(read(&["--release"]), None);
        assert!(flags("features", [], &words(&["-v"])).is_err());
    }

    #[test]
    fn other_arguments_are_passed_on() {
        let list = words(&["--", "--quick", "-v"]);
        let (verbose, passed) = passed_on(&list);
        assert_eq!((verbose, passed), (true, vec![&"--quick".to_owned()]));
    }
}
