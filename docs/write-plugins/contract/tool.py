"""A tool in Python, straight on the contract: no SDK yet. Built by hand; see ../contract.md."""
import json

from componentize_py_types import Err
from wit_world import exports
from wit_world.imports import call, log
from wit_world.exports.tools import Outcome, ToolError_InvalidArguments, ToolError_Other, ToolSpec


class Tools(exports.Tools):
    def list_tools(self):
        return [
            ToolSpec(
                name="shout",
                description="Says a text in capital letters.",
                input_schema=json.dumps({
                    "type": "object",
                    "properties": {"text": {"type": "string", "description": "What to say."}},
                    "required": ["text"],
                    "additionalProperties": False,
                }),
                output_schema=None,
                idempotent=True,
                extra=[],
            )
        ]

    def call(self, name, arguments):
        log.log(log.Level.INFO, f"{name} for {call.caller()} in {call.room_id()}")
        if name != "shout":
            raise Err(ToolError_Other(f"there is no tool {name}"))
        text = json.loads(arguments)["text"]
        if not text:
            raise Err(ToolError_InvalidArguments("text is empty"))
        return Outcome(content=text.upper(), value=None, attachments=[], follow_up_calls=[])
