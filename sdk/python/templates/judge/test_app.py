from conclave_sdk.judge import TaskResult
from conclave_sdk.testing import TaskSnapshot, answer, ending

from app import Years


def test_an_answer_needs_a_year_and_the_year_is_the_result():
    view = TaskSnapshot.asked("When was it lit?").view
    assert Years().valid(answer("It is very old."), view) is False
    assert Years().valid(answer("It was lit in 1844."), view) is True
    assert Years().valid(answer("Go on.", responder="user"), view) is None
    assert Years().result(ending("It was lit in 1844."), view) == TaskResult("1844")
