//! The keys that the runner reports of a case, and thus those that a case can expect: one for each
//! fact. `docs/internals/conformance.md` explains each key, and a test compares the page with this
//! table. Comparison of values is elsewhere.

use serde_json::Value;

/// The reported facts of cases of some kinds.
pub struct Facts {
    /// Of Langroid cases the `op` of a call; of RoomKit cases the `op` of `when`.
    pub kinds: &'static [&'static str],
    /// Dotted if a value has documented keys of its own. A value without listed keys may contain
    /// anything.
    pub keys: &'static [&'static str],
}

const RUNS: &[&str] = &["run", "steps"];
const SEATS: &[&str] = &["agent_respond", "handle_text", "apply_tool", "llm_respond"];
const FUNCTIONS: &[&str] = &[
    "parse_done_sequence",
    "parse_address",
    "extract_json",
    "json_field",
    "find_xml",
    "batch",
    "known_tools",
];
const CHANGES: &[&str] =
    &["clear_history", "preset_history", "set_llm", "clone", "disable_handling"];

/// The facts of the packs `langroid` and `probes`.
pub const LANGROID: &[Facts] = &[
    Facts {
        kinds: RUNS,
        keys: &[
            "result",
            "result.content",
            "result.recipient",
            "result.tools",
            "result.sender",
            "steps",
            "trace",
            "trace.task",
            "trace.by",
            "trace.sender",
            "trace.recipient",
            "trace.content",
            "trace.tools",
            "history",
            "llm_calls",
        ],
    },
    Facts { kinds: &["run"], keys: &["result.status", "result.value", "end", "error", "typed"] },
    Facts {
        kinds: SEATS,
        keys: &[
            "value",
            "value.content",
            "value.sender",
            "value.recipient",
            "value.tools",
            "value.tainted",
            "value.results",
        ],
    },
    Facts { kinds: &["llm_respond"], keys: &["value.position", "history"] },
    Facts { kinds: &["prune"], keys: &["history"] },
    Facts { kinds: &["enable"], keys: &["error"] },
    Facts {
        kinds: &["fit_history"],
        keys: &["value", "value.roles", "value.cut", "value.count", "value.first", "value.last"],
    },
    Facts { kinds: FUNCTIONS, keys: &["value"] },
    Facts { kinds: CHANGES, keys: &[] },
];

/// The facts of the pack `openhands`. Kinds without a played case have no facts.
pub const OPENHANDS: &[Facts] = &[
    Facts { kinds: &["stuck_pairs"], keys: &["stuck"] },
    Facts { kinds: &["stuck_events"], keys: &["stuck", "loop"] },
    Facts { kinds: &["stuck_sdk"], keys: &["stuck", "status", "nudges", "corrective_nudges"] },
    Facts {
        kinds: &["controller"],
        keys: &[
            "agent_steps",
            "iteration",
            "state",
            "states",
            "published",
            "history",
            "observation",
            "error",
            "outputs",
        ],
    },
    Facts { kinds: &["limit"], keys: &["results", "current", "max"] },
    Facts {
        kinds: &["delegate"],
        keys: &[
            "parent_state",
            "parent_iteration_after",
            "child_state",
            "child_local_step_at_finish",
            "observation",
            "content",
            "outputs",
        ],
    },
    Facts { kinds: &["confirm_policy"], keys: &["confirm", "error"] },
    Facts { kinds: &["confirm_batch"], keys: &["wait"] },
    Facts {
        kinds: &["confirm_v0"],
        keys: &["state", "states", "observation", "republished", "state_after_observation"],
    },
    Facts {
        kinds: &["parallel"],
        keys: &["events", "executed", "discarded", "serialised", "parallel"],
    },
    Facts { kinds: &["runtime"], keys: &["observation", "ran", "content", "exit_code"] },
    Facts {
        kinds: &["beat"],
        keys: &[
            "observation",
            "content",
            "loop_continues",
            "stuck",
            "status",
            "verdict",
            "mode",
            "executed",
            "executed_before_answer",
            "stored_bytes_contain_secret",
            "errors_after_restart",
            "re_executed",
            "outcome",
            "loads",
            "events_kept",
            "reports_gap",
            "other_conversations_blocked",
        ],
    },
    Facts { kinds: &["codec", "codec_error"], keys: &["dict", "memory", "error"] },
    Facts { kinds: &["truncate", "read_lines"], keys: &["content"] },
    Facts { kinds: &["write_lines"], keys: &["text"] },
    Facts { kinds: &["search"], keys: &["ids", "contents", "count"] },
    Facts { kinds: &["replay"], keys: &["task", "replayed", "waits"] },
    Facts { kinds: &["unmatched"], keys: &["pending"] },
    Facts { kinds: &["event_tree"], keys: &["path", "error"] },
    Facts { kinds: &["plan"], keys: &["results", "tree", "current", "text", "finished"] },
    Facts { kinds: &["micro"], keys: &["trigger"] },
];

/// Another name of a fact, which the reference uses in some cases. The runner reports the fact
/// once, and the comparison resolves the name.
pub struct Name {
    pub kind: &'static str,
    pub name: &'static str,
    /// The documented key, dotted.
    pub of: &'static str,
}

const fn name(kind: &'static str, name: &'static str, of: &'static str) -> Name {
    Name { kind, name, of }
}

/// The other names of facts of OpenHands.
pub const OPENHANDS_NAMES: &[Name] = &[
    name("confirm_v0", "state_after_observation", "state"),
    name("delegate", "content", "observation.content"),
    name("delegate", "outputs", "observation.extras.outputs"),
    name("runtime", "content", "observation.content"),
    name("runtime", "exit_code", "observation.extras.exit_code"),
];

/// The other names of facts of RoomKit.
pub const ROOMKIT_NAMES: &[Name] = &[
    name("submit_then_cancel", "child_metadata", "child_room_metadata"),
    name("submit_then_cancel", "result_error", "result.error"),
    name("handle", "notify", "delegate_called_with.notify"),
    name("handle", "delegate_context", "delegate_called_with.context"),
];

/// Returns the reported facts of a case together with their other names.
pub fn with_names(names: &[Name], kind: &str, got: &Value) -> Value {
    let mut named = got.clone();
    for Name { name, of, .. } in names.iter().filter(|name| name.kind == kind) {
        if let Some(fact) = of.split('.').try_fold(got, |value, part| value.get(part)) {
            named[*name] = fact.clone();
        }
    }
    named
}

/// The keys of one background task, from its delegation to the delivery of its result.
const TASKS: &[&str] =
    &["delegate", "delegate_inline", "delegate_then_close_parent", "submit", "submit_then_cancel"];

/// The facts of the pack `roomkit`.
pub const ROOMKIT: &[Facts] = &[
    Facts {
        kinds: TASKS,
        keys: &[
            "result",
            "result.task_id",
            "result.child_room_id",
            "result.parent_room_id",
            "result.agent_id",
            "result.status",
            "result.output",
            "result.error",
            "result.duration_ms",
            "result.metadata",
            "child_bindings",
            "child_binding",
            "child_room_metadata",
            "worker_input",
            "hooks",
            "hook_order",
            "hook_events",
            "callback_calls",
            "callback_status",
            "callback_before_wait_returns",
            "prompts_changed",
            "notify_prompt",
            "strategy_calls",
            "calls",
            "ctx",
            "ctx.notify_channel_id",
            "ctx.room_id",
            "ctx.task_id",
            "outcome",
        ],
    },
    Facts {
        kinds: &["delegate"],
        keys: &[
            "error",
            "side_effects",
            "handle",
            "handle.task_id",
            "handle.child_room_id",
            "handle.parent_room_id",
            "handle.agent_id",
            "handle.task",
            "handle.status",
        ],
    },
    Facts { kinds: &["delegate_inline"], keys: &["turns", "payload", "tool_removed_after"] },
    Facts { kinds: &["delegate_then_close_parent"], keys: &["parent_events_added"] },
    Facts {
        kinds: &["submit_then_cancel"],
        keys: &["child_metadata", "result_error", "returns", "second"],
    },
    Facts { kinds: &["delegate_all"], keys: &["outputs", "statuses", "child_rooms_distinct"] },
    Facts { kinds: &["delegate_many"], keys: &["all_completed", "completed", "elapsed_ms"] },
    Facts { kinds: &["delegate_nested"], keys: &["all_completed", "child_id_shape"] },
    Facts { kinds: &["submit_two_then_close"], keys: &["statuses"] },
    Facts { kinds: &["cancel"], keys: &["returns"] },
    Facts { kinds: &["cancel_handle"], keys: &["status", "result"] },
    Facts {
        kinds: &["wait"],
        keys: &[
            "status",
            "error",
            "status_after",
            "later_status",
            "waiters_equal",
            "returns_at_once",
        ],
    },
    Facts { kinds: &["result_round_trip"], keys: &["equal", "result"] },
    Facts {
        kinds: &["result_new", "handle_new"],
        keys: &["status", "output", "error", "duration_ms", "metadata", "result"],
    },
    Facts { kinds: &["find_transport"], keys: &["channel_id"] },
    Facts { kinds: &["resolve_strategy"], keys: &["strategy", "error"] },
    Facts {
        kinds: &["deliver"],
        keys: &[
            "inbound_calls",
            "message",
            "message.channel_id",
            "message.sender_id",
            "message.content_type",
            "message.body",
            "room_id",
            "voice_calls",
            "order",
            "log",
            "raises",
        ],
    },
    Facts { kinds: &["deliver_several"], keys: &["bodies"] },
    Facts {
        kinds: &["deliver_to"],
        keys: &[
            "inbound_calls",
            "inject_calls",
            "outcome",
            "reason",
            "duplicate",
            "body",
            "channel_id",
            "block",
            "modify",
            "throw",
        ],
    },
    Facts { kinds: &["backend_close"], keys: &["queue_depth"] },
    Facts {
        kinds: &["backend_nack"],
        keys: &["dead_letter", "queue_depth", "attempts", "delays_ms", "inbound_calls", "outcome"],
    },
    Facts {
        kinds: &["delegate_tool"],
        keys: &["name", "properties", "required", "enum", "description_lines", "is_generic"],
    },
    Facts {
        kinds: &["handle"],
        keys: &[
            "returns",
            "returns_from_cache",
            "delegate_calls",
            "delegate_called_with",
            "delegate_called_with.room_id",
            "delegate_called_with.agent_id",
            "delegate_called_with.task",
            "delegate_called_with.context",
            "delegate_called_with.share_channels",
            "delegate_called_with.notify",
            "notify",
            "delegate_context",
            "max_entries",
        ],
    },
    Facts {
        kinds: &["handle_concurrent"],
        keys: &["max_concurrent_delegate_calls", "delegate_calls"],
    },
    Facts { kinds: &["call_tool"], keys: &["payload"] },
    Facts { kinds: &["wire", "wire_twice"], keys: &["tool_names", "error"] },
];

/// Returns the kinds of a pack, in order, each once.
pub fn kinds(pack: &[Facts]) -> Vec<&'static str> {
    let mut kinds: Vec<&str> = pack.iter().flat_map(|facts| facts.kinds).copied().collect();
    kinds.sort_unstable();
    kinds.dedup();
    kinds
}

/// Returns the keys of a kind, in order.
pub fn keys(pack: &[Facts], kind: &str) -> Vec<&'static str> {
    let of_kind = pack.iter().filter(|facts| facts.kinds.contains(&kind));
    let mut keys: Vec<&str> = of_kind.flat_map(|facts| facts.keys).copied().collect();
    keys.sort_unstable();
    keys.dedup();
    keys
}

/// Describes an undocumented key of a value and lists the documented keys of the kind. `base`
/// removes the ending from a key that refers to another one; `None` if it has no ending.
pub fn undocumented(
    pack: &[Facts],
    kind: &str,
    value: &Value,
    base: fn(&str) -> Option<&str>,
) -> Option<String> {
    let keys = keys(pack, kind);
    let key = first_unknown(&keys, "", value, base)?;
    let known: Vec<&str> = keys.iter().filter(|key| !key.contains('.')).copied().collect();
    let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
    Some(format!(
        "{key:?} is no key of {kind:?} cases; those of docs/internals/conformance.md are: {known}"
    ))
}

fn first_unknown(
    keys: &[&str],
    path: &str,
    value: &Value,
    base: fn(&str) -> Option<&str>,
) -> Option<String> {
    match value {
        Value::Object(fields) => fields.iter().find_map(|(key, value)| {
            let full =
                |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
            let named = full(key);
            if keys.contains(&named.as_str()) {
                return below(keys, &named, value, base);
            }
            let asked = base(key).map(full).filter(|asked| keys.contains(&asked.as_str()));
            if asked.is_some() { None } else { Some(named) }
        }),
        Value::Array(items) => items.iter().find_map(|item| {
            if item.is_object() { first_unknown(keys, path, item, base) } else { None }
        }),
        _ => None,
    }
}

/// Checks the keys below a value. A value without keys in the table may contain anything.
fn below(
    keys: &[&str],
    path: &str,
    value: &Value,
    base: fn(&str) -> Option<&str>,
) -> Option<String> {
    let has_keys =
        keys.iter().any(|key| key.strip_prefix(path).is_some_and(|rest| rest.starts_with('.')));
    if has_keys { first_unknown(keys, path, value, base) } else { None }
}
