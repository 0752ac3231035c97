// @ts-check
// The page: the header, the views, and the selected request.
import { render } from "preact";
import { useEffect, useLayoutEffect, useState } from "preact/hooks";
import { html } from "./html.js";
import { store, useStore, usePlayhead, figures, listen, open, replay, unpack } from "./store.js";
import { thousands, seconds, clock, label, plural } from "./format.js";
import { Flow, Playhead } from "./flow.js";
import { Requests } from "./requests.js";
import { Detail } from "./detail.js";
import { WhatIf } from "./why.js";
import { Time } from "./time.js";
import { Do } from "./do.js";
import { Tune } from "./tune.js";
import { Aloud } from "./focus.js";

const views = [["tune", "Tune", Tune], ["flow", "Topology", Flow], ["requests", "Requests", Requests], ["time", "Time", Time], ["whatif", "What if", WhatIf], ["do", "Do", Do]];

function route() {
  const [view, ...rest] = location.hash.slice(1).split("/").map((x) => { try { return decodeURIComponent(x); } catch { return x; } });
  return view === "request" ? { view: "", request: rest.join("/") } : { view };
}

/** @param {{what: string, value: string, kind?: string}} props */
function Metric({ what, value, kind }) {
  return html`<div class=${"metric " + (kind || "")}><dt>${what}</dt><dd>${value}</dd></div>`;
}

// stateOf returns the run's state in a word. A live run is done once its own requests have ended; its parts stay up.
/** @param {typeof store} s */
function stateOf(s) {
  if (s.shared) return "shared";
  if (s.ended) return "finished";
  if (!s.connected) return "not connected";
  if (s.meta.mode !== "live") return "playing";
  return s.metrics && s.metrics.summary.measures ? "done" : "live";
}

// Verdict says whether the run kept the scenario's expectations and its objectives, once its requests have ended.
function Verdict() {
  const s = useStore(500), sum = s.metrics && s.metrics.summary;
  if (!sum || !sum.measures) return null;
  const list = sum.expectations || [], missed = list.filter((x) => !x.ok);
  const classes = sum.classes || [], whole = sum.measures.find((m) => m.measure === "attainment");
  const worst = classes.slice(0, -1).sort((a, b) => a.attainment - b.attainment).slice(0, 3); // the last has all classes
  const slos = classes.length ? [classes[classes.length - 1], ...worst] : sum.slo ? [{ name: "", attainment: whole && whole.value, missed: sum.missed }] : [];
  const bounds = Object.entries(sum.slo || {}).map(([k, v]) => k + " " + seconds(v)).join(", ");
  if (!list.length && !slos.length) return null;
  return html`<section class="verdict" aria-label="Verdict">
    ${list.length > 0 && html`<p class=${missed.length ? "bad" : "good"}><b>${missed.length ? "✕ " + thousands(missed.length) + " of " + plural(list.length, "expectation") + " missed" : "✓ " + (list.length === 1 ? "The expectation is met" : "All " + thousands(list.length) + " expectations are met")}</b>
      ${missed.slice(0, 3).map((x) => html` <span>${x.what} ${x.expected}, found ${x.found}</span>`)}</p>`}
    ${slos.map((x) => html`<p><b>${x.name || (bounds ? "SLO (" + bounds + ")" : "All classes")}</b> <span>${x.attainment == null ? "no request ended" : (100 * x.attainment).toFixed(1) + " % good"}</span>${Object.entries(x.missed || {}).map(([bound, n]) => html` <span>${bound} missed by ${thousands(n)}</span>`)}</p>`)}
  </section>`;
}

// Head shows the figures of the slider's moment.
function Head() {
  const s = store, t = usePlayhead(), f = s.metrics, w = f && f.windows;
  const sum = f && f.summary, ttft = sum?.spans?.find((x) => x.name === "ttft");
  let rate = 0;
  if (w && w.length > 1) {
    const last = w.slice(-Math.max(1, Math.ceil(2 / f.width)) - 1, -1);
    rate = last.reduce((n, x) => n + (x.sent || 0), 0) / (last.length * f.width);
  }
  if (s.ended && sum) rate = sum.requests / Math.max(sum.duration, 1e-9);
  const requests = sum ? sum.requests : s.rows.length;
  const x = figures(t) || { requests, rate, p50: ttft?.p50, p90: ttft?.p90, p99: ttft?.p99, inFlight: f && f.level.inFlight, failed: sum ? requests - (sum.outcomes?.completed || 0) - (sum.unfinished || 0) : 0 };
  /** @type {(v: number | null | undefined, show: (v: number) => string) => string} */
  const known = (v, show) => (v == null ? "–" : show(v));
  const state = stateOf(s);
  return html`<header>
    <h1><svg viewBox="0 0 16 16" aria-hidden="true"><path d="M1 5h9a2 2 0 1 0-2-2M1 8h12M1 11h8a2 2 0 1 1-2 2"/></svg>windtunnel</h1>
    <p class="what"><span class="scenario">${s.meta.scenario || "the embedded scenario"}</span> <span class=${"state " + state.replace(" ", "-")}>${state}</span></p>
    <dl class="metrics">
      <${Metric} what="time" value=${clock(t)}/>
      <${Metric} what="requests" value=${thousands(x.requests)}/>
      <${Metric} what="in flight" value=${known(x.inFlight, thousands)}/>
      <${Metric} what="sent /s" value=${x.rate.toFixed(1)}/>
      <${Metric} what="TTFT p50" value=${known(x.p50, seconds)}/>
      <${Metric} what="TTFT p90" value=${known(x.p90, seconds)}/>
      <${Metric} what="TTFT p99" value=${known(x.p99, seconds)}/>
      <${Metric} what="not completed" value=${thousands(x.failed)} kind=${x.failed > 0 ? "bad" : ""}/>
    </dl>
  </header>`;
}

function App() {
  const [at, go] = useState(route);
  const [view, setView] = useState(at.view || (at.request ? "requests" : store.meta.search ? "tune" : "flow"));
  useLayoutEffect(() => { // before the page is painted: a click cannot come first
    const f = () => { const r = route(); go(r); if (r.view) setView(r.view); };
    addEventListener("hashchange", f);
    return () => removeEventListener("hashchange", f);
  }, []);
  const V = (views.find(([id]) => id === view) || views[1])[2];
  const close = () => { location.hash = view; };
  const title = at.request ? "Request " + label(at.request) : (views.find(([id]) => id === view) || views[1])[1];
  const s = useStore(500), name = (s.meta.file || s.meta.scenario || "windtunnel") + " (" + stateOf(s) + ") · " + title;
  useEffect(() => { document.title = name; }, [name]);
  return html`<${Head}/><${Verdict}/><${Aloud}/>
    <nav aria-label="Views">${views.filter(([id]) => (id !== "do" || (store.meta.do && !store.ended)) && (id !== "tune" || store.meta.search)).map(([id, text]) => html`<a href=${"#" + id} aria-current=${id === view ? "page" : null}>${text}</a>`)}${!store.shared && html`<a class="share" href="/data/share" download="windtunnel.html">Share as one file</a>`}</nav>
    <main class=${"body" + (at.request ? " beside" : "")}>
      <div class="view"><${V}/></div>
      ${at.request && html`<${Detail} key=${at.request} request=${at.request} close=${close}/>`}
    </main>
    <${Playhead}/>`;
}

// start draws the page, for a run that is streamed or for a shared file.
export async function start() {
  const root = /** @type {HTMLElement} */ (document.getElementById("page")), data = document.getElementById("run");
  try {
    if (data) open(await unpack(data.textContent));
    else {
      history.replaceState(null, "", location.pathname + location.hash); // by now a cookie has the token
      await listen();
    }
  } catch (e) {
    root.textContent = "The run cannot be shown: " + /** @type {Error} */ (e).message;
    return;
  }
  root.textContent = "";
  if (data || store.meta.mode !== "live" || store.meta.own) replay();
  render(html`<${App}/>`, root);
}

start();
