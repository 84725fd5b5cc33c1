//! The layers of one question, from the manifest to the grant's own limits. The decision is asked
//! once, and each layer before the refusing one explains why it did not refuse.

use std::sync::Arc;

use url::Host;

use super::tasks::{self, tasks_of};
use super::{AccessQuestion, LayerAnswer, LayerVerdict};
use crate::permissions::authorize::Refused;
use crate::permissions::exec::CommandPattern;
use crate::permissions::fetch::HostPattern;
use crate::permissions::grant::{Grants, Rights, SecretGrant};
use crate::permissions::policy_rules::Decide;
use crate::policy::decision;
use crate::room::{naming_task_list, wider_tools};
use crate::setup::{Setup, TaskSetup};
use crate::types::capability::Capability;
use crate::types::denial::{DenialRecord, Layer};
use crate::types::ids::{PluginName, SecretName};
use crate::types::text::{read_command, show_duration, show_size};

/// The order in which layers are asked.
const ORDER: [Layer; 6] =
    [Layer::Host, Layer::Manifest, Layer::Config, Layer::Task, Layer::Policy, Layer::Runtime];
/// The number of characters shown of an author's reason, which is untrusted text.
const WHY_SHOWN: usize = 200;

/// Returns the decision of the room and the imports; makes none of its own.
pub(super) fn decide(setup: &Setup, question: &AccessQuestion) -> Result<(), Refused> {
    tasks::decide(setup, question, |rights| decide_with(setup, rights, question))
}

fn decide_with(
    setup: &Setup,
    rights: &Rights<'_>,
    question: &AccessQuestion,
) -> Result<(), Refused> {
    let Some(target) = question.target.as_deref() else {
        return rights.require(question.capability, "", || None);
    };
    match question.capability {
        Capability::Model => rights.may_use_model(Some(target)).map(drop),
        Capability::Tools => may_call(setup, rights, question, target),
        Capability::Delegate => {
            rights.may_delegate(target, |name| setup.tasks.contains_key(name)).map(drop)
        }
        Capability::Route => rights.may_route(target),
        Capability::Files => rights.may_touch(target, question.writes).map(drop),
        Capability::Channels => {
            rights.may_send(target, |name| setup.channels.contains_key(name)).map(drop)
        }
        Capability::Kv => rights.may_store(target),
        Capability::History => rights.may_read_history().map(drop),
        Capability::Secrets => may_use_secret(rights, target, question.host.as_deref()),
        Capability::Fetch => may_fetch(rights, target, question),
        Capability::Exec => {
            let (program, arguments) =
                read_command(target).unwrap_or_else(|| (target.to_owned(), Vec::new()));
            rights.may_run(&program, &arguments).map(drop)
        }
        other => rights.require(other, target, || None),
    }
}

/// Checks the grant, then the tasks' restrictions, then the policy. For several tasks of one agent,
/// the most permissive decides.
fn may_call(
    setup: &Setup,
    rights: &Rights<'_>,
    question: &AccessQuestion,
    tool: &str,
) -> Result<(), Refused> {
    let (agent, tasks) = (&question.plugin, tasks_of(setup, question));
    rights.may_call(tool).map_err(|record| match tasks.first() {
        Some((task, _)) => naming_task_list(record, task),
        None => record,
    })?;
    if let Some((name, task)) = tasks.first()
        && !tasks.iter().any(|(_, task)| task.carries_out(tool))
    {
        let (reason, wider) = wider_tools(&task.toolbox, agent, name, tool);
        return Err(rights.refuse(Capability::Tools, tool, Layer::Task, &reason, wider));
    }
    if tasks.is_empty() {
        callers_may_call(setup, rights, tool)?;
    }
    let ruling = question.ruling(setup, tool);
    if ruling.decide == Decide::Deny {
        let reason = format!("the rule at {} denies it", ruling.why);
        return Err(rights.refuse(Capability::Tools, tool, Layer::Policy, &reason, None));
    }
    Ok(())
}

/// Checks that an agent that calls the plugin may call the tool too: a nested call needs both
/// grants. Passes for an agent, and for a plugin that no agent calls.
fn callers_may_call(setup: &Setup, rights: &Rights<'_>, tool: &str) -> Result<(), Refused> {
    let plugin = PluginName::from(rights.plugin);
    let mut callers = setup.tasks.iter().filter(|(_, task)| task.calls(&plugin)).peekable();
    let Some((name, task)) = callers.peek().map(|(name, task)| (*name, Arc::clone(task))) else {
        return Ok(());
    };
    if callers.any(|(_, task)| task.carries_out(tool)) {
        return Ok(());
    }
    let agent = &task.agent;
    let reason = format!(
        "{agent}, which calls {} in the task {name}, may not call it, and a nested call needs both grants",
        rights.plugin
    );
    let wider = setup.rights(agent).and_then(|rights| rights.may_call(tool).err()?.suggestion);
    Err(rights.refuse(Capability::Tools, tool, Layer::Task, &reason, wider))
}

/// The proposed line names the secret only; its source and its permitted hosts belong to
/// `[secrets]`.
fn may_use_secret(rights: &Rights<'_>, name: &str, host: Option<&str>) -> Result<(), Refused> {
    let granted = || rights.grants.secrets.iter().map(|grant| grant.name.as_str());
    let smallest = || {
        Some(format!(
            "[plugins.{}] grants.secrets = {}",
            rights.plugin,
            crate::permissions::grant::list_with(granted(), name)
        ))
    };
    rights.require_secret(&SecretName::from(name), smallest)?;
    let Some(host) = host else { return Ok(()) };
    let bound: Vec<&str> = rights
        .grants
        .secrets
        .iter()
        .filter(|grant| grant.name.as_str() == name)
        .flat_map(hosts)
        .collect();
    let refuse =
        |reason: &str| Err(rights.refuse(Capability::Secrets, name, Layer::Config, reason, None));
    let covers = |grant: &SecretGrant| {
        grant.name.as_str() == name && grant.hosts.iter().any(|pattern| pattern.covers(host))
    };
    if !rights.grants.secrets.iter().any(covers) {
        return refuse(&format!("[secrets.{name}] binds it to {}, not {host}", bound.join(", ")));
    }
    // A secret is sent only in a request, which needs a grant of its own.
    let rules = || rights.grants.fetch.iter().flat_map(|grant| &grant.rules);
    if !rules().any(|rule| rule.url.names_host(host)) {
        return refuse(&format!(
            "no rule of plugins.{}.grants.fetch covers {host}, so it cannot be sent there",
            rights.plugin
        ));
    }
    Ok(())
}

fn hosts(grant: &SecretGrant) -> impl Iterator<Item = &str> {
    grant.hosts.iter().map(HostPattern::as_str)
}

/// Checks scheme, host, port, path, method and headers. The address behind the name is known only
/// after a look-up.
fn may_fetch(rights: &Rights<'_>, url: &str, question: &AccessQuestion) -> Result<(), Refused> {
    match crate::permissions::fetch::target(url) {
        Ok(parsed) => {
            rights.may_fetch(
                &question.method,
                &parsed,
                question.headers.iter().map(String::as_str),
            )?;
            match parsed.host() {
                Some(Host::Ipv4(address)) => rights.may_connect(&parsed, address.into()),
                Some(Host::Ipv6(address)) => rights.may_connect(&parsed, address.into()),
                _ => Ok(()),
            }
        }
        Err(problem) => {
            rights.require(Capability::Fetch, url, || None)?;
            Err(rights.refuse(Capability::Fetch, url, Layer::Runtime, &problem.to_string(), None))
        }
    }
}

/// The answer of every layer that applies, in order.
pub(super) fn answers(
    setup: &Setup,
    question: &AccessQuestion,
    refused: Option<&DenialRecord>,
) -> Vec<LayerAnswer> {
    let position =
        |layer: Layer| ORDER.iter().position(|other| *other == layer).unwrap_or(ORDER.len());
    let refused_at = refused.map(|record| position(record.layer));
    let mut answers = Vec::new();
    for (index, layer) in ORDER.into_iter().enumerate() {
        let Some((text, key)) = layer_text(setup, question, layer) else {
            // A layer without a text of its own can still be the one that refused.
            if let Some(record) = refused.filter(|record| record.layer == layer) {
                answers.push(LayerAnswer {
                    layer,
                    verdict: LayerVerdict::No,
                    text: record.reason.clone(),
                    key: None,
                });
            }
            continue;
        };
        let (verdict, text) = match (refused, refused_at) {
            (Some(record), Some(at)) if index == at => (LayerVerdict::No, record.reason.clone()),
            (Some(_), Some(at)) if index > at => {
                (LayerVerdict::NotReached, "not reached".to_owned())
            }
            _ if layer == Layer::Policy && asks(setup, question) => (LayerVerdict::Ask, text),
            _ => (LayerVerdict::Yes, text),
        };
        let key = key.filter(|_| verdict != LayerVerdict::NotReached);
        answers.push(LayerAnswer { layer, verdict, text, key });
    }
    answers
}

fn asks(setup: &Setup, question: &AccessQuestion) -> bool {
    question
        .target
        .as_deref()
        .is_some_and(|tool| question.ruling(setup, tool).decide == Decide::Ask)
}

/// The text of a layer that does not refuse, with the deciding key of the config; `None` if the
/// layer does not apply.
fn layer_text(
    setup: &Setup,
    question: &AccessQuestion,
    layer: Layer,
) -> Option<(String, Option<String>)> {
    let (plugin, capability) = (&question.plugin, question.capability);
    let found = setup.plugins.get(plugin)?;
    match layer {
        Layer::Host => None,
        Layer::Manifest if capability.is_own() => {
            Some((format!("`{capability}` is the plugin's own; it need not ask"), None))
        }
        Layer::Manifest => {
            let ask = found.facts.manifest.ask(capability);
            let why = ask.map(|ask| ask.why.trim()).filter(|why| !why.is_empty());
            let optional =
                if ask.is_some_and(|ask| ask.optional) { ", and works without" } else { "" };
            let words = why.map_or("its author gives no reason".to_owned(), |why| {
                format!("its author says: {}", why.chars().take(WHY_SHOWN).collect::<String>())
            });
            Some((format!("{plugin} asks for `{capability}`{optional}; {words}"), None))
        }
        Layer::Config if capability.is_own() => None,
        Layer::Config => {
            let (what, index) = granted(&found.grants, question);
            let base = format!("plugins.{plugin}.grants.{capability}");
            Some((
                format!("granted: {what}"),
                Some(index.map_or(base.clone(), |index| format!("{base}[{index}]"))),
            ))
        }
        Layer::Task => in_tasks(setup, question),
        Layer::Policy if capability == Capability::Tools => {
            question.target.as_deref().map(|tool| ruling(setup, question, tool))
        }
        Layer::Policy => None,
        Layer::Runtime => bounds(&found.grants, question)
            .map(|text| (text, Some(format!("plugins.{plugin}.grants.{capability}")))),
    }
}

/// A short text for the grant, and the index of the list entry that covers the target.
fn granted(grants: &Grants, question: &AccessQuestion) -> (String, Option<usize>) {
    let target = question.target.as_deref().unwrap_or_default();
    let list = |names: Vec<&str>, covers: &dyn Fn(&str) -> bool| {
        let index = names.iter().position(|name| covers(name));
        (names.join(", "), index)
    };
    match question.capability {
        Capability::Model => list(
            grants.model.iter().flat_map(|grant| &grant.names).map(|name| name.as_str()).collect(),
            &|name| name == target,
        ),
        Capability::Tools => {
            let patterns: Vec<_> = grants.tools.iter().flat_map(|grant| &grant.names).collect();
            let index = patterns.iter().position(|pattern| pattern.covers(target));
            (
                patterns.iter().map(|pattern| pattern.0.as_str()).collect::<Vec<_>>().join(", "),
                index,
            )
        }
        Capability::Delegate => list(
            grants
                .delegate
                .iter()
                .flat_map(|grant| &grant.tasks)
                .map(|name| name.as_str())
                .collect(),
            &|name| name == target,
        ),
        Capability::Route => list(
            grants.route.iter().flat_map(|grant| &grant.names).map(String::as_str).collect(),
            &|name| name.eq_ignore_ascii_case(target),
        ),
        Capability::Files => {
            let folders = grants.files.iter().map(|folder| {
                format!("{} {} at {}", folder.mode.describe(), folder.display_path, folder.at)
            });
            let index = grants.files.iter().position(|folder| {
                target == folder.at || target.starts_with(&format!("{}/", folder.at))
            });
            (folders.collect::<Vec<_>>().join("; "), index)
        }
        Capability::Fetch => {
            let rules = grants
                .fetch
                .iter()
                .flat_map(|grant| &grant.rules)
                .map(|rule| format!("{} to {}", rule.methods.join(", "), rule.url));
            let headers = grants
                .fetch
                .iter()
                .flat_map(|grant| &grant.headers)
                .map(|name| format!("with the header {name}"));
            // Rules and headers are granted separately, so no single entry decides.
            (rules.chain(headers).collect::<Vec<_>>().join("; "), None)
        }
        Capability::Kv => (
            grants.kv.map_or(String::new(), |grant| {
                format!("{} in {} keys", show_size(grant.bytes), grant.keys)
            }),
            None,
        ),
        Capability::Exec => {
            let commands = grants.exec.iter().flat_map(|grant| &grant.commands);
            let index = read_command(target).and_then(|(program, arguments)| {
                let covers = |pattern: &CommandPattern| {
                    pattern.names(&program) && pattern.covers(&arguments)
                };
                commands.clone().position(covers)
            });
            (commands.map(CommandPattern::as_str).collect::<Vec<_>>().join(", "), index)
        }
        Capability::History => (
            grants
                .history
                .map_or(String::new(), |grant| format!("the newest {} messages", grant.messages)),
            None,
        ),
        Capability::Secrets => {
            list(grants.secrets.iter().map(|grant| grant.name.as_str()).collect(), &|name| {
                name == target
            })
        }
        Capability::Channels => list(
            grants
                .channels
                .iter()
                .flat_map(|grant| &grant.channels)
                .map(|name| name.as_str())
                .collect(),
            &|name| name == target,
        ),
        _ => (String::new(), None),
    }
}

/// Returns how the plugin's tasks restrict a grant: tools by their toolbox, all else by `narrow`.
fn in_tasks(setup: &Setup, question: &AccessQuestion) -> Option<(String, Option<String>)> {
    if question.capability != Capability::Tools {
        return tasks::narrowing_text(setup, question);
    }
    let tool = question.target.as_deref()?;
    let tasks = tasks_of(setup, question);
    let with: Vec<&str> = tasks
        .iter()
        .filter(|(_, task)| task.carries_out(tool))
        .map(|(name, _)| name.as_str())
        .collect();
    let key = with.first().map(|name| format!("tasks.{name}.tools"));
    match tasks.is_empty() {
        true => {
            let calls = |(_, task): &(_, &Arc<TaskSetup>)| {
                task.calls(&question.plugin) && task.carries_out(tool)
            };
            let callers: Vec<&str> =
                setup.tasks.iter().filter(calls).map(|(name, _)| name.as_str()).collect();
            Some(match callers.is_empty() {
                true => (format!("{} is the agent of no task", question.plugin), None),
                false => (format!("for the agents of {}", callers.join(", ")), None),
            })
        }
        false => Some((format!("in the toolbox of {}", with.join(", ")), key)),
    }
}

fn ruling(setup: &Setup, question: &AccessQuestion, tool: &str) -> (String, Option<String>) {
    let ruling = question.ruling(setup, tool);
    let words = match ruling.decide {
        Decide::Allow => "runs without asking",
        Decide::Ask => "you are asked each time",
        Decide::Deny => "is refused",
    };
    match ruling.why {
        decision::DecisionSource::Rule { index, rule } => {
            // The rules of the last resumption stand behind those of the start.
            let index = index.checked_sub(setup.policy.len()).unwrap_or(index);
            (format!("{words}: the rule at {}", rule.source), Some(format!("policy[{index}]")))
        }
        why => (format!("{words}: no rule matches, and {why}"), None),
    }
}

/// A text for the limits that only a run can check, such as usage and resolved addresses.
fn bounds(grants: &Grants, question: &AccessQuestion) -> Option<String> {
    let at_most = |what: &str, limit: Option<u64>| limit.map(|limit| format!("{limit} {what}"));
    let list = |limits: Vec<Option<String>>| {
        let limits: Vec<String> = limits.into_iter().flatten().collect();
        (!limits.is_empty())
            .then(|| format!("within its limits for the run: {}", limits.join(", ")))
    };
    match question.capability {
        Capability::Model => {
            let grant = grants.model.as_ref()?;
            list(vec![
                at_most("calls", grant.calls),
                at_most("tokens", grant.tokens),
                at_most("micro-dollars", grant.cost_micro_usd),
            ])
        }
        Capability::Tools => list(vec![at_most("calls", grants.tools.as_ref()?.calls)]),
        Capability::Delegate => {
            let grant = grants.delegate.as_ref()?;
            Some(format!(
                "within its limits for the run: {} at once, {} in total",
                grant.at_once, grant.total
            ))
        }
        Capability::Channels => list(vec![at_most("messages", grants.channels.as_ref()?.messages)]),
        Capability::Files => {
            let folder =
                grants.files.iter().find(|folder| folder.mode.writes()).filter(|_| question.writes);
            let quota = folder.map(|folder| {
                format!(
                    ", and while the folder has less than {} in {} files",
                    show_size(folder.bytes),
                    folder.files
                )
            });
            Some(format!(
                "as long as no link on the disk leads out of the folder{}",
                quota.unwrap_or_default()
            ))
        }
        Capability::Fetch => {
            let requests = grants.fetch.as_ref()?.requests;
            Some(format!(
                "as long as the name leads to no private address, and for {requests} requests of the run"
            ))
        }
        Capability::Secrets => {
            let target = question.target.as_deref();
            let bound: Vec<&SecretGrant> = grants
                .secrets
                .iter()
                .filter(|grant| target.is_none_or(|name| grant.name.as_str() == name))
                .collect();
            let list = |names: Vec<&str>| names.join(", ");
            let one = |grant: &&SecretGrant| {
                let place_names = grant.request_parts.iter().map(|place| place.as_str()).collect();
                format!(
                    "{} only towards {}, and only in {}",
                    grant.name,
                    list(hosts(grant).collect()),
                    list(place_names)
                )
            };
            Some(bound.iter().map(one).collect::<Vec<_>>().join("; "))
        }
        Capability::Exec => {
            let grant = grants.exec.as_ref()?;
            list(vec![at_most("programs", Some(grant.runs))]).map(|runs| {
                let time = show_duration(grant.time_ms);
                format!("{runs}; outside the sandbox, for {time} each")
            })
        }
        _ => None,
    }
}
