// @ts-check
// The topology, left to right as a request travels: the parts as text, and the requests as dots that move between
// them.
import { useEffect, useRef, useState } from "preact/hooks";
import { html } from "./html.js";
import * as S from "./store.js";
import { span, thousands, percent, label, plural, clock, spaced } from "./format.js";
import { keyed, useDismiss } from "./focus.js";
import { pools, census, picks } from "./topology.js";
import { Dots } from "./dots.js";

/** @param {{value: number, hit: number, title: string}} props */
function Bar({ value, hit, title }) {
  return html`<span class="meter" role="img" aria-label=${title} title=${title}><i style=${{ width: 100 * Math.min(1, value) + "%" }}></i>${hit > 0 && html`<b style=${{ width: 100 * Math.min(1, value * hit) + "%" }}></b>`}</span>`;
}

/** @import { Pod as Server, Pool as Servers, Group as Alike } from "./topology.js" */
/** @typedef {{c: ReturnType<typeof census>, t: number, choose: (id: string) => void}} Shown */

// Pod is a model server: a card, one line where there are many, or a tile whose colour is its load, where there are very
// many. most is the largest load of a tile in the strip.
/** @param {Shown & {pod: Server, shape: string, most: number, hit?: {prompt: number, cached: number}, chosen: boolean, from: string, tab: boolean}} props */
function Pod({ pod, shape, most, c, t, hit, choose, chosen, from, tab }) {
  const x = c.at.get("pod " + pod.id) || { all: 0, queue: 0, prefill: 0, decode: 0 }, g = S.gauge(pod.id, t);
  const share = hit && hit.prompt ? hit.cached / hit.prompt : 0, runs = x.prefill + x.decode;
  const life = S.life(pod.id, t), down = !life && g && !g.ready, state = life || (down ? "not ready" : "");
  const kv = g ? "KV cache " + percent(g.kv) + " in use" : "", found = hit && hit.prompt ? percent(share) + " of prompt tokens were cached" : "";
  const words = [pod.id + ": " + x.queue + " waiting, " + runs + " running", kv, found, state].filter(Boolean).join(", ");
  const own = { "data-part": "pod " + pod.id, "data-from": from, onClick: () => choose("pod " + pod.id), title: words, class: "pod " + shape + (pod.prefill ? " prefills" : "") + (down ? " down" : "") + (chosen ? " chosen" : "") };
  if (shape === "tile") {
    return html`<button ...${own} aria-label=${words} tabindex=${tab ? 0 : -1} style=${{ "--load": Math.round((100 * (runs + x.queue)) / most) + "%" }}><i class="q" style=${{ height: Math.min(100, (100 * x.queue) / most) + "%" }}></i></button>`;
  }
  const counts = [["q", x.queue, "waiting"], ["p", x.prefill, "prefill"], ...(pod.prefill ? [] : [["d", x.decode, "decode"]])];
  if (shape === "row") return html`<button ...${own}><span class="name">${pod.id}</span>${state ? html`<em>${state}</em>` : html`<span class="counts">${counts.map(([kind, n, what]) => html`<span class=${kind}><b class=${n ? "" : "none"}>${n}</b><span class="heard"> ${what}</span></span>`)}</span>`}</button>`;
  return html`<button ...${own}><span class="name">${pod.id}${state && html` <em>${state}</em>`}</span>
    <span class="counts">${counts.map(([kind, n, what]) => html`<span class=${kind}><b>${n}</b> ${what}</span>`)}</span>
    ${g && html`<${Bar} value=${g.kv} hit=${share} title=${kv + (found ? "; " + found : "")}/>`}
    ${(found || (g && g.adapters.length > 0)) && html`<span class="more">${found && percent(share) + " cached"}${g && g.adapters.length ? " · " + g.adapters.join(", ") : ""}</span>`}
  </button>`;
}

// Group has the servers of one pool that have the same settings and role.
/** @param {Shown & {group: Alike, chosen: string, shape: string, from: string, id: string, found: ReturnType<typeof S.hits>}} props */
function Group({ group, shape, from, id, chosen, ...rest }) {
  const [at, focus] = useState(0), strip = useRef(/** @type {any} */ (null)), n = group.pods.length;
  /** @param {Server} p */
  const load = (p) => (rest.c.at.get("pod " + p.id) || { all: 0 }).all;
  const most = shape === "tile" ? Math.max(8, ...group.pods.map(load)) : 0;
  /** @param {KeyboardEvent} e */
  const key = (e) => { // arrow keys move within a strip, which Tab enters once
    const tiles = [...strip.current.children], across = tiles.filter((x) => x.offsetTop === tiles[0].offsetTop).length;
    const to = keyed(e, { ArrowLeft: at - 1, ArrowRight: at + 1, ArrowUp: at - across, ArrowDown: at + across, Home: 0, End: n - 1 });
    if (to === undefined || !tiles[to]) return;
    e.preventDefault();
    focus(to);
    tiles[to].focus();
  };
  const strips = shape === "tile";
  return html`<section class=${"pods " + shape + "s" + (group.prefill ? " prefills" : "")} aria-label=${group.title}><h2>${group.title} <small>${n}</small>${strips && html` <small class="scale" aria-label=${"Colour: up to " + most + " requests"}>0<i></i>${plural(most, "request")}</small>`}</h2>
    <div ref=${strip} class=${strips ? "strip" : null} data-part=${strips ? id : null} data-from=${strips ? from : null} onKeyDown=${strips ? key : null} role="group" aria-label=${group.title} style=${{ "--across": n > 6 ? 2 : 1, "--name": Math.min(40, Math.max(...group.pods.map((p) => p.id.length))) }}>
      ${group.pods.map((p, i) => html`<${Pod} key=${p.id} pod=${p} shape=${shape} most=${most} from=${strips ? id : from} tab=${i === Math.min(at, n - 1)} chosen=${chosen === "pod " + p.id} hit=${rest.found.get(S.store.names.indexOf(p.id))} ...${rest}/>`)}</div></section>`;
}

/** @param {Pick<Shown, "choose"> & {chosen: string, id: string, from: string | null, kind?: string, title: string, text: string, children?: any}} props */
function Part({ id, from, kind, title, text, choose, chosen, children }) {
  return html`<button class=${"place " + (kind || "") + (chosen === id ? " chosen" : "")} data-part=${id} data-from=${from} onClick=${() => choose(id)}><span class="name">${title}</span>${text && html`<span class="more">${text}</span>`}${children}</button>`;
}

// waiting describes the requests that wait at a picker, by their priority where there are several.
/** @param {Map<number, number> | undefined} bands */
function waiting(bands) {
  const list = [...(bands || [])].sort((a, b) => b[0] - a[0]), all = list.reduce((n, [, x]) => n + x, 0);
  return { all, bands: list.length > 1 || (list.length && list[0][0] !== 0) ? list : [] };
}

// Picker is a pool's endpoint picker: how fast it decides, which servers it picked last, and its queue.
/** @param {Pick<Shown, "choose"> & {chosen: string, id: string, bands?: Map<number, number>, made?: {rate: number, last: string[]}}} props */
function Picker({ id, bands, made, choose, chosen }) {
  const w = waiting(bands);
  return html`<${Part} id=${id} from="envoy" kind="picker" title="Endpoint picker" text=${w.all ? thousands(w.all) + " waiting" : "none waiting"} choose=${choose} chosen=${chosen}>
    ${w.bands.map(([p, n]) => html`<span class="more">priority ${p}: <b>${n}</b></span>`)}
    <span class="more"><b>${made ? made.rate.toFixed(1) : 0}</b> decisions/s</span>
    ${made && html`<span class="more picks">last: ${made.last.join(", ")}</span>`}</${Part}>`;
}

// Pool is one pool with its own picker.
/** @param {Shown & {pool: Servers, chosen: string, shape: string, made: ReturnType<typeof picks>, found: ReturnType<typeof S.hits>}} props */
function Pool({ pool, shape, made, choose, chosen, ...rest }) {
  const side = pool.sidecar && "sidecar" + pool.key, here = side && (rest.c.at.get(side) || { all: 0 }).all, n = pool.groups.reduce((k, g) => k + g.pods.length, 0);
  return html`<section class="pool" aria-label=${pool.name ? "Pool " + pool.name : "Pool"}>
    ${pool.name && html`<h2>${pool.name} <small>${plural(n, "server")}</small></h2>`}
    ${pool.picker && html`<${Picker} id=${"epp" + pool.key} bands=${rest.c.waits.get("epp" + pool.key)} made=${made.get("epp" + pool.key)} choose=${choose} chosen=${chosen}/>`}
    <div class="inside">
      ${side && html`<div class="column"><${Part} id=${side} from="envoy" title="Routing sidecar" text=${here ? here + " here" : "prefill leg, then decode"} choose=${choose} chosen=${chosen}/></div>`}
      <div class="column servers">${pool.groups.map((g, i) => html`<${Group} key=${g.title} id=${"strip" + pool.key + i} group=${g} shape=${shape} from=${side || "envoy"} choose=${choose} chosen=${chosen} ...${rest}/>`)}</div>
    </div></section>`;
}

/** @type {Record<string, string>} */
const titles = { client: "Client", envoy: "Envoy", bbr: "Body-based router", epp: "Endpoint picker", sidecar: "Routing sidecar", kv: "KV-Cache Manager" };

// About shows one part: its metrics, its latest problems and its configuration.
/** @param {{id: string, t: number, close: () => void, list: Server[]}} props */
function About({ id, t, close, list }) {
  const s = S.useStore(500), [now, setNow] = useState(/** @type {Run.Part} */ ({ facts: [], config: "" }));
  const live = s.meta.mode === "live" && !s.shared && !s.ended;
  useEffect(() => { // a part of a live run reports its own state
    setNow({ facts: [], config: "" });
    if (!live) return;
    let good = true, timer = 0;
    const ask = () => S.part(id).then((x) => good && setNow(x), (e) => good && setNow({ facts: [["the part does not answer", e.message]], config: "" })).finally(() => { if (good) timer = setTimeout(ask, 2000); });
    ask();
    return () => { good = false; clearTimeout(timer); };
  }, [id, live]);
  const [title, dismiss] = useDismiss(close, () => document.querySelector("[data-part=" + JSON.stringify(id) + "]"));
  const kind = id.split(" ")[0], of = id.slice(kind.length + 1), pod = kind === "pod" ? of : "", metas = s.meta.pools || [];
  const f = s.metrics ? s.metrics.summary : null, hop = kind === "pod" ? "server" : kind;
  /** @param {Run.Row} r */
  const mine = (r) => !pod || S.name(r[S.ENDPOINT]) === pod || S.name(r[S.PREFILLER]) === pod;
  const errors = s.failed.map(S.row).filter((r) => r && mine(r)).slice(-8).reverse();
  const notices = s.notices.filter((x) => (pod ? x.endpoint === pod : x.hop === hop) && S.trouble(x)).slice(-8).reverse();
  const info = pod && list.find((p) => p.id === pod), g = pod && S.gauge(pod, t), hit = pod && S.hits(t).get(s.names.indexOf(pod));
  const settings = now.config || (pod ? info && info.settings : kind === "epp" ? metas.filter((p) => !of || p.name === of).map((p) => p.config).filter(Boolean).join("\n---\n") : "");
  /** @type {[string, any][]} */
  const facts = [];
  if (pod) {
    facts.push(["role", info && info.prefill ? "prefill" : "model server"]);
    if (info && info.pool) facts.push(["pool", info.pool + (info.group ? ", group " + info.group : "")]);
    if (f && f.endpoints && f.endpoints[pod] !== undefined) facts.push(["picked", plural(f.endpoints[pod], "time")]);
    if (f && f.prefillServers && f.prefillServers[pod] !== undefined) facts.push(["prefill legs", thousands(f.prefillServers[pod])]);
    if (g) facts.push(["last scrape", g.waiting + " waiting, " + g.running + " running, KV cache " + percent(g.kv)]);
    if (hit) facts.push(["prompt tokens", thousands(hit.prompt) + ", " + percent(hit.cached / hit.prompt) + " of them cached"]);
  } else if (f && f.hops && f.hops[hop]) {
    for (const [step, n] of Object.entries(f.hops[hop])) facts.push([spaced(step), thousands(n)]);
  }
  facts.push(...(now.facts || []));
  return html`<section class="about" aria-label=${"About " + (pod || id)}>
    <div class="title"><h2 tabindex="-1" ref=${title}>${pod || titles[kind] + (of && " of " + of)}</h2><button class="close" onClick=${dismiss} aria-label="Close">✕</button></div>
    <dl class="pairs">${facts.map(([k, v]) => html`<dt>${k}</dt><dd>${v}</dd>`)}</dl>
    <h3>Latest problems</h3>
    ${!errors.length && !notices.length && html`<p class="quiet">None.</p>`}
    <ul class="plain">${notices.map((x) => html`<li><b>${spaced(x.step)}</b> at ${span(x.at)} ${x.endpoint || ""} ${Object.entries(x.details || {}).map(([k, v]) => k + " " + v).join(", ")}</li>`)}
    ${errors.map((r) => html`<li><a href=${"#request/" + encodeURIComponent(r[S.ID])}>${label(r[S.ID])}</a> ${spaced(S.outcome(r))}</li>`)}</ul>
    ${settings && html`<h3>Configuration in force</h3><pre>${settings.trim()}</pre>`}
  </section>`;
}

export function Flow() {
  const s = S.store, t = S.usePlayhead();
  const [chosen, choose] = useState("");
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  const list = pools(t), all = list.flatMap((p) => p.groups.flatMap((g) => g.pods)), c = census(t, list), made = picks(t, c.list), found = S.hits(t);
  const shape = all.length > 50 ? "tile" : all.length > 12 ? "row" : "card", here = (c.at.get("envoy") || { all: 0 }).all;
  /** @type {(id: string, from: string | null, title: string, text: string) => any} */
  const place = (id, from, title, text) => html`<${Part} id=${id} from=${from} title=${title} text=${text} choose=${choose} chosen=${chosen}/>`;
  const recent = s.notices.filter((x) => x.at <= t).slice(-3).reverse();
  return html`<section class="flow" aria-label="Topology"><div class="whole">
    <div class="stage" ref=${box}>
      <div class="column">${place("client", "envoy", "Client", plural(c.list.length, "request") + " in flight")}</div>
      <div class="column">${place("envoy", null, "Envoy", here ? here + " here" : c.by.held ? plural(c.by.held, "request") + " held open" : "forwards requests")}
        ${s.meta.bbr && place("bbr", "envoy", "Body-based router", "reads the model")}${s.meta.kvManager && place("kv", "epp" + list[0].key, "KV-Cache Manager", "indexes the pods' blocks")}</div>
      <div class="column pools">${list.map((p) => html`<${Pool} key=${p.key} pool=${p} shape=${shape} c=${c} t=${t} made=${made} found=${found} choose=${choose} chosen=${chosen}/>`)}</div>
      <${Dots} box=${box} list=${list}/>
    </div>
    <div class="legend"><span class="k way">on its way</span><span class="k queue">waiting</span><span class="k prefill">prefill</span><span class="k decode">decode</span>${(list.some((p) => p.held) || c.by.held > 0) && html`<span class="k hold">held open: unfinished until part 2</span>`}
      <p role="status" aria-live="off">${c.by.queue} waiting, ${c.by.prefill} in prefill, ${c.by.decode} in decode${s.sampled > 1 ? "; one dot in " + s.sampled + " is drawn" : ""}</p></div>
    ${recent.length > 0 && html`<ul class=${"notices" + (recent.some(S.trouble) ? " bad" : "")} aria-label="Events">${recent.map((x) => html`<li><b>${spaced(x.step)}</b> at ${clock(x.at)} ${x.endpoint || x.hop} ${(x.details && (x.details.what || x.details.reason)) || ""}</li>`)}</ul>`}
    </div>${chosen && html`<${About} key=${chosen} id=${chosen} t=${t} list=${all} close=${() => choose("")}/>`}
  </section>`;
}

// The speeds of the playhead.
const speeds = [[0.001, "1/1000"], [0.01, "1/100"], [0.1, "1/10"], [0.5, "1/2"], [1, "1"], [2, "2"], [10, "10"], [100, "100"]];

// Playhead is the time slider, which all views share.
export function Playhead() {
  const s = S.useStore(100);
  const [, tick] = useState(0);
  useEffect(() => {
    let frame = 0, before = performance.now(), drawn = 0;
    /** @param {number} now */
    const go = (now) => { // advances the time in all views
      frame = requestAnimationFrame(go);
      S.advance(Math.min(500, Math.max(0, now - before)));
      before = now;
      if (!S.store.play.follow && S.store.play.playing && now - drawn > 100) { drawn = now; tick((n) => n + 1); }
    };
    frame = requestAnimationFrame(go);
    return () => cancelAnimationFrame(frame);
  }, []);
  const p = s.play, live = !s.ended;
  /** @param {Partial<typeof p>} x */
  const set = (x) => { Object.assign(s.play, x, { moved: true }); S.changed(); tick((n) => n + 1); };
  const t = S.playhead();
  const play = () => (p.playing && !p.follow ? set({ playing: false }) : set({ follow: false, playing: true, at: t >= s.now - 1 && !live ? 0 : t }));
  /** @param {KeyboardEvent} e */
  const step = (e) => { // the slider's own step is one microsecond, which is too small for keys
    const by = keyed(e, { ArrowLeft: -0.005, ArrowDown: -0.005, ArrowRight: 0.005, ArrowUp: 0.005, PageDown: -0.1, PageUp: 0.1, Home: -1, End: 1 });
    if (!by) return;
    e.preventDefault();
    set({ follow: false, at: Math.max(0, Math.min(s.now, S.playhead() + by * s.now)) });
  };
  return html`<footer class="playhead" aria-label="Time">
    <button class="plain" onClick=${play}>${p.playing && !p.follow ? "Pause" : "Play"}</button>
    <label class="speed">Speed <select value=${p.rate} onChange=${(e) => set({ follow: false, playing: true, at: t >= s.now - 1 && !live ? 0 : t, rate: Number(e.currentTarget.value) })}>${speeds.map(([v, text]) => html`<option value=${v}>${text}×</option>`)}${!speeds.some(([v]) => v === p.rate) && html`<option value=${p.rate}>${p.rate}×</option>`}</select></label>
    <input class="slider" type="range" min="0" max=${Math.max(1, s.now)} step="1" value=${t} aria-label="Moment of the run" aria-valuetext=${clock(t)} onKeyDown=${step} onInput=${(e) => set({ follow: false, at: Number(e.currentTarget.value) })}/>
    <output>${clock(t)} <span class="quiet">of ${clock(s.now)}</span></output>
    ${live && html`<button class=${p.follow ? "main" : "plain"} aria-pressed=${p.follow} onClick=${() => set({ follow: true })}>${p.follow ? "Following" : "Catch up"}</button>`}
  </footer>`;
}
