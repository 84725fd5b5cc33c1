"""The decisions and the context of a delivery strategy."""

import pytest

from conclave_sdk import scratch
from conclave_sdk.delivery import (
    Activity,
    Channel,
    ChannelIdle,
    ChannelKind,
    Deliver,
    EndedTask,
    SendFailed,
    TaskEnded,
    Timer,
    Waited,
    backoff,
    deliver,
    due,
    move_to_inbox,
    wait,
    worded,
)
from conclave_sdk.testing import FakeHost, RoomSnapshot

TEXT, VOICE = Channel("terminal"), Channel("phone", ChannelKind.VOICE)


@pytest.mark.parametrize(
    ("channels", "preferred"),
    [
        ([TEXT, VOICE], VOICE),
        ([TEXT, Channel("phone", ChannelKind.VOICE, Activity.IDLE, muted=True)], TEXT),
        ([Channel("desk", ChannelKind.AGENT)], None),
    ],
)
def test_voice_is_the_best_and_muted_ones_and_agents_are_none(
    channels: list[Channel], preferred: Channel | None
) -> None:
    assert RoomSnapshot(channels=channels).context.preferred_channel == preferred


def test_pauses_double_and_end() -> None:
    assert [backoff(n) for n in (0, 1, 2, 3, 4)] == [1_000, 1_000, 2_000, 4_000, None]


def test_what_failed_waits_for_its_time_and_the_rest_does_not_wait_for_it() -> None:
    attempts = {"a": 2, "b": 0, "c": 4, "d": 3}
    waiting = [EndedTask(name, attempts=count) for name, count in attempts.items()]
    failed = due(SendFailed("busy"), waiting)
    assert (failed.now, failed.rest) == (["b"], [move_to_inbox(["c"]), wait(2_000)])
    for wake in (Timer(), ChannelIdle("phone")):
        assert due(wake, waiting).now == ["a", "b", "d"]
    ended = due(TaskEnded("b"), waiting)
    assert (ended.now, ended.rest) == (["b"], [move_to_inbox(["c"])])


def test_words_stand_in_messages_that_have_none() -> None:
    own = deliver(["b"], prompt="mine", channel=VOICE)
    decisions = worded([deliver([EndedTask("a")]), own, wait(1)], "ready")
    assert decisions == [Deliver(["a"], None, "ready"), Deliver(["b"], "phone", "mine"), wait(1)]
    assert worded([deliver(["a"])], "") == [deliver(["a"])]


def test_the_waiting_time_is_that_of_the_oldest_result() -> None:
    a, b = EndedTask("a"), EndedTask("b")
    with FakeHost():
        times = []
        for waiting, now in [([a, b], 1_000), ([a, b], 1_400), ([b], 1_500), ([], 9_000)]:
            waited = scratch.get(Waited) or Waited()
            times.append(waited.ms(waiting, now))
            scratch.set(waited)
    assert times == [0, 400, 0, 0]
