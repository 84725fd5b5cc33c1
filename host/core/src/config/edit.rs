//! Edits of a conclave.toml as text: a plugin more, a grant more or less, and every comment and
//! blank where the operator put it. Text goes in and text comes out; an edit that would make the
//! config wrong is refused. Reads and writes no file.

mod changes;
mod entries;
mod fragment;
mod grants;
mod statements;
mod tables;

use std::collections::BTreeSet;

use crate::config::keys::{GRANTS, of_table};
use crate::config::{Config, ConfigProblem, Problems, Severity, check_name};
use crate::types::capability::Capability;
use crate::types::wording::{code, suggest};

pub use changes::{LineChange, changes};
pub use fragment::{Fragment, FragmentError, GrantText};

use statements::Statements;
use toml_edit::Value;

/// A config that is being edited.
#[derive(Clone, Debug)]
pub struct ConfigText {
    file: String,
    folder: String,
    before: String,
    text: String,
    /// The paths that were edited; nothing else may be different in the end.
    edited: Vec<Vec<String>>,
}

/// A config after its edits.
#[derive(Clone, Debug)]
pub struct EditedConfig {
    pub text: String,
    /// None: the text is as it was.
    pub changes: Vec<LineChange>,
    /// None while the config has problems, which it had before.
    pub config: Option<Config>,
    /// What the edits made right and most likely not meant, such as a plugin that nobody uses yet.
    pub warnings: Problems,
}

/// An edit that is not made.
#[derive(Debug, thiserror::Error)]
pub enum ConfigEditError {
    /// It is no TOML.
    #[error("{0}")]
    Unreadable(Problems),
    /// With the edit it would be wrong; the places are those of the text with the edit.
    #[error("{0}")]
    Wrong(Problems),
    #[error("there is no plugin {}{}", code(.name), .help.as_ref().map(|help| format!("; {help}")).unwrap_or_default())]
    NoPlugin { name: String, help: Option<String> },
    #[error("there is a plugin {} already; choose another name", code(.0))]
    PluginExists(String),
    #[error("{} cannot be the name of a plugin: it {why}", code(.name))]
    Name { name: String, why: String },
    /// What is taken back is granted by a wider entry.
    #[error("{} is not granted by name but as part of {}; take that back, and grant what may stay", code(.entry), code(.wider))]
    Wider { entry: String, wider: String },
    /// Nothing of what is to be taken back is there.
    #[error("{} is not granted to {}, so nothing was taken back", code(.grant), code(.plugin))]
    NotGranted { plugin: String, grant: String },
    #[error("{} is the table form of a grant that has none", code(.0))]
    NoTableForm(String),
    /// What is to be taken back names a limit.
    #[error("{} of {} is a limit, and limits are not lifted by taking back; change it by hand, in the config", code(.key), code(.grant))]
    Limit { grant: String, key: String },
    /// The file is written in a form that this cannot edit.
    #[error("{} is written in a way that is not edited here; change it by hand", code(.0))]
    Form(String),
}

impl ConfigText {
    /// Takes a config in; it may have problems, but must be TOML. The arguments are those of
    /// [`Config::parse`].
    ///
    /// # Errors
    /// `Unreadable` when it is no TOML.
    pub fn open(file_name: &str, folder: &str, text: &str) -> Result<Self, ConfigEditError> {
        let (file, folder, text) = (file_name.to_owned(), folder.to_owned(), text.to_owned());
        let edit = Self { file, folder, before: text.clone(), text, edited: Vec::new() };
        match Statements::parse(&edit.text) {
            Some(_) => Ok(edit),
            None => Err(ConfigEditError::Unreadable(edit.problems(&edit.text))),
        }
    }

    /// The text as it is now.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The names of its plugins.
    #[must_use]
    pub fn plugins(&self) -> Vec<String> {
        let names = |config: Statements<'_>| {
            let plugins = config.find(&["plugins"])?.as_table_like()?;
            Some(plugins.iter().map(|(name, _)| name.to_owned()).collect())
        };
        self.statements().and_then(names).unwrap_or_default()
    }

    /// Writes `[plugins.NAME]` with its source behind the other plugins, under lines of comment.
    ///
    /// # Errors
    /// `PluginExists` and `Name` for a name that it cannot have.
    pub fn add_plugin(
        &mut self,
        name: &str,
        source: &str,
        comment: &[String],
    ) -> Result<(), ConfigEditError> {
        check_name(name).map_err(|error| ConfigEditError::Name {
            name: name.to_owned(),
            why: error.to_string(),
        })?;
        if self.plugins().iter().any(|other| other == name) {
            return Err(ConfigEditError::PluginExists(name.to_owned()));
        }
        let edited =
            self.statements().map(|config| tables::add_plugin(&config, name, source, comment));
        self.replace(&["plugins", name], edited)
    }

    /// Writes rules of the policy, each a whole `[[policy]]` table, before the rule of this number,
    /// counted from 0, or behind all.
    ///
    /// # Errors
    /// `Form` where the policy is written in brackets, or has no such rule.
    pub fn add_rules(
        &mut self,
        before: Option<usize>,
        rules: &[String],
    ) -> Result<(), ConfigEditError> {
        let edited = self.statements().and_then(|config| tables::add_rules(&config, before, rules));
        self.replace(&["policy"], edited)
    }

    /// Adds to what a plugin was granted: lists grow by what is not in them, limits and directories
    /// at the same place are replaced.
    ///
    /// # Errors
    /// `NoPlugin`, or `Form` where the grant is written in a form that is not edited.
    pub fn grant(&mut self, plugin: &str, fragment: &Fragment) -> Result<(), ConfigEditError> {
        self.require_plugin(plugin)?;
        fragment.grants.iter().try_for_each(|grant| grants::grant(self, plugin, grant))
    }

    /// Takes back what was granted: every entry that the fragment names or that a pattern of it
    /// covers, private networks among them, or all of a grant. A limit is never lifted. After an
    /// error the text is as it was.
    ///
    /// # Errors
    /// `NoPlugin`; `Wider` when an entry is granted by a pattern too, which would go on granting
    /// it; `NotGranted` when nothing of the fragment is granted; `Limit` when it names a limit;
    /// `Form` as for `grant`.
    pub fn revoke(&mut self, plugin: &str, fragment: &Fragment) -> Result<(), ConfigEditError> {
        self.require_plugin(plugin)?;
        let mut edit = self.clone();
        let mut any = false;
        for grant in &fragment.grants {
            any |= grants::revoke(&mut edit, plugin, grant)?;
        }
        if !any {
            return Err(ConfigEditError::NotGranted {
                plugin: plugin.to_owned(),
                grant: fragment.to_string(),
            });
        }
        *self = edit;
        Ok(())
    }

    /// Writes a value, TOML as text, to a path such as `["limits", "run", "turns"]`, in place of
    /// what is there.
    ///
    /// # Errors
    /// `Form` where there is no place for it.
    pub fn set(&mut self, path: &[&str], value: &str) -> Result<(), ConfigEditError> {
        self.set_after(path, value, None)
    }

    /// Takes a key away, with all below it; one that is not there is no error.
    ///
    /// # Errors
    /// `Form` where it is written in a form that is not edited.
    pub fn remove(&mut self, path: &[&str]) -> Result<(), ConfigEditError> {
        let Some(config) = self.statements().filter(|config| config.find(path).is_some()) else {
            return Ok(());
        };
        let edited = config.remove(path);
        self.replace(path, edited)
    }

    /// Ends with the new text and what is new in it.
    ///
    /// # Errors
    /// `Wrong` with the problems that the edits brought; those that were there before do not count.
    /// `Form` when an edit would change a value that it is not about.
    pub fn finish(self) -> Result<EditedConfig, ConfigEditError> {
        if !changes::is_same_elsewhere(&self.before, &self.text, &self.edited) {
            return Err(ConfigEditError::Form(
                self.edited.first().map(|path| path.join(".")).unwrap_or_default(),
            ));
        }
        let old = self.problems(&self.before);
        let changes = changes(&self.before, &self.text);
        let parsed = Config::parse(&self.file, &self.folder, &self.text);
        let now = match &parsed {
            Ok(config) => config.warnings.clone(),
            Err(problems) => problems.clone(),
        };
        let known: BTreeSet<(&str, bool)> = old
            .0
            .iter()
            .map(|other| (other.what.as_str(), other.severity == Severity::Error))
            .collect();
        let is_new = |problem: &ConfigProblem| {
            !known.contains(&(problem.what.as_str(), problem.severity == Severity::Error))
        };
        let (errors, warnings): (Vec<ConfigProblem>, Vec<ConfigProblem>) = now
            .0
            .into_iter()
            .filter(is_new)
            .partition(|problem| problem.severity == Severity::Error);
        if !errors.is_empty() {
            return Err(ConfigEditError::Wrong(Problems(errors)));
        }
        Ok(EditedConfig {
            text: self.text,
            changes,
            config: parsed.ok(),
            warnings: Problems(warnings),
        })
    }

    fn statements(&self) -> Option<Statements<'_>> {
        Statements::parse(&self.text)
    }

    fn set_after(
        &mut self,
        path: &[&str],
        value: &str,
        after: Option<&str>,
    ) -> Result<(), ConfigEditError> {
        let edited = self.statements().and_then(|config| config.set(path, value, after));
        self.replace(path, edited)
    }

    /// Changes the value at the path.
    fn change(
        &mut self,
        path: &[&str],
        change: impl FnOnce(&mut Value) -> Option<()>,
    ) -> Result<(), ConfigEditError> {
        let edited = self.statements().and_then(|config| config.change(path, change));
        self.replace(path, edited)
    }

    /// Takes an edited text over, when there is one and it is TOML.
    fn replace(&mut self, path: &[&str], edited: Option<String>) -> Result<(), ConfigEditError> {
        let edited = edited.filter(|text| Statements::parse(text).is_some());
        self.text = edited.ok_or_else(|| ConfigEditError::Form(path.join(".")))?;
        self.edited.push(path.iter().map(|key| (*key).to_owned()).collect());
        Ok(())
    }

    fn require_plugin(&self, name: &str) -> Result<(), ConfigEditError> {
        let plugins = self.plugins();
        if plugins.iter().any(|other| other == name) {
            return Ok(());
        }
        Err(ConfigEditError::NoPlugin {
            name: name.to_owned(),
            help: suggest(name, &plugins, "these are there"),
        })
    }

    fn problems(&self, text: &str) -> Problems {
        match Config::parse(&self.file, &self.folder, text) {
            Ok(config) => config.warnings,
            Err(problems) => problems,
        }
    }
}

/// A name for a plugin, made from the one in its manifest; none when nothing of it can stay.
#[must_use]
pub fn proposed_name(text: &str) -> Option<String> {
    crate::config::names::proposed_name(text)
}

/// The capability that a grant is about.
#[must_use]
pub fn capability_of(grant: &GrantText) -> Option<Capability> {
    Capability::from_name(grant.key)
}

/// A grant of this capability as a config could have it, `fetch = ["https://…"]`: the one table of
/// examples is that of the keys.
#[must_use]
pub fn example_of(capability: Capability) -> Option<&'static str> {
    let key = of_table(GRANTS).find(|key| key.name == capability.as_str())?;
    Some(key.example.strip_prefix("grants.").unwrap_or(key.example))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_capability_that_can_be_granted_has_an_example_of_its_own_form() {
        for capability in Capability::ALL.into_iter().filter(|capability| !capability.is_own()) {
            let example = example_of(capability).unwrap_or_else(|| panic!("{capability} has none"));
            let fragment =
                Fragment::parse(example).unwrap_or_else(|error| panic!("{capability}: {error}"));
            assert_eq!(
                fragment.grants.iter().map(capability_of).collect::<Vec<_>>(),
                [Some(capability)],
                "{example}"
            );
        }
    }

    #[test]
    fn an_edit_that_changes_what_it_is_not_about_is_refused() {
        let text = "entry = \"t\"\n[plugins.p]\nsource = \"stock:chat\"\nconfig.b = \"v  w\"\n[tasks.t]\nagent = \"p\"\n";
        let mut edit = ConfigText::open("conclave.toml", "", text).expect("it is TOML");
        edit.grant("p", &Fragment::parse("route = [\"user\"]").expect("it is a grant"))
            .expect("it can be granted");
        assert!(edit.clone().finish().is_ok());
        edit.text = edit.text.replace("v  w", "v w");
        assert!(
            matches!(edit.finish(), Err(ConfigEditError::Form(path)) if path == "plugins.p.grants.route")
        );
    }
}
