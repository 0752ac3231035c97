"""Drives a model server with OpenAI's Python client: BASE_URL and MODEL from the environment.

Prints "ok NAME" or "FAIL NAME: why" for every check.
"""

import asyncio
import base64
import json
import os
import re
import struct
import traceback
import typing

import openai
import pydantic

BASE, MODEL = os.environ["BASE_URL"], os.environ["MODEL"]
GATEWAY = os.environ.get("GATEWAY")  # the stack that the server is behind; empty: none
client = openai.OpenAI(base_url=BASE, api_key="none", max_retries=0)
hello = [{"role": "user", "content": "Hello"}]
weather = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
            "required": ["city", "days"],
        },
    },
}
checks = []


def check(f):
    checks.append(f)
    return f


def fault(what):
    return {"X-Windtunnel-Fault": what}


def raises(kind, f, **want):
    try:
        f()
    except kind as e:
        assert type(e) is kind, f"expected exactly {kind.__name__}, got {type(e).__name__}"
        for name, value in want.items():
            assert getattr(e, name) == value, f"{name}: expected {value!r}, got {getattr(e, name)!r}"
        return e
    raise AssertionError(f"expected {kind.__name__}")


@check
def models():
    assert MODEL in [m.id for m in client.models.list()]


@check
def chat():
    r = client.chat.completions.create(model=MODEL, messages=hello, max_tokens=5)
    c = r.choices[0]
    assert r.object == "chat.completion" and r.model == MODEL
    assert c.message.role == "assistant" and c.message.content and c.finish_reason == "length"
    assert r.usage.completion_tokens == 5 and r.usage.total_tokens == r.usage.prompt_tokens + 5


@check
def chat_choices_and_logprobs():
    r = client.chat.completions.create(model=MODEL, messages=hello, max_completion_tokens=3, n=2, logprobs=True, top_logprobs=2)
    assert [c.index for c in r.choices] == [0, 1]
    for c in r.choices:
        assert len(c.logprobs.content) == 3 and len(c.logprobs.content[0].top_logprobs) == 2
        assert "".join(t.token for t in c.logprobs.content) == c.message.content


@check
def chat_stream_says_what_the_whole_says():
    ask = dict(model=MODEL, messages=hello, max_tokens=8, extra_headers={"X-Request-Id": "same"})
    whole = client.chat.completions.create(**ask).choices[0].message.content
    text, usage, reasons = "", None, []
    for chunk in client.chat.completions.create(**ask, stream=True, stream_options={"include_usage": True}):
        usage = chunk.usage or usage
        for c in chunk.choices:
            text += c.delta.content or ""
            reasons += [c.finish_reason] if c.finish_reason else []
    assert text == whole, (text, whole)
    assert usage.completion_tokens == 8 and reasons == ["length"]


@check
def chat_repeats_itself():
    for more in dict(seed=7), dict(temperature=0):
        said = {client.chat.completions.create(model=MODEL, messages=hello, max_tokens=8, **more).choices[0].message.content for _ in range(3)}
        assert len(said) == 1, (more, said)


@check
def chat_stream_helper():
    with client.chat.completions.stream(model=MODEL, messages=hello) as s:
        kinds = {e.type for e in s}
        final = s.get_final_completion()
    assert {"chunk", "content.delta", "content.done"} <= kinds, kinds
    assert final.choices[0].message.content


@check
def chat_tools():
    r = client.chat.completions.create(model=MODEL, messages=hello, tools=[weather], tool_choice="required")
    call = r.choices[0].message.tool_calls[0]
    assert r.choices[0].finish_reason == "tool_calls" and call.function.name == "get_weather"

    class Arguments(pydantic.BaseModel):
        city: str
        days: int

    Arguments.model_validate_json(call.function.arguments)
    streamed, names = "", []
    for chunk in client.chat.completions.create(model=MODEL, messages=hello, tools=[weather], tool_choice="required", stream=True):
        for t in (chunk.choices[0].delta.tool_calls or []) if chunk.choices else []:
            names += [t.function.name] if t.function.name else []
            streamed += t.function.arguments or ""
    assert names == ["get_weather"]
    Arguments.model_validate_json(streamed)
    answered = hello + [r.choices[0].message, {"role": "tool", "tool_call_id": call.id, "content": "sunny"}]
    assert client.chat.completions.create(model=MODEL, messages=answered, max_tokens=2).choices[0].message.content


class Person(pydantic.BaseModel):
    name: str = pydantic.Field(min_length=3, max_length=20)
    age: int = pydantic.Field(ge=18, le=99)
    kind: typing.Literal["staff", "guest"]
    tags: list[str]
    boss: typing.Optional["Person"]


@check
def structured():
    for i in range(5):
        c = client.chat.completions.parse(model=MODEL, messages=hello, response_format=Person).choices[0]
        assert c.finish_reason == "stop" and isinstance(c.message.parsed, Person), c
        r = client.responses.parse(model=MODEL, input="Hello", text_format=Person)
        assert isinstance(r.output_parsed, Person), r
    with client.chat.completions.stream(model=MODEL, messages=hello, response_format=Person) as s:
        assert isinstance(s.get_final_completion().choices[0].message.parsed, Person)
    raises(openai.LengthFinishReasonError, lambda: client.chat.completions.parse(model=MODEL, messages=hello, response_format=Person, max_tokens=3))
    tool = openai.pydantic_function_tool(Person)
    r = client.chat.completions.parse(model=MODEL, messages=hello, tools=[tool], tool_choice="required")
    assert isinstance(r.choices[0].message.tool_calls[0].function.parsed_arguments, Person)
    ask = dict(model=MODEL, messages=hello)
    assert json.loads(client.chat.completions.create(**ask, response_format={"type": "json_object"}).choices[0].message.content) != None
    for extra, fits in (
        ({"choice": ["yes", "no"]}, r"yes|no"),
        ({"regex": r"[a-z]{3}-\d+"}, r"[a-z]{3}-\d+"),
        ({"grammar": 'root ::= "<" [0-9]+ ">"'}, r"<[0-9]+>"),
    ):
        said = client.chat.completions.create(**ask, extra_body={"structured_outputs": extra}).choices[0].message.content
        assert re.fullmatch(fits, said), (extra, said)
    e = raises(openai.BadRequestError, lambda: client.chat.completions.create(**ask, extra_body={"structured_outputs": {"json": {"type": "array", "uniqueItems": True}}}))
    assert "uniqueItems" in e.message


@check
def prompt_logprobs():
    c = client.completions.create(model=MODEL, prompt="Once upon a time", max_tokens=0, echo=True, logprobs=2).choices[0]
    assert c.text == "Once upon a time" == "".join(c.logprobs.tokens) and c.logprobs.token_logprobs[0] is None, c
    r = client.chat.completions.create(model=MODEL, messages=hello, max_tokens=1, extra_body={"prompt_logprobs": 1})
    assert len(r.prompt_logprobs) == r.usage.prompt_tokens and r.prompt_logprobs[0] is None


@check
def completions():
    r = client.completions.create(model=MODEL, prompt="Once upon", max_tokens=4, logprobs=2)
    assert r.object == "text_completion" and r.choices[0].text and len(r.choices[0].logprobs.tokens) == 4
    assert len(client.completions.create(model=MODEL, prompt=["a", "b"], max_tokens=2, n=2).choices) == 4
    assert client.completions.create(model=MODEL, prompt=[1, 2, 3], max_tokens=2).usage.prompt_tokens == 3
    lists = dict(model=MODEL, prompt=[[1, 2], [3]], max_tokens=2)
    if GATEWAY:  # the endpoint picker takes no lists of lists
        assert "must have prompt field" in raises(openai.BadRequestError, lambda: client.completions.create(**lists)).message
    else:
        assert len(client.completions.create(**lists).choices) == 2
    chunks = list(client.completions.create(model=MODEL, prompt="Once", max_tokens=4, stream=True))
    chunks = [c for c in chunks if c.choices]  # the last one of a held request tells its metadata
    assert "".join(c.choices[0].text for c in chunks) and chunks[-1].choices[0].finish_reason == "length"


@check
def stops():
    ask = dict(model=MODEL, prompt="Once upon", max_tokens=12, extra_headers={"X-Request-Id": "stops"})
    whole = client.completions.create(**ask, extra_body={"ignore_eos": True, "return_token_ids": True}).choices[0]
    word, token = " " + whole.text.split()[3], whole.token_ids[5]
    for more, reason, text in (
        ({"stop": word}, word, whole.text[: whole.text.index(word)]),
        ({"stop": ["nothing", word], "extra_body": {"include_stop_str_in_output": True}}, word, whole.text[: whole.text.index(word) + len(word)]),
        ({"extra_body": {"stop_token_ids": [token]}}, token, None),
    ):
        c = client.completions.create(**ask, **more).choices[0]
        assert c.finish_reason == "stop" and c.stop_reason == reason, (more, c)
        assert whole.text.startswith(c.text) and text in (None, c.text), (more, c.text, whole.text)
        chunks = [c for c in client.completions.create(**ask, **more, stream=True) if c.choices]
        assert "".join(x.choices[0].text for x in chunks) == c.text and chunks[-1].choices[0].finish_reason == "stop", (more, chunks)
    late = client.completions.create(**ask, extra_body={"stop_token_ids": [token], "min_tokens": 8}).choices[0]
    assert len(late.text.split()) >= 8, late


@check
def streamed_choices_and_logprobs():
    texts, logs, reasons = {0: "", 1: ""}, {0: "", 1: ""}, {}
    for chunk in client.chat.completions.create(model=MODEL, messages=hello, max_tokens=4, n=2, logprobs=True, top_logprobs=2, stream=True):
        for c in chunk.choices:
            texts[c.index] += c.delta.content or ""
            logs[c.index] += "".join(t.token for t in c.logprobs.content) if c.logprobs else ""
            reasons[c.index] = c.finish_reason
    assert texts == logs and all(texts.values()) and reasons == {0: "length", 1: "length"}, (texts, logs, reasons)


@check
def responses():
    r = client.responses.create(model=MODEL, input="Hello", instructions="Be brief.", max_output_tokens=6)
    assert r.object == "response" and r.output_text and r.usage.output_tokens == 6
    if GATEWAY == "prefill and decode":  # a request without a body goes to any server, and some only prefill
        try:
            assert client.responses.retrieve(r.id).output_text == r.output_text
        except openai.NotFoundError as e:
            assert "another server of the pool may have it" in e.message, e
        return
    again = client.responses.retrieve(r.id)
    assert again.output_text == r.output_text
    more = client.responses.create(model=MODEL, input="And?", previous_response_id=r.id, max_output_tokens=4)
    assert more.previous_response_id == r.id and more.usage.input_tokens > r.usage.input_tokens
    client.responses.delete(r.id)
    raises(openai.NotFoundError, lambda: client.responses.retrieve(r.id))


@check
def responses_stream():
    text, last, numbers = "", None, []
    for e in client.responses.create(model=MODEL, input=[{"role": "user", "content": "Hello"}], max_output_tokens=5, stream=True):
        numbers.append(e.sequence_number)
        text += e.delta if e.type == "response.output_text.delta" else ""
        last = e
    assert last.type in ("response.completed", "response.incomplete"), last.type
    assert last.response.output_text == text and numbers == list(range(len(numbers)))
    with client.responses.stream(model=MODEL, input="Hello", max_output_tokens=5) as s:
        for e in s:
            pass
    complete = [e for e in client.responses.create(model=MODEL, input="Hello", stream=True)][-1]
    assert complete.type == "response.completed" and complete.response.status == "completed", complete.type


@check
def responses_tools():
    tool = {"type": "function", "strict": False, **weather["function"]}
    r = client.responses.create(model=MODEL, input="Weather?", tools=[tool], tool_choice="required")
    calls = [o for o in r.output if o.type == "function_call"]
    assert calls and calls[0].name == "get_weather" and calls[0].call_id
    told, done = "", None
    for e in client.responses.create(model=MODEL, input="Weather?", tools=[tool], tool_choice="required", stream=True):
        told += e.delta if e.type == "response.function_call_arguments.delta" else ""
        done = e if e.type == "response.function_call_arguments.done" else done
    assert done is not None and done.arguments == told, (told, done)
    answer = dict(model=MODEL, input=[{"type": "function_call_output", "call_id": calls[0].call_id, "output": "sunny"}], max_output_tokens=3)
    if GATEWAY == "prefill and decode":  # the prefill server does not know what the decode server said
        e = raises(openai.NotFoundError, lambda: client.responses.create(**answer, previous_response_id=r.id))
        assert "another server of the pool may have it" in e.message, e
        return
    assert client.responses.create(**answer, previous_response_id=r.id).output_text


@check
def conversations():
    if GATEWAY:  # the endpoint picker takes no body without a model
        return raises(openai.BadRequestError, lambda: client.conversations.create(items=[]))
    c = client.conversations.create(items=[{"type": "message", "role": "user", "content": "Hi"}])
    client.responses.create(model=MODEL, conversation=c.id, input="Hello", max_output_tokens=3)
    items = list(client.conversations.items.list(c.id))
    assert len(items) == 3, items
    assert client.conversations.retrieve(c.id).id == c.id
    assert client.conversations.delete(c.id).deleted
    raises(openai.NotFoundError, lambda: client.conversations.retrieve(c.id))


@check
def embeddings():
    # The client asks for base64 and decodes it, unless told otherwise.
    r = client.embeddings.create(model=MODEL, input=["one", "two"], dimensions=64)
    assert [len(d.embedding) for d in r.data] == [64, 64] and r.usage.total_tokens > 0
    plain = client.embeddings.create(model=MODEL, input="one", dimensions=64, encoding_format="float")
    assert max(abs(a - b) for a, b in zip(plain.data[0].embedding, r.data[0].embedding)) < 1e-6
    raw = client.embeddings.create(model=MODEL, input="one", dimensions=64, encoding_format="base64")
    assert len(struct.unpack("<64f", base64.b64decode(raw.data[0].embedding))) == 64


@check
def errors():
    create = client.chat.completions.create
    e = raises(openai.NotFoundError, lambda: create(model="nobody", messages=hello), status_code=404, param="model")
    assert "nobody" in e.message and e.body["type"] == "NotFoundError"
    raises(openai.BadRequestError, lambda: create(model=MODEL, messages=hello, temperature=-1), status_code=400, param="temperature")
    raises(openai.BadRequestError, lambda: create(model=MODEL, messages=[]), status_code=400)
    for status, kind in {
        401: openai.AuthenticationError,
        403: openai.PermissionDeniedError,
        422: openai.UnprocessableEntityError,
        429: openai.RateLimitError,
        500: openai.InternalServerError,
        503: openai.InternalServerError,
    }.items():
        raises(kind, lambda: create(model=MODEL, messages=hello, extra_headers=fault(f"status={status}")), status_code=status)
    raises(openai.BadRequestError, lambda: client.responses.create(model=MODEL, input="x", max_output_tokens=-1))
    raises(openai.BadRequestError, lambda: client.embeddings.create(model=MODEL, input=[]))
    raises(openai.NotFoundError, lambda: client.files.list())


@check
def broken_connections():
    create = client.chat.completions.create
    # Envoy, or the sidecar, answers for a server that does not.
    raises(openai.InternalServerError if GATEWAY else openai.APIConnectionError, lambda: create(model=MODEL, messages=hello, extra_headers=fault("reset")))
    raises(openai.APITimeoutError, lambda: create(model=MODEL, messages=hello, timeout=0.3, extra_headers=fault("stall")))
    seen = 0
    try:
        for chunk in create(model=MODEL, messages=hello, stream=True, extra_headers=fault("reset-after=2")):
            seen += 1
        raise AssertionError("a stream that was cut ended as if it were whole")
    except Exception as e:  # the transport's own error: the client passes it on
        assert not isinstance(e, AssertionError), e
    assert seen >= 2 or GATEWAY  # Envoy may lose what came with the reset


@check
def retries():
    # The client's own retries end in an answer when the fault is gone.
    raises(openai.RateLimitError, lambda: client.with_options(max_retries=1).chat.completions.create(model=MODEL, messages=hello, extra_headers=fault("status=429")))
    assert client.chat.completions.create(model=MODEL, messages=hello, max_tokens=1).choices


@check
def leaving_early():
    stream = client.chat.completions.create(model=MODEL, messages=hello, max_tokens=2000, stream=True)
    next(iter(stream))
    stream.close()


@check
def asynchronous():
    async def many():
        async with openai.AsyncOpenAI(base_url=BASE, api_key="none", max_retries=0) as a:

            async def one(i):
                n = 0
                async for chunk in await a.chat.completions.create(model=MODEL, messages=hello, max_tokens=4, stream=True):
                    n += len(chunk.choices)
                return n

            return await asyncio.gather(*(one(i) for i in range(20)))

    counts = asyncio.run(many())
    assert len(set(counts)) == 1 and counts[0] >= 4, counts


for f in checks:
    name = f.__name__
    try:
        f()
        print("ok", name, flush=True)
    except Exception as e:
        at = traceback.extract_tb(e.__traceback__)[-1]
        why = " ".join(f"{type(e).__name__}: {e}".split())
        print(f"FAIL {name}: {why[:400]} ({os.path.basename(at.filename)}:{at.lineno}: {at.line})", flush=True)
