from conclave_sdk.observer import ObservedEvent
from conclave_sdk.testing import FakeHost

from app import Diary


def test_only_ends_of_tasks_are_logged():
    with FakeHost() as host:
        Diary().observe(
            [
                ObservedEvent("3f2a91c0", 16, 0, 0, "task-started", "desk"),
                ObservedEvent("3f2a91c0", 17, 0, 0, "task-ended", "desk"),
            ]
        )
    assert host.logged == ["info: desk ended (3f2a91c0:17.0)"]
