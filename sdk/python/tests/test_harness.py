"""The harness of delivery strategies: each guarantee is broken by a strategy that breaks it."""

import random
from typing import Any

import pytest

from conclave_sdk import scratch
from conclave_sdk.delivery import (
    Activity,
    Context,
    Decision,
    DeliveryStrategy,
    EndedTask,
    SendFailed,
    TaskEnded,
    TaskStatus,
    Timer,
    Wake,
    deliver,
    due,
    give_up,
    move_to_inbox,
    wait,
    wait_for,
)
from conclave_sdk.harness import BrokenGuarantees, Guarantee, Harness


class Polite(DeliveryStrategy):
    def decide(self, wake: Wake, context: Context) -> list[Decision]:
        channel = context.preferred_channel
        if channel is None:
            return [move_to_inbox(context.pending_results)]
        if channel.activity is not Activity.IDLE:
            return [wait_for(channel, 10_000)]
        ready = due(wake, context.pending_results)
        return [*([deliver(ready.now)] if ready.now else []), *ready.rest]


def test_a_strategy_that_keeps_its_guarantees() -> None:
    report = (
        Harness(Polite)
        .voice("phone", says_ms=2_000)
        .activity("phone", Activity.USER_SPEAKING)
        .at(300)
        .completes("task-1", "48 metres")
        .at(900)
        .refuses("phone", 1)
        .at(5_000)
        .activity("phone", Activity.IDLE)
        .run()
    )
    report.check()
    assert report.delivered_at("task-1") == 6_000
    assert [type(record.wake) for record in report.wakes[1:]].count(SendFailed) == 1


def test_after_four_refusals_a_result_is_in_the_inbox() -> None:
    report = Harness(Polite).voice("phone", 0).refuses("phone", 9).completes("a", "x").run()
    report.check()
    assert report.inbox["a"].why == "tried as often as the host tries"
    assert [record.at for record in report.wakes if isinstance(record.wake, Timer)] == [
        1_000,
        3_000,
        7_000,
    ]


def test_a_crash_asks_again() -> None:
    harness = Harness(Polite).voice("phone", 0).at(10).crashes(500).completes("a", "x")
    report = harness.run()
    report.check()
    assert report.delivered_at("a") == 510


def test_the_scratch_is_that_of_the_answers_that_count() -> None:
    class Counting(DeliveryStrategy):
        def decide(self, wake: Wake, context: Context) -> list[Decision]:
            count = (scratch.get(int) or 0) + 1
            scratch.set(count)
            return [deliver(context.pending_results)] if count == 3 else [wait(1_000)]

    report = Harness(Counting).channel("terminal").completes("a", "x").run()
    report.check()
    assert report.delivered_at("a") == 2_000


def results(context: Context) -> list[EndedTask]:
    return list(context.pending_results)


BREAKERS: list[tuple[Guarantee, Any]] = [
    (Guarantee.ANSWERS, lambda wake, context: [][1]),
    (Guarantee.NOTHING_LOST, lambda wake, context: []),
    (Guarantee.DECIDES_ONCE, lambda wake, context: [deliver(results(context)), deliver(["a"])]),
    (Guarantee.ONLY_PENDING_RESULTS, lambda wake, context: [deliver(["z"]), give_up("")]),
    (Guarantee.ONLY_ITS_CHANNELS, lambda wake, context: [deliver(["a"], channel="other")]),
    (Guarantee.NEVER_OVER_A_USER, lambda wake, context: [deliver(results(context))]),
    (Guarantee.BACKS_OFF, lambda wake, context: [deliver(results(context))]),
    (
        Guarantee.NOT_BUSY,
        lambda wake, context: (
            [wait(5)] if context.now_ms < 1_760_000_001_000 else [deliver(results(context))]
        ),
    ),
    (
        Guarantee.REPORTS_FAILURES,
        lambda wake, context: [deliver(results(context), prompt="It is ready.")],
    ),
    (
        Guarantee.DETERMINISTIC,
        lambda wake, context: [deliver(results(context), prompt=str(random.random()))],
    ),
]


@pytest.mark.parametrize(("guarantee", "decide"), BREAKERS, ids=lambda item: str(item)[:20])
def test_a_strategy_that_breaks_a_guarantee_is_named(guarantee: Guarantee, decide: Any) -> None:
    class Breaking(DeliveryStrategy):
        def decide(self, wake: Wake, context: Context) -> list[Decision]:
            answer: list[Decision] = decide(wake, context)
            return answer

    harness = Harness(Breaking).channel("terminal")
    if guarantee is Guarantee.NEVER_OVER_A_USER:
        harness.activity("terminal", Activity.USER_SPEAKING)
    if guarantee is Guarantee.BACKS_OFF:
        harness.refuses("terminal", 1)
    if guarantee is Guarantee.REPORTS_FAILURES:
        harness.ends("a", TaskStatus.FAILED, "no disk")
    else:
        harness.completes("a", "x")
    with pytest.raises(BrokenGuarantees) as raised:
        harness.run().check()
    assert guarantee in {breach.guarantee for breach in raised.value.breaches}
    assert guarantee.value in str(raised.value)


def test_wakes_of_one_moment_are_joined_in_one_play() -> None:
    class Hasty(DeliveryStrategy):
        """Counts on a wake for each result."""

        def decide(self, wake: Wake, context: Context) -> list[Decision]:
            return [deliver([wake.task_id])] if isinstance(wake, TaskEnded) else []

    report = Harness(Hasty).channel("terminal").completes("a", "x").completes("b", "y").run()
    with pytest.raises(BrokenGuarantees, match="with wakes of one moment joined"):
        report.check()
    report.check(but=(Guarantee.NOTHING_LOST,))


def test_many_results_are_two_messages() -> None:
    report = Harness(Polite).voice("phone", says_ms=2_000).burst("task", 200).run()
    report.check()
    assert len(report.delivered) == 2


SCRIPT: dict[str, Any] = {
    "channels": [{"id": "phone", "kind": "voice", "says_ms": 2_000}],
    "script": [
        {"at": 9_000, "do": "activity", "channel": "phone", "is": "idle"},
        {"at": 0, "do": "ends", "task": "a", "output": "48 m"},
        {"at": 500, "do": "ends", "task": "b", "status": "failed", "error": "no disk"},
        {"at": 600, "do": "activity", "channel": "phone", "is": "user-speaking"},
    ],
    "expect": {"delivered": [[0, ["a"]], [9_000, ["b"]]], "inbox": []},
}


def test_a_script_is_data() -> None:
    Harness(Polite).script(SCRIPT).run().check()
    wrong = {**SCRIPT, "expect": {"delivered": [[1, ["a"]]], "inbox": ["b"]}}
    report = Harness(Polite).script(wrong).run()
    assert [breach.guarantee for breach in report.breaches] == [Guarantee.AS_EXPECTED] * 2


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ({"channels": [], "script": [], "tempo": 1}, "no word `tempo`"),
        ({"channels": [{"id": "a", "kind": "smoke"}], "script": []}, "is no kind of channel"),
        ({"channels": [], "script": [{"at": 1, "do": "dances"}]}, "is no event"),
        ({"channels": [], "script": [{"do": "activity", "channel": "a", "is": "x"}]}, "activity"),
        ({"channels": [], "script": [{"do": "ends", "task": "a", "status": "won"}]}, "no status"),
        ({}, "no `channels`"),
    ],
)
def test_an_invalid_script_is_refused_with_the_valid_words(script: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Harness(Polite).script(script)


def test_channels_are_muted_and_leave() -> None:
    report = (
        Harness(Polite)
        .channel("terminal")
        .mutes("terminal")
        .completes("a", "x")
        .at(10)
        .unmutes("terminal")
        .completes("b", "x")
        .at(20)
        .activity("terminal", Activity.GENERATING)
        .completes("c", "x")
        .at(30)
        .leaves("terminal")
        .run()
    )
    report.check()
    assert list(report.inbox) == ["a", "c"]
    assert report.delivered_at("b") == 10
