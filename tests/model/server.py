#!/usr/bin/env python3
"""A language model without a model: responds as the APIs of OpenAI, Anthropic, Gemini and Ollama do. Usage: server.py PORT

A request says in its headers what the response is like; all are optional:
  x-output: N    tokens of output, one event for each (default 5); as many as the maximum of the request, if that is lower
  x-end: …       `cut`: the connection closes in the middle of the stream; `silent`: the response reports no usage;
                 `wait`: the stream pauses before its last event until GET /continue
The input has one token for each four bytes of the request's texts, at least one. GET /seen lists the tokens that each
request has used: {"input", "output"} of what was sent.
"""

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SEEN = []
CONTINUE = threading.Event()
WORD = "word "


def texts(value):
    """The bytes of all texts in a message, without names."""
    if isinstance(value, str):
        return len(value.encode())
    if isinstance(value, list):
        return sum(map(texts, value))
    if isinstance(value, dict):
        return sum(texts(item) for name, item in value.items() if name not in ("role", "type", "model"))
    return 0


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        if self.path == "/continue":
            CONTINUE.set()
        self.reply(SEEN)

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers.get("content-length") or 0)) or b"{}")
        config = body.get("generationConfig") or {}
        options = body.get("options") or {}
        most = (
            body.get("max_completion_tokens") or body.get("max_output_tokens") or body.get("max_tokens")
            or config.get("maxOutputTokens") or options.get("num_predict") or 1_000_000
        )
        prompt = body.get("messages") or body.get("input") or body.get("contents") or body.get("prompt")
        self.input = max(1, texts(prompt) // 4)
        self.output = min(int(self.headers.get("x-output") or 5), most)
        self.ending = self.headers.get("x-end") or ""
        self.model = body.get("model") or "gemini"
        self.used = {"input": self.input, "output": 0}
        SEEN.append(self.used)
        try:
            self.respond(body)
        except BrokenPipeError:
            self.close_connection = True

    def respond(self, body):
        path, streams = self.path.split("?")[0], bool(body.get("stream"))
        if path.endswith("/embeddings"):
            self.used["output"] = 0
            usage = {"prompt_tokens": self.input, "total_tokens": self.input}
            data = [{"object": "embedding", "index": 0, "embedding": [0.5, 0.25]}]
            self.reply({"object": "list", "data": data, "model": self.model, "usage": usage})
        elif path.endswith("/chat/completions"):
            self.chat(body, streams)
        elif path.endswith("/responses"):
            self.response_objects(streams)
        elif path.endswith("/messages"):
            self.anthropic(streams)
        elif ":" in path:
            self.gemini("stream" in path)
        else:
            self.ollama(body.get("stream", True))

    # OpenAI

    def chat(self, body, streams):
        usage = {
            "prompt_tokens": self.input, "completion_tokens": self.output, "total_tokens": self.input + self.output,
            "prompt_tokens_details": {"cached_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": 0},
        }
        base = {"id": "chatcmpl-1", "created": 1, "model": self.model}
        if not streams:
            self.used["output"] = self.output
            message = {"role": "assistant", "content": WORD * self.output}
            if body.get("tools"):
                call = {"id": "call_1", "type": "function", "function": {"name": "lookup", "arguments": '{"q": "x"}'}}
                message = {"role": "assistant", "content": None, "tool_calls": [call]}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            return self.reply(
                base | {"object": "chat.completion", "choices": [choice]}
                | ({} if self.ending == "silent" else {"usage": usage})
            )
        base["object"] = "chat.completion.chunk"
        includes_usage = (body.get("stream_options") or {}).get("include_usage")
        none = {"usage": None} if includes_usage else {}
        self.begin("text/event-stream")
        role = {"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}
        self.event(base | {"choices": [role]} | none)
        for _ in self.tokens():
            delta = {"index": 0, "delta": {"content": WORD}, "finish_reason": None}
            self.event(base | {"choices": [delta]} | none)
        self.event(base | {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]} | none)
        if includes_usage and self.ending != "silent":
            self.event(base | {"choices": [], "usage": usage})
        self.event("[DONE]")
        self.end()

    def response_objects(self, streams):
        usage = {
            "input_tokens": self.input, "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": self.output, "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": self.input + self.output,
        }
        part = {"type": "output_text", "text": WORD * self.output, "annotations": []}
        message = {"type": "message", "id": "msg_1", "status": "completed", "role": "assistant", "content": [part]}
        base = {
            "id": "resp_1", "object": "response", "created_at": 1, "model": self.model, "status": "completed",
            "parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "output": [message],
            "usage": None if self.ending == "silent" else usage,
        }
        if not streams:
            self.used["output"] = self.output
            return self.reply(base)
        started = base | {"status": "in_progress", "output": [], "usage": None}
        self.begin("text/event-stream")
        self.event({"type": "response.created", "sequence_number": 0, "response": started}, True)
        sequence = 1
        for sequence in self.tokens(first=1):
            place = {"item_id": "msg_1", "output_index": 0, "content_index": 0, "logprobs": []}
            delta = {"type": "response.output_text.delta", "sequence_number": sequence, "delta": WORD}
            self.event(delta | place, True)
        self.event({"type": "response.completed", "sequence_number": sequence + 1, "response": base}, True)
        self.end()

    # Anthropic

    def anthropic(self, streams):
        usage = {"input_tokens": self.input, "output_tokens": self.output}
        base = {"id": "msg_1", "type": "message", "role": "assistant", "model": self.model, "stop_sequence": None}
        if not streams:
            self.used["output"] = self.output
            content = [{"type": "text", "text": WORD * self.output}]
            return self.reply(base | {"content": content, "stop_reason": "end_turn", "usage": usage})
        first = {"input_tokens": self.input, "output_tokens": 1}
        self.begin("text/event-stream")
        self.event({"type": "message_start", "message": base | {"content": [], "stop_reason": None, "usage": first}}, True)
        self.event({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}, True)
        for _ in self.tokens():
            delta = {"type": "text_delta", "text": WORD}
            self.event({"type": "content_block_delta", "index": 0, "delta": delta}, True)
        self.event({"type": "content_block_stop", "index": 0}, True)
        delta = {"stop_reason": "end_turn", "stop_sequence": None}
        self.event({"type": "message_delta", "delta": delta, "usage": {"output_tokens": self.output}}, True)
        self.event({"type": "message_stop"}, True)
        self.end()

    # Gemini

    def gemini(self, streams):
        def response(text, **more):
            candidate = {"content": {"role": "model", "parts": [{"text": text}]}, "index": 0}
            return {"candidates": [candidate], "modelVersion": self.model} | more

        usage = {
            "promptTokenCount": self.input, "candidatesTokenCount": self.output,
            "totalTokenCount": self.input + self.output,
        }
        if not streams:
            self.used["output"] = self.output
            return self.reply(response(WORD * self.output, usageMetadata=usage))
        self.begin("text/event-stream")
        for number in self.tokens(first=1):
            so_far = usage | {"candidatesTokenCount": number, "totalTokenCount": self.input + number}
            self.event(response(WORD, usageMetadata=so_far))
        self.end()

    # Ollama

    def ollama(self, streams):
        def line(text, **more):
            return {
                "model": self.model, "created_at": "2026-01-01T00:00:00Z",
                "message": {"role": "assistant", "content": text}, "done": False,
            } | more

        usage = {"done": True, "done_reason": "stop", "prompt_eval_count": self.input, "eval_count": self.output}
        if not streams:
            self.used["output"] = self.output
            return self.reply(line(WORD * self.output, **usage))
        self.begin("application/x-ndjson")
        for _ in self.tokens():
            self.part(json.dumps(line(WORD)) + "\n")
        self.part(json.dumps(line("", **usage)) + "\n")
        self.end()

    # HTTP

    def tokens(self, first=0):
        """Counts the tokens that are sent."""
        for number in range(self.output):
            if self.ending == "cut" and number >= self.output // 2:
                self.close_connection = True
                self.wfile.flush()
                self.connection.shutdown(2)
                raise BrokenPipeError
            if self.ending == "wait" and number == self.output - 1:
                CONTINUE.wait(30)
            yield number + first
            self.used["output"] += 1

    def reply(self, value):
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def begin(self, media_type):
        self.send_response(200)
        self.send_header("content-type", media_type)
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()

    def part(self, text):
        data = text.encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def event(self, value, named=False):
        text = value if isinstance(value, str) else json.dumps(value)
        name = f"event: {value['type']}\n" if named else ""
        self.part(f"{name}data: {text}\n\n")

    def end(self):
        self.wfile.write(b"0\r\n\r\n")


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 512


Server(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
