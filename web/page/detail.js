// @ts-check
// One request: a waterfall of the hops on one time axis, and every step with its details.
import { h } from "preact";
import { useEffect, useState } from "preact/hooks";
import htm from "htm";
import * as S from "./store.js";
import { Why } from "./why.js";
import { span, label, seconds, bytes } from "./format.js";
import { useDismiss } from "./focus.js";

const html = htm.bind(h);
const hops = ["client", "envoy", "epp", "sidecar", "server"];

// Stretches of a hop: from the first of these steps that happens to the next of those.
const stretches = [
  ["client", "waits for the first token", ["request_sent"], ["first_token_received", "finished"], "wait"],
  ["client", "receives tokens", ["first_token_received"], ["last_token_received", "finished"], "flow"],
  ["epp", "decides", ["request_received"], ["endpoint_picked", "answered"], "decide"],
  ["epp", "holds the request open", ["part1_sent"], ["part2_sent"], "hold"],
  ["epp", "forwards the answer", ["first_token_seen"], ["response_end_seen", "stream_failed"], "flow"],
  ["sidecar", "prefill leg", ["prefill_leg_sent"], ["prefill_leg_ended", "prefill_leg_failed"], "wait"],
  ["sidecar", "encode leg", ["encode_leg_sent"], ["encode_leg_ended", "encode_leg_failed"], "wait"],
  ["sidecar", "decode leg", ["decode_leg_sent"], ["response_end_seen", "answered", "aborted"], "flow"],
  ["server", "queue", ["part1_received", "request_received"], ["prefill_started", "rejected", "aborted"], "queue"],
  ["server", "prefill", ["prefill_started"], ["prefill_finished", "first_token_sent", "aborted"], "prefill"],
  ["server", "waits for part 2", ["first_token_sent"], ["part2_received"], "hold"],
  ["server", "decode", ["decode_started"], ["last_token_sent", "aborted"], "decode"],
];

// lanes returns the bars and marks of each hop, and of each server if there are several.
export function lanes(events) {
  const out = new Map();
  for (const e of events) {
    const key = e.hop === "server" ? "server " + (e.endpoint || "") : e.hop;
    if (!out.has(key)) out.set(key, { hop: e.hop, name: e.hop === "server" && e.endpoint ? "server " + e.endpoint : e.hop, events: [], bars: [] });
    out.get(key).events.push(e);
  }
  for (const lane of out.values()) {
    for (const [hop, what, from, to, kind] of stretches) {
      if (hop !== lane.hop) continue;
      let began = null;
      for (const e of lane.events) {
        if (from.includes(e.step)) began = began ?? e.time;
        else if (began !== null && to.includes(e.step)) {
          if (kind !== "hold" || lane.hop === "epp" || e.step === "part2_received") lane.bars.push({ what, kind, from: began, to: e.time });
          began = null;
        }
      }
      const over = events[events.length - 1].time;
      if (began !== null && (kind !== "hold" || lane.hop === "epp") && !events.some((e) => e.hop === "client" && e.step === "finished")) lane.bars.push({ what: what + ", not ended", kind: kind + " open", from: began, to: over });
    }
  }
  return [...out.values()].sort((a, b) => hops.indexOf(a.hop) - hops.indexOf(b.hop) || a.events[0].time - b.events[0].time);
}

const hidden = new Set(["explanation", "timeline_us"]);

function show(value) {
  if (Array.isArray(value)) return value.map(show).join(", ");
  if (value !== null && typeof value === "object") return Object.entries(value).map(([k, v]) => k + ": " + show(v)).join(", ");
  return S.addressed(value);
}

// Diff shows how a picker changed the headers.
function Diff({ e, added }) {
  const set = [].concat(e.details.headers_set || []).flatMap((x) => String(x).split(",")), removed = [].concat(e.details.headers_removed || []).flatMap((x) => String(x).split(","));
  if (!set.length && !removed.length) return null;
  return html`<div class="diff" role="group" aria-label="Header changes">${removed.map((n) => html`<code class="gone"><span aria-label="removed">−</span> ${n}</code>`)}${set.map((n) => html`<code class="new"><span aria-label="set">+</span> ${n}${added[n] ? ": " + added[n] : ""}</code>`)}</div>`;
}

function Steps({ events, begin, added, at, choose }) {
  return html`<ol class="steps">${events.map((e, i) => html`<li class=${i === at ? "chosen" : ""} id=${"step" + i}>
    <button onClick=${() => choose(i === at ? -1 : i)} aria-expanded=${i === at}><span class="when">+${span((e.time - begin) * 1e6)}</span><span class=${"hop " + e.hop}>${e.hop}</span><span class="step">${e.step.replaceAll("_", " ")}</span>
    <span class="short">${Object.entries(e.details || {}).filter(([k]) => !hidden.has(k) && !k.startsWith("headers_")).slice(0, 4).map(([k, v]) => k + "=" + show(v).slice(0, 40)).join("  ")}</span></button>
    ${i === at && html`<div class="all"><dl>${e.endpoint && html`<dt>endpoint</dt><dd>${e.endpoint}</dd>`}${e.attempt > 0 && html`<dt>attempt</dt><dd>${e.attempt}</dd>`}<dt>time in the run</dt><dd>${seconds(e.time)}</dd>
      ${Object.entries(e.details || {}).filter(([k]) => !hidden.has(k) && !k.startsWith("headers_")).map(([k, v]) => html`<dt>${k.replaceAll("_", " ")}</dt><dd>${show(v)}</dd>`)}</dl>
      ${e.details && html`<${Diff} e=${e} added=${added}/>`}</div>`}
  </li>`)}</ol>`;
}

function Waterfall({ events, begin, choose }) {
  const end = Math.max(begin + 1e-9, ...events.map((e) => e.time)), wide = end - begin;
  const x = (t) => (100 * (t - begin)) / wide + "%";
  const ticks = [0, 0.25, 0.5, 0.75, 1];
  return html`<div class="waterfall" role="group" aria-label=${"Waterfall over " + seconds(wide)}>
    <div class="axis" aria-hidden="true"><span></span><div>${ticks.map((t) => html`<i style=${{ left: 100 * t + "%" }}>${t === 0 ? "0" : seconds(wide * t)}</i>`)}</div></div>
    ${lanes(events).map((lane) => html`<div class="lane"><span class=${"hop " + lane.hop}>${lane.name}</span><div class="track">
      ${lane.bars.map((b) => html`<div class=${"bar " + b.kind} style=${{ left: x(b.from), width: "max(2px," + (100 * (b.to - b.from)) / wide + "%)" }} title=${b.what + ", " + seconds(b.to - b.from)}><span>${b.what} ${seconds(b.to - b.from)}</span></div>`)}
      ${lane.events.map((e) => html`<button class="mark" tabindex="-1" aria-hidden="true" style=${{ left: x(e.time) }} title=${e.step + " +" + seconds(e.time - begin)} onClick=${() => choose(events.indexOf(e))}></button>`)}
    </div></div>`)}
  </div>`;
}

export function Detail({ request, close }) {
  const s = S.useStore(500);
  const [told, setTold] = useState(/** @type {Awaited<ReturnType<typeof S.steps>> | null} */ (null));
  const [error, setError] = useState("");
  const [at, choose] = useState(-1);
  const [tab, setTab] = useState("way");
  const r = S.find(request), state = r ? r.slice(S.SENT, S.FLAGS).join() : "";
  useEffect(() => {
    let good = true;
    S.steps(request).then((x) => { if (good) { setTold(x); setError(""); } }, (e) => good && setError(e.message));
    return () => { good = false; };
  }, [request, state]);
  const [title, dismiss] = useDismiss(close, () => document.querySelector(".grid") || document.querySelector("nav a[aria-current]"));
  const events = told ? [...told.events].sort((a, b) => a.time - b.time) : [];
  const explained = events.map((e) => e.details && e.details.explanation).filter(Boolean).pop();
  const added = (explained && explained.headers_added) || {};
  const pick = (i) => {
    choose(i);
    requestAnimationFrame(() => { const li = document.getElementById("step" + i); if (li) li.scrollIntoView({ block: "nearest" }); });
  };
  const turn = (e) => { // arrow keys switch tabs
    const to = { ArrowLeft: "way", Home: "way", ArrowRight: "why", End: "why" }[e.key];
    if (!to) return;
    e.preventDefault();
    setTab(to);
    document.getElementById("tab-" + to)?.focus();
  };
  return html`<section class="detail" aria-label=${"Request " + label(request)}>
    <div class="title"><h2 tabindex="-1" ref=${title}>Request ${label(request)}</h2>${r && html`<span class=${"outcome" + (S.bad(r) ? " bad" : "")}>${S.outcome(r).replaceAll("_", " ")}</span>`}<button class="close" onClick=${dismiss} aria-label="Close">✕</button></div>
    ${label(request) !== request && html`<p class="id"><code>${request}</code></p>`}
    ${error && html`<p class="note">${error}</p>`}
    ${told && told.missing && html`<p class="note">${s.shared ? "The steps of this request are not in the file, which has those of a part of the requests." : "Steps of this request are no longer kept: a page keeps 256 MiB of them. --record FILE keeps all."}</p>`}
    ${r && html`<dl class="facts">${[["TTFT", span(r[S.TTFT])], ["total", span(r[S.TOTAL])], ["prompt", r[S.PROMPT] + " tokens"], ["cached", r[S.CACHED] + " tokens"], ...(r[S.FETCHED] ? [["transferred", bytes(r[S.FETCHED])]] : []), ["answer", r[S.TOKENS] + " tokens"], ["attempts", r[S.ATTEMPTS] || 1]].map(([k, v]) => html`<div><dt>${k}</dt><dd>${v}</dd></div>`)}</dl>`}
    ${events.length > 0 && html`<div class="tabs" role="tablist" aria-label="Views of this request" onKeyDown=${turn}>${[["way", "Waterfall"], ["why", "Why"]].map(([id, words]) => html`<button role="tab" id=${"tab-" + id} aria-selected=${tab === id} tabindex=${tab === id ? 0 : -1} aria-controls="told" onClick=${() => setTab(id)}>${words}</button>`)}</div>
    <div id="told" role="tabpanel" aria-labelledby=${"tab-" + tab}>${tab === "way" ? html`<${Waterfall} events=${events} begin=${events[0].time} choose=${pick}/>
    <h3>Steps</h3><${Steps} events=${events} begin=${events[0].time} added=${added} at=${at} choose=${choose}/>` : explained ? html`<${Why} request=${request} explained=${explained}/>` : html`<p class="note">The record has no explanation: the picker is not windtunnel's own, or has nothing to weigh.</p>`}</div>`}
  </section>`;
}
