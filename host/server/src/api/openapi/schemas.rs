//! The schemas of the document, which answers refer to.

use serde_json::{Value, json};

use super::reference;

/// All of them, by name.
pub(super) fn schemas() -> Value {
    let text = || json!({ "type": "string" });
    let time = || json!({ "type": "integer", "description": "Milliseconds since 1970." });
    json!({
        "Problem": {
            "type": "object",
            "description": "RFC 9457, with a stable code.",
            "required": ["type", "title", "status", "code", "detail"],
            "properties": {
                "type": text(), "title": text(), "status": { "type": "integer" }, "code": text(),
                "detail": text(), "allowed": { "type": "array", "items": text() },
                "configs": { "type": "array", "items": text() },
            },
        },
        "Failure": {
            "type": "object",
            "required": ["error", "message"],
            "properties": { "error": text(), "message": text() },
        },
        "Run": {
            "type": "object",
            "required": ["run", "started", "updated", "state", "entry", "principal"],
            "properties": {
                "run": text(), "started": time(), "updated": time(), "state": text(),
                "entry": text(), "message": text(), "principal": text(), "config": text(),
                "turns": { "type": "integer" }, "tokens": { "type": "integer" },
                "cost_micro_usd": { "type": "integer" }, "records": { "type": "integer" },
            },
        },
        "State": {
            "type": "object",
            "description": "`recorded` is in the journal; `waiting` is durable and takes effect when a process goes on with the run.",
            "required": ["state"],
            "properties": { "state": text(), "status": text(), "id": text(), "decision": text() },
        },
        "QuestionList": {
            "type": "object",
            "description": "`damaged` has the rows that cannot be read, for those who may read every run.",
            "required": ["questions", "damaged"],
            "properties": {
                "questions": { "type": "array", "items": reference("Question") },
                "damaged": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "required": ["room", "reason"],
                        "properties": { "room": text(), "reason": text() },
                    },
                },
            },
        },
        "Question": {
            "type": "object",
            "required": ["id", "run", "room", "kind", "since", "may_answer"],
            "properties": {
                "id": text(), "run": text(), "room": text(), "since": time(),
                "kind": { "enum": ["approval", "top-up", "ask"] },
                "may_answer": { "type": "boolean" },
                "roles": { "type": "array", "items": text() },
                "chain": { "type": "array", "items": { "type": "object" } },
                "state": { "enum": ["open", "on-its-way", "settled", "expired", "withdrawn"] },
                "question": text(), "request": { "type": "object" },
                "arguments_sha256": text(),
            },
        },
        "RunList": {
            "type": "object",
            "required": ["runs", "next"],
            "properties": {
                "runs": { "type": "array", "items": reference("Run") },
                "next": { "type": ["string", "null"] },
            },
        },
    })
}
