//! Properties of rooms whose tools call other tools: whatever the order of calls, approvals,
//! refusals, answers and stops, no call is asked twice, each is answered once, and a resumption
//! after any record repeats none.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use conclave_core::journal::recovery::{Restart, Resumption, Unfinished};
use conclave_core::protocol::effect::Effect;
use conclave_core::protocol::event::{Event, Record};
use conclave_core::protocol::notice::Notice;
use conclave_core::room::Room;
use conclave_core::types::ids::{CallId, Millis};
use conclave_core::types::tool::{NestedAnswer, NestedCall};
use proptest::collection::vec;
use proptest::prelude::{ProptestConfig, any, prop_assert, prop_assert_eq, proptest};
use proptest::sample::Index;
use serde_json::Value;

use crate::arbitrary::{Choices, answers, continued, nesting_case};
use crate::case::START;
use crate::checks::{changes_when_told_again, violations};
use crate::properties::{Recorded, answered_case};

const LATER: Millis = Millis(START.0 + 1_000_000);
/// Records after which a room that does not end is a failure.
const MOST: usize = 20_000;

/// A request of nested calls, by its call and its number in it.
type RequestKey = (CallId, u32);

/// The account of the calls of a room that is folded anew.
#[derive(Default)]
struct CallAccount {
    room: Room,
    started: BTreeSet<CallId>,
    /// Requests without an answer, of calls in flight.
    open: BTreeMap<RequestKey, Vec<NestedCall>>,
    answered: BTreeMap<RequestKey, Vec<NestedAnswer>>,
    /// Nested calls that were started, with the call that made them.
    nested: BTreeMap<CallId, CallId>,
    /// The arguments of nested calls whose tool was started, or that were shown to an approver.
    run: BTreeSet<String>,
    approval_ids: BTreeSet<String>,
    /// Calls with an `AbandonCall` effect.
    abandoned: BTreeSet<CallId>,
    wrong: Vec<String>,
}

impl CallAccount {
    fn of(records: &[Record]) -> Self {
        let mut account = Self::default();
        records.iter().for_each(|record| account.take(record));
        account
    }

    fn take(&mut self, Record { event, at, .. }: &Record) {
        if let Event::ToolsAsked { call, ordinal, calls } = event
            && self.room.is_in_flight(*call)
        {
            self.open.insert((*call, *ordinal), calls.clone());
        }
        self.room.handle(event.clone(), *at);
        while let Some(notice) = self.room.poll_notice() {
            if let Notice::ToolCalled { call, within: Some(parent), .. } = notice {
                self.nested.insert(call, parent);
            }
        }
        while let Some(effect) = self.room.poll_effect() {
            self.perform(effect);
        }
        let room = &self.room;
        self.open.retain(|(call, _), _| room.is_in_flight(*call));
    }

    fn perform(&mut self, effect: Effect) {
        let mut must = |holds: bool, what: String| {
            if !holds {
                self.wrong.push(what);
            }
        };
        if let Some(call) = effect.starts() {
            must(self.started.insert(call), format!("call {call} is started twice"));
        }
        match effect {
            Effect::CallTool { arguments, .. } => {
                if let Some(id) = nested_id(&arguments) {
                    must(self.run.insert(id.clone()), format!("nested call {id} runs twice"));
                }
            }
            Effect::AskApproval { request, .. } => {
                if let Some(id) = nested_id(&request.arguments) {
                    must(
                        self.approval_ids.insert(id.clone()),
                        format!("{id} is asked about twice"),
                    );
                }
            }
            Effect::AnswerTools { call, ordinal, answers } => {
                let key = (call, ordinal);
                must(!self.abandoned.contains(&call), format!("{key:?} is of an abandoned call"));
                let calls = self.open.remove(&key);
                let count = calls.map(|calls| calls.len());
                must(
                    count == Some(answers.len()),
                    format!("{key:?} asked for {count:?} calls, and has {} answers", answers.len()),
                );
                let mut under_way = self.nested.iter().filter(|(_, parent)| **parent == call);
                let running = under_way.find(|(nested, _)| self.room.is_in_flight(**nested));
                must(running.is_none(), format!("{key:?} is answered before {running:?}"));
                let before = self.answered.insert(key, answers);
                must(before.is_none(), format!("{key:?} is answered twice"));
            }
            Effect::AbandonCall { call } => drop(self.abandoned.insert(call)),
            _ => {}
        }
    }
}

/// Returns the id that the generator gave a nested call.
fn nested_id(arguments: &Value) -> Option<String> {
    arguments.get("nested")?.as_str().map(str::to_owned)
}

/// Returns the violated properties of a resumption after these records.
fn wrong_in_resumption(records: &[Record]) -> Vec<String> {
    let account = CallAccount::of(records);
    let unfinished = Unfinished::fold(records.to_vec());
    let mut wrong = Vec::new();
    let mut must = |holds: bool, what: String| {
        if !holds {
            wrong.push(what);
        }
    };
    must(unfinished.room == account.room, "the fold is another room".to_owned());
    let Resumption { events, restarts, .. } = unfinished.resumption(LATER, unfinished.room.setup());
    let mut again_started = BTreeSet::new();
    for Restart { effect, trace, .. } in &restarts {
        let Some(call) = effect.starts() else { continue };
        must(again_started.insert(call), format!("call {call} is started again twice"));
        must(account.room.is_in_flight(call), format!("call {call} is over, and starts again"));
        must(account.started.contains(&call), format!("call {call} was never started"));
        // The tool makes its calls again, and each request must meet its answer in the log.
        for (ordinal, entry) in &trace.tools {
            let key = (call, *ordinal);
            must(
                entry.answer.as_ref() == account.answered.get(&key),
                format!("the log of {key:?} has another answer"),
            );
            let is_known = account.open.get(&key) == Some(&entry.request) || entry.answer.is_some();
            must(is_known, format!("the log has the request {key:?}, which nothing answers"));
        }
        let of_call = |key: &&RequestKey| key.0 == call;
        let count = account.open.keys().chain(account.answered.keys()).filter(of_call).count();
        must(count == trace.tools.len(), format!("the log of {call} lacks requests"));
    }
    let mut room = unfinished.room;
    for event in events {
        room.handle(event, LATER);
    }
    for call in std::iter::from_fn(|| room.poll_effect()).filter_map(|effect| effect.starts()) {
        must(!account.started.contains(&call), format!("call {call} is repeated"));
    }
    wrong
}

/// Resumes a room after these records and answers its calls until it ends. A tool that starts again
/// makes no request that its log has.
fn resumed(before: &[Record], choices: &mut Choices<'_>) -> Recorded {
    let unfinished = Unfinished::fold(before.to_vec());
    let Resumption { events, restarts, .. } = unfinished.resumption(LATER, unfinished.room.setup());
    let records = before.to_vec();
    let mut recorded = Recorded { room: unfinished.room, records, ..Recorded::default() };
    for event in events.into_iter().chain([Event::Unpaused]) {
        recorded.handle(event, LATER);
    }
    let mut to_do: VecDeque<Effect> = VecDeque::new();
    for Restart { effect, trace, .. } in restarts {
        match (&effect, trace.tools.last_key_value()) {
            // It waits for the answer, which is an effect of the room.
            (_, Some((_, asked))) if asked.answer.is_none() => {}
            (Effect::CallTool { call, .. }, Some((ordinal, _))) => {
                for event in continued(choices, *call, ordinal + 1) {
                    recorded.handle(event, LATER);
                }
            }
            _ => to_do.push_back(effect),
        }
    }
    to_do.extend(recorded.take_effects());
    while let Some(effect) = to_do.pop_front() {
        assert!(recorded.records.len() < MOST, "the room goes on for ever");
        if !choices.are_over() && choices.below(3) == 0 && !to_do.is_empty() {
            to_do.push_back(effect);
            continue;
        }
        for event in answers(choices, &effect) {
            recorded.handle(event, LATER.plus(recorded.records.len() as u64));
            to_do.extend(recorded.take_effects());
        }
    }
    recorded
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 200, ..crate::properties::config() })]

    #[test]
    fn nested_calls_are_asked_once_and_answered_once_in_any_order(row in vec(any::<u16>(), 0..600)) {
        let mut choices = Choices::nesting(&row);
        let case = nesting_case(&mut choices);
        let recorded = answered_case(&case, &mut choices, MOST);
        prop_assert!(recorded.room.outcome().is_some(), "it waits for {:?}", recorded.room.calls_in_flight().collect::<Vec<_>>());
        prop_assert_eq!(violations(&recorded.room, &recorded.records), Vec::<String>::new());
        prop_assert_eq!(changes_when_told_again(&recorded.room, &recorded.records), None);
        prop_assert_eq!(CallAccount::of(&recorded.records).wrong, Vec::<String>::new());
    }

    #[test]
    fn a_resumption_after_any_record_repeats_no_nested_call(row in vec(any::<u16>(), 0..250)) {
        let mut choices = Choices::nesting(&row);
        let case = nesting_case(&mut choices);
        let records = answered_case(&case, &mut choices, MOST).records;
        // The account of a prefix costs its length, so a long room is cut at fewer places.
        let step = 1 + records.len() / 40;
        for cut in (1..records.len()).step_by(step) {
            prop_assert_eq!(wrong_in_resumption(&records[..cut]), Vec::<String>::new(), "after {} records", cut);
        }
    }

    #[test]
    fn a_room_with_nested_calls_that_is_cut_off_anywhere_goes_on_and_ends(row in vec(any::<u16>(), 0..400), cut in any::<Index>()) {
        let mut choices = Choices::nesting(&row);
        let case = nesting_case(&mut choices);
        let full_run = answered_case(&case, &mut choices, MOST);
        let before = &full_run.records[..1 + cut.index(full_run.records.len())];
        if Unfinished::fold(before.to_vec()).room.outcome().is_some() {
            return Ok(());
        }
        let recorded = resumed(before, &mut Choices::nesting(&row));
        prop_assert!(recorded.room.outcome().is_some(), "it waits for {:?}", recorded.room.calls_in_flight().collect::<Vec<_>>());
        prop_assert_eq!(violations(&recorded.room, &recorded.records), Vec::<String>::new());
        prop_assert_eq!(CallAccount::of(&recorded.records).wrong, Vec::<String>::new());
    }
}
