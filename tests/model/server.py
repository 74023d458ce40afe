#!/usr/bin/env python3
"""A language model without a model: responds as the APIs of OpenAI, Anthropic, Gemini and Ollama do. Usage: server.py PORT

A request says in its headers what the response is like; all are optional:
  x-output: N    tokens of output, one event for each (default 5); as many as the maximum of the request, if that is lower
  x-end: …       `cut`: the connection closes in the middle of the body; `silent`: the response reports no usage;
                 `wait`: the stream pauses before its last event until GET /continue
A request with tools gets a call in place of a text. With reasoning, half of the output is reasoning, which OpenAI does not show.
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
TOOL = "lookup"


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
        self.ending = ""
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
        reasons = [body.get(name) for name in ("reasoning_effort", "reasoning", "thinking", "think")]
        self.input = max(1, texts(prompt) // 4)
        self.output = min(int(self.headers.get("x-output") or 5), most)
        self.reasoning = self.output // 2 if any([*reasons, config.get("thinkingConfig")]) else 0
        self.calls = bool(body.get("tools"))
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

    # What is said

    def texts(self):
        """The reasoning, and the text or the arguments of the call."""
        return WORD * self.reasoning, "".join(self.piece(number) for number in range(self.reasoning, self.output))

    def piece(self, number):
        """The text of a token."""
        begin = '{"q": "' if self.calls and number == self.reasoning else ""
        end = '"}' if self.calls and number == self.output - 1 else ""
        return begin + WORD + end

    def tokens(self):
        """Yields the number of each token that is sent, from 0, and its text."""
        for number in range(self.output):
            if self.ending == "cut" and number >= self.output // 2:
                self.cut()
            if self.ending == "wait" and number == self.output - 1:
                CONTINUE.wait(30)
            yield number, self.piece(number)
            self.used["output"] += 1

    # OpenAI

    def chat(self, body, streams):
        usage = {
            "prompt_tokens": self.input, "completion_tokens": self.output, "total_tokens": self.input + self.output,
            "prompt_tokens_details": {"cached_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": self.reasoning},
        }
        base = {"id": "chatcmpl-1", "created": 1, "model": self.model}
        call = {"index": 0, "id": "call_1", "type": "function", "function": {"name": TOOL, "arguments": ""}}
        reason = "tool_calls" if self.calls else "stop"
        if not streams:
            message = {"role": "assistant", "content": self.texts()[1]}
            if self.calls:
                call["function"]["arguments"] = self.texts()[1]
                message = {"role": "assistant", "content": None, "tool_calls": [call]}
            choice = {"index": 0, "message": message, "finish_reason": reason}
            self.reply_used(base | {"object": "chat.completion", "choices": [choice]}, usage=usage)
            return
        base["object"] = "chat.completion.chunk"
        includes_usage = (body.get("stream_options") or {}).get("include_usage")
        none = {"usage": None} if includes_usage else {}

        def chunk(delta, finish_reason=None):
            self.event(base | {"choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}]} | none)

        self.begin("text/event-stream")
        chunk({"role": "assistant", "content": None, "tool_calls": [call]} if self.calls else {"role": "assistant", "content": ""})
        for number, piece in self.tokens():
            if number >= self.reasoning:
                arguments = {"tool_calls": [{"index": 0, "function": {"arguments": piece}}]}
                chunk(arguments if self.calls else {"content": piece})
        chunk({}, reason)
        if includes_usage and self.ending != "silent":
            self.event(base | {"choices": [], "usage": usage})
        self.event("[DONE]")
        self.end()

    def response_objects(self, streams):
        usage = {
            "input_tokens": self.input, "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": self.output, "output_tokens_details": {"reasoning_tokens": self.reasoning},
            "total_tokens": self.input + self.output,
        }
        text = self.texts()[1]
        item = {
            "type": "message", "id": "msg_1", "status": "completed", "role": "assistant",
            "content": [{"type": "output_text", "text": text, "annotations": []}],
        }
        if self.calls:
            item = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": TOOL, "arguments": text, "status": "completed"}
        base = {
            "id": "resp_1", "object": "response", "created_at": 1, "model": self.model, "status": "completed",
            "parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "output": [item],
            "usage": None if self.ending == "silent" else usage,
        }
        if not streams:
            self.reply_used(base)
            return
        started = base | {"status": "in_progress", "output": [], "usage": None}
        self.begin("text/event-stream")
        self.event({"type": "response.created", "sequence_number": 0, "response": started}, True)
        sequence = 1
        for number, piece in self.tokens():
            if number >= self.reasoning:
                kind = "function_call_arguments" if self.calls else "output_text"
                place = {"item_id": item["id"], "output_index": 0, "content_index": 0, "logprobs": []}
                self.event({"type": f"response.{kind}.delta", "sequence_number": sequence, "delta": piece} | place, True)
                sequence += 1
        self.event({"type": "response.completed", "sequence_number": sequence, "response": base}, True)
        self.end()

    # Anthropic

    def anthropic(self, streams):
        usage = {
            "input_tokens": self.input, "output_tokens": self.output,
            "output_tokens_details": {"thinking_tokens": self.reasoning},
        }
        base = {"id": "msg_1", "type": "message", "role": "assistant", "model": self.model, "stop_sequence": None}
        reason = "tool_use" if self.calls else "end_turn"
        thought, text = self.texts()
        call = {"type": "tool_use", "id": "toolu_1", "name": TOOL, "input": {}}
        if not streams:
            content = [call | {"input": json.loads(text)} if self.calls else {"type": "text", "text": text}]
            if thought:
                content.insert(0, {"type": "thinking", "thinking": thought, "signature": "s"})
            self.reply_used(base | {"content": content, "stop_reason": reason}, usage=usage)
            return
        first = {"input_tokens": self.input, "output_tokens": 1}
        self.begin("text/event-stream")
        self.event({"type": "message_start", "message": base | {"content": [], "stop_reason": None, "usage": first}}, True)
        block = call if self.calls else {"type": "text", "text": ""}
        index = -1
        for number, piece in self.tokens():
            if number in (0, self.reasoning):
                if index >= 0:
                    self.event({"type": "content_block_stop", "index": index}, True)
                index += 1
                thinking = {"type": "thinking", "thinking": "", "signature": ""}
                begun = thinking if number < self.reasoning else block
                self.event({"type": "content_block_start", "index": index, "content_block": begun}, True)
            delta = {"type": "input_json_delta", "partial_json": piece} if self.calls else {"type": "text_delta", "text": piece}
            if number < self.reasoning:
                delta = {"type": "thinking_delta", "thinking": piece}
            self.event({"type": "content_block_delta", "index": index, "delta": delta}, True)
        self.event({"type": "content_block_stop", "index": index}, True)
        delta = {"stop_reason": reason, "stop_sequence": None}
        self.event({"type": "message_delta", "delta": delta, "usage": usage}, True)
        self.event({"type": "message_stop"}, True)
        self.end()

    # Gemini

    def gemini(self, streams):
        def response(parts, output):
            thoughts = min(self.reasoning, output)
            usage = {
                "promptTokenCount": self.input, "candidatesTokenCount": output - thoughts,
                "thoughtsTokenCount": thoughts, "totalTokenCount": self.input + output,
            }
            candidate = {"content": {"role": "model", "parts": parts}, "index": 0}
            return {"candidates": [candidate], "modelVersion": self.model} | self.unless_silent(usageMetadata=usage)

        thought, text = self.texts()
        thoughts = [{"text": thought, "thought": True}] if thought else []
        call = {"functionCall": {"name": TOOL, "args": json.loads(text)}} if self.calls else None
        if not streams:
            self.reply_used(response([*thoughts, call or {"text": text}], self.output))
            return
        self.begin("text/event-stream")
        for number, piece in self.tokens():
            if number < self.reasoning:
                self.event(response([{"text": piece, "thought": True}], number + 1))
            elif not call:
                self.event(response([{"text": piece}], number + 1))
        if call:
            self.event(response([call], self.output))
        self.end()

    # Ollama

    def ollama(self, streams):
        def line(message, **more):
            message = {"role": "assistant", "content": ""} | message
            return {"model": self.model, "created_at": "2026-01-01T00:00:00Z", "message": message, "done": False} | more

        counts = self.unless_silent(prompt_eval_count=self.input, eval_count=self.output)
        last = {"done": True, "done_reason": "stop"} | counts
        thought, text = self.texts()
        calls = {"tool_calls": [{"function": {"name": TOOL, "arguments": json.loads(text)}}]} if self.calls else None
        if not streams:
            self.reply_used(line({"thinking": thought} | (calls or {"content": text}), **last))
            return
        self.begin("application/x-ndjson")
        for number, piece in self.tokens():
            if number < self.reasoning:
                self.part(json.dumps(line({"thinking": piece})) + "\n")
            elif not calls:
                self.part(json.dumps(line({"content": piece})) + "\n")
        if calls:
            self.part(json.dumps(line(calls)) + "\n")
        self.part(json.dumps(line({}, **last)) + "\n")
        self.end()

    # HTTP

    def unless_silent(self, **usage):
        return {} if self.ending == "silent" else usage

    def reply_used(self, value, **usage):
        """A whole response, with its usage."""
        self.used["output"] = self.output
        self.reply(value | self.unless_silent(**usage))

    def reply(self, value):
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        if self.ending == "cut":
            self.wfile.write(body[: len(body) // 2])
            self.cut()
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

    def cut(self):
        """Closes the connection before the end of the body."""
        self.wfile.flush()
        self.connection.shutdown(2)
        raise BrokenPipeError


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 512


Server(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
