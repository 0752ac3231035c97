// What the page knows of the run: rows of requests, what pods say, what the report measured. It comes in frames, over
// server-sent events or, in a shared file, all at once.
import { useEffect, useState } from "preact/hooks";

// Columns of a row. Moments are microseconds, the first since the run began, all others since that; -1 has not come.
export const N = 0, ID = 1, SENT = 2, AT_PICKER = 3, PICKED = 4, PASSED = 5, AT_SIDECAR = 6, LEG_SENT = 7, LEG_ENDED = 8, AT_SERVER = 9, STARTED = 10,
  FIRST_SENT = 11, PART2 = 12, FIRST_GOT = 13, LAST_SENT = 14, OVER = 15, TTFT = 16, TOTAL = 17, ENDPOINT = 18, PREFILLER = 19, MODEL = 20, CLASS = 21,
  OUTCOME = 22, PROMPT = 23, CACHED = 24, TOKENS = 25, STATUS = 26, ATTEMPTS = 27, FLAGS = 28, FETCHED = 29;
export const HELD = 1, BY_HAND = 2;

export const store = {
  meta: { mode: "live", pools: [] },
  rows: [], first: 0, names: [""], open: new Set(), gauges: new Map(), notices: [], gaps: [],
  metrics: null, now: 0, ended: false, connected: false, version: 0, byId: new Map(),
  // What is worked out as rows come, since there may be very many: names of servers that requests were sent to (true: that prefill),
  // requests that did not complete, columns that have something, and rows that are new since a list was made; null is all.
  servers: new Map(), failed: [], filled: new Set(), touched: null, era: 0,
  lives: new Map(), // of servers that come and go, by their addresses
  shared: null,
  // The playhead: the moment that is shown. It follows a live run, or goes its own way.
  play: { follow: true, at: 0, rate: 1, playing: false },
  heard: 0,
};

const listeners = new Set();
let due = false;

// changed has everything that uses the store drawn again, once a frame.
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

// useStore draws a component again when the store has changed, at most every so many milliseconds.
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
    if (store.version !== drawn) f(); // meanwhile
    return () => { listeners.delete(f); clearTimeout(timer); };
  }, [every]);
  return store;
}

export const row = (n) => store.rows[n - store.first];
export const name = (i) => store.names[i] || "";
export const find = (id) => { const n = store.byId.get(id); return n === undefined ? undefined : row(n); };
export const outcome = (r) => (r[OUTCOME] ? name(r[OUTCOME]) : "in flight");
export const bad = (r) => r[OUTCOME] !== 0 && !["completed", "ended"].includes(name(r[OUTCOME]));

// forget has all rows be unknown, since a stream begins anew.
function forget() {
  Object.assign(store, { rows: [], first: 0, servers: new Map(), failed: [], filled: new Set(), touched: null, era: store.era + 1 });
  Object.assign(tally, { to: 0, of: new Map() });
  store.open.clear(); store.byId.clear();
}

// put takes a row, in place of what was known of its request.
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

// taken are the numbers of rows that are new since the last call; null is all.
export function taken() {
  const t = store.touched;
  store.touched = new Set();
  return t;
}

// tally counts prompt tokens, and those of them that were cached, by server, over the rows before one.
const tally = { to: 0, of: new Map() };

function count(r, by) {
  if (!r || !r[PROMPT]) return;
  const key = r[PREFILLER] && r[LEG_ENDED] >= 0 ? r[PREFILLER] : r[ENDPOINT];
  let x = tally.of.get(key);
  if (!x) tally.of.set(key, (x = { prompt: 0, cached: 0 }));
  x.prompt += by * r[PROMPT];
  x.cached += by * Math.min(r[CACHED], r[PROMPT]);
}

// hits are the prompt tokens of requests that were sent until a time, and those of them that their servers had cached.
export function hits(at) {
  const to = store.first + (at >= store.now ? store.rows.length : sentBy(at));
  for (; tally.to < to; tally.to++) count(row(tally.to), 1);
  while (tally.to > to) count(row(--tally.to), -1);
  return tally.of;
}

// mostGauges is how much of what pods said is kept, of all of them.
const mostGauges = 1 << 17, none = [];

// apply takes a frame.
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
    if (list.length > most) s.gauges.set(pod, list.filter((_, i) => i > most / 2 || i % 2)); // what is long ago is known less finely
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

// listen follows a live page's run. It returns when the run has said what it is.
export function listen() {
  let tries = 0;
  return new Promise((known, refused) => {
    const go = () => {
      const source = new EventSource("/data/stream");
      source.onopen = () => { // a stream begins with everything
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

// open takes a shared file's run.
export function open(data) {
  store.shared = data;
  store.meta = data.meta;
  store.connected = true;
  for (const f of data.frames) apply(f);
  store.ended = true;
}

// steps are the record's lines of one request.
export async function steps(id) {
  if (store.shared) {
    const events = store.shared.steps[id];
    return events ? { events, missing: false } : { events: [], missing: true };
  }
  const answer = await fetch("/data/request?id=" + encodeURIComponent(id));
  if (!answer.ok) throw new Error((await answer.json()).error);
  return answer.json();
}

// room is what a part of the run says of itself.
export async function room(id) {
  const answer = await fetch("/data/room?id=" + encodeURIComponent(id)), told = await answer.json();
  if (!answer.ok) throw new Error(told.error);
  return told;
}

// post asks the run to do something.
export async function post(path, body) {
  const answer = await fetch(path, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });
  const told = await answer.json().catch(() => ({ error: "no answer: " + answer.status }));
  if (!answer.ok) throw new Error(told.error || String(answer.status));
  return told;
}

// Where the playhead is. A live run is followed a moment behind, so that all of a moment is known.
const behind = 200e3;
export function playhead() {
  const p = store.play;
  if (!p.follow) return Math.min(p.at, store.now);
  if (store.ended) return store.now;
  return Math.max(0, Math.min(store.now, store.now - behind + (performance.now() - store.heard) * 1e3));
}

// usePlayhead draws a component again as time passes at the playhead, though nothing is new, and returns where that is.
export function usePlayhead() {
  const [, tick] = useState(0);
  useStore(250);
  useEffect(() => {
    const i = setInterval(() => tick((n) => n + 1), matchMedia("(prefers-reduced-motion: reduce)").matches ? 1000 : 250);
    return () => clearInterval(i);
  }, []);
  return playhead();
}

// advance lets so many milliseconds pass at the playhead.
export function advance(ms) {
  const p = store.play;
  if (p.follow || !p.playing) return;
  p.at = Math.min(store.now, p.at + ms * 1e3 * p.rate);
  if (p.at >= store.now && store.ended) { p.playing = false; changed(); }
}

// gauge is what a pod said last at a time.
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

let longest = 0; // that a request took

// life is what a server that comes and goes is at a time: "" ready, starting, leaving, gone; undefined where nobody said anything.
export function life(server, at) {
  const list = store.lives.get(server) || [];
  for (let i = list.length - 1; i >= 0; i--) if (list[i].at <= at) return list[i].state;
  const first = list.length > 1 && list[1].at - list[0].at < 1000; // it was there and ready from the beginning
  return list.length ? (first ? list[1].state : "gone") : undefined;
}

// there says whether a server is there at a time; of those that come and go it is told.
export const there = (server, at, lives) => { const x = life(server, at); return x === undefined ? !lives : x !== "gone"; };

// under are the requests that are under way at a time.
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
    if (r && r[SENT] < at - longest) old++; // and so are those before it
  }
  return out;
}

// figures are those of the run at a moment: of the requests that were sent until then, how many failed by then, and what TTFT those
// had whose first token had come. At the end, or where a live run is followed, they are the report's own (null).
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

// sentBy is how many rows were sent until a time. They come in the order in which they were sent, or nearly so.
function sentBy(at) {
  let low = 0, high = store.rows.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (store.rows[middle] && store.rows[middle][SENT] <= at) low = middle + 1;
    else high = middle;
  }
  return low;
}
