//! The written forms of keys and tokens, and their places in a text or in JSON.

use regex_lite::{Captures, Regex};
use serde::Deserialize;
use serde_json::Value;

/// Kinds of secrets with their forms. Where a form has a group, that is the secret.
const KINDS: [(&str, &str); 16] = [
    (
        "private-key",
        r"(?s)-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----.*?(?:-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----|\z)",
    ),
    ("aws-key", r"\b(?:AKIA|ASIA|ABIA|ACCA)[A-Z2-7]{16}\b"),
    (
        "aws-secret",
        r#"(?i)aws[a-z0-9_ .-]{0,20}(?:secret|key)[a-z0-9_ .-]{0,20}["']?\s*[:=]\s*["']?([A-Za-z0-9/+]{40})\b"#,
    ),
    ("github-token", r"\b(?:gh[pousr]_[A-Za-z0-9]{36,255}|github_pat_[A-Za-z0-9_]{22,255})\b"),
    ("gitlab-token", r"\bglpat-[A-Za-z0-9_-]{20,}"),
    ("slack-token", r"\bxox[abeoprs]-[A-Za-z0-9-]{10,}|\bxapp-[A-Za-z0-9-]{10,}"),
    ("slack-webhook", r"https://hooks\.slack\.com/(?:services|workflows)/[A-Za-z0-9/_-]{20,}"),
    ("google-key", r"\bAIza[A-Za-z0-9_-]{35}"),
    ("stripe-key", r"\b[rs]k_(?:live|test)_[A-Za-z0-9]{16,}"),
    ("model-key", r"\bsk-(?:ant-|proj-)?[A-Za-z0-9_-]{20,}"),
    ("npm-token", r"\bnpm_[A-Za-z0-9]{36}\b"),
    ("pypi-token", r"\bpypi-AgE[A-Za-z0-9_-]{50,}"),
    ("jwt", r"\beyJ[A-Za-z0-9_-]{5,}\.eyJ[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]*"),
    ("bearer-token", r"(?i)\bbearer\s+([A-Za-z0-9._~+/-]{16,}=*)"),
    ("basic-credentials", r#"(?i)authorization["']?\s*[:=]\s*["']?basic\s+([A-Za-z0-9+/]{8,}=*)"#),
    ("url-password", r"\b[A-Za-z][A-Za-z0-9+.-]*://[^\s:/@]*:([^\s/@]{3,})@"),
];
/// The kind of a word that was found by its entropy.
const ENTROPY: &str = "entropy";
/// The kind of a find of the operator's own patterns.
const OWN: &str = "own";
/// Words that may be secrets by their entropy.
const WORD: &str = r"[A-Za-z0-9_+/=-]{20,}";

/// The `config` table of this plugin.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Settings {
    mode: Treatment,
    calls: Option<Treatment>,
    patterns: Vec<String>,
    ignore: Vec<String>,
    without: Vec<String>,
    /// Bits for each character; 0 searches for none.
    entropy: f64,
}

#[derive(Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Treatment {
    #[default]
    Redact,
    Block,
}

/// The search for secrets, with its patterns compiled.
pub(crate) struct Finder {
    kinds: Vec<(&'static str, Regex)>,
    ignored: Vec<Regex>,
    word: Option<Regex>,
    entropy: f64,
    mode: Treatment,
    calls: Treatment,
}

/// The finds in a JSON value.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Found {
    /// The kind of the first find.
    pub(crate) first: Option<String>,
    /// Whether a find is the name of a field, which cannot be replaced.
    pub(crate) in_name: bool,
}

impl Finder {
    /// Compiles the patterns.
    ///
    /// # Errors
    /// The first setting that is wrong.
    pub(crate) fn new(settings: &Settings) -> Result<Self, String> {
        let known = |name: &str| name == ENTROPY || KINDS.iter().any(|(kind, _)| *kind == name);
        if let Some(name) = settings.without.iter().find(|name| !known(name)) {
            return Err(format!("`without` names {name}, and there is no such kind"));
        }
        if !(0.0..=8.0).contains(&settings.entropy) {
            return Err("`entropy` is not from 0 to 8".to_owned());
        }
        let is_on = |kind: &str| !settings.without.iter().any(|name| name == kind);
        let stock = KINDS.iter().filter(|(kind, _)| is_on(kind));
        let mut kinds = Vec::new();
        // The operator's own come first, so that their marks name them.
        for (index, pattern) in settings.patterns.iter().enumerate() {
            kinds.push((OWN, own(pattern, "patterns", index)?));
        }
        for (kind, pattern) in stock {
            kinds.push((*kind, compiled(pattern)?));
        }
        let ignored = settings.ignore.iter().enumerate();
        let ignored = ignored.map(|(index, pattern)| {
            own(pattern, "ignore", index)?;
            compiled(&format!(r"\A(?:{pattern})\z"))
        });
        let by_entropy = settings.entropy > 0.0 && is_on(ENTROPY);
        Ok(Self {
            kinds,
            ignored: ignored.collect::<Result<_, _>>()?,
            word: by_entropy.then(|| compiled(WORD)).transpose()?,
            entropy: settings.entropy,
            mode: settings.mode,
            calls: settings.calls.unwrap_or(Treatment::Block),
        })
    }

    pub(crate) fn blocks_texts(&self) -> bool {
        self.mode == Treatment::Block
    }

    pub(crate) fn blocks_calls(&self) -> bool {
        self.calls == Treatment::Block
    }

    /// Returns the text with a mark in place of each secret, and the kind of the first one.
    pub(crate) fn redacted(&self, text: &str) -> (String, Option<String>) {
        let (mut changed, mut first) = (text.to_owned(), None);
        for (kind, pattern) in &self.kinds {
            changed = self.marked(&changed, pattern, kind, &mut first, |_| true);
        }
        if let Some(word) = &self.word {
            let is_random = |word: &str| bits(word) >= self.entropy;
            changed = self.marked(&changed, word, ENTROPY, &mut first, is_random);
        }
        (changed, first)
    }

    fn marked(
        &self,
        text: &str,
        pattern: &Regex,
        kind: &str,
        first: &mut Option<String>,
        is_secret: impl Fn(&str) -> bool,
    ) -> String {
        let mark = |captures: &Captures<'_>| {
            let whole = captures.get(0).map_or("", |whole| whole.as_str());
            let secret = captures.get(1).map_or(whole, |secret| secret.as_str());
            let is_ignored = self.ignored.iter().any(|ignored| ignored.is_match(secret));
            if is_ignored || !is_secret(secret) || secret.starts_with("[secret removed") {
                return whole.to_owned();
            }
            first.get_or_insert_with(|| kind.to_owned());
            whole.replace(secret, &format!("[secret removed: {kind}]"))
        };
        pattern.replace_all(text, mark).into_owned()
    }

    /// Puts a mark in place of each secret in the texts of a JSON value.
    pub(crate) fn redact(&self, value: &mut Value) -> Found {
        let mut found = Found::default();
        self.redact_in(value, &mut found);
        found
    }

    fn redact_in(&self, value: &mut Value, found: &mut Found) {
        match value {
            Value::String(text) => {
                if let (changed, Some(kind)) = self.redacted(text) {
                    *text = changed;
                    found.first.get_or_insert(kind);
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.redact_in(item, found)),
            Value::Object(fields) => {
                for (name, field) in fields {
                    if let (_, Some(kind)) = self.redacted(name) {
                        found.first.get_or_insert(kind);
                        found.in_name = true;
                    }
                    self.redact_in(field, found);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}

fn own(pattern: &str, key: &str, index: usize) -> Result<Regex, String> {
    if pattern.is_empty() {
        return Err(format!("{key}[{index}] is empty, and would match every text"));
    }
    compiled(pattern).map_err(|error| format!("{key}[{index}]: {error}"))
}

fn compiled(pattern: &str) -> Result<Regex, String> {
    Regex::new(pattern).map_err(|error| format!("the pattern is wrong: {error}"))
}

/// The entropy of a word in bits for each character, by the frequencies of its own characters.
fn bits(word: &str) -> f64 {
    let mut counts = [0_u32; 256];
    word.bytes().for_each(|byte| counts[usize::from(byte)] += 1);
    let length = word.len() as f64;
    let share = |count: &u32| f64::from(*count) / length;
    counts.iter().filter(|count| **count > 0).map(share).map(|share| -share * share.log2()).sum()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn finder(settings: Value) -> Result<Finder, String> {
        Finder::new(&serde_json::from_value(settings).map_err(|error| error.to_string())?)
    }

    fn kind_of(text: &str) -> Option<String> {
        finder(json!({})).unwrap().redacted(text).1
    }

    #[test]
    fn each_kind_is_found_by_its_form() {
        let random = "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8s9T0";
        let examples = [
            (
                "private-key",
                "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----".to_owned(),
            ),
            ("private-key", "-----BEGIN PRIVATE KEY-----\nMIIE and cut".to_owned()),
            ("private-key", "-----BEGIN PGP PRIVATE KEY BLOCK-----\nx".to_owned()),
            ("aws-key", "AKIAIOSFODNN7EXAMPLE".to_owned()),
            ("aws-secret", format!("aws_secret_access_key = {random}")),
            ("github-token", format!("ghp_{}", &random[..36])),
            ("github-token", format!("github_pat_{random}")),
            ("gitlab-token", format!("glpat-{}", &random[..20])),
            ("slack-token", "xoxb-123456789012-abc".to_owned()),
            ("slack-webhook", format!("https://hooks.slack.com/services/T0/B0/{random}")),
            ("google-key", format!("AIza{}", &random[..35])),
            ("stripe-key", format!("sk_live_{}", &random[..24])),
            ("model-key", format!("sk-proj-{random}")),
            ("npm-token", format!("npm_{}", &random[..36])),
            ("pypi-token", format!("pypi-AgE{random}{random}")),
            ("jwt", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl".to_owned()),
            ("bearer-token", "Authorization: Bearer abcdef0123456789".to_owned()),
            ("basic-credentials", "authorization: Basic dXNlcjpwYXNz".to_owned()),
            ("url-password", "postgres://conclave:hunter2@db/runs".to_owned()),
        ];
        for (kind, text) in &examples {
            let text = format!("It is {text}");
            assert_eq!(kind_of(&text).as_deref(), Some(*kind), "{text}");
        }
        let found: Vec<&str> = examples.iter().map(|(kind, _)| *kind).collect();
        assert!(KINDS.iter().all(|(kind, _)| found.contains(kind)), "each kind has an example");
    }

    #[test]
    fn ordinary_texts_hold_no_secret() {
        for text in [
            "The bearer of this letter is welcome.",
            "https://example.org:8080/a@b",
            "commit 9c51f2a8b7d3e6f4a1b2c3d4e5f60718293a4b5c",
            "basic responsibilities of an operator",
            "sk-learn and task-1, eyJ is how such a token begins",
            "/usr/share/doc/conclave/AKIA",
            "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
        ] {
            assert_eq!(kind_of(text), None, "{text}");
        }
    }

    #[test]
    fn only_the_secret_gives_way_to_its_mark() {
        let finder = finder(json!({ "patterns": ["ACME-([0-9]{4})"] })).unwrap();
        let redacted = |text: &str| finder.redacted(text).0;
        assert_eq!(
            redacted("postgres://conclave:hunter2@db/runs"),
            "postgres://conclave:[secret removed: url-password]@db/runs"
        );
        assert_eq!(redacted("ACME-1234, ACME-12"), "ACME-[secret removed: own], ACME-12");
        let twice = "AKIAIOSFODNN7EXAMPLE AKIAIOSFODNN7EXAMPLE";
        assert!(!redacted(twice).contains("AKIA"));
    }

    #[test]
    fn what_the_settings_ignore_or_leave_out_stays() {
        let text = "AKIAIOSFODNN7EXAMPLE";
        for settings in [json!({ "ignore": ["AKIA.*EXAMPLE"] }), json!({ "without": ["aws-key"] })]
        {
            assert_eq!(finder(settings).unwrap().redacted(text), (text.to_owned(), None));
        }
        let partly = finder(json!({ "ignore": ["AKIA"] })).unwrap();
        assert!(partly.redacted(text).1.is_some(), "a part of it is not the whole");
    }

    #[test]
    fn a_random_word_is_found_by_its_entropy_if_the_settings_search_for_it() {
        let random = "tH8k2Lq9Zp4XvB7nR1cY6mD3";
        assert_eq!(kind_of(random), None);
        let finder = finder(json!({ "entropy": 4.0 })).unwrap();
        assert_eq!(finder.redacted(random).1.as_deref(), Some(ENTROPY));
        for text in ["internationalization_of_settings", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "short1"]
        {
            assert_eq!(finder.redacted(text).1, None, "{text}");
        }
    }

    #[test]
    fn settings_that_are_wrong_are_refused() {
        for settings in [
            json!({ "patterns": ["("] }),
            json!({ "patterns": [""] }),
            json!({ "ignore": ["("] }),
            json!({ "without": ["aws"] }),
            json!({ "entropy": 9 }),
            json!({ "entropy": -1 }),
            json!({ "mode": "hide" }),
            json!({ "pattern": [] }),
        ] {
            assert!(finder(settings.clone()).is_err(), "{settings}");
        }
    }
}
