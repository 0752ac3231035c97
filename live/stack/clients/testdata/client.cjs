// Drives a model server with OpenAI's Node client: BASE_URL and MODEL from the
// environment. Prints "ok NAME" or "FAIL NAME: why" for every check.
const assert = require("node:assert/strict");
const Anthropic = require("@anthropic-ai/sdk");
const OpenAI = require("openai");
const { zodResponseFormat, zodTextFormat } = require("openai/helpers/zod");
const { z } = require("zod");

const model = process.env.MODEL;
const gateway = process.env.GATEWAY; // the stack that the server is behind; empty: none
const client = new OpenAI({ baseURL: process.env.BASE_URL, apiKey: "none", maxRetries: 0 });
const hello = [{ role: "user", content: "Hello" }];
const parameters = {
  type: "object",
  properties: { city: { type: "string" }, days: { type: "integer" } },
  required: ["city", "days"],
};
const weather = { type: "function", function: { name: "get_weather", parameters } };
const fault = (what) => ({ headers: { "X-Windtunnel-Fault": what } });

const checks = {
  async models() {
    const ids = [];
    for await (const m of client.models.list()) ids.push(m.id);
    assert.ok(ids.includes(model));
  },

  async chat() {
    const r = await client.chat.completions.create({ model, messages: hello, max_tokens: 5 });
    assert.equal(r.choices[0].finish_reason, "length");
    assert.ok(r.choices[0].message.content);
    assert.equal(r.usage.completion_tokens, 5);
  },

  async stops() {
    const same = { headers: { "X-Request-Id": "stops" } };
    const ask = { model, prompt: "Once upon", max_tokens: 12 };
    const whole = (await client.completions.create({ ...ask, ignore_eos: true, return_token_ids: true }, same)).choices[0];
    const word = " " + whole.text.trim().split(" ")[3];
    for (const [more, reason] of [
      [{ stop: [word] }, word],
      [{ stop_token_ids: [whole.token_ids[5]] }, whole.token_ids[5]],
    ]) {
      const c = (await client.completions.create({ ...ask, ...more }, same)).choices[0];
      assert.equal(c.finish_reason, "stop");
      assert.equal(c.stop_reason, reason);
      assert.ok(whole.text.startsWith(c.text) && c.text.length < whole.text.length);
      let text = "";
      for await (const chunk of await client.completions.create({ ...ask, ...more, stream: true }, same)) text += chunk.choices[0]?.text ?? "";
      assert.equal(text, c.text);
    }
  },

  async choicesAndLogprobs() {
    const r = await client.chat.completions.create({ model, messages: hello, max_tokens: 3, n: 2, logprobs: true, top_logprobs: 2 });
    assert.deepEqual(r.choices.map((c) => c.index), [0, 1]);
    for (const c of r.choices) {
      assert.equal(c.logprobs.content.map((t) => t.token).join(""), c.message.content);
      assert.equal(c.logprobs.content[0].top_logprobs.length, 2);
    }
  },

  async chatStream() {
    const same = { headers: { "X-Request-Id": "same" } };
    const ask = { model, messages: hello, max_tokens: 8 };
    const whole = (await client.chat.completions.create(ask, same)).choices[0].message.content;
    let text = "";
    let usage;
    for await (const c of await client.chat.completions.create({ ...ask, stream: true, stream_options: { include_usage: true } }, same)) {
      text += c.choices[0]?.delta.content ?? "";
      usage = c.usage ?? usage;
    }
    assert.equal(text, whole);
    assert.equal(usage.completion_tokens, 8);
  },

  async chatStreamHelper() {
    let deltas = "";
    const s = client.chat.completions.stream({ model, messages: hello, max_tokens: 4 }).on("content", (d) => (deltas += d));
    assert.equal((await s.finalChatCompletion()).choices[0].message.content, deltas);
  },

  async chatTools() {
    const ask = { model, messages: hello, tools: [weather], tool_choice: "required" };
    const r = await client.chat.completions.create(ask);
    const call = r.choices[0].message.tool_calls[0];
    assert.equal(call.function.name, "get_weather");
    assert.equal(typeof JSON.parse(call.function.arguments).days, "number");
    const s = await client.chat.completions.stream(ask).finalChatCompletion();
    assert.equal(typeof JSON.parse(s.choices[0].message.tool_calls[0].function.arguments).city, "string");
    assert.equal(s.choices[0].finish_reason, "tool_calls");
  },

  async structured() {
    const Person = z.object({ name: z.string(), age: z.number().int().min(18).max(99), kind: z.enum(["staff", "guest"]), tags: z.array(z.string()) });
    const c = await client.chat.completions.parse({ model, messages: hello, response_format: zodResponseFormat(Person, "person") });
    assert.ok(["staff", "guest"].includes(c.choices[0].message.parsed.kind));
    const r = await client.responses.parse({ model, input: "Hello", text: { format: zodTextFormat(Person, "person") } });
    assert.ok(r.output_parsed.age >= 18);
    const choice = await client.chat.completions.create({ model, messages: hello, structured_outputs: { choice: ["yes"] } });
    assert.equal(choice.choices[0].message.content, "yes");
    await assert.rejects(client.chat.completions.create({ model, messages: hello, structured_outputs: { json: {}, regex: "a" } }), OpenAI.BadRequestError);
  },

  async anthropicMessages() {
    const a = new Anthropic({ baseURL: process.env.BASE_URL.replace(/\/v1$/, ""), apiKey: "none", maxRetries: 0 });
    const ask = { model, max_tokens: 100, messages: hello };
    assert.ok((await a.messages.create(ask)).content[0].text);
    const tools = [{ name: "get_weather", input_schema: parameters }];
    for (const max_tokens of [1, 2, 3, 5, 100]) {
      const m = await a.messages.create({ ...ask, max_tokens, tools, tool_choice: { type: "any" } });
      assert.equal(typeof m.content[0].input, "object");
      const s = await a.messages.stream({ ...ask, max_tokens, tools, tool_choice: { type: "any" } }).finalMessage();
      assert.equal(s.content[0].type, "tool_use");
    }
    const format = { type: "json_schema", schema: { ...parameters, additionalProperties: false } };
    assert.equal(typeof JSON.parse((await a.messages.create({ ...ask, output_config: { format } })).content[0].text).days, "number");
  },

  async completions() {
    const r = await client.completions.create({ model, prompt: ["a", "b"], max_tokens: 3 });
    assert.deepEqual(r.choices.map((c) => c.index), [0, 1]);
    let n = 0;
    for await (const c of await client.completions.create({ model, prompt: [1, 2, 3], max_tokens: 3, stream: true })) n += c.choices.length;
    assert.ok(n >= 3);
  },

  async responses() {
    const r = await client.responses.create({ model, input: "Hello", max_output_tokens: 6 });
    assert.ok(r.output_text);
    if (gateway === "prefill and decode") return; // a server that only prefills may be asked, and says that it has none
    assert.equal((await client.responses.retrieve(r.id)).id, r.id);
    const more = await client.responses.create({ model, input: "And?", previous_response_id: r.id, max_output_tokens: 3 });
    assert.equal(more.previous_response_id, r.id);
    await client.responses.delete(r.id);
    await assert.rejects(client.responses.retrieve(r.id), OpenAI.NotFoundError);
  },

  async responsesStream() {
    let text = "";
    let last;
    for await (const e of await client.responses.create({ model, input: "Hello", stream: true })) {
      if (e.type === "response.output_text.delta") text += e.delta;
      last = e;
    }
    assert.equal(last.type, "response.completed");
    assert.equal(last.response.output[0].content[0].text, text);
    assert.equal((await client.responses.stream({ model, input: "Hello" }).finalResponse()).status, "completed");
  },

  async responsesTools() {
    const tool = { type: "function", strict: false, ...weather.function };
    const r = await client.responses.create({ model, input: "Weather?", tools: [tool], tool_choice: "required" });
    assert.equal(r.output.find((o) => o.type === "function_call").name, "get_weather");
  },

  async conversations() {
    // The endpoint picker takes no body without a model.
    if (gateway) return assert.rejects(client.conversations.create({ items: [] }), OpenAI.BadRequestError);
    const c = await client.conversations.create({ items: [{ type: "message", role: "user", content: "Hi" }] });
    await client.responses.create({ model, conversation: c.id, input: "Hello", max_output_tokens: 3 });
    let n = 0;
    for await (const item of client.conversations.items.list(c.id)) n += item ? 1 : 0;
    assert.equal(n, 3);
    assert.ok((await client.conversations.delete(c.id)).deleted);
  },

  async embeddings() {
    const r = await client.embeddings.create({ model, input: ["one", "two"], dimensions: 64 });
    assert.deepEqual(r.data.map((d) => d.embedding.length), [64, 64]);
    const plain = await client.embeddings.create({ model, input: "one", dimensions: 64, encoding_format: "float" });
    plain.data[0].embedding.forEach((x, i) => assert.ok(Math.abs(x - r.data[0].embedding[i]) < 1e-6));
  },

  async errors() {
    const create = (more, options) => client.chat.completions.create({ model, messages: hello, ...more }, options);
    await assert.rejects(create({ model: "nobody" }), (e) => e instanceof OpenAI.NotFoundError && e.param === "model" && /nobody/.test(e.message));
    await assert.rejects(create({ temperature: -1 }), (e) => e instanceof OpenAI.BadRequestError && e.param === "temperature");
    const kinds = { 401: OpenAI.AuthenticationError, 403: OpenAI.PermissionDeniedError, 422: OpenAI.UnprocessableEntityError, 429: OpenAI.RateLimitError, 503: OpenAI.InternalServerError };
    for (const [status, kind] of Object.entries(kinds)) {
      await assert.rejects(create({}, fault(`status=${status}`)), (e) => e instanceof kind && e.status === Number(status));
    }
    await assert.rejects(create({}, fault("reset")), gateway ? OpenAI.InternalServerError : OpenAI.APIConnectionError);
    await assert.rejects(create({}, { ...fault("stall"), timeout: 300 }), OpenAI.APIConnectionTimeoutError);
  },

  async cutStream() {
    await assert.rejects(async () => {
      const stream = await client.chat.completions.create({ model, messages: hello, stream: true }, fault("reset-after=2"));
      for await (const c of stream) assert.ok(c.choices);
    });
  },

  async leavingEarly() {
    const stream = await client.chat.completions.create({ model, messages: hello, max_tokens: 2000, stream: true });
    for await (const c of stream) {
      assert.ok(c.choices);
      break;
    }
    stream.controller.abort();
  },
};

(async () => {
  for (const [name, check] of Object.entries(checks)) {
    try {
      await check();
      console.log("ok", name);
    } catch (e) {
      console.log(`FAIL ${name}: ${String(e.stack ?? e).replace(/\s+/g, " ").slice(0, 500)}`);
    }
  }
  process.exit(0);
})();
