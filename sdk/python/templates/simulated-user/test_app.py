from conclave_sdk.testing import FakeHost, TaskSnapshot

from app import Guest


def test_a_question_gets_its_fact_and_everything_else_a_goodbye():
    view = TaskSnapshot.asked("A table, please.").view
    with FakeHost().settings({"facts": {"date": "The first of June."}}):
        assert Guest().answer("For which date?", view) == "The first of June."
        assert Guest().answer("The date is booked.", view) == "quit"
