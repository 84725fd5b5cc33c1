"""<NAME>: answers questions with facts of its settings, and leaves when there is none to give."""

from dataclasses import dataclass, field

from conclave_sdk import SimulatedUser, View, config


@dataclass
class Settings:
    """The plugin's table in the operator's config."""

    facts: dict[str, str] = field(default_factory=dict)


class Guest(SimulatedUser):
    """Knows a few facts."""

    def answer(self, question: str, view: View) -> str | None:
        """Return the fact that a question asks for."""
        if "?" in question:
            for name, fact in config.get(Settings).facts.items():
                if name in question:
                    return fact
        # A user's `quit` ends the task.
        return "quit"
