// What the page knows about the run: rows of requests, pods' metrics, the report's measurements. The data arrives in
// frames, as server-sent events or, in a shared file, all at once.
import { useEffect, useState } from "preact/hooks";

// Columns of a row. Moments are in microseconds, the first since the start of the run, the others since the first; -1
// means not yet.
export const N = 0, ID = 1, SENT = 2, AT_PICKER = 3, PICKED = 4, PASSED = 5, AT_SIDECAR = 6, LEG_SENT = 7, LEG_ENDED = 8, AT_SERVER = 9, STARTED = 10,
  FIRST_SENT = 11, PART2 = 12, FIRST_GOT = 13, LAST_SENT = 14, OVER = 15, TTFT = 16, TOTAL = 17, ENDPOINT = 18, PREFILLER = 19, MODEL = 20, CLASS = 21,
  OUTCOME = 22, PROMPT = 23, CACHED = 24, TOKENS = 25, STATUS = 26, ATTEMPTS = 27, FLAGS = 28, FETCHED = 29, POOL = 30, PRIORITY = 31;
export const HELD = 1, BY_HAND = 2;

export const store = {
  meta: { mode: "live", pools: [] },
  rows: [], first: 0, names: [""], open: new Set(), gauges: new Map(), notices: [], gaps: [],
  metrics: null, now: 0, ended: false, connected: false, version: 0, byId: new Map(),
  // Values that are updated with each row, because there may be very many rows: the servers that got requests (true:
  // prefill), requests that did not complete, columns that have values, and rows that changed since the list was
  // sorted (null means all).
  servers: new Map(), failed: [], filled: new Set(), touched: null, era: 0,
  lives: new Map(), // by address, of servers that come and go
  shared: null,
  // The playhead: the moment that the page shows. It follows a live run or moves by itself.
  play: { follow: true, at: 0, rate: 1, playing: false },
  heard: 0,
};

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

export const row = (n) => store.rows[n - store.first];
export const name = (i) => store.names[i] || "";
export const find = (id) => { const n = store.byId.get(id); return n === undefined ? undefined : row(n); };
export const outcome = (r) => (r[OUTCOME] ? name(r[OUTCOME]) : "in flight");
export const bad = (r) => r[OUTCOME] !== 0 && !["completed", "ended"].includes(name(r[OUTCOME]));

// forget drops all rows, because a new stream sends them again.
function forget() {
  Object.assign(store, { rows: [], first: 0, servers: new Map(), failed: [], filled: new Set(), touched: null, era: store.era + 1 });
  Object.assign(tally, { to: 0, of: new Map() });
  store.open.clear(); store.byId.clear();
}

// put adds a row or replaces the request's previous one.
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
const tally = { to: 0, of: new Map() };

function count(r, by) {
  if (!r || !r[PROMPT]) return;
  const key = r[PREFILLER] && r[LEG_ENDED] >= 0 ? r[PREFILLER] : r[ENDPOINT];
  let x = tally.of.get(key);
  if (!x) tally.of.set(key, (x = { prompt: 0, cached: 0 }));
  x.prompt += by * r[PROMPT];
  x.cached += by * Math.min(r[CACHED], r[PROMPT]);
}

// hits returns, by server, the prompt tokens of requests sent until a time, and how many of them were cached.
export function hits(at) {
  const to = store.first + (at >= store.now ? store.rows.length : sentBy(at));
  for (; tally.to < to; tally.to++) count(row(tally.to), 1);
  while (tally.to > to) count(row(--tally.to), -1);
  return tally.of;
}

// mostGauges bounds the metrics kept, over all pods.
const mostGauges = 1 << 17, none = [];

// apply applies a frame.
export function apply(f) {
  const s = store;
  if (f.meta) s.meta = f.meta;
  if (f.gap) s.gaps.push({ at: s.now, to: f.now, lost: f.gap });
  if (f.gap || (f.snapshot !== undefined && s.rows.length)) forget();
  s.now = Math.max(s.now, f.now || 0);
  s.heard = performance.now();
  if (f.names) {
    s.names.length = f.namesFrom;
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
    const list = s.lives.get(x.endpoint) || [], state = { server_started: "starting", server_ready: "", server_leaving: "leaving", server_gone: "gone" }[x.step];
    if (state !== undefined && x.endpoint && list.push({ at: x.at, state }) > 0) s.lives.set(x.endpoint, list.slice(-1000));
  }
  if (s.notices.length > 4096) s.notices.splice(0, 1024);
  if (f.metrics) s.metrics = f.metrics;
  if (f.ended) s.ended = true;
  changed();
}

// listen follows a live run. It resolves once the run's description has arrived.
export function listen() {
  let tries = 0;
  return new Promise((known, refused) => {
    const go = () => {
      const source = new EventSource("/data/stream");
      source.onopen = () => { // a stream starts with all data
        forget();
        Object.assign(store, { names: [""], gauges: new Map(), notices: [], lives: new Map(), connected: true });
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
  });
}

// open shows a shared file's run.
export function open(data) {
  store.shared = data;
  store.meta = data.meta;
  store.connected = true;
  for (const f of data.frames) apply(f);
  store.ended = true;
}

// steps returns the record's lines of one request.
export async function steps(id) {
  if (store.shared) {
    const events = store.shared.steps[id];
    return events ? { events, missing: false } : { events: [], missing: true };
  }
  const answer = await fetch("/data/request?id=" + encodeURIComponent(id));
  if (!answer.ok) throw new Error((await answer.json()).error);
  return answer.json();
}

// part returns the state that a part of the run reports.
export async function part(id) {
  const answer = await fetch("/data/part?id=" + encodeURIComponent(id)), told = await answer.json();
  if (!answer.ok) throw new Error(told.error);
  return told;
}

// post sends an action or a question to the run.
export async function post(path, body) {
  const answer = await fetch(path, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });
  const told = await answer.json().catch(() => ({ error: "no answer: " + answer.status }));
  if (!answer.ok) throw new Error(told.error || String(answer.status));
  return told;
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

// usePlayhead redraws a component as the playhead moves, also without new data, and returns its time.
export function usePlayhead() {
  const [, tick] = useState(0);
  useStore(250);
  useEffect(() => {
    const i = setInterval(() => tick((n) => n + 1), matchMedia("(prefers-reduced-motion: reduce)").matches ? 1000 : 250);
    return () => clearInterval(i);
  }, []);
  return playhead();
}

// advance moves the playhead by so many milliseconds.
export function advance(ms) {
  const p = store.play;
  if (p.follow || !p.playing) return;
  p.at = Math.min(store.now, p.at + ms * 1e3 * p.rate);
  if (p.at >= store.now && store.ended) { p.playing = false; changed(); }
}

// gauge returns the latest metrics of a pod at a time.
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
export function life(server, at) {
  const list = store.lives.get(server) || [];
  for (let i = list.length - 1; i >= 0; i--) if (list[i].at <= at) return list[i].state;
  const first = list.length > 1 && list[1].at - list[0].at < 1000; // it was ready at the start of the run
  return list.length ? (first ? list[1].state : "gone") : undefined;
}

// there reports whether a server exists at a time.
export const there = (server, at, lives) => { const x = life(server, at); return x === undefined ? !lives : x !== "gone"; };

// under returns the requests in flight at a time.
export function under(at) {
  const out = [];
  const live = store.play.follow && !store.ended;
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
let shown = { at: -1 };
export function figures(at) {
  const s = store;
  if (s.play.follow || at >= s.now) return null;
  if (shown.at === at && shown.version === s.version) return shown;
  const to = sentBy(at), ttft = [];
  let failed = 0, recent = 0;
  for (let i = 0; i < to; i++) {
    const r = s.rows[i];
    if (!r) continue;
    if (r[TTFT] >= 0 && r[SENT] + r[TTFT] <= at) ttft.push(r[TTFT]);
    if (bad(r) && r[SENT] + r[OVER] <= at) failed++;
    if (r[SENT] > at - 2e6) recent++;
  }
  const sorted = Float64Array.from(ttft).sort(), rank = (q) => (sorted.length ? sorted[Math.ceil(q * sorted.length) - 1] / 1e6 : undefined);
  return (shown = { at, version: s.version, requests: s.first + to, failed, inFlight: under(at).length, rate: (recent * 1e6) / Math.max(1, Math.min(2e6, at)), p50: rank(0.5), p99: rank(0.99) });
}

// sentBy returns how many rows were sent until a time. Rows arrive approximately in the order of sending.
export function sentBy(at) {
  let low = 0, high = store.rows.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (store.rows[middle] && store.rows[middle][SENT] <= at) low = middle + 1;
    else high = middle;
  }
  return low;
}
