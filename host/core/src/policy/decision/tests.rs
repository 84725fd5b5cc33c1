mod scan;

use crate::permissions::command::CommandPattern;
use crate::permissions::grants::ToolPattern;
use crate::permissions::policy_rules::{ArgumentPattern, ArgumentPlace};
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::permissions::grants::{
    ExecGrant, FetchGrant, FileGrant, FileMode, Grants, KvGrant, ModelGrant, SecretGrant,
};
use crate::permissions::manifest::{CONTRACT, CapabilityRequest, FORMAT, Manifest};
use crate::permissions::policy_rules::ArgumentRule;
use crate::permissions::policy_rules::is_odd;
use crate::policy::permit::leave;
use crate::setup::{PluginFacts, Provenance};
use crate::types::approval::ApprovalCause;
use crate::types::capability::Capability;
use crate::types::ids::{ModelName, SecretName};
use crate::types::limits::{PluginLimits, RunLimits};

fn plugin(asks: &[Capability], grants: Grants) -> PluginSetup {
    let asks =
        asks.iter().map(|ask| (ask.as_str().to_owned(), CapabilityRequest::default())).collect();
    let manifest = Manifest {
        format: FORMAT,
        name: "p".into(),
        version: "0".into(),
        contract: CONTRACT.into(),
        asks,
        ..Manifest::default()
    };
    let facts = PluginFacts {
        manifest,
        kinds: [].into(),
        tools: Vec::new(),
        sha256: "00".to_owned(),
        mcp: false,
        server: String::new(),
        confinement: None,
        provenance: Provenance::default(),
    };
    PluginSetup { facts, grants, limits: PluginLimits::default(), config: json!({}) }
}

fn folder(mode: FileMode) -> Vec<FileGrant> {
    vec![FileGrant {
        dir: "/srv/notes".into(),
        display_path: "./notes".into(),
        at: "/notes".into(),
        mode,
        bytes: 1,
        files: 1,
    }]
}

fn writer() -> PluginSetup {
    plugin(&[Capability::Files], Grants { files: folder(FileMode::ReadWrite), ..Grants::default() })
}

fn reader() -> PluginSetup {
    plugin(
        &[Capability::Files, Capability::Kv],
        Grants { files: folder(FileMode::Read), kv: Some(KvGrant::default()), ..Grants::default() },
    )
}

fn setup(policy: Vec<Rule>) -> Setup {
    Setup {
        entry: "t".into(),
        tasks: [].into(),
        plugins: [("notes".into(), writer().into()), ("search".into(), reader().into())].into(),
        models: [].into(),
        channels: Default::default(),
        gates: Vec::new(),
        observers: Vec::new(),
        policy: policy.into(),
        policy_now: None,
        limits: RunLimits { turns: None, wall_ms: None, depth: 0, ..RunLimits::default() },
    }
}

fn rule(tool: &str, caller: Option<&str>, decide: Decide) -> Rule {
    let (tool, caller) = (ToolPattern(tool.to_owned()), caller.map(PluginName::from));
    Rule {
        tool,
        caller,
        arguments: Vec::new(),
        only: false,
        decide,
        expires_ms: None,
        source: String::new(),
    }
}

fn path(tool: &str, pattern: &str, decide: Decide) -> Rule {
    let argument = ArgumentRule {
        at: ArgumentPlace("path".to_owned()),
        patterns: vec![ArgumentPattern(pattern.into())],
    };
    Rule { arguments: vec![argument], ..rule(tool, None, decide) }
}

fn decided(setup: &Setup, callers: &[&str], tool: &str, arguments: &Value) -> Decide {
    let callers: Vec<PluginName> = callers.iter().map(|name| PluginName::from(*name)).collect();
    decide(setup, &callers, tool, arguments).decide
}

#[test]
fn the_first_rule_that_matches_wins() {
    let setup = setup(vec![
        rule("notes.save", Some("librarian"), Decide::Allow),
        rule("notes.*", None, Decide::Ask),
        rule("*", None, Decide::Deny),
    ]);
    let one = |caller: &str, tool: &str| decided(&setup, &[caller], tool, &json!({}));
    assert_eq!(one("librarian", "notes.save"), Decide::Allow);
    assert_eq!(one("stranger", "notes.save"), Decide::Ask);
    assert_eq!(one("librarian", "notes.list"), Decide::Ask);
    assert_eq!(one("librarian", "search.find"), Decide::Deny);
}

#[test]
fn the_strictest_of_all_who_have_a_part_counts_also_where_one_has_no_rule() {
    let ruled = setup(vec![
        rule("notes.save", Some("librarian"), Decide::Allow),
        rule("notes.save", Some("thief"), Decide::Deny),
    ]);
    assert_eq!(decided(&ruled, &["librarian"], "notes.save", &json!({})), Decide::Allow);
    assert_eq!(
        decided(&ruled, &["librarian", "sneaky"], "notes.save", &json!({})),
        Decide::Ask,
        "sneaky has no rule: as granted"
    );
    assert_eq!(decided(&ruled, &["librarian", "thief"], "notes.save", &json!({})), Decide::Deny);
    assert_eq!(decided(&ruled, &["thief", "librarian"], "notes.save", &json!({})), Decide::Deny);
}

#[test]
fn without_a_rule_a_call_is_allowed_if_its_plugin_only_reads() {
    let none = setup(Vec::new());
    assert_eq!(decided(&none, &["a"], "search.find", &json!({})), Decide::Allow);
    assert_eq!(decided(&none, &["a"], "notes.save", &json!({})), Decide::Ask);
    assert_eq!(decided(&none, &["a"], "nobody.knows", &json!({})), Decide::Ask);
    let why = decide(&none, [&"a".into()], "notes.save", &json!({})).why;
    assert_eq!(why.to_string(), "notes may write notes/");
}

#[test]
fn what_a_plugin_may_do_counts_only_where_it_was_asked_for_and_granted() {
    use Capability::{Channels, Delegate, Fetch, Files, Kv, Model, Secrets};
    let model = ModelGrant {
        names: vec![ModelName::from("default")],
        tokens: None,
        cost_micro_usd: None,
        calls: None,
    };
    let secret = SecretGrant {
        name: SecretName::from("token"),
        hosts: Vec::new(),
        request_parts: [].into(),
    };
    let all = || Grants {
        model: Some(model.clone()),
        files: folder(FileMode::ReadWrite),
        fetch: Some(FetchGrant::new(Vec::new())),
        secrets: vec![secret.clone()],
        kv: Some(KvGrant::default()),
        delegate: Some(crate::permissions::grants::DelegateGrant {
            tasks: vec!["digest".into()],
            at_once: 1,
            total: 1,
            ..Default::default()
        }),
        channels: Some(crate::permissions::grants::ChannelsGrant {
            channels: vec!["terminal".into()],
            messages: None,
        }),
        ..Grants::default()
    };
    for (ask, reason) in [
        (Model, "p may spend on the model default"),
        (Files, "p may write notes/"),
        (Fetch, "p may send to "),
        (Secrets, "p may use the secret token (for )"),
        (Delegate, "p may delegate to digest"),
        (Channels, "p may speak on terminal"),
    ] {
        let plugin = plugin(&[ask], all());
        assert_eq!(
            (derived(&plugin), super::reason(&"p".into(), &plugin).as_str()),
            (Decide::Ask, reason)
        );
        let only_asked = tests::plugin(&[ask], Grants::default());
        assert_eq!(derived(&only_asked), Decide::Allow, "{ask} was not granted");
    }
    assert_eq!(
        derived(&plugin(&[Kv], all())),
        Decide::Allow,
        "what was not asked for has no effect, and kv is its own"
    );
    let mut native = plugin(&[Fetch], all());
    native.facts.sha256.clear();
    assert_eq!(derived(&native), Decide::Allow, "it is the program itself");
    let overlay = Grants { files: folder(FileMode::Overlay), ..Grants::default() };
    assert_eq!(derived(&plugin(&[Files], overlay)), Decide::Allow, "a person applies its changes");
    let mut server = reader();
    server.facts.mcp = true;
    assert_eq!(derived(&server), Decide::Ask, "nobody knows what a server does");
}

#[test]
fn arguments_narrow_a_rule_and_nothing_climbs_out_of_a_pattern() {
    let notes = setup(vec![
        path("notes.save", "/notes/public/*", Decide::Allow),
        path("notes.*", "/notes/secret/*", Decide::Deny),
    ]);
    let one = |path: &str| decided(&notes, &["a"], "notes.save", &json!({ "path": path }));
    assert_eq!(one("/notes/public/a.md"), Decide::Allow);
    assert_eq!(one("/notes/other.md"), Decide::Ask);
    for odd in [
        "/notes/public/../a",
        "/notes/public/..\\a",
        "/notes/public/%2e%2e/a",
        "/notes/public/\u{0}",
        "/notes/public/\u{202e}a",
    ] {
        assert_eq!(one(odd), Decide::Ask, "{odd:?}");
    }
    for denied in [
        "/notes/secret/a",
        "/notes/public/../secret/a",
        "/notes//secret/a",
        "\\notes\\secret\\a",
        "/notes/public/%2e%2e/secret/a",
    ] {
        assert_eq!(one(denied), Decide::Deny, "{denied:?}");
    }
    assert_eq!(
        decided(&notes, &["a"], "notes.save", &json!({})),
        Decide::Ask,
        "a missing argument matches nothing"
    );
}

#[test]
fn a_rule_that_may_hold_makes_nothing_milder() {
    let notes = setup(vec![
        path("notes.save", "/notes/public/*", Decide::Ask),
        rule("*", None, Decide::Deny),
    ]);
    let one = |path: &str| decided(&notes, &["a"], "notes.save", &json!({ "path": path }));
    assert_eq!(
        (one("/notes/public/a"), one("/notes/public/../secret")),
        (Decide::Ask, Decide::Deny)
    );
}

#[test]
fn a_leave_is_as_narrow_as_can_be_and_works() {
    let mut ruled =
        setup(vec![rule("search.*", None, Decide::Allow), rule("notes.*", None, Decide::Ask)]);
    let request = ApprovalRequest {
        task: "t".into(),
        caller: "librarian".into(),
        led_by: vec!["sneaky".into()],
        delegators: Vec::new(),
        executor: None,
        tool: "notes.save".to_owned(),
        arguments: json!({ "path": "/notes/a.md", "times": 2, "/odd": "a\"b\n" }),
        source: String::new(),
        causes: vec![ApprovalCause::Rule(1)],
        expires_ms: None,
        risk: None,
        risk_reason: None,
        problem: None,
    };
    let exact = leave(&ruled, &request, true).expect("it can be allowed");
    assert_eq!(exact.before, Some(1));
    let expected = "[[policy]]\ntool = \"notes.save\"\ncaller = \"librarian\"\n\
        arguments = { \"/~1odd\" = \"a\\\"b\\n\", path = \"/notes/a.md\", times = 2 }\nexact_arguments = true\n\
        decide = \"allow\"\n";
    assert!(exact.to_toml().starts_with(expected), "{}", exact.to_toml());
    assert_eq!(exact.rules.len(), 2, "one for each who has a part in it");
    ruled.policy = ruled.policy.with_rules_at(1, exact.rules);
    assert_eq!(
        decided(&ruled, &["librarian", "sneaky"], "notes.save", &request.arguments),
        Decide::Allow
    );
    assert_eq!(
        decided(&ruled, &["librarian", "sneaky"], "notes.save", &json!({ "path": "/notes/b.md" })),
        Decide::Ask
    );
    assert_eq!(
        decided(&ruled, &["librarian", "other"], "notes.save", &request.arguments),
        Decide::Ask
    );
    let star = ApprovalRequest { arguments: json!({ "path": "/a\\*" }), ..request };
    let star = leave(&setup(Vec::new()), &star, true).expect("a star can be meant");
    assert_eq!(star.rules[0].arguments[0].patterns, [ArgumentPattern(r"/a\\\*".into())]);
    let none = ApprovalRequest { arguments: json!({}), ..asks("notes.save") };
    let none = leave(&setup(Vec::new()), &none, true)
        .expect("a call without arguments can be allowed alone");
    assert!(none.rules[0].only && none.rules[0].arguments.is_empty());
    let ruled = setup(none.rules);
    let one = |arguments: Value| decided(&ruled, &["librarian"], "notes.save", &arguments);
    assert_eq!((one(json!({})), one(json!({ "path": "/a" }))), (Decide::Allow, Decide::Ask));
}

fn asks(tool: &str) -> ApprovalRequest {
    ApprovalRequest {
        task: "t".into(),
        caller: "librarian".into(),
        led_by: Vec::new(),
        delegators: Vec::new(),
        executor: None,
        tool: tool.to_owned(),
        arguments: json!({ "path": "/a" }),
        source: String::new(),
        causes: vec![ApprovalCause::Grants],
        expires_ms: None,
        risk: None,
        risk_reason: None,
        problem: None,
    }
}

/// B7 of the hostile review: a rule for exact arguments allowed calls with additional ones.
#[test]
fn a_rule_for_these_arguments_is_about_no_others() {
    let request = ApprovalRequest { arguments: json!({ "note": "hello" }), ..asks("notes.save") };
    let exact = leave(&setup(Vec::new()), &request, true).expect("it can be allowed");
    let ruled = setup(exact.rules);
    let one = |arguments: Value| decided(&ruled, &["librarian"], "notes.save", &arguments);
    assert_eq!(one(json!({ "note": "hello" })), Decide::Allow);
    assert_eq!(one(json!({ "note": "hello", "ops": [["write", "/work/EVIL"]] })), Decide::Ask);
    assert_eq!((one(json!({})), one(json!("hello"))), (Decide::Ask, Decide::Ask));
}

/// B1, B20: a rule answers only questions that rules and grants ask, and only if a config can
/// express it.
#[test]
fn no_rule_is_offered_for_what_rules_do_not_answer() {
    let offered = |request: &ApprovalRequest| {
        [true, false].map(|exact| leave(&setup(Vec::new()), request, exact).is_some())
    };
    let save = asks("notes.save");
    assert_eq!(offered(&save), [true, true]);
    for causes in [
        vec![ApprovalCause::Confirm],
        vec![ApprovalCause::Grants, ApprovalCause::Confirm],
        vec![ApprovalCause::Limit],
    ] {
        assert_eq!(
            offered(&ApprovalRequest { causes: causes.clone(), ..save.clone() }),
            [false, false],
            "{causes:?}"
        );
    }
    assert_eq!(offered(&asks("write")), [false, false], "an action has no pattern");
}

/// B8: a plugin that may not call a tool had it called by one that may.
#[test]
fn what_a_rule_denies_a_plugin_holds_through_delegation() {
    let rule_for = |name: &str, decide| rule("notes.save", Some(name), decide);
    let through = |rules: Vec<Rule>, above: &[&str]| {
        let (ruled, caller) = (setup(rules), [PluginName::from("librarian")]);
        let above: Vec<PluginName> = above.iter().map(|name| PluginName::from(*name)).collect();
        let above = above.iter().map(Participant::DelegatingTool);
        let all = above.chain(caller.iter().map(Participant::Caller));
        decide_for_participants(&ruled, all, "notes.save", &json!({})).decide
    };
    let rules = |decide| vec![rule_for("driver", decide), rule_for("librarian", Decide::Allow)];
    assert_eq!(through(rules(Decide::Deny), &[]), Decide::Allow);
    assert_eq!(through(rules(Decide::Deny), &["driver"]), Decide::Deny);
    assert_eq!(
        through(rules(Decide::Deny), &["main", "driver"]),
        Decide::Deny,
        "however far above"
    );
    assert_eq!(through(rules(Decide::Ask), &["driver"]), Decide::Ask);
    let allowed = vec![rule_for("driver", Decide::Allow), rule_for("librarian", Decide::Deny)];
    assert_eq!(through(allowed, &["driver"]), Decide::Deny, "nobody gives away what they may");
    let others = vec![rule_for("librarian", Decide::Allow), rule("*", None, Decide::Deny)];
    assert_eq!(
        through(others, &["driver"]),
        Decide::Allow,
        "a rule for whoever calls is about the caller"
    );
}

#[test]
fn a_leave_lets_nothing_through_that_a_later_rule_denies() {
    let (ask, deny) =
        (path("notes.*", "/a*", Decide::Ask), path("notes.*", "/secret/*", Decide::Deny));
    let ruled = setup(vec![ask.clone(), deny.clone()]);
    let save = asks("notes.save");
    assert_eq!(leave(&ruled, &save, false), None, "any arguments are those that are denied too");
    let exact = leave(&ruled, &save, true).expect("these are not denied");
    assert_eq!(exact.before, Some(0));
    let other = ArgumentRule {
        at: ArgumentPlace("/user/id".into()),
        patterns: vec![ArgumentPattern("x".into())],
    };
    let of_other = Rule { arguments: vec![other], ..deny.clone() };
    assert!(
        leave(&setup(vec![ask.clone(), of_other]), &save, true).is_some(),
        "a call with one more argument is none of these"
    );
    let of_else = Rule { caller: Some("somebody".into()), ..deny.clone() };
    assert!(
        leave(&setup(vec![ask.clone(), of_else]), &save, false).is_some(),
        "it is about others"
    );
    assert!(leave(&setup(vec![deny.clone(), ask]), &save, false).is_some(), "it stands before");
    assert!(
        leave(&setup(vec![rule("*", None, Decide::Ask), deny]), &save, false).is_some(),
        "it is never looked at"
    );
}

#[test]
fn a_leave_says_of_what_type_an_argument_is() {
    for (value, text) in [
        (json!(5), "x = 5"),
        (json!("5"), "x = \"5\""),
        (json!(true), "x = true"),
        (json!(0.5), "x = 0.5"),
        (json!(["a", 1]), "x = [[\"a\", 1]]"),
        (json!({ "a b": [1] }), "x = [{ \"a b\" = [1] }]"),
    ] {
        let request = ApprovalRequest { arguments: json!({ "x": value }), ..asks("notes.save") };
        let found = leave(&setup(Vec::new()), &request, true).expect("it can be written");
        assert!(
            found.to_toml().contains(&format!("arguments = {{ {text} }}\n")),
            "{}",
            found.to_toml()
        );
        let config = format!(
            "entry = \"t\"\n[plugins.librarian]\nsource = \"stock:chat\"\n[plugins.notes]\nsource = \"stock:chat\"\n[tasks.t]\nagent = \"librarian\"\n{}",
            found.to_toml()
        );
        let read = crate::config::Config::parse("c.toml", "", &config)
            .unwrap_or_else(|problems| panic!("{problems}"));
        assert_eq!(read.policy[0].arguments, found.rules[0].arguments);
    }
    let one = |value: Value, other: Value| {
        let request = ApprovalRequest { arguments: json!({ "x": value }), ..asks("notes.save") };
        let rules = leave(&setup(Vec::new()), &request, true).expect("it can be written").rules;
        decided(&setup(rules), &["librarian"], "notes.save", &json!({ "x": other }))
    };
    assert_eq!(
        (one(json!("5"), json!("5")), one(json!("5"), json!(5)), one(json!(5), json!("5"))),
        (Decide::Allow, Decide::Ask, Decide::Ask)
    );
}

fn texts() -> impl Strategy<Value = String> {
    prop_oneof!["[a-c*/.%2\\\\e]{0,12}", ".{0,12}"]
}

fn rules() -> impl Strategy<Value = Vec<Rule>> {
    let decides = prop_oneof![Just(Decide::Allow), Just(Decide::Ask), Just(Decide::Deny)];
    let tools = prop_oneof![Just("*"), Just("notes.*"), Just("notes.save"), Just("search.find")];
    let callers = prop_oneof![Just(None), Just(Some("a")), Just(Some("b"))];
    let one = (tools, callers, decides, proptest::option::of(texts())).prop_map(
        |(tool, caller, decide, pattern)| match pattern {
            Some(pattern) => {
                Rule { caller: caller.map(PluginName::from), ..path(tool, &pattern, decide) }
            }
            None => rule(tool, caller, decide),
        },
    );
    proptest::collection::vec(one, 0..6)
}

/// Matches a glob letter by letter: slow, and simple enough to be a reference.
fn slow(pattern: &[char], text: &[char]) -> bool {
    let is = |first: char, rest: &[char]| {
        text.split_first().is_some_and(|(c, others)| first == *c && slow(rest, others))
    };
    match pattern {
        [] => text.is_empty(),
        ['*', rest @ ..] => (0..=text.len()).any(|at| slow(rest, &text[at..])),
        ['\\', c @ ('*' | '\\'), rest @ ..] | [c, rest @ ..] => is(*c, rest),
    }
}

/// Returns whether a star in the pattern stands for any text.
fn is_open(pattern: &str) -> bool {
    pattern.replace(r"\\", "").replace(r"\*", "").contains('*')
}

proptest! {
    #[test]
    fn patterns_match_as_a_slow_glob_does_and_allow_nothing_odd(pattern in texts(), text in texts()) {
        let patterns = vec![ArgumentPattern(pattern.clone().into())];
        let rule = ArgumentRule { at: ArgumentPlace("x".into()), patterns };
        let holds = rule.holds(&CallArguments::new(&json!({ "x": text })));
        let expected = slow(&pattern.chars().collect::<Vec<_>>(), &text.chars().collect::<Vec<_>>());
        if is_odd(&text) && pattern != "*" && is_open(&pattern) {
            prop_assert!(holds < Holds::Yes);
            prop_assert!(!expected || holds == Holds::Maybe);
        } else {
            prop_assert_eq!(holds == Holds::Yes, expected || pattern == "*");
        }
    }

    #[test]
    fn the_first_of_the_rules_that_match_decides_for_a_plain_call(rules in rules(), text in "/[a-c]{0,3}") {
        let arguments = json!({ "path": text });
        let call = CallArguments::new(&arguments);
        let matches = |rule: &&Rule| rule.holds(&"a".into(), "notes.save", &call) == Holds::Yes;
        let first = rules.iter().find(matches).map(|rule| rule.decide);
        prop_assert_eq!(decided(&setup(rules), &["a"], "notes.save", &arguments), first.unwrap_or(Decide::Ask));
    }

    #[test]
    fn the_strictest_caller_counts_in_any_order(rules in rules(), text in texts()) {
        let (setup, arguments) = (setup(rules), json!({ "path": text }));
        let one = |callers: &[&str]| decided(&setup, callers, "notes.save", &arguments);
        prop_assert_eq!(one(&["a", "b"]), one(&["a"]).max(one(&["b"])));
        prop_assert_eq!(one(&["b", "a"]), one(&["a", "b"]));
    }

    #[test]
    fn a_deny_in_front_cannot_be_written_around(rules in rules(), before in "[a-c]{1,3}", after in texts()) {
        let mut rules = rules;
        rules.insert(0, path("*", "/secret/*", Decide::Deny));
        let setup = setup(rules);
        for path in [format!("/secret/{before}"), format!("/{before}/../secret/{before}"), format!("//secret//{before}"), format!("/secret/{after}")] {
            prop_assert_eq!(decided(&setup, &["a"], "notes.save", &json!({ "path": path })), Decide::Deny, "{}", path);
        }
    }
}

#[test]
fn a_plugin_that_may_run_programs_is_asked_about() {
    let commands = vec![CommandPattern::parse("/usr/bin/git status").unwrap()];
    let grants = || Grants { exec: Some(ExecGrant::new(commands.clone())), ..Grants::default() };
    let build = plugin(&[Capability::Exec], grants());
    assert_eq!(derived(&build), Decide::Ask);
    let why = reason(&"build".into(), &build);
    assert_eq!(why, "build may run /usr/bin/git status, outside the sandbox");
    assert_eq!(derived(&plugin(&[], grants())), Decide::Allow, "the grant has no effect");
}
