"""A model without weights behind LiteLLM: it calls the first tool that it is offered when it is asked a question, and tells what came of
it; to anything else it says how many messages it has read. LiteLLM checks the request and encodes the answer, also as a stream.
"""
import json

from fastapi import Request
from litellm import CustomLLM
from litellm.proxy._types import ProxyException, UserAPIKeyAuth
from litellm.types.utils import ModelResponse

KEY = "sk-conclave-test"


async def user_api_key_auth(request: Request, api_key: str) -> UserAPIKeyAuth:
    if api_key != KEY:
        # Repeats the key, as some servers do.
        raise ProxyException(message=f"invalid key {api_key}", type="auth_error", param="key", code=401)
    return UserAPIKeyAuth(api_key=api_key)


def text_of(message):
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return " ".join(part.get("text", f"<{part['type']}>") for part in content)


def answer(messages, tools):
    """The text of a reply, or the arguments of a call."""
    last = messages[-1]
    if last["role"] == "tool":
        return f"The tool says: {text_of(last)[:60]}", None
    question = text_of(last)
    if question.endswith("?") and tools:
        return None, (tools[0]["function"]["name"], {"query": question.rstrip("?")})
    return f"I have read {len(messages)} messages; the last one is: {question}", None


class Desk(CustomLLM):
    async def acompletion(self, *args, **kwargs):
        text, call = answer(kwargs["messages"], (kwargs.get("optional_params") or {}).get("tools"))
        response = ModelResponse()
        response.choices[0].message.content = text
        if call:
            response.choices[0].finish_reason = "tool_calls"
            function = {"name": call[0], "arguments": json.dumps(call[1])}
            response.choices[0].message.tool_calls = [{"id": "call_1", "type": "function", "function": function}]
        response.usage.prompt_tokens, response.usage.completion_tokens = 11, 7
        return response

    async def astreaming(self, *args, **kwargs):
        text, call = answer(kwargs["messages"], (kwargs.get("optional_params") or {}).get("tools"))
        chunk = {"text": "", "is_finished": False, "finish_reason": None, "index": 0, "tool_use": None, "usage": None}
        for word in (text or "").split(" ") if text else []:
            yield {**chunk, "text": word + " "}
        if call:
            arguments = json.dumps(call[1])
            for piece in (arguments[:5], arguments[5:]):
                yield {**chunk, "tool_use": {"id": "call_1", "type": "function", "index": 0, "function": {"name": call[0], "arguments": piece}}}
        usage = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
        yield {**chunk, "is_finished": True, "finish_reason": "tool_calls" if call else "stop", "usage": usage}


desk = Desk()
