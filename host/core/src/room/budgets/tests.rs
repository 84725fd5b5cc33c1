use proptest::prelude::{prop_assert, proptest};

use super::super::fixture::{self, Parts};
use super::*;
use crate::protocol::effect::Effect;
use crate::types::completion::{ToolChoice, ToolFormat};
use crate::types::limits::WhenUsedUp;
use crate::types::message::Role;

const GRANT: &str = r#"
[plugins.chat.grants.model]
names = ["default"]
tokens = 1_000
calls = 2
[plugins.worker.grants.model]
names = ["default"]
tokens = 1_000
"#;

fn prompt() -> Prompt {
    Prompt {
        pieces: Vec::new(),
        tools: Vec::new(),
        tool_format: ToolFormat::Off,
        tool_choice: ToolChoice::Auto,
        output_schema: None,
        stream: false,
        options: vec![("max_tokens".to_owned(), 400.into())],
    }
}

/// Returns the reservation for a prompt with an answer of at most 400 tokens, and the length that
/// is left for the answer.
fn reserve(parts: &mut Parts) -> Result<(Reservation, Option<u64>), ModelRefusal> {
    let mut prompt = prompt();
    let model = ModelName::from("default");
    let reservation =
        parts.view().plugin_calls().reservation_for(&"chat".into(), None, &model, &mut prompt)?;
    Ok((reservation, prompt.max_output()))
}

fn model_call(plugin: &str, number: u64, tokens: u64) -> ModelCall {
    let of_run = Spent { tokens, ..Spent::default() };
    let reservation = Reservation { input: 10, tokens, cost: tokens, of_run };
    ModelCall::new(CallId(number), 0, plugin.into(), "default".into(), reservation)
}

#[test]
fn a_reservation_takes_what_is_left_and_one_token_less_is_too_little() {
    let mut parts = Parts::new("");
    let (free, most) = reserve(&mut parts).unwrap();
    assert_eq!(
        (free, most),
        (Reservation { input: free.input, ..Reservation::default() }, Some(400))
    );
    for (rest, output) in [(400, 400), (399, 399), (MIN_OUTPUT, MIN_OUTPUT)] {
        parts.cx.opening.limits.tokens = Some(free.input + rest);
        let (reservation, most) = reserve(&mut parts).unwrap();
        assert_eq!((reservation.of_run.tokens, most), (free.input + output, Some(output)));
        // Money is limited by nothing here, so none is reserved from the run.
        assert_eq!(
            (reservation.cost, reservation.of_run.cost_micro_usd),
            (free.input + 2 * output, 0)
        );
    }
    parts.cx.opening.limits.tokens = Some(free.input + MIN_OUTPUT - 1);
    let Err(ModelRefusal::Short(short)) = reserve(&mut parts) else { panic!("it is too little") };
    let expected = (Budget::Tokens, free.input + 400, free.input + MIN_OUTPUT);
    assert_eq!((short.budget, short.needed, short.least), expected);
}

#[test]
fn what_is_reserved_cannot_be_reserved_again() {
    let mut parts = Parts::new("");
    let input = reserve(&mut parts).unwrap().0.input;
    parts.cx.opening.limits.tokens = Some(2 * (input + 400));
    let (first, _) = reserve(&mut parts).unwrap();
    parts.budgets.reserved = parts.budgets.reserved.plus(first.of_run);
    let (second, _) = reserve(&mut parts).unwrap();
    parts.budgets.reserved = parts.budgets.reserved.plus(second.of_run);
    assert_eq!(first, second);
    assert!(matches!(reserve(&mut parts), Err(ModelRefusal::Short(_))));
    parts.budgets.settle_model_call(&"chat".into(), second, TokenUsage::default());
    assert_eq!(reserve(&mut parts).unwrap().0, second);
}

#[test]
fn settling_counts_what_was_used_also_beyond_the_reservation() {
    let mut budgets = Budgets::default();
    let call = model_call("chat", 0, 50);
    budgets.reserved = Spent { tokens: 70, ..Spent::default() };
    let usage = TokenUsage {
        input_tokens: 40,
        output_tokens: 60,
        cost_micro_usd: Some(5),
        ..TokenUsage::default()
    };
    budgets.settle_model_call(&call.plugin, call.reservation, usage);
    let spent = Spent { tokens: 100, cost_micro_usd: 5, ..Spent::default() };
    assert_eq!((budgets.reserved.tokens, budgets.spent), (20, spent));
    let used = budgets.used_by(&"chat".into());
    assert_eq!((used.model_tokens, used.model_cost), (100, 5));
}

#[test]
fn pending_calls_count_against_the_grant_of_their_plugin_only() {
    let mut parts = Parts::new(GRANT);
    let key = |parts: &mut Parts, plugin: &str| match parts
        .view()
        .plugin_calls()
        .check_model_budget(&plugin.into())
    {
        Ok(()) => String::new(),
        Err(ModelRefusal::Error(ModelError::BudgetExhausted { what })) => what,
        Err(unasked) => panic!("{unasked:?}"),
    };
    parts.models.model_calls = vec![model_call("chat", 0, 600), model_call("chat", 1, 399)];
    assert_eq!(key(&mut parts, "chat"), "");
    parts.models.model_calls.push(model_call("chat", 2, 1));
    assert_eq!(key(&mut parts, "chat"), "plugins.chat.grants.model.tokens");
    assert_eq!(key(&mut parts, "worker"), "");
    parts.budgets.used_by(&"chat".into()).model_calls = 2;
    assert_eq!(key(&mut parts, "chat"), "plugins.chat.grants.model.calls");
    // The run's own budget comes before any grant.
    parts.cx.opening.limits.model_calls = Some(0);
    let unasked = parts.view().plugin_calls().check_model_budget(&"chat".into());
    assert!(matches!(
        unasked,
        Err(ModelRefusal::Short(BudgetShortage { budget: Budget::ModelCalls, .. }))
    ));
}

#[test]
fn a_stop_of_the_host_costs_each_prompt_and_gives_up_what_nobody_awaits() {
    let mut parts = Parts::new("");
    parts.models.model_calls = vec![model_call("chat", 0, 50), model_call("chat", 1, 50)];
    parts.budgets.reserved = Spent { tokens: 100, ..Spent::default() };
    parts.view().plugin_calls().forget_model_calls(CallId(0));
    parts.budgets.charge_lost_attempts(&mut parts.cx, &mut parts.models);
    let calls: Vec<CallId> =
        parts.models.model_calls.iter().map(|model_call| model_call.call).collect();
    assert_eq!((calls, parts.budgets.reserved.tokens), (vec![CallId(1)], 50));
    // Two prompts of 10 tokens, at the price of a prompt.
    assert_eq!((parts.budgets.spent.tokens, parts.budgets.spent.cost_micro_usd), (20, 20));
    assert_eq!(parts.cx.take_notices().len(), 2);
    parts.budgets.give_up_model_calls(&mut parts.cx, &mut parts.models);
    assert_eq!((parts.budgets.reserved, parts.budgets.spent.tokens), (Spent::default(), 30));
}

#[test]
fn a_request_whose_model_was_not_available_costs_nothing_once() {
    let mut parts = Parts::new("");
    parts.models.model_calls = vec![model_call("chat", 0, 50)];
    let reason = || "no server answers".to_owned();
    parts.models.model_unavailable(&mut parts.cx, (CallId(7), 0), reason());
    assert!(parts.cx.take_notices().is_empty(), "no such request");
    parts.models.model_unavailable(&mut parts.cx, (CallId(0), 0), reason());
    let notices = parts.cx.take_notices();
    let [Notice::AttemptLost { input_tokens: 0, reason: Some(why), .. }] = &notices[..] else {
        panic!("{notices:?}")
    };
    assert_eq!(*why, reason());
    parts.budgets.charge_lost_attempts(&mut parts.cx, &mut parts.models);
    assert_eq!((parts.budgets.spent.tokens, parts.models.model_calls.len()), (0, 1));
    // The request is sent again, and a later stop may lose it.
    parts.budgets.charge_lost_attempts(&mut parts.cx, &mut parts.models);
    assert_eq!(parts.budgets.spent.tokens, 10);
}

#[test]
fn a_left_run_that_is_stopped_pays_nothing_for_its_missing_model() {
    let mut parts = Parts::new("");
    parts.models.model_calls = vec![model_call("chat", 0, 50)];
    parts.budgets.reserved = Spent { tokens: 50, ..Spent::default() };
    let reason = "no server answers".to_owned();
    parts.models.model_unavailable(&mut parts.cx, (CallId(0), 0), reason);
    parts.budgets.give_up_model_calls(&mut parts.cx, &mut parts.models);
    assert_eq!((parts.budgets.reserved, parts.budgets.spent.tokens), (Spent::default(), 0));
}

#[test]
fn the_tighter_of_the_turns_of_run_and_task_remains() {
    let mut parts = Parts::new("");
    let id = parts.begin("desk", None);
    parts.cx.opening.deadline = Some(crate::types::ids::Millis(1_500));
    let mut remaining = |limit, spent, of_task| {
        parts.cx.opening.limits.turns = limit;
        parts.budgets.spent.turns = spent;
        let frame = parts.frames.get_mut(&id).unwrap();
        frame.set_steps(of_task, 3);
        let frame = parts.frames.get(&id).unwrap();
        parts.budgets.remaining(&parts.cx, frame)
    };
    assert_eq!(remaining(None, 5, None).turns, None);
    assert_eq!(remaining(Some(10), 5, None).turns, Some(5));
    assert_eq!(remaining(Some(10), 5, Some(7)).turns, Some(4));
    assert_eq!(remaining(Some(10), 8, Some(7)).turns, Some(2));
    assert_eq!(remaining(Some(10), 11, Some(2)).turns, Some(0));
    assert_eq!(remaining(None, 0, None).wall_ms, Some(500));
}

#[test]
fn a_child_gets_half_of_the_rest_or_its_own_amount_but_never_more_than_the_rest() {
    let mut parts = Parts::new("");
    parts.cx.opening.limits.tokens = Some(100);
    parts.cx.opening.limits.tasks = Some(5);
    parts.budgets.spent = Spent { tokens: 20, ..Spent::default() };
    parts.budgets.reserved = Spent { tokens: 20, ..Spent::default() };
    let mut share = |own| {
        let budget = &mut parts.cx.task_mut("digest").budget;
        (budget.tokens, budget.tasks, budget.model_calls) = (own, own, own);
        let share = parts.view().share_of(&"digest".into());
        (share.tokens, share.tasks, share.model_calls)
    };
    // The child is one of the five tasks.
    assert_eq!(share(None), (Some(30), Some(2), None));
    assert_eq!(share(Some(3)), (Some(3), Some(3), Some(3)));
    assert_eq!(share(Some(61)), (Some(60), Some(4), Some(61)));
}

#[test]
fn a_budget_is_overspent_past_its_limit_not_at_it() {
    let mut parts = Parts::new("");
    let limits = &mut parts.cx.opening.limits;
    (limits.tokens, limits.cpu_ms, limits.history) = (Some(10), Some(20), Some(1_000_000));
    let overspent =
        |parts: &Parts| parts.budgets.overspent(&parts.cx, &parts.frames, &parts.histories);
    parts.budgets.spent.tokens = 10;
    parts.budgets.count_cpu(2);
    assert_eq!(overspent(&parts), None);
    parts.budgets.count_cpu(1);
    assert_eq!(overspent(&parts), Some((Budget::Cpu, 30)));
    parts.budgets.spent.tokens = 11;
    assert_eq!(overspent(&parts), Some((Budget::Tokens, 11)), "the first of them");
    // What a history holds counts like an amount.
    parts.budgets.spent = Spent::default();
    let message = fixture::message(0, Role::Llm, "a word");
    parts.histories.memory(&parts.cx, &"desk".into()).push(&message.into());
    let bytes = parts.histories.held_bytes(&parts.frames);
    for (limit, expected) in [(bytes, None), (bytes - 1, Some((Budget::History, bytes)))] {
        parts.cx.opening.limits.history = Some(limit);
        assert_eq!(overspent(&parts), expected);
    }
}

#[test]
fn more_is_asked_for_once_and_by_the_root_room_only() {
    let mut parts = Parts::new("");
    let limits = &mut parts.cx.opening.limits;
    (limits.model_calls, limits.when_used_up) = (Some(4), WhenUsedUp::Ask);
    let waits = |parts: &mut Parts| parts.view().plugin_calls().must_wait_for(Budget::ModelCalls);
    parts.budgets.spent.model_calls = 3;
    assert_eq!(waits(&mut parts), Ok(false));
    parts.budgets.spent.model_calls = 4;
    assert_eq!([waits(&mut parts), waits(&mut parts)], [Ok(true), Ok(true)]);
    let effects = parts.cx.take_effects();
    let [Effect::AskTopUp { call, top_up }] = effects.as_slice() else { panic!("{effects:?}") };
    assert_eq!((top_up.used, top_up.limit, top_up.proposed), (4, 4, 2));
    // While it is open, all work waits; once it is dropped, a child room cannot ask.
    parts.budgets.drop_top_up(&mut parts.cx);
    assert_eq!(parts.cx.take_effects(), [Effect::AbandonCall { call: *call }]);
    parts.cx.opening.depth = 1;
    assert_eq!(waits(&mut parts), Err(Budget::ModelCalls));
}

proptest! {
    #[test]
    fn money_buys_as_many_tokens_as_it_pays_for(
        price in 1_u64..10_000_000,
        money in 0_u64..10_000_000,
    ) {
        let setup = ModelSetup {
            input_price: Some(0),
            output_price: Some(price),
            ..ModelSetup::default()
        };
        let tokens = affordable(&setup, money);
        prop_assert!(cost_of(&setup, 0, tokens).unwrap() <= money);
        prop_assert!(cost_of(&setup, 0, tokens + 1).unwrap() > money);
    }
}
