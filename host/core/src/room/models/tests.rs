use super::super::fixture::{Parts, context};
use super::*;
use crate::room::budgets::fill_in_usage;
use crate::room::models::{granted_model, price};
use crate::types::completion::StopReason;

const MODELS: &str = r#"
[models.other]
kind = "scripted"
replies = "replies.json"
[plugins.chat.grants.model]
names = ["default"]
cost_usd = 1
"#;

fn call(number: u64) -> ModelCall {
    let (plugin, model) = (PluginName::from("chat"), ModelName::from("default"));
    ModelCall::new(CallId(number), 0, plugin, model, Reservation::default())
}

fn usage(input_tokens: u64, cached_input_tokens: u64, output_tokens: u64) -> TokenUsage {
    TokenUsage { input_tokens, cached_input_tokens, output_tokens, cost_micro_usd: None }
}

#[test]
fn a_forgotten_call_stays_to_be_counted_and_its_held_requests_go() {
    let mut parts = Parts::new("");
    parts.models.model_calls = vec![call(1), call(2), call(1)];
    let request =
        |number| HeldRequest { call: CallId(number), ordinal: 0, request: ModelRequest::default() };
    parts.budgets.held_requests = vec![request(1), request(2)];
    parts.view().plugin_calls().forget_model_calls(CallId(1));
    let awaited: Vec<bool> = parts.models.model_calls.iter().map(ModelCall::is_awaited).collect();
    assert_eq!(awaited, [false, true, false]);
    assert_eq!(parts.budgets.held_requests, [request(2)]);
}

#[test]
fn a_model_without_a_price_is_reported_once_and_only_under_a_limit_of_money() {
    let mut cx = context(MODELS);
    let mut models = ModelCalls::default();
    let mut notices = |cx: &mut RoomContext, plugin: &str, model: &str| {
        models.report_unknown_price(cx, &plugin.into(), &model.into());
        cx.take_notices()
    };
    let unknown = |model: &str, limit: &str| {
        [Notice::PriceUnknown { model: model.into(), limit: limit.to_owned() }]
    };
    assert_eq!(notices(&mut cx, "worker", "other"), []);
    let of_grant = unknown("other", "plugins.chat.grants.model.cost_usd");
    assert_eq!(notices(&mut cx, "chat", "other"), of_grant);
    assert_eq!(notices(&mut cx, "chat", "other"), []);
    cx.opening.limits.cost_micro_usd = Some(1);
    assert_eq!(notices(&mut cx, "worker", "default"), unknown("default", "limits.run.cost_usd"));
}

#[test]
fn an_answer_costs_what_the_provider_says_or_else_by_the_prices() {
    let mut cx = context("");
    let model = ModelName::from("default");
    assert_eq!(price(&cx, &model, usage(100, 0, 10)), Some(120));
    // Cached tokens cost as much as others unless they have a price of their own.
    assert_eq!(price(&cx, &model, usage(100, 40, 10)), Some(120));
    let setup = cx.setup_mut().models.get_mut("default").unwrap();
    setup.cached_input_price = Some(500_000);
    assert_eq!(price(&cx, &model, usage(100, 40, 10)), Some(100));
    assert_eq!(price(&cx, &model, usage(100, 400, 10)), Some(70), "no more than the prompt");
    let with_cost = TokenUsage { cost_micro_usd: Some(7), ..usage(100, 0, 10) };
    assert_eq!(price(&cx, &model, with_cost), Some(7));
    cx.setup_mut().models.get_mut("default").unwrap().output_price = None;
    assert_eq!(price(&cx, &model, usage(100, 0, 10)), None);
    assert_eq!(price(&cx, &model, with_cost), Some(7));
    assert_eq!(price(&cx, &"stranger".into(), with_cost), None);
}

#[test]
fn a_plugin_gets_the_model_of_its_grant_and_no_other() {
    let mut cx = context(MODELS);
    let model = |cx: &mut RoomContext, plugin: &str, name| {
        granted_model(cx, &plugin.into(), None, name).map(|model| model.to_string())
    };
    assert_eq!(model(&mut cx, "chat", None).as_deref(), Ok("default"));
    assert_eq!(cx.take_notices(), []);
    for (plugin, name) in [("chat", Some("other")), ("worker", Some("default"))] {
        let error = model(&mut cx, plugin, name);
        assert!(matches!(error, Err(ModelError::Denied { .. })), "{plugin}: {error:?}");
        assert!(matches!(cx.take_notices().as_slice(), [Notice::Denied { .. }]));
    }
    // Granted, but missing from the setup of a run.
    cx.setup_mut().models.clear();
    let unknown = ModelError::UnknownModel { name: "default".to_owned() };
    assert_eq!(model(&mut cx, "chat", None), Err(unknown));
}

#[test]
fn only_a_server_under_a_limit_has_its_missing_usage_estimated() {
    let mut cx = context("");
    let counted = |cx: &RoomContext, tokens, usage| {
        let mut completion = Completion {
            id: String::new(),
            content: Some("eight by".to_owned()),
            reasoning: None,
            tool_calls: Vec::new(),
            stop: StopReason::End,
            usage,
            model: String::new(),
        };
        let reservation = Reservation { input: 30, tokens, ..Reservation::default() };
        fill_in_usage(cx, &"default".into(), &reservation, &mut completion);
        (completion.usage.input_tokens, completion.usage.output_tokens)
    };
    assert_eq!(counted(&cx, 50, usage(0, 0, 0)), (0, 0), "inside the process");
    cx.setup_mut().models.get_mut("default").unwrap().reached_at = Some("host:443".to_owned());
    assert_eq!(counted(&cx, 0, usage(0, 0, 0)), (0, 0), "without a limit");
    assert_eq!(counted(&cx, 50, usage(0, 0, 0)), (30, 2));
    assert_eq!(counted(&cx, 50, usage(3, 0, 0)), (3, 2));
    assert_eq!(counted(&cx, 50, usage(0, 0, 9)), (30, 9));
}

/// Returns a run whose agent has made a turn and waits for its model in the only call under way.
fn waiting(change: impl FnOnce(&mut Parts)) -> Room {
    let mut parts = Parts::new("");
    let frame = parts.begin("desk", None);
    parts.cx.calls.insert(CallId(1), Purpose::Step { frame });
    parts.models.model_calls = vec![call(1)];
    parts.budgets.spent.turns = 2;
    change(&mut parts);
    let Parts { cx, frames, models, budgets, .. } = parts;
    Room { cx, frames, models, budgets, ..Room::new() }
}

fn failed(answer: ModelError) -> [Event; 2] {
    let other = Event::Unpaused;
    let (answer, trouble) = (Err(answer), None);
    let call = CallId(1);
    [other, Event::ModelAnswered { call, ordinal: 0, answer, trouble, was_shown: false }]
}

#[test]
fn a_run_is_left_for_lack_of_a_model_only_if_it_does_nothing_else() {
    let outage = || failed(ModelError::Unavailable { retry_after_ms: None });
    let (room, events) = (waiting(|_| {}), outage());
    let missing = room.lacks_model(&events).expect("the run is left");
    assert_eq!((missing.position, missing.model.as_str()), (1, "default"));
    let reason = "it is not available now".to_owned();
    assert_eq!(missing.event(), Event::ModelUnavailable { call: CallId(1), ordinal: 0, reason });
    let refused = failed(ModelError::Other { message: "no".to_owned() });
    assert!(room.lacks_model(&refused).is_none(), "a refusal is an answer");
    let is_left = |was_shown| {
        let room = waiting(|parts| {
            let [pending] = &mut parts.models.model_calls[..] else { panic!("one call") };
            let models = [ModelName::from("default"), ModelName::from("second")];
            pending.fallback = Fallback::after_first(&models, &ModelRequest::default());
        });
        let mut events = outage();
        if let Event::ModelAnswered { was_shown: text_was_shown, .. } = &mut events[1] {
            *text_was_shown = was_shown;
        }
        room.lacks_model(&events).is_some()
    };
    assert!(!is_left(false), "another model is asked");
    assert!(is_left(true), "none is asked once words were shown");
    let others: [fn(&mut Parts); 6] = [
        |parts| parts.budgets.spent.turns = 1,
        |parts| parts.cx.opening.depth = 1,
        |parts| parts.cx.opening.persistent = true,
        |parts| parts.cx.task_mut("desk").interactive = true,
        |parts| parts.models.model_calls.push(call(2)),
        |parts| {
            let plugin = "worker".into();
            parts.cx.calls.insert(CallId(2), Purpose::Observer { plugin });
        },
    ];
    for (index, change) in others.into_iter().enumerate() {
        assert!(waiting(change).lacks_model(&outage()).is_none(), "{index}");
    }
}
