"""Drives a model server with Anthropic's Python client: BASE_URL and MODEL from the environment.

Prints "ok NAME" or "FAIL NAME: why" for every check.
"""

import os
import traceback

import anthropic
import pydantic

BASE, MODEL = os.environ["BASE_URL"].removesuffix("/v1"), os.environ["MODEL"]
client = anthropic.Anthropic(base_url=BASE, api_key="none", max_retries=0)
ask = dict(model=MODEL, max_tokens=200, messages=[{"role": "user", "content": "Hello"}])
weather = {
    "name": "get_weather",
    "input_schema": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        "required": ["city", "days"],
    },
}
checks = []


def check(f):
    checks.append(f)
    return f


@check
def messages():
    m = client.messages.create(**{**ask, "max_tokens": 5})
    assert m.stop_reason == "max_tokens" and m.usage.output_tokens == 5 and m.content[0].text, m
    assert client.messages.count_tokens(model=MODEL, messages=ask["messages"]).input_tokens == m.usage.input_tokens


@check
def streams():
    with client.messages.stream(**{**ask, "max_tokens": 8}) as s:
        text = "".join(s.text_stream)
        final = s.get_final_message()
    assert text and text == final.content[0].text and final.stop_reason == "max_tokens"


@check
def tools():
    m = client.messages.create(**ask, tools=[weather], tool_choice={"type": "any"})
    assert m.stop_reason == "tool_use" and isinstance(m.content[0].input["days"], int), m
    with client.messages.stream(**ask, tools=[weather], tool_choice={"type": "tool", "name": "get_weather"}) as s:
        assert isinstance(s.get_final_message().content[0].input["city"], str)


@check
def cut_tools():
    # Whatever of the arguments there was room for, the answer is one.
    for limit in range(1, 10):
        m = client.messages.create(**{**ask, "max_tokens": limit}, tools=[weather], tool_choice={"type": "any"})
        assert isinstance(m.content[0].input, dict) and m.usage.output_tokens <= limit, m
        with client.messages.stream(**{**ask, "max_tokens": limit}, tools=[weather], tool_choice={"type": "any"}) as s:
            assert s.get_final_message().usage.output_tokens <= limit


@check
def structured():
    class Person(pydantic.BaseModel):
        name: str
        age: int

    schema = {**Person.model_json_schema(), "additionalProperties": False}
    m = client.messages.create(**ask, output_config={"format": {"type": "json_schema", "schema": schema}})
    Person.model_validate_json(m.content[0].text)
    if hasattr(client.messages, "parse"):
        assert isinstance(client.messages.parse(**ask, output_format=Person).parsed_output, Person)


@check
def errors():
    for status, kind in {429: anthropic.RateLimitError, 503: anthropic.InternalServerError, 401: anthropic.AuthenticationError}.items():
        try:
            client.messages.create(**ask, extra_headers={"X-Windtunnel-Fault": f"status={status}"})
        except kind as e:
            assert e.status_code == status
        else:
            raise AssertionError(f"expected {kind.__name__}")


for f in checks:
    name = f.__name__
    try:
        f()
        print("ok", name, flush=True)
    except Exception as e:
        at = traceback.extract_tb(e.__traceback__)[-1]
        why = " ".join(f"{type(e).__name__}: {e}".split())
        print(f"FAIL {name}: {why[:400]} ({os.path.basename(at.filename)}:{at.lineno}: {at.line})", flush=True)
