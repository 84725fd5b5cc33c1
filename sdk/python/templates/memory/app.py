"""<NAME>: remembers notes, and finds those that hold the words of a query."""

from conclave_sdk import Memory, kv, tool

# The key of the store; notes are its lines.
KEY = "notes"


class Notebook(Memory):
    """Finds notes by their words."""

    def search(self, query: str, limit: int) -> list[str]:
        """Return at most `limit` notes, the oldest first."""
        words = query.lower().split()
        notes = (kv.get_text(KEY) or "").splitlines()
        return [note for note in notes if all(word in note.lower() for word in words)][:limit]


@tool
def remember(note: str) -> str:
    """Store a note. Use it for facts that will be needed later.

    Args:
        note: One sentence.
    """
    line = " ".join(note.split())
    kv.set(KEY, f"{kv.get_text(KEY) or ''}{line}\n")
    return "stored"
