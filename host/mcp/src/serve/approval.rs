//! The question to the client's user before a call, and the reading of the answer. Anything but a
//! plain yes refuses.

use conclave_core::types::approval::{Approval, ApprovalRequest};
use conclave_core::types::text::{is_deceptive, show_duration};
use rmcp::model::{ClientCapabilities, ElicitRequestParams, ElicitResult, ElicitationAction};
use serde_json::{Value, json};

/// Maximum characters of a reason, which the model reads.
const REASON: usize = 300;

/// Whether the client can ask its user.
pub(super) fn can_ask(capabilities: Option<&ClientCapabilities>) -> bool {
    let elicitation = capabilities.and_then(|capabilities| capabilities.elicitation.as_ref());
    // A client that names neither form nor URL supports forms.
    elicitation.is_some_and(|elicitation| elicitation.form.is_some() || elicitation.url.is_none())
}

/// The question: the caller, the tool with all arguments, and the reason for asking.
pub(super) fn question(request: &ApprovalRequest) -> Option<ElicitRequestParams> {
    let origin = request.origin();
    let arguments = serde_json::to_string_pretty(&request.arguments).unwrap_or_default();
    let within = request
        .expires_ms
        .map(|ms| format!(" Decide within {}.", show_duration(ms)))
        .unwrap_or_default();
    let message = format!(
        "{} wants to call {}{origin}, with these arguments:\n{}\nAsked because {}.{within}",
        request.caller,
        request.tool,
        escaped(&arguments),
        request.source
    );
    let schema = json!({
        "type": "object",
        "properties": {
            "decision": { "type": "string", "enum": ["refuse", "allow"], "title": "Decision", "description": "`allow` lets this one call run." },
            "reason": { "type": "string", "title": "Reason", "description": "Why not; the model reads it." },
        },
        "required": ["decision"],
    });
    let requested_schema = serde_json::from_value(schema).ok()?;
    Some(ElicitRequestParams::FormElicitationParams { meta: None, message, requested_schema })
}

/// Escapes deceptive characters other than line breaks.
pub(super) fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' => escaped.push(c),
            c if is_deceptive(c) => escaped.extend(c.escape_unicode()),
            c => escaped.push(c),
        }
    }
    escaped
}

/// The decision of the user.
pub(super) fn answer(result: &ElicitResult) -> Approval {
    let field = |name: &str| {
        result.content.as_ref().and_then(|content| content.get(name)).and_then(Value::as_str)
    };
    match (&result.action, field("decision")) {
        (ElicitationAction::Accept, Some("allow")) => Approval::Approved,
        (ElicitationAction::Accept, Some(_)) => {
            let reason = field("reason").map(str::trim).filter(|reason| !reason.is_empty());
            refused(&reason.map_or_else(
                || "the person at the client refused it".to_owned(),
                |reason| reason.chars().take(REASON).collect(),
            ))
        }
        (ElicitationAction::Accept, None) => refused("the client gave no decision"),
        _ => refused("the person at the client did not allow it"),
    }
}

/// The refusal for a client that cannot ask. The model reads it, so it does not explain how to get
/// the call approved.
pub(super) fn no_approver() -> Approval {
    refused("it needs an approval, and this client cannot ask its person")
}

pub(super) fn refused(reason: &str) -> Approval {
    Approval::Refused { reason: reason.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn respond(action: &str, content: Value) -> Approval {
        answer(&serde_json::from_value(json!({ "action": action, "content": content })).unwrap())
    }

    #[test]
    fn only_a_plain_yes_is_one() {
        assert_eq!(respond("accept", json!({ "decision": "allow" })), Approval::Approved);
        for (action, content) in [
            ("accept", json!({})),
            ("accept", json!({ "decision": "refuse" })),
            ("accept", json!({ "decision": true })),
            ("accept", json!({ "decision": "ALLOW" })),
            ("decline", json!({ "decision": "allow" })),
            ("cancel", json!({ "decision": "allow" })),
        ] {
            assert!(
                matches!(respond(action, content.clone()), Approval::Refused { .. }),
                "{action} {content}"
            );
        }
    }

    #[test]
    fn a_reason_reaches_the_model() {
        let refused = respond("accept", json!({ "decision": "refuse", "reason": " not today " }));
        assert_eq!(refused, Approval::Refused { reason: "not today".to_owned() });
    }

    #[test]
    fn a_client_must_say_that_it_can_ask() {
        let can =
            |capabilities: Value| can_ask(Some(&serde_json::from_value(capabilities).unwrap()));
        assert!(can(json!({ "elicitation": {} })) && can(json!({ "elicitation": { "form": {} } })));
        assert!(!can(json!({})) && !can(json!({ "elicitation": { "url": {} } })) && !can_ask(None));
    }
}
