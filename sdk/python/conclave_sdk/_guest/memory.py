"""The export `memory`."""

from __future__ import annotations

from typing import Any

from conclave_sdk._guest import entry
from conclave_sdk._guest.codec import encoder
from conclave_sdk._guest.errors import ErrorForm

_error = ErrorForm("memory", "MemoryError")
_kind: Any = entry.app.classes["memory"]
_of_texts = encoder(list[str])


class Memory:
    def search(self, query: str, limit: int) -> Any:
        try:
            return _of_texts(list(_kind().search(query, limit))[:limit])
        except Exception as error:
            _error.raise_from(error)
