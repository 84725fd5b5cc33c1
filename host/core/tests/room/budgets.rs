//! Parallel work never overspends a shared limit, with any order of requests, answers, losses and
//! retries. Every limit of a run has a case that exceeds it.

use std::collections::VecDeque;

use conclave_core::config::KEYS;
use conclave_core::journal::record::fold;
use conclave_core::protocol::effect::Effect;
use conclave_core::protocol::event::Event;
use conclave_core::protocol::event::{Principal, RULES, Record};
use conclave_core::protocol::notice::Notice;
use conclave_core::room::Room;
use conclave_core::types::completion::{Completion, ModelError, StopReason, TokenUsage};
use conclave_core::types::ids::{CallId, Millis};
use conclave_core::types::usage::Spent;
use proptest::collection::vec;
use proptest::prelude::{ProptestConfig, any, prop_assert, prop_assert_eq, proptest};
use serde_json::{Value, json};

use crate::case::{Case, SECRET, START};
use crate::plan::request;

/// Each key of `limits.run`, and the case or test that exceeds it.
const EXCEEDED: [(&str, &str); 13] = [
    ("wall", "time is asked for when it is over, and what is under way goes on"),
    ("turns", "steps are asked for before the next one begins"),
    ("task_turns", "(tests/suite/tests/cli.rs)"),
    ("tokens", "too little for an answer sends nothing, and who fails for want of it ends the run"),
    ("cost_usd", "money that is left buys an answer of that length"),
    ("model_calls", "requests to models are counted"),
    ("tool_calls", "calls of tools are counted, and one too many ends the run"),
    ("history", "what a room holds of messages and results ends the run"),
    ("cpu", "computing is counted over all calls"),
    ("depth", "(tests/data/room/background.json)"),
    ("tasks", "background tasks in all are counted"),
    (
        "tasks_at_once",
        "background tasks at once are counted, those that they may start themselves included",
    ),
    ("when_used_up", "what is used up is asked for, and given as proposed"),
];

#[test]
fn every_limit_of_a_run_has_a_case_that_exceeds_it() {
    let cases = include_str!("../../../../tests/data/room/budgets.json");
    let keys: Vec<&str> =
        KEYS.iter().filter(|key| key.table == "limits.run").map(|key| key.name).collect();
    assert_eq!(keys, EXCEEDED.map(|(key, _)| key));
    for (key, case) in EXCEEDED.iter().filter(|(_, case)| !case.starts_with('(')) {
        assert!(cases.contains(&format!("\"name\": \"{case}\"")), "there is no case for {key}");
    }
}

struct Tried {
    room: Room,
    records: Vec<Record>,
    open_requests: VecDeque<(u32, u64)>,
    lost_tokens: u64,
}

impl Tried {
    fn new(tokens: u64) -> (Self, CallId) {
        let case = json!({
            "name": "budgets", "expect": {},
            "setup": { "limits": { "tokens": tokens }, "models": { "default": {} }, "plugins": { "desk": { "grants": { "model": ["default"] } } } },
        });
        let case: Case = serde_json::from_value(case).expect("a case of the right form");
        let mut tried = Self {
            room: Room::new(),
            records: Vec::new(),
            open_requests: VecDeque::new(),
            lost_tokens: 0,
        };
        let effects = tried.happened(Event::RoomOpened {
            setup: case.setup().into(),
            opening: case.opening(),
            secret: SECRET,
        });
        let [Effect::StepAgent { call, .. }] = effects[..] else {
            panic!("expected a step: {effects:?}")
        };
        (tried, call)
    }

    fn happened(&mut self, event: Event) -> Vec<Effect> {
        let (seq, at) = (self.records.len() as u64, Millis(START.0 + self.records.len() as u64));
        self.records.push(Record {
            seq,
            at,
            principal: Principal("tester".into()),
            rules: RULES,
            epoch: 0,
            event: event.clone(),
        });
        self.room.handle(event, at);
        while let Some(notice) = self.room.poll_notice() {
            if let Notice::AttemptLost { input_tokens, .. } = notice {
                self.lost_tokens += input_tokens;
            }
        }
        std::iter::from_fn(|| self.room.poll_effect()).collect()
    }

    fn ask(&mut self, call: CallId, ordinal: u32) {
        for effect in
            self.happened(Event::ModelAsked { call, ordinal, request: request(&Value::Null) })
        {
            if let Effect::CallModel { prompt, .. } = effect {
                let most = prompt
                    .options
                    .iter()
                    .find(|(name, _)| name == "max-output-tokens")
                    .and_then(|(_, most)| most.as_u64());
                self.open_requests.push_back((ordinal, most.expect("a limit applies")));
            }
        }
    }

    fn reserved(&self) -> Spent {
        let state = serde_json::to_value(&self.room).expect("a room is serialisable");
        serde_json::from_value(state["budgets"]["reserved"].clone()).expect("amounts")
    }
}

fn completion(output: u64) -> Completion {
    let usage = TokenUsage {
        input_tokens: 1,
        cached_input_tokens: 0,
        output_tokens: output,
        cost_micro_usd: None,
    };
    let (id, model) = (String::new(), String::new());
    Completion {
        id,
        content: Some("x".to_owned()),
        reasoning: None,
        tool_calls: Vec::new(),
        stop: StopReason::End,
        usage,
        model,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_goes_on_at_once_never_overspends_together(tokens in 60_u64..40_000, steps in vec((0_u8..8, any::<u16>()), 1..60)) {
        let (mut tried, call) = Tried::new(tokens);
        for (ordinal, (kind, number)) in (0_u32..).zip(steps) {
            match kind {
                0..=3 => tried.ask(call, ordinal),
                4 | 5 => if let Some((ordinal, most)) = tried.open_requests.remove(usize::from(number) % tried.open_requests.len().max(1)) {
                    let output = u64::from(number) % (most + 1);
                    let output = if kind == 4 { most } else { output };
                    tried.happened(Event::ModelAnswered { call, ordinal, answer: Ok(completion(output)), trouble: None, was_shown: false });
                },
                6 => if let Some((ordinal, _)) = tried.open_requests.pop_front() {
                    let answer = Err(ModelError::Other { message: "502".to_owned() });
                    tried.happened(Event::ModelAnswered { call, ordinal, answer, trouble: None, was_shown: false });
                },
                _ => { tried.happened(Event::Resumed { down_ms: u64::from(number), is_exact: false, setup: None }); }
            }
            prop_assert!(tried.room.spent().tokens <= tokens + tried.lost_tokens, "{:?} of {tokens}, {} lost", tried.room.spent(), tried.lost_tokens);
            if tried.lost_tokens == 0 {
                prop_assert!(tried.room.spent().tokens + tried.reserved().tokens <= tokens);
            }
        }
        prop_assert_eq!(fold(tried.records.iter().cloned()), tried.room.clone());
        tried.happened(Event::Cancelled { reason: "enough".to_owned() });
        prop_assert!(tried.room.outcome().is_some());
        prop_assert_eq!(tried.reserved(), Spent::default());
    }
}
