// What the page knows of the run: rows of requests, what pods say, what the report measured. It comes in frames, over
// server-sent events or, in a shared file, all at once.
import { useEffect, useState } from "preact/hooks";

// Columns of a row. Moments are microseconds, the first since the run began, all others since that; -1 has not come.
export const N = 0, ID = 1, SENT = 2, AT_PICKER = 3, PICKED = 4, PASSED = 5, AT_SIDECAR = 6, LEG_SENT = 7, LEG_ENDED = 8, AT_SERVER = 9, STARTED = 10,
  FIRST_SENT = 11, PART2 = 12, FIRST_GOT = 13, LAST_SENT = 14, OVER = 15, TTFT = 16, TOTAL = 17, ENDPOINT = 18, PREFILLER = 19, MODEL = 20, CLASS = 21,
  OUTCOME = 22, PROMPT = 23, CACHED = 24, TOKENS = 25, STATUS = 26, ATTEMPTS = 27, FLAGS = 28;
export const HELD = 1, BY_HAND = 2;

export const store = {
  meta: { mode: "live", pools: [] },
  rows: [], first: 0, names: [""], open: new Set(), gauges: new Map(), notices: [], gaps: [],
  figures: null, now: 0, ended: false, connected: false, loaded: false, version: 0, byId: new Map(),
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
  const [, set] = useState(0);
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
    return () => { listeners.delete(f); clearTimeout(timer); };
  }, [every]);
  return store;
}

export const row = (n) => store.rows[n - store.first];
export const name = (i) => store.names[i] || "";
export const find = (id) => { const n = store.byId.get(id); return n === undefined ? undefined : row(n); };
export const outcome = (r) => (r[OUTCOME] ? name(r[OUTCOME]) : "in flight");
export const bad = (r) => r[OUTCOME] !== 0 && !["completed", "ended"].includes(name(r[OUTCOME]));

// apply takes a frame.
export function apply(f) {
  const s = store;
  if (f.gap) {
    s.gaps.push({ at: s.now, to: f.now, lost: f.gap });
    s.rows = []; s.open.clear(); s.byId.clear();
  }
  if (f.snapshot !== undefined && s.rows.length) { s.rows = []; s.open.clear(); s.byId.clear(); }
  s.now = Math.max(s.now, f.now || 0);
  s.heard = performance.now();
  if (f.names) {
    s.names.length = f.namesFrom;
    s.names.push(...f.names);
  }
  if (f.first !== undefined && f.first > s.first) {
    for (const r of s.rows.splice(0, f.first - s.first)) if (r) { s.byId.delete(r[ID]); s.open.delete(r[N]); }
    s.first = f.first;
  }
  for (const r of f.rows || []) {
    const i = r[N] - s.first;
    if (i < 0) continue;
    s.rows[i] = r;
    s.byId.set(r[ID], r[N]);
    if (r[OVER] < 0) s.open.add(r[N]);
    else s.open.delete(r[N]);
  }
  for (const [at, pod, waiting, running, ready, kv, ...adapters] of f.gauges || []) {
    let list = s.gauges.get(pod);
    if (!list) s.gauges.set(pod, (list = []));
    list.push({ at, waiting, running, ready: !!ready, kv, adapters });
    if (list.length > 20000) list.splice(0, 5000);
  }
  for (const x of f.notices || []) s.notices.push(x);
  if (s.notices.length > 4096) s.notices.splice(0, 1024);
  if (f.figures) s.figures = f.figures;
  if (f.ended) s.ended = true;
  s.loaded = true;
  changed();
}

// listen follows a live page's run.
export async function listen() {
  const answer = await fetch("/data/meta");
  if (!answer.ok) throw new Error("the run does not answer: " + answer.status);
  store.meta = await answer.json();
  let tries = 0;
  const go = () => {
    const source = new EventSource("/data/stream");
    source.onopen = () => {
      // A stream begins with everything.
      Object.assign(store, { rows: [], first: 0, names: [""], gauges: new Map(), notices: [], connected: true });
      store.open.clear(); store.byId.clear();
      tries = 0;
      changed();
      fetch("/data/meta").then((a) => a.ok && a.json()).then((m) => { if (m) { store.meta = m; changed(); } }).catch(() => {});
    };
    source.onmessage = (e) => apply(JSON.parse(e.data));
    source.onerror = () => {
      store.connected = false;
      changed();
      source.close();
      if (!store.ended || tries < 3) setTimeout(go, Math.min(10000, 500 * 2 ** tries++));
    };
  };
  go();
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
  // Rows come in the order in which they were sent, or nearly so.
  let low = 0, high = store.rows.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (store.rows[middle] && store.rows[middle][SENT] <= at) low = middle + 1;
    else high = middle;
  }
  for (let i = Math.min(store.rows.length, low + 64) - 1; i >= 0; i--) look(store.rows[i]);
  return out;
}
