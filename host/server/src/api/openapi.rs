//! The OpenAPI 3.1 document of the server: every route, with who may use it and what it answers.
//! There is no route that changes a config, a grant, a plugin, a policy or a secret.

mod schemas;

use serde_json::{Value, json};

use schemas::schemas;

/// The whole document.
pub(crate) fn document() -> Value {
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Conclave",
            "version": "1",
            "description": "The server of configs. What a person may do depends on the role of the token.",
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
    let mut paths = reading_paths();
    for part in [rights_paths(), acting_paths(), page_paths(), hook_paths()] {
        if let (Value::Object(paths), Value::Object(more)) = (&mut paths, part) {
            for (path, operations) in more {
                let known = paths.entry(path).or_insert_with(|| json!({}));
                if let (Value::Object(known), Value::Object(operations)) = (known, operations) {
                    known.extend(operations);
                }
            }
        }
    }
    paths
}

fn reading_paths() -> Value {
    let run = parameter("path", "run", json!({ "type": "string" }));
    let last = parameter("header", "Last-Event-ID", json!({ "type": "string" }));
    let call = parameter("path", "call", json!({ "type": "string", "pattern": "^c?[0-9]{1,18}$" }));
    let limit = json!({
        "type": "integer", "minimum": 1, "description": "50 by default; more than 500 are 500.",
    });
    let view = |summary: &str| {
        get(summary, std::slice::from_ref(&run), &content(json!({ "type": "object" })))
    };
    let mut timeline = view("The timeline of the run.");
    let tag = parameter("header", "If-None-Match", json!({ "type": "string" }));
    timeline["parameters"] = json!([run, tag]);
    timeline["responses"]["304"] =
        json!({ "description": "The run has no record that is not in the reader's copy." });
    let query = |name: &str, schema: Value| parameter("query", name, schema);
    let config = query("config", json!({ "type": "string" }));
    let filters = [
        config.clone(),
        query("status", json!({ "type": "string" })),
        query("agent", json!({ "type": "string" })),
        query("text", json!({ "type": "string" })),
        query("limit", limit),
        query("cursor", json!({ "type": "string" })),
    ];
    let stream = event_stream();
    let plain = json!({ "text/plain": { "schema": { "type": "string" } } });
    json!({
        "/healthz": { "get": public(get("Whether the server lives.", &[], &plain)) },
        "/readyz": { "get": public(get("Whether the store can be read.", &[], &plain)) },
        "/metrics": { "get": get("Figures in the text format of Prometheus.", &[], &plain) },
        "/api/v1/openapi.json": {
            "get": get("This document.", &[], &content(json!({ "type": "object" }))),
        },
        "/api/v1/configs": {
            "get": get(
                "The configs that the person sees, with the role there. Routes without a run take a \
                 query `config` with one of the names.",
                &[],
                &content(json!({ "type": "object" })),
            ),
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
                 `record` with its room. `Last-Event-ID` continues after that record; if the store \
                 does not have it, an event `reset` comes first, and then all records.",
                &[run.clone(), last.clone()],
                &stream,
            ),
        },
        "/api/v1/runs/{run}/tasks": { "get": view("The background tasks of the run.") },
        "/api/v1/runs/{run}/timeline": { "get": timeline },
        "/api/v1/runs/{run}/audit": { "get": view("The audit of the run: who did what.") },
        "/api/v1/runs/{run}/budget": { "get": view("The limits of the run, and its use.") },
        "/api/v1/runs/{run}/changes": {
            "get": view("The changes that wait in overlays, as differences, with their version."),
        },
        "/api/v1/runs/{run}/why/{call}": {
            "get": get(
                "What happened in a call, and which layer refused what.",
                &[run.clone(), call],
                &content(json!({ "type": "object" })),
            ),
        },
        "/api/v1/questions": {
            "get": get(
                "The calls and questions that wait for a person, of the runs that this one may read.",
                &[config],
                &content(reference("QuestionList")),
            ),
        },
    })
}

/// The routes by which people act on runs.
fn acting_paths() -> Value {
    let text = || json!({ "type": "string" });
    let run = parameter("path", "run", text());
    let maybe = || json!({ "type": ["string", "null"] });
    let key = json!({ "type": "string", "pattern": "^[!-~]{1,255}$" });
    let key = parameter("header", "Idempotency-Key", key);
    let of_run = [run.clone(), key.clone()];
    let state = content(reference("State"));
    let optional = |name: &str| optional_body(&json!({ name: maybe() }));
    let change = |summary: &str, body: Value| acting(summary, &of_run, body, (200, &state));
    let mut start = acting(
        "Starts a run. With a key, the same request starts one run only, and is answered with 200.",
        std::slice::from_ref(&key),
        body_of(&json!({ "text": text(), "task": maybe(), "config": maybe() }), &["text"]),
        (201, &content(reference("Run"))),
    );
    start["responses"]["200"] =
        json!({ "description": "The run of this key.", "content": content(reference("Run")) });
    json!({
        "/api/v1/runs": { "post": start },
        "/api/v1/runs/{run}/messages": {
            "post": change(
                "Sends a text that the agent reads in its next step.",
                body_of(&json!({ "text": text(), "task": maybe() }), &["text"]),
            ),
        },
        "/api/v1/runs/{run}/stop": { "post": change("Ends the run.", optional("reason")) },
        "/api/v1/runs/{run}/pause": {
            "post": change("Lets calls in progress end, and begins no new ones.", optional("reason")),
        },
        "/api/v1/runs/{run}/resume": {
            "post": change("Lifts the pause.", optional_body(&json!({}))),
        },
        "/api/v1/runs/{run}/questions/{id}": {
            "post": acting(
                "Approves or refuses a call, or answers a question. The first decision counts.",
                &[run.clone(), parameter("path", "id", text()), key],
                settling_body(),
                (200, &state),
            ),
        },
        "/api/v1/runs/{run}/changes": {
            "post": acting(
                "Applies or drops the changes. With a version, only those that were read.",
                &[run],
                body_of(
                    &json!({ "decision": { "enum": ["apply", "drop"] }, "version": maybe() }),
                    &["decision"],
                ),
                (200, &content(json!({ "type": "object" }))),
            ),
        },
    })
}

/// The body of a decision or an answer: which fields it has depends on the decision.
fn settling_body() -> Value {
    let maybe = || json!({ "type": ["string", "null"] });
    let mut body = body_of(
        &json!({
            "decision": { "enum": ["approve", "refuse", "answer"] },
            "reason": maybe(), "text": { "type": "string" }, "arguments_sha256": maybe(),
        }),
        &["decision"],
    );
    let of = |decision: &str, others: &[&str], required: &[&str]| {
        let mut properties: serde_json::Map<_, _> =
            others.iter().map(|other| ((*other).to_owned(), json!(false))).collect();
        properties.insert("decision".to_owned(), json!({ "const": decision }));
        json!({ "properties": properties, "required": required })
    };
    body["content"]["application/json"]["schema"]["oneOf"] = json!([
        of("approve", &["reason", "text"], &[]),
        of("refuse", &["text"], &[]),
        of("answer", &["reason", "arguments_sha256"], &["text"]),
    ]);
    body
}

/// Server-sent events; the schema is that of each.
fn event_stream() -> Value {
    let fields = ["event", "id", "data"].map(|name| (name.to_owned(), json!({ "type": "string" })));
    let fields: serde_json::Map<_, _> = fields.into_iter().collect();
    json!({ "text/event-stream": { "schema": { "type": "object", "properties": fields } } })
}

/// The routes of the page.
fn page_paths() -> Value {
    let conversation = parameter("path", "id", json!({ "type": "string" }));
    let last = parameter("header", "Last-Event-ID", json!({ "type": "string" }));
    let stream = event_stream();
    json!({
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
                &json!({ "text": { "type": "string", "minLength": 1 }, "key": { "type": "string" } }),
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

/// The route of webhooks, which are signed in place of a session.
fn hook_paths() -> Value {
    let text = || json!({ "type": "string" });
    let signed = |name: &str, schema: Value| {
        let mut header = parameter("header", name, schema);
        header["required"] = true.into();
        header
    };
    let data = json!({
        "type": "object", "required": ["text"],
        "properties": { "text": text(), "room": text(), "task": text() },
    });
    let schema = json!({
        "type": "object", "required": ["data"], "properties": { "data": data },
    });
    let parameters = [
        parameter("path", "channel", text()),
        parameter("query", "config", text()),
        signed("webhook-id", json!({ "type": "string", "pattern": "^[!-~]{1,128}$" })),
        signed("webhook-timestamp", json!({ "type": "string", "pattern": "^[0-9]{1,19}$" })),
        signed("webhook-signature", text()),
    ];
    let accepted = json!({
        "type": "object", "required": ["room", "index", "duplicate"],
        "properties": {
            "room": text(), "index": { "type": "integer" }, "duplicate": { "type": "boolean" },
        },
    });
    let body = json!({ "required": true, "content": content(schema) });
    let hook = acting(
        "Takes a message of a channel that is a webhook, signed as by Standard Webhooks. Of several \
         configs the one is meant whose secret has signed it; `config` can only name the same.",
        &parameters,
        body,
        (202, &content(accepted)),
    );
    json!({ "/hooks/{channel}": { "post": public(hook) } })
}

/// An operation without a session.
fn public(mut operation: Value) -> Value {
    operation["security"] = json!([]);
    operation
}

/// An operation that changes a run, whose refusals are problem documents.
fn acting(
    summary: &str,
    parameters: &[Value],
    body: Value,
    (status, content): (u16, &Value),
) -> Value {
    let mut operation = get(summary, parameters, content);
    let response = json!({ "description": summary, "content": content });
    operation["responses"] = json!({
        status.to_string(): response,
        "default": { "$ref": "#/components/responses/Problem" },
    });
    operation["requestBody"] = body;
    operation
}

/// What plugins may do, what runs may spend, and whether the store is intact. Nothing here can change
/// it.
fn rights_paths() -> Value {
    let text = || json!({ "type": "string" });
    let query = |name: &str, is_required: bool, schema: Value| {
        let mut parameter = parameter("query", name, schema);
        parameter["required"] = is_required.into();
        parameter
    };
    let question = [
        query("plugin", true, text()),
        query("capability", true, text()),
        query("target", false, text()),
        query("write", false, json!({ "type": "boolean" })),
        query("method", false, text()),
        query("header", false, json!({ "type": "array", "items": text() })),
        query("host", false, text()),
        query(
            "arguments",
            false,
            json!({ "type": "string", "contentMediaType": "application/json" }),
        ),
        query("task", false, text()),
    ];
    let view = |summary: &str| get(summary, &[], &content(json!({ "type": "object" })));
    json!({
        "/api/v1/rights": {
            "get": view(
                "What each plugin can reach, which plugin can call which, and what was granted and not used in the newest runs.",
            ),
        },
        "/api/v1/budgets": {
            "get": view("The runs that have not ended, each with its limits in force and its use."),
        },
        "/api/v1/audit": {
            "get": view(
                "What `conclave audit verify` says of the store, as of the time `at`: each chain with its newest hash.",
            ),
        },
        "/api/v1/plugins": {
            "get": view("The plugins of the config with their tools and permissions."),
        },
        "/api/v1/can": {
            "get": get(
                "Whether a plugin may do something: the answer of each layer, as of `conclave can`.",
                &question,
                &content(json!({ "type": "object" })),
            ),
        },
    })
}

/// A body with these fields.
fn body_of(properties: &Value, required: &[&str]) -> Value {
    let schema = json!({
        "type": "object", "required": required, "properties": properties,
        "additionalProperties": false,
    });
    json!({ "required": true, "content": { "application/json": { "schema": schema } } })
}

/// A body that may be absent.
fn optional_body(properties: &Value) -> Value {
    let mut body = body_of(properties, &[]);
    body["required"] = false.into();
    body
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
    use crate::{api, hooks, http};

    #[test]
    fn every_route_is_in_the_document_and_nothing_else_is() {
        let document = document();
        let mut documented: Vec<&str> =
            document["paths"].as_object().unwrap().keys().map(String::as_str).collect();
        documented.sort_unstable();
        let v1: Vec<String> =
            api::routes().iter().map(|(path, _)| format!("{}{path}", api::API)).collect();
        let page = http::page_routes();
        let (health, hooks) = (api::health_routes(), hooks::routes());
        let others = page.iter().chain(&health).chain(&hooks).map(|(path, _)| *path);
        let mut routes: Vec<&str> = v1.iter().map(String::as_str).chain(others).collect();
        routes.sort_unstable();
        assert_eq!(documented, routes);
    }

    #[test]
    fn no_route_is_about_what_only_the_operator_grants() {
        let words = ["config", "grant", "plugin", "polic", "secret", "token", "user", "limit"];
        let is_granted = |name: &str| words.iter().any(|word| name.contains(word));
        let document = document();
        for (path, operations) in document["paths"].as_object().unwrap() {
            for (method, operation) in operations.as_object().unwrap() {
                if method == "get" {
                    continue;
                }
                assert!(!is_granted(path), "{path}");
                let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
                let fields = schema["properties"].as_object().into_iter().flatten();
                // The token of a session is the proof of who asks, and a start names the config of
                // its run; both change nothing.
                let names_alone = [("/api/session", "token"), ("/api/v1/runs", "config")];
                for (field, _) in fields
                    .filter(|(field, _)| !names_alone.contains(&(path.as_str(), field.as_str())))
                {
                    assert!(!is_granted(field), "{method} {path} {field}");
                }
                if path.starts_with(api::API) && !schema.is_null() {
                    assert_eq!(schema["additionalProperties"], false, "{method} {path}");
                }
            }
        }
    }

    #[test]
    fn each_method_of_a_route_is_documented() {
        let document = document();
        let v1 = api::routes()
            .into_iter()
            .map(|(path, methods)| (format!("{}{path}", api::API), methods));
        for (path, methods) in v1 {
            let methods = format!("{methods:?}");
            for method in ["get", "post"] {
                // The debug text of a router names each method, and says `None` for one without.
                let is_routed = !methods.contains(&format!("{method}: None"));
                let is_documented = document["paths"][&path].get(method).is_some();
                assert_eq!(is_routed, is_documented, "{method} {path}: {methods}");
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
