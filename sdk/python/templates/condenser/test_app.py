from conclave_sdk import Condensation, Role
from conclave_sdk.condenser import Reason
from conclave_sdk.testing import TaskSnapshot

from app import Recent


def test_the_first_entry_and_the_last_ones_stay():
    task = TaskSnapshot.asked("Begin.")
    assert Recent().condense(Reason.SIZE, task.view) is None
    for number in range(10):
        task = task.says(Role.LLM, str(number))
    assert Recent().condense(Reason.SIZE, task.view) == Condensation().forget(1, 7)
