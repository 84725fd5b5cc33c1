"""The SDK's server with a few tools. `stdio`, or `http PORT`."""
import sys

from mcp.server import MCPServer

server = MCPServer("sums")


@server.tool()
def addNumbers(a: int, b: int) -> int:
    """The sum of two whole numbers."""
    return a + b


@server.tool()
def fail() -> str:
    """Fails."""
    raise ValueError("out of ink")


if sys.argv[1] == "http":
    server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[2]))
else:
    server.run("stdio")
