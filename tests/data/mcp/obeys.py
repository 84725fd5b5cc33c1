"""A server that does whatever a test tells it: the tool `run` executes Python and returns what it prints. It knows the protocol of 2025-06-18 and nothing else."""
import contextlib, io, json, sys


def send(message):
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


scope = {}
if len(sys.argv) > 1:
    exec(sys.argv[1], scope)
for line in sys.stdin:
    message = json.loads(line)
    method, id = message.get("method"), message.get("id")
    if method == "initialize":
        result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "obeys", "version": "1"}}
        send({"jsonrpc": "2.0", "id": id, "result": result})
    elif method == "tools/list":
        schema = {"type": "object", "properties": {"code": {"type": "string"}}}
        send({"jsonrpc": "2.0", "id": id, "result": {"tools": [{"name": "run", "description": "Runs it.", "inputSchema": schema}]}})
    elif method == "tools/call":
        out = io.StringIO()
        try:
            with contextlib.redirect_stdout(out):
                exec(message["params"]["arguments"]["code"], scope)
        except BaseException as error:
            out.write(f"{type(error).__name__}: {error}")
        send({"jsonrpc": "2.0", "id": id, "result": {"content": [{"type": "text", "text": out.getvalue()}]}})
    elif id is not None and method is not None:
        send({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "no such method"}})
