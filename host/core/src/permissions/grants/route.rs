//! `route`: messages to addresses, and tools of the host.

use serde::{Deserialize, Serialize};

use super::texts::join;
use super::{
    AccessRequest, Capability, Destination, Grant, GrantTexts, Refused, Rights, TaskScope, has_any,
};
use crate::types::host_tool::HostTool;

/// The grant of addresses and of host tools.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RouteGrant {
    /// Task names, `user`, or host tools such as `done`.
    pub names: Vec<String>,
}

/// Whether a list has the address; L-063: addresses ignore case.
fn has(names: &[String], name: &str) -> bool {
    names.iter().any(|other| other.eq_ignore_ascii_case(name))
}

impl Rights<'_> {
    /// Allows an address, or a host tool.
    ///
    /// # Errors
    /// As [`may_use_model`](Self::may_use_model).
    pub fn may_route(&self, name: &str) -> Result<(), Refused> {
        let granted = self.grants.route.as_ref().map_or(&[][..], |grant| &grant.names);
        let smallest = || Some(self.line_with(Capability::Route, granted, name));
        self.require_entry(Capability::Route, name, smallest, || has(granted, name).then_some(()))?;
        self.check_scope(Capability::Route, name, |scope| {
            scope.route.as_ref().is_none_or(|names| has(names, name))
        })
    }
}

impl Grant for RouteGrant {
    fn decide(request: &AccessRequest<'_>) -> Result<(), Refused> {
        request.rights.may_route(request.target)
    }

    fn remains(scope: &TaskScope, _writes: bool) -> Option<bool> {
        Some(has_any(&scope.route))
    }

    fn narrowed_by(&self, today: &Self) -> Option<Self> {
        let names = self.names.iter().filter(|name| has(&today.names, name)).cloned().collect();
        Some(Self { names }).filter(|grant| !grant.names.is_empty())
    }

    fn needs_approval(&self) -> bool {
        // It steers only the calling task.
        false
    }

    fn acts(&self) -> bool {
        false
    }

    fn destinations(&self) -> Vec<Destination<'_>> {
        Vec::new()
    }

    fn texts(&self, request: &AccessRequest<'_>) -> GrantTexts {
        let is_tool = |name: &&str| HostTool::from_name(name).is_some();
        let (tools, addresses): (Vec<&str>, Vec<&str>) =
            self.names.iter().map(String::as_str).partition(is_tool);
        let pass = (!addresses.is_empty()).then(|| format!("pass messages to {}", join(addresses)));
        let steer = (!tools.is_empty()).then(|| format!("steer its task with {}", join(tools)));
        let summary: Vec<String> = pass.into_iter().chain(steer).collect();
        let is_target = |name: &str| name.eq_ignore_ascii_case(request.target);
        GrantTexts {
            summary: (!summary.is_empty()).then(|| summary.join(" and ")).into_iter().collect(),
            ..GrantTexts::of_names(&self.names, is_target)
        }
    }
}
