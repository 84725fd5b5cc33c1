"""A long-term memory, which answers an agent's recall.

Storage is up to the plugin: usually `kv`, and a tool that writes there.
"""

from __future__ import annotations


class Memory:
    """A memory; a subclass is exported."""

    def search(self, query: str, limit: int) -> list[str]:
        """Return at most `limit` memories, best first; empty if none fits."""
        raise NotImplementedError
