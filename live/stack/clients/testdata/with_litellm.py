"""Drives a model server with LiteLLM: BASE_URL and MODEL from the environment.

Prints "ok NAME" or "FAIL NAME: why" for every check.
"""

import asyncio
import json
import os
import traceback

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # nothing is fetched

import litellm
import pydantic

litellm.telemetry, litellm.suppress_debug_info = False, True
BASE, MODEL = os.environ["BASE_URL"], os.environ["MODEL"]
ask = dict(model="hosted_vllm/" + MODEL, api_base=BASE, api_key="none", num_retries=0, messages=[{"role": "user", "content": "Hello"}])
weather = {
    "type": "function",
    "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city", "days"]}},
}
checks = []


def check(f):
    checks.append(f)
    return f


class Person(pydantic.BaseModel):
    name: str
    age: int


@check
def completes():
    r = litellm.completion(**ask, max_tokens=5)
    assert r.choices[0].message.content and r.choices[0].finish_reason == "length" and r.usage.completion_tokens == 5, r


@check
def streams():
    chunks = list(litellm.completion(**ask, max_tokens=5, stream=True, stream_options={"include_usage": True}))
    whole = litellm.stream_chunk_builder(chunks, messages=ask["messages"])
    assert whole.choices[0].message.content and whole.usage.completion_tokens == 5, whole


@check
def text():
    r = litellm.text_completion(model="hosted_vllm/" + MODEL, api_base=BASE, api_key="none", prompt="Once", max_tokens=3)
    assert r.choices[0].text, r


@check
def structured():
    r = litellm.completion(**ask, response_format=Person)
    assert isinstance(Person.model_validate_json(r.choices[0].message.content), Person), r


@check
def tools():
    r = litellm.completion(**ask, tools=[weather], tool_choice="required")
    call = r.choices[0].message.tool_calls[0]
    assert call.function.name == "get_weather" and isinstance(json.loads(call.function.arguments)["days"], int), r
    answered = ask["messages"] + [r.choices[0].message.model_dump(), {"role": "tool", "tool_call_id": call.id, "content": "sunny"}]
    assert litellm.completion(**{**ask, "messages": answered}, max_tokens=2).choices[0].message.content


@check
def embeds():
    r = litellm.embedding(model="hosted_vllm/" + MODEL, api_base=BASE, api_key="none", input=["one", "two"])
    assert len(r.data) == 2 and r.data[0]["embedding"], r


@check
def refused():
    try:
        litellm.completion(**{**ask, "model": "hosted_vllm/nobody"})
    except litellm.NotFoundError as e:
        assert "nobody" in str(e), e
    else:
        raise AssertionError("a model that nobody serves answers")


@check
def many():
    async def ten():
        return await asyncio.gather(*(litellm.acompletion(**ask, max_tokens=3) for _ in range(10)))

    assert [r.usage.completion_tokens for r in asyncio.run(ten())] == [3] * 10


for f in checks:
    name = f.__name__
    try:
        f()
        print("ok", name, flush=True)
    except Exception as e:
        at = traceback.extract_tb(e.__traceback__)[-1]
        why = " ".join(f"{type(e).__name__}: {e}".split())
        print(f"FAIL {name}: {why[:400]} ({os.path.basename(at.filename)}:{at.lineno}: {at.line})", flush=True)
