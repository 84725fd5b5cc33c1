//! The error that ends the program: the failure, its reason and its remedy.

use std::fmt;

use conclave_core::config::Problems;
use conclave_core::types::wording::did_you_mean;

use crate::program::exit;

/// An error that ends the program.
#[derive(Debug)]
pub(crate) struct CliError {
    code: u8,
    what: String,
    hint: Option<String>,
    problems: Option<Problems>,
    /// The stable code of a refusal, for programs.
    refusal: Option<&'static str>,
}

impl CliError {
    /// The text and the remedy, for another kind of report.
    pub(crate) fn into_texts(self) -> (String, Option<String>) {
        (self.what, self.hint)
    }

    /// Returns an error of the command line, or of a file named on it.
    pub(crate) fn usage(what: impl Into<String>) -> Self {
        Self { code: exit::USAGE, what: what.into(), hint: None, problems: None, refusal: None }
    }

    /// Returns the error of a config with problems.
    pub(crate) fn config(problems: &Problems) -> Self {
        let heading = match problems.0.len() {
            1 => "the config has a problem".to_owned(),
            count => format!("the config has {count} problems"),
        };
        let text = problems.to_string();
        Self::usage(format!("{heading}\n\n{}", text.trim_end())).with_problems(problems)
    }

    /// Returns an error of a server that could not be reached.
    pub(crate) fn unreachable(what: impl Into<String>) -> Self {
        Self {
            code: exit::UNREACHABLE,
            what: what.into(),
            hint: None,
            problems: None,
            refusal: None,
        }
    }

    /// Returns an error of a plugin.
    pub(crate) fn plugin(what: impl Into<String>) -> Self {
        Self { code: exit::PLUGIN, what: what.into(), hint: None, problems: None, refusal: None }
    }

    /// Returns an error for an approval that no user could give.
    pub(crate) fn policy(what: impl Into<String>) -> Self {
        Self { code: exit::POLICY, what: what.into(), hint: None, problems: None, refusal: None }
    }

    /// Returns an error for a missing key.
    pub(crate) fn key(what: impl Into<String>) -> Self {
        Self { code: exit::KEY, what: what.into(), hint: None, problems: None, refusal: None }
    }

    /// Returns an error of the host itself or of the machine.
    pub(crate) fn internal(what: impl Into<String>) -> Self {
        Self { code: exit::FAILED, what: what.into(), hint: None, problems: None, refusal: None }
    }

    /// The end of a run at this terminal because another host has taken it over.
    pub(crate) fn taken_over(what: impl Into<String>) -> Self {
        Self { code: exit::ELSEWHERE, what: what.into(), hint: None, problems: None, refusal: None }
    }

    /// Whether something failed; a run that was taken over did not.
    pub(crate) fn is_failure(&self) -> bool {
        self.code != exit::ELSEWHERE
    }

    /// The error for what this program was built without.
    #[cfg(not(all(
        feature = "http-models",
        feature = "mcp",
        feature = "registry",
        feature = "serve"
    )))]
    pub(crate) fn left_out(feature: &str) -> Self {
        Self::usage(format!("this program was built without its feature `{feature}`"))
            .hint("`cargo xtask install` builds the whole program")
    }

    /// Adds a config's problems, for `--json`.
    pub(crate) fn with_problems(mut self, problems: &Problems) -> Self {
        self.problems = Some(problems.clone());
        self
    }

    /// Adds a remedy.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Adds the names that exist as a remedy for an unknown one. `lead` introduces them, such as
    /// `the plugins are`.
    pub(crate) fn known<'a>(
        self,
        unknown: &str,
        lead: &str,
        names: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        let names: Vec<&str> = names.into_iter().collect();
        let near = did_you_mean(unknown, names.iter().copied());
        let near = near.map(|near| format!("; {near}")).unwrap_or_default();
        self.hint(format!("{lead}: {}{near}", names.join(", ")))
    }

    /// The exit code.
    pub(crate) fn code(&self) -> u8 {
        self.code
    }

    /// Adds the stable code of a refusal, for programs.
    pub(crate) fn with_code(self, code: &'static str) -> Self {
        Self { refusal: Some(code), ..self }
    }

    /// The error as one line of JSON, for `--json`.
    pub(crate) fn to_json(&self) -> String {
        let kind = if self.is_failure() { "error" } else { "elsewhere" };
        let mut line = serde_json::json!({ "type": kind, "message": self.what, "hint": self.hint, "problems": self.problems, "exit_code": self.code });
        if let Some(code) = self.refusal {
            line["code"] = code.into();
        }
        line.to_string()
    }
}

impl fmt::Display for CliError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}", self.what)?;
        match &self.hint {
            Some(hint) => write!(out, "\nhelp: {hint}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_name_is_answered_with_the_names_that_exist() {
        let hint = |unknown| {
            let error = CliError::usage("").known(unknown, "the plugins are", ["search", "notes"]);
            error.hint.unwrap_or_default()
        };
        assert_eq!(hint("serach"), "the plugins are: search, notes; did you mean `search`?");
        assert_eq!(hint("weather"), "the plugins are: search, notes");
    }
}
