//! The OpenAPI 3.1 document of the server: every route, with who may use it and what it answers.
//! There is no route that changes a config, a grant, a plugin, a policy or a secret.

use serde_json::{Value, json};

/// The whole document.
pub(crate) fn document() -> Value {
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Conclave",
            "version": "1",
            "description": "The server of a config. What a person may do depends on the role of the token.",
        },
        "security": [{ "token": [] }, { "session": [] }],
        "paths": paths(),
        "components": {
            "securitySchemes": {
                "token": { "type": "http", "scheme": "bearer" },
                "session": {
                    "type": "apiKey", "in": "cookie", "name": "conclave-PORT",
                    "description": "`__Host-conclave-PORT` behind a proxy with TLS.",
                },
            },
            "schemas": schemas(),
            "responses": {
                "Problem": {
                    "description": "A refusal.",
                    "content": { "application/problem+json": { "schema": reference("Problem") } },
                },
                "Failure": {
                    "description": "A refusal.",
                    "content": { "application/json": { "schema": reference("Failure") } },
                },
            },
        },
    })
}

fn paths() -> Value {
    let run = parameter("path", "run", json!({ "type": "string" }));
    let conversation = parameter("path", "id", json!({ "type": "string" }));
    let last = parameter("header", "Last-Event-ID", json!({ "type": "string" }));
    let query = |name: &str, schema: Value| parameter("query", name, schema);
    let filters = [
        query("status", json!({ "type": "string" })),
        query("agent", json!({ "type": "string" })),
        query("text", json!({ "type": "string" })),
        query("limit", json!({ "type": "integer", "minimum": 1, "maximum": 500 })),
        query("cursor", json!({ "type": "string" })),
    ];
    let stream = json!({ "text/event-stream": { "schema": { "type": "string" } } });
    let plain = json!({ "text/plain": { "schema": { "type": "string" } } });
    let public = |mut operation: Value| {
        operation["security"] = json!([]);
        operation
    };
    json!({
        "/healthz": { "get": public(get("Whether the server lives.", &[], &plain)) },
        "/readyz": { "get": public(get("Whether the store can be read.", &[], &plain)) },
        "/metrics": { "get": get("Figures in the text format of Prometheus.", &[], &plain) },
        "/api/v1/openapi.json": {
            "get": get("This document.", &[], &content(json!({ "type": "object" }))),
        },
        "/api/v1/runs": {
            "get": get(
                "The runs that the person may read, newest first. `next` is the cursor of the next page.",
                &filters,
                &content(reference("RunList")),
            ),
        },
        "/api/v1/runs/{run}": {
            "get": get(
                "A run with its rooms and with what it waits for.",
                std::slice::from_ref(&run),
                &content(reference("Run")),
            ),
        },
        "/api/v1/runs/{run}/events": {
            "get": get(
                "The records of all rooms of the run in the order of their commits, each an event \
                 `record` with its room. `Last-Event-ID` continues after that record.",
                &[run, last.clone()],
                &stream,
            ),
        },
        "/api/session": {
            "post": public(post(
                "Exchanges a token for a session.",
                &[],
                &json!({ "token": { "type": "string" } }),
                (204, &Value::Null),
            )),
        },
        "/api/conversations": {
            "get": in_json(get(
                "The conversations that the person may read.",
                &[],
                &content(json!({ "type": "object" })),
            )),
            "post": in_json(post(
                "Begins a conversation.",
                &[],
                &Value::Null,
                (201, &content(json!({ "type": "object" }))),
            )),
        },
        "/api/conversations/{id}/events": {
            "get": in_json(get(
                "The entries of the conversation.",
                &[conversation.clone(), last],
                &stream,
            )),
        },
        "/api/conversations/{id}/messages": {
            "post": in_json(post(
                "Sends a message under an idempotency key.",
                std::slice::from_ref(&conversation),
                &json!({ "text": { "type": "string" }, "key": { "type": "string" } }),
                (200, &content(json!({ "type": "object" }))),
            )),
        },
        "/api/conversations/{id}/stop": {
            "post": in_json(post(
                "Ends the turn.",
                &[conversation],
                &Value::Null,
                (202, &Value::Null),
            )),
        },
    })
}

fn schemas() -> Value {
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
                "entry": text(), "message": text(), "principal": text(),
                "turns": { "type": "integer" }, "tokens": { "type": "integer" },
                "cost_micro_usd": { "type": "integer" }, "records": { "type": "integer" },
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

fn reference(schema: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{schema}") })
}

fn content(schema: Value) -> Value {
    json!({ "application/json": { "schema": schema } })
}

fn parameter(place: &str, name: &str, schema: Value) -> Value {
    json!({ "in": place, "name": name, "required": place == "path", "schema": schema })
}

fn get(summary: &str, parameters: &[Value], content: &Value) -> Value {
    json!({
        "summary": summary,
        "parameters": parameters,
        "responses": {
            "200": { "description": summary, "content": content },
            "default": { "$ref": "#/components/responses/Problem" },
        },
    })
}

/// A request with these properties in its body; `Null` for none.
fn post(
    summary: &str,
    parameters: &[Value],
    properties: &Value,
    (status, content): (u16, &Value),
) -> Value {
    let mut operation = get(summary, parameters, content);
    let mut response = json!({ "description": summary });
    if !content.is_null() {
        response["content"] = content.clone();
    }
    operation["responses"] = json!({
        status.to_string(): response,
        "default": { "$ref": "#/components/responses/Failure" },
    });
    if let Value::Object(fields) = properties {
        let required: Vec<&String> = fields.keys().collect();
        let schema = json!({
            "type": "object", "required": required, "properties": properties,
        });
        operation["requestBody"] =
            json!({ "required": true, "content": { "application/json": { "schema": schema } } });
    }
    operation
}

/// A route of the page, whose refusals are those of a conversation.
fn in_json(mut operation: Value) -> Value {
    operation["responses"]["default"] = json!({ "$ref": "#/components/responses/Failure" });
    operation
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{api, http};

    #[test]
    fn every_route_is_in_the_document_and_nothing_else_is() {
        let document = document();
        let mut documented: Vec<&str> =
            document["paths"].as_object().unwrap().keys().map(String::as_str).collect();
        documented.sort_unstable();
        let v1: Vec<String> =
            api::routes().iter().map(|(path, _)| format!("{}{path}", api::API)).collect();
        let page = http::page_routes();
        let health = api::health_routes();
        let others = page.iter().chain(&health).map(|(path, _)| *path);
        let mut routes: Vec<&str> = v1.iter().map(String::as_str).chain(others).collect();
        routes.sort_unstable();
        assert_eq!(documented, routes);
    }

    #[test]
    fn no_route_is_about_what_only_the_operator_grants() {
        for path in document()["paths"].as_object().unwrap().keys() {
            for word in ["config", "grant", "plugin", "polic", "secret", "token", "user"] {
                assert!(!path.contains(word), "{path}");
            }
        }
    }

    #[test]
    fn every_reference_resolves() {
        fn walk(value: &Value, document: &Value) {
            match value {
                Value::Object(fields) => {
                    if let Some(Value::String(target)) = fields.get("$ref") {
                        let pointer = target.trim_start_matches('#');
                        assert!(document.pointer(pointer).is_some(), "{target}");
                    }
                    fields.values().for_each(|value| walk(value, document));
                }
                Value::Array(items) => items.iter().for_each(|value| walk(value, document)),
                _ => {}
            }
        }
        let document = document();
        walk(&document, &document);
    }
}
