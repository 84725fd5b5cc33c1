"""One plugin with a tool for each promise of the pages, an agent and a strategy."""

from conclave_sdk import Agent, DeliveryStrategy, Turn, View, fetch, finish, kv, model, scratch, tool
from conclave_sdk.delivery import Context, Decision, Wake, deliver


@tool
def fails(text: str) -> str:
    """Fail with an exception of its own.

    Args:
        text: What to look up.
    """
    raise LookupError(f"there is no {text}")


@tool
def opened(path: str) -> str:
    """Read a file with the builtin `open`.

    Args:
        path: The file.
    """
    with open(path, encoding="utf-8") as file:
        return file.read()


@tool
def counted() -> int:
    """Count its calls."""
    count = int(kv.get_text("count") or 0) + 1
    kv.set("count", str(count))
    return count


@tool
def fetched(url: str) -> str:
    """Fetch a page.

    Args:
        url: The page.
    """
    return fetch.get(url).text


@tool
def spins() -> None:
    """Never end."""
    while True:
        pass


@tool
def grows() -> int:
    """Take memory without end."""
    held = []
    while True:
        held.append(bytearray(1 << 20))


class Desk(Agent):
    """Asks its model, in its second step."""

    def step(self, view: View) -> Turn:
        """Return the model's answer, with the number of steps."""
        steps = (scratch.get(int) or 0) + 1
        scratch.set(steps)
        answer = model.complete()
        if answer.tool_calls:
            return answer.as_turn()
        return finish(f"{answer.text} ({steps})")


class AtOnce(DeliveryStrategy):
    """Delivers each result at once."""

    def decide(self, wake: Wake, context: Context) -> list[Decision]:
        """Return the decisions, in order."""
        return [deliver(context.pending_results)] if context.pending_results else []
