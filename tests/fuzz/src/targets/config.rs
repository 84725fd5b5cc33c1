//! A config: problems point into the text, and the assembled setup reads back from a journal.

use conclave_core::config::assemble::assemble;
use conclave_core::config::{Config, Problems, Severity};
use conclave_core::setup::Setup;

use super::facts;

pub(super) fn check(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    match Config::parse("conclave.toml", "/srv/desk", &text) {
        Err(problems) => {
            assert!(problems.has_errors(), "refused without an error");
            stand_in(&text, &problems);
        }
        Ok(config) => assembled(&text, &config),
    }
}

fn assembled(text: &str, config: &Config) {
    assert!(
        !config.warnings.has_errors(),
        "an error among the warnings of a config that was taken"
    );
    stand_in(text, &config.warnings);
    match assemble(config, &facts::all(config.plugins.keys())) {
        Err(problems) => {
            assert!(problems.has_errors(), "refused without an error");
            stand_in(text, &problems);
        }
        Ok(assembly) => {
            stand_in(text, &assembly.warnings);
            let json = serde_json::to_string(&assembly.setup).expect("a setup can be journalled");
            let read: Setup = serde_json::from_str(&json)
                .unwrap_or_else(|error| panic!("a setup is read back: {error}"));
            assert_eq!(read, assembly.setup, "a setup is read back as it was");
        }
    }
}

/// Checks that every problem points into the text and can be printed.
pub(super) fn stand_in(text: &str, problems: &Problems) {
    let lines: Vec<&str> = text.split('\n').collect();
    for problem in &problems.0 {
        let line = lines
            .get(problem.line.wrapping_sub(1))
            .unwrap_or_else(|| panic!("line {} of {}", problem.line, lines.len()));
        let columns = line.chars().count() + 1;
        assert!(
            (1..=columns).contains(&problem.column),
            "column {} of {columns} in line {}",
            problem.column,
            problem.line
        );
        assert!(matches!(problem.severity, Severity::Error | Severity::Warning));
        let shown = problem.to_string();
        assert!(
            shown.lines().all(|line| !line.chars().any(char::is_control)),
            "a problem steers the terminal: {shown:?}"
        );
    }
}
