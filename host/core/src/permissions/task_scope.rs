//! The restriction of an agent's grants by its task. It can only remove: names missing from a list
//! are refused while the agent works on this task, and names without a grant stay refused. A
//! capability without a list keeps its grant.

use serde::{Deserialize, Serialize};
use url::Url;

use crate::permissions::fetch::UrlPattern;
use crate::permissions::grant::Rights;
use crate::types::capability::Capability;
use crate::types::denial::{DenialRecord, Layer};
use crate::types::ids::{ModelName, SecretName, TaskName};

/// `tasks.NAME.scope`; the task's list of tools narrows tools.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TaskScope {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<Vec<ModelName>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delegate: Option<Vec<TaskName>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route: Option<Vec<String>>,
    /// The names of folders: `/notes`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<Vec<String>>,
    /// Whether folders are read-only.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fetch: Option<Vec<UrlPattern>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secrets: Option<Vec<SecretName>>,
    /// `Some(false)` makes the store unavailable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kv: Option<bool>,
}

/// A task with its restriction.
#[derive(Clone, Copy, Debug)]
pub struct ScopedTask<'a> {
    pub task: &'a TaskName,
    pub scope: &'a TaskScope,
}

impl Rights<'_> {
    /// Checks that the task leaves the capability; allocates nothing if it does.
    fn leaves(
        &self,
        capability: Capability,
        target: &str,
        leaves: impl FnOnce(&TaskScope) -> bool,
    ) -> Result<(), Box<DenialRecord>> {
        let Some(ScopedTask { task, scope: narrow }) = self.narrowed else { return Ok(()) };
        if leaves(narrow) {
            return Ok(());
        }
        let reason = format!(
            "plugins.{}.grants.{capability} holds it, and tasks.{task}.scope leaves it out",
            self.plugin
        );
        Err(self.refuse(capability, target, Layer::Task, &reason, None))
    }

    pub(crate) fn leaves_model(&self, model: &ModelName) -> Result<(), Box<DenialRecord>> {
        self.leaves(Capability::Model, model.as_str(), |narrow| {
            narrow.model.as_ref().is_none_or(|models| models.contains(model))
        })
    }

    pub(crate) fn leaves_route(&self, name: &str) -> Result<(), Box<DenialRecord>> {
        let holds =
            |names: &Vec<String>| names.iter().any(|other| other.eq_ignore_ascii_case(name));
        self.leaves(Capability::Route, name, |narrow| narrow.route.as_ref().is_none_or(holds))
    }

    pub(crate) fn leaves_delegate(&self, task: &TaskName) -> Result<(), Box<DenialRecord>> {
        self.leaves(Capability::Delegate, task.as_str(), |narrow| {
            narrow.delegate.as_ref().is_none_or(|tasks| tasks.contains(task))
        })
    }

    pub(crate) fn leaves_folder(
        &self,
        path: &str,
        folder: &str,
        writes: bool,
    ) -> Result<(), Box<DenialRecord>> {
        let holds = |folders: &Vec<String>| folders.iter().any(|place| place == folder);
        self.leaves(Capability::Files, path, |narrow| {
            !(writes && narrow.read_only) && narrow.files.as_ref().is_none_or(holds)
        })
    }

    pub(crate) fn leaves_address(&self, url: &Url) -> Result<(), Box<DenialRecord>> {
        let holds = |patterns: &Vec<UrlPattern>| patterns.iter().any(|pattern| pattern.covers(url));
        self.leaves(Capability::Fetch, url.as_str(), |narrow| {
            narrow.fetch.as_ref().is_none_or(holds)
        })
    }

    pub(crate) fn leaves_secret(&self, name: &str) -> Result<(), Box<DenialRecord>> {
        let holds = |names: &Vec<SecretName>| names.iter().any(|other| other.as_str() == name);
        self.leaves(Capability::Secrets, name, |narrow| narrow.secrets.as_ref().is_none_or(holds))
    }

    pub(crate) fn leaves_store(&self, key: &str) -> Result<(), Box<DenialRecord>> {
        self.leaves(Capability::Kv, key, |narrow| narrow.kv != Some(false))
    }
}

/// Maximum bytes of a key of a plugin's own store.
pub const KEY_BYTES: usize = 512;

impl Rights<'_> {
    /// Allows the plugin's own store, for this key.
    ///
    /// # Errors
    /// The record, if the store is not requested, not granted, or excluded by the task, or if the
    /// key is too long.
    pub fn may_store(&self, key: &str) -> Result<(), Box<DenialRecord>> {
        self.require(Capability::Kv, key, || {
            Some(format!("[plugins.{}] grants.kv = true", self.plugin))
        })?;
        self.leaves_store(key)?;
        if key.len() > KEY_BYTES {
            let reason = "a key has 512 bytes at most";
            return Err(self.refuse(Capability::Kv, key, Layer::Runtime, reason, None));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::permissions::fetch::target;
    use crate::permissions::grant::{
        FetchGrant, FetchRule, FileGrant, FileMode, Grants, KvGrant, SecretGrant,
    };
    use crate::permissions::manifest::{CapabilityRequest, Manifest};

    fn manifest() -> Manifest {
        let asks = ["files", "fetch", "secrets", "kv"]
            .map(|name| (name.to_owned(), CapabilityRequest::default()));
        Manifest { asks: asks.into(), ..Manifest::default() }
    }

    fn grants() -> Grants {
        let folder = |at: &str| FileGrant {
            dir: at.to_owned(),
            display_path: at.to_owned(),
            at: at.to_owned(),
            mode: FileMode::ReadWrite,
            bytes: 1,
            files: 1,
        };
        let rule = FetchRule {
            url: UrlPattern::parse("https://a.example/*").unwrap(),
            methods: vec!["GET".to_owned()],
        };
        let secret = |name: &str| SecretGrant {
            name: name.into(),
            hosts: Vec::new(),
            request_parts: std::collections::BTreeSet::new(),
        };
        Grants {
            files: vec![folder("/notes"), folder("/docs")],
            fetch: Some(FetchGrant::new(vec![rule])),
            kv: Some(KvGrant::default()),
            secrets: vec![secret("one_secret"), secret("other")],
            ..Grants::default()
        }
    }

    /// The refusing layers for the imports, in the order files to read, files to write, fetch,
    /// secret, store.
    fn answers(narrow: &TaskScope) -> [Option<Layer>; 5] {
        let (manifest, grants, task) = (manifest(), grants(), TaskName::from("desk"));
        let rights = Rights {
            plugin: "desk",
            manifest: &manifest,
            grants: &grants,
            narrowed: Some(ScopedTask { task: &task, scope: narrow }),
        };
        let url = target("https://a.example/v1/x").unwrap();
        let layer = |refused: Option<Box<DenialRecord>>| refused.map(|record| record.layer);
        [
            layer(rights.may_touch("/notes/a", false).err()),
            layer(rights.may_touch("/notes/a", true).err()),
            layer(rights.may_fetch("GET", &url, []).err()),
            layer(rights.require_secret(&"other".into(), || None).err()),
            layer(rights.may_store("k").err()),
        ]
    }

    #[test]
    fn a_key_that_is_too_long_is_refused_by_the_host() {
        let (manifest, grants) = (manifest(), grants());
        let rights =
            Rights { plugin: "desk", manifest: &manifest, grants: &grants, narrowed: None };
        assert!(rights.may_store(&"k".repeat(KEY_BYTES)).is_ok());
        let record = rights.may_store(&"k".repeat(KEY_BYTES + 1)).expect_err("it is too long");
        assert_eq!((record.layer, record.suggestion), (Layer::Runtime, None));
    }

    #[test]
    fn what_is_not_named_is_left_as_it_was_granted() {
        assert_eq!(answers(&TaskScope::default()), [None; 5]);
    }

    #[test]
    fn each_capability_is_narrowed_by_its_own_list() {
        let task = Some(Layer::Task);
        let with = |change: fn(&mut TaskScope)| {
            let mut narrow = TaskScope::default();
            change(&mut narrow);
            answers(&narrow)
        };
        assert_eq!(
            with(|narrow| narrow.files = Some(vec!["/docs".to_owned()])),
            [task, task, None, None, None]
        );
        assert_eq!(with(|narrow| narrow.read_only = true), [None, task, None, None, None]);
        assert_eq!(
            with(|narrow| narrow.fetch =
                Some(vec![UrlPattern::parse("https://a.example/v2/*").unwrap()])),
            [None, None, task, None, None]
        );
        assert_eq!(
            with(|narrow| narrow.secrets = Some(vec!["one_secret".into()])),
            [None, None, None, task, None]
        );
        assert_eq!(with(|narrow| narrow.kv = Some(false)), [None, None, None, None, task]);
    }
}
