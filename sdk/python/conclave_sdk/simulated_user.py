"""A simulated user: it answers in the place of the user, such as in an evaluation.

Only people approve actions and grant budgets. An exception ends the task with the status `ERROR`.
"""

from __future__ import annotations

from conclave_sdk.agents import View


class SimulatedUser:
    """A simulated user; a subclass is exported."""

    def answer(self, question: str, view: View) -> str | None:
        """Return the answer to a question, or to the message that a person would see.

        `None` or an empty text is no answer. The words of a user hold: `quit` ends the task.
        """
        raise NotImplementedError
