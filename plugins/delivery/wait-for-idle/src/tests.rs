//! Tests of the strategy with scripts, each checked for all guarantees.

use conclave_harness::{Harness, Report, Script};
use conclave_sdk::Result;
use conclave_sdk::config::Span;
use conclave_sdk::delivery::{
    Activity, Channel, ChannelKind, Context, Decision, DeliveryStrategy, TaskStatus, Wake, wait_for,
};
use conclave_sdk::testing::ended;
use serde_json::json;

use super::{Memory, Settings, WaitForIdle, next};

fn strategy() -> Harness<impl Fn(Wake, &Context<'_>) -> Result<Vec<Decision>>> {
    Harness::new(WaitForIdle::decide)
}

#[track_caller]
fn times(report: &Report) -> Vec<(u64, String)> {
    report.check().expect("it keeps its guarantees");
    report.delivered.iter().map(|message| (message.at, message.tasks.join("+"))).collect()
}

fn at(ms: u64, tasks: &str) -> (u64, String) {
    (ms, tasks.to_owned())
}

#[test]
fn an_idle_channel_is_spoken_on_at_once() {
    let report =
        strategy().channel("terminal", ChannelKind::Text).at(40).completes("a", "48 m").run();
    assert_eq!(times(&report), [at(40, "a")]);
}

#[test]
fn a_voice_is_waited_for_and_then_a_moment_of_silence() {
    let speaking = || {
        strategy()
            .channel("phone", ChannelKind::Voice)
            .activity("phone", Activity::Speaking)
            .at(100)
            .completes("a", "48 m")
    };
    let report = speaking().at(3_000).activity("phone", Activity::Idle).run();
    assert_eq!(times(&report), [at(4_000, "a")]);
    let report = speaking()
        .config(json!({ "buffer": "0 s" }))
        .at(3_000)
        .activity("phone", Activity::Idle)
        .run();
    assert_eq!(times(&report), [at(3_000, "a")]);
    // The speech continues within the buffer, so another buffer must pass.
    let report = speaking()
        .at(3_000)
        .activity("phone", Activity::Idle)
        .at(3_500)
        .activity("phone", Activity::Generating)
        .at(5_000)
        .activity("phone", Activity::Idle)
        .run();
    assert_eq!(times(&report), [at(6_000, "a")]);
    let report = speaking()
        .at(3_000)
        .activity("phone", Activity::Idle)
        .at(3_300)
        .activity("phone", Activity::Speaking)
        .at(3_600)
        .activity("phone", Activity::Idle)
        .run();
    assert_eq!(
        times(&report),
        [at(4_600, "a")],
        "a word between, which is over when the moment is"
    );
}

#[test]
fn when_its_time_is_over_it_speaks_anyway() {
    for activity in [Activity::Speaking, Activity::Generating] {
        let report = strategy()
            .channel("phone", ChannelKind::Voice)
            .activity("phone", activity)
            .at(100)
            .completes("a", "48 m")
            .run();
        assert_eq!(times(&report), [at(15_100, "a")], "{activity:?}");
        assert!(!report.delivered[0].interrupted);
    }
    let report = strategy()
        .config(json!({ "max_wait": "2 s" }))
        .channel("phone", ChannelKind::Voice)
        .activity("phone", Activity::Speaking)
        .completes("a", "48 m")
        .run();
    assert_eq!(times(&report), [at(2_000, "a")]);
}

#[test]
fn it_interrupts_a_voice_and_never_a_user() {
    let interrupting =
        || strategy().config(json!({ "interrupt": true })).channel("phone", ChannelKind::Voice);
    let report =
        interrupting().activity("phone", Activity::Speaking).at(100).completes("a", "48 m").run();
    assert_eq!((times(&report), report.delivered[0].interrupted), (vec![at(100, "a")], true));
    let report = interrupting()
        .activity("phone", Activity::UserSpeaking)
        .at(100)
        .completes("a", "48 m")
        .at(40_000)
        .activity("phone", Activity::Idle)
        .run();
    assert_eq!(
        (times(&report), report.delivered[0].interrupted),
        (vec![at(41_000, "a")], false),
        "long after its time"
    );
}

#[test]
fn a_user_who_speaks_for_ever_finds_the_result_in_the_agents_next_turn() {
    let report = strategy()
        .channel("phone", ChannelKind::Voice)
        .activity("phone", Activity::UserSpeaking)
        .completes("a", "48 m")
        .run();
    assert!(times(&report).is_empty() && report.inbox["a"].at >= 600_000, "{report:?}");
}

#[test]
fn barge_in_while_it_waits() {
    let report = strategy()
        .channel("phone", ChannelKind::Voice)
        .activity("phone", Activity::Speaking)
        .completes("a", "48 m")
        .at(14_900)
        .activity("phone", Activity::UserSpeaking)
        .at(20_000)
        .activity("phone", Activity::Generating)
        .at(20_500)
        .activity("phone", Activity::Idle)
        .run();
    assert_eq!(
        times(&report),
        [at(21_500, "a")],
        "its time was over, and a user is waited for until all is quiet"
    );
}

#[test]
fn results_that_come_later_have_their_own_time() {
    let report = strategy()
        .channel("phone", ChannelKind::Voice)
        .activity("phone", Activity::Speaking)
        .completes("a", "48 m")
        .at(16_000)
        .completes("b", "1844")
        .run();
    assert_eq!(times(&report), [at(15_000, "a"), at(31_000, "b")]);
}

#[test]
fn text_is_waited_for_unless_only_voices_are() {
    let generating = |settings| {
        strategy()
            .config(settings)
            .channel("terminal", ChannelKind::Text)
            .activity("terminal", Activity::Generating)
            .completes("a", "48 m")
            .at(2_000)
            .activity("terminal", Activity::Idle)
            .run()
    };
    assert_eq!(times(&generating(json!({}))), [at(3_000, "a")]);
    assert_eq!(times(&generating(json!({ "channels": "voice" }))), [at(0, "a")]);
}

#[test]
fn a_voice_that_refuses_is_tried_later() {
    let report = strategy()
        .voice("phone", 2_000)
        .refuses("phone", 2)
        .completes("a", "48 m")
        .at(100)
        .completes("b", "1844")
        .run();
    times(&report);
    assert!(
        report.delivered_at("a") >= Some(1_000) && report.delivered_at("b") >= Some(1_000),
        "{report:?}"
    );
    let report = strategy().voice("phone", 2_000).refuses("phone", 99).completes("a", "48 m").run();
    assert_eq!((times(&report).len(), report.inbox.len()), (0, 1));
}

#[test]
fn many_at_once_each_alone_and_a_crash() {
    let report = strategy().voice("phone", 300).at(5).burst("task", 1_000).run();
    let messages = times(&report);
    assert_eq!(
        (messages.len(), report.delivered[1].tasks.len()),
        (2, 999),
        "what came while it spoke is one turn"
    );
    let report = strategy()
        .voice("phone", 300)
        .completes("a", "48 m")
        .at(100)
        .crashes(30_000)
        .ends("b", TaskStatus::Failed, "no disk")
        .at(200)
        .completes("c", "1844")
        .run();
    assert_eq!(times(&report).len(), 2);
}

#[test]
fn a_channel_that_is_muted_or_leaves_is_not_waited_for() {
    let speaking = || {
        strategy()
            .channel("phone", ChannelKind::Voice)
            .activity("phone", Activity::Speaking)
            .completes("a", "48 m")
    };
    let report = speaking().at(1_000).leaves("phone").run();
    assert!(times(&report).is_empty() && report.inbox.contains_key("a"));
    let report = speaking().channel("terminal", ChannelKind::Text).at(1_000).mutes("phone").run();
    assert_eq!(times(&report).len(), 1);
    assert_eq!(report.delivered[0].channel, "terminal");
}

#[test]
fn cases_are_data() {
    for case in include_str!("cases.jsonl").lines() {
        let script = Script::from_json(case).unwrap_or_else(|error| panic!("{case}\n{error}"));
        strategy().script(script).run().check().unwrap_or_else(|broken| panic!("{case}\n{broken}"));
    }
}

#[test]
fn settings_that_make_no_sense_are_refused_with_the_key() {
    for (settings, said) in [
        (json!({ "max_wait": "15" }), "\"15\" is no time"),
        (json!({ "at-most": "15 s" }), "unknown field `at-most`"),
        (json!({ "channels": "loud" }), "unknown variant `loud`"),
    ] {
        let report = strategy()
            .config(settings)
            .channel("phone", ChannelKind::Voice)
            .completes("a", "")
            .run();
        let broken = report.check().expect_err("the settings make no sense").to_string();
        assert!(broken.contains(said), "{broken}");
    }
}

#[test]
fn no_time_at_all_does_not_wait_in_a_loop() {
    let settings =
        Settings { max_wait: Span::from_ms(0), buffer: Span::from_ms(0), ..Settings::default() };
    let phone = Channel {
        id: "phone".into(),
        kind: ChannelKind::Voice,
        activity: Activity::UserSpeaking,
        muted: false,
    };
    let (decisions, _) =
        next(&settings, &Wake::Timer, &[ended("a")], Some(phone), 5, Memory::default());
    assert_eq!(decisions, [wait_for("phone", 15_000)]);
}
