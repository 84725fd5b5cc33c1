"""The SDK's client, at a server that the command line starts. `MODE CALLS COMMAND…`: how to connect (`auto`, `legacy` or a revision), a
JSON list of [tool, arguments], and the server. What it met is printed as one JSON object."""
import asyncio
import json
import sys

from mcp import Client, StdioServerParameters
from mcp.types import ElicitResult

asked = []


async def elicit(_context, params):
    asked.append(params.message)
    return ElicitResult(action="accept", content={"decision": "allow"})


async def main(mode, calls, command):
    server = StdioServerParameters(command=command[0], args=command[1:])
    results = []
    async with Client(server, mode=mode, elicitation_callback=elicit) as client:
        tools = (await client.list_tools()).tools
        for name, arguments in json.loads(calls):
            result = await client.call_tool(name, arguments)
            text = " ".join(getattr(block, "text", block.type) for block in result.content)
            results.append({"text": text, "value": result.structured_content, "is_error": bool(result.is_error)})
        met = {"version": str(client.protocol_version), "tools": [tool.name for tool in tools], "results": results, "asked": asked}
    print(json.dumps(met))


asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
