"""<NAME>: rates the risk of actions before the host carries them out."""

from conclave_sdk import SecurityAnalyzer, View
from conclave_sdk.actions import Action, Reply, Run, Write
from conclave_sdk.analyzer import Verdict, high, low, medium


class Careful(SecurityAnalyzer):
    """Takes deletions for risky."""

    def assess(self, action: Action, thought: str, view: View) -> Verdict:
        """Return the risk of an action. An exception counts as a high risk."""
        match action:
            case Run(command) if "rm " in command:
                return high("it deletes files")
            case Reply(tool_calls=calls) if any(
                call.name.endswith((".forget", ".delete")) for call in calls
            ):
                return high("it deletes something")
            case Run() | Write():
                return medium("it changes something")
            case _:
                return low()
