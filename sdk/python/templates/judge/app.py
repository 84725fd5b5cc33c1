"""<NAME>: takes only answers with a year, and makes the year the result."""

import re

from conclave_sdk import Judge, View
from conclave_sdk.judge import Answer, Ending, TaskResult


class Years(Judge):
    """Without `done`, the host decides which answer ends the task."""

    def valid(self, answer: Answer, view: View) -> bool | None:
        """Return whether an answer counts; `None` leaves it to the host."""
        # Only the texts of the model are judged: a call answers nothing yet.
        if answer.responder != "llm" or answer.message.tool_calls:
            return None
        return year(answer.message.content) is not None

    def result(self, ending: Ending, view: View) -> TaskResult | None:
        """Return the result in place of the host's."""
        found = year(ending.result.text)
        return TaskResult(found) if found else None


def year(text: str) -> str | None:
    """Return the first number of four digits."""
    found = re.search(r"\b\d{4}\b", text)
    return found[0] if found else None
