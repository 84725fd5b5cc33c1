from conclave_sdk.delivery import Activity
from conclave_sdk.harness import Harness

from app import WhenIdle


def test_it_waits_for_the_user_and_for_the_phone():
    report = (
        Harness(WhenIdle)
        .voice("phone", says_ms=2_000)  # busy for 2 s with each message
        .activity("phone", Activity.USER_SPEAKING)
        .at(300)
        .completes("task-1", "48 metres")
        .at(900)
        .refuses("phone", 1)  # the next message is not accepted
        .at(5_000)
        .activity("phone", Activity.IDLE)
        .run()
    )
    report.check()
    assert report.delivered_at("task-1") == 6_000
