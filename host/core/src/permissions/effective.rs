//! The effective grants of a resumed run: the intersection of the grants at its start and those of
//! today's config, for each capability. Computes lists of grants; `authorize` decides about one
//! request.

use std::collections::BTreeMap;

use ipnet::IpNet;

use crate::permissions::exec::CommandPattern;
use crate::permissions::fetch::{HostPattern, UrlPattern};
use crate::permissions::grant::{
    ChannelsGrant, Confinement, CoveredTools, DelegateGrant, ExecGrant, FetchGrant, FetchRule,
    FileGrant, FileMode, Grants, HistoryGrant, KvGrant, ModelGrant, RouteGrant, SecretGrant,
    ToolPattern, ToolsGrant,
};
use crate::permissions::manifest::Manifest;
use crate::permissions::task_scope::TaskScope;
use crate::types::capability::Capability;
use crate::types::confirm::{ConfirmPolicy, ConfirmRules};
use crate::types::limits::{PluginLimits, RunLimits, WhenUsedUp};

impl Grants {
    /// Returns what both grant: these, with which the run began, and those of today's config.
    #[must_use]
    pub fn narrowed_by(&self, today: &Self) -> Self {
        // Destructured without `..`, so that a new capability does not compile before it is here.
        let Self {
            model,
            tools,
            delegate,
            route,
            files,
            channels,
            fetch,
            kv,
            secrets,
            history,
            exec,
        } = self;
        Self {
            model: both(model.as_ref(), today.model.as_ref(), ModelGrant::narrowed_by)
                .filter(|grant| !grant.names.is_empty()),
            tools: both(tools.as_ref(), today.tools.as_ref(), ToolsGrant::narrowed_by)
                .filter(|grant| !grant.names.is_empty()),
            delegate: both(delegate.as_ref(), today.delegate.as_ref(), DelegateGrant::narrowed_by)
                .filter(|grant| !grant.tasks.is_empty()),
            route: both(route.as_ref(), today.route.as_ref(), RouteGrant::narrowed_by)
                .filter(|grant| !grant.names.is_empty()),
            files: common_folders(files, &today.files),
            channels: both(channels.as_ref(), today.channels.as_ref(), ChannelsGrant::narrowed_by)
                .filter(|grant| !grant.channels.is_empty()),
            fetch: both(fetch.as_ref(), today.fetch.as_ref(), FetchGrant::narrowed_by)
                .filter(|grant| !grant.rules.is_empty()),
            kv: both(kv.as_ref(), today.kv.as_ref(), |initial, today| KvGrant {
                bytes: initial.bytes.min(today.bytes),
                keys: initial.keys.min(today.keys),
            }),
            secrets: overlap(secrets, &today.secrets, SecretGrant::overlap),
            history: both(history.as_ref(), today.history.as_ref(), |initial, today| {
                HistoryGrant { messages: initial.messages.min(today.messages) }
            }),
            exec: both(exec.as_ref(), today.exec.as_ref(), ExecGrant::narrowed_by)
                .filter(|grant| !grant.commands.is_empty()),
        }
    }

    /// The grants that the manifest requests: the others have no effect.
    #[must_use]
    pub(crate) fn requested_by(&self, manifest: &Manifest) -> Self {
        let asks = |capability: Capability| manifest.ask(capability).is_some();
        Self {
            model: self.model.clone().filter(|_| asks(Capability::Model)),
            tools: self.tools.clone().filter(|_| asks(Capability::Tools)),
            delegate: self.delegate.clone().filter(|_| asks(Capability::Delegate)),
            route: self.route.clone().filter(|_| asks(Capability::Route)),
            files: if asks(Capability::Files) { self.files.clone() } else { Vec::new() },
            channels: self.channels.clone().filter(|_| asks(Capability::Channels)),
            fetch: self.fetch.clone().filter(|_| asks(Capability::Fetch)),
            kv: self.kv.filter(|_| asks(Capability::Kv)),
            secrets: if asks(Capability::Secrets) { self.secrets.clone() } else { Vec::new() },
            history: self.history.filter(|_| asks(Capability::History)),
            exec: self.exec.clone().filter(|_| asks(Capability::Exec)),
        }
    }
}

fn both<T>(initial: Option<&T>, today: Option<&T>, narrowed: impl Fn(&T, &T) -> T) -> Option<T> {
    Some(narrowed(initial?, today?))
}

/// The overlaps of each entry with each entry of the other list, in the first one's order.
fn overlap<T: PartialEq + Clone>(
    initial: &[T],
    today: &[T],
    overlap: impl Fn(&T, &T) -> Option<T>,
) -> Vec<T> {
    // Two entries of one list can overlap too; what did not change stays as it was written.
    if initial == today {
        return initial.to_vec();
    }
    let mut found = Vec::new();
    for entry in
        initial.iter().flat_map(|initial| today.iter().filter_map(|it| overlap(initial, it)))
    {
        if !found.contains(&entry) {
            found.push(entry);
        }
    }
    found
}

/// The entries that stand in both lists.
fn common<T: PartialEq + Clone>(initial: &[T], today: &[T]) -> Vec<T> {
    initial.iter().filter(|entry| today.contains(entry)).cloned().collect()
}

/// The smaller of two limits; `None` is no limit.
pub(crate) fn smaller<T: Ord>(initial: Option<T>, today: Option<T>) -> Option<T> {
    [initial, today].into_iter().flatten().min()
}

impl ModelGrant {
    fn narrowed_by(&self, today: &Self) -> Self {
        Self {
            names: common(&self.names, &today.names),
            tokens: smaller(self.tokens, today.tokens),
            cost_micro_usd: smaller(self.cost_micro_usd, today.cost_micro_usd),
            calls: smaller(self.calls, today.calls),
        }
    }
}

impl ToolsGrant {
    fn narrowed_by(&self, today: &Self) -> Self {
        Self {
            names: overlap(&self.names, &today.names, ToolPattern::overlap),
            calls: smaller(self.calls, today.calls),
        }
    }
}

impl ToolPattern {
    /// The pattern of the tools that both cover; `None` if there are none. Of two patterns that
    /// share a tool, one covers all tools of the other.
    fn overlap(&self, other: &Self) -> Option<Self> {
        let has = |outer: &Self, inner: &Self| match (outer.covered(), inner.covered()) {
            (CoveredTools::WithPrefix(outer), CoveredTools::WithPrefix(inner)) => {
                inner.starts_with(outer)
            }
            (_, CoveredTools::One(name)) => outer.covers(name),
            _ => false,
        };
        [(self, other), (other, self)]
            .into_iter()
            .find(|(outer, inner)| has(outer, inner))
            .map(|(_, inner)| inner.clone())
    }
}

impl DelegateGrant {
    fn narrowed_by(&self, today: &Self) -> Self {
        Self {
            tasks: common(&self.tasks, &today.tasks),
            at_once: self.at_once.min(today.at_once),
            total: self.total.min(today.total),
            channels: common(&self.channels, &today.channels),
            delivery_strategies: common(&self.delivery_strategies, &today.delivery_strategies),
            result_delivery: &self.result_delivery & &today.result_delivery,
            on_close: &self.on_close & &today.on_close,
        }
    }
}

impl RouteGrant {
    fn narrowed_by(&self, today: &Self) -> Self {
        let is_granted =
            |name: &&String| today.names.iter().any(|other| other.eq_ignore_ascii_case(name));
        Self { names: self.names.iter().filter(is_granted).cloned().collect() }
    }
}

impl ChannelsGrant {
    fn narrowed_by(&self, today: &Self) -> Self {
        Self {
            channels: common(&self.channels, &today.channels),
            messages: smaller(self.messages, today.messages),
        }
    }
}

impl FileMode {
    /// The mode that allows what both allow. An overlay allows no writing into the directory
    /// itself.
    fn narrowed_by(self, today: Self) -> Self {
        match (self, today) {
            (Self::Read, _) | (_, Self::Read) => Self::Read,
            (Self::Overlay, _) | (_, Self::Overlay) => Self::Overlay,
            (Self::ReadWrite, Self::ReadWrite) => Self::ReadWrite,
        }
    }
}

/// The directories that both grant, by the names under which the plugin sees them. The deepest
/// grant above a name decides about it, in each list; both must lead to the same directory of the
/// host, because another directory under the same name is another grant.
fn common_folders(initial: &[FileGrant], today: &[FileGrant]) -> Vec<FileGrant> {
    let deepest = |grants: &'_ [FileGrant], at: &str| {
        let above = grants.iter().filter(|grant| rest_below(&grant.at, at).is_some());
        above.max_by_key(|grant| grant.at.len()).cloned()
    };
    let directory = |grant: &FileGrant, at: &str| {
        let rest = rest_below(&grant.at, at).unwrap_or_default();
        format!("{}/{rest}", grant.dir.trim_end_matches('/')).trim_end_matches('/').to_owned()
    };
    let mut found: Vec<FileGrant> = Vec::new();
    for grant in initial.iter().chain(today) {
        let (Some(one), Some(other)) = (deepest(initial, &grant.at), deepest(today, &grant.at))
        else {
            continue;
        };
        let is_known = found.iter().any(|known| known.at == grant.at);
        if is_known || directory(&one, &grant.at) != directory(&other, &grant.at) {
            continue;
        }
        found.push(FileGrant {
            mode: one.mode.narrowed_by(other.mode),
            bytes: one.bytes.min(other.bytes),
            files: one.files.min(other.files),
            ..grant.clone()
        });
    }
    found
}

/// The path that the other one contains; `None` if neither does.
fn inner_path(initial: &String, today: &String) -> Option<String> {
    let has = |outer: &String, inner: &String| rest_below(outer, inner).map(|_| inner.clone());
    has(initial, today).or_else(|| has(today, initial))
}

/// The part of a path below a folder, without slashes around it; empty for the folder.
fn rest_below<'a>(folder: &str, path: &'a str) -> Option<&'a str> {
    let rest = path.strip_prefix(folder.trim_end_matches('/'))?;
    (rest.is_empty() || rest.starts_with('/')).then(|| rest.trim_matches('/'))
}

impl FetchGrant {
    fn narrowed_by(&self, today: &Self) -> Self {
        Self {
            rules: overlap(&self.rules, &today.rules, |initial, today| {
                let methods = common(&initial.methods, &today.methods);
                let url = UrlPattern::overlap(&initial.url, &today.url)?;
                (!methods.is_empty()).then_some(FetchRule { url, methods })
            }),
            headers: common(&self.headers, &today.headers),
            private: overlap(&self.private, &today.private, |initial, today| {
                let has = |outer: &IpNet, inner: &IpNet| outer.contains(inner).then_some(*inner);
                has(initial, today).or_else(|| has(today, initial))
            }),
            requests: self.requests.min(today.requests),
            request_bytes: self.request_bytes.min(today.request_bytes),
            response_bytes: self.response_bytes.min(today.response_bytes),
            time_ms: self.time_ms.min(today.time_ms),
            at_once: self.at_once.min(today.at_once),
            names: self.names.min(today.names),
            redirects: self.redirects.min(today.redirects),
        }
    }
}

impl SecretGrant {
    fn overlap(&self, today: &Self) -> Option<Self> {
        let hosts = overlap(&self.hosts, &today.hosts, HostPattern::overlap);
        let request_parts = &self.request_parts & &today.request_parts;
        (self.name == today.name && !hosts.is_empty() && !request_parts.is_empty()).then(|| Self {
            name: self.name.clone(),
            hosts,
            request_parts,
        })
    }
}

impl ExecGrant {
    fn narrowed_by(&self, today: &Self) -> Self {
        let is_granted = |(name, value): &(&String, &String)| today.env.get(*name) == Some(value);
        let env: BTreeMap<String, String> = self
            .env
            .iter()
            .filter(is_granted)
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        let best_effort = (Confinement::BestEffort, Confinement::BestEffort);
        Self {
            commands: overlap(&self.commands, &today.commands, CommandPattern::overlap),
            read: overlap(&self.read, &today.read, inner_path),
            starts: overlap(&self.starts, &today.starts, inner_path),
            env,
            network: self.network && today.network,
            confinement: if (self.confinement, today.confinement) == best_effort {
                Confinement::BestEffort
            } else {
                Confinement::Required
            },
            runs: self.runs.min(today.runs),
            time_ms: self.time_ms.min(today.time_ms),
            cpu_ms: self.cpu_ms.min(today.cpu_ms),
            memory: self.memory.min(today.memory),
            processes: self.processes.min(today.processes),
            output: self.output.min(today.output),
            file_size: self.file_size.min(today.file_size),
        }
    }
}

impl TaskScope {
    /// The restriction by both: this, with which the run began, and today's.
    #[must_use]
    pub fn narrowed_by(&self, today: &Self) -> Self {
        Self {
            model: lists(&self.model, &today.model, common),
            delegate: lists(&self.delegate, &today.delegate, common),
            route: lists(&self.route, &today.route, common),
            files: lists(&self.files, &today.files, common),
            read_only: self.read_only || today.read_only,
            fetch: lists(&self.fetch, &today.fetch, |initial, today| {
                overlap(initial, today, UrlPattern::overlap)
            }),
            secrets: lists(&self.secrets, &today.secrets, common),
            kv: match (self.kv, today.kv) {
                (Some(false), _) | (_, Some(false)) => Some(false),
                (initial, today) => initial.or(today),
            },
        }
    }
}

/// The narrowed list; a missing list restricts nothing.
fn lists<T: Clone>(
    initial: &Option<Vec<T>>,
    today: &Option<Vec<T>>,
    narrowed: impl Fn(&[T], &[T]) -> Vec<T>,
) -> Option<Vec<T>> {
    match (initial, today) {
        (Some(initial), Some(today)) => Some(narrowed(initial, today)),
        (one, other) => one.clone().or_else(|| other.clone()),
    }
}

impl ConfirmPolicy {
    /// The policy that asks whenever one of both asks.
    fn stricter(self, today: Self) -> Self {
        match (self, today) {
            (Self::Always, _) | (_, Self::Always) => Self::Always,
            (Self::Never, other) | (other, Self::Never) => other,
            (
                Self::Risky { threshold: one, unknown },
                Self::Risky { threshold: other, unknown: also },
            ) => Self::Risky { threshold: one.min(other), unknown: unknown || also },
        }
    }
}

impl ConfirmRules {
    /// The rules that ask whenever these, with which the run began, or today's ask. If the analyzer
    /// is another one, its ratings cannot stand for those of the first, so everything is asked
    /// about.
    #[must_use]
    pub fn narrowed_by(&self, today: &Self) -> Self {
        let rates = |rules: &Self| rules.policy != ConfirmPolicy::Never;
        let analyzers_differ = rates(self) && rates(today) && self.analyzer != today.analyzer;
        let policy = match analyzers_differ {
            true => ConfirmPolicy::Always,
            false => self.policy.stricter(today.policy),
        };
        let analyzer = if rates(self) { &self.analyzer } else { &today.analyzer };
        Self { policy, analyzer: analyzer.clone() }
    }
}

impl PluginLimits {
    /// The smaller of each limit.
    #[must_use]
    pub fn narrowed_by(&self, today: &Self) -> Self {
        Self {
            memory: self.memory.min(today.memory),
            cpu_ms: self.cpu_ms.min(today.cpu_ms),
            wall_ms: self.wall_ms.min(today.wall_ms),
            output: self.output.min(today.output),
            log: self.log.min(today.log),
            host_calls: self.host_calls.min(today.host_calls),
            handles: self.handles.min(today.handles),
            read: self.read.min(today.read),
            scratch: self.scratch.min(today.scratch),
            blobs: self.blobs.min(today.blobs),
            at_once: self.at_once.min(today.at_once),
            table_elements: self.table_elements.min(today.table_elements),
            instances: self.instances.min(today.instances),
            arguments: self.arguments.min(today.arguments),
            list: self.list.min(today.list),
            component: self.component.min(today.component),
            compile_ms: self.compile_ms.min(today.compile_ms),
            compile_memory: self.compile_memory.min(today.compile_memory),
        }
    }
}

impl RunLimits {
    /// The smaller of each limit. A run asks for more only if both configs say so.
    #[must_use]
    pub fn narrowed_by(&self, today: &Self) -> Self {
        let asks = (self.when_used_up, today.when_used_up) == (WhenUsedUp::Ask, WhenUsedUp::Ask);
        Self {
            turns: smaller(self.turns, today.turns),
            wall_ms: smaller(self.wall_ms, today.wall_ms),
            tokens: smaller(self.tokens, today.tokens),
            cost_micro_usd: smaller(self.cost_micro_usd, today.cost_micro_usd),
            model_calls: smaller(self.model_calls, today.model_calls),
            tool_calls: smaller(self.tool_calls, today.tool_calls),
            history: smaller(self.history, today.history),
            cpu_ms: smaller(self.cpu_ms, today.cpu_ms),
            tasks: smaller(self.tasks, today.tasks),
            tasks_at_once: smaller(self.tasks_at_once, today.tasks_at_once),
            depth: self.depth.min(today.depth),
            task_turns: smaller(self.task_turns, today.task_turns),
            when_used_up: if asks { WhenUsedUp::Ask } else { WhenUsedUp::End },
        }
    }
}

#[cfg(test)]
mod tests;
