//! The decision by a scan over all rules, which the decision by the index must equal.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::setup;
use crate::permissions::grants::ToolPattern;
use crate::permissions::policy_rules::{
    ArgumentPattern, ArgumentPlace, ArgumentRule, CallArguments, Decide, Holds, Rule,
};
use crate::policy::decision::{
    DecisionSource, PolicyDecision, decide, decide_for_participants, stricter, without_rule,
};
use crate::setup::Setup;
use crate::types::approval::Participant;
use crate::types::ids::PluginName;

/// A call, with the plugins that delegated it.
#[derive(Clone, Debug)]
struct TestCall {
    callers: Vec<PluginName>,
    delegators: Vec<PluginName>,
    tool: &'static str,
    arguments: Value,
}

/// Returns the decision for one participant, or of the rules that name a delegator.
fn scan<'a>(
    setup: &'a Setup,
    caller: &PluginName,
    is_delegator: bool,
    call: &TestCall,
) -> Option<PolicyDecision<'a>> {
    let mut maybe: Option<PolicyDecision<'a>> = None;
    let and = |maybe: Option<PolicyDecision<'a>>, decision| {
        maybe.map_or(decision, |maybe| stricter(maybe, decision))
    };
    for (index, rule) in setup.policy.iter().enumerate() {
        if is_delegator && rule.caller.as_ref() != Some(caller) {
            continue;
        }
        let decision =
            PolicyDecision { decide: rule.decide, why: DecisionSource::Rule { index, rule } };
        match rule.holds(caller, call.tool, &CallArguments::new(&call.arguments)) {
            Holds::Yes => return Some(and(maybe, decision)),
            Holds::Maybe if rule.decide > Decide::Allow => maybe = Some(and(maybe, decision)),
            Holds::Maybe | Holds::No => {}
        }
    }
    if is_delegator { maybe } else { Some(and(maybe, without_rule(setup, call.tool))) }
}

fn callers() -> impl Strategy<Value = Vec<PluginName>> {
    let name = prop_oneof![Just("a"), Just("b"), Just("c")].prop_map(PluginName::from);
    proptest::collection::vec(name, 0..3)
}

/// Returns paths of few segments, so that rules and calls meet.
fn paths() -> impl Strategy<Value = String> {
    let segment = prop_oneof![
        4 => prop_oneof![Just("a"), Just("ab"), Just("notes"), Just("x y")],
        1 => prop_oneof![Just(".."), Just("."), Just(""), Just("é"), Just("%61"), Just("5")],
    ];
    let segments = proptest::collection::vec(segment, 0..4);
    let ends = [Just(""), Just("/"), Just("*"), Just("/*"), Just("*a"), Just(r"\*")];
    (prop_oneof![3 => Just("/"), 1 => Just("")], segments, proptest::sample::select(ends.to_vec()))
        .prop_flat_map(|(start, segments, end)| {
            end.prop_map(move |end| format!("{start}{}{end}", segments.join("/")))
        })
}

fn texts() -> impl Strategy<Value = String> {
    // Few, so that several rules are about one call.
    let common = ["/a/*", "/notes/*", "/*", "/ab", "/a*", r"/a/\*", "a*"];
    let numbers =
        ["5", "5.0", " 5", "5e0", "-0", "0", "true", "[5]", "null", "18446744073709551615"];
    prop_oneof![
        4 => proptest::sample::select(common.to_vec()).prop_map(str::to_owned),
        3 => paths(),
        1 => "[a-c*/.%2\\\\e]{0,8}",
        1 => ".{0,6}",
        2 => proptest::sample::select(numbers.to_vec()).prop_map(str::to_owned),
    ]
}

fn values() -> impl Strategy<Value = Value> {
    let others = [
        json!(5),
        json!(5.0),
        json!(-0.0),
        json!(0),
        json!(u64::MAX),
        json!(u64::MAX - 1),
        json!(true),
        json!(null),
        json!([5]),
        json!({ "id": 5 }),
        json!("*"),
    ];
    prop_oneof![5 => texts().prop_map(Value::from), 2 => proptest::sample::select(others.to_vec())]
}

fn argument_rules() -> impl Strategy<Value = Vec<ArgumentRule>> {
    let argument_places = ["path", "path", "path", "path", "/path", "id", "/user/id", "user"];
    let argument_places = proptest::sample::select(argument_places.to_vec());
    let patterns = prop_oneof![8 => 1..3_usize, 1 => Just(0)].prop_flat_map(|count| {
        proptest::collection::vec(values().prop_map(ArgumentPattern), count)
    });
    let one = (argument_places, patterns)
        .prop_map(|(at, patterns)| ArgumentRule { at: ArgumentPlace(at.to_owned()), patterns });
    proptest::collection::vec(one, 0..3)
}

fn rules() -> impl Strategy<Value = Vec<Rule>> {
    let tools =
        ["*", "notes.*", "notes.save", "notes.save", "notes.save", "a.b.*", "notes.sa*", "**"];
    let caller = prop_oneof![2 => Just(None), 1 => Just(Some("a")), 1 => Just(Some("b"))];
    let decides = prop_oneof![Just(Decide::Allow), Just(Decide::Ask), Just(Decide::Deny)];
    let tools = proptest::sample::select(tools.to_vec());
    let only = proptest::bool::weighted(0.15);
    let rule = (tools, caller, argument_rules(), only, decides).prop_map(
        |(tool, caller, arguments, only, decide)| Rule {
            tool: ToolPattern(tool.to_owned()),
            caller: caller.map(PluginName::from),
            arguments,
            only,
            decide,
            expires_ms: None,
            source: String::new(),
        },
    );
    proptest::collection::vec(rule, 0..16)
}

/// Returns a value that one of the rules is about, or nearly.
fn near(rules: &[Rule], nth: usize, change: u8, other: Value) -> Value {
    let patterns: Vec<&Value> = rules
        .iter()
        .flat_map(|rule| &rule.arguments)
        .flat_map(|argument| &argument.patterns)
        .map(|pattern| &pattern.0)
        .collect();
    let Some(pattern) = nth.checked_rem(patterns.len()).map(|nth| patterns[nth]) else {
        return other;
    };
    let Value::String(pattern) = pattern else {
        return if change.is_multiple_of(2) { pattern.clone() } else { pattern.to_string().into() };
    };
    let text = pattern.replace('*', "a");
    let text = match change {
        0 => pattern.clone(),
        1 => text,
        2 => text.trim_start_matches('/').to_owned(),
        3 => format!("/x/..{text}"),
        4 => format!(".{text}"),
        5 => text.replace('a', "%61"),
        6 => text.replace('/', "\\"),
        7 => text.replace('/', "//").trim_start_matches('/').to_owned(),
        8 => text.trim_end_matches(['/', 'a']).to_owned() + "/.",
        9 => format!("{text}\u{200b}"),
        10 => text.replace('a', "%2561"),
        11 => text.replace("\\a", "*"),
        12 | 13 => return serde_json::from_str(pattern).unwrap_or(other),
        _ => return other,
    };
    text.into()
}

fn arguments(rules: &[Rule]) -> impl Strategy<Value = Value> + use<> {
    let rules = rules.to_vec();
    let value = (any::<usize>(), 0..16_u8, values())
        .prop_map(move |(nth, change, other)| near(&rules, nth, change, other))
        .boxed();
    let shape = proptest::sample::select(vec![0_u8, 0, 0, 1, 2, 3, 4]);
    (shape, value.clone(), value).prop_map(|(shape, one, other)| match shape {
        0 => json!({ "path": one, "id": other }),
        1 => json!({ "path": one }),
        2 => json!({ "user": { "id": one }, "path": other }),
        3 => json!({ "user": one }),
        _ => one,
    })
}

fn cases() -> impl Strategy<Value = (Vec<Rule>, TestCall)> {
    let tools = [
        "notes.save",
        "notes.save",
        "notes.save",
        "notes.save",
        "notes.list",
        "a.b.c",
        "a.b",
        "notes.sa*",
        "**",
        "",
    ];
    rules().prop_flat_map(move |rules| {
        let tool = proptest::sample::select(tools.to_vec());
        let call = (callers(), callers(), tool, arguments(&rules)).prop_map(
            |(callers, delegators, tool, arguments)| TestCall {
                callers,
                delegators,
                tool,
                arguments,
            },
        );
        (Just(rules), call)
    })
}

#[test]
fn a_value_finds_the_rule_that_may_be_about_it_in_any_form() {
    let cases = [
        (json!("/a/*"), vec![json!("/a/b"), json!("a/b"), json!("/x/../a/b"), json!("x/../a/b")]),
        (json!("/a/*"), vec![json!("/x/../a"), json!("x/../a"), json!("/%61/b"), json!("%2561/b")]),
        (json!("/my notes"), vec![json!("/my%20notes"), json!("my%20notes/.")]),
        (json!(r"/a/\**"), vec![json!("/a/*b"), json!("a/*b"), json!("/x/../a/*b")]),
        (json!(r"\*a"), vec![json!("*a")]),
        (json!("5"), vec![json!(5)]),
        (json!("-5"), vec![json!(-5)]),
        (json!("[5]"), vec![json!([5])]),
        (json!("{}"), vec![json!({})]),
        (json!("true"), vec![json!(true)]),
        (json!("false"), vec![json!(false)]),
        (json!("null"), vec![json!(null)]),
        (json!(5), vec![json!(5.0), json!("5"), json!(" 5.0 "), json!("5e0")]),
        (json!(0), vec![json!(-0.0), json!("-0")]),
        (json!(-0.0), vec![json!(0), json!("0"), json!("-0.0")]),
        (json!(u64::MAX), vec![json!(u64::MAX - 1), json!("18446744073709551615")]),
        (json!([5]), vec![json!("[5]")]),
        (json!("*"), vec![json!({ "id": 5 })]),
    ];
    for (pattern, values) in cases {
        let mut rule = super::path("notes.save", "", Decide::Deny);
        rule.arguments[0].patterns = vec![ArgumentPattern(pattern.clone())];
        let setup = setup(vec![rule]);
        for value in values {
            let decided = super::decided(&setup, &["a"], "notes.save", &json!({ "path": value }));
            assert_eq!(decided, Decide::Deny, "{pattern} {value}");
        }
    }
}

/// Candidates come in another order than the rules: those for the tool, then those for all tools.
#[test]
fn the_first_of_equal_decisions_is_reported_in_any_order_of_candidates() {
    let rules = |decides: [Decide; 4], pattern: &str| {
        let tools = ["*", "notes.save", "notes.*", "notes.save"];
        let rules = tools.into_iter().zip(decides);
        setup(rules.map(|(tool, decide)| super::path(tool, pattern, decide)).collect())
    };
    let first = |setup: &Setup, path: &str| {
        let arguments = json!({ "path": path });
        match decide(setup, [&"a".into()], "notes.save", &arguments).why {
            DecisionSource::Rule { index, .. } => Some(index),
            _ => None,
        }
    };
    let (allow, ask, deny) = (Decide::Allow, Decide::Ask, Decide::Deny);
    assert_eq!(first(&rules([ask; 4], "/a/*"), "/a/b"), Some(0));
    for (decides, expected) in [
        ([ask; 4], Some(0)),
        ([deny; 4], Some(0)),
        ([allow, ask, ask, ask], Some(1)),
        ([ask, deny, ask, deny], Some(1)),
        ([allow, allow, deny, deny], Some(2)),
        ([allow; 4], None),
    ] {
        assert_eq!(first(&rules(decides, "/a/*"), "/x/../a/b"), expected, "{decides:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]

    #[test]
    fn the_index_finds_each_rule_that_a_scan_finds((rules, call) in cases()) {
        let setup = setup(rules);
        let TestCall { callers, delegators, tool, arguments } = &call;
        let own = callers
            .iter()
            .filter_map(|caller| scan(&setup, caller, false, &call))
            .reduce(stricter)
            .unwrap_or_else(|| without_rule(&setup, tool));
        prop_assert_eq!(decide(&setup, callers, tool, arguments), own);
        let delegated = delegators
            .iter()
            .filter_map(|delegator| scan(&setup, delegator, true, &call))
            .fold(own, stricter);
        let above = delegators.iter().map(Participant::DelegatingTool);
        let participants = above.chain(callers.iter().map(Participant::Caller));
        let decided = decide_for_participants(&setup, participants, tool, arguments);
        prop_assert_eq!(decided, delegated);
    }
}
