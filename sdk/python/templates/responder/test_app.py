from conclave_sdk import finish
from conclave_sdk.testing import FakeHost, TaskSnapshot

from app import Desk


def test_a_fact_needs_no_model_and_the_rest_does():
    hours = TaskSnapshot.asked("When do you open?").view
    rest = TaskSnapshot.asked("When was it lit?").view
    with FakeHost().settings({"facts": {"open": "From nine to five."}}).reply("In 1844."):
        assert Desk().respond(hours) == finish("From nine to five.")
        assert Desk().respond(rest) is None
        assert Desk().step(rest) == finish("In 1844.")
