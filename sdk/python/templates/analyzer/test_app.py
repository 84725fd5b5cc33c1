from conclave_sdk import act, call
from conclave_sdk.analyzer import high, low
from conclave_sdk.testing import TaskSnapshot

from app import Careful


def risk(turn):
    return Careful().assess(turn.action, "", TaskSnapshot().view)


def test_deleting_is_risky_and_reading_is_not():
    assert risk(act.run("rm -r notes")) == high("it deletes files")
    assert risk(call("notes.forget", {"id": 7})) == high("it deletes something")
    assert risk(act.read("notes.md")) == low()
