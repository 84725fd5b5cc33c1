//! `[a] always`: writes the rules that allow a call into the config, before all other rules.
//! Comments and layout stay, and the written lines are shown. A config whose rules differ from the
//! run's is left unchanged.

use std::fmt::Write as _;
use std::path::Path;

use conclave_core::config::Config;
use conclave_core::permissions::policy_rules::{Policy, Rule};
use conclave_core::policy::permit::Permit;
use conclave_core::setup::Setup;

use crate::program::error::CliError;
use crate::state::config_file::ConfigFile;
use crate::ui::screen::columns;
use crate::ui::show::{FAINT, GOOD, foreign, paint, show_path};

/// Whether the config is a file whose rules are those of the run.
pub(super) fn has_same_policy(file: &Path, setup: &Setup) -> bool {
    let folder = file.parent().unwrap_or(Path::new("")).to_string_lossy();
    let text = std::fs::read_to_string(file).ok();
    let config = text.and_then(|text| Config::parse(&show_path(file), &folder, &text).ok());
    config.is_some_and(|config| is_same(&config.policy, &setup.policy))
}

/// Writes the rules. Returns the changed lines, for display, and the file's new policy.
pub(super) fn write(
    path: &Path,
    setup: &Setup,
    leave: &Permit,
) -> Result<(String, Policy), CliError> {
    let file = ConfigFile::open(path)?;
    if !has_same_policy(path, setup) {
        let what = format!("the rules in {} have changed since the run started", show_path(path));
        return Err(CliError::usage(what));
    }
    let mut edit = file.edit()?;
    let rules: Vec<String> = leave.rules.iter().map(Rule::to_toml).collect();
    edit.add_rules(leave.before, &rules)?;
    let edited = edit.finish()?;
    file.write(&edited)?;
    let mut text =
        format!("      {}", paint(FAINT, format_args!("written into {}:", show_path(path))));
    // Shows the block itself: a line diff may match another block's header to this one.
    let _ = write!(text, "\n{}", foreign::block(&leave.to_toml(), GOOD, 6, columns()));
    let policy = edited.config.map(|config| config.policy);
    Ok((text, policy.unwrap_or_else(|| with(setup, leave))))
}

fn with(setup: &Setup, leave: &Permit) -> Policy {
    let at = leave.before.unwrap_or(setup.policy.len());
    setup.policy.with_rules_at(at, leave.rules.iter().cloned())
}

/// Whether two lists hold the same rules, regardless of their positions in the file.
fn is_same(one: &[Rule], other: &[Rule]) -> bool {
    let plain = |rule: &Rule| Rule { source: String::new(), ..rule.clone() };
    one.len() == other.len() && one.iter().zip(other).all(|(one, other)| plain(one) == plain(other))
}

#[cfg(test)]
mod tests {
    use conclave_core::permissions::policy_rules::Decide;
    use conclave_core::policy::decision::decide;
    use serde_json::json;

    use super::super::request_context::testing::{about, request};

    const CONFIG: &str = "entry = \"desk\"\n[plugins.notes]\nsource = \"stock:chat\"\n[plugins.librarian]\nsource = \"stock:chat\"\n\
        [tasks.desk]\nagent = \"librarian\"\n\n# What is asked about.\n[[policy]]\ntool = \"notes.*\"\ndecide = \"ask\"  # always was\n";

    #[test]
    fn a_new_rule_is_inserted_before_the_asking_rule_and_takes_effect() {
        let temp = tempfile::tempdir().unwrap();
        let file = temp.path().join("conclave.toml");
        std::fs::write(&file, CONFIG).unwrap();
        let about = about(temp.path(), &file);
        let request = request(json!({ "path": "/notes/a.md" }));
        assert!(about.can_write(&request));
        let text = anstream::adapter::strip_str(&about.write(&request, true).unwrap()).to_string();
        assert!(
            text.contains("      │ [[policy]]\n      │ tool = \"notes.save\"")
                && text.contains("/notes/a.md")
                && text.ends_with("decide = \"allow\""),
            "{text}"
        );
        let rule = "[[policy]]\ntool = \"notes.save\"\ncaller = \"librarian\"\narguments = { path = \"/notes/a.md\" }\nexact_arguments = true\ndecide = \"allow\"\n\n";
        let expected =
            CONFIG.replace("# What is asked about.", &format!("{rule}# What is asked about."));
        assert_eq!(std::fs::read_to_string(&file).unwrap(), expected);
        let setup = about.setup();
        let one = |path: &str| {
            decide(&setup, request.callers(), "notes.save", &json!({ "path": path })).decide
        };
        assert_eq!((one("/notes/a.md"), one("/notes/b.md")), (Decide::Allow, Decide::Ask));
        assert!(
            about.can_write(&super::super::request_context::testing::request(json!({}))),
            "the file has the rules that the run goes by still"
        );
    }

    #[test]
    fn a_config_with_changed_rules_is_not_written() {
        let temp = tempfile::tempdir().unwrap();
        let file = temp.path().join("conclave.toml");
        std::fs::write(&file, CONFIG).unwrap();
        let about = about(temp.path(), &file);
        let request = request(json!({}));
        let other = CONFIG.replace("\"ask\"", "\"deny\"");
        std::fs::write(&file, &other).unwrap();
        assert!(!about.can_write(&request) && about.write(&request, false).is_err());
        assert_eq!(std::fs::read_to_string(&file).unwrap(), other);
        std::fs::remove_file(&file).unwrap();
        assert!(!about.can_write(&request), "there is no file");
    }
}
