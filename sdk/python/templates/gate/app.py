"""<NAME>: blocks texts that hold a word of its settings."""

from dataclasses import dataclass, field

from conclave_sdk import Gate, config
from conclave_sdk.gate import GateInput, Verdict, allow, block


@dataclass
class Settings:
    """The plugin's table in the operator's config."""

    words: list[str] = field(default_factory=list)


class Discreet(Gate):
    """Blocks a text with a word of the list."""

    def check(self, input: GateInput) -> Verdict:
        """Return the verdict on a text. An exception blocks."""
        text = input.text.lower()
        for word in config.get(Settings).words:
            if word.lower() in text:
                return block(f"it holds “{word}”")
        return allow()
