"""Drives a model server with LangChain: BASE_URL and MODEL from the environment.

Prints "ok NAME" or "FAIL NAME: why" for every check.
"""

import os
import traceback
import typing

import pydantic
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

BASE, MODEL = os.environ["BASE_URL"], os.environ["MODEL"]
model = ChatOpenAI(base_url=BASE, api_key="none", model=MODEL, max_retries=0)
checks = []


def check(f):
    checks.append(f)
    return f


class Person(pydantic.BaseModel):
    """Somebody."""

    name: str
    age: int = pydantic.Field(ge=0, le=120)
    kind: typing.Literal["staff", "guest"]


@tool
def get_weather(city: str, days: int) -> str:
    """The weather."""
    return "sunny"


@check
def invokes():
    assert model.invoke("Hello").content
    assert "".join(c.content for c in model.stream("Hello"))


@check
def with_json_schema():
    for _ in range(5):
        assert isinstance(model.with_structured_output(Person, method="json_schema").invoke("Hello"), Person)


@check
def with_function_calling():
    assert isinstance(model.with_structured_output(Person, method="function_calling").invoke("Hello"), Person)


@check
def with_json_mode():
    assert isinstance(model.with_structured_output(None, method="json_mode").invoke("Hello, JSON"), dict)


@check
def streams_structured():
    parts = list(model.with_structured_output(Person, method="json_schema").stream("Hello"))
    assert isinstance(parts[-1], Person), parts


@check
def tools():
    call = model.bind_tools([get_weather], tool_choice="any").invoke("Weather?").tool_calls[0]
    assert call["name"] == "get_weather" and isinstance(call["args"]["days"], int), call


for f in checks:
    name = f.__name__
    try:
        f()
        print("ok", name, flush=True)
    except Exception as e:
        at = traceback.extract_tb(e.__traceback__)[-1]
        why = " ".join(f"{type(e).__name__}: {e}".split())
        print(f"FAIL {name}: {why[:400]} ({os.path.basename(at.filename)}:{at.lineno}: {at.line})", flush=True)
