//! The models of a task are asked in their order: a table of failures and positions. Whatever
//! happens, the plugin gets one answer, and the room is the fold of its records.

use std::sync::Arc;

use conclave_core::journal::record::fold;
use conclave_core::protocol::effect::Effect;
use conclave_core::protocol::event::Event;
use conclave_core::protocol::event::{Principal, RULES, Record};
use conclave_core::protocol::notice::Notice;
use conclave_core::room::Room;
use conclave_core::types::completion::{
    Completion, ModelError, ModelRequest, StopReason, TokenUsage,
};
use conclave_core::types::fault::{CallReport, Fault, FaultKind};
use conclave_core::types::ids::{CallId, Millis, ModelName};
use serde_json::json;

use crate::case::{Case, SECRET, START};

const MODELS: [&str; 3] = ["first", "second", "third"];

struct Step {
    room: Room,
    records: Vec<Record>,
    call: CallId,
    notices: Vec<Notice>,
}

impl Step {
    /// Begins a step of an agent that is granted these models, whose task names [`MODELS`].
    fn begin(granted: &[&str], limits: &serde_json::Value) -> Self {
        let models: serde_json::Map<String, serde_json::Value> =
            MODELS.map(|name| (name.to_owned(), json!({}))).into_iter().collect();
        let case = json!({
            "name": "fallback", "expect": {},
            "setup": { "limits": limits, "models": models, "plugins": { "desk": { "grants": { "model": granted } } } },
        });
        let case: Case = serde_json::from_value(case).expect("a case of the right form");
        let mut setup = case.setup();
        let task = Arc::make_mut(setup.tasks.get_mut("desk").expect("the entry task"));
        task.models = MODELS.map(ModelName::from).into();
        let (room, records, notices) = (Room::new(), Vec::new(), Vec::new());
        let mut step = Self { room, records, call: CallId(0), notices };
        let opening = case.opening();
        let opened = Event::RoomOpened { setup: setup.into(), opening, secret: SECRET };
        let effects = step.handle(opened);
        let [Effect::StepAgent { call, .. }] = effects[..] else { panic!("{effects:?}") };
        step.call = call;
        step
    }

    fn handle(&mut self, event: Event) -> Vec<Effect> {
        let (seq, at) = (self.records.len() as u64, Millis(START.0 + self.records.len() as u64));
        let principal = Principal("tester".into());
        self.records.push(Record {
            seq,
            at,
            principal,
            rules: RULES,
            epoch: 0,
            event: event.clone(),
        });
        self.room.handle(event, at);
        self.notices.extend(std::iter::from_fn(|| self.room.poll_notice()));
        let effects = std::iter::from_fn(|| self.room.poll_effect()).collect();
        assert_eq!(fold(self.records.iter().cloned()), self.room);
        effects
    }

    fn ask(&mut self, model: Option<&str>) -> Vec<Effect> {
        let request = ModelRequest { model: model.map(str::to_owned), ..ModelRequest::default() };
        self.handle(Event::ModelAsked { call: self.call, ordinal: 0, request })
    }

    fn answer(&mut self, answer: Result<Completion, ModelError>, was_shown: bool) -> Vec<Effect> {
        let call = self.call;
        self.handle(Event::ModelAnswered { call, ordinal: 0, answer, trouble: None, was_shown })
    }

    /// Returns the models that were announced as the next ones.
    fn fallbacks(&self) -> Vec<&str> {
        let next = |notice: &'_ Notice| match notice {
            Notice::ModelAnswered { fallback, .. } => fallback.clone(),
            _ => None,
        };
        let names: Vec<ModelName> = self.notices.iter().filter_map(next).collect();
        MODELS
            .into_iter()
            .filter(|model| names.iter().any(|name| name.as_str() == *model))
            .collect()
    }
}

fn completion(tokens: u64) -> Completion {
    let usage = TokenUsage { input_tokens: tokens, output_tokens: 1, ..TokenUsage::default() };
    Completion {
        id: "1".to_owned(),
        content: Some("x".to_owned()),
        reasoning: None,
        tool_calls: Vec::new(),
        stop: StopReason::End,
        usage,
        model: "m".to_owned(),
    }
}

/// The model that the only effect asks; `None` if it is the plugin's answer.
fn asked_model(effects: &[Effect]) -> Option<&str> {
    match effects {
        [Effect::CallModel { model, .. }] => Some(model.as_str()),
        [Effect::AnswerModel { .. }] => None,
        effects => panic!("expected one effect about the model: {effects:?}"),
    }
}

fn unavailable() -> ModelError {
    ModelError::Unavailable { retry_after_ms: Some(7) }
}

#[test]
fn a_failure_is_passed_on_by_its_kind_and_only_while_a_model_is_left() {
    let failures = [
        (unavailable(), true),
        (ModelError::ContextTooLong { tokens: 9 }, true),
        (ModelError::UnknownModel { name: "x".to_owned() }, false),
        (ModelError::Other { message: "the key was refused".to_owned() }, false),
        (ModelError::BudgetExhausted { what: "tokens".to_owned() }, false),
    ];
    for (error, is_helped) in failures {
        for position in 0..MODELS.len() {
            for was_shown in [false, true] {
                let mut step = Step::begin(&MODELS, &json!({}));
                assert_eq!(asked_model(&step.ask(None)), Some(MODELS[0]));
                for next in &MODELS[1..=position] {
                    assert_eq!(asked_model(&step.answer(Err(unavailable()), false)), Some(*next));
                }
                let effects = step.answer(Err(error.clone()), was_shown);
                let next = MODELS.get(position + 1).filter(|_| is_helped && !was_shown);
                let what = format!("{error:?} at {position}, shown: {was_shown}");
                assert_eq!(asked_model(&effects), next.copied(), "{what}");
                assert_eq!(
                    step.fallbacks().len(),
                    position + usize::from(next.is_some()),
                    "{what}"
                );
                let attempts = 1 + position as u64 + u64::from(next.is_some());
                assert_eq!(step.room.spent().model_calls, attempts, "{what}");
                if next.is_none() {
                    let answer = Err(error.clone());
                    assert_eq!(
                        effects,
                        [Effect::AnswerModel { call: step.call, ordinal: 0, answer }]
                    );
                }
            }
        }
    }
}

#[test]
fn the_answer_of_the_next_model_is_counted_and_is_the_plugin_s() {
    let mut step = Step::begin(&MODELS, &json!({"tokens": 100_000}));
    step.ask(None);
    step.answer(Err(unavailable()), false);
    let effects = step.answer(Ok(completion(40)), false);
    let answer = Ok(completion(40));
    assert_eq!(effects, [Effect::AnswerModel { call: step.call, ordinal: 0, answer }]);
    assert_eq!((step.room.spent().tokens, step.room.spent().model_calls), (41, 2));
    assert_eq!(step.fallbacks(), ["second"]);
}

#[test]
fn a_model_that_the_plugin_names_has_no_other_in_its_place() {
    let mut step = Step::begin(&MODELS, &json!({}));
    assert_eq!(asked_model(&step.ask(Some("second"))), Some("second"));
    assert_eq!(asked_model(&step.answer(Err(unavailable()), false)), None);
}

#[test]
fn no_model_is_a_way_around_a_grant() {
    let mut step = Step::begin(&["first", "third"], &json!({}));
    let effects = step.ask(None);
    let [Effect::AnswerModel { answer: Err(ModelError::Denied { denial }), .. }] = &effects[..]
    else {
        panic!("{effects:?}")
    };
    assert_eq!(denial.target.as_str(), "second");
    let denied = step.notices.iter().find_map(|notice| match notice {
        Notice::Denied { record, .. } => record.suggestion.clone(),
        _ => None,
    });
    let grant = denied.expect("the operator reads the grant");
    assert!(grant.contains("grants.model") && grant.contains("\"second\""), "{grant}");
}

#[test]
fn a_budget_of_requests_ends_the_list() {
    let mut step = Step::begin(&MODELS, &json!({"model_calls": 2}));
    step.ask(None);
    assert_eq!(asked_model(&step.answer(Err(unavailable()), false)), Some("second"));
    let effects = step.answer(Err(unavailable()), false);
    let [Effect::AnswerModel { answer: Err(ModelError::BudgetExhausted { what }), .. }] =
        &effects[..]
    else {
        panic!("{effects:?}")
    };
    assert_eq!(what, "limits.run.model_calls");
}

#[test]
fn nothing_is_asked_after_a_stop_or_for_a_step_that_is_over() {
    let mut stopped = Step::begin(&MODELS, &json!({}));
    stopped.ask(None);
    stopped.handle(Event::Cancelled { reason: "enough".to_owned() });
    assert_eq!(stopped.answer(Err(unavailable()), false), []);

    let mut over = Step::begin(&MODELS, &json!({}));
    over.ask(None);
    let (call, fault) = (over.call, Fault::new(FaultKind::Error, "no"));
    let report = CallReport::default();
    over.handle(Event::AgentStepped { call, answer: Err(fault), report });
    let effects = over.answer(Err(unavailable()), false);
    assert!(
        !effects.iter().any(|effect| matches!(effect, Effect::CallModel { .. })),
        "{effects:?}"
    );
}
