use super::super::fixture::Parts;
use super::super::queue_limit::{QUEUE_BYTES, QUEUE_MAX};
use super::*;
use crate::room::gates::next_gate;
use crate::room::state::delegation::Delegating;
use crate::room::state::gated::GatedAct;
use crate::types::delegation::Delegation;
use crate::types::delivery::OutgoingMessage;
use crate::types::ids::Millis;
use crate::types::request::RequestId;

const GATES: &str = r#"
[plugins.guard]
source = "guard.wasm"
[plugins.censor]
source = "censor.wasm"
[[gates]]
on = "inbound"
plugin = "guard"
deadline = "200 ms"
[[gates]]
on = "deliver"
plugin = "guard"
[[gates]]
on = "inbound"
plugin = "censor"
on_failure = "pass"
"#;

fn inbound(channel: &str, text: &str) -> GatedAct {
    let inbound = Box::new(Inbound::new(channel, text));
    GatedAct::Inbound { request: RequestId(0), inbound }
}

fn delivery(text: &str) -> GatedAct {
    let outgoing = OutgoingMessage {
        channel: "phone".into(),
        text: text.to_owned(),
        interrupt: false,
        key: String::new(),
        tasks: Vec::new(),
    };
    let gated = Box::new(GatedMessage {
        outgoing,
        strategy: None,
        request: None,
        relay: None,
        chain_depth: 0,
        otherwise: None,
    });
    GatedAct::Delivery { gated }
}

/// Has the gate that checks an item let it pass. Returns the item behind its last gate.
fn pass(parts: &mut Parts, number: u64) -> Option<GatedAct> {
    let waiting = parts.gating.waiting.get_mut(&number).expect("it waits");
    let gate =
        next_gate(&parts.cx, waiting.act.place(), &waiting.passed).expect("a gate checks it");
    waiting.passed.push(gate.plugin.clone());
    parts.view().gate_checks().ask_gate(number)
}

/// The questions to gates since the last call, as `gate: text`.
fn take_gate_questions(parts: &mut Parts) -> Vec<String> {
    let question = |effect| match effect {
        Effect::QueryPlugin { plugin, question: PluginQuery::Gate { input }, .. } => {
            Some(format!("{plugin}: {}", input.text))
        }
        Effect::SetTimer { .. } => None,
        effect => panic!("{effect:?}"),
    };
    parts.cx.take_effects().into_iter().filter_map(question).collect()
}

#[test]
fn messages_of_a_channel_pass_one_after_the_other_and_channels_do_not_wait_for_each_other() {
    let mut parts = Parts::new(GATES);
    for (channel, text) in [("phone", "one"), ("phone", "two"), ("web", "three")] {
        parts.view().gate_checks().wait_for_gates(inbound(channel, text));
    }
    assert_eq!(take_gate_questions(&mut parts), ["guard: one", "guard: three"]);
    assert_eq!(pass(&mut parts, 0), None);
    assert_eq!(take_gate_questions(&mut parts), ["censor: one"]);
    let phone = Some(ChannelId::from("phone"));
    // The first message is still at its second gate.
    parts.view().gate_checks().next_in_lane(phone.clone());
    assert_eq!(take_gate_questions(&mut parts), [""; 0]);
    assert_eq!(pass(&mut parts, 0), Some(inbound("phone", "one")));
    parts.view().gate_checks().next_in_lane(None);
    assert_eq!(take_gate_questions(&mut parts), [""; 0]);
    parts.view().gate_checks().next_in_lane(phone);
    assert_eq!(take_gate_questions(&mut parts), ["guard: two"]);
}

#[test]
fn an_item_passes_the_gates_of_its_own_point_and_waits_in_no_lane() {
    let mut parts = Parts::new(GATES);
    for act in [inbound("phone", "one"), delivery("two"), delivery("three")] {
        parts.view().gate_checks().wait_for_gates(act);
    }
    assert_eq!(take_gate_questions(&mut parts), ["guard: one", "guard: two", "guard: three"]);
    assert_eq!(pass(&mut parts, 2), Some(delivery("three")));
    assert_eq!(take_gate_questions(&mut parts), [""; 0]);
}

#[test]
fn each_gate_has_its_own_deadline_and_its_own_rule_for_failures() {
    let mut parts = Parts::new(GATES);
    parts.view().gate_checks().wait_for_gates(inbound("phone", "one"));
    let timers = |parts: &mut Parts| -> Vec<Millis> {
        let at = |effect| match effect {
            Effect::SetTimer { at, .. } => Some(at),
            _ => None,
        };
        parts.cx.take_effects().into_iter().filter_map(at).collect()
    };
    let fails_open = |parts: &mut Parts, gate: &str| {
        let mut view = parts.view();
        let checks = view.gate_checks();
        checks.rule_of(0, &PluginName::from(gate)).map(|rule| rule.fails_open)
    };
    assert_eq!(timers(&mut parts), [Millis(1_200)]);
    assert_eq!(fails_open(&mut parts, "guard"), Some(false));
    pass(&mut parts, 0);
    assert_eq!(timers(&mut parts), [Millis(2_000)]);
    assert_eq!(fails_open(&mut parts, "censor"), Some(true));
    pass(&mut parts, 0);
    assert_eq!((timers(&mut parts), fails_open(&mut parts, "censor")), (vec![], None));
}

#[test]
fn a_lane_is_full_with_its_last_place_taken() {
    let mut parts = Parts::new(GATES);
    let (phone, web) = (Inbound::new("phone", "one"), Inbound::new("web", "one"));
    for _ in 1..QUEUE_MAX {
        parts.view().gate_checks().wait_for_gates(inbound("phone", "one"));
    }
    assert_eq!(parts.gating.full_lane(&phone), None);
    parts.view().gate_checks().wait_for_gates(inbound("phone", "one"));
    assert!(parts.gating.full_lane(&phone).is_some());
    assert_eq!(parts.gating.full_lane(&web), None);
}

#[test]
fn a_lane_has_a_limit_in_bytes() {
    let mut parts = Parts::new(GATES);
    let big = "x".repeat(QUEUE_BYTES - 3);
    assert_eq!(parts.gating.full_lane(&Inbound::new("phone", format!("{big}{big}"))), None);
    parts.view().gate_checks().wait_for_gates(inbound("phone", &big));
    assert_eq!(parts.gating.full_lane(&Inbound::new("phone", "one")), None);
    let reason = parts.gating.full_lane(&Inbound::new("phone", "four"));
    assert!(reason.is_some_and(|reason| reason.contains(&QUEUE_BYTES.to_string())));
    assert_eq!(parts.gating.full_lane(&Inbound::new("web", "four")), None);
}

#[test]
fn an_item_without_a_gate_or_an_unknown_one_ends_the_room() {
    for (config, number) in [("", None), (GATES, Some(7))] {
        let mut parts = Parts::new(config);
        match number {
            Some(number) => assert_eq!(parts.view().gate_checks().ask_gate(number), None),
            None => parts.view().gate_checks().wait_for_gates(inbound("phone", "one")),
        }
        let violated = parts.cx.new_violation.map(|violation| violation.invariant);
        assert_eq!(violated, Some(Invariant::GateKnown), "{number:?}");
        assert_eq!(parts.gating, Gating::default());
    }
}

#[test]
fn a_text_that_a_gate_took_out_of_a_brief_is_not_left_in_the_label() {
    let delegation = |brief: Option<&str>, task: &str| {
        let delegation = Delegation {
            brief: brief.map(str::to_owned),
            description: task.to_owned(),
            ..Delegation::default()
        };
        let origin = TaskOrigin::Request { request: RequestId(0), by: None };
        let delegating = Box::new(Delegating { delegation, origin, wish: None });
        GatedAct::Delegation { delegating }
    };
    for (brief, changed) in [(Some("a secret, at length"), Some("…")), (None, None)] {
        let mut act = delegation(brief, "a secret");
        assert_eq!(act.text(), brief.unwrap_or("a secret"));
        act.set_text("…".to_owned());
        assert_eq!(act, delegation(changed, "…"));
    }
}

#[test]
fn a_verdict_that_is_too_long_or_empties_a_text_is_a_failure() {
    let modify = |text: String| PluginReply::Gate { verdict: GateVerdict::Modify { text } };
    let is_valid = |reply, original| checked(reply, original).is_ok();
    assert!(is_valid(modify("x".repeat(GATE_INPUT_MAX)), "a"));
    assert!(!is_valid(modify("x".repeat(GATE_INPUT_MAX + 1)), "a"));
    assert!(!is_valid(modify(" \n".to_owned()), "a"));
    assert!(is_valid(modify(String::new()), " "), "it was empty before");
    assert!(!is_valid(PluginReply::Memories { memories: Vec::new() }, "a"));
}
