"""Secrets that the operator bound to hosts; needs the `secrets` grant.

A plugin never sees a value. It writes a placeholder into a request, which the host replaces:
`fetch.get(url, headers={"authorization": f"Bearer {secrets.placeholder('met_token')}"})`.
"""

from __future__ import annotations

from conclave_sdk import _host


def placeholder(name: str) -> str:
    """Return the placeholder of a secret, for a header, the query or the body of a request.

    Raises `Denied` if no secret of this name was granted.
    """
    return _host.current().secret(name)
