// @ts-check
// One request: a waterfall of the hops on one time axis, and every step with its details.
import { useEffect, useState } from "preact/hooks";
import { html } from "./html.js";
import * as S from "./store.js";
import { Why } from "./why.js";
import { span, label, seconds, bytes, percent, plural, spaced } from "./format.js";
import { keyed, useDismiss } from "./focus.js";

const hops = ["client", "envoy", "epp", "sidecar", "server"];

// Stretches of a hop: from the first of these steps that happens to the next of those.
/** @type {[string, string, string[], string[], string][]} */
const stretches = [
  ["client", "waits for the first token", ["request_sent"], ["first_token_received", "finished"], "wait"],
  ["client", "receives tokens", ["first_token_received"], ["last_token_received", "finished"], "flow"],
  ["epp", "decides", ["request_received"], ["endpoint_picked", "answered"], "decide"],
  ["epp", "holds the request open", ["part1_sent"], ["part2_sent", "stream_failed", "answered", "response_end_seen"], "hold"],
  ["epp", "forwards the answer", ["first_token_seen"], ["response_end_seen", "stream_failed"], "flow"],
  ["sidecar", "prefill leg", ["prefill_leg_sent"], ["prefill_leg_ended", "prefill_leg_failed"], "wait"],
  ["sidecar", "encode leg", ["encode_leg_sent"], ["encode_leg_ended", "encode_leg_failed"], "wait"],
  ["sidecar", "decode leg", ["decode_leg_sent"], ["response_end_seen", "answered", "aborted"], "flow"],
  ["server", "queue", ["part1_received", "request_received"], ["prefill_started", "rejected", "aborted"], "queue"],
  ["server", "prefill", ["prefill_started"], ["prefill_finished", "first_token_sent", "aborted"], "prefill"],
  ["server", "waits for part 2", ["first_token_sent"], ["part2_received"], "hold"],
  ["server", "decode", ["decode_started"], ["last_token_sent", "aborted"], "decode"],
];

// ways are the times of a request between other hops, in networks and in Envoy: each from the latest of these steps to
// the next of those.
/** @type {[string, string[], string[]][]} */
const ways = [
  ["to the picker", ["client request_sent"], ["epp request_received"]],
  ["to the server", ["epp part1_sent", "epp request_passed"], ["sidecar request_received", "server part1_received", "server request_received"]],
  ["part 2 to the server", ["epp part2_sent"], ["server part2_received"]],
  ["first token to the client", ["server first_token_sent", "sidecar first_token_seen"], ["client first_token_received"]],
  ["answer to the client", ["epp answered"], ["client finished"]],
  ["streams the answer", ["client first_token_received"], ["client last_token_received", "client finished"]],
];

// podOf returns a function that names the pod of an event's server: by the address that the picker chose, also where the
// server is behind a sidecar and has another port.
/** @param {Run.Event[]} events @returns {(e: Run.Event) => string} */
function podOf(events) {
  const legs = events.filter((e) => e.hop !== "server" && e.endpoint), decode = legs.findLast((e) => e.step === "decode_leg_sent");
  return (e) => (decode && e.hop === "server" && !legs.some((x) => x.endpoint === e.endpoint) ? decode.endpoint || "" : e.endpoint || "");
}

/** @typedef {{what: string, kind: string, from: number, to: number}} Span */
/** @typedef {{hop: string, name: string, events: Run.Event[], bars: Span[]}} Lane */

// envoy returns the bars of Envoy's lane.
/** @param {Run.Event[]} events */
function envoy(events) {
  const bars = [];
  for (const [what, from, to] of ways) {
    let began = null;
    for (const e of events) {
      const at = e.hop + " " + e.step;
      if (from.includes(at)) began = e.time;
      else if (began !== null && to.includes(at)) {
        if (e.time > began) bars.push({ what, kind: what.startsWith("streams") ? "flow" : "way", from: began, to: e.time });
        began = null;
      }
    }
  }
  return bars;
}

// incidents returns the run's incidents during a request.
/** @param {number} begin @param {number} end @returns {Span[]} */
function incidents(begin, end) {
  /** @type {(a: Run.Event, b: Run.Event) => boolean} */
  const same = (a, b) => a.endpoint === b.endpoint && a.hop === b.hop && ["what", "replica", "rank"].every((k) => (a.details || {})[k] === (b.details || {})[k]);
  return S.store.notices.filter((x) => x.step === "incident_began" && x.time <= end).map((x) => {
    const over = S.store.notices.find((y) => y.step === "incident_ended" && y.time >= x.time && same(x, y));
    return { what: ((x.details && x.details.what) || "incident") + " at " + (x.endpoint || x.hop), kind: "incident", from: x.time, to: over ? over.time : Math.max(end, x.time) };
  }).filter((x) => x.to >= begin);
}

// lanes returns the bars and marks of each hop, and of each server if there are several.
/** @param {Run.Event[]} events */
export function lanes(events) {
  const out = /** @type {Map<string, Lane>} */ (new Map()), pod = podOf(events), over = events[events.length - 1].time;
  for (const e of events) {
    const name = e.hop === "server" && e.endpoint ? pod(e) : e.hop;
    const lane = out.get(name) || { hop: e.hop, name, events: [], bars: [] };
    out.set(name, lane);
    lane.events.push(e);
  }
  for (const lane of out.values()) {
    for (const [hop, what, from, to, kind] of stretches) {
      if (hop !== lane.hop) continue;
      const held = kind === "hold" && hop === "epp";
      let began = null;
      for (const e of lane.events) {
        if (from.includes(e.step)) began = began ?? e.time;
        else if (began !== null && to.includes(e.step)) {
          if (held && e.step !== "part2_sent") lane.bars.push({ what: "held open, failed", kind: "hold failed", from: began, to: e.time });
          else lane.bars.push({ what, kind, from: began, to: e.time });
          began = null;
        }
      }
      if (began !== null && (kind !== "hold" || held)) {
        const finished = events.some((e) => e.hop === "client" && e.step === "finished");
        lane.bars.push({ what: held && finished ? "held open, failed" : what + ", not ended", kind: kind + (held && finished ? " failed" : " open"), from: began, to: over });
      }
    }
  }
  const bars = envoy(events);
  if (bars.length) out.set("envoy", { hop: "envoy", name: "envoy", events: out.get("envoy")?.events || [], bars });
  /** @param {Lane} lane */
  const first = (lane) => lane.events[0]?.time ?? lane.bars[0].from;
  return [...out.values()].sort((a, b) => hops.indexOf(a.hop) - hops.indexOf(b.hop) || first(a) - first(b));
}

// critical returns what the client waited for, from the request's first step to its last: at each moment the innermost
// bar, each with its lane. The client's own bars are the outermost; a server that computes further tokens does not keep
// the first one from its way.
/** @param {Lane[]} list @param {number} begin @param {number} end */
export function critical(list, begin, end) {
  /** @type {Record<string, number>} */
  const depth = { wait: 1, flow: 1, hold: 2, decide: 3, queue: 4, prefill: 4, decode: 4, way: 5 };
  /** @type {{bar: Span, lane: Lane, what: string, from: number, to: number}[]} */
  const out = [];
  const bars = list.flatMap((lane) => lane.bars.filter((b) => b.what !== "waits for part 2").map((b) => ({ ...b, lane, depth: lane.hop === "client" ? 0 : depth[b.kind.split(" ")[0]] })));
  const times = [...new Set([begin, end, ...bars.flatMap((b) => [b.from, b.to])])].filter((x) => x >= begin && x <= end).sort((a, b) => a - b);
  for (let i = 1; i < times.length; i++) {
    let best = null;
    for (const b of bars) if (b.from <= times[i - 1] && b.to >= times[i] && (!best || b.depth > best.depth || (b.depth === best.depth && b.from > best.from))) best = b;
    const last = out[out.length - 1];
    if (!best) continue;
    if (last && last.bar === best && last.to === times[i - 1]) last.to = times[i];
    else out.push({ bar: best, lane: best.lane, what: best.what, from: times[i - 1], to: times[i] });
  }
  return out;
}

const hidden = new Set(["explanation", "timeline_us"]);

/** @param {any} value @returns {string} */
function show(value) {
  if (Array.isArray(value)) return value.map(show).join(", ");
  if (value !== null && typeof value === "object") return Object.entries(value).map(([k, v]) => k + ": " + show(v)).join(", ");
  return S.addressed(value);
}

// Diff shows how a picker changed the headers.
/** @param {{e: Run.Event, added: Record<string, string>}} props */
function Diff({ e, added }) {
  const [set, removed] = ["headers_set", "headers_removed"].map((key) => String(e.details?.[key] || "").split(",").filter(Boolean));
  if (!set.length && !removed.length) return null;
  return html`<div class="diff" role="group" aria-label="Header changes">${removed.map((n) => html`<code class="gone"><span aria-label="removed">−</span> ${n}</code>`)}${set.map((n) => html`<code class="new"><span aria-label="set">+</span> ${n}${added[n] ? ": " + added[n] : ""}</code>`)}</div>`;
}

// said returns the text of a step that a search looks at.
/** @param {Run.Event} e */
const said = (e) => [e.hop, e.step, spaced(e.step), e.endpoint, ...Object.entries(e.details || {}).filter(([k]) => !hidden.has(k)).map(([k, v]) => k + "=" + show(v))].join(" ").toLowerCase();

/** @param {{events: Run.Event[], begin: number, added: Record<string, string>, at: number, choose: (i: number) => void}} props */
function Steps({ events, begin, added, at, choose }) {
  const [text, search] = useState(""), pod = podOf(events);
  const words = text.toLowerCase().split(/\s+/).filter(Boolean), found = events.map((e, i) => ({ e, i })).filter(({ e }) => !words.length || words.every((w) => said(e).includes(w)));
  return html`<div class="search"><h3>Steps</h3><label>Search <input type="search" value=${text} onInput=${(e) => search(e.currentTarget.value)} placeholder="epp header token" spellcheck="false"/></label><p role="status" class="quiet">${words.length ? found.length + " of " : ""}${plural(events.length, "step")}</p></div>
  <ol class="steps">${found.map(({ e, i }) => html`<li key=${i} class=${i === at ? "chosen" : ""} id=${"step" + i}>
    <button onClick=${() => choose(i === at ? -1 : i)} aria-expanded=${i === at}><span class="when">+${span((e.time - begin) * 1e6)}</span><span class=${"hop " + e.hop}>${e.hop}</span><span class="step">${spaced(e.step)}</span>
    <span class="short">${Object.entries(e.details || {}).filter(([k]) => !hidden.has(k) && !k.startsWith("headers_")).slice(0, 4).map(([k, v]) => k + "=" + show(v).slice(0, 40)).join("  ")}</span></button>
    ${i === at && html`<div class="all"><dl>${e.endpoint && html`<dt>endpoint</dt><dd>${pod(e)}${pod(e) !== e.endpoint ? ", behind the sidecar at " + e.endpoint : ""}</dd>`}${!!e.attempt && html`<dt>attempt</dt><dd>${e.attempt}</dd>`}<dt>time in the run</dt><dd>${seconds(e.time)}</dd>
      ${Object.entries(e.details || {}).filter(([k]) => !hidden.has(k) && !k.startsWith("headers_")).map(([k, v]) => html`<dt>${spaced(k)}</dt><dd>${show(v)}</dd>`)}</dl>
      ${e.details && html`<${Diff} e=${e} added=${added}/>`}</div>`}
  </li>`)}</ol>`;
}

// Waited lists what the client waited for until a time, the longest first.
/** @param {{path: ReturnType<typeof critical>, begin: number, until: number, what: string}} props */
function Waited({ path, begin, until, what }) {
  const by = new Map();
  for (const x of path) if (x.from < until) by.set(x.what, (by.get(x.what) || 0) + Math.min(x.to, until) - x.from);
  const list = [...by].sort((a, b) => b[1] - a[1]), all = until - begin;
  return html`<p class="waited"><i class="critical"></i> ${what} the client waited ${seconds(all)}: ${list.slice(0, 4).map(([k, v], i) => html`${i > 0 && ", "}<b>${k}</b> ${seconds(v)} (${percent(v / all)})`)}${list.length > 4 && ", and " + plural(list.length - 4, "other") + " " + seconds(list.slice(4).reduce((n, [, v]) => n + v, 0))}.</p>`;
}

/** @param {{events: Run.Event[], begin: number, choose: (i: number) => void}} props */
function Waterfall({ events, begin, choose }) {
  const [near, zoom] = useState(false);
  const end = Math.max(begin + 1e-9, ...events.map((e) => e.time)), token = events.find((e) => e.hop === "client" && e.step === "first_token_received");
  const list = lanes(events), path = critical(list, begin, end), hits = incidents(begin, end), until = token ? token.time : end;
  const to = near && token && token.time > begin ? begin + (token.time - begin) * 1.03 : end, wide = to - begin;
  /** @type {(t: number) => number} */
  const x = (t) => (100 * (Math.max(begin, Math.min(to, t)) - begin)) / wide;
  const box = (/** @type {{from: number, to: number}} */ b) => ({ left: x(b.from) + "%", width: "max(2px," + (x(b.to) - x(b.from)) + "%)" }), seen = (/** @type {{from: number, to: number}} */ b) => b.from <= to && b.to >= begin;
  const ticks = [0, 0.25, 0.5, 0.75, 1], all = hits.length ? [...list, { hop: "incident", name: "incidents", events: [], bars: hits }] : list;
  return html`<${Waited} path=${path} begin=${begin} until=${until} what=${token ? "For the first token" : "In all"}/>
  ${token && html`<p><button class="plain" onClick=${() => zoom(!near)}>${near ? "Show the whole request" : "Zoom to the first token"}</button></p>`}
  <div class="waterfall" role="group" aria-label=${"Waterfall over " + seconds(wide)}>
    <div class="axis" aria-hidden="true"><span></span><div>${ticks.map((t) => html`<i style=${{ left: 100 * t + "%" }}>${t === 0 ? "0" : seconds(wide * t)}</i>`)}</div></div>
    ${all.map((lane) => html`<div class=${"lane " + lane.hop} key=${lane.name}><span class=${"hop " + lane.hop} title=${lane.name}>${lane.name}</span><div class="track">
      ${hits.filter((b) => b.from >= begin && seen(b)).map((b) => html`<i class="hit" style=${{ left: x(b.from) + "%" }}></i>`)}
      ${lane.bars.filter(seen).map((b) => html`<div class=${"bar " + b.kind} style=${box(b)} title=${b.what + ", " + seconds(b.to - b.from)}><span>${b.what} ${seconds(b.to - b.from)}</span></div>`)}
      ${path.filter((p) => p.lane === lane && seen(p)).map((p) => html`<i class="critical" style=${box(p)} title=${"The client waited for: " + p.what}></i>`)}
      ${lane.events.filter((e) => e.time <= to).map((e) => html`<button class="mark" tabindex="-1" aria-hidden="true" style=${{ left: x(e.time) + "%" }} title=${e.step + " +" + seconds(e.time - begin)} onClick=${() => choose(events.indexOf(e))}></button>`)}
    </div></div>`)}
  </div>`;
}

/** @param {{request: string, close: () => void}} props */
export function Detail({ request, close }) {
  const s = S.useStore(500);
  const [result, setResult] = useState(/** @type {Awaited<ReturnType<typeof S.steps>> | null} */ (null));
  const [error, setError] = useState("");
  const [at, choose] = useState(-1);
  const [tab, setTab] = useState("way");
  const r = S.find(request), state = r ? r.slice(S.SENT, S.FLAGS).join() : "";
  useEffect(() => {
    let good = true;
    S.steps(request).then((x) => { if (good) { setResult(x); setError(""); } }, (e) => good && setError(e.message));
    return () => { good = false; };
  }, [request, state]);
  const [title, dismiss] = useDismiss(close, () => document.querySelector(".grid") || document.querySelector("nav a[aria-current]"));
  const events = result ? [...result.events].sort((a, b) => a.time - b.time) : [];
  const explained = events.map((e) => e.details && e.details.explanation).filter(Boolean).pop();
  const added = (explained && explained.headers_added) || {};
  /** @param {number} i */
  const pick = (i) => {
    choose(i);
    requestAnimationFrame(() => { const li = document.getElementById("step" + i); if (li) li.scrollIntoView({ block: "nearest" }); });
  };
  /** @param {KeyboardEvent} e */
  const turn = (e) => { // arrow keys switch tabs
    const to = keyed(e, { ArrowLeft: "way", Home: "way", ArrowRight: "why", End: "why" });
    if (!to) return;
    e.preventDefault();
    setTab(to);
    document.getElementById("tab-" + to)?.focus();
  };
  return html`<section class="detail" aria-label=${"Request " + label(request)}>
    <div class="title"><h2 tabindex="-1" ref=${title}>Request ${label(request)}</h2>${r && html`<span class=${"outcome" + (S.bad(r) ? " bad" : "")}>${spaced(S.outcome(r))}</span>`}<button class="close" onClick=${dismiss} aria-label="Close">✕</button></div>
    ${label(request) !== request && html`<p class="id"><code>${request}</code></p>`}
    ${error && html`<p class="note">${error}</p>`}
    ${result && result.missing && html`<p class="note">${s.shared ? "The steps of this request are not in the file, which has those of a part of the requests." : "Steps of this request are no longer kept: a page keeps 256 MiB of them. --record FILE keeps all."}</p>`}
    ${r && html`<dl class="facts">${[["TTFT", span(r[S.TTFT])], ["total", span(r[S.TOTAL])], ["prompt", r[S.PROMPT] + " tokens"], ["cached", r[S.CACHED] + " tokens"], ...(r[S.FETCHED] ? [["transferred", bytes(r[S.FETCHED])]] : []), ["answer", r[S.TOKENS] + " tokens"], ["attempts", r[S.ATTEMPTS] || 1]].map(([k, v]) => html`<div><dt>${k}</dt><dd>${v}</dd></div>`)}</dl>`}
    ${events.length > 0 && html`<div class="tabs" role="tablist" aria-label="Views of this request" onKeyDown=${turn}>${[["way", "Waterfall"], ["why", "Why"]].map(([id, words]) => html`<button role="tab" id=${"tab-" + id} aria-selected=${tab === id} tabindex=${tab === id ? 0 : -1} aria-controls="views" onClick=${() => setTab(id)}>${words}</button>`)}</div>
    <div id="views" role="tabpanel" aria-labelledby=${"tab-" + tab}>${tab === "way" ? html`<${Waterfall} events=${events} begin=${events[0].time} choose=${pick}/>
    <${Steps} events=${events} begin=${events[0].time} added=${added} at=${at} choose=${choose}/>` : explained ? html`<${Why} request=${request} explained=${explained}/>` : html`<p class="note">The record has no explanation: the picker is not windtunnel's own, or has nothing to weigh.</p>`}</div>`}
  </section>`;
}
