from conclave_sdk.delivery import (
    Activity,
    Channel,
    ChannelKind,
    EndedTask,
    SendFailed,
    TaskEnded,
    deliver,
    move_to_inbox,
    wait,
    wait_for,
)
from conclave_sdk.testing import RoomSnapshot

from app import WhenIdle


def decide(wake, **room):
    return WhenIdle().decide(wake, RoomSnapshot(**room).context)


def test_it_waits_for_the_user_and_for_the_phone():
    ended, result = TaskEnded("task-1"), EndedTask("task-1", output="48 metres")
    idle = Channel("phone", ChannelKind.VOICE)
    busy = Channel("phone", ChannelKind.VOICE, Activity.USER_SPEAKING)
    assert decide(ended, pending_results=[result]) == [move_to_inbox(["task-1"])]
    assert decide(ended, pending_results=[result], channels=[busy]) == [wait_for("phone", 10_000)]
    assert decide(ended, pending_results=[result], channels=[idle]) == [deliver(["task-1"])]
    failed = EndedTask("task-1", attempts=1)
    refused = decide(SendFailed("busy"), pending_results=[failed], channels=[idle])
    assert refused == [wait(1_000)]
