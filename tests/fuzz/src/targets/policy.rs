//! Rules on tool calls. A line of the input is a rule, or a call: `{"tool": …, "callers": […],
//! "arguments": …}`.

use std::collections::BTreeMap;
use std::sync::Arc;

use conclave_core::config::Config;
use conclave_core::permissions::grants::{FileGrant, FileMode, Grants, ToolPattern};
use conclave_core::permissions::policy_rules::{Decide, Rule};
use conclave_core::policy::decision::decide;
use conclave_core::policy::permit::leave;
use conclave_core::setup::{PluginSetup, Setup};
use conclave_core::types::approval::{ApprovalCause, ApprovalRequest};
use conclave_core::types::ids::PluginName;
use conclave_core::types::limits::{PluginLimits, RunLimits};
use serde_json::{Value, json};

use super::facts;

/// The maximum number of rules and calls, because each call is decided by all rules many times.
const LINES: usize = 24;

#[derive(Debug)]
struct Call {
    tool: String,
    callers: Vec<PluginName>,
    arguments: Value,
}

pub(super) fn check(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let (mut rules, mut calls) = (Vec::new(), Vec::new());
    for line in text.lines().take(LINES) {
        if let Ok(rule) = serde_json::from_str::<Rule>(line) {
            let json = serde_json::to_string(&rule).expect("a rule can be journalled");
            assert_eq!(
                serde_json::from_str::<Rule>(&json).ok().as_ref(),
                Some(&rule),
                "a rule is read back"
            );
            rules.push(rule);
        } else if let Ok(value) = serde_json::from_str::<Value>(line) {
            calls.extend(call(&value));
        }
    }
    let setup = setup(rules);
    for call in &calls {
        decided(&setup, call);
        left(&setup, call);
    }
}

fn call(value: &Value) -> Option<Call> {
    let callers = value
        .get("callers")?
        .as_array()?
        .iter()
        .filter_map(Value::as_str)
        .take(4)
        .map(PluginName::from)
        .collect();
    Some(Call {
        tool: value.get("tool")?.as_str()?.to_owned(),
        callers,
        arguments: value.get("arguments")?.clone(),
    })
}

fn setup(policy: Vec<Rule>) -> Setup {
    let plugin = |files: Vec<FileGrant>| {
        let grants = Grants { files, ..Grants::default() };
        Arc::new(PluginSetup {
            facts: facts::versatile(),
            grants,
            limits: PluginLimits::default(),
            config: json!({}),
        })
    };
    let writes = FileGrant {
        dir: "/srv/notes".into(),
        display_path: "./notes".into(),
        at: "/notes".into(),
        mode: FileMode::ReadWrite,
        bytes: 1,
        files: 1,
    };
    Setup {
        entry: "t".into(),
        tasks: BTreeMap::new(),
        plugins: [("notes".into(), plugin(vec![writes])), ("search".into(), plugin(Vec::new()))]
            .into(),
        models: BTreeMap::new(),
        channels: Arc::default(),
        gates: Vec::new(),
        observers: Vec::new(),
        policy: policy.into(),
        policy_now: None,
        limits: RunLimits { turns: None, wall_ms: None, depth: 0, ..RunLimits::default() },
    }
}

fn decided(setup: &Setup, call: &Call) {
    let of = |setup: &Setup, callers: &[PluginName]| {
        decide(setup, callers, &call.tool, &call.arguments).decide
    };
    let all = of(setup, &call.callers);
    let mut reversed = call.callers.clone();
    reversed.reverse();
    assert_eq!(of(setup, &reversed), all, "the order of the callers decides");
    for caller in &call.callers {
        assert!(
            of(setup, std::slice::from_ref(caller)) <= all,
            "{caller} is held to more than all of them together"
        );
    }
    let joined: Vec<PluginName> =
        call.callers.iter().cloned().chain([PluginName::from("somebody")]).collect();
    assert!(call.callers.is_empty() || of(setup, &joined) >= all, "who joins loosens");
    let any = |decide| Rule {
        tool: ToolPattern("*".to_owned()),
        caller: None,
        arguments: Vec::new(),
        only: false,
        decide,
        expires_ms: None,
        source: String::new(),
    };
    if !call.callers.is_empty() {
        let with = |index: usize, rules: Vec<Rule>| Setup {
            policy: setup.policy.with_rules_at(index, rules),
            ..setup.clone()
        };
        let last = with(setup.policy.len(), vec![any(Decide::Deny)]);
        assert!(of(&last, &call.callers) >= all, "a rule that denies the rest loosens");
        for decide in [Decide::Deny, Decide::Ask, Decide::Allow] {
            let first = with(0, vec![any(decide)]);
            assert_eq!(of(&first, &call.callers), decide, "the first rule that matches decides");
        }
        let twice = with(setup.policy.len(), setup.policy.to_vec());
        assert_eq!(of(&twice, &call.callers), all, "rules said twice say something else");
    }
}

/// Checks that the rule written by `[a] always` is valid, and allows this call.
fn left(setup: &Setup, call: &Call) {
    let Some(caller) = call.callers.first() else { return };
    let request = ApprovalRequest {
        task: "t".into(),
        caller: caller.clone(),
        led_by: call.callers.iter().skip(1).cloned().collect(),
        delegators: Vec::new(),
        executor: None,
        tool: call.tool.clone(),
        arguments: call.arguments.clone(),
        source: String::new(),
        causes: vec![ApprovalCause::Grants],
        expires_ms: None,
        risk: None,
        risk_reason: None,
        problem: None,
    };
    for exact in [true, false] {
        let Some(leave) = leave(setup, &request, exact) else { continue };
        let at = leave.before.unwrap_or(setup.policy.len());
        let policy = setup.policy.with_rules_at(at, leave.rules.iter().cloned());
        let with = Setup { policy, ..setup.clone() };
        let callers: Vec<PluginName> = request.callers().cloned().collect();
        assert_eq!(
            decide(&with, &callers, &call.tool, &call.arguments).decide,
            Decide::Allow,
            "a leave allows what was asked"
        );
        written(&leave.to_toml(), &leave.rules);
        let denied = decide(setup, &callers, &call.tool, &call.arguments).decide;
        assert_ne!(denied, Decide::Allow, "a leave for what is allowed");
    }
}

/// Checks that the rules read back from TOML unchanged, if a config may contain their names.
fn written(toml: &str, rules: &[Rule]) {
    let parsed: toml::Table =
        toml::from_str(toml).unwrap_or_else(|error| panic!("a leave is TOML: {error}\n{toml}"));
    assert_eq!(
        parsed.get("policy").and_then(toml::Value::as_array).map(Vec::len),
        Some(rules.len()),
        "{toml}"
    );
    let plugins =
        "[plugins.notes]\nsource = \"stock:chat\"\n[plugins.search]\nsource = \"stock:chat\"\n";
    let config = format!("entry = \"t\"\n{plugins}[tasks.t]\nagent = \"notes\"\n{toml}");
    if let Ok(config) = Config::parse("conclave.toml", "", &config) {
        let bare = |rule: &Rule| Rule { source: String::new(), ..rule.clone() };
        let mut read: Vec<Rule> = config.policy.iter().map(bare).collect();
        let mut meant: Vec<Rule> = rules.iter().map(bare).collect();
        // A config keeps arguments in the order of their names.
        for rule in read.iter_mut().chain(&mut meant) {
            rule.arguments.sort_by(|one, other| one.at.cmp(&other.at));
        }
        assert_eq!(read, meant, "a leave is read as it was meant:\n{toml}");
    }
}
