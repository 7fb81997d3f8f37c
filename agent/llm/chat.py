"""Conversations as chat messages, in the form that OpenAI's API and SFT trainers share."""

import json
from typing import Any

from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelResponse,
    RetryPromptPart,
    ToolReturnPart,
    UserPromptPart,
)

from agent.llm.tools import definitions


def chat_messages(messages: str) -> list[dict[str, Any]]:
    """Chat messages from the `messages` column of `trajectories`; `tool_calls` is None where there are none.

    What a model thought by itself is left out: providers give summaries of it, or nothing.
    """
    chat: list[dict[str, Any]] = []
    for message in ModelMessagesTypeAdapter.validate_json(messages):
        chat += [_assistant(message)] if isinstance(message, ModelResponse) else _request(message)
    return chat


def tools_json() -> str:
    """The tools that these conversations call, as the API's list of function definitions, in JSON."""
    functions = [
        {"name": tool.name, "description": tool.description, "parameters": tool.parameters_json_schema}
        for tool in definitions()
    ]
    return json.dumps([{"type": "function", "function": function} for function in functions])


def _request(message: ModelMessage) -> list[dict[str, Any]]:
    chat = [_message("system", message.instructions)] if message.instructions else []
    for part in message.parts:
        if isinstance(part, UserPromptPart):
            chat.append(_message("user", str(part.content)))
        elif isinstance(part, ToolReturnPart):
            text = part.model_response_str()
            chat.append(_message("tool", text) | {"tool_call_id": part.tool_call_id, "name": part.tool_name})
        elif isinstance(part, RetryPromptPart):
            text = part.model_response()
            chat.append(_message("tool", text) | {"tool_call_id": part.tool_call_id, "name": part.tool_name})
    return chat


def _assistant(message: ModelResponse) -> dict[str, Any]:
    calls = [
        {
            "id": call.tool_call_id,
            "type": "function",
            "function": {"name": call.tool_name, "arguments": call.args_as_json_str()},
        }
        for call in message.tool_calls
    ]
    return _message("assistant", message.text or "") | {"tool_calls": calls or None}


def _message(role: str, content: str) -> dict[str, Any]:
    return {"role": role, "content": content, "tool_calls": None, "tool_call_id": None, "name": None}
