//! Why a call waits for an approval: each cause with the rule that asks, and the answer of every
//! layer. Asks the functions that decided; decides nothing itself.

use crate::inspect::explain::{AccessQuestion, Explanation, explain};
use crate::policy::decision::DecisionSource;
use crate::setup::Setup;
use crate::types::approval::{ApprovalCause, ApprovalRequest};
use crate::types::capability::Capability;

/// A cause of a question, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AskingCause {
    /// The cause, such as `required by the rule at conclave.toml:49`.
    pub text: String,
    /// The rule that asks, in TOML; `None` if no rule does. An answer during the run may have put a
    /// plugin's text into it.
    pub rule: Option<String>,
}

/// The causes of a question, by the setup in force.
#[must_use]
pub fn asking_causes(setup: &Setup, request: &ApprovalRequest) -> Vec<AskingCause> {
    let by_rules = || match request.decide(setup, &request.arguments).why {
        DecisionSource::Rule { rule, .. } => AskingCause {
            text: format!("required by the rule at {}", rule.source),
            rule: Some(rule.to_toml()),
        },
        why => {
            AskingCause { text: format!("no rule of the config matches, and {why}"), rule: None }
        }
    };
    let of_cause = |cause: &ApprovalCause| match cause {
        ApprovalCause::Rule(_) | ApprovalCause::Grants => by_rules(),
        ApprovalCause::Confirm => AskingCause {
            text: format!(
                "tasks.{}.confirm requires an approval, whatever the rules allow",
                request.task
            ),
            rule: None,
        },
        ApprovalCause::Limit => {
            AskingCause { text: "a limit of the run is used up".to_owned(), rule: None }
        }
    };
    request.causes.iter().map(of_cause).collect()
}

/// The answer of each layer to the call; `None` for what is no tool of a plugin.
#[must_use]
pub fn layers_of(setup: &Setup, request: &ApprovalRequest) -> Option<Explanation> {
    setup.tool(&request.tool)?;
    let question = AccessQuestion {
        arguments: request.arguments.clone(),
        task: Some(request.task.clone()),
        delegators: request.delegators.clone(),
        led_by: request.led_by.clone(),
        ..AccessQuestion::new(request.caller.clone(), Capability::Tools).of(&request.tool)
    };
    explain(setup, &question).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::inspect::explain::LayerVerdict;
    use crate::inspect::explain::tests::setup;

    fn request(tool: &str, causes: Vec<ApprovalCause>) -> ApprovalRequest {
        ApprovalRequest {
            task: "desk".into(),
            caller: "desk".into(),
            led_by: Vec::new(),
            delegators: Vec::new(),
            tool: tool.to_owned(),
            executor: None,
            arguments: json!({}),
            source: String::new(),
            causes,
            expires_ms: None,
            risk: None,
            risk_reason: None,
            problem: None,
        }
    }

    #[test]
    fn each_cause_is_named_with_the_rule_and_the_layers_that_decided() {
        let setup = setup();
        let listing = request("notes.list", vec![ApprovalCause::Grants, ApprovalCause::Confirm]);
        let causes = asking_causes(&setup, &listing);
        assert!(causes[0].text.contains("no rule of the config matches"), "{causes:?}");
        assert!(causes[0].text.contains("notes may write out/"), "{causes:?}");
        assert!(causes[1].text.starts_with("tasks.desk.confirm requires"), "{causes:?}");
        let ruled = asking_causes(&setup, &request("notes.drop", vec![ApprovalCause::Rule(0)]));
        assert!(ruled[0].text.starts_with("required by the rule at c.toml:"), "{ruled:?}");
        assert!(ruled[0].rule.as_deref().is_some_and(|rule| rule.contains("notes.drop")));
        let layers = layers_of(&setup, &listing).expect("it is a tool");
        assert_eq!(layers.verdict, LayerVerdict::Ask, "{layers:?}");
        assert_eq!(layers_of(&setup, &request("finish", vec![ApprovalCause::Confirm])), None);
    }
}
