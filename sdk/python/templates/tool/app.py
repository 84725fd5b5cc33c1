"""<NAME>: counts the words of texts."""

from conclave_sdk import InvalidArguments, tool


@tool(idempotent=True)
def count(text: str, shortest: int = 1) -> int:
    """Count the words of a text. Use it when the user asks how long a text is.

    Args:
        text: The text.
        shortest: Words shorter than this do not count.
    """
    if shortest < 1:
        raise InvalidArguments("shortest: must be at least 1")
    return sum(len(word) >= shortest for word in text.split())
