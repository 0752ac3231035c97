// @ts-check
// The user's actions on a live run: send a request, set the load, break things and watch.
import { useState } from "preact/hooks";
import { html } from "./html.js";
import * as S from "./store.js";
import { clock, spaced } from "./format.js";

/** @param {{action: Run.Action, pools: Run.Pool[]}} props */
function Act({ action, pools }) {
  const [pool, setPool] = useState(0), [server, setServer] = useState(0), [time, setTime] = useState(""), [number, setNumber] = useState(""), [to, setTo] = useState(""), [group, setGroup] = useState("");
  const [result, setResult] = useState(""), [busy, setBusy] = useState(false);
  const of = pools[pool]?.groups || [], servers = of.flatMap((g) => g.endpoints || []), groups = of.map((g) => g.name).filter(Boolean);
  const there = /** @type {[string, number][]} */ (servers.map((x, i) => [x, i])).filter(([x]) => S.there(x, S.store.now, pools[pool].lives));
  /** @param {Event} e */
  const go = (e) => {
    e.preventDefault();
    setBusy(true);
    S.post("/data/do", { name: action.name, pool, server, for: Number(time) || 0, number: Number(number) || 0, to: Number(to) || 0, group: action.groups ? group || groups[0] || "" : "" }).then((x) => setResult(x.result || "Done."), (x) => setResult(x.message)).finally(() => setBusy(false));
  };
  return html`<form class="act" data-act=${action.name} onSubmit=${go}><h3>${action.name.replaceAll("-", " ")}</h3><p class="quiet">${action.what}</p>
    ${pools.length > 1 && html`<label>pool <select value=${pool} onChange=${(e) => { setPool(Number(e.currentTarget.value)); setServer(0); }}>${pools.map((p, i) => html`<option value=${i}>${p.name}</option>`)}</select></label>`}
    ${action.servers && html`<label>server <select value=${server} onChange=${(e) => setServer(Number(e.currentTarget.value))}>${there.map(([x, i]) => html`<option value=${i}>${x}</option>`)}</select></label>`}
    ${action.groups && groups.length > 0 && html`<label>group <select value=${group || groups[0]} onChange=${(e) => setGroup(e.currentTarget.value)}>${groups.map((x) => html`<option value=${x}>${x}</option>`)}</select></label>`}
    ${action.number && html`<label>${action.number} <input type="number" step="any" min="0" required value=${number} onInput=${(e) => setNumber(e.currentTarget.value)}/></label>`}
    ${action.to && html`<label>${action.to} <input type="number" step="any" min="0" required value=${to} onInput=${(e) => setTo(e.currentTarget.value)}/></label>`}
    ${action.for && html`<label>for seconds <input type="number" step="any" min="0" placeholder=${action.breaks ? "until the end" : "10"} value=${time} onInput=${(e) => setTime(e.currentTarget.value)}/></label>`}
    <button class=${action.breaks ? "plain danger" : "main"} disabled=${busy}>Do it</button><p role="status" class="quiet">${result}</p></form>`;
}

/** @param {{pools: Run.Pool[]}} props */
function Send({ pools }) {
  const model = (S.store.rows.length && S.name((S.store.rows[S.store.rows.length - 1] || [])[S.MODEL])) || "";
  const [prompt, setPrompt] = useState("Why is the sky blue?"), [stream, setStream] = useState(true), [tokens, setTokens] = useState(32), [headers, setHeaders] = useState(""), [name, setName] = useState("");
  const [result, setResult] = useState(""), [answer, setAnswer] = useState(""), [busy, setBusy] = useState(false);
  /** @param {Event} e */
  const go = (e) => {
    e.preventDefault();
    /** @type {Record<string, string>} */
    const extra = {};
    for (const line of headers.split("\n")) {
      const i = line.indexOf(":");
      if (i > 0) extra[line.slice(0, i).trim()] = line.slice(i + 1).trim();
    }
    setBusy(true);
    setAnswer("");
    S.post("/data/do", { name: "send", path: "/v1/chat/completions", headers: extra, body: JSON.stringify({ model: name || model, stream, max_tokens: tokens, messages: [{ role: "user", content: prompt }] }) })
      .then((x) => { setResult("Answered:"); setAnswer(x.result); }, (x) => setResult(x.message)).finally(() => setBusy(false));
  };
  return html`<form class="act send" onSubmit=${go}><h3>Send a request</h3><p class="quiet">Through the gateway, as any client would. It is counted apart, as sent by hand.</p>
    <label class="long">prompt <textarea rows="3" value=${prompt} onInput=${(e) => setPrompt(e.currentTarget.value)}></textarea></label>
    <label>model <input value=${name} placeholder=${model} onInput=${(e) => setName(e.currentTarget.value)}/></label>
    <label>at most tokens <input type="number" min="1" max="100000" value=${tokens} onInput=${(e) => setTokens(Number(e.currentTarget.value))}/></label>
    <label class="check"><input type="checkbox" checked=${stream} onChange=${(e) => setStream(e.currentTarget.checked)}/> stream</label>
    <label class="long">headers, one in a line <textarea rows="2" placeholder="x-llm-d-inference-objective: urgent" value=${headers} onInput=${(e) => setHeaders(e.currentTarget.value)}></textarea></label>
    <button class="main" disabled=${busy}>${busy ? "Sent, waiting…" : "Send"}</button><p role="status" class="quiet">${result}</p>${answer && html`<pre tabindex="0" aria-label="Answer">${answer}</pre>`}</form>`;
}

export function Do() {
  const s = S.useStore(1000), pools = s.meta.pools || [];
  const did = s.notices.slice(-12).reverse();
  return html`<section class="page do" aria-label="Do">
    <h2>Send requests and change the run</h2><div class="acts"><${Send} pools=${pools}/>${(s.meta.do || []).filter((a) => !a.breaks).map((a) => html`<${Act} key=${a.name} action=${a} pools=${pools}/>`)}</div>
    <h2>Break things, and watch</h2><div class="acts">${(s.meta.do || []).filter((a) => a.breaks).map((a) => html`<${Act} key=${a.name} action=${a} pools=${pools}/>`)}</div>
    <h2>What happened</h2>${did.length ? html`<ul class="plain">${did.map((x) => html`<li><b>${spaced(x.step)}</b> at ${clock(x.at)} ${x.endpoint || x.hop} ${Object.entries(x.details || {}).map(([k, v]) => k + "=" + v).join(" ")}</li>`)}</ul>` : html`<p class="quiet">Nothing yet. Every action here is also an event in the record.</p>`}
  </section>`;
}
