"""The turn that a step returns, and the verbs of an agent that talks.

`conclave_sdk.act` has the verbs of an agent that acts.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

from conclave_sdk import shapes
from conclave_sdk._forms import Era
from conclave_sdk.actions import Action, Finish, Reject, Reply
from conclave_sdk.types import Extra, ToolCall


@dataclass
class Turn:
    """One answer of an agent: an action, with its thought and extras.

    Each verb returns a changed copy:
    `call("search.find", {"query": "lights"}).because("the folder may know")`.
    """

    action: Action
    thought: str = ""
    wait_for_response: bool = False
    extra: Extra = field(default_factory=dict)

    def and_call(self, tool: str, arguments: dict[str, Any] | None = None) -> Turn:
        """Add a tool call. Independent calls of one turn run at the same time.

        Raises `TypeError` if the turn is not a reply.
        """
        reply = self._reply("and_call")
        calls = [*reply.tool_calls, ToolCall(tool, arguments or {})]
        return dataclasses.replace(self, action=dataclasses.replace(reply, tool_calls=calls))

    def to(self, recipient: str) -> Turn:
        """Address the speech to a task or a role. A task needs the `route` grant.

        Raises `TypeError` if the turn is not a reply.
        """
        reply = self._reply("to")
        return dataclasses.replace(self, action=dataclasses.replace(reply, recipient=recipient))

    def because(self, thought: str) -> Turn:
        """Add the reason, for users and logs."""
        return dataclasses.replace(self, thought=thought)

    def and_wait_for_user(self) -> Turn:
        """Ask the user before the task continues."""
        return dataclasses.replace(self, wait_for_response=True)

    def with_turns(self, turns: int) -> Turn:
        """Limit the steps of the turn's delegates, or of the sub-task that answers it."""
        return self.with_extra("turns", turns)

    def with_extra(self, key: str, value: Any) -> Turn:
        """Add a value for which the contract has no field."""
        return dataclasses.replace(self, extra={**self.extra, key: value})

    def with_text(self, text: str) -> Turn:
        """Set the text that the agent's history holds in place of the action's JSON.

        It is such as what its model wrote.
        """
        return self.with_extra("text", text)

    def to_json(self, era: Era = Era.V2025) -> Any:
        """Return the turn in the fixed JSON form of an era.

        A reply with several tool calls is several actions, and so a list.
        """
        # The codec builds turns, and imports this module.
        from conclave_sdk import codec

        return codec.turn_to_json(self, era)

    def _reply(self, verb: str) -> Reply:
        if isinstance(self.action, Reply):
            return self.action
        kind = type(self.action).__name__
        raise TypeError(f"`{verb}` goes with `say` and `call`, not with {kind}")


def say(text: str) -> Turn:
    """Say something to the next responder."""
    return Turn(Reply(content=text))


def call(tool: str, arguments: dict[str, Any] | None = None) -> Turn:
    """Call a tool such as `search.find`; its result arrives with the next step."""
    return Turn(Reply()).and_call(tool, arguments)


def finish(answer: Any) -> Turn:
    """End the task with its answer: a text, a dataclass, or any other value that JSON can express.

    Raises `TypeError` for a value that JSON cannot express.
    """
    return Turn(Finish(shapes.to_json(answer)))


def reject(reason: Any) -> Turn:
    """End the task without an answer, with a reason."""
    return Turn(Reject(shapes.to_json(reason)))


def as_turn(answer: Turn | Action | str) -> Turn:
    """Return the turn of what a step returned: an action alone, or a text that it says."""
    if isinstance(answer, str):
        return say(answer)
    if isinstance(answer, Action):
        return Turn(answer)
    if isinstance(answer, Turn):
        return answer
    raise TypeError(f"a step returns a turn, an action or a text, and this one returned {answer!r}")
