// @ts-check
// The run over time, with one cursor for all plots, and a second run to compare with.
import { useEffect, useRef, useState } from "preact/hooks";
import { html } from "./html.js";
import { keyed } from "./focus.js";
import * as S from "./store.js";
import { seconds, thousands, percent, plural } from "./format.js";

/** @type {(o: Record<string, number> | null | undefined) => number} */
const sum = (o) => Object.values(o || {}).reduce((a, b) => a + b, 0);

// share returns the part that a count is of the requests that ended in a window.
/** @type {(w: Run.Window, n: number) => number | null} */
const share = (w, n) => { const ended = sum(w.outcomes); return ended ? n / ended : null; };

// Plots: the lines of each, as functions of a window, and their unit.
/** @type {{id: string, title: string, unit: (x: number) => string, share?: boolean, lines: [string, string, (w: Run.Window, seconds: number) => number | null][]}[]} */
const plots = [
  { id: "queue", title: "Requests under way", unit: thousands, lines: [["in flight", "accent", (w) => w.inFlight], ["waiting", "queue", (w) => w.waiting], ["running", "decode", (w) => w.running]] },
  { id: "ttft", title: "TTFT", unit: seconds, lines: [["p50", "decode", (w) => (w.ttft ? w.ttft[0] : null)], ["p90", "queue", (w) => (w.ttft ? w.ttft[1] : null)], ["p99", "hold", (w) => (w.ttft ? w.ttft[2] : null)]] },
  { id: "tpot", title: "Time per output token", unit: seconds, lines: [["p50", "decode", (w) => (w.tpot ? w.tpot[0] : null)], ["p90", "queue", (w) => (w.tpot ? w.tpot[1] : null)], ["p99", "hold", (w) => (w.tpot ? w.tpot[2] : null)]] },
  { id: "rate", title: "Requests per second", unit: (x) => (x >= 100 ? thousands(x) : x.toFixed(1)), lines: [["sent", "accent", (w, s) => (w.sent || 0) / s], ["completed", "decode", (w, s) => ((w.outcomes || {}).completed || 0) / s], ["not completed", "bad", (w, s) => (sum(w.outcomes) - ((w.outcomes || {}).completed || 0)) / s]] },
  { id: "good", title: "Good requests: within their SLO, or completed without one", unit: percent, share: true, lines: [["good", "decode", (w) => share(w, w.good || 0)], ["refused", "bad", (w) => share(w, (w.outcomes || {}).refused || 0)]] },
  { id: "cache", title: "KV caches", unit: percent, share: true, lines: [["in use", "prefill", (w) => (w.kv ? w.kv[0] : null)], ["fullest", "hold", (w) => (w.kv ? w.kv[1] : null)], ["of prompts cached", "decode", (w) => (w.promptTokens ? (w.cachedTokens || 0) / w.promptTokens : null)]] },
  { id: "tokens", title: "Output tokens per second", unit: thousands, lines: [["tokens", "decode", (w, s) => (w.tokens || 0) / s]] },
];

// columns returns a plot's values at the ends of the windows. A second run's values follow the first run's.
/** @param {typeof plots[0]} plot @param {Run.Measurements | null} metrics @param {Run.Measurements | null} other */
function columns(plot, metrics, other) {
  /** @param {Run.Measurements} f */
  const at = (f) => (f.windows || []).map((w) => w.from + f.width);
  if (!metrics || !at(metrics).length) return null;
  if (!other) return [at(metrics), ...plot.lines.map(([, , of]) => (metrics.windows || []).map((w) => of(w, metrics.width) ?? null))];
  const xs = [...new Set([...at(metrics), ...at(other)])].sort((a, b) => a - b);
  /** @type {(f: Run.Measurements, of: typeof plot.lines[0][2]) => (number | null | undefined)[]} */
  const spread = (f, of) => {
    const by = new Map((f.windows || []).map((w) => [w.from + f.width, of(w, f.width) ?? null]));
    return xs.map((x) => (by.has(x) ? by.get(x) : undefined));
  };
  return [xs, ...plot.lines.map(([, , of]) => spread(metrics, of)), ...plot.lines.map(([, , of]) => spread(other, of))];
}

let loaded = /** @type {Promise<typeof import("uplot")> | null} */ (null);

// load imports uPlot, which reads the browser's language at import and may fail.
const load = () => (loaded ??= import("uplot").then((m) => m.default));

// rest shows a plot's last values before the chosen moment in its legend, while no cursor is in the plot.
/** @param {import("uplot")} u */
function rest(u) {
  if ((u.cursor.left ?? -1) >= 0 || !u.data[0].length) return;
  const t = S.playhead() / 1e6, xs = u.data[0];
  let to = xs.findIndex((x) => x > t + 1e-9);
  if (to < 0 || t >= S.store.now / 1e6 - 1e-9) to = xs.length; // the last window ends after the run
  u.setLegend({ idxs: u.data.map((list) => { let i = to - 1; while (i > 0 && list[i] == null) i--; return Math.max(0, i); }) }, false);
}

/** @param {{plot: typeof plots[0], metrics: Run.Measurements, other: Run.Measurements | null, U: typeof import("uplot") | null}} props */
function Plot({ plot, metrics, other, U }) {
  const box = useRef(/** @type {HTMLElement | null} */ (null)), u = useRef(/** @type {import("uplot") | null} */ (null));
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  useEffect(() => {
    if (!U || !box.current) return;
    const css = getComputedStyle(box.current), color = (/** @type {string} */ n) => css.getPropertyValue("--dot-" + n).trim() || "#888";
    const ink = dark ? "#9db0bb" : "#4d606c", line = dark ? "#2c3942" : "#e3e9ec";
    /** @type {(u: import("uplot"), x: number | null) => string} */
    const shown = (_, x) => (x == null ? "–" : plot.unit(x));
    /** @type {import("uplot").Options} */
    const options = {
      width: box.current.clientWidth, height: 190, cursor: { sync: { key: "run" }, points: { size: 6 }, drag: { x: true, y: false } }, legend: { live: true },
      scales: { x: { time: false }, y: { range: (_, a, b) => [0, plot.share ? 1 : Math.max(b || 0, 1e-9) * 1.08] } },
      axes: [{ stroke: ink, grid: { stroke: line, width: 1 }, ticks: { stroke: line }, values: (_, list) => list.map((x) => Number(x.toPrecision(6)) + " s") }, { stroke: ink, size: 74, grid: { stroke: line, width: 1 }, ticks: { stroke: line }, values: (_, list) => list.map((x) => plot.unit(x)) }],
      series: [{ label: "time", value: (_, x) => (x == null ? "–" : seconds(x)) },
        ...plot.lines.map(([label, c]) => ({ label, stroke: color(c), width: 1.6, spanGaps: true, points: { show: false }, value: shown })),
        ...(other ? plot.lines.map(([label, c]) => ({ label: label + ", other run", stroke: color(c), dash: [5, 4], width: 1.4, spanGaps: true, points: { show: false }, value: shown })) : [])],
      hooks: { draw: [(p) => {
        const x = p.valToPos(S.playhead() / 1e6, "x", true), { ctx, bbox } = p;
        /** @type {(px: number, c: string, dash: number[]) => void} */
        const mark = (px, c, dash) => { if (px < bbox.left || px > bbox.left + bbox.width) return; ctx.save(); ctx.strokeStyle = c; ctx.setLineDash(dash); ctx.beginPath(); ctx.moveTo(px, bbox.top); ctx.lineTo(px, bbox.top + bbox.height); ctx.stroke(); ctx.restore(); };
        for (const n of S.store.notices) if (/incident|acted/.test(n.step)) mark(p.valToPos(n.time, "x", true), color("bad"), [2, 3]);
        for (const g of S.store.gaps) mark(p.valToPos(g.to / 1e6, "x", true), color("hold"), [6, 3]);
        mark(x, color("accent"), []);
      }] },
    };
    u.current = new U(options, /** @type {import("uplot").AlignedData} */ (columns(plot, metrics, other) || options.series.map(() => [])), box.current);
    if (u.current) rest(u.current);
    const o = new ResizeObserver(() => u.current && box.current && u.current.setSize({ width: box.current.clientWidth, height: 190 }));
    o.observe(box.current);
    const move = setInterval(() => { if (u.current) { u.current.redraw(false); rest(u.current); } }, 500);
    return () => { clearInterval(move); o.disconnect(); u.current?.destroy(); u.current = null; };
  }, [U, other, dark]);
  useEffect(() => {
    const data = columns(plot, metrics, other);
    if (u.current && data) u.current.setData(/** @type {import("uplot").AlignedData} */ (data));
  }, [metrics, other]);
  const [at, look] = useState(-1), windows = (metrics && metrics.windows) || [], here = windows[Math.min(at, windows.length - 1)];
  /** @param {KeyboardEvent} e */
  const key = (e) => { // keys move the cursor and zoom
    const p = u.current, xs = p ? p.data[0] : [], last = xs.length - 1;
    if (!p || last < 0) return;
    const now = p.cursor.idx ?? last, to = keyed(e, { ArrowLeft: now - 1, ArrowRight: now + 1, PageUp: now - 10, PageDown: now + 10, Home: 0, End: last }), zoom = keyed(e, { "+": 0.5, "-": 2 });
    if (to === undefined && !zoom) return;
    e.preventDefault();
    if (zoom) {
      const { min = xs[0], max = xs[last] } = p.scales.x, half = ((max - min) * zoom) / 2, from = Math.max(xs[0], xs[now] - half);
      return void p.setScale("x", { min: from, max: Math.min(xs[last], from + 2 * half) });
    }
    const n = Math.max(0, Math.min(last, to || 0)), left = p.valToPos(xs[n], "x");
    /** @type {any} */ (p).setCursor({ left, top: p.bbox.height / devicePixelRatio / 2 }, true, true); // the third argument is not declared
    if (!other) look(n);
  };
  const result = here ? seconds(here.from + metrics.width) + ": " + plot.lines.map(([label, , of]) => { const x = of(here, metrics.width); return label + " " + (x == null ? "none" : plot.unit(x)); }).join(", ") : "no moment chosen";
  return html`<figure class="plot"><figcaption>${plot.title}</figcaption><div ref=${box} role="slider" tabindex="0" aria-label=${plot.title + " over time"} aria-valuemin="0" aria-valuemax=${Math.max(0, windows.length - 1)} aria-valuenow=${Math.max(0, at)} aria-valuetext=${result} onKeyDown=${key}></div></figure>`;
}

// summaryOf reads the second run: a file shared from a page.
/** @param {File} file */
async function summaryOf(file) {
  const text = await file.text(), found = /id="run">([A-Za-z0-9+/=]+)</.exec(text);
  if (!found) throw new Error(file.name + " is not a file that was shared from a page");
  const run = await S.unpack(found[1]);
  const f = (run.frames || []).findLast((x) => x.metrics)?.metrics;
  if (!f) throw new Error(file.name + " has no metrics");
  return { name: (run.meta.scenario || file.name) + " (" + run.meta.mode + ")", metrics: f };
}

/** @typedef {{metrics: Run.Measurements, other: Run.Measurements | null}} Compared */
/** @param {Compared} props */
function Spans({ metrics, other }) {
  const rows = metrics.summary.spans || [], theirs = other ? Object.fromEntries((other.summary.spans || []).map((s) => [s.name, s])) : {};
  const quantiles = /** @type {const} */ (["p50", "p90", "p99", "max"]);
  /** @type {(s: Run.SpanSummary, o: Run.SpanSummary | undefined, q: typeof quantiles[number]) => any} */
  const cell = (s, o, q) => html`<td class="number">${seconds(s[q])}${o ? html` <small class=${o[q] > s[q] * 1.005 ? "worse" : o[q] < s[q] * 0.995 ? "better" : ""}>${seconds(o[q])}</small>` : ""}</td>`;
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Spans"><table class="spans"><thead><tr><th scope="col">span</th><th scope="col" class="number">count</th>${quantiles.map((q) => html`<th scope="col" class="number">${q}</th>`)}</tr></thead>
    <tbody>${rows.map((s) => html`<tr><th scope="row">${s.name}</th><td class="number">${thousands(s.count)}</td>${quantiles.map((q) => cell(s, theirs[s.name], q))}</tr>`)}</tbody></table></div>`;
}

// amount formats a measure's value in its unit.
/** @param {string} unit @param {number} v */
function amount(unit, v) {
  switch (unit) {
    case "seconds": return seconds(v);
    case "share": return (100 * v).toFixed(1) + " %";
  }
  return Math.abs(v) >= 99.95 ? thousands(v) : String(Number(v.toPrecision(3)));
}

/** @param {Run.Measured} m */
const spread = (m) => m.low == null || m.high == null ? "?" : "± " + amount(m.unit, (m.high - m.low) / 2);

// Measures shows the measures of a whole run, with intervals. There are none before the run has ended.
/** @param {Compared} props */
function Measures({ metrics, other }) {
  const rows = metrics.summary.measures || [], theirs = other ? Object.fromEntries((other.summary.measures || []).map((m) => [m.measure, m])) : {};
  if (!rows.length) return html`<p class="quiet">Available once the run has ended.</p>`;
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Measures"><table class="measures"><thead><tr><th scope="col">measure</th><th scope="col" class="number">value</th><th scope="col">95 % interval</th>${other && html`<th scope="col" class="number">other run</th>`}</tr></thead>
    <tbody>${rows.map((m) => html`<tr><th scope="row">${m.measure}</th><td class="number">${amount(m.unit, m.value)}</td><td>${m.low == null ? html`<small>none: ${m.why}</small>` : spread(m)}</td>${other && html`<td class="number">${theirs[m.measure] ? amount(m.unit, theirs[m.measure].value) : ""}</td>`}</tr>`)}</tbody></table></div>`;
}

// Load shows how full the model servers were: each role, and each server if there are at most 16.
/** @param {{load: Run.LoadSummary[]}} props */
function Load({ load }) {
  const rows = load.flatMap((x) => {
    const role = (x.pool ? x.pool + " " : "") + x.role, each = x.each || [];
    return [{ ...x, name: role + ", " + plural(x.servers, "server"), busy: x.busy.mean }, ...(each.length > 1 && each.length <= 16 ? each : []).map((y) => ({ balance: 0, ...y }))];
  });
  /** @type {(x: Run.LevelSummary, of: (v: number) => string) => any} */
  const level = (x, of) => html`<td class="number">${of(x.mean)}</td><td class="number">${of(x.peak)}</td>`;
  const few = (/** @type {number} */ v) => String(Number(v.toPrecision(3))), share = (/** @type {number} */ v) => amount("share", v);
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Servers"><table class="load"><thead><tr><th scope="col">servers</th>${["in step", "balance", "queue", "peak", "KV", "peak", "preemptions"].map((x) => html`<th scope="col" class="number">${x}</th>`)}</tr></thead>
    <tbody>${rows.map((x) => html`<tr><th scope="row">${x.name}</th><td class="number">${share(x.busy)}</td><td class="number">${x.balance ? few(x.balance) : ""}</td>${level(x.queue, few)}${level(x.kv, share)}<td class="number">${thousands(x.preemptions)}</td></tr>`)}</tbody></table></div>`;
}

// Told shows the other results of the run, one line for each.
/** @param {{sum: Run.Summary}} props */
function Told({ sum }) {
  const lines = [];
  for (const [reason, n] of Object.entries(sum.refusals || {}).sort((a, b) => b[1] - a[1])) lines.push(["refused", reason + " (" + thousands(n) + ")"]);
  for (const x of sum.incidents || []) lines.push(["incident", x.what + " at " + seconds(x.at) + (x.endpoint ? " " + x.endpoint : "") + (x.until ? " until " + seconds(x.until) : "")]);
  if (sum.prefixCache) lines.push(["KV cache", (100 * sum.prefixCache.hitRate).toFixed(1) + " % of " + plural(sum.prefixCache.promptTokens, "prompt token") + " were cached where they went"]);
  if (sum.transfers) lines.push(["KV moved", plural(sum.transfers.count, "transfer") + ", each in p50 " + seconds(sum.transfers.p50) + ", p90 " + seconds(sum.transfers.p90) + ", p99 " + seconds(sum.transfers.p99)]);
  if (sum.cost) lines.push(["cost", [sum.cost.gpuHours.toPrecision(3) + " GPU-hours", sum.cost.usd != null && sum.cost.usd.toPrecision(4) + " USD", sum.cost.usdPerMillionOutputTokens != null && sum.cost.usdPerMillionOutputTokens.toPrecision(4) + " USD per 1M output tokens"].filter(Boolean).join(", ")]);
  for (const x of sum.expectations || []) lines.push([x.ok ? "expected" : "missed", x.what + " " + x.expected + ", found " + x.found]);
  return html`<dl class="sums">${lines.map(([what, text]) => html`<div class=${what === "missed" ? "bad" : ""}><dt>${what}</dt><dd>${text}</dd></div>`)}</dl>`;
}

export function Time() {
  const s = S.useStore(500);
  const [U, setU] = useState(/** @type {typeof import("uplot") | null} */ (null)), [error, setError] = useState(""), [other, setOther] = useState(/** @type {{name: string, metrics: Run.Measurements} | null} */ (null));
  useEffect(() => { load().then((x) => setU(() => x), (e) => setError("Plots cannot be drawn in this browser's language: " + e.message)); }, []);
  /** @param {Event & {currentTarget: HTMLInputElement}} e */
  const choose = (e) => { const f = e.currentTarget.files?.[0]; if (f) summaryOf(f).then((x) => { setOther(x); setError(""); }, (x) => setError(x.message)); };
  return html`<section class="page times" aria-label="Time">
    <div class="tools"><label>Compare with another run <input type="file" accept=".html" onChange=${choose}/></label>${other && html`<p><b>${other.name}</b> is dashed <button class="plain" onClick=${() => setOther(null)}>Remove it</button></p>`}
      <p class="quiet">Drag to zoom in, double-click to see all, or use the arrow keys, + and −. Dotted: incidents.${s.gaps.length ? " Dashed: this page was too slow and some moments are missing." : ""}</p></div>
    ${error && html`<p class="note bad" role="alert">${error}</p>`}
    <div class="plots">${plots.map((p) => html`<${Plot} key=${p.id} plot=${p} metrics=${s.metrics} other=${other && other.metrics} U=${U}/>`)}</div>
    ${s.metrics && html`<h2>Spans</h2><${Spans} metrics=${s.metrics} other=${other && other.metrics}/>
    <h2>Measures</h2><${Measures} metrics=${s.metrics} other=${other && other.metrics}/>
    ${(s.metrics.summary.load || []).length > 0 && html`<h2>Servers</h2><${Load} load=${s.metrics.summary.load}/>`}
    <${Told} sum=${s.metrics.summary}/>`}
  </section>`;
}
