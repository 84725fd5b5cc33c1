"""Agents and responders, and the view of the task that they read.

class Parrot(Agent):
    def step(self, view: View) -> Turn:
        return finish(view.text)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol, TypeVar, overload

from conclave_sdk import background, codec, shapes
from conclave_sdk._forms import Era
from conclave_sdk.actions import (
    Action,
    CommandResult,
    Failure,
    FileContent,
    Observation,
    Page,
    Success,
    ToolOutput,
)
from conclave_sdk.errors import ToolError
from conclave_sdk.history import History
from conclave_sdk.turn import Turn
from conclave_sdk.types import JsonObject, Message

T = TypeVar("T")


class Agent:
    """An agent; a subclass is exported. Each call runs in a fresh instance.

    What an agent must remember is in its history, its `scratch` or its `kv`.
    """

    def step(self, view: View) -> Turn | Action | str:
        """Return one turn. An exception becomes an observation, and the agent may try again."""
        raise NotImplementedError


class Responder:
    """An agent's own answer in the role `agent`; a subclass is exported.

    A class may be both: `class Desk(Agent, Responder)`.
    """

    def respond(self, view: View) -> Turn | Action | str | None:
        """Return an answer to the pending message; `None` leaves it to the next responder."""
        raise NotImplementedError


@dataclass
class PastAction:
    """An action with its observation; either may be absent. `seq` is its message's position."""

    action: Action | None = None
    observation: Observation | None = None
    seq: int = 0


@dataclass
class ToolSummary:
    """A tool that the agent may call. `name` is `plugin.tool`."""

    name: str
    description: str = ""
    input_schema: JsonObject = field(default_factory=dict)


@dataclass
class Peer:
    """Another task that the agent may address or delegate to."""

    name: str
    description: str = ""


@dataclass
class RemainingBudgets:
    """The rest of each budget of the run; `None` for no limit."""

    turns: int | None = None
    tokens: int | None = None
    cost_micro_usd: int | None = None
    wall_ms: int | None = None
    model_calls: int | None = None
    tool_calls: int | None = None


@dataclass
class RunMetrics:
    """The usage of the run so far."""

    turns: int = 0
    tokens: int = 0
    cost_micro_usd: int = 0
    model_calls: int = 0
    tool_calls: int = 0


class TaskSource(Protocol):
    """Where a view reads: the host, or the snapshot of a test."""

    def read(self, part: str) -> Any:
        """Return a part of the task."""

    def read_history(self, start: int, count: int) -> list[Message]:
        """Return messages from index `start`, oldest first."""


class View:
    """The task as it was when the call began. A part is read when it is first looked at."""

    def __init__(self, source: TaskSource) -> None:
        """Create a view of a task. Tests get one from `TaskSnapshot.view`."""
        self._source = source

    @cached_property
    def task_name(self) -> str:
        """The task's name in the operator's config."""
        return str(self._source.read("task_name"))

    @overload
    def inputs(self) -> dict[str, Any]: ...
    @overload
    def inputs(self, kind: type[T]) -> T: ...
    def inputs(self, kind: Any = None) -> Any:
        """Return the caller's inputs beside the message, as a `kind` such as a dataclass.

        Raises `ToolError` if they do not have that form.
        """
        inputs = self._source.read("inputs")
        if kind is None:
            return inputs
        try:
            return shapes.convert(inputs, kind)
        except ValueError as error:
            raise ToolError(f"the inputs: {error}") from error

    @cached_property
    def pending(self) -> Message | None:
        """The message that waits for an answer; `None` if the task was started without one."""
        message: Message | None = self._source.read("pending")
        return message

    @property
    def text(self) -> str:
        """The text of the pending message; empty without one."""
        return self.pending.content if self.pending else ""

    @cached_property
    def history(self) -> History:
        """The messages, oldest first, including the pending one."""
        return History(self._source.read("history_length"), self._source.read_history)

    @cached_property
    def since_last_step(self) -> list[PastAction]:
        """The actions and observations since this agent's previous step."""
        return list(self._source.read("since_last_step"))

    @property
    def observations(self) -> list[Observation]:
        """The observations since this agent's previous step, oldest first."""
        return [past.observation for past in self.since_last_step if past.observation]

    @property
    def last_observation(self) -> Observation | None:
        """The latest observation since this agent's previous step."""
        return self.observations[-1] if self.observations else None

    @property
    def errors(self) -> list[str]:
        """The errors since the previous step."""
        errors = []
        for observation in self.observations:
            if isinstance(observation, Failure):
                errors.append(observation.text)
            elif isinstance(observation, (ToolOutput, Page)) and observation.is_error:
                errors.append(observation.content)
        return errors

    @property
    def file(self) -> FileContent | None:
        """The file that the previous step read."""
        return next((o for o in reversed(self.observations) if isinstance(o, FileContent)), None)

    @property
    def command_results(self) -> list[CommandResult]:
        """The output of commands since the previous step, including background commands."""
        return [o for o in self.observations if isinstance(o, CommandResult)]

    def events(self, era: Era = Era.V2025) -> list[JsonObject]:
        """Return the history as events of a log, in the fixed JSON form of an era."""
        return [form for message in self.history for form in codec.forms_of_message(message, era)]

    def new_events(self, era: Era = Era.V2025) -> list[JsonObject]:
        """Return the actions and observations since the previous step, as events of a log."""
        return [
            form
            for past in self.since_last_step
            for form in codec.forms_of_past(past.action, past.observation, past.seq, era)
        ]

    @property
    def tool_outputs(self) -> list[ToolOutput]:
        """The results of the tools that the previous step called, in the order of the calls."""
        observed = [o for o in self.observations if isinstance(o, ToolOutput)]
        if observed or self.pending is None:
            return observed
        return [
            ToolOutput(result.call_id, result.name, result.content, None, result.is_error)
            for result in self.pending.tool_results
        ]

    @property
    def background_answer(self) -> background.Answer | None:
        """The host's latest answer to a delegation, or to a question about one."""
        texts = []
        for observation in reversed(self.observations):
            if isinstance(observation, (Success, Failure)):
                texts.append(observation.text)
            elif isinstance(observation, ToolOutput):
                texts.append(observation.content)
        # A round without observations has its answer in the pending message.
        return next((a for text in [*texts, self.text] if (a := background.parse(text))), None)

    @cached_property
    def latest_user_message(self) -> str | None:
        """The user's latest request; `None` before the first."""
        message: str | None = self._source.read("latest_user_message")
        return message

    @cached_property
    def plan(self) -> Any:
        """The plan, as JSON."""
        return self._source.read("plan")

    @cached_property
    def current_plan_node(self) -> str | None:
        """The id of the plan's node in progress."""
        node: str | None = self._source.read("current_plan_node")
        return node

    @cached_property
    def outputs(self) -> Any:
        """The outputs with which this agent last finished or rejected; `None` before that."""
        return self._source.read("outputs")

    @cached_property
    def last_error(self) -> str | None:
        """The latest error that was reported to this agent."""
        error: str | None = self._source.read("last_error")
        return error

    @cached_property
    def tools(self) -> Sequence[ToolSummary]:
        """The tools that this agent may call."""
        return list(self._source.read("tools"))

    def tool(self, name: str) -> ToolSummary | None:
        """Return the first tool of that name in any plugin: `find` is `search.find`."""
        return next((tool for tool in self.tools if tool.name.rpartition(".")[2] == name), None)

    @cached_property
    def peers(self) -> Sequence[Peer]:
        """The tasks to which it may delegate or address messages."""
        return list(self._source.read("peers"))

    @cached_property
    def remaining(self) -> RemainingBudgets:
        """The rest of each budget."""
        budgets: RemainingBudgets = self._source.read("remaining")
        return budgets

    @cached_property
    def metrics(self) -> RunMetrics:
        """The run's usage so far."""
        metrics: RunMetrics = self._source.read("metrics")
        return metrics

    @cached_property
    def delegate_level(self) -> int:
        """The number of delegations above this task; 0 for the entry task."""
        return int(self._source.read("delegate_level"))

    @cached_property
    def iteration(self) -> int:
        """The number of this agent's earlier steps in this task; 0 in the first step."""
        return int(self._source.read("iteration"))
