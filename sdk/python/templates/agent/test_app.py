from conclave_sdk import finish
from conclave_sdk.testing import FakeHost, TaskSnapshot

from app import Assistant


def test_a_model_is_asked_only_if_there_is_a_question():
    with FakeHost().reply("In 1844."):
        assert Assistant().step(TaskSnapshot.asked("  ").view) == finish("There is no question.")
        assert Assistant().step(TaskSnapshot.asked("When was it lit?").view) == finish("In 1844.")
