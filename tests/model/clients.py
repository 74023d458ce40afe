#!/usr/bin/env python3
"""Asks an API with the packages that its users have, and prints a line of JSON for each case. Usage: clients.py URL CASE…

A case is PACKAGE:KIND, or PACKAGE:KIND:OUTPUT[:END], with OUTPUT and END for the headers of server.py. The line has the name of the
case, the text or the number of events, the usage that the package shows, and the error: its class, code and status.
"""

import json
import sys
from pathlib import Path

# Where `scripts/setup` installs the packages.
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "target/tools/llm-clients"))

MOST = 50
QUESTION = [{"role": "user", "content": "Say the same word several times, please."}]


def openai_package(url, kind, headers):
    from openai import OpenAI

    client = OpenAI(base_url=f"{url}/v1", api_key="sk-1", max_retries=0, default_headers=headers)
    if kind == "chat":
        whole = client.chat.completions.create(model="gpt-4o", messages=QUESTION, max_completion_tokens=MOST)
        return whole.choices[0].message.content, whole.usage.completion_tokens
    if kind == "tools":
        tool = {"type": "function", "function": {"name": "lookup", "parameters": {"type": "object"}}}
        whole = client.chat.completions.create(model="gpt-4o", messages=QUESTION, max_tokens=MOST, tools=[tool])
        return whole.choices[0].message.tool_calls[0].function.name, whole.usage.completion_tokens
    if kind in ("stream", "stream-usage"):
        options = {"stream_options": {"include_usage": True}} if kind == "stream-usage" else {}
        text, usage = "", None
        stream = client.chat.completions.create(
            model="gpt-4o", messages=QUESTION, max_completion_tokens=MOST, stream=True, **options
        )
        for chunk in stream:
            text += "".join(choice.delta.content or "" for choice in chunk.choices)
            usage = chunk.usage.completion_tokens if chunk.usage else usage
        return text, usage
    if kind == "responses":
        whole = client.responses.create(model="gpt-4o", input="Say it.", max_output_tokens=MOST)
        return whole.output_text, whole.usage.output_tokens
    if kind == "responses-stream":
        text, usage = "", None
        for event in client.responses.create(model="gpt-4o", input="Say it.", max_output_tokens=MOST, stream=True):
            text += event.delta if event.type == "response.output_text.delta" else ""
            usage = event.response.usage.output_tokens if event.type == "response.completed" else usage
        return text, usage
    whole = client.embeddings.create(model="text-embedding-3-small", input=["some text", "and more"])
    return len(whole.data), whole.usage.prompt_tokens


def anthropic_package(url, kind, headers):
    from anthropic import Anthropic

    client = Anthropic(base_url=url, api_key="sk-1", max_retries=0, default_headers=headers)
    if kind == "message":
        whole = client.messages.create(model="claude", max_tokens=MOST, messages=QUESTION)
        return whole.content[0].text, whole.usage.output_tokens
    with client.messages.stream(model="claude", max_tokens=MOST, messages=QUESTION) as stream:
        text = "".join(stream.text_stream)
        return text, stream.get_final_message().usage.output_tokens


def gemini_package(url, kind, headers):
    from google import genai

    client = genai.Client(api_key="sk-1", http_options={"base_url": url, "headers": headers})
    settings = {"max_output_tokens": MOST}
    if kind == "content":
        whole = client.models.generate_content(model="gemini-2", contents="Say it.", config=settings)
        return whole.text, whole.usage_metadata.candidates_token_count
    text, usage = "", None
    for chunk in client.models.generate_content_stream(model="gemini-2", contents="Say it.", config=settings):
        text += chunk.text or ""
        usage = chunk.usage_metadata.candidates_token_count if chunk.usage_metadata else usage
    return text, usage


def ollama_package(url, kind, headers):
    from ollama import Client

    client, settings = Client(host=url, headers=headers), {"num_predict": MOST}
    if kind == "chat":
        whole = client.chat(model="llama", messages=QUESTION, options=settings)
        return whole.message.content, whole.eval_count
    text, usage = "", None
    for part in client.chat(model="llama", messages=QUESTION, options=settings, stream=True):
        text, usage = text + part.message.content, part.eval_count or usage
    return text, usage


PACKAGES = {
    "openai": openai_package,
    "anthropic": anthropic_package,
    "gemini": gemini_package,
    "ollama": ollama_package,
}


def main():
    url, *cases = sys.argv[1:]
    for case in cases:
        package, kind, *rest = case.split(":")
        headers = dict(zip(["x-output", "x-end"], rest))
        line = {"case": case, "text": None, "usage": None, "error": None, "code": None, "status": None}
        try:
            line["text"], line["usage"] = PACKAGES[package](url, kind, headers)
        except Exception as error:  # every error of a package is a result
            line["error"], line["code"] = type(error).__name__, getattr(error, "code", None)
            line["status"] = getattr(error, "status_code", None)
            line["message"] = str(error)[:300]
        print(json.dumps(line), flush=True)


main()
