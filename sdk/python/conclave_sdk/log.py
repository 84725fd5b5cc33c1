"""Lines of the plugin's log, for the operator; never for the model.

Lines of the `logging` module go there too: in a component the SDK installs a `Handler` at the root
logger, unless the plugin has installed one.
"""

from __future__ import annotations

import logging

from conclave_sdk import _host


def trace(message: str) -> None:
    """Write one line of level `trace`."""
    _host.current().log("trace", message)


def debug(message: str) -> None:
    """Write one line of level `debug`."""
    _host.current().log("debug", message)


def info(message: str) -> None:
    """Write one line of level `info`."""
    _host.current().log("info", message)


def warn(message: str) -> None:
    """Write one line of level `warn`."""
    _host.current().log("warn", message)


def error(message: str) -> None:
    """Write one line of level `error`."""
    _host.current().log("error", message)


class Handler(logging.Handler):
    """Sends the records of the `logging` module to the plugin's log."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record, with the traceback of its exception."""
        levels = [(40, "error"), (30, "warn"), (20, "info"), (10, "debug")]
        level = next((name for least, name in levels if record.levelno >= least), "trace")
        _host.current().log(level, self.format(record))
