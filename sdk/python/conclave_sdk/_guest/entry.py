"""The app of the component, which the entry module loads before it imports the exports."""

from __future__ import annotations

import contextlib
import gc
import importlib
import linecache
import logging
import sys
from collections.abc import Mapping
from types import ModuleType

from conclave_sdk import _host, log
from conclave_sdk._guest.errors import source_paths
from conclave_sdk._guest.host import ComponentHost
from conclave_sdk.app import App, read_app

# Objects that a call allocates before it collects cycles.
_GARBAGE = 100_000

app = App()


def load(module: ModuleType, sources: Mapping[str, str]) -> None:
    """Take the exports of a module, and keep the sources for the lines of tracebacks.

    `sources` has the path of each of the plugin's modules in the author's folder.
    """
    global app
    app = read_app(module)
    for tool in app.tools:
        tool.spec  # noqa: B018 (derived now, so that no call has to)
    for name, path in sources.items():
        file = getattr(sys.modules.get(name), "__file__", None)
        if file:
            source_paths[file] = path
            lines = linecache.getlines(file)
            # Without a time of modification the cache never looks for the file, which will be gone.
            linecache.cache[file] = (sum(map(len, lines)), None, lines, file)
    if not logging.root.handlers:
        logging.root.addHandler(log.Handler())
        logging.root.setLevel(logging.INFO)
    _host.use(ComponentHost())


def attempt(names: list[str]) -> None:
    """Import modules that may be absent."""
    for name in names:
        # Also another exception than `ImportError` means that the module cannot be used here.
        with contextlib.suppress(Exception):
            importlib.import_module(name)


def freeze() -> None:
    """Leave all objects of the build alone: a collection would write to every page of them."""
    gc.collect()
    gc.freeze()
    # Most calls end before a collection pays off, and then their memory is dropped as a whole.
    gc.set_threshold(_GARBAGE)
