// @ts-check
// Why a request was sent to its endpoint, as a table, and what-if questions.
import { useEffect, useState } from "preact/hooks";
import { html } from "./html.js";
import * as S from "./store.js";
import { thousands, percent, label, plural } from "./format.js";

// digits formats a score with four digits, as explain does.
/** @type {(x: number) => string} */
const digits = (x) => String(Number(x.toPrecision(4)));

/** @param {Run.ExplainedRemoval} x */
const removed = (x) => html`<p class="removed"><b>${x.by}</b> removed ${(x.endpoints || []).map((n, i) => S.addressed(n) + (x.why && x.why[i] ? " (" + x.why[i] + ")" : "")).join(", ")}${x.more ? " and " + x.more + " more" : ""}</p>`;

// Table shows a decision: candidates, removals by filters, scores (raw and weighted), ties, the choice.
/** @param {{e: Run.Explanation, was?: Run.Explanation}} props */
export function Table({ e, was }) {
  if (e.error) return html`<p class="note bad">Refused: ${e.error}${e.status ? " (" + e.status + ")" : ""}</p>`;
  const before = was && was.profiles ? was.profiles.flatMap((p) => p.picked) : [];
  return html`<div class="decision">
    <p class="quiet">${plural(e.candidates ? e.candidates.length : 0, "candidate")}${e.saturation !== undefined && e.saturation !== null ? ", saturation " + digits(e.saturation) : ""}${e.admission ? ", admitted: " + e.admission : ""}${e.disaggregation ? ", disaggregation: " + e.disaggregation : ""}</p>
    ${(e.screened || []).map(removed)}
    ${(e.profiles || []).map((p) => html`<section><h3>Profile ${p.name}${p.primary ? "" : " (not the primary one)"}</h3>
      ${(p.removed || []).map(removed)}
      <div class="scroll" tabindex="0" role="region" aria-label=${"Scores of profile " + p.name + (was ? ", what if" : "")}><table><thead><tr><th scope="col">endpoint</th>${(p.scorers || []).map((s) => html`<th scope="col" class="number">${s.name}<small> × ${digits(s.weight)}</small></th>`)}<th scope="col" class="number">total</th></tr></thead>
      <tbody>${(p.endpoints || []).map((x) => html`<tr class=${x.picked ? "picked" : ""}><th scope="row" title=${x.name}>${x.host_port}${x.picked ? html` <em>picked</em>` : (p.tied || []).length > 1 && p.tied?.includes(x.name) ? html` <em class="tied">tied</em>` : ""}${before.includes(x.name) && !x.picked ? html` <em class="tied">was picked</em>` : ""}</th>
        ${(x.raw || []).map((v, i) => html`<td class="number"><span class="cell"><i style=${{ width: Math.max(0, Math.min(1, v)) * 100 + "%" }}></i></span><span class="score">${digits(v)} <small>→ ${digits(x.weighted?.[i] ?? 0)}</small></span></td>`)}<td class="number total">${digits(x.total)}</td></tr>`)}</tbody></table></div>
      ${p.more && html`<p class="quiet">${plural(p.more, "endpoint")} with lower scores left out.</p>`}
      <p class="quiet">${p.tied && p.tied.length > 1 ? plural(p.tied.length, "endpoint") + " share the best score; " : ""}${p.picker ? p.picker + " picked " : "picked "}${S.addressed((p.picked || []).join(", ") || "none")}.</p></section>`)}
    ${(e.notes || []).map((n) => html`<p class="quiet">${n}</p>`)}
  </div>`;
}

// useWhatIf sends a what-if question after the user has stopped changing it.
/** @param {Partial<Run.Question> | null} question */
function useWhatIf(question) {
  const [result, setResult] = useState(/** @type {Run.Answer | null} */ (null)), [error, setError] = useState(""), [busy, setBusy] = useState(false);
  const text = JSON.stringify(question);
  useEffect(() => {
    if (!question) { setResult(null); setError(""); return; }
    const left = new AbortController(), good = () => !left.signal.aborted;
    const wait = setTimeout(() => {
      setBusy(true);
      S.post("/data/whatif", question, left.signal).then((a) => { if (good()) { setResult(a); setError(""); setBusy(false); } }, (e) => { if (good()) { setError(e.message); setBusy(false); } });
    }, 180);
    return () => { left.abort(); clearTimeout(wait); };
  }, [text]);
  return { result, error, busy };
}

/** @typedef {{weights: Record<string, number>, off: string[], states: Record<string, Run.Known>}} Turned */
/** @type {Turned} */
const untouched = { weights: {}, off: [], states: {} };

// unable says why a run answers no what-if questions.
const unable = () => (S.store.shared ? "A shared file cannot answer what-if questions, which need the picker. Use windtunnel replay FILE --ui with the recording." : "This run has no log of the picker's inputs: what-if questions need windtunnel's own endpoint picker.");

/** @param {{scorers: ReturnType<typeof scorersOf>, weights: Turned["weights"], off: string[], turn: (x: Partial<Turned>) => void}} props */
function Knobs({ scorers, weights, off, turn }) {
  return html`<div class="knobs">${scorers.map((s) => {
    const key = s.profile + "/" + s.name, w = weights[key] ?? s.weight, out = off.includes(key);
    return html`<div class="knob" key=${key}><label><input type="checkbox" checked=${!out} onChange=${() => turn({ off: out ? off.filter((x) => x !== key) : [...off, key] })}/> ${s.name} <small>${s.profile}</small></label>
      <input type="range" min="0" max=${Math.max(10, 2 * s.weight)} step="0.1" value=${w} disabled=${out} aria-label=${"Weight of " + s.name + " in " + s.profile} onInput=${(e) => turn({ weights: { ...weights, [key]: Number(e.currentTarget.value) } })}/>
      <output>${out ? "off" : digits(w)}${!out && w !== s.weight ? html` <small>was ${digits(s.weight)}</small>` : ""}</output></div>`;
  })}</div>`;
}

/** @param {Run.Explanation | null} e */
const scorersOf = (e) => (e && e.profiles ? e.profiles.flatMap((p) => (p.scorers || []).map((s) => ({ ...s, profile: p.name }))) : []);

/** @param {{result: Run.Answer}} props */
function Moved({ result }) {
  const share = result.decisions ? result.moved / result.decisions : 0;
  return html`<div class="moved"><p class="big" role="status"><b>${thousands(result.moved)}</b> of ${plural(result.decisions, "request")} (${percent(share)}) would, each alone, have gone elsewhere${result.refused ? "; " + thousands(result.refused) + " would have been refused" : ""}${result.prefillMoved ? "; " + thousands(result.prefillMoved) + " prefilled elsewhere" : ""}.</p>
    ${result.reasons?.length && html`<ul class="plain">${result.reasons.slice(0, 6).map((r) => html`<li><b>${thousands(r.requests)}</b> ${S.addressed(r.reason)}</li>`)}</ul>`}
    <div class="scroll" tabindex="0" role="region" aria-label="Endpoints"><table><thead><tr><th scope="col">endpoint</th><th scope="col" class="number">recorded</th><th scope="col" class="number">what if</th><th scope="col" class="number">moved away</th></tr></thead>
      <tbody>${(result.endpoints || []).map((x) => html`<tr><th scope="row">${S.addressed(x.endpoint)}</th><td class="number">${thousands(x.recorded)}</td><td class="number">${thousands(x.other)}</td><td class="number">${thousands(x.moved)}</td></tr>`)}</tbody></table></div>
    ${(result.notes || []).map((n) => html`<p class="quiet">${n}</p>`)}
    ${result.requests?.length && html`<h3>The latest of these requests</h3><ul class="plain chips">${result.requests.slice(-60).reverse().map((r) => html`<li><a href=${"#request/" + encodeURIComponent(r.request)}>${label(r.request)}</a> <small title=${S.addressed(r.why)}>${S.addressed(r.prefillTo || r.prefillFrom ? "prefill " + (r.prefillFrom || "none") + " → " + (r.prefillTo || "none") : (r.from || "refused") + " → " + (r.to || "refused"))}</small></li>`)}</ul>`}
  </div>`;
}

// Why shows the decision of one request, with a what-if question about it.
/** @param {{request: string, explained: Run.Explanation}} props */
export function Why({ request, explained }) {
  const s = S.store;
  const [knobs, set] = useState(untouched);
  /** @type {(x: Partial<Turned>) => void} */
  const turn = (x) => set({ ...knobs, ...x });
  const turned = Object.keys(knobs.weights).length + knobs.off.length + Object.keys(knobs.states).length > 0;
  const able = s.meta.whatIf && !s.shared;
  const { result, error, busy } = useWhatIf(able && turned ? { request, weights: knobs.weights, off: knobs.off, states: knobs.states, pool: explained.pool || "" } : null);
  const now = result && result.now, endpoints = (explained.profiles || []).flatMap((p) => p.endpoints || []).filter((x, i, all) => all.findIndex((y) => y.host_port === x.host_port) === i).slice(0, 12);
  /** @type {(at: string, key: keyof Run.Known, value: number | undefined) => void} */
  const state = (at, key, value) => turn({ states: { ...knobs.states, [at]: { ...knobs.states[at], [key]: value } } });
  /** @param {Run.Explanation | undefined} e */
  const winner = (e) => (e ? e.error || e.destination : "");
  return html`<div class="why">
    <${Table} e=${explained}/>
    ${able && scorersOf(explained).length > 0 ? html`<h3>What if</h3><p class="quiet">The picker's code decides again, with all the data that it had then.</p>
      <${Knobs} scorers=${scorersOf(explained)} weights=${knobs.weights} off=${knobs.off} turn=${turn}/>
      <details><summary>Another state of the servers</summary><div class="states">${endpoints.map((x) => html`<fieldset><legend>${x.host_port}</legend>
        <label>waiting <input type="number" min="0" max="10000" onInput=${(e) => state(x.host_port, "waiting", e.currentTarget.value === "" ? undefined : Math.round(Number(e.currentTarget.value)))}/></label>
        <label>running <input type="number" min="0" max="10000" onInput=${(e) => state(x.host_port, "running", e.currentTarget.value === "" ? undefined : Math.round(Number(e.currentTarget.value)))}/></label>
        <label>KV % <input type="number" min="0" max="100" onInput=${(e) => state(x.host_port, "kv", e.currentTarget.value === "" ? undefined : Number(e.currentTarget.value) / 100)}/></label></fieldset>`)}</div></details>
      ${turned && html`<p><button class="plain" onClick=${() => set(untouched)}>Reset</button> ${busy ? html`<span class="quiet">asking…</span>` : ""}</p>`}
      ${error && html`<p class="note bad" role="alert">${error}</p>`}
      ${now && html`<p class="big" role="status">${winner(now) === winner(result.was) ? html`It would have gone to <b>${winner(now)}</b> all the same.` : html`It would have gone to <b>${winner(now)}</b> instead of ${winner(result.was)}.`}</p><${Table} e=${now} was=${result.was}/>`}
      ${result && !now && html`<p class="note">The log of inputs no longer has this request.</p>`}
      ${result && html`<h3>The other requests</h3><${Moved} result=${result}/>`}` : !able && html`<p class="quiet">${unable()}</p>`}
  </div>`;
}

// WhatIf asks about all requests, with other weights or a whole configuration.
export function WhatIf() {
  const s = S.useStore(1000);
  const [pool, setPool] = useState(""), [explained, setExplained] = useState(null), [text, setText] = useState(""), [config, setConfig] = useState("");
  const [knobs, set] = useState(untouched);
  const [done, setDone] = useState("");
  const pools = (s.meta.pools || []).map((p) => p.name).filter(Boolean), own = pools.length > 1 ? pool || pools[0] : "";
  useEffect(() => { // the pool's latest decision has the list of scorers
    if (explained) return;
    let good = true;
    (async () => {
      for (let i = s.rows.length - 1, k = 0; i >= 0 && k < 20; i--, k++) {
        if (!s.rows[i] || s.rows[i][S.PICKED] < 0 || (own && S.name(s.rows[i][S.POOL]) !== own)) { k--; continue; }
        const x = await S.steps(s.rows[i][S.ID]).catch(() => null);
        const e = x && x.events.map((y) => y.details && y.details.explanation).filter(Boolean).pop();
        if (e && good) return void setExplained(e);
      }
    })();
    return () => { good = false; };
  }, [s.rows.length > 0, explained, own]);
  const able = s.meta.whatIf && !s.shared;
  const { result, error, busy } = useWhatIf(able && s.rows.length ? { weights: knobs.weights, off: knobs.off, config, pool } : null);
  if (!able) return html`<section class="page"><p class="note">${unable()}</p></section>`;
  return html`<section class="page whatif" aria-label="What if">
    <div class="half"><h2>What if the picker were configured differently?</h2><p class="quiet">Each recorded decision is made again by itself, after the recorded decisions before it. Effects on later requests are not included.</p>
      ${pools.length > 1 && html`<label>Pool <select onChange=${(e) => { setPool(e.currentTarget.value); setExplained(null); setText(""); setConfig(""); set(untouched); }}>${pools.map((p) => html`<option value=${p}>${p}</option>`)}</select></label>`}
      ${scorersOf(explained).length > 0 && html`<h3>Weights</h3><${Knobs} scorers=${scorersOf(explained)} weights=${knobs.weights} off=${knobs.off} turn=${(x) => set({ ...knobs, ...x })}/>`}
      <h3><label for="config">EndpointPickerConfig</label></h3>
      <textarea id="config" rows="18" spellcheck="false" value=${text || (result ? result.config.trimStart() : "")} onInput=${(e) => setText(e.currentTarget.value)}></textarea>
      <p><button class="main" disabled=${!text} onClick=${() => { set(untouched); setConfig(text); }}>Try this configuration</button> <button class="plain" onClick=${() => { setText(""); setConfig(""); set(untouched); }}>Back to the recorded one</button> ${s.meta.do && !s.ended && result && html`<button class="plain" onClick=${() => S.post("/data/do", { name: "configure", pool: Math.max(0, pools.indexOf(pool)), body: result.config }).then((x) => setDone(x.result), (x) => setDone(x.message))}>Apply it to the run</button>`} <span role="status" class="quiet">${done}</span> ${busy && html`<span class="quiet" role="status">asking…</span>`}</p></div>
    <div class="half">${error ? html`<p class="note bad" role="alert">${error}</p>` : result ? html`<${Moved} result=${result}/>` : html`<p class="quiet">${s.rows.length ? "Asking the picker…" : "No request has been decided yet."}</p>`}</div>
  </section>`;
}
