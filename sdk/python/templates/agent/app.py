"""<NAME>: answers a question with a model."""

from conclave_sdk import Agent, Turn, View, finish, model


class Assistant(Agent):
    """Each call runs in a fresh instance: what must last is in `scratch`, `kv` or the history."""

    def step(self, view: View) -> Turn:
        """Return one turn. An exception becomes an observation, and the agent may try again."""
        if not view.text.strip():
            return finish("There is no question.")
        # The whole history and the task's system text.
        answer = model.complete()
        # Calls of tools are carried out by the host; the next step reads their results.
        return answer.as_turn() if answer.tool_calls else finish(answer.text)
