"""A session of cells: the namespace that they share, and the output of one cell.

Each cell runs in a fresh instance, so a session begins with the state of the cell before.
"""

from __future__ import annotations

import ast
import contextlib
import linecache
import logging
import os
import random
import sys
import types
from collections.abc import Iterator
from typing import Any

from conclave_sdk import Denied, files

import functions
import state
import tracebacks
from output import Output, shortened

# Characters of a value and of a traceback.
RESULT_CHARS = 50_000
_SUMMARY = "[not kept for the next cell: {}]"


class Session:
    """The state of a session for one cell. As a context manager, it is the module `__main__`."""

    def __init__(self, store: state.Store, roots: list[str]) -> None:
        """Open the stored session, or a new one. `roots` are the granted folders."""
        self.main = types.ModuleType("__main__")
        self.lost: list[str] = []
        """The variables that could not be kept or restored, each with its reason."""
        self._store = store
        self._roots = roots
        self._count = 0
        self._functions: dict[str, Any] = {}
        self._sources: dict[str, str] = {}

    def __enter__(self) -> Session:
        """Make the session's module `__main__`, which classes of cells belong to."""
        self._before = sys.modules["__main__"], os.getcwd(), list(sys.path)
        sys.modules["__main__"] = self.main
        return self

    def __exit__(self, *_: object) -> None:
        """Restore what was `__main__`."""
        sys.modules["__main__"], folder, sys.path[:] = self._before
        with contextlib.suppress(OSError):
            os.chdir(folder)

    def run(self, code: str, first: str = "") -> str:
        """Run a cell, keep the state for the next one, and return the output. `first` runs once."""
        if code.split() in (["%reset"], ["%reset", "-f"]):
            # Before the state is restored: a variable may end every cell that restores it.
            self._store.set_bytes(b"")
            return "The next cell begins a new session."
        output = Output()
        with _standard_streams(output):
            self._restore()
            if self._count == 0 and first.strip():
                output.error = self._run_cell(first, "Kernel init")
            if not output.error:
                self._count += 1
                output.error = self._run_cell(code, f"Cell In[{self._count}]", output)
            self._keep()
        return output.text(_SUMMARY.format("; ".join(self.lost)) if self.lost else "")

    def _restore(self) -> None:
        # The state of a module is that of the build, so each cell would draw the same numbers.
        random.seed(os.urandom(16))
        # Otherwise a cell's `logging.basicConfig` has no effect.
        logging.root.handlers.clear()
        logging.root.setLevel(logging.WARNING)
        if self._roots:
            # First, because variables may refer to modules of the folder.
            sys.path.insert(0, self._roots[0])
        folder = self._roots[0] if self._roots else ""
        found = state.load(self._store, self.main.__dict__)
        if found is not None:
            self._count, self._sources, folder = found.count, found.sources, found.folder or folder
            self.lost += found.lost
            for name, source in self._sources.items():
                _show_lines(name, source)
        if folder:
            with contextlib.suppress(OSError):
                os.chdir(folder)
        # A variable of the same name hides a function.
        self._functions = functions.namespace()
        for name, function in self._functions.items():
            self.main.__dict__.setdefault(name, function)

    def _keep(self) -> None:
        folder = os.getcwd() if self._roots else ""
        kept = state.State(self._count, self._sources, folder)
        # The next cell has the functions that are granted then.
        for name, function in self._functions.items():
            if self.main.__dict__.get(name) is function:
                del self.main.__dict__[name]
        self.lost += state.save(self._store, self.main.__dict__, kept)

    def _run_cell(self, code: str, name: str, output: Output | None = None) -> str:
        """Run code, and return the traceback of its exception; empty if there is none."""
        self._sources[name] = code
        _show_lines(name, code)
        try:
            value = self._execute(code, name)
            if value is not None and output is not None:
                output.result = shortened(repr(value), RESULT_CHARS)
        except BaseException as error:
            text = shortened(tracebacks.render(error, self._sources), RESULT_CHARS)
            refusal = _refusal(error)
            return f"{text}\n{refusal}" if refusal else text
        return ""

    def _execute(self, code: str, name: str) -> Any:
        """Run code, and return the value of its last expression; `None` behind a semicolon."""
        tree = ast.parse(code, name)
        last = tree.body[-1] if tree.body else None
        namespace = self.main.__dict__
        if not isinstance(last, ast.Expr) or code.rstrip().endswith(";"):
            exec(compile(tree, name, "exec", dont_inherit=True), namespace)
            return None
        tree.body.pop()
        exec(compile(tree, name, "exec", dont_inherit=True), namespace)
        expression = ast.Expression(last.value)
        return eval(compile(expression, name, "eval", dont_inherit=True), namespace)


def _refusal(error: BaseException) -> str:
    """Return why the host refused a file; empty if it did not.

    Outside of every granted folder WASI reports that there is no such file.
    """
    path = getattr(error, "filename", None)
    if not isinstance(error, OSError) or not isinstance(path, str):
        return ""
    try:
        # The host reports the missing grant to the operator, too.
        files.read_at(os.path.join(os.getcwd(), path), 0, 0)
    except Denied as denied:
        return str(denied)
    except Exception:
        pass
    return ""


def _show_lines(name: str, code: str) -> None:
    """Give `linecache` and `inspect` the source of a cell."""
    linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)


@contextlib.contextmanager
def _standard_streams(output: Output) -> Iterator[None]:
    before = sys.stdin, sys.stdout, sys.stderr
    sys.stdin, sys.stdout, sys.stderr = output.stdin(), output.stream(), output.stream()
    try:
        yield
    finally:
        sys.stdin, sys.stdout, sys.stderr = before
