// @ts-check
// What the page knows about the run: rows of requests, pods' metrics, the report's measurements. The data arrives in
// frames, as server-sent events or, in a shared file, all at once.
import { useEffect, useState } from "preact/hooks";
import { N, ID, SENT, LEG_ENDED, OVER, TTFT, ENDPOINT, PREFILLER, CLASS, OUTCOME, PROMPT, CACHED, FETCHED } from "./columns.js";

export * from "./columns.js";

/** @typedef {{at: number, waiting: number, running: number, ready: boolean, kv: number, adapters: string[]}} Gauge */

export const store = {
  /** @type {Run.Meta} */
  meta: { mode: "live", pools: [], seed: 0, version: "", envoy: false },
  /** @type {Run.Row[]} */
  rows: [],
  first: 0, names: [""],
  /** @type {Set<number>} */
  open: new Set(),
  /** @type {Map<number, Gauge[]>} */
  gauges: new Map(),
  /** @type {Run.Event[]} */
  notices: [],
  /** @type {{at: number, to: number, lost: number}[]} */
  gaps: [],
  /** @type {Run.Measurements | null} */
  metrics: null,
  now: 0, ended: false, connected: false, version: 0,
  /** @type {Map<string, number>} */
  byId: new Map(),
  // Values that are updated with each row, because there may be very many rows: the servers that got requests (true:
  // prefill), requests that did not complete, columns that have values, and rows that changed since the list was
  // sorted (null means all).
  /** @type {Map<number, boolean>} */
  servers: new Map(),
  /** @type {number[]} */
  failed: [],
  /** @type {Set<string>} */
  filled: new Set(),
  /** @type {Set<number> | null} */
  touched: null,
  era: 0, sampled: 1,
  /** @type {Map<string, {at: number, state: string}[]>} by address, of servers that come and go */
  lives: new Map(),
  /** @type {Run.File | null} */
  shared: null,
  // The playhead: the moment that the page shows. It follows a live run or moves by itself. A playhead that catches up
  // follows the run once it has played everything that the page missed.
  play: { follow: true, at: 0, rate: 1, playing: false, moved: false, catchUp: false },
  heard: 0, whole: -1, // the number of requests in the snapshot that a stream begins with
  /** @type {Map<string, string>} */
  addresses: new Map(), // of pods, by name, with and without a namespace
};

/** @type {Set<() => void>} */
const listeners = new Set();
let due = false;

// changed redraws everything that uses the store, once per frame.
export function changed() {
  store.version++;
  if (due) return;
  due = true;
  const go = () => {
    due = false;
    for (const f of [...listeners]) f();
  };
  if (document.hidden) setTimeout(go, 500);
  else requestAnimationFrame(go);
}

// useStore redraws a component after changes of the store, at most once in so many milliseconds.
export function useStore(every = 0) {
  const [, set] = useState(0), drawn = store.version;
  useEffect(() => {
    let last = 0, timer = 0;
    const f = () => {
      const wait = last + every - performance.now();
      if (wait <= 0) {
        last = performance.now();
        set((n) => n + 1);
      } else if (!timer) {
        timer = setTimeout(() => { timer = 0; last = performance.now(); set((n) => n + 1); }, wait);
      }
    };
    listeners.add(f);
    if (store.version !== drawn) f(); // changed meanwhile
    return () => { listeners.delete(f); clearTimeout(timer); };
  }, [every]);
  return store;
}

/** @type {(n: number) => Run.Row} */
export const row = (n) => store.rows[n - store.first];
/** @type {(i: number) => string} */
export const name = (i) => store.names[i] || "";
/** @type {(id: string) => Run.Row | undefined} */
export const find = (id) => { const n = store.byId.get(id); return n === undefined ? undefined : row(n); };
/** @type {(r: Run.Row) => string} */
export const outcome = (r) => (r[OUTCOME] ? name(r[OUTCOME]) : "in flight");
// addressed replaces the names of pods in a text by their addresses: the page names a pod as the record and the terminal
// do.
/** @type {(text: any) => string} */
export const addressed = (text) => String(text).replace(/[\w./-]*[\w]/g, (x) => store.addresses.get(x) ?? x);
// trouble reports whether an event that belongs to no request is a fault.
/** @type {(x: Run.Event) => boolean} */
export const trouble = (x) => /^(incident_began|config_refused|call_failed|scrape_failed)$/.test(x.step);
/** @type {(r: Run.Row) => boolean} */
export const bad = (r) => r[OUTCOME] !== 0 && !["completed", "ended"].includes(name(r[OUTCOME]));

// forget drops all rows, because a new stream sends them again.
function forget() {
  Object.assign(store, { rows: [], first: 0, servers: new Map(), failed: [], filled: new Set(), touched: null, era: store.era + 1 });
  Object.assign(tally, { to: 0, of: new Map() });
  store.open.clear(); store.byId.clear();
}

// put adds a row or replaces the request's previous one.
/** @param {Run.Row} r */
function put(r) {
  const s = store, i = r[N] - s.first;
  if (i < 0) return;
  const was = s.rows[i];
  s.rows[i] = r;
  if (!was) s.byId.set(r[ID], r[N]);
  if (r[OVER] < 0) s.open.add(r[N]);
  else { s.open.delete(r[N]); longest = Math.max(longest, r[OVER]); }
  if (r[N] < tally.to) { count(was, -1); count(r, 1); }
  if (bad(r) && !(was && bad(was)) && s.failed.push(r[N]) > 4096) s.failed.splice(0, 1024);
  if (r[ENDPOINT]) s.servers.set(r[ENDPOINT], false);
  if (r[PREFILLER]) { s.servers.set(r[PREFILLER], true); s.filled.add("prefill"); }
  if (r[FETCHED]) s.filled.add("transferred");
  if (r[CLASS]) s.filled.add("class");
  if (s.touched && s.touched.add(r[N]).size > 50000) s.touched = null;
}

// taken returns the numbers of rows that changed since its last call; null means all.
export function taken() {
  const t = store.touched;
  store.touched = new Set();
  return t;
}

// tally sums up prompt tokens, and the cached ones among them, by server, over the rows before the row "to".
const tally = { to: 0, of: /** @type {Map<number, {prompt: number, cached: number}>} */ (new Map()) };

/** @param {Run.Row | undefined} r @param {number} by */
function count(r, by) {
  if (!r || !r[PROMPT]) return;
  const key = r[PREFILLER] && r[LEG_ENDED] >= 0 ? r[PREFILLER] : r[ENDPOINT];
  let x = tally.of.get(key);
  if (!x) tally.of.set(key, (x = { prompt: 0, cached: 0 }));
  x.prompt += by * r[PROMPT];
  x.cached += by * Math.min(r[CACHED], r[PROMPT]);
}

// hits returns, by server, the prompt tokens of requests sent until a time, and how many of them were cached.
/** @param {number} at */
export function hits(at) {
  const to = store.first + (at >= store.now ? store.rows.length : sentBy(at));
  for (; tally.to < to; tally.to++) count(row(tally.to), 1);
  while (tally.to > to) count(row(--tally.to), -1);
  return tally.of;
}

// mostGauges bounds the metrics kept, over all pods.
const mostGauges = 1 << 17;
/** @type {string[]} */
const none = [];

// apply applies a frame.
/** @param {Run.Frame} f */
export function apply(f) {
  const s = store;
  if (f.meta) s.meta = f.meta;
  if (f.gap) s.gaps.push({ at: s.now, to: f.now, lost: f.gap });
  if (f.snapshot !== undefined) s.whole = (f.first || s.first) + f.snapshot;
  if (f.gap || (f.snapshot !== undefined && s.rows.length)) forget();
  s.now = Math.max(s.now, f.now || 0);
  s.heard = performance.now();
  if (f.names) {
    s.names.length = f.namesFrom || 0;
    s.names.push(...f.names);
  }
  if (f.first !== undefined && f.first > s.first) {
    const gone = s.rows.splice(0, f.first - s.first);
    gone.forEach((r, i) => {
      if (s.first + i < tally.to) count(r, -1);
      if (r) { s.byId.delete(r[ID]); s.open.delete(r[N]); }
    });
    s.first = f.first;
    tally.to = Math.max(tally.to, s.first);
    s.touched = null;
  }
  for (const r of f.rows || []) put(r);
  for (const [pod, address] of f.pods || []) s.addresses.set(pod, address).set(pod.slice(pod.indexOf("/") + 1), address);
  for (const [at, pod, waiting, running, ready, kv, ...adapters] of f.gauges || []) {
    let list = s.gauges.get(pod);
    if (!list) s.gauges.set(pod, (list = []));
    list.push({ at, waiting, running, ready: !!ready, kv, adapters: adapters.length ? adapters : none });
    const most = Math.max(64, Math.min(2000, mostGauges / s.gauges.size));
    if (list.length > most) s.gauges.set(pod, list.filter((_, i) => i > most / 2 || i % 2)); // keep fewer of the old ones
  }
  for (const x of f.notices || []) {
    x.at = Math.floor(x.time * 1e6);
    s.notices.push(x);
    const at = x.endpoint || "", list = s.lives.get(at) || [], state = { server_started: "starting", server_ready: "", server_leaving: "leaving", server_gone: "gone" }[x.step];
    if (state !== undefined && at && list.push({ at: x.at, state }) > 0) s.lives.set(at, list.slice(-1000));
  }
  if (s.notices.length > 4096) s.notices.splice(0, 1024);
  if (f.metrics) s.metrics = f.metrics;
  if (f.ended) s.ended = true;
  changed();
}

// listen follows a live run. It resolves once the run's description has arrived.
export function listen() {
  let tries = 0;
  return /** @type {Promise<void>} */ (new Promise((known, refused) => {
    const go = () => {
      const source = new EventSource("/data/stream");
      source.onopen = () => { // a stream starts with all data
        forget();
        Object.assign(store, { names: [""], gauges: new Map(), notices: [], lives: new Map(), addresses: new Map(), connected: true });
        tries = 0;
        changed();
      };
      source.onmessage = (e) => { apply(JSON.parse(e.data)); known(); };
      source.onerror = () => {
        store.connected = false;
        changed();
        source.close();
        refused(new Error("it does not answer"));
        if (!store.ended || tries < 3) setTimeout(go, Math.min(10000, 500 * 2 ** tries++));
      };
    };
    go();
  }));
}

// unpack reads the run of a shared file: JSON, compressed, in base64.
/** @param {string} text @returns {Promise<Run.File>} */
export async function unpack(text) {
  const packed = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  return new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"))).json();
}

// open shows a shared file's run.
/** @param {Run.File} data */
export function open(data) {
  store.shared = data;
  store.meta = data.meta;
  store.connected = true;
  for (const f of data.frames || []) apply(f);
  store.ended = true;
}

// steps returns the record's lines of one request.
/** @param {string} id @returns {Promise<{events: Run.Event[], missing: boolean}>} */
export async function steps(id) {
  if (store.shared) {
    const events = store.shared.steps?.[id];
    return events ? { events, missing: false } : { events: [], missing: true };
  }
  const answer = await fetch("/data/request?id=" + encodeURIComponent(id));
  if (!answer.ok) throw new Error((await answer.json()).error);
  return answer.json();
}

// part returns the state that a part of the run reports.
/** @param {string} id @returns {Promise<Run.Part>} */
export async function part(id) {
  const answer = await fetch("/data/part?id=" + encodeURIComponent(id)), result = await answer.json();
  if (!answer.ok) throw new Error(result.error);
  return result;
}

// post sends an action or a question to the run. The signal ends the wait for the answer.
/** @param {string} path @param {Partial<Run.Act> | Partial<Run.Question>} body @param {AbortSignal} [signal] */
export async function post(path, body, signal) {
  const answer = await fetch(path, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body), signal });
  const result = await answer.json().catch(() => ({ error: "no answer: " + answer.status }));
  if (!answer.ok) throw new Error(result.error || String(answer.status));
  return result;
}

// playhead returns the moment that the page shows. In a live run it is slightly behind, so that the data of the
// moment is complete.
const behind = 200e3;
export function playhead() {
  const p = store.play;
  if (!p.follow) return Math.min(p.at, store.now);
  if (store.ended) return store.now;
  return Math.max(0, Math.min(store.now, store.now - behind + (performance.now() - store.heard) * 1e3));
}

// still reports whether the user prefers a page without motion.
const still = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

// usePlayhead redraws a component as the playhead moves, also without new data, and returns its time.
export function usePlayhead() {
  const [, tick] = useState(0);
  useStore(250);
  useEffect(() => {
    const i = setInterval(() => tick((n) => n + 1), still() ? 1000 : 250);
    return () => clearInterval(i);
  }, []);
  return playhead();
}

// advance moves the playhead by so many milliseconds.
/** @param {number} ms */
export function advance(ms) {
  const p = store.play;
  if (p.follow || !p.playing) return;
  p.at = Math.min(store.now, p.at + ms * 1e3 * p.rate);
  if (p.at < store.now) return;
  if (p.catchUp && !p.moved) Object.assign(p, { follow: true, playing: false, rate: 1 });
  else if (store.ended) p.playing = false;
  else return;
  changed();
}

// complete reports whether the whole snapshot that a stream begins with has arrived.
const complete = () => store.ended || (store.whole >= 0 && store.first + store.rows.length >= store.whole);

// replay plays a run from its first request: a finished run, or what happened in a live run before the page was open.
// It does nothing once the user has moved the slider.
export function replay() {
  const s = store, p = s.play, live = s.meta.mode === "live" && !s.shared;
  if (p.moved) return;
  if (!complete() || (!live && !s.ended)) return void setTimeout(replay, 50);
  const at = s.rows[0] ? Math.max(0, s.rows[0][SENT]) : 0, missed = (s.now - at) / 1e6;
  if (still() || missed < 0.5) return;
  /** @type {(list: number[], most: number) => number} */
  const fit = (list, most) => list.find((x) => missed / x < most) || 1000;
  const rate = live && s.open.size ? 1 + fit([1, 9, 99], 15) // it catches up with a run that continues
    : s.meta.mode === "sim" ? fit([0.01, 0.1, 1, 10, 100], 45) : s.meta.mode === "replay" ? 1 : fit([1, 10, 100], 45);
  Object.assign(p, { follow: false, at, rate, playing: true, catchUp: live });
  changed();
}

// gauge returns the latest metrics of a pod at a time.
/** @param {string} pod @param {number} at @returns {Gauge | null} */
export function gauge(pod, at) {
  const list = store.gauges.get(store.names.indexOf(pod));
  if (!list) return null;
  let low = 0, high = list.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (list[middle].at <= at) low = middle + 1;
    else high = middle;
  }
  return low ? list[low - 1] : null;
}

let longest = 0; // longest duration of a request

// life returns the state of a server that comes and goes at a time: "" (ready), "starting", "leaving" or "gone";
// undefined if the run has not reported any.
/** @param {string} server @param {number} at */
export function life(server, at) {
  const list = store.lives.get(server) || [];
  for (let i = list.length - 1; i >= 0; i--) if (list[i].at <= at) return list[i].state;
  const first = list.length > 1 && list[1].at - list[0].at < 1000; // it was ready at the start of the run
  return list.length ? (first ? list[1].state : "gone") : undefined;
}

// there reports whether a server exists at a time.
/** @type {(server: string, at: number, lives?: boolean) => boolean} */
export const there = (server, at, lives) => { const x = life(server, at); return x === undefined ? !lives : x !== "gone"; };

// under returns the requests in flight at a time.
/** @param {number} at */
export function under(at) {
  /** @type {Run.Row[]} */
  const out = [];
  const live = store.play.follow && !store.ended;
  /** @param {Run.Row} r */
  const look = (r) => { if (r && r[SENT] <= at && (r[OVER] < 0 ? !store.ended : r[SENT] + r[OVER] > at)) out.push(r); };
  if (live) {
    for (const n of store.open) look(row(n));
    for (let i = store.rows.length - 1, k = 0; i >= 0 && k < 2000; i--, k++) if (store.rows[i] && store.rows[i][OVER] >= 0) look(store.rows[i]);
    return out;
  }
  if (!store.ended) for (const n of store.open) look(row(n));
  for (let i = Math.min(store.rows.length, sentBy(at) + 64) - 1, old = 0; i >= 0 && old < 64; i--) {
    const r = store.rows[i];
    if (r && r[OVER] >= 0) look(r);
    if (r && r[SENT] < at - longest) old++; // and so were those before it
  }
  return out;
}

// figures returns the header's figures at a moment: requests sent, requests failed, and TTFT of the requests whose
// first token had arrived. It returns null at the end of a run and while following a live run: then the report's own
// figures are shown.
/** @type {{at: number, version: number, requests: number, failed: number, inFlight: number, rate: number, p50?: number, p90?: number, p99?: number} | null} */
let shown = null;
/** @param {number} at */
export function figures(at) {
  const s = store;
  if (s.play.follow || at >= s.now) return null;
  if (shown && shown.at === at && shown.version === s.version) return shown;
  const to = sentBy(at), ttft = [];
  let failed = 0, recent = 0;
  for (let i = 0; i < to; i++) {
    const r = s.rows[i];
    if (!r) continue;
    if (r[TTFT] >= 0 && r[SENT] + r[TTFT] <= at) ttft.push(r[TTFT]);
    if (bad(r) && r[SENT] + r[OVER] <= at) failed++;
    if (r[SENT] > at - 2e6) recent++;
  }
  const sorted = Float64Array.from(ttft).sort(), rank = (/** @type {number} */ q) => (sorted.length ? sorted[Math.ceil(q * sorted.length) - 1] / 1e6 : undefined);
  return (shown = { at, version: s.version, requests: s.first + to, failed, inFlight: under(at).length, rate: (recent * 1e6) / Math.max(1, Math.min(2e6, at)), p50: rank(0.5), p90: rank(0.9), p99: rank(0.99) });
}

// sentBy returns how many rows were sent until a time. Rows arrive approximately in the order of sending.
/** @param {number} at */
export function sentBy(at) {
  let low = 0, high = store.rows.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (store.rows[middle] && store.rows[middle][SENT] <= at) low = middle + 1;
    else high = middle;
  }
  return low;
}
