//! Rules with their patterns, risks and reasons. The operator's rules come first, then the built-in
//! ones; the first match counts.

use conclave_sdk::analyzer::Risk;
use conclave_sdk::{Error, Result};
use regex_lite::{Regex, RegexBuilder};
use serde::Deserialize;

use crate::deed::Deed;

/// Bytes that one compiled pattern may take.
const PATTERN_BYTES: usize = 256 * 1024;
const MOST_RULES: usize = 200;
/// Bytes of a text that are matched, from either end, since a pattern costs time for every
/// character.
const MOST_LOOKED_AT: usize = 64 * 1024;

/// A rule of the settings.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Written {
    name: String,
    /// A kind, such as `run`; `*` at the end matches anything. Empty: all kinds.
    action: String,
    /// A tool, such as `shell.run`; `*` at either end matches anything. Empty: all tools, and
    /// actions other than tool calls.
    tool: String,
    /// A regular expression that one of the texts must match, ignoring case. Empty: any text.
    pattern: String,
    risk: String,
    reason: String,
}

/// The settings.
#[derive(Debug, Deserialize)]
#[serde(default)]
pub(crate) struct Settings {
    pub(crate) rules: Vec<Written>,
    pub(crate) usual: bool,
    pub(crate) otherwise: String,
    pub(crate) folders: Vec<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Self { rules: Vec::new(), usual: true, otherwise: "medium".into(), folders: Vec::new() }
    }
}

/// A compiled rule.
struct Rule<'w> {
    name: String,
    action: &'w str,
    tool: &'w str,
    pattern: &'w str,
    risk: Risk,
    reason: &'w str,
}

/// Name, kinds of action, patterns (empty: any text), risk, reason.
type Usual = (&'static str, &'static [&'static str], &'static [&'static str], Risk, &'static str);

/// The built-in rules.
const USUAL: [Usual; 17] = [
    (
        "delete-all",
        DOING,
        &[
            r"\brm\s+(-\w+\s+|--\S+\s+)*(-\w*[rf]|--recursive|--force)",
            r"\bfind\b.*\s-delete\b",
            r"\bshred\b",
            r"\brmdir\s+/s",
            r"\bRemove-Item\b.*-Recurse",
        ],
        Risk::High,
        "it deletes files for good",
    ),
    (
        "disk",
        DOING,
        &[
            r"\bmkfs(\.\w+)?\b",
            r"\bdd\b.*\bof=",
            r"\bfdisk\b",
            r"\bparted\b",
            r">\s*/dev/(sd|nvme|hd|disk)",
        ],
        Risk::High,
        "it writes to a disk past its files",
    ),
    (
        "download-and-run",
        DOING,
        &[
            r"\b(curl|wget|fetch)\b.*\|\s*(sudo\s+)?(\w*/)*(ba|z|da|k|fi)?sh\b",
            r"\b(curl|wget)\b.*\|\s*(sudo\s+)?(python|perl|ruby|node)",
            r"\b(ba|z|da)?sh\s+(-c\s+)?.{0,4}(<\(|\$\()\s*(curl|wget)\b",
            r"\biex\b.*\b(iwr|irm|Invoke-WebRequest)\b",
        ],
        Risk::High,
        "it runs what it downloads",
    ),
    (
        "reverse-shell",
        DOING,
        &[r"/dev/(tcp|udp)/", r"\b(nc|ncat|netcat)\b.*\s-\w*[elc]", r"\bsocat\b.*\bexec\b"],
        Risk::High,
        "it opens a connection that others can command",
    ),
    (
        "become-root",
        DOING,
        &[
            r"(^|[\s;&|(`])(sudo|doas|su|pkexec|runas)(\s|$)",
            r"\bsetcap\b",
            r"\bchroot\b",
            r"\bnsenter\b",
        ],
        Risk::High,
        "it asks for more rights",
    ),
    (
        "rights",
        DOING,
        &[r"\b(chmod|chown|chgrp|setfacl|icacls)\b"],
        Risk::High,
        "it changes who may do what with files",
    ),
    (
        "secret-files",
        ACTING,
        &[
            r"(^|[/\\~])\.(ssh|aws|gnupg|kube|docker|netrc|pgpass|npmrc|pypirc|git-credentials)\b",
            r"\bid_(rsa|dsa|ecdsa|ed25519)\b",
            r"/etc/(shadow|sudoers|passwd)\b",
            r"\.env(\.\w+)?(\s|$)",
            r"\.(pem|p12|pfx|keystore|kdbx)\b",
        ],
        Risk::High,
        "it touches what is mostly secret",
    ),
    (
        "secrets",
        ACTING,
        &[
            r"-----BEGIN [A-Z ]*PRIVATE KEY",
            r"\bAKIA[0-9A-Z]{16}\b",
            r"\b(sk|ghp|gho|glpat|xox[abpr])[-_][A-Za-z0-9_-]{16,}",
            r"\b(api[_-]?key|secret|token|passwo?r?d)\b\s*[=:]\s*\S{6,}",
        ],
        Risk::High,
        "it seems to hold a secret",
    ),
    (
        "history",
        DOING,
        &[
            r"\bgit\s+(push\b.*(--force|\s-f\b|\s\+)|reset\s+--hard|clean\s+-\w*[dfx]|filter-(branch|repo))",
            r"\bdrop\s+(table|database|schema)\b",
            r"\btruncate\s+table\b",
            r"\bdelete\s+from\s+\w+\s*(;|$)",
        ],
        Risk::High,
        "what it takes away does not come back",
    ),
    (
        "stop",
        DOING,
        &[
            r"\b(shutdown|reboot|halt|poweroff)\b",
            r"\bkill(all)?\s+-(9|KILL)\s+(-1|1)\b",
            r":\(\)\s*\{.*\}\s*;",
            r"\bsystemctl\s+(stop|disable|mask)\b",
        ],
        Risk::High,
        "it stops more than itself",
    ),
    (
        "start-later",
        DOING,
        &[
            r"\bcrontab\b",
            r"\bat\s+now\b",
            r"\bsystemctl\s+enable\b",
            r"(^|/)\.(bashrc|bash_profile|profile|zshrc)\b",
            r"authorized_keys",
            r"\bLaunchAgents\b",
        ],
        Risk::High,
        "it makes something run later",
    ),
    (
        "hidden",
        DOING,
        &[r"\bbase64\s+(-d|--decode|-D)\b", r"\beval\b", r"\bexec\s*\(", r"\bxxd\s+-r\b"],
        Risk::High,
        "what it does is not to be seen in it",
    ),
    (
        "network",
        DOING,
        &[
            r"\b(curl|wget|ssh|scp|sftp|rsync|ftp|telnet|nc|ncat|nmap|dig|nslookup)\b",
            r"\bgit\s+(clone|fetch|pull|push)\b",
            r"\bimport\s+(requests|socket|urllib|http)\b",
        ],
        Risk::Medium,
        "it uses the network",
    ),
    (
        "install",
        DOING,
        &[
            r"\b(pip3?|npm|pnpm|yarn|cargo|gem|go|apt|apt-get|dnf|yum|brew|apk|pacman)\s+(install|add|i|get|-S)\b",
        ],
        Risk::Medium,
        "it installs software",
    ),
    (
        "inside-address",
        &["browse", "browse_interactive", "call"],
        &[
            r"^\s*(file|ftp|gopher|data|javascript):",
            r"^\s*https?://([^/@]*@|localhost|127\.|10\.|192\.168\.|172\.(1[6-9]|2\d|3[01])\.|169\.254\.|0\.0\.0\.0|\[)",
        ],
        Risk::High,
        "it looks at an address inside, or at none of the web",
    ),
    (
        "thinking",
        &[
            "null",
            "think",
            "message",
            "talk",
            "finish",
            "reject",
            "read",
            "recall",
            "add_task",
            "modify_task",
            "task_tracking",
            "condensation_request",
            "condensation",
            "system",
            "loop_recovery",
        ],
        &[],
        Risk::Low,
        "it only looks or thinks",
    ),
    (
        "working",
        &[
            "write",
            "edit",
            "browse",
            "browse_interactive",
            "run",
            "run_ipython",
            "kill",
            "delegate",
            "delegate_task",
            "delegate_all",
            "call",
            "call_tool_mcp",
        ],
        &[],
        Risk::Medium,
        "it does something",
    ),
];

/// Kinds that execute something.
const DOING: &[&str] = &["run", "run_ipython", "call", "call_tool_mcp"];
/// Kinds with effects outside the conversation, reading included.
const ACTING: &[&str] = &[
    "run",
    "run_ipython",
    "call",
    "call_tool_mcp",
    "read",
    "write",
    "edit",
    "browse",
    "browse_interactive",
];

/// Returns the risk of the deed and the reason, which names the rule.
pub(crate) fn assess(deed: &Deed, settings: &Settings) -> Result<(Risk, String)> {
    for rule in written(settings)? {
        if fits_written(&rule, deed)? {
            return Ok((
                rule.risk,
                format!(
                    "{}: {}",
                    rule.name,
                    if rule.reason.is_empty() { "a rule of the settings" } else { rule.reason }
                ),
            ));
        }
    }
    if let Some(path) =
        deed.writes.as_deref().filter(|path| settings.usual && is_outside(path, &settings.folders))
    {
        return Ok((
            Risk::High,
            format!("outside: it writes to {path}, which is not where writing is usual"),
        ));
    }
    for (name, kinds, patterns, risk, reason) in USUAL.iter().filter(|_| settings.usual) {
        if kinds.contains(&deed.kind.as_str()) && holds(&patterns.join("|"), deed, name)? {
            return Ok((*risk, format!("{name}: {reason}")));
        }
    }
    let risk = risk(&settings.otherwise).ok_or_else(|| {
        Error::other(format!("otherwise: no risk is named {:?}", settings.otherwise))
    })?;
    Ok((risk, format!("no rule knows `{}`", deed.kind)))
}

/// The higher of two risks.
pub(crate) fn higher(one: (Risk, String), other: (Risk, String)) -> (Risk, String) {
    let rank = |risk: &Risk| match risk {
        Risk::Low => 0,
        Risk::Medium => 1,
        Risk::High => 2,
    };
    if rank(&other.0) > rank(&one.0) { other } else { one }
}

fn risk(word: &str) -> Option<Risk> {
    match word {
        "low" => Some(Risk::Low),
        "medium" => Some(Risk::Medium),
        "high" => Some(Risk::High),
        _ => None,
    }
}

/// Returns the operator's rules. An invalid rule is an error, which the host treats as a high risk.
fn written(settings: &Settings) -> Result<Vec<Rule<'_>>> {
    if settings.rules.len() > MOST_RULES {
        return Err(Error::other(format!(
            "rules: there are {}, and at most {MOST_RULES} are read",
            settings.rules.len()
        )));
    }
    let rules = settings.rules.iter().zip(1..).map(|(rule, number)| {
        let name = if rule.name.is_empty() { format!("rule {number}") } else { rule.name.clone() };
        let risk = risk(&rule.risk).ok_or_else(|| {
            Error::other(format!("{name}: `risk` is {:?}, not low, medium or high", rule.risk))
        })?;
        Ok(Rule {
            name,
            action: &rule.action,
            tool: &rule.tool,
            pattern: &rule.pattern,
            risk,
            reason: &rule.reason,
        })
    });
    rules.collect()
}

fn fits_written(rule: &Rule<'_>, deed: &Deed) -> Result<bool> {
    let of_action = rule.action.is_empty() || glob(rule.action, &deed.kind);
    let of_tool =
        rule.tool.is_empty() || deed.tool.as_deref().is_some_and(|tool| glob(rule.tool, tool));
    Ok(of_action && of_tool && holds(rule.pattern, deed, &rule.name)?)
}

/// Matches with `*` for anything at the start, at the end or at both.
fn glob(pattern: &str, text: &str) -> bool {
    match (pattern.strip_prefix('*'), pattern.strip_suffix('*')) {
        _ if pattern == "*" => true,
        (Some(rest), Some(_)) => text.contains(rest.strip_suffix('*').unwrap_or(rest)),
        (Some(end), None) => text.ends_with(end),
        (None, Some(start)) => text.starts_with(start),
        (None, None) => text == pattern,
    }
}

fn holds(pattern: &str, deed: &Deed, name: &str) -> Result<bool> {
    if pattern.is_empty() {
        return Ok(true);
    }
    let expression = compiled(pattern).map_err(|error| {
        Error::other(format!("{name}: `pattern` is no regular expression: {error}"))
    })?;
    Ok(deed.texts.iter().any(|text| ends(text).any(|part| expression.is_match(part))))
}

fn compiled(pattern: &str) -> Result<Regex, regex_lite::Error> {
    RegexBuilder::new(pattern)
        .case_insensitive(true)
        .multi_line(true)
        .size_limit(PATTERN_BYTES)
        .build()
}

/// The text, or its start and its end if it is very long.
fn ends(text: &str) -> impl Iterator<Item = &str> {
    let boundary = |place| text.floor_char_boundary(place);
    let (start, end) = if text.len() <= 2 * MOST_LOOKED_AT {
        (text, None)
    } else {
        (&text[..boundary(MOST_LOOKED_AT)], Some(&text[boundary(text.len() - MOST_LOOKED_AT)..]))
    };
    std::iter::once(start).chain(end)
}

fn is_outside(path: &str, folders: &[String]) -> bool {
    let climbs = path.split(['/', '\\']).any(|part| part == "..");
    let within = |folder: &String| {
        let folder = folder.trim_end_matches('/');
        path == folder || path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
    };
    climbs
        || path.starts_with('~')
        || (path.starts_with('/') && !folders.is_empty() && !folders.iter().any(within))
}

#[cfg(test)]
mod tests;
