"""`describe`: imports an app on the author's machine, and returns what it exports."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import sys
import traceback
from pathlib import Path
from typing import Any

from conclave_sdk._build.imports import Imports, find_imports
from conclave_sdk.app import App, read_app
from conclave_sdk.errors import AppError

# The imports that each export needs, besides those for the capabilities that are used.
_NEEDS = {
    "agent": {"state"},
    "responder": {"state"},
    "security-analyzer": {"state"},
    "condenser": {"state"},
    "judge": {"state", "judge-feedback"},
    "simulated-user": {"state"},
    "delivery-strategy": {"delivery-context"},
    "channel": {"channel-secret"},
}


@dataclasses.dataclass
class Described:
    """An app with its imports."""

    app: App
    imports: Imports
    interfaces: list[str]

    def to_json(self) -> dict[str, Any]:
        """Return the exports, the imports and the tools."""
        return {
            "exports": self.app.exports,
            "imports": self.interfaces,
            "tools": [dataclasses.asdict(spec) for spec in self._specs()],
        }

    def _specs(self) -> list[Any]:
        if self.app.toolset is None:
            return [tool.spec for tool in self.app.tools]
        # The tools of a toolset depend on the settings, and these are not known here.
        with contextlib.suppress(Exception):
            return list(self.app.toolset().list())
        return []


def describe(app: Path, dependencies: list[Path]) -> Described:
    """Describe an app. Raises `AppError` for the first thing that cannot work."""
    if not app.is_file():
        raise AppError(f"{app} is not a file")
    if not app.stem.isidentifier() or app.stem in sys.stdlib_module_names:
        hint = "rename it, such as to app.py"
        raise AppError(f"{app.name} cannot be imported under this name", hint)
    imports = find_imports(app, dependencies)
    if imports.problems:
        raise _joined(imports.problems)
    module = _import(app, dependencies)
    found = read_app(module)
    for tool in found.tools:
        tool.spec  # noqa: B018 (a function that cannot be a tool raises)
    interfaces = {"log", *imports.interfaces}
    for export in found.exports:
        interfaces |= _NEEDS.get(export, set())
    if found.toolset:
        interfaces.add("call")
    return Described(found, imports, sorted(interfaces))


def _import(app: Path, dependencies: list[Path]) -> Any:
    before = list(sys.path)
    sys.path[:0] = [str(app.parent.resolve()), *(str(folder.resolve()) for folder in dependencies)]
    sys.dont_write_bytecode = True
    try:
        # What the app prints is for the author; stdout holds the JSON.
        with contextlib.redirect_stdout(sys.stderr):
            return importlib.import_module(app.stem)
    except AppError:
        raise
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        inside = [frame for frame in frames if Path(frame.filename).parent == app.parent.resolve()]
        where = f"{app.name}:{inside[-1].lineno}: " if inside else f"{app.name}: "
        hint = ""
        if isinstance(error, ModuleNotFoundError):
            hint = "add its package to `dependencies` in pyproject.toml"
        raise AppError(f"{where}{type(error).__name__}: {error}", hint) from error
    finally:
        sys.path[:] = before


def _joined(problems: list[AppError]) -> AppError:
    if len(problems) == 1:
        return problems[0]
    lines = [f"{problem} ({problem.hint})" if problem.hint else str(problem) for problem in problems]
    return AppError("\n".join(lines))
