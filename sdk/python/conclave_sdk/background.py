"""Background tasks: an agent starts a task of the operator's config and continues.

The result comes back later. It needs the `delegate` grant. `View.background_answer` has the host's
answer in the next step.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from conclave_sdk import shapes
from conclave_sdk.actions import (
    DelegateTask,
    DeliveryChoice,
    Inbox,
    OnClose,
    ResultForm,
    Strategy,
    StructuredResult,
)
from conclave_sdk.turn import Turn, call

__all__ = [
    "Answer",
    "Done",
    "Ended",
    "Inbox",
    "Listed",
    "OnClose",
    "Refused",
    "ResultForm",
    "Started",
    "Strategy",
    "StructuredResult",
    "cancel",
    "delegate",
    "parse",
    "status",
    "tell",
]


def delegate(
    worker: str,
    task: str,
    *,
    context: dict[str, Any] | None = None,
    share: list[str] | None = None,
    brief: str | None = None,
    conversation: int = 0,
    wait: bool = False,
    structured: StructuredResult | type | None = None,
    deliver: DeliveryChoice | None = None,
    result_form: ResultForm | None = None,
    notify: str | None = None,
    deadline_ms: int | None = None,
    turns: int | None = None,
    on_close: OnClose | None = None,
    key: str | None = None,
) -> Turn:
    """Start a background task of the worker's task in the operator's config.

    Args:
        worker: The worker's task.
        task: A description of the work: the label in lists, and the worker's message unless there
            is a brief. The host refuses an empty one.
        context: Facts, which the worker gets as its inputs.
        share: Channels of this room that the worker may use too.
        brief: The worker's message, where it differs from the description.
        conversation: The number of the conversation's newest messages that the worker gets.
        wait: Wait for the result, which is then the answer.
        structured: Require a result by `submit_result`; of a dataclass, its schema.
        deliver: `Strategy(name)` or `Inbox()`; the operator's choice without it.
        result_form: The form of delivery, where it differs from the operator's.
        notify: The task to notify, where it differs from the operator's; needs `route`.
        deadline_ms: The time limit in milliseconds.
        turns: The limit of the worker's steps.
        on_close: What happens to the task if this one is stopped.
        key: An idempotency key: a second delegation with the same key starts nothing.
    """
    if isinstance(structured, type):
        structured = StructuredResult(shapes.shape_of(structured).schema())
    action = DelegateTask(
        worker=worker,
        description=task,
        context=context or {},
        share_channels=share or [],
        brief=brief,
        conversation_messages=conversation,
        wait=wait,
        structured=structured,
        result_form=result_form,
        notify=notify,
        deadline_ms=deadline_ms,
        turns=turns,
        on_close=on_close,
        key=key,
    )
    if deliver is not None:
        action.deliver = deliver
    return Turn(action)


def status(task_id: str | None = None) -> Turn:
    """Ask for the state of a background task; `None` lists the newest ten.

    The task needs the tool `task_status`.
    """
    return call("task_status", {} if task_id is None else {"task_id": task_id})


def cancel(task_id: str) -> Turn:
    """Stop a background task that this one started. The task needs the tool `cancel_task`."""
    return call("cancel_task", {"task_id": task_id})


def tell(task_id: str, text: str) -> Turn:
    """Send a text to a background task that this one started. The task needs `tell_task`."""
    return call("tell_task", {"task_id": task_id, "text": text})


class Answer:
    """Base class of the host's answers to a delegation, or to a question about one."""


@dataclass
class Started(Answer):
    """The task has started, or continues."""

    task_id: str
    worker: str


@dataclass
class Ended(Answer):
    """The task has ended.

    `status` is `completed`, `failed`, `cancelled`, `timed out` or `interrupted`; `output` is the
    worker's result, and `reason` the host's reason for another end.
    """

    task_id: str
    status: str
    output: str | None = None
    reason: str | None = None


@dataclass
class Done(Answer):
    """The answer to `cancel` or `tell`; `done` is false if the task had ended before."""

    task_id: str
    done: bool


@dataclass
class Listed(Answer):
    """The newest tasks, newest first."""

    tasks: list[Answer] = field(default_factory=list)


@dataclass
class Refused(Answer):
    """The host refused it. `code` is such as `not_granted`; `allowed` has the valid choices."""

    code: str
    message: str
    allowed: list[str] = field(default_factory=list)


def parse(text: str) -> Answer | None:
    """Parse the text of an answer; `None` for any other text."""
    try:
        fields = json.loads(text)
    except ValueError:
        return None
    return _answer(fields) if isinstance(fields, dict) else None


def _answer(fields: dict[str, Any]) -> Answer | None:
    task_id, state = fields.get("task_id", ""), fields.get("status")
    if "error" in fields and state is None:
        return Refused(fields["error"], fields.get("message", ""), fields.get("allowed", []))
    if "tasks" in fields:
        return Listed([answer for task in fields["tasks"] if (answer := _answer(task))])
    if "cancelled" in fields:
        return Done(task_id, fields["cancelled"])
    match state:
        case None:
            return None
        case "delegated" | "pending" | "running":
            return Started(task_id, fields.get("agent", ""))
        case "told":
            return Done(task_id, True)
        case _:
            return Ended(task_id, state, fields.get("output"), fields.get("error"))
