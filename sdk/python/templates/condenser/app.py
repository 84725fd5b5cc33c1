"""<NAME>: keeps the first and the last entries of a history."""

from conclave_sdk import Condensation, Condenser, View
from conclave_sdk.condenser import Reason

# Entries that are kept at the end.
LAST = 4


class Recent(Condenser):
    """Leaves out the middle of a history."""

    def condense(self, why: Reason, view: View) -> Condensation | None:
        """Return what may be left out, by the indices of `view.history`; `None` for nothing."""
        length = len(view.history)
        return Condensation().forget(1, length - LAST) if length > LAST + 1 else None
