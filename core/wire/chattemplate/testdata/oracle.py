"""Writes what Jinja2 makes of every template and conversation, as transformers
sets it up (utils/chat_template_utils.py), to models/*.txt. Needs jinja2 3.1."""
import datetime, glob, json, os
from jinja2 import nodes
from jinja2.exceptions import TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment


class Generation(Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return nodes.CallBlock(self.call_method("said"), [], [], body).set_lineno(line)

    def said(self, caller):
        return caller()


def raise_exception(message):
    raise TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
env.filters["tojson"] = tojson
env.globals["raise_exception"] = raise_exception
env.globals["strftime_now"] = lambda f: datetime.datetime(2026, 1, 15, 12).strftime(f)
here = os.path.dirname(os.path.abspath(__file__))
conversations = json.load(open(here + "/conversations.json"))
for path in sorted(glob.glob(here + "/models/*.jinja")):
    template = env.from_string(open(path).read())
    with open(path.removesuffix(".jinja") + ".txt", "w") as out:
        for name, c in conversations.items():
            messages = json.loads(json.dumps(c["messages"]))
            for m in messages:
                for call in m.get("tool_calls", []):
                    call["function"]["arguments"] = json.loads(call["function"]["arguments"])
            try:
                text = template.render(messages=messages, tools=c.get("tools"), documents=None, add_generation_prompt=c.get("add_generation_prompt", True),
                                       bos_token="<s>", eos_token="</s>", **c.get("variables", {}))
            except TemplateError as e:
                text = "refused: " + str(e)
            out.write("=== " + name + "\n" + text + "\n")
