#!/usr/bin/env python3
"""Asks an API with the packages that its users have, and prints a line of JSON for each case. Usage: clients.py URL CASE…

A case is API[+FEATURE…], or API[+FEATURE…]:OUTPUT[:END], with OUTPUT and END for the headers of server.py. API is chat, responses or
embeddings (the package openai), anthropic, gemini or ollama. Features are stream, usage (the option of OpenAI's streams), tools and
reasoning. With the end `leave`, the client closes the stream before the last token is sent.

The line has the name of the case, the text or the arguments of the call, the reasoning, the tokens of output that the package shows,
and the error: its class, its code and type, the status, and Retry-After.
"""

import json
import sys
from pathlib import Path

# Where `scripts/setup` installs the packages.
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "target/tools/llm-clients"))

QUESTION = [{"role": "user", "content": "Say the same word several times, please."}]
# The greatest output that requests allow. With more than this the server of the tests ignores it.
MOST = 50
PARAMETERS = {"type": "object", "properties": {"q": {"type": "string"}}}


class Case:
    def __init__(self, text):
        name, *rest = text.split(":")
        self.api, *features = name.split("+")
        self.features = set(features)
        self.output, self.end = (rest + ["5", ""])[:2] if len(rest) < 2 else rest
        self.leaves = self.end == "leave"
        self.headers = {"x-case": text, "x-output": self.output}
        if self.end:
            self.headers["x-end"] = "wait" if self.leaves else self.end
        self.most = max(MOST, int(self.output))

    def __contains__(self, feature):
        return feature in self.features


# Each of these yields the text, the reasoning and the usage of each part of the response, as far as it has them.


def chat(url, case):
    client = openai_client(url, case)
    options = {"max_completion_tokens": case.most}
    if "tools" in case:
        options["tools"] = [{"type": "function", "function": {"name": "lookup", "parameters": PARAMETERS}}]
    if "reasoning" in case:
        options["reasoning_effort"] = "high"
    if "usage" in case:
        options["stream_options"] = {"include_usage": True}
    create = client.chat.completions.create
    if "stream" not in case:
        whole = create(model="gpt-4o", messages=QUESTION, **options)
        message = whole.choices[0].message
        text = message.tool_calls[0].function.arguments if message.tool_calls else message.content
        yield text, None, whole.usage and whole.usage.completion_tokens
        return
    with create(model="gpt-4o", messages=QUESTION, stream=True, **options) as stream:
        for chunk in stream:
            for choice in chunk.choices:
                calls = choice.delta.tool_calls
                yield calls[0].function.arguments if calls else choice.delta.content, None, None
            yield None, None, chunk.usage and chunk.usage.completion_tokens


def responses(url, case):
    client = openai_client(url, case)
    options = {"model": "gpt-4o", "input": "Say it.", "max_output_tokens": case.most}
    if "tools" in case:
        options["tools"] = [{"type": "function", "name": "lookup", "parameters": PARAMETERS, "strict": False}]
    if "reasoning" in case:
        options["reasoning"] = {"effort": "high"}
    if "stream" not in case:
        whole = client.responses.create(**options)
        text = whole.output[0].arguments if "tools" in case else whole.output_text
        yield text, None, whole.usage and whole.usage.output_tokens
        return
    with client.responses.create(stream=True, **options) as stream:
        for event in stream:
            if event.type in ("response.output_text.delta", "response.function_call_arguments.delta"):
                yield event.delta, None, None
            elif event.type == "response.completed":
                yield None, None, event.response.usage and event.response.usage.output_tokens


def embeddings(url, case):
    whole = openai_client(url, case).embeddings.create(model="text-embedding-3-small", input=["some text", "and more"])
    yield str(len(whole.data)), None, whole.usage.prompt_tokens


def openai_client(url, case):
    from openai import OpenAI

    return OpenAI(base_url=f"{url}/v1", api_key="sk-1", max_retries=0, default_headers=case.headers)


def anthropic(url, case):
    from anthropic import Anthropic

    client = Anthropic(base_url=url, api_key="sk-1", max_retries=0, default_headers=case.headers)
    options = {"model": "messages-model", "max_tokens": case.most, "messages": QUESTION}
    if "tools" in case:
        options["tools"] = [{"name": "lookup", "input_schema": PARAMETERS}]
    if "reasoning" in case:
        options["thinking"] = {"type": "enabled", "budget_tokens": 1024}
    if "stream" not in case:
        whole = client.messages.create(**options)
        for block in whole.content:
            text = {"text": lambda: block.text, "tool_use": lambda: json.dumps(block.input)}.get(block.type)
            yield text and text(), getattr(block, "thinking", None), whole.usage and whole.usage.output_tokens
        return
    with client.messages.stream(**options) as stream:
        for event in stream:
            if event.type == "content_block_delta":
                delta = event.delta
                yield getattr(delta, "text", getattr(delta, "partial_json", None)), getattr(delta, "thinking", None), None
            elif event.type == "message_delta":
                yield None, None, event.usage.output_tokens


def gemini(url, case):
    from google import genai
    from google.genai import types

    client = genai.Client(api_key="sk-1", http_options={"base_url": url, "headers": case.headers})
    config = {"max_output_tokens": case.most}
    if "tools" in case:
        function = types.FunctionDeclaration(name="lookup", parameters_json_schema=PARAMETERS)
        config["tools"] = [types.Tool(function_declarations=[function])]
        config["automatic_function_calling"] = {"disable": True}
    if "reasoning" in case:
        config["thinking_config"] = {"thinking_budget": 1024, "include_thoughts": True}
    models, request = client.models, {"model": "gemini-2", "contents": "Say it.", "config": config}
    is_stream = "stream" in case
    parts = models.generate_content_stream(**request) if is_stream else [models.generate_content(**request)]
    for part in parts:
        for said in part.candidates[0].content.parts:
            text = json.dumps(said.function_call.args) if said.function_call else said.text
            yield (None, text, None) if said.thought else (text, None, None)
        usage = part.usage_metadata
        yield None, None, usage and usage.candidates_token_count + (usage.thoughts_token_count or 0)


def ollama(url, case):
    from ollama import Client

    options = {"model": "llama", "messages": QUESTION, "options": {"num_predict": case.most}}
    if "tools" in case:
        options["tools"] = [{"type": "function", "function": {"name": "lookup", "parameters": PARAMETERS}}]
    if "reasoning" in case:
        options["think"] = True
    client, is_stream = Client(host=url, headers=case.headers), "stream" in case
    parts = client.chat(stream=True, **options) if is_stream else [client.chat(**options)]
    for part in parts:
        calls = part.message.tool_calls
        text = json.dumps(dict(calls[0].function.arguments)) if calls else part.message.content
        yield text, part.message.thinking, part.eval_count


APIS = {api.__name__: api for api in (chat, responses, embeddings, anthropic, gemini, ollama)}


def ask(url, case, line):
    """Adds what the response says to the line, also if it ends with an error."""
    parts = APIS[case.api](url, case)
    said = 0
    for text, reasoning, usage in parts:
        line["text"] += text or ""
        line["reasoning"] += reasoning or ""
        line["usage"] = usage or line["usage"]
        said += bool(text or reasoning)
        if case.leaves and said == int(case.output) - 1:
            parts.close()
            return


def described(error):
    """The code and the type of an error, whose place depends on the package."""
    body = getattr(error, "body", None) or getattr(error, "details", None)
    body = body if isinstance(body, dict) else {}
    inner = body.get("error") if isinstance(body.get("error"), dict) else body
    headers = getattr(getattr(error, "response", None), "headers", None) or {}
    return {
        "error": type(error).__name__,
        "code": getattr(error, "code", None) or inner.get("code"),
        "type": inner.get("type") or inner.get("status"),
        "status": getattr(error, "status_code", None),
        "retry_after": headers.get("retry-after"),
        "message": str(error)[:300],
    }


def main():
    url, *cases = sys.argv[1:]
    for name in cases:
        line = {"case": name, "text": "", "reasoning": "", "usage": None, "error": None}
        try:
            ask(url, Case(name), line)
        except Exception as error:  # every error of a package is a result
            line |= described(error)
        print(json.dumps(line), flush=True)


main()
