"""A judge: it overrules which answers are valid, which end the task, and the task's result.

An exception ends the task with the status `ERROR`.
"""

from __future__ import annotations

from dataclasses import dataclass

from conclave_sdk.agents import View
from conclave_sdk.types import Json, Message


@dataclass
class Answer:
    """An answer to the pending message, before it takes effect.

    `responder` is `llm`, `agent`, `user`, or the name of a sub-task. `valid` and `done` are the
    host's decision.
    """

    message: Message
    responder: str
    valid: bool
    done: bool


@dataclass
class TaskResult:
    """The result of a task; `value` is `None` if the result is only a text."""

    text: str
    value: Json | None = None


@dataclass
class Ending:
    """The end of a task, with a status such as `DONE`, and the result by the host's rules."""

    status: str
    reason: str
    result: TaskResult


class Judge:
    """A judge; a subclass is exported. Each method leaves the decision to the host by default."""

    def valid(self, answer: Answer, view: View) -> bool | None:  # noqa: ARG002
        """Return whether the answer becomes the pending message; `None` for the host's rules."""
        return None

    def done(self, answer: Answer, view: View) -> bool | None:  # noqa: ARG002
        """Return whether the task ends with the answer; `None` for the host's rules.

        Called for each answer that `valid` does not refuse.
        """
        return None

    def feedback(self, answer: Answer, view: View) -> str | None:  # noqa: ARG002
        """Return the words for the agent about an answer that does not count or end the task.

        The agent reads them before its next step.
        """
        return None

    def result(self, ending: Ending, view: View) -> TaskResult | str | None:  # noqa: ARG002
        """Return the task's result in place of the host's; `None` keeps that one."""
        return None
