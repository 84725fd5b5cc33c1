//! The rights of a plugin: requested in its manifest, granted in the config, narrowed by its task.
//! Nothing else grants. The checks here come first for every capability.

use std::borrow::Borrow;
use std::fmt::Display;

use super::texts::list_with;
use super::{Capability, Grants};
use crate::permissions::manifest::Manifest;
use crate::permissions::task_scope::{ScopedTask, TaskScope};
use crate::types::denial::{Denial, DenialRecord, Layer};

/// The record of a refusal.
pub type Refused = Box<DenialRecord>;

/// The rights of a plugin: its manifest, its grants, and the task's restriction.
#[derive(Clone, Copy, Debug)]
pub struct Rights<'a> {
    /// The plugin's name in the config.
    pub plugin: &'a str,
    pub manifest: &'a Manifest,
    pub grants: &'a Grants,
    /// The restriction by the current task; `None` for a plugin without a task of its own, such as
    /// a tool.
    pub narrowed: Option<ScopedTask<'a>>,
}

impl Rights<'_> {
    /// Checks that the capability was requested and granted. Allocates nothing if it was.
    ///
    /// # Errors
    /// The record for the operator: the layer that refused, and the smallest grant.
    pub fn require(
        &self,
        capability: Capability,
        target: &str,
        smallest: impl FnOnce() -> Option<String>,
    ) -> Result<(), Refused> {
        if !capability.is_own() && self.manifest.ask(capability).is_none() {
            let reason = format!("the manifest of {} does not ask for `{capability}`", self.plugin);
            return Err(self.refuse(capability, target, Layer::Manifest, &reason, None));
        }
        if !self.grants.has(capability) {
            let reason = format!("the config grants no `{capability}` to {}", self.plugin);
            return Err(self.refuse(capability, target, Layer::Config, &reason, smallest()));
        }
        Ok(())
    }

    /// Returns the granted entry that `entry` finds, after [`require`](Self::require).
    pub(super) fn require_entry<T>(
        &self,
        capability: Capability,
        target: &str,
        smallest: impl Fn() -> Option<String>,
        entry: impl FnOnce() -> Option<T>,
    ) -> Result<T, Refused> {
        self.require(capability, target, &smallest)?;
        entry().ok_or_else(|| {
            let reason =
                format!("plugins.{}.grants.{capability} does not contain {target:?}", self.plugin);
            self.refuse(capability, target, Layer::Config, &reason, smallest())
        })
    }

    /// Checks that the task leaves the capability; allocates nothing if it does.
    pub(super) fn check_scope(
        &self,
        capability: Capability,
        target: &str,
        leaves: impl FnOnce(&TaskScope) -> bool,
    ) -> Result<(), Refused> {
        let Some(ScopedTask { task, scope }) = self.narrowed else { return Ok(()) };
        if leaves(scope) {
            return Ok(());
        }
        let reason = format!(
            "plugins.{}.grants.{capability} holds it, and tasks.{task}.scope leaves it out",
            self.plugin
        );
        Err(self.refuse(capability, target, Layer::Task, &reason, None))
    }

    /// The record of a refusal. `reason` is for the operator.
    #[must_use]
    pub fn refuse(
        &self,
        capability: Capability,
        target: &str,
        layer: Layer,
        reason: &str,
        suggestion: Option<String>,
    ) -> Refused {
        let short_target: String = target.chars().take(256).collect();
        Box::new(DenialRecord {
            denial: Denial {
                capability: capability.as_str().to_owned(),
                detail: match capability {
                    Capability::Tools => format!("{} may not call {short_target:?}", self.plugin),
                    _ => format!("{capability} was refused for {short_target:?}"),
                },
                target: short_target,
            },
            layer,
            reason: reason.to_owned(),
            suggestion,
            writes: false,
        })
    }

    /// The line of config that grants a capability.
    pub(super) fn line(&self, capability: Capability, value: impl Display) -> String {
        format!("[plugins.{}] grants.{capability} = {value}", self.plugin)
    }

    /// The line that grants one name more.
    pub(super) fn line_with<T: Borrow<str>>(
        &self,
        capability: Capability,
        granted: &[T],
        name: &str,
    ) -> String {
        self.line(capability, list_with(granted, name))
    }
}
