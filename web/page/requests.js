// @ts-check
// The list of all requests. Only the visible rows are drawn.
import { Component } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { html } from "./html.js";
import { keyed } from "./focus.js";
import * as S from "./store.js";
import { span, thousands, bytes, label, plural } from "./format.js";

const height = 28;

/**
 * A column of the list: its value for sorting, and its text. name is the row's column of a name.
 * @typedef {{id: string, text: string, of: (r: Run.Row) => number | string, show: (r: Run.Row) => string, name?: number, number?: boolean, us?: boolean, some?: boolean, wide?: boolean}} Column
 */
/** @typedef {(r: Run.Row) => boolean} Test */

/** @type {Column[]} */
const columns = [
  { id: "request", text: "request", of: (r) => r[S.N], show: (r) => label(r[S.ID]) },
  { id: "sent", text: "sent", of: (r) => r[S.SENT], show: (r) => (r[S.SENT] / 1e6).toFixed(3) + " s", number: true },
  { id: "outcome", name: S.OUTCOME, text: "outcome", of: S.outcome, show: S.outcome },
  { id: "model", name: S.MODEL, text: "model", of: (r) => S.name(r[S.MODEL]), show: (r) => S.name(r[S.MODEL]), wide: true },
  { id: "class", name: S.CLASS, text: "class", of: (r) => S.name(r[S.CLASS]), show: (r) => S.name(r[S.CLASS]), some: true, wide: true },
  { id: "endpoint", name: S.ENDPOINT, text: "model server", of: (r) => S.name(r[S.ENDPOINT]), show: (r) => S.name(r[S.ENDPOINT]) },
  { id: "prefill", name: S.PREFILLER, text: "prefill server", of: (r) => S.name(r[S.PREFILLER]), show: (r) => S.name(r[S.PREFILLER]), some: true, wide: true },
  { id: "ttft", text: "TTFT", of: (r) => r[S.TTFT], show: (r) => span(r[S.TTFT]), number: true, us: true },
  { id: "total", text: "total", of: (r) => r[S.TOTAL], show: (r) => span(r[S.TOTAL]), number: true, us: true },
  { id: "prompt", text: "prompt", of: (r) => r[S.PROMPT], show: (r) => thousands(r[S.PROMPT]), number: true, wide: true },
  { id: "cached", text: "cached", of: (r) => r[S.CACHED], show: (r) => thousands(r[S.CACHED]), number: true, wide: true },
  { id: "transferred", text: "transferred", of: (r) => r[S.FETCHED], show: (r) => (r[S.FETCHED] ? bytes(r[S.FETCHED]) : ""), number: true, some: true, wide: true },
  { id: "tokens", text: "tokens", of: (r) => r[S.TOKENS], show: (r) => thousands(r[S.TOKENS]), number: true },
];
// Columns that filters know, and the list does not show.
const more = /** @type {[string, number][]} */ ([["status", S.STATUS], ["attempts", S.ATTEMPTS]]);
/** @type {Record<string, Column>} */
const byId = Object.fromEntries([...columns, ...more.map(([id, at]) => /** @type {Column} */ ({ id, text: id, of: (r) => r[at], show: (r) => String(r[at]), number: true }))].map((c) => [c.id, c]));

/** @type {Record<string, number>} */
const units = { "": 1e6, s: 1e6, ms: 1e3, us: 1, "µs": 1 };

// has returns a test of a column of names. There are far fewer names than rows, so it tests each name only once.
/** @param {number} column @param {(x: string) => boolean} words @returns {Test} */
function has(column, words) {
  /** @type {Record<string, boolean>} */
  const known = {};
  return (r) => (known[r[column]] ??= words(r[column] === 0 && column === S.OUTCOME ? "in flight" : S.name(Number(r[column]))));
}

// parse turns a filter into a test: words that a row must contain, column:text, and column>number with a unit. The
// test is valid until the names' indexes change.
/** @param {string} text */
export function parse(text) {
  /** @type {Test[]} */
  const tests = [];
  const wrong = [];
  for (const word of text.trim().split(/\s+/)) {
    if (!word) continue;
    const not = word.startsWith("-"), rest = word.slice(not ? 1 : 0);
    /** @type {Test} */
    let test;
    const compare = /^(\w+)(>=|<=|>|<|=|:)(.*)$/.exec(rest);
    if (compare) {
      const [, id, how, value] = compare, c = byId[id];
      if (!c) { wrong.push("there is no column " + id + "; there are " + Object.keys(byId).join(", ")); continue; }
      if (how === ":" || !c.number) {
        if (!value) continue;
        const want = value.toLowerCase();
        test = c.name ? has(c.name, (x) => x.toLowerCase().includes(want)) : (r) => c.show(r).toLowerCase().includes(want);
      } else {
        const x = /^([\d.]+)(s|ms|us|µs|)$/.exec(value);
        if (!x) { if (value) wrong.push(value + " is no number such as 3 or 250ms"); continue; }
        const n = Number(x[1]) * (c.us || id === "sent" ? units[x[2]] : 1);
        test = (r) => { const v = Number(c.of(r)); return v >= 0 && ((how.includes("=") && v === n) || (how[0] === ">" && v > n) || (how[0] === "<" && v < n)); };
      }
    } else {
      const want = rest.toLowerCase(), words = (/** @type {string} */ x) => x.toLowerCase().includes(want);
      const any = [S.ENDPOINT, S.PREFILLER, S.MODEL, S.CLASS].map((c) => has(c, words)).concat(has(S.OUTCOME, (x) => x.replace("_", " ").includes(want.replace("_", " "))));
      const number = /^#\d+$/.test(want);
      test = (r) => r[S.ID].toLowerCase().includes(want) || any.some((t) => t(r)) || (number && label(r[S.ID]) === want);
    }
    tests.push(not ? (r) => !test(r) : test);
  }
  return { all: tests.length === 0, wrong, test: (/** @type {Run.Row} */ r) => tests.every((t) => t(r)) };
}

// order returns a comparison of two rows.
/** @typedef {{by: string, down: boolean}} Sort */
/** @param {Sort} sort @returns {(a: Run.Row, b: Run.Row) => number} */
function order({ by, down }) {
  const c = byId[by], sign = down ? -1 : 1;
  let of = c.of;
  if (c.name) { // compare names once, not in every comparison of rows
    const names = S.store.names.map((x, i) => (c.name === S.OUTCOME && !i ? "in flight" : x)), sorted = [...names].sort(), place = new Map(sorted.map((x, k) => [x, k]));
    const at = c.name;
    of = (r) => place.get(names[Number(r[at])]) ?? 0;
  }
  return (a, b) => sign * (Number(of(a)) - Number(of(b))) || a[S.N] - b[S.N];
}

/** @type {{filter?: ReturnType<typeof parse>, sort?: Sort, names: number, before: ReturnType<typeof order>, rows: Run.Row[]}} */
let list = { names: 0, before: () => 0, rows: [] };

// choose returns the rows that pass the filter, sorted. It updates the previous list with only the changed rows,
// because there may be very many.
/** @param {ReturnType<typeof parse>} filter @param {Sort} sort */
function choose(filter, sort) {
  const s = S.store, plain = sort.by === "request" && !sort.down;
  if (filter.all && plain) return s.rows;
  const names = byId[sort.by].name ? s.names.length : 0, fresh = S.taken();
  if (!fresh || list.filter !== filter || list.sort !== sort || list.names !== names) {
    const rows = s.rows.filter((r) => r && (filter.all || filter.test(r))), before = order(sort);
    list = { filter, sort, names, before, rows: plain ? rows : rows.sort(before) };
    return list.rows;
  }
  if (!fresh.size) return list.rows;
  const stay = list.rows.filter((r) => s.rows[r[S.N] - s.first] === r), more = [...fresh].map(S.row).filter((r) => r && (filter.all || filter.test(r))).sort(list.before);
  const out = [];
  let i = 0;
  for (const r of more) {
    while (i < stay.length && list.before(stay[i], r) < 0) out.push(stay[i++]);
    out.push(r);
  }
  while (i < stay.length) out.push(stay[i++]);
  list.rows = out;
  return out;
}

// Line is a visible row. It is drawn again only after a change.
/** @typedef {{r: Run.Row, n: number, shown: number, columns: Column[], current: boolean, focus: boolean, choose: (n: number, r: Run.Row) => void}} LineProps */
/** @extends {Component<LineProps>} */
class Line extends Component {
  /** @param {LineProps} p */
  shouldComponentUpdate(p) {
    const q = this.props;
    return p.r !== q.r || p.n !== q.n || p.shown !== q.shown || p.current !== q.current || p.focus !== q.focus;
  }
  /** @param {LineProps} props */
  render({ r, n, columns, current, focus, choose }) {
    if (!r) return null; // not received yet
    return html`<div id=${"r" + r[S.N]} role="row" aria-rowindex=${n + 2} aria-selected=${current} class=${"line" + (S.bad(r) ? " bad" : "") + (r[S.OVER] < 0 ? " open" : "") + (focus ? " focus" : "")}
      style=${"transform:translateY(" + n * height + "px)"} onClick=${() => choose(n, r)}>${columns.map((c) => html`<div role="gridcell" class=${(c.number ? "number " : "") + (c.wide ? "wide " : "") + c.id}>${c.show(r)}</div>`)}</div>`;
  }
}

let remembered = { filter: "", sort: { by: "request", down: false }, top: 0 };

export function Requests() {
  const s = S.useStore(200);
  const [text, setText] = useState(remembered.filter);
  const [sort, setSort] = useState(remembered.sort);
  const [top, setTop] = useState(remembered.top);
  const [tall, setTall] = useState(600);
  const [focus, setFocus] = useState(0);
  const body = useRef(/** @type {any} */ (null)), follow = useRef(!S.store.ended && remembered.top === 0);
  Object.assign(remembered, { filter: text, sort, top });
  const filter = useMemo(() => parse(text), [text, s.era]);
  const rows = useMemo(() => choose(filter, sort), [filter, sort, s.version]);
  const shown = columns.filter((c) => !c.some || s.filled.has(c.id));
  const [heard, hear] = useState("");
  useEffect(() => { // announces the result of a filter once it was typed, not at each new request
    if (!text) return hear("");
    const wait = setTimeout(() => hear(filter.wrong.length ? filter.wrong[0] : plural(rows.length, "request") + " found"), 600);
    return () => clearTimeout(wait);
  }, [text]);
  useEffect(() => {
    const size = () => body.current && setTall(body.current.clientHeight - height);
    const o = new ResizeObserver(size);
    o.observe(body.current);
    body.current.scrollTop = remembered.top;
    return () => { o.disconnect(); list = { names: 0, before: () => 0, rows: [] }; }; // the store may drop these rows
  }, []);
  useEffect(() => {
    if (follow.current && !s.ended && body.current) body.current.scrollTop = rows.length * height;
  }, [rows.length]);
  /** @param {Event & {currentTarget: HTMLElement}} e */
  const scroll = (e) => {
    const b = e.currentTarget;
    follow.current = b.scrollTop + b.clientHeight >= b.scrollHeight - height;
    setTop(b.scrollTop);
  };
  const from = Math.max(0, Math.min(Math.floor(top / height) - 6, rows.length - 1)), to = Math.min(rows.length, Math.ceil((top + tall) / height) + 6);
  /** @param {KeyboardEvent} e */
  const key = (e) => {
    if (e.target !== e.currentTarget) return; // the event belongs to a heading's button
    const page = Math.max(1, Math.floor(tall / height) - 1);
    const by = keyed(e, { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -rows.length, End: rows.length });
    if (by !== undefined && rows.length) {
      e.preventDefault();
      const n = Math.max(0, Math.min(rows.length - 1, focus + by));
      setFocus(n);
      follow.current = false;
      const b = body.current;
      if (n * height < b.scrollTop) b.scrollTop = n * height;
      else if ((n + 2) * height > b.scrollTop + b.clientHeight) b.scrollTop = (n + 2) * height - b.clientHeight;
    } else if ((e.key === "Enter" || e.key === " ") && rows[focus]) {
      e.preventDefault();
      location.hash = "request/" + encodeURIComponent(rows[focus][S.ID]);
    }
  };
  /** @type {LineProps["choose"]} */
  const pick = (n, r) => { setFocus(n); location.hash = "request/" + encodeURIComponent(r[S.ID]); };
  const current = decodeURIComponent((/^#request\/(.*)$/.exec(location.hash) || [])[1] || "");
  const at = rows[focus];
  const widths = /** @type {Record<string, number>} */ ({ transferred: 6.4, ttft: 5.8, total: 5.8, request: 5.2, sent: 5.2, endpoint: 8.8, prefill: 8.8 }); // least widths of columns, in em
  const across = shown.map((c) => "minmax(" + (widths[c.id] || (c.number ? 4.8 : 6)) + "em," + (c.number || c.id === "request" ? .7 : 1.2) + "fr)").join(" "), slots = Math.ceil(tall / height) + 14;
  return html`<section class="requests" aria-label="Requests">
    <div class="tools">
      <label>Filter <input type="search" value=${text} onInput=${(e) => setText(e.currentTarget.value)} placeholder="outcome:completed ttft>500ms 10.0.0.7 -chat" aria-describedby="shown" spellcheck="false"/></label>
      <p class="heard" role="status">${heard}</p><p id="shown">${filter.wrong.length ? filter.wrong[0] : rows.length === s.rows.length ? plural(rows.length, "request") : thousands(rows.length) + " of " + plural(s.rows.length, "request")}${s.first > 0 ? "; " + thousands(s.first) + " earlier ones are no longer kept" : ""}</p>
    </div>
    <div class="grid" role="grid" ref=${body} onScroll=${scroll} aria-label="Requests" aria-rowcount=${rows.length + 1} aria-colcount=${shown.length} tabindex="0" style=${"--across:" + across} onKeyDown=${key} aria-activedescendant=${at && focus >= from && focus < to ? "r" + at[S.N] : null}>
      <div class="top" role="rowgroup"><div class="head line" role="row" aria-rowindex="1">${shown.map((c) => html`<div role="columnheader" class=${(c.number ? "number " : "") + (c.wide ? "wide" : "")} aria-sort=${sort.by === c.id ? (sort.down ? "descending" : "ascending") : "none"}>
        <button onClick=${() => setSort({ by: c.id, down: sort.by === c.id ? !sort.down : !!c.number })}>${c.text}${sort.by === c.id ? (sort.down ? " ↓" : " ↑") : ""}</button></div>`)}</div></div>
        <div class="all" role="rowgroup" style=${{ height: rows.length * height + "px" }}>
          ${rows.slice(from, to).map((r, i) => html`<${Line} key=${(from + i) % slots} r=${r} n=${from + i} shown=${shown.length} columns=${shown} current=${!!r && r[S.ID] === current} focus=${from + i === focus} choose=${pick}/>`)}
        </div>
    </div>
    ${rows.length === 0 && html`<p class="empty">${s.rows.length ? "No request passes the filter." : "No request has been sent yet."}</p>`}
  </section>`;
}
