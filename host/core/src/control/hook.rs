//! What a hook's end means for what it was asked about (O-113): the reference's way, where a hook that breaks lets everything through, and
//! this host's, where it does not.

use serde_json::Value;

/// How a hook ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HookEnd<'a> {
    /// With this exit code, and what it wrote, when that was JSON.
    Exit { code: i64, stdout: Option<&'a Value> },
    /// It did not end in time.
    TimedOut,
    /// It trapped, ran out of fuel, or could not be started.
    Broke,
}

/// Whose rules hold for a hook that says nothing usable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HookRules {
    /// Denied: a guard that is down guards nothing.
    #[default]
    FailClosed,
    /// Allowed, with an error noted, as in the reference.
    Reference,
}

/// What comes of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HookVerdict {
    Allow,
    /// With the hook's reason; empty when it gave none.
    Deny {
        reason: String,
    },
    /// The hook broke, and nobody minds.
    AllowWithError,
}

impl HookVerdict {
    /// The word of the cases.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny { .. } => "deny",
            Self::AllowWithError => "allow-with-error",
        }
    }
}

/// The exit code that denies.
const DENIES: i64 = 2;

/// What a hook's end means. Only exit 0 and exit 2 are answers; what is written counts after both, and one that says `deny` or
/// `continue: false` denies.
#[must_use]
pub fn verdict(end: HookEnd<'_>, rules: HookRules) -> HookVerdict {
    let (code, stdout) = match end {
        HookEnd::Exit { code, stdout } => (Some(code), stdout),
        HookEnd::TimedOut | HookEnd::Broke => (None, None),
    };
    let field = |name: &str| stdout.and_then(|stdout| stdout.get(name));
    let decision = field("decision").and_then(Value::as_str).map(str::to_ascii_lowercase);
    let denies = decision.as_deref() == Some("deny") || field("continue").is_some_and(|goes_on| !is_truthy(goes_on));
    let reason = field("reason").and_then(Value::as_str).unwrap_or_default().to_owned();
    match code {
        Some(DENIES) => HookVerdict::Deny { reason },
        _ if denies => HookVerdict::Deny { reason },
        Some(0) => HookVerdict::Allow,
        _ if rules == HookRules::Reference => HookVerdict::AllowWithError,
        Some(code) => HookVerdict::Deny { reason: format!("the hook ended with {code}, which is neither 0 (allow) nor {DENIES} (deny)") },
        None => HookVerdict::Deny { reason: "the hook did not come to an answer".to_owned() },
    }
}

fn is_truthy(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => false,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn exit(code: i64, stdout: Option<&Value>) -> HookEnd<'_> {
        HookEnd::Exit { code, stdout }
    }

    #[test]
    fn a_hook_that_answers_is_obeyed_and_one_that_does_not_is_no_guard() {
        let (allow, deny, stop) =
            (json!({ "decision": "ALLOW" }), json!({ "decision": "deny", "reason": "no" }), json!({ "continue": false }));
        for (end, theirs, ours) in [
            (exit(0, None), "allow", "allow"),
            (exit(0, Some(&allow)), "allow", "allow"),
            (exit(0, Some(&deny)), "deny", "deny"),
            (exit(0, Some(&stop)), "deny", "deny"),
            (exit(2, None), "deny", "deny"),
            (exit(2, Some(&allow)), "deny", "deny"),
            (exit(1, None), "allow-with-error", "deny"),
            (exit(-9, Some(&allow)), "allow-with-error", "deny"),
            (exit(1, Some(&deny)), "deny", "deny"),
            (HookEnd::TimedOut, "allow-with-error", "deny"),
            (HookEnd::Broke, "allow-with-error", "deny"),
        ] {
            assert_eq!(
                [verdict(end, HookRules::Reference).as_str(), verdict(end, HookRules::FailClosed).as_str()],
                [theirs, ours],
                "{end:?}"
            );
        }
        assert_eq!(verdict(exit(0, Some(&deny)), HookRules::default()), HookVerdict::Deny { reason: "no".to_owned() });
    }
}
