// @ts-check
// The topology, left to right as a request travels: the parts as text, and the requests as dots that move between
// them.
import { h } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import htm from "htm";
import * as S from "./store.js";
import { span, thousands, percent, label, plural, clock } from "./format.js";
import { useDismiss } from "./focus.js";

const html = htm.bind(h);
const most = 1500; // largest number of dots

// pods returns the model servers, including those that only a recording's requests name.
export function pods(t) {
  const out = [], known = new Set();
  for (const p of S.store.meta.pools || []) {
    for (const g of p.groups || []) {
      for (const e of g.endpoints || []) {
        if (known.has(e)) continue;
        known.add(e);
        if (!S.there(e, t, p.lives)) continue;
        out.push({ id: e, pool: p.name, group: g.name, prefill: !!g.prefill, settings: g.settings });
      }
    }
  }
  const told = [...S.store.lives.keys()].map((id) => [id, false]), used = [...S.store.servers].map(([n, prefill]) => [S.name(n), prefill]);
  const more = [...new Map(/** @type {[string, boolean][]} */ ([...told, ...used]))].map(([id, prefill]) => ({ id, prefill })).filter((p) => !known.has(p.id) && S.there(p.id, t, false));
  out.push(...more.sort((a, b) => a.id.localeCompare(b.id, "en", { numeric: true })));
  return out;
}

// moment returns the last moment that a request has passed at a time.
export function moment(r, t) {
  const since = t - r[S.SENT];
  let last = S.SENT;
  for (let m = S.AT_PICKER; m <= S.OVER; m++) if (r[m] >= 0 && r[m] <= since && (last === S.SENT || r[m] >= r[last])) last = m;
  return last;
}

const stage = (m) => ({ [S.AT_SERVER]: "queue", [S.STARTED]: "prefill", [S.LEG_SENT]: "prefill", [S.FIRST_SENT]: "decode", [S.PART2]: "decode", [S.FIRST_GOT]: "decode" })[m] || "way";

// partOf returns the part where a request is after a moment.
function partOf(r, m, sidecar) {
  switch (m) {
    case S.SENT: return "envoy";
    case S.AT_PICKER: case S.PICKED: return "epp";
    case S.PASSED: return r[S.FLAGS] & S.HELD ? "pod " + S.name(r[S.ENDPOINT]) : sidecar ? "sidecar" : "envoy";
    case S.AT_SIDECAR: case S.LEG_ENDED: return "sidecar";
    case S.LEG_SENT: return "pod " + S.name(r[S.PREFILLER]);
    case S.LAST_SENT: return "envoy";
    case S.OVER: return "client";
  }
  return "pod " + S.name(r[S.ENDPOINT]);
}

// census counts the requests at each part at a time.
export function census(t) {
  const at = new Map(), by = { way: 0, queue: 0, prefill: 0, decode: 0 };
  const list = S.under(t), sidecar = hasSidecar();
  const count = (key, kind) => {
    let x = at.get(key);
    if (!x) at.set(key, (x = { all: 0, queue: 0, prefill: 0, decode: 0, way: 0 }));
    x.all++;
    x[kind]++;
  };
  for (const r of list) {
    const m = moment(r, t), kind = stage(m);
    by[kind]++;
    count(partOf(r, m, sidecar), kind);
    if (r[S.FLAGS] & S.HELD && m >= S.PASSED && (r[S.PART2] < 0 || r[S.SENT] + r[S.PART2] > t)) by.held = (by.held || 0) + 1;
  }
  return { list, at, by };
}

function hasSidecar() {
  const s = S.store;
  if ((s.meta.pools || []).some((p) => p.sidecar || (p.groups || []).some((g) => g.prefill))) return true;
  return !!(s.metrics && s.metrics.summary.hops && s.metrics.summary.hops.sidecar);
}

function Bar({ value, hit, title }) {
  return html`<span class="meter" role="img" aria-label=${title} title=${title}><i style=${{ width: 100 * Math.min(1, value) + "%" }}></i>${hit > 0 && html`<b style=${{ width: 100 * Math.min(1, value * hit) + "%" }}></b>`}</span>`;
}

function Pod({ pod, small, c, t, hit, choose, chosen }) {
  const x = c.at.get("pod " + pod.id) || { all: 0, queue: 0, prefill: 0, decode: 0 }, g = S.gauge(pod.id, t);
  const share = hit && hit.prompt ? hit.cached / hit.prompt : 0;
  const life = S.life(pod.id, t), down = !life && g && !g.ready;
  const kv = g ? "KV cache " + percent(g.kv) + " in use" : "", found = hit && hit.prompt ? percent(share) + " of prompt tokens were cached" : "";
  const words = pod.id + ": " + x.queue + " waiting, " + (x.prefill + x.decode) + " running" + (kv ? ", " + kv : "") + (found ? ", " + found : "") + (life || down ? ", " + (life || "not ready") : "");
  if (small) {
    return html`<button class=${"pod small" + (pod.prefill ? " prefills" : "") + (down ? " down" : "") + (chosen ? " chosen" : "")} data-part=${"pod " + pod.id} onClick=${() => choose("pod " + pod.id)} aria-label=${words} title=${words}>
      <i class="q" style=${{ height: Math.min(100, x.queue * 10) + "%" }}></i><i class="r" style=${{ height: Math.min(100, (x.prefill + x.decode) * 8) + "%" }}></i></button>`;
  }
  return html`<button class=${"pod" + (pod.prefill ? " prefills" : "") + (down ? " down" : "") + (chosen ? " chosen" : "")} data-part=${"pod " + pod.id} onClick=${() => choose("pod " + pod.id)}>
    <span class="name">${pod.id}${life || down ? html` <em>${life || "not ready"}</em>` : ""}</span>
    <span class="counts"><span class="q"><b>${x.queue}</b> waiting</span><span class="p"><b>${x.prefill}</b> prefill</span>${!pod.prefill && html`<span class="d"><b>${x.decode}</b> decode</span>`}</span>
    ${g && html`<${Bar} value=${g.kv} hit=${share} title=${kv + (found ? "; " + found : "")}/>`}
    ${(found || (g && g.adapters.length > 0)) && html`<span class="more">${found && percent(share) + " cached"}${g && g.adapters.length ? " · " + g.adapters.join(", ") : ""}</span>`}
  </button>`;
}

function Part({ id, title, text, choose, chosen, children }) {
  return html`<button class=${"place" + (chosen ? " chosen" : "")} data-part=${id} onClick=${() => choose(id)}><span class="name">${title}</span>${text && html`<span class="more">${text}</span>`}${children}</button>`;
}

// About shows one part: its metrics, its latest problems and its configuration.
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
  const pod = id.startsWith("pod ") ? id.slice(4) : "";
  const f = s.metrics ? s.metrics.summary : null, hop = { client: "client", envoy: "envoy", epp: "epp", sidecar: "sidecar" }[id] || (pod ? "server" : "none");
  const mine = (r) => !pod || S.name(r[S.ENDPOINT]) === pod || S.name(r[S.PREFILLER]) === pod;
  const errors = s.failed.map(S.row).filter((r) => r && mine(r)).slice(-8).reverse();
  const notices = s.notices.filter((x) => (pod ? x.endpoint === pod : x.hop === hop) && S.trouble(x)).slice(-8).reverse();
  const info = pod && list.find((p) => p.id === pod), g = pod && S.gauge(pod, t), hit = pod && S.hits(t).get(s.names.indexOf(pod));
  const pool = info ? (s.meta.pools || []).find((p) => p.name === info.pool) : null;
  const settings = now.config || (pod ? info && info.settings : id === "epp" ? (s.meta.pools || []).map((p) => p.config).filter(Boolean).join("\n---\n") : "");
  const facts = [];
  if (pod) {
    facts.push(["role", info && info.prefill ? "prefill" : "model server"]);
    if (info && info.pool) facts.push(["pool", info.pool + (info.group ? ", group " + info.group : "")]);
    if (f && f.endpoints && f.endpoints[pod] !== undefined) facts.push(["picked", plural(f.endpoints[pod], "time")]);
    if (f && f.prefillServers && f.prefillServers[pod] !== undefined) facts.push(["prefill legs", thousands(f.prefillServers[pod])]);
    if (g) facts.push(["last scrape", g.waiting + " waiting, " + g.running + " running, KV cache " + percent(g.kv)]);
    if (hit) facts.push(["prompt tokens", thousands(hit.prompt) + ", " + percent(hit.cached / hit.prompt) + " of them cached"]);
  } else if (f && f.hops && f.hops[hop]) {
    for (const [step, n] of Object.entries(f.hops[hop])) facts.push([step.replaceAll("_", " "), thousands(n)]);
  }
  facts.push(...(now.facts || []));
  return html`<section class="about" aria-label=${"About " + id}>
    <div class="title"><h2 tabindex="-1" ref=${title}>${pod || { client: "Client", envoy: "Envoy", bbr: "Body-based router", epp: "Endpoint picker", sidecar: "Routing sidecar", kv: "KV-Cache Manager" }[id]}</h2><button class="close" onClick=${dismiss} aria-label="Close">✕</button></div>
    <dl class="pairs">${facts.map(([k, v]) => html`<dt>${k}</dt><dd>${v}</dd>`)}</dl>
    <h3>Latest problems</h3>
    ${!errors.length && !notices.length && html`<p class="quiet">None.</p>`}
    <ul class="plain">${notices.map((x) => html`<li><b>${x.step.replaceAll("_", " ")}</b> at ${span(x.at)} ${x.endpoint || ""} ${Object.entries(x.details || {}).map(([k, v]) => k + " " + v).join(", ")}</li>`)}
    ${errors.map((r) => html`<li><a href=${"#request/" + encodeURIComponent(r[S.ID])}>${label(r[S.ID])}</a> ${S.outcome(r).replaceAll("_", " ")}</li>`)}</ul>
    ${settings && html`<h3>Configuration in force</h3><pre>${settings}</pre>`}
  </section>`;
}

const colors = ["wait", "queue", "prefill", "decode", "hold", "bad", "accent"];

// Dots draws the requests over the parts.
function Dots({ box }) {
  const canvas = useRef(/** @type {HTMLCanvasElement | null} */ (null));
  useEffect(() => {
    const still = matchMedia("(prefers-reduced-motion: reduce)");
    const dots = new Map(), faded = [];
    let places = new Map(), style = {}, measured = 0, frame = 0, before = performance.now();
    const measure = () => {
      const b = box.current, c = canvas.current;
      if (!b || !c) return;
      const r = b.getBoundingClientRect(), ratio = Math.min(2, devicePixelRatio || 1);
      if (c.width !== Math.round(r.width * ratio) || c.height !== Math.round(r.height * ratio)) {
        c.width = Math.round(r.width * ratio);
        c.height = Math.round(r.height * ratio);
      }
      places = new Map();
      for (const e of b.querySelectorAll("[data-part]")) {
        const x = e.getBoundingClientRect();
        places.set(e.dataset.part, { pod: e.dataset.part.startsWith("pod "), x: x.left - r.left, y: x.top - r.top, w: x.width, h: x.height, cx: x.left - r.left + x.width / 2, cy: x.top - r.top + x.height / 2 });
      }
      const css = getComputedStyle(b);
      for (const name of colors) {
        const probe = css.getPropertyValue("--dot-" + name);
        style[name] = probe.trim() || "#888";
      }
    };
    // seat returns a request's place within a part. It stays the same.
    const seat = (p, n) => {
      const a = (n * 0.618034) % 1, b = (n * 0.754878) % 1;
      if (p.pod && p.h > 40) return [p.x + 10 + a * Math.max(1, p.w - 20), p.y + p.h - 17 + b * 11];
      return [p.x + 8 + a * Math.max(1, p.w - 16), p.y + Math.min(24, p.h * 0.5) + b * Math.max(1, p.h - Math.min(24, p.h * 0.5) - 6)];
    };
    const draw = () => {
      frame = requestAnimationFrame(draw);
      const now = performance.now(), ms = Math.min(200, now - before);
      before = now;
      if (document.hidden || !canvas.current) return;
      if (now - measured > 400) { measure(); measured = now; }
      const g = /** @type {CanvasRenderingContext2D} */ (canvas.current.getContext("2d")), ratio = Math.min(2, devicePixelRatio || 1);
      g.setTransform(ratio, 0, 0, ratio, 0, 0);
      g.clearRect(0, 0, canvas.current.width, canvas.current.height);
      const pipe = (a, b) => { // a line where requests can travel
        const p = places.get(a), q = places.get(b);
        if (!p || !q) return;
        const down = q.x < p.x + p.w, x0 = down ? p.cx : p.x + p.w, y0 = down ? p.y + p.h : p.cy, x1 = down ? q.cx : q.x, y1 = down ? q.y : q.cy, mid = (x0 + x1) / 2;
        g.moveTo(x0, y0);
        if (down) g.lineTo(x1, y1);
        else g.bezierCurveTo(mid, y0, mid, y1, x1, y1);
      };
      g.strokeStyle = "#8a9aa5";
      g.globalAlpha = places.size > 60 ? 0.12 : 0.45;
      g.lineWidth = 1;
      g.beginPath();
      pipe("client", "envoy");
      pipe("envoy", "epp");
      pipe("envoy", "bbr");
      const from = places.has("sidecar") ? "sidecar" : "envoy";
      if (from === "sidecar") pipe("envoy", "sidecar");
      for (const key of places.keys()) if (key.startsWith("pod ")) pipe(from, key);
      g.stroke();
      g.globalAlpha = 1;
      if (still.matches) return;
      const t = S.playhead(), list = S.under(t), step = Math.max(1, Math.ceil(list.length / most)), sidecar = hasSidecar();
      S.store.sampled = step;
      const envoy = places.get("envoy"), seen = new Set();
      g.lineCap = "round";
      for (const r of list) {
        if (r[S.N] % step) continue;
        seen.add(r[S.N]);
        const m = moment(r, t);
        let d = dots.get(r[S.N]);
        const p = places.get(partOf(r, m, sidecar));
        if (!p) continue;
        const [tx, ty] = seat(p, r[S.N]);
        if (!d) {
          const c = places.get("client") || p, [x, y] = seat(c, r[S.N]);
          d = { x, y, via: [], m: S.SENT };
          dots.set(r[S.N], d);
          if (m > S.AT_PICKER && r[S.OVER] >= 0 && t - r[S.SENT] > 3e5 * S.store.play.rate) { d.x = tx; d.y = ty; d.m = m; }
        }
        for (let k = d.m + 1; k <= m; k++) { // every part that the request passed, in order
          const then = Number(r[k]);
          if (then < 0 || then > t - r[S.SENT]) continue;
          const q = places.get(partOf(r, k, sidecar));
          if (q && (!d.via.length || d.via[d.via.length - 1].q !== q)) d.via.push({ q, at: seat(q, r[S.N]) });
        }
        d.m = Math.max(d.m, m);
        let [gx, gy] = d.via.length ? d.via[0].at : [tx, ty];
        const far = Math.hypot(gx - d.x, gy - d.y), speed = (1.1 + 0.9 * d.via.length) * ms;
        if (far <= speed) { d.x = gx; d.y = gy; d.via.shift(); } else { d.x += ((gx - d.x) * speed) / far; d.y += ((gy - d.y) * speed) / far; }
        const held = r[S.FLAGS] & S.HELD && m >= S.PASSED && envoy, whole = held && r[S.PART2] >= 0 && r[S.SENT] + r[S.PART2] <= t;
        if (held) { // unfinished until part 2 is sent
          const q = places.get("pod " + S.name(r[S.ENDPOINT]));
          if (q) {
            const x0 = envoy.x + envoy.w, y0 = envoy.cy, x1 = q.x, y1 = q.cy + (((r[S.N] * 7) % 11) - 5) * 1.6, end = whole ? 1 : 0.86;
            g.strokeStyle = whole ? style.decode : style.hold;
            g.globalAlpha = whole ? Math.min(0.5, 8 / list.length + 0.1) : Math.min(0.95, 30 / list.length + 0.35);
            g.lineWidth = whole ? 1.2 : 1.8;
            g.setLineDash(whole ? [] : [5, 4]);
            g.beginPath();
            g.moveTo(x0, y0);
            /** @type {(k: number) => [number, number]} */
            const bend = (k) => [x0 + (x1 - x0) * k, y0 + (y1 - y0) * (k * k * (3 - 2 * k))];
            for (let i = 1; i <= 12; i++) g.lineTo(...bend((i / 12) * end));
            g.stroke();
            g.setLineDash([]);
          }
        }
        g.globalAlpha = 0.95;
        g.fillStyle = style[{ queue: "queue", prefill: "prefill", decode: "decode", way: "accent" }[stage(m)]];
        g.beginPath();
        g.arc(d.x, d.y, list.length > 400 ? 2.2 : 3.4, 0, 7);
        g.fill();
      }
      for (const [n, d] of dots) {
        if (seen.has(n)) continue;
        dots.delete(n);
        const r = S.row(n), c = places.get("client");
        if (r && c && r[S.OVER] >= 0 && r[S.SENT] + r[S.OVER] <= t && faded.length < 300) faded.push({ x: d.x, y: d.y, to: seat(c, n), bad: S.bad(r), left: 900 });
      }
      for (let i = faded.length - 1; i >= 0; i--) { // on their way back to the client
        const d = faded[i], far = Math.hypot(d.to[0] - d.x, d.to[1] - d.y), speed = 1.6 * ms;
        if (far > speed) { d.x += ((d.to[0] - d.x) * speed) / far; d.y += ((d.to[1] - d.y) * speed) / far; } else d.left -= ms * 2;
        if ((d.left -= ms) <= 0) { faded.splice(i, 1); continue; }
        g.globalAlpha = Math.max(0, Math.min(0.9, d.left / 500));
        g.fillStyle = d.bad ? style.bad : style.decode;
        g.beginPath();
        g.arc(d.x, d.y, d.bad ? 4 : 2.6, 0, 7);
        g.fill();
      }
      g.globalAlpha = 1;
    };
    measure();
    frame = requestAnimationFrame(draw);
    return () => cancelAnimationFrame(frame);
  }, []);
  return html`<canvas ref=${canvas} aria-hidden="true"></canvas>`;
}

export function Flow() {
  const s = S.store, t = S.usePlayhead();
  const [chosen, choose] = useState("");
  const box = useRef(null);
  const c = census(t), all = pods(t), small = all.length > 24, found = S.hits(t);
  const at = (id) => (c.at.get(id) || { all: 0 }).all;
  const sides = hasSidecar(), prefill = all.filter((p) => p.prefill), decode = all.filter((p) => !p.prefill);
  const group = (title, list) => list.length > 0 && html`<section class=${"pods" + (small ? " many" : "")} aria-label=${title}><h2>${title} <small>${list.length}</small></h2><div style=${{ "--across": list.length > 6 ? (list.length > 14 ? 3 : 2) : 1 }}>${list.map((p) => html`<${Pod} key=${p.id} pod=${p} small=${small} c=${c} t=${t} hit=${found.get(s.names.indexOf(p.id))} choose=${choose} chosen=${chosen === "pod " + p.id}/>`)}</div></section>`;
  const place = (id, title, text) => html`<${Part} id=${id} title=${title} text=${text} choose=${choose} chosen=${chosen === id}/>`;
  const recent = s.notices.filter((x) => x.at <= t).slice(-3).reverse();
  return html`<section class="flow" aria-label="Topology"><div class="whole">
    <div class="stage" ref=${box}>
      <div class="column">${place("client", "Client", plural(c.list.length, "request") + " in flight")}</div>
      <div class="column">${place("envoy", "Envoy", at("envoy") ? at("envoy") + " here" : c.by.held ? plural(c.by.held, "request") + " held open" : "forwards requests")}</div>
      <div class="column pickers">${s.meta.bbr && place("bbr", "Body-based router", "reads the model")}${place("epp", "Endpoint picker", at("epp") ? at("epp") + " deciding" : "ext_proc")}${s.meta.kvManager && place("kv", "KV-Cache Manager", "indexes the pods' blocks")}</div>
      ${sides && html`<div class="column">${place("sidecar", "Routing sidecar", at("sidecar") ? at("sidecar") + " here" : "prefill leg, then decode")}</div>`}
      <div class="column servers">${group(decode.length && prefill.length ? "Decode" : "Model servers", decode)}${group("Prefill", prefill)}</div>
      <${Dots} box=${box}/>
    </div>
    <div class="legend"><span class="k way">on its way</span><span class="k queue">waiting</span><span class="k prefill">prefill</span><span class="k decode">decode</span><span class="k hold">held open: unfinished until part 2</span>
      <p role="status" aria-live="off">${c.by.queue} waiting, ${c.by.prefill} in prefill, ${c.by.decode} in decode${s.sampled > 1 ? "; one dot in " + s.sampled + " is drawn" : ""}</p></div>
    ${recent.length > 0 && html`<ul class=${"notices" + (recent.some(S.trouble) ? " bad" : "")} aria-label="Events">${recent.map((x) => html`<li><b>${x.step.replaceAll("_", " ")}</b> at ${clock(x.at)} ${x.endpoint || x.hop} ${(x.details && (x.details.what || x.details.reason)) || ""}</li>`)}</ul>`}
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
  const set = (x) => { Object.assign(s.play, x, { moved: true }); S.changed(); tick((n) => n + 1); };
  const t = S.playhead();
  const play = () => (p.playing && !p.follow ? set({ playing: false }) : set({ follow: false, playing: true, at: t >= s.now - 1 && !live ? 0 : t }));
  const step = (e) => { // the slider's own step is one microsecond, which is too small for keys
    const by = { ArrowLeft: -0.005, ArrowDown: -0.005, ArrowRight: 0.005, ArrowUp: 0.005, PageDown: -0.1, PageUp: 0.1, Home: -1, End: 1 }[e.key];
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
