"""The actions that an agent may request, and the observations with which the host answers them.

`conclave_sdk.act` has a verb for each action. Match on the classes to read one:

    match observation:
        case CommandResult(exit_code=0, content=text): ...
        case Failure(text): ...
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from conclave_sdk.types import Blob, Json, JsonObject, ToolCall


class Action:
    """Base class of the actions."""


class PlanState(Enum):
    """The state of a node of the plan."""

    OPEN = "open"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    VERIFIED = "verified"
    ABANDONED = "abandoned"


class ResultForm(Enum):
    """The form in which a background result is delivered."""

    AGENT_TURN = "agent-turn"
    TEXT = "text"


class OnClose(Enum):
    """What happens to a background task whose parent is stopped before it ends."""

    CASCADE = "cascade"
    DETACH = "detach"
    FINISH_SILENTLY = "finish-silently"


@dataclass
class Nothing(Action):
    """No action in this turn."""


@dataclass
class Reply(Action):
    """The usual answer of an agent: text, tool calls, or both.

    `content` of `None` is no content, which differs from an empty one. `completion` is the id of
    the completion that produced the reply.
    """

    content: str | None = None
    tool_calls: list[ToolCall] = field(default_factory=list)
    recipient: str | None = None
    completion: str | None = None
    attachments: list[Blob] = field(default_factory=list)


@dataclass
class Run(Action):
    """Runs a shell command; with `background`, its output arrives later."""

    command: str
    background: bool = False


@dataclass
class Kill(Action):
    """Stops the background command with this id."""

    command_id: int


@dataclass
class RunCell(Action):
    """Runs a cell of code."""

    code: str
    kernel_init_code: str = ""


@dataclass
class Browse(Action):
    """Opens a page."""

    url: str


@dataclass
class Read(Action):
    """Reads lines of a text file: `start` counts from 0, `end` is excluded, -1 is the end."""

    path: str
    start: int = 0
    end: int = -1


@dataclass
class Write(Action):
    """Replaces lines of a text file: `start` counts from 0, `end` is excluded, -1 is the end."""

    path: str
    content: str
    start: int = 0
    end: int = -1


@dataclass
class Recall(Action):
    """Searches the long-term memory."""

    query: str


@dataclass
class AddTask(Action):
    """Adds a node to the plan. `subtasks` is a list of `{"goal": …, "subtasks": […]}`."""

    parent: str
    goal: str
    subtasks: Json = field(default_factory=list)


@dataclass
class ModifyTask(Action):
    """Changes the state of a node of the plan."""

    task_id: str
    state: PlanState


@dataclass
class Delegate(Action):
    """Runs another task and waits for its outputs."""

    task: str
    inputs: JsonObject = field(default_factory=dict)


class DeliveryChoice:
    """Base class of the choices of a delivery strategy for a result."""


@dataclass
class AsConfigured(DeliveryChoice):
    """The strategy that the operator named."""


@dataclass
class Inbox(DeliveryChoice):
    """None: the result waits in the inbox, and only the agent reads it."""


@dataclass
class Strategy(DeliveryChoice):
    """The strategy with this name in the operator's config."""

    name: str


@dataclass
class StructuredResult:
    """The form of a result that the worker submits with `submit_result`."""

    schema: JsonObject | None = None
    retries: int = 3


@dataclass
class DelegateTask(Action):
    """Starts a background task; `conclave_sdk.delegate` writes it."""

    worker: str
    description: str
    context: JsonObject = field(default_factory=dict)
    share_channels: list[str] = field(default_factory=list)
    brief: str | None = None
    conversation_messages: int = 0
    wait: bool = False
    structured: StructuredResult | None = None
    deliver: DeliveryChoice = field(default_factory=AsConfigured)
    result_form: ResultForm | None = None
    notify: str | None = None
    deadline_ms: int | None = None
    turns: int | None = None
    on_close: OnClose | None = None
    key: str | None = None


@dataclass
class Think(Action):
    """Records a thought, without any effect."""

    thought: str


@dataclass
class Talk(Action):
    """Sends a text to the user; the task continues."""

    text: str


@dataclass
class Finish(Action):
    """Ends the task with these outputs; a text is the answer itself."""

    outputs: Json


@dataclass
class Reject(Action):
    """Ends the task as impossible; a text is the reason itself."""

    outputs: Json


@dataclass
class Custom(Action):
    """Any other action, in its fixed JSON form."""

    name: str
    arguments: JsonObject = field(default_factory=dict)


class Observation:
    """Base class of the observations."""


@dataclass
class Silence(Observation):
    """The action has no result."""


@dataclass
class CommandResult(Observation):
    """The output of a command. `command_id` is -1 for a foreground command."""

    command_id: int
    command: str
    exit_code: int
    content: str


@dataclass
class CellResult(Observation):
    """The output of a cell."""

    code: str
    content: str


@dataclass
class Page(Observation):
    """A page that was opened; with `is_error`, `content` is the reason why it was not."""

    url: str
    status: int
    content: str
    is_error: bool = False


@dataclass
class FileContent(Observation):
    """The content of a file that was read."""

    path: str
    content: str


@dataclass
class Written(Observation):
    """The path of a file that was written."""

    path: str


@dataclass
class Recalled(Observation):
    """The memories that were found, best first."""

    memories: list[str]


@dataclass
class Delegated(Observation):
    """The outputs of a delegated task."""

    task: str
    outputs: Json


@dataclass
class ToolOutput(Observation):
    """The result of a tool call; `value` is `None` if there is no structured one."""

    call_id: str
    name: str
    content: str
    value: Json | None = None
    is_error: bool = False


@dataclass
class Success(Observation):
    """A text that confirms the action."""

    text: str


@dataclass
class Failure(Observation):
    """A text that states why the action failed."""

    text: str


@dataclass
class CustomObservation(Observation):
    """Any other observation, in its fixed JSON form."""

    name: str
    content: str
    extras: JsonObject = field(default_factory=dict)
