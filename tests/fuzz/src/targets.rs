//! The targets: one file each, a check of any bytes.

use crate::Target;

mod calls;
#[cfg(feature = "component")]
mod component;
mod config;
mod config_edit;
mod facts;
mod journal;
mod manifest;
mod policy;
mod sse;
mod trajectory;
mod urls;

/// Words of a config.
const CONFIG_WORDS: &[&str] = &[
    "[plugins.a]\n", "[tasks.a]\n", "[models.a]\n", "[channels.a]\n", "[[policy]]\n", "[[gates]]\n", "[limits.run]\n", "[secrets.a]\n",
    "entry = \"a\"\n", "source = \"stock:chat\"\n", "agent = \"a\"\n", "grants.fetch = [\"https://a.example/*\"]\n",
    "grants.files = [{ dir = \".\", at = \"/a\", mode = \"read-write\" }]\n", "grants.tools = [\"a.b\"]\n", "grants.model = [\"a\"]\n",
    "grants.kv = true\n", "grants.route = [\"user\"]\n", "grants.secrets = [\"a\"]\n", "limits.wall = \"5 s\"\n", "\"\"\"", "'''", "\\u0000",
    "= nan\n", "= inf\n", "1979-05-27T07:32:00Z", "# note\n", " = [\n", "{ ", " }", "a.b.c", "\"a\" = ", "decide = \"ask\"\n", "tool = \"*\"\n",
    "\n=====\n", "grant a ", "revoke a ", "add a stock:chat", "set a.b.c 1", "remove a.b", "\r\n", "\u{feff}", "\u{202e}", "é",
];

/// Words of calls in texts.
const CALL_WORDS: &[&str] = &[
    "{\"request\": \"notes.find\", \"query\": \"a\"}", "{", "}", "[", "]", "\"", "'", "`", "```json\n", "\\", "\\u0000", "/*", "*/", "//", "#",
    "True", "None", "null", ",", ":", "“", "”", "<tool>", "</tool>", "<request>notes.find</request>", "<query>", "</query>", "<code>",
    "</code>", "<![CDATA[", "]]>", "&lt;", "&#x41;", "&#0;", "&amp;", "DONE", "PASS", "PASS_TO", "SEND_TO", "TO[", "]:", "@", "DO-NOT-KNOW",
    "notes.find", "notes.save", "done", "recipient", "_hidden", "C[a,b]", "T[notes.find]", "L, T, A", "\u{1e}", "é", "\u{202e}",
];

/// Words of addresses and patterns.
const URL_WORDS: &[&str] = &[
    "https://", "http://", "file://", "*.", "/*", "*", "..", "/../", "%2e%2e", "%2f", "%5c", "%252e", "\\", "@", "user:pw@", "?q=1", "#f",
    "127.0.0.1", "0x7f.1", "2130706433", "[::1]", "[::ffff:10.0.0.1]", "169.254.169.254", "localhost", "xn--", "。", "１２７", ":443", ":80",
    ":0", ":65535", ":", ".", "a.example", "b.a.example", "\t", "\u{200b}", "é", "ß", "//", ";", "%c0%ae", "%00", "[fe80::1%25eth0]",
];

/// Words of logs and records.
const EVENT_WORDS: &[&str] = &[
    "action", "observation", "args", "extras", "content", "run", "read", "write", "message", "id", "cause", "source", "timestamp", "thought",
    "kind", "event", "history", "null", "agent", "user", "environment", "command", "path", "tool_call_metadata", "llm_metrics", "MessageEvent",
    "ActionEvent", "ObservationEvent", "Condensation", "parent_id", "2025-01-01T00:00:00", "security_risk", "background", "kill", "delegate",
];

const RECORD_WORDS: &[&str] = &[
    "RoomOpened", "RunStarted", "seq", "at", "principal", "rules", "event", "call", "room", "timer", "task", "agent", "user", "message",
    "content", "tool_calls", "arguments", "report", "answer", "ok", "err", "limits", "turns", "wall_ms", "depth", "budget", "room-opened",
    "agent-stepped", "tool-ended", "timer-fired", "user-spoke", "resumed", "consulted", "DONE", "PASS",
];

const SSE_WORDS: &[&str] = &[
    "data: ", "data:", "event: error\n", "\n\n", "\r\n", "\r", ": c\n", "[DONE]", "data: [DONE]\n\n", "\u{feff}", "{\"choices\":[{\"delta\":",
    "\"content\":", "\"tool_calls\":", "\"index\":", "\"function\":", "\"arguments\":", "\"finish_reason\":", "\"usage\":", "\"error\":", "null",
    "sk-fuzz-0123456789abcdef", "sk-fuzz-", "\\u0073k-fuzz-0123456789abcdef", "choices", "delta", "message", "content", "tool_calls", "index",
];

const POLICY_WORDS: &[&str] = &[
    "tool", "caller", "arguments", "at", "patterns", "decide", "allow", "ask", "deny", "notes.save", "notes.*", "*", "desk", "path", "/path",
    "/a~1b", "\\*", "\\\\", "/notes/public/*", "/notes/public/../secret", "%2e%2e", "//", "5", "5.0", "callers", "expires_ms", "source",
];

#[cfg(feature = "component")]
const COMPONENT_WORDS: &[&str] = &[
    "\0asm\x0d\0\x01\0", "\0asm\x01\0\0\0", "conclave:manifest", "conclave:plugin/tools@0.1.0", "{\"format\":1,\"name\":\"x\"", "wasi:cli/run@0.2.0",
    "\x04\x05\0asm", "\0\x13\x11conclave:manifest", "component-type",
];

pub(crate) const ALL: &[Target] = &[
    Target {
        name: "config",
        about: "conclave.toml: a config or problems at places in the text; what is assembled can be journalled",
        longest: 16 << 10,
        allocated_per_byte: 64 << 10,
        words: CONFIG_WORDS,
        check: config::check,
    },
    Target {
        name: "config-edit",
        about: "edits of conclave.toml: comments stay, nothing else changes, an edit twice is an edit once",
        longest: 16 << 10,
        allocated_per_byte: 256 << 10,
        words: CONFIG_WORDS,
        check: config_edit::check,
    },
    Target {
        name: "manifest",
        about: "manifests as JSON and as TOML: what is read is written the same",
        longest: 16 << 10,
        allocated_per_byte: 1 << 10,
        words: &["format", "name", "version", "contract", "asks", "config", "secrets", "fetch", "urls", "methods", "why", "optional", "0.1", "default", "[plugin]\n", "[asks.log]\n"],
        check: manifest::check,
    },
    Target {
        name: "journal",
        about: "lines of a journal: a record or an error; written as they were read; folding never fails",
        longest: 64 << 10,
        allocated_per_byte: 16 << 10,
        words: RECORD_WORDS,
        check: journal::check,
    },
    Target {
        name: "sse",
        about: "a model's reply, streamed or whole: the same however it is cut, and without the key",
        longest: 16 << 10,
        allocated_per_byte: 8 << 10,
        words: SSE_WORDS,
        check: sse::check,
    },
    Target {
        name: "json-calls",
        about: "calls written as JSON in a text, their arguments against a schema, addresses and done sequences",
        longest: 16 << 10,
        allocated_per_byte: 8 << 10,
        words: CALL_WORDS,
        check: calls::check_json,
    },
    Target {
        name: "xml-calls",
        about: "calls written as XML in a text; what is rendered is read again",
        longest: 16 << 10,
        allocated_per_byte: 8 << 10,
        words: CALL_WORDS,
        check: calls::check_xml,
    },
    Target {
        name: "urls",
        about: "patterns, addresses and redirects: no host that is not named, no address that is not public",
        longest: 4 << 10,
        allocated_per_byte: 8 << 10,
        words: URL_WORDS,
        check: urls::check,
    },
    Target {
        name: "policy",
        about: "rules on tool calls: nobody loosens by joining, and a leave allows what was asked",
        longest: 16 << 10,
        allocated_per_byte: 16 << 10,
        words: POLICY_WORDS,
        check: policy::check,
    },
    #[cfg(feature = "component")]
    Target {
        name: "component",
        about: "a component's bytes before any of it is compiled: manifest, imports, exports",
        longest: 64 << 10,
        allocated_per_byte: 1 << 10,
        words: COMPONENT_WORDS,
        check: component::check,
    },
    Target {
        name: "trajectory",
        about: "logs of actions and observations of all eras: what is read is written and read the same, also torn",
        longest: 32 << 10,
        allocated_per_byte: 8 << 10,
        words: EVENT_WORDS,
        check: trajectory::check,
    },
];
