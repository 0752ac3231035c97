// @ts-check
// Where the requests and the servers are at a moment: the data behind the topology.
import * as S from "./store.js";

/** @typedef {{id: string, prefill: boolean, pool?: string, group?: string, settings?: string}} Pod */
/** @typedef {{name: string, prefill: boolean, pods: Pod[], title?: string}} Group */
/** @typedef {{name: string, key: string, picker: boolean, held?: boolean, sidecar?: boolean, groups: Group[]}} Pool */

// pods returns the model servers, including those that only a recording's requests name.
/** @param {number} t */
export function pods(t) {
  /** @type {Pod[]} */
  const out = [];
  const known = new Set();
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
  const result = [...S.store.lives.keys()].map((id) => [id, false]), used = [...S.store.servers].map(([n, prefill]) => [S.name(n), prefill]);
  const more = [...new Map(/** @type {[string, boolean][]} */ ([...result, ...used]))].map(([id, prefill]) => ({ id, prefill })).filter((p) => !known.has(p.id) && S.there(p.id, t, false));
  out.push(...more.sort((a, b) => a.id.localeCompare(b.id, "en", { numeric: true })));
  return out;
}

// poolKey returns the end of the ids of a pool's parts: nothing in a run of one pool.
/** @type {(name: string | undefined) => string} */
const poolKey = (name) => ((S.store.meta.pools || []).length > 1 && name ? " " + name : "");

// pools returns the pools with their parts: for each the sidecar, and the servers by group and role. Servers whose pool
// is unknown belong to the only pool, or else to one without a picker.
/** @param {number} t */
export function pools(t) {
  const all = pods(t), metas = S.store.meta.pools || [], hops = S.store.metrics && S.store.metrics.summary.hops;
  /** @type {Pool[]} */
  const list = metas.map((p) => ({ name: p.name || "", key: poolKey(p.name), picker: true, held: !!p.held, sidecar: !!p.sidecar || (p.groups || []).some((g) => g.prefill), groups: [] }));
  if (!list.length) list.push({ name: "", key: "", picker: true, groups: [] });
  if (list.length === 1 && hops && hops.sidecar) list[0].sidecar = true;
  for (const pod of all) {
    let p = list.length === 1 ? list[0] : list.find((x) => x.name === pod.pool);
    if (!p) list.push((p = { name: "", key: " ", picker: false, groups: [] }));
    let g = p.groups.find((x) => x.name === (pod.group || "") && x.prefill === pod.prefill);
    if (!g) p.groups.push((g = { name: pod.group || "", prefill: pod.prefill, pods: [] }));
    g.pods.push(pod);
  }
  for (const p of list) {
    const apart = p.groups.some((g) => g.prefill);
    for (const g of p.groups) g.title = [g.name, g.prefill ? "Prefill" : apart ? "Decode" : g.name ? "" : "Model servers"].filter(Boolean).join(", ");
  }
  return list;
}

// moment returns the last moment that a request has passed at a time.
/** @param {Run.Row} r @param {number} t */
export function moment(r, t) {
  const since = t - r[S.SENT];
  let last = S.SENT;
  for (let m = S.AT_PICKER; m <= S.OVER; m++) if (Number(r[m]) >= 0 && Number(r[m]) <= since && (last === S.SENT || r[m] >= r[last])) last = m;
  return last;
}

/** @typedef {"way" | "queue" | "prefill" | "decode"} Stage */
/** @type {(m: number) => Stage} */
export const stage = (m) => /** @type {Record<number, Stage>} */ ({ [S.AT_SERVER]: "queue", [S.STARTED]: "prefill", [S.LEG_SENT]: "prefill", [S.FIRST_SENT]: "decode", [S.PART2]: "decode", [S.FIRST_GOT]: "decode" })[m] || "way";

// partOf returns the part where a request is after a moment. sidecars has the keys of the pools with sidecars.
/** @param {Run.Row} r @param {number} m @param {Set<string>} sidecars */
export function partOf(r, m, sidecars) {
  const pool = poolKey(S.name(r[S.POOL]));
  switch (m) {
    case S.SENT: return "envoy";
    case S.AT_PICKER: case S.PICKED: return "epp" + pool;
    case S.PASSED: return r[S.FLAGS] & S.HELD ? "pod " + S.name(r[S.ENDPOINT]) : sidecars.has(pool) ? "sidecar" + pool : "envoy";
    case S.AT_SIDECAR: case S.LEG_ENDED: return "sidecar" + pool;
    case S.LEG_SENT: return "pod " + S.name(r[S.PREFILLER]);
    case S.LAST_SENT: return "envoy";
    case S.OVER: return "client";
  }
  return "pod " + S.name(r[S.ENDPOINT]);
}

// census counts the requests at each part at a time, and those that wait at each picker by their priority.
/** @param {number} t @param {Pool[]} list */
export function census(t, list) {
  /** @type {Map<string, Record<Stage | "all", number>>} */
  const at = new Map();
  /** @type {Map<string, Map<number, number>>} */
  const waits = new Map();
  const by = { way: 0, queue: 0, prefill: 0, decode: 0, held: 0 };
  const requests = S.under(t), sidecars = new Set(list.filter((p) => p.sidecar).map((p) => p.key));
  for (const r of requests) {
    const m = moment(r, t), kind = stage(m), key = partOf(r, m, sidecars);
    by[kind]++;
    let x = at.get(key);
    if (!x) at.set(key, (x = { all: 0, queue: 0, prefill: 0, decode: 0, way: 0 }));
    x.all++;
    x[kind]++;
    if (r[S.FLAGS] & S.HELD && m >= S.PASSED && (r[S.PART2] < 0 || r[S.SENT] + r[S.PART2] > t)) by.held++;
    if (m !== S.AT_PICKER) continue;
    const bands = waits.get(key) || new Map();
    waits.set(key, bands);
    bands.set(r[S.PRIORITY], (bands.get(r[S.PRIORITY]) || 0) + 1);
  }
  return { list: requests, at, by, waits };
}

const recently = 2e6; // microseconds

// picks returns, by picker, the decisions per second in the last 2 s before a time, and the servers last picked, the
// latest first. It reads requests that were sent in these seconds or are still in flight.
/** @param {number} t @param {Run.Row[]} flying */
export function picks(t, flying) {
  /** @type {Map<string, {rate: number, last: [number, number][]}>} */
  const made = new Map();
  const from = t - recently, rows = S.store.rows;
  /** @param {Run.Row} r */
  const look = (r) => {
    const at = r[S.SENT] + r[S.PICKED];
    if (r[S.PICKED] < 0 || at <= from || at > t) return;
    const key = "epp" + poolKey(S.name(r[S.POOL]));
    let x = made.get(key);
    if (!x) made.set(key, (x = { rate: 0, last: [] }));
    x.rate += 1e6 / Math.max(1, Math.min(recently, t));
    x.last.push([at, r[S.ENDPOINT]]);
  };
  for (let i = S.sentBy(t) - 1; i >= 0 && rows[i] && rows[i][S.SENT] > from; i--) look(rows[i]);
  for (const r of flying) if (r[S.SENT] <= from) look(r);
  return new Map([...made].map(([key, x]) => [key, { rate: x.rate, last: x.last.sort((a, b) => b[0] - a[0]).slice(0, 3).map(([, n]) => S.name(n)) }]));
}
