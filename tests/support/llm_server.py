"""An OpenAI-compatible server on loopback whose model is a script, and which can fail as real providers do.

It answers Anthropic's API, too."""

import json
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

Calls = list[tuple[str, dict[str, Any] | str]]
"""Tools to call with their arguments; a string is sent as it is, JSON or not."""


@dataclass(frozen=True)
class Reply:
    """What the model answers."""

    calls: Calls = field(default_factory=list)
    text: str | None = None


Script = Callable[[list[dict]], Reply]
"""The messages of a request, as the API has them, → the answer: no state, so that a conversation can go on anywhere."""


def steps(*replies: Reply) -> Script:
    """A model that gives these answers in turn, by how many it has given in this conversation; then the last again."""

    def script(messages: list[dict]) -> Reply:
        given = sum(message["role"] == "assistant" for message in messages)
        return replies[min(given, len(replies) - 1)]

    return script


class LlmServer:
    """Serves `/v1/chat/completions` and `/v1/messages`. `faults` are used up one a request: an HTTP status, "stall"
    (silence for good), "broken" (the stream ends in the middle), "cut" (it ends early, without an error), "garbage"
    (no JSON), or None.

    `requests` are the bodies of the requests that were answered, `failed` counts the faults; `keys` are the
    authorisations that came.
    """

    def __init__(self, script: Script, faults: Iterable[int | str | None] = (), retry_after: str | None = None) -> None:
        self.script, self.faults, self.retry_after = script, list(faults), retry_after
        self.requests: list[dict] = []
        self.failed = 0
        self.keys: list[str] = []
        self.released = threading.Event()
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"llm": self}))
        self._http.daemon_threads = True

    @property
    def url(self) -> str:
        """The base URL to give to a client."""
        return f"http://127.0.0.1:{self._http.server_port}/v1"

    def __enter__(self) -> Self:
        threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.released.set()
        self._http.shutdown()
        self._http.server_close()


class _Handler(BaseHTTPRequestHandler):
    llm: LlmServer
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        llm = self.llm
        llm.keys.append(self.headers.get("Authorization", ""))
        fault = llm.faults.pop(0) if llm.faults else None
        if fault is not None:
            llm.failed += 1
        if isinstance(fault, int):
            key = self.headers.get("Authorization", "")
            self._json({"error": {"message": f"no: {fault} for {key}", "type": "fault", "code": None}}, fault)
        elif fault == "stall":
            llm.released.wait()
            self.close_connection = True
        elif fault == "garbage":
            self._send(b"<html>upstream is away</html>", 200, "application/json")
        elif "/messages" in self.path:
            llm.requests.append(body)
            self._anthropic(body, llm.script(body["messages"]))
        else:
            if fault is None:
                llm.requests.append(body)
            (self._stream if body.get("stream") else self._whole)(body, llm.script(body["messages"]), fault)

    def _whole(self, body: dict, reply: Reply, fault: str | None) -> None:
        message = {"role": "assistant", "content": reply.text}
        if reply.calls:
            message["tool_calls"] = _calls(reply, len(body["messages"]))
        choice = {"index": 0, "message": message, "finish_reason": _finish(reply)}
        answer = {**_head(body), "object": "chat.completion", "choices": [choice], "usage": _usage(body, reply)}
        self._json(answer, 200)

    def _stream(self, body: dict, reply: Reply, fault: str | None) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        delta = {"role": "assistant", "content": reply.text or ""}
        self._event({**_head(body), "choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
        for number, call in enumerate(_calls(reply, len(body["messages"]))):
            arguments = call["function"]["arguments"]
            half = len(arguments) // 2
            first = {**call, "index": number, "function": {**call["function"], "arguments": arguments[:half]}}
            self._delta(body, {"tool_calls": [first]})
            if fault == "broken":
                self.close_connection = True
                return
            self._delta(body, {"tool_calls": [{"index": number, "function": {"arguments": arguments[half:]}}]})
        if fault != "cut":
            self._event({**_head(body), "choices": [{"index": 0, "delta": {}, "finish_reason": _finish(reply)}]})
            self._event({**_head(body), "choices": [], "usage": _usage(body, reply)})
            self._chunk(b"data: [DONE]\n\n")
        self._chunk(b"")

    def _anthropic(self, body: dict, reply: Reply) -> None:
        """An answer of Anthropic's API, whole or streamed."""
        blocks = [{"type": "text", "text": reply.text}] if reply.text else []
        for call in _calls(reply, len(body["messages"])):
            name, given = call["function"]["name"], json.loads(call["function"]["arguments"])
            blocks.append({"type": "tool_use", "id": call["id"], "name": name, "input": given})
        usage = {"input_tokens": _usage(body, reply)["prompt_tokens"], "output_tokens": 1}
        message = {"id": "msg_1", "type": "message", "role": "assistant", "model": body["model"], "stop_sequence": None}
        end = {"stop_reason": "tool_use" if reply.calls else "end_turn", "stop_sequence": None}
        if not body.get("stream"):
            self._json({**message, **end, "content": blocks, "usage": usage}, 200)
            return
        events = [{"type": "message_start", "message": {**message, "stop_reason": None, "content": [], "usage": usage}}]
        for index, block in enumerate(blocks):
            text = block["type"] == "text"
            empty = {**block, "text": ""} if text else {**block, "input": {}}
            delta = {"type": "text_delta", "text": block["text"]} if text else {"type": "input_json_delta"}
            delta |= {} if text else {"partial_json": json.dumps(block["input"])}
            events.append({"type": "content_block_start", "index": index, "content_block": empty})
            events.append({"type": "content_block_delta", "index": index, "delta": delta})
            events.append({"type": "content_block_stop", "index": index})
        events += [{"type": "message_delta", "delta": end, "usage": usage}, {"type": "message_stop"}]
        text = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)
        self._send(text.encode(), 200, "text/event-stream")

    def _delta(self, body: dict, delta: dict) -> None:
        self._event({**_head(body), "choices": [{"index": 0, "delta": delta, "finish_reason": None}]})

    def _event(self, event: dict) -> None:
        self._chunk(f"data: {json.dumps({'object': 'chat.completion.chunk', **event})}\n\n".encode())

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def _json(self, document: dict, status: int) -> None:
        self._send(json.dumps(document).encode(), status, "application/json")

    def _send(self, data: bytes, status: int, kind: str) -> None:
        self.send_response(status)
        if self.llm.retry_after is not None and status >= 400:
            self.send_header("Retry-After", self.llm.retry_after)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def _head(body: dict) -> dict:
    return {"id": "chatcmpl-1", "created": int(time.time()), "model": body["model"]}


def _calls(reply: Reply, conversation: int) -> list[dict]:
    return [
        {
            "id": f"call_{conversation}_{number}",
            "type": "function",
            "function": {"name": name, "arguments": given if isinstance(given, str) else json.dumps(given)},
        }
        for number, (name, given) in enumerate(reply.calls)
    ]


def _finish(reply: Reply) -> str:
    return "tool_calls" if reply.calls else "stop"


def _usage(body: dict, reply: Reply) -> dict:
    given, made = len(json.dumps(body["messages"])) // 4, 1 + len(json.dumps(reply.calls)) // 4
    return {"prompt_tokens": given, "completion_tokens": made, "total_tokens": given + made}
