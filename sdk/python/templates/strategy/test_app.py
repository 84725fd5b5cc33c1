from conclave_sdk.delivery import (
    Activity,
    Channel,
    ChannelKind,
    EndedTask,
    TaskEnded,
    deliver,
    wait_for,
)
from conclave_sdk.testing import RoomSnapshot

from app import WhenIdle


def decided(activity):
    phone = Channel("phone", ChannelKind.VOICE, activity)
    room = RoomSnapshot([EndedTask("task-1")], [phone])
    return WhenIdle().decide(TaskEnded("task-1"), room.context)


def test_it_waits_while_the_user_speaks():
    assert decided(Activity.USER_SPEAKING) == [wait_for("phone", 10_000)]
    assert decided(Activity.IDLE) == [deliver(["task-1"])]
