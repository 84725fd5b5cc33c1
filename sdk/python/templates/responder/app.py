"""<NAME>: answers questions with facts of its settings, and asks its model the rest."""

from dataclasses import dataclass, field

from conclave_sdk import Agent, Responder, Role, Turn, View, config, finish, model


@dataclass
class Settings:
    """The plugin's table in the operator's config."""

    facts: dict[str, str] = field(default_factory=dict)


class Desk(Agent, Responder):
    """Knows a few facts."""

    def respond(self, view: View) -> Turn | None:
        """Return the fact that a question asks for; `None` leaves it to the model."""
        # A model's text is an answer already, and a tool's result is for the model.
        if view.pending and view.pending.sender is Role.USER:
            for name, fact in config.get(Settings).facts.items():
                if name in view.text:
                    return finish(fact)
        return None

    def step(self, view: View) -> Turn:
        """Return one turn. Calls of tools are carried out; the next step reads their results."""
        answer = model.complete()
        return answer.as_turn() if answer.tool_calls else finish(answer.text)
