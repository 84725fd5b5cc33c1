"""The kinds of plugin that a module exports: the tools and classes in its namespace."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from conclave_sdk.agents import Agent, Responder
from conclave_sdk.analyzer import SecurityAnalyzer
from conclave_sdk.channel import Channel
from conclave_sdk.condenser import Condenser
from conclave_sdk.delivery import DeliveryStrategy
from conclave_sdk.errors import AppError
from conclave_sdk.gate import Gate
from conclave_sdk.judge import Judge
from conclave_sdk.memory import Memory
from conclave_sdk.observer import Observer
from conclave_sdk.simulated_user import SimulatedUser
from conclave_sdk.tools import NO_EVENT_LOOP, Tool, Toolset, is_async, where

KINDS: dict[str, type] = {
    "agent": Agent,
    "responder": Responder,
    "memory": Memory,
    "delivery-strategy": DeliveryStrategy,
    "security-analyzer": SecurityAnalyzer,
    "condenser": Condenser,
    "gate": Gate,
    "judge": Judge,
    "simulated-user": SimulatedUser,
    "observer": Observer,
    "channel": Channel,
}
"""The base class of each exported interface besides `tools`."""


@dataclass
class App:
    """What a module exports: its tools in the order of the module, and a class for each kind."""

    tools: list[Tool[..., Any]] = field(default_factory=list)
    toolset: type[Toolset] | None = None
    classes: dict[str, type] = field(default_factory=dict)

    @property
    def exports(self) -> list[str]:
        """The exported interfaces of the contract."""
        tools = ["tools"] if self.tools or self.toolset else []
        return [*tools, *(kind for kind in KINDS if kind in self.classes)]


def read_app(module: ModuleType) -> App:
    """Return what a module exports.

    Raises `AppError` if two things would be the same export, or a method is async.
    """
    app = App()
    for name, value in vars(module).items():
        if isinstance(value, Tool):
            if value not in app.tools:
                app.tools.append(value)
        elif inspect.isclass(value) and not value.__module__.startswith("conclave_sdk."):
            _add_class(app, name, value)
    names = [tool.name for tool in app.tools]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice:
        raise AppError(f"two tools are named `{twice}`", "rename one of them")
    if app.toolset and app.tools:
        raise AppError(
            f"the module has tools and the toolset `{app.toolset.__name__}`",
            "return the tools from the toolset's `list` too, or move it to another plugin",
        )
    if not app.exports:
        raise AppError(
            f"{module.__name__}.py exports nothing",
            "write `@tool` before a function, or a subclass of a kind such as `Agent`",
        )
    return app


def _add_class(app: App, name: str, value: type) -> None:
    bases = {kind: base for kind, base in KINDS.items() if issubclass(value, base)}
    for kind in bases:
        # A base class of the author's own, which has a subclass here, is not exported.
        known = app.classes.get(kind)
        if known is not None and not issubclass(value, known) and not issubclass(known, value):
            raise AppError(
                f"`{known.__name__}` and `{name}` are both a {bases[kind].__name__}",
                "a component exports one of each kind: move the other one to another plugin",
            )
        if known is None or issubclass(value, known):
            app.classes[kind] = value
    if issubclass(value, Toolset):
        bases["tools"] = Toolset
        app.toolset = value
    for base in bases.values():
        _check_methods(base, name, value)


def _check_methods(base: type, name: str, value: type) -> None:
    for method in vars(base):
        function = getattr(value, method)
        if is_async(function):
            what = f"{where(function)}the method `{method}` of `{name}` is async"
            raise AppError(what, NO_EVENT_LOOP)
