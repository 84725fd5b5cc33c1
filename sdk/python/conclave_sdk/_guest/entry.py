"""The app of the component, which the entry module loads before it imports the exports."""

from __future__ import annotations

import linecache
import logging
import sys
from collections.abc import Mapping
from types import ModuleType

from conclave_sdk import _host, log
from conclave_sdk._guest.host import ComponentHost
from conclave_sdk.app import App, read_app

app = App()


def load(module: ModuleType, sources: Mapping[str, str]) -> None:
    """Take the exports of a module, and keep the sources for the lines of tracebacks.

    `sources` has the text of each of the plugin's modules by the module's name.
    """
    global app
    app = read_app(module)
    for tool in app.tools:
        tool.spec  # noqa: B018 (derived now, so that no call has to)
    for name, text in sources.items():
        path = getattr(sys.modules.get(name), "__file__", None)
        if path:
            # Without a time of modification the cache never looks for the file, which is not there.
            linecache.cache[path] = (len(text), None, text.splitlines(keepends=True), path)
    if not logging.root.handlers:
        logging.root.addHandler(log.Handler())
        logging.root.setLevel(logging.INFO)
    _host.use(ComponentHost())
