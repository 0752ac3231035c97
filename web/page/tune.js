// @ts-check
// The search of windtunnel tune: the trade-offs of two objectives, all configurations over what varies, and a run of
// each.
import { useState } from "preact/hooks";
import { html } from "./html.js";
import * as S from "./store.js";

/** @typedef {{ [K in keyof Run.SearchPoint]-?: NonNullable<Run.SearchPoint[K]> }} Point */

export function Tune() {
  const s = S.useStore(1000), x = s.meta.search, [over, setOver] = useState(-1), [result, setResult] = useState("");
  if (!x) return null;
  const points = /** @type {Point[]} */ (x.points || []), objectives = x.objectives || [], knobs = x.knobs || [];
  const play = (/** @type {number} */ i) => {
    if (s.shared) return;
    setResult("The run is being played…");
    S.post("/data/do", { name: "play", number: i }).then((a) => { location.href = a.result; }, (e) => setResult(e.message));
  };
  const scales = objectives.map((_, k) => {
    const all = [...points].sort((a, b) => a.results[k] - b.results[k]), low = all[0], high = all[all.length - 1], span = high.results[k] - low.results[k];
    return { range: low.texts[k] + " to " + high.texts[k], at: (/** @type {number} */ v) => (span > 0 ? (v - low.results[k]) / span : 0.5) };
  });
  const name = (/** @type {Point} */ p, /** @type {number} */ i) => (p.of === "search" ? "search " + (i + 1) : p.of);
  const words = (/** @type {Point} */ p, /** @type {number} */ i) => name(p, i) + ": " + objectives.map((o, k) => o.name + " " + p.texts[k]).join(", ") + "; " + knobs.map((k, n) => k.name + " " + (p.values[n] || "as it is")).join(", ");
  // A mark of a point in a chart: a dot, or a line over all axes.
  const mark = (/** @type {number} */ i, /** @type {string} */ d, /** @type {string} */ kind) => html`<path key=${i} d=${d} class=${kind + (points[i].of === "search" ? "" : " " + points[i].of.split(" ")[0]) + (i === over ? " over" : "")} onMouseEnter=${() => setOver(i)} onMouseLeave=${() => setOver(-1)} onClick=${() => play(i)}><title>${words(points[i], i)}</title></path>`;
  const chart = (/** @type {string} */ label, /** @type {any} */ marks) => html`<div class="chart"><svg viewBox="0 0 100 100" preserveAspectRatio="none" role="img" aria-label=${label + "; the table below has the same"}>${marks}</svg></div>`;
  const dot = (/** @type {Point} */ p) => [100 * scales[0].at(p.results[0]), 100 - 100 * scales[1].at(p.results[1])];
  const front = points.filter((p) => p.of.startsWith("best")).sort((a, b) => a.results[0] - b.results[0]);
  const axes = [...knobs.map((k, n) => ({ name: k.name, range: k.range, at: (/** @type {Point} */ p) => p.at[n] })), ...objectives.map((o, k) => ({ name: o.name + (o.higher ? " (higher is better)" : " (lower is better)"), range: scales[k].range, at: (/** @type {Point} */ p) => scales[k].at(p.results[k]) }))];
  const across = (/** @type {Point} */ p) => axes.map((a, n) => [100 * n / (axes.length - 1), a.at(p)]).filter(([, y]) => y >= 0).map(([l, y], n) => (n ? "L" : "M") + l + " " + (100 - 100 * y)).join("");
  const rows = points.map((p, i) => ({ p, i })).sort((a, b) => Number(a.p.of === "search") - Number(b.p.of === "search"));
  return html`<section class="page tune" aria-label="Tune"><h2>${x.verdict}</h2>
    <p class="quiet legend"><span class="k best">best, with fresh seeds</span> <span class="k today">today</span> <span class="k others">others of the search</span></p>
    ${objectives.length > 1 && html`<h3>Trade-offs</h3><p class="quiet">↑ ${axes[knobs.length + 1].name}, ${axes[knobs.length + 1].range}</p>
      ${chart("Trade-offs of " + objectives[0].name + " and " + objectives[1].name, html`<path class="front" d=${front.map((p, n) => (n ? "L" : "M") + dot(p).join(" ")).join("")}/>${points.map((p, i) => mark(i, "M" + dot(p).join(" ") + "h0", "dot"))}`)}
      <p class="quiet">→ ${axes[knobs.length].name}, ${axes[knobs.length].range}</p>`}
    <h3>All configurations</h3>
    ${chart("Parallel coordinates of what varies and of the objectives", html`${axes.map((_, n) => html`<path class="rule" d=${"M" + 100 * n / (axes.length - 1) + " 0V100"}/>`)}${points.map((p, i) => mark(i, across(p), "across"))}`)}
    <ol class="axes quiet">${axes.map((a) => html`<li>${a.name}: ${a.range}</li>`)}</ol>
    <p role="status" class="quiet">${result || (s.shared ? "A shared file cannot play runs." : "A click on a point or a line, or on a name in the table, plays this configuration and shows its run. The views beside this one show the run of the best.")}</p>
    <div class="scroll" tabindex="0" role="region" aria-label="Configurations"><table><thead><tr><th scope="col">configuration</th>${objectives.map((o) => html`<th scope="col" class="number">${o.name}</th>`)}<th scope="col">limits</th>${knobs.map((k) => html`<th scope="col" class="number">${k.name}</th>`)}</tr></thead>
      <tbody>${rows.map(({ p, i }) => html`<tr key=${i} class=${i === over ? "picked" : ""} onMouseEnter=${() => setOver(i)} onMouseLeave=${() => setOver(-1)}><th scope="row"><button class="plain" disabled=${!!s.shared} onFocus=${() => setOver(i)} onClick=${() => play(i)}>${name(p, i)}</button></th>${p.texts.map((v) => html`<td class="number">${v}</td>`)}<td class=${p.kept ? "" : "bad"}>${p.kept ? "kept" : "missed"}</td>${p.values.map((v) => html`<td class="number">${v || "as it is"}</td>`)}</tr>`)}</tbody></table></div>
  </section>`;
}
