"""The client of the conformance suite: a config with the suite's server as a source of tools, each of which is called once
through `conclave mcp`. The address is the last argument."""

import json
import os
import subprocess
import sys
import tempfile

CONFIG = """entry = "main"
[plugins.main]
source = "stock:chat"
grants.model = ["default"]
[models.default]
kind = "scripted"
replies = "replies.json"
[tasks.main]
agent = "main"
[plugins.far]
source = {{ mcp = {{ url = "{url}" }} }}
[[policy]]
tool = "*"
decide = "allow"
"""
VALUES = {"string": "a", "integer": 1, "number": 1, "boolean": True, "array": [], "object": {}}


def value(schema):
    if "enum" in schema:
        return schema["enum"][0]
    kind = schema.get("type", "string")
    return VALUES.get(kind[0] if isinstance(kind, list) else kind)


def arguments(schema):
    required = schema.get("required", [])
    properties = schema.get("properties", {})
    return {name: value(properties.get(name, {})) for name in (required or properties)}


def main(url):
    with tempfile.TemporaryDirectory() as folder:
        config = os.path.join(folder, "c.toml")
        with open(config, "w", encoding="utf-8") as file:
            file.write(CONFIG.format(url=url))
        with open(os.path.join(folder, "replies.json"), "w", encoding="utf-8") as file:
            file.write('{"replies": []}')
        command = [os.environ["CONCLAVE_PROGRAM"], "mcp", config, "--no-journal"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as served:
            number = 0

            def ask(method, params):
                nonlocal number
                number += 1
                request = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
                served.stdin.write(json.dumps(request) + "\n")
                served.stdin.flush()
                for line in served.stdout:
                    answer = json.loads(line)
                    if answer.get("id") == number and "method" not in answer:
                        return answer.get("result", {})
                sys.exit(served.wait() or 1)

            info = {"name": "suite", "version": "1"}
            ask("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info})
            for tool in ask("tools/list", {}).get("tools", []):
                call = {"name": tool["name"], "arguments": arguments(tool["inputSchema"])}
                print(json.dumps(ask("tools/call", call)))
            served.stdin.close()


main(sys.argv[-1])
