//! Tests that the harness finds mistakes: for each guarantee a strategy that breaks only this one,
//! and a strategy that keeps them all.
#![expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::cell::Cell;

use conclave_harness::{Answer, Guarantee, Harness, Script, play};
use conclave_sdk::delivery::{
    Activity, ChannelKind, Context, Decision, DeliveryMessage, TaskStatus, Wake, deliver,
    deliver_on, due, give_up, interrupt, move_to_inbox, wait, wait_for,
};
use conclave_sdk::{Error, Result, scratch};

fn ids(context: &Context) -> Vec<String> {
    context.pending_results().into_iter().map(|ended| ended.task_id).collect()
}

/// Speaks about all due results when no user is speaking.
fn polite(wake: Wake, context: &Context) -> Result<Vec<Decision>> {
    let Some(channel) = context.preferred_channel() else {
        return Ok(vec![move_to_inbox(ids(context))]);
    };
    if channel.activity != Activity::Idle {
        return Ok(vec![wait_for(channel.id, 10_000)]);
    }
    let due = due(&wake, &context.pending_results());
    let message = (!due.now.is_empty()).then(|| deliver(due.now));
    Ok(message.into_iter().chain(due.rest).collect())
}

/// Returns a harness with a phone that refuses messages for a moment, a user who speaks for a
/// while, and two results, one of them a failure.
fn phone<F: Fn(Wake, &Context<'_>) -> Result<Vec<Decision>>>(decide: F) -> Harness<F> {
    Harness::new(decide)
        .voice("phone", 2_000)
        .at(0)
        .completes("a", "48 m")
        .at(500)
        .ends("b", TaskStatus::Failed, "no disk")
        .at(2_500)
        .activity("phone", Activity::UserSpeaking)
        .at(3_000)
        .completes("c", "1844")
        .refuses("phone", 2)
        .at(9_000)
        .activity("phone", Activity::Idle)
}

#[test]
fn a_good_strategy_breaks_nothing() {
    let report = phone(polite).run();
    report.check().unwrap();
    let delivered: Vec<_> =
        report.delivered.iter().map(|message| (message.at, message.tasks.join("+"))).collect();
    assert_eq!(
        delivered,
        [(0, "a".to_owned()), (2_000, "b".to_owned()), (12_000, "c".to_owned())],
        "two refusals: one second, then two"
    );
    assert!(report.inbox.is_empty() && report.pending.is_empty());
    phone(polite).at(9_000).crashes(60_000).run().check().unwrap();
    phone(polite).at(100).leaves("phone").run().check().unwrap();
    phone(polite).at(100).mutes("phone").at(8_000).unmutes("phone").run().check().unwrap();
    Harness::new(polite)
        .channel("terminal", ChannelKind::Text)
        .at(5)
        .burst("task", 300)
        .run()
        .check()
        .unwrap();
}

/// As on the host: a strategy is not woken by a channel that it does not wait for.
#[test]
fn a_channel_wakes_only_a_strategy_that_waits_for_it() {
    let hopeful = |_: Wake, context: &Context| {
        let is_idle =
            context.preferred_channel().is_some_and(|channel| channel.activity == Activity::Idle);
        Ok(if is_idle { vec![deliver(ids(context))] } else { Vec::new() })
    };
    let busy = |decide| {
        Harness::new(decide)
            .channel("phone", ChannelKind::Voice)
            .activity("phone", Activity::Speaking)
            .completes("a", "")
    };
    let report = busy(hopeful as fn(Wake, &Context<'_>) -> Result<Vec<Decision>>)
        .at(500)
        .activity("phone", Activity::Idle)
        .run();
    assert!(report.check().unwrap_err().is(Guarantee::NothingLost) && report.pending == ["a"]);
    let report = busy(polite).at(500).activity("phone", Activity::Idle).run();
    report.check().unwrap();
    assert_eq!(report.delivered_at("a"), Some(500));
}

/// The waits of an answer replace the earlier ones, and an answer without a wait leaves them.
#[test]
fn the_newest_wait_holds() {
    let pauses = |pauses: [&'static [u64]; 3]| {
        move |wake: Wake, context: &Context| {
            if wake == Wake::Timer {
                return Ok(vec![move_to_inbox(ids(context))]);
            }
            let pauses = pauses[context.pending_results().len() - 1];
            Ok(pauses.iter().map(|ms| wait(*ms)).collect())
        }
    };
    let inbox_at = |three: [&'static [u64]; 3]| {
        let report = Harness::new(pauses(three))
            .completes("a", "")
            .at(10)
            .completes("b", "")
            .at(20)
            .completes("c", "")
            .run();
        report.inbox["a"].at
    };
    assert_eq!(inbox_at([&[100], &[], &[]]), 100);
    assert_eq!(inbox_at([&[100], &[900, 500], &[]]), 510);
    assert_eq!(inbox_at([&[900], &[700], &[50]]), 70);
}

#[track_caller]
fn breaks_only(
    guarantee: Guarantee,
    decide: impl Fn(Wake, &Context<'_>) -> Result<Vec<Decision>>,
) -> String {
    let report = phone(decide).run();
    let broken = report.check().unwrap_err();
    assert!(broken.is(guarantee), "{broken}");
    report.check_but(&[guarantee]).unwrap();
    broken.to_string()
}

#[test]
fn silence_loses_results() {
    let breach = breaks_only(Guarantee::NothingLost, |_, _| Ok(Vec::new()));
    assert!(
        breach.contains("a (and 2 more) still waits, and nothing will wake the strategy again"),
        "{breach}"
    );
    let breach = breaks_only(Guarantee::NothingLost, |_, _| Ok(vec![wait(60_000)]));
    assert!(breach.contains("still waits, though the script is long over"), "{breach}");
}

#[test]
fn errors_and_panics_leave_all_in_the_inbox() {
    let breach = breaks_only(Guarantee::Answers, |_, _| Err(Error::other("no idea")));
    assert!(breach.contains("no idea"), "{breach}");
    let report = phone(|_, _| panic!("lost my head")).run();
    assert_eq!(report.inbox.len(), 3, "{report:?}");
    assert!(report.check().unwrap_err().is(Guarantee::Answers));
}

#[test]
fn each_result_is_decided_about_once() {
    let breach = breaks_only(Guarantee::DecidesOnce, |_, context| {
        Ok(vec![move_to_inbox(ids(context)), move_to_inbox(["a"])])
    });
    assert!(breach.contains("it decides about a a second time"), "{breach}");
}

#[test]
fn there_must_be_such_a_task() {
    let breach = breaks_only(Guarantee::OnlyPendingResults, |_, context| {
        Ok(vec![move_to_inbox(ids(context)), move_to_inbox(["z"])])
    });
    assert!(breach.contains("\"z\", and there is no such task"), "{breach}");
}

#[test]
fn a_foreign_channel_is_not_spoken_on() {
    let breach = breaks_only(Guarantee::OnlyItsChannels, |_, context| {
        Ok(vec![deliver_on("vault", ids(context))])
    });
    assert!(breach.contains("\"vault\", which is muted or was not offered"), "{breach}");
    // As on the host, that is a refusal, and the result is in the inbox.
    let report = Harness::new(|_, context| Ok(vec![deliver(ids(context))]))
        .at(0)
        .completes("a", "48 m")
        .run();
    assert!(
        report.check().unwrap_err().is(Guarantee::OnlyItsChannels)
            && report.inbox.contains_key("a")
    );
    let muted = |_, context: &Context| Ok(vec![deliver_on("phone", ids(context))]);
    let report = Harness::new(muted)
        .channel("phone", ChannelKind::Voice)
        .at(0)
        .mutes("phone")
        .completes("a", "48 m")
        .run();
    assert!(report.check().unwrap_err().is(Guarantee::OnlyItsChannels));
}

#[test]
fn nobody_speaks_over_a_user() {
    let rude = |wake: Wake, context: &Context| {
        let due = due(&wake, &context.pending_results());
        let message = (!due.now.is_empty()).then(|| deliver(due.now));
        Ok(message.into_iter().chain(due.rest).collect())
    };
    breaks_only(Guarantee::NeverOverAUser, rude);
    let pushy = |wake: Wake, context: &Context| {
        let due = due(&wake, &context.pending_results());
        let message = (!due.now.is_empty()).then(|| interrupt("phone", due.now));
        Ok(message.into_iter().chain(due.rest).collect())
    };
    breaks_only(Guarantee::NeverOverAUser, pushy);
}

#[test]
fn a_failed_message_is_not_said_again_at_once() {
    breaks_only(Guarantee::BacksOff, |_, context| {
        let channel = context.preferred_channel().map(|channel| channel.activity);
        Ok(if channel == Some(Activity::Idle) {
            vec![deliver(ids(context))]
        } else {
            vec![wait_for("phone", 10_000)]
        })
    });
}

#[test]
fn waiting_for_a_moment_again_and_again_is_a_loop() {
    let decide = |wake: Wake, context: &Context| {
        let decided = polite(wake, context)?;
        Ok(decided
            .into_iter()
            .map(|decision| if matches!(decision, Decision::Wait(_)) { wait(10) } else { decision })
            .collect())
    };
    breaks_only(Guarantee::NotBusy, decide);
    let report = Harness::new(|_, _| Ok(vec![wait(0)])).at(0).completes("a", "").run();
    assert!(report.check().unwrap_err().is(Guarantee::NotBusy), "and it ends");
}

/// As on the host, where the room takes the results from it.
#[test]
fn a_play_ends_before_a_strategy_that_only_waits() {
    let script =
        r#"{"channels": [], "script": [{"do": "ends", "task": "a"}], "until": 20000000000}"#;
    let script = Script::from_json(script).unwrap();
    let report = Harness::new(|_, _| Ok(vec![wait(1_000)])).script(script).run();
    assert!(report.inbox["a"].why.contains("woken 1000 times in a row"), "{report:?}");
    assert_eq!(report.wakes.len(), 1_000);
}

#[test]
fn a_failure_is_not_reported_in_the_words_of_a_success() {
    let words = |of: fn(&conclave_sdk::delivery::EndedTask) -> String| {
        move |wake: Wake, context: &Context| {
            let waiting = context.pending_results();
            let mut decided = polite(wake, context)?;
            for decision in &mut decided {
                if let Decision::Deliver(DeliveryMessage { tasks, prompt, .. }) = decision {
                    let lines =
                        waiting.iter().filter(|ended| tasks.contains(&ended.task_id)).map(of);
                    *prompt = Some(lines.collect::<Vec<_>>().join("\n"));
                }
            }
            Ok(decided)
        }
    };
    let breach = breaks_only(
        Guarantee::ReportsFailures,
        words(|ended| format!("{} is done.", ended.worker)),
    );
    assert!(breach.contains("what it says about b would be the same"), "{breach}");
    phone(words(|ended| format!("{}: {:?}", ended.worker, ended.status))).run().check().unwrap();
    phone(words(|ended| {
        ended.output.clone().unwrap_or_else(|| format!("{} failed.", ended.worker))
    }))
    .run()
    .check()
    .unwrap();
}

#[test]
fn the_same_room_is_decided_the_same() {
    let calls = Cell::new(0_u64);
    let breach = breaks_only(Guarantee::Deterministic, move |_, context| {
        calls.set(calls.get() + 1);
        Ok(if calls.get().is_multiple_of(2) {
            vec![move_to_inbox(ids(context))]
        } else {
            vec![give_up("later")]
        })
    });
    assert!(breach.contains("asked twice"), "{breach}");
}

/// Counts must be in the scratch. Those of failed or lost answers do not count.
#[test]
fn the_scratch_is_kept_with_the_answer_and_lost_with_it() {
    let counting = |_: Wake, context: &Context| {
        let count: u32 = scratch::get()?.unwrap_or(0) + 1;
        scratch::set(&count)?;
        if count < 3 { Ok(vec![wait(1_000)]) } else { Ok(vec![move_to_inbox(ids(context))]) }
    };
    let report = Harness::new(counting).at(0).completes("a", "").run();
    report.check().unwrap();
    assert_eq!(report.inbox["a"].at, 2_000);
    let report = Harness::new(counting).at(0).crashes(5_000).completes("a", "").run();
    assert_eq!(report.inbox["a"].at, 7_000, "the first answer was lost");
    let failing = |_: Wake, _: &Context| {
        scratch::set(&1)?;
        assert_eq!(scratch::get::<u32>()?, Some(1));
        Err(Error::other("after that"))
    };
    let twice = Harness::new(failing).at(0).completes("a", "").at(1).completes("b", "").run();
    assert_eq!(twice.wakes.len(), 2);
}

#[test]
fn a_script_is_data() {
    let script = |expect: &str| {
        let text = format!(
            r#"{{"channels": [{{"id": "phone", "kind": "voice", "says_ms": 2000}}],
                "script": [{{"do": "ends", "task": "a", "output": "48 m"}}, {{"at": 500, "do": "ends", "task": "b", "status": "failed"}}],
                "expect": {expect}}}"#
        );
        Script::from_json(&text).unwrap()
    };
    Harness::new(polite)
        .script(script(r#"{"delivered": [[0, ["a"]], [2000, ["b"]]], "inbox": []}"#))
        .run()
        .check()
        .unwrap();
    let broken = Harness::new(polite)
        .script(script(r#"{"delivered": [[0, ["a", "b"]]]}"#))
        .run()
        .check()
        .unwrap_err();
    assert!(
        broken.is(Guarantee::AsExpected) && broken.to_string().contains("delivered should be"),
        "{broken}"
    );
    let broken =
        Harness::new(polite).script(script(r#"{"inbox": ["b"]}"#)).run().check().unwrap_err();
    assert!(broken.is(Guarantee::AsExpected), "{broken}");
}

#[test]
fn each_name_of_a_task_can_be_the_notified_one() {
    for name in ["worker", "Worker", "Desk", "2nd", "agent-1", "strategy"] {
        let text = format!(
            r#"{{"channels": [], "script": [{{"do": "ends", "task": "a"}}], "notify": "{name}"}}"#
        );
        let script = Script::from_json(&text).unwrap();
        let decide = move |_: Wake, context: &Context| {
            assert_eq!(context.notified_task().as_deref(), Some(name));
            Ok(vec![move_to_inbox(ids(context))])
        };
        Harness::new(decide).script(script).run().check().unwrap();
    }
}

/// The list is cut, and names each guarantee before it repeats one.
#[test]
fn a_long_list_names_each_broken_guarantee() {
    let ends = (0..30).map(|n| format!(r#"{{"at": {n}, "do": "ends", "task": "t{n}"}}"#));
    let text = format!(
        r#"{{"channels": [], "script": [{}], "expect": {{"inbox": ["z"]}}}}"#,
        ends.collect::<Vec<_>>().join(", ")
    );
    let script = Script::from_json(&text).unwrap();
    let failing = |_: Wake, _: &Context| Err(Error::other("no idea"));
    let broken = Harness::new(failing).script(script).run().check().unwrap_err();
    let list = broken.to_string();
    assert!(list.contains("as-expected (") && list.contains("more"), "{list}");
    assert_eq!(broken.breaches()[1].guarantee, Guarantee::AsExpected);
    assert!(broken.breaches().len() > 50);
}

#[test]
fn a_completed_task_has_no_error() {
    let decide = |_: Wake, context: &Context| {
        let pending = context.pending_results();
        assert!(pending.iter().all(|ended| ended.status == TaskStatus::Completed), "{pending:?}");
        assert!(pending.iter().all(|ended| ended.error.is_none()), "{pending:?}");
        Ok(vec![move_to_inbox(ids(context))])
    };
    Harness::new(decide).ends("a", TaskStatus::Completed, "odd").run().check().unwrap();
}

/// Also with a crash, each wake of the first play has one answer that the report describes.
#[test]
fn one_answer_to_each_wake_is_reported() {
    let script = r#"{"channels": [], "script": [
        {"do": "ends", "task": "a"}, {"do": "crashes", "for_ms": 500},
        {"at": 10, "do": "ends", "task": "b", "status": "failed"}
    ]}"#;
    let (mut reported, mut all) = (0, 0);
    let report = play(&Script::from_json(script).unwrap(), &mut |question| {
        all += 1;
        reported += usize::from(question.is_reported);
        Answer { decisions: Ok(Vec::new()), scratch: question.scratch.to_vec() }
    });
    assert_eq!((reported, reported < all), (report.wakes.len(), true));
}

#[test]
fn a_thousand_results_are_two_messages() {
    let report = Harness::new(polite).voice("phone", 2_000).burst("task", 1_000).run();
    report.check().unwrap();
    assert_eq!(report.delivered.len(), 2, "the first one, and all that came while it was said");
}
