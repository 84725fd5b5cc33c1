"""Write Conclave plugins in Python: a tool is a function, every other kind is a class.

    from conclave_sdk import InvalidArguments, tool

    @tool(idempotent=True)
    def words(text: str, shortest: int = 1) -> int:
        \"\"\"Count the words of a text. Use it when the user asks about length.

        Args:
            text: The text to count in.
            shortest: Words shorter than this do not count.
        \"\"\"
        if shortest < 1:
            raise InvalidArguments("shortest: must be at least 1")
        return sum(len(word) >= shortest for word in text.split())

A module exports the tools and the classes in its namespace: subclasses of `Agent`, `Responder`,
`Memory`, `SecurityAnalyzer`, `Condenser`, `DeliveryStrategy`, `Gate`, `Judge`, `SimulatedUser`,
`Observer` and `Channel`. The capabilities are modules: `files`, `fetch`, `kv`, `secrets`, `model`,
`config`, `log`, `progress`, `scratch`, `blobs`, `history`, `toolbox`, `programs`.
"""

from conclave_sdk import (
    act,
    actions,
    background,
    blobs,
    channel,
    codec,
    config,
    fetch,
    files,
    history,
    kv,
    log,
    model,
    programs,
    progress,
    scratch,
    secrets,
    toolbox,
)
from conclave_sdk._forms import Era
from conclave_sdk.agents import (
    Agent,
    PastAction,
    Peer,
    RemainingBudgets,
    Responder,
    RunMetrics,
    ToolSummary,
    View,
)
from conclave_sdk.analyzer import SecurityAnalyzer
from conclave_sdk.background import delegate
from conclave_sdk.channel import Channel
from conclave_sdk.codec import (
    observation_from_json,
    observation_to_json,
    turn_from_json,
    turn_from_value,
    turn_to_json,
    value_in,
)
from conclave_sdk.condenser import Condensation, Condenser
from conclave_sdk.delivery import DeliveryStrategy
from conclave_sdk.errors import (
    BudgetExhausted,
    ContextTooLong,
    Denied,
    Error,
    InvalidArguments,
    InvalidRequest,
    QuotaExceeded,
    ToolError,
    Unavailable,
    UnknownBlob,
    UnknownModel,
)
from conclave_sdk.gate import Gate
from conclave_sdk.history import History
from conclave_sdk.judge import Judge
from conclave_sdk.memory import Memory
from conclave_sdk.observer import Observer
from conclave_sdk.shapes import Field
from conclave_sdk.simulated_user import SimulatedUser
from conclave_sdk.tools import Call, Example, Outcome, Tool, Toolset, ToolSpec, tool
from conclave_sdk.turn import Turn, call, finish, reject, say
from conclave_sdk.types import Blob, Draft, Message, Role, ToolCall, ToolResult, Usage

__all__ = [
    "Agent",
    "Blob",
    "BudgetExhausted",
    "Call",
    "Channel",
    "Condensation",
    "Condenser",
    "ContextTooLong",
    "DeliveryStrategy",
    "Denied",
    "Draft",
    "Era",
    "Error",
    "Example",
    "Field",
    "Gate",
    "History",
    "InvalidArguments",
    "InvalidRequest",
    "Judge",
    "Memory",
    "Message",
    "Observer",
    "Outcome",
    "PastAction",
    "Peer",
    "QuotaExceeded",
    "RemainingBudgets",
    "Responder",
    "Role",
    "RunMetrics",
    "SecurityAnalyzer",
    "SimulatedUser",
    "Tool",
    "ToolCall",
    "ToolError",
    "ToolResult",
    "ToolSpec",
    "ToolSummary",
    "Toolset",
    "Turn",
    "Unavailable",
    "UnknownBlob",
    "UnknownModel",
    "Usage",
    "View",
    "act",
    "actions",
    "background",
    "blobs",
    "call",
    "channel",
    "codec",
    "config",
    "delegate",
    "fetch",
    "files",
    "finish",
    "history",
    "kv",
    "log",
    "model",
    "observation_from_json",
    "observation_to_json",
    "programs",
    "progress",
    "reject",
    "say",
    "scratch",
    "secrets",
    "tool",
    "toolbox",
    "turn_from_json",
    "turn_from_value",
    "turn_to_json",
    "value_in",
]
