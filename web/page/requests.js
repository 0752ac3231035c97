// The list of requests: all of them, of which only those in sight are drawn.
import { h } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import htm from "htm";
import * as S from "./store.js";
import { span, thousands, label, plural } from "./format.js";

const html = htm.bind(h);
const height = 28;

const columns = [
  { id: "request", text: "request", of: (r) => r[S.N], show: (r) => label(r[S.ID]) },
  { id: "sent", text: "sent", of: (r) => r[S.SENT], show: (r) => (r[S.SENT] / 1e6).toFixed(3) + " s", number: true },
  { id: "outcome", text: "outcome", of: S.outcome, show: S.outcome },
  { id: "model", text: "model", of: (r) => S.name(r[S.MODEL]), show: (r) => S.name(r[S.MODEL]), wide: true },
  { id: "class", text: "class", of: (r) => S.name(r[S.CLASS]), show: (r) => S.name(r[S.CLASS]), some: (r) => r[S.CLASS], wide: true },
  { id: "endpoint", text: "model server", of: (r) => S.name(r[S.ENDPOINT]), show: (r) => S.name(r[S.ENDPOINT]) },
  { id: "prefill", text: "prefill server", of: (r) => S.name(r[S.PREFILLER]), show: (r) => S.name(r[S.PREFILLER]), some: (r) => r[S.PREFILLER], wide: true },
  { id: "ttft", text: "TTFT", of: (r) => r[S.TTFT], show: (r) => span(r[S.TTFT]), number: true, us: true },
  { id: "total", text: "total", of: (r) => r[S.TOTAL], show: (r) => span(r[S.TOTAL]), number: true, us: true },
  { id: "prompt", text: "prompt", of: (r) => r[S.PROMPT], show: (r) => thousands(r[S.PROMPT]), number: true, wide: true },
  { id: "cached", text: "cached", of: (r) => r[S.CACHED], show: (r) => thousands(r[S.CACHED]), number: true, wide: true },
  { id: "tokens", text: "tokens", of: (r) => r[S.TOKENS], show: (r) => thousands(r[S.TOKENS]), number: true },
];
const byId = Object.fromEntries(columns.map((c) => [c.id, c]));
byId.status = { of: (r) => r[S.STATUS], number: true };
byId.attempts = { of: (r) => r[S.ATTEMPTS], number: true };

const units = { "": 1e6, s: 1e6, ms: 1e3, us: 1, "µs": 1 };

// parse makes a test of what somebody types: words that a row must have, column:text, and column>number with a unit.
export function parse(text) {
  const tests = [], wrong = [];
  for (const word of text.trim().split(/\s+/)) {
    if (!word) continue;
    const [, not, rest] = /^(-?)(.*)$/.exec(word);
    let test;
    const compare = /^(\w+)(>=|<=|>|<|=|:)(.*)$/.exec(rest);
    if (compare) {
      const [, id, how, value] = compare, c = byId[id];
      if (!c) { wrong.push("there is no column " + id + "; there are " + Object.keys(byId).join(", ")); continue; }
      if (how === ":" || !c.number) {
        if (!value) continue;
        const want = value.toLowerCase();
        test = (r) => String(c.show ? c.show(r) : c.of(r)).toLowerCase().includes(want);
      } else {
        const x = /^([\d.]+)(s|ms|us|µs|)$/.exec(value);
        if (!x) { if (value) wrong.push(value + " is no number such as 3 or 250ms"); continue; }
        const n = Number(x[1]) * (c.us || id === "sent" ? units[x[2]] : 1);
        const cmp = { ">": (a) => a > n, "<": (a) => a < n, ">=": (a) => a >= n, "<=": (a) => a <= n, "=": (a) => a === n }[how];
        test = (r) => { const v = c.of(r); return v >= 0 && cmp(v); };
      }
    } else {
      const want = rest.toLowerCase();
      test = (r) => r[S.ID].toLowerCase().includes(want) || label(r[S.ID]) === want || S.outcome(r).replace("_", " ").includes(want.replace("_", " ")) ||
        S.name(r[S.ENDPOINT]).toLowerCase().includes(want) || S.name(r[S.PREFILLER]).toLowerCase().includes(want) || S.name(r[S.MODEL]).toLowerCase().includes(want) || S.name(r[S.CLASS]).toLowerCase().includes(want);
    }
    tests.push(not ? (r) => !test(r) : test);
  }
  return { all: tests.length === 0, wrong, test: (r) => tests.every((t) => t(r)) };
}

// choose are the rows that pass, in their order.
function choose(filter, sort) {
  const out = [];
  for (const r of S.store.rows) if (r && (filter.all || filter.test(r))) out.push(r);
  if (sort.by !== "request" || sort.down) {
    const of = byId[sort.by].of, sign = sort.down ? -1 : 1;
    out.sort((a, b) => { const x = of(a), y = of(b); return x < y ? -sign : x > y ? sign : a[S.N] - b[S.N]; });
  }
  return out;
}

let remembered = { filter: "", sort: { by: "request", down: false }, top: 0 };

export function Requests() {
  const s = S.useStore(200);
  const [text, setText] = useState(remembered.filter);
  const [sort, setSort] = useState(remembered.sort);
  const [top, setTop] = useState(remembered.top);
  const [tall, setTall] = useState(600);
  const [focus, setFocus] = useState(0);
  const body = useRef(null), follow = useRef(!S.store.ended && remembered.top === 0);
  Object.assign(remembered, { filter: text, sort, top });
  const filter = useMemo(() => parse(text), [text]);
  const rows = useMemo(() => choose(filter, sort), [filter, sort, s.version]);
  const shown = useMemo(() => columns.filter((c) => !c.some || rows.some(c.some)), [rows]);
  useEffect(() => {
    const size = () => body.current && setTall(body.current.clientHeight - height);
    const o = new ResizeObserver(size);
    o.observe(body.current);
    body.current.scrollTop = remembered.top;
    return () => o.disconnect();
  }, []);
  useEffect(() => {
    if (follow.current && !s.ended && body.current) body.current.scrollTop = rows.length * height;
  }, [rows.length]);
  const scroll = (e) => {
    const b = e.currentTarget;
    follow.current = b.scrollTop + b.clientHeight >= b.scrollHeight - height;
    setTop(b.scrollTop);
  };
  const from = Math.max(0, Math.floor(top / height) - 6), to = Math.min(rows.length, Math.ceil((top + tall) / height) + 6);
  const key = (e) => {
    const page = Math.max(1, Math.floor(tall / height) - 1);
    const by = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -rows.length, End: rows.length }[e.key];
    if (by !== undefined && rows.length) {
      e.preventDefault();
      const n = Math.max(0, Math.min(rows.length - 1, focus + by));
      setFocus(n);
      follow.current = false;
      const b = body.current;
      if (n * height < b.scrollTop) b.scrollTop = n * height;
      else if ((n + 2) * height > b.scrollTop + b.clientHeight) b.scrollTop = (n + 2) * height - b.clientHeight;
    } else if (e.key === "Enter" && rows[focus]) {
      location.hash = "request/" + encodeURIComponent(rows[focus][S.ID]);
    }
  };
  const current = decodeURIComponent((/^#request\/(.*)$/.exec(location.hash) || [])[1] || "");
  const at = rows[focus];
  const style = { gridTemplateColumns: shown.map((c) => (c.id === "request" ? "minmax(4.5em,.8fr)" : c.number ? "minmax(4.5em,.7fr)" : "minmax(6em,1.4fr)")).join(" ") };
  return html`<section class="requests" aria-label="Requests">
    <div class="tools">
      <label>Filter <input type="search" value=${text} onInput=${(e) => setText(e.currentTarget.value)} placeholder="outcome:completed ttft>500ms 10.0.0.7 -chat" aria-describedby="shown" spellcheck="false"/></label>
      <p id="shown" role="status">${filter.wrong.length ? filter.wrong[0] : rows.length === s.rows.length ? plural(rows.length, "request") : thousands(rows.length) + " of " + plural(s.rows.length, "request")}${s.first > 0 ? "; " + thousands(s.first) + " earlier ones are no longer kept" : ""}</p>
    </div>
    <div class="grid" role="grid" ref=${body} onScroll=${scroll} aria-label="Requests" aria-rowcount=${rows.length + 1} aria-colcount=${shown.length} tabindex="0" onKeyDown=${key} aria-activedescendant=${at && focus >= from && focus < to ? "r" + at[S.N] : null}>
      <div class="top" role="rowgroup"><div class="head line" role="row" aria-rowindex="1" style=${style}>${shown.map((c) => html`<div role="columnheader" class=${(c.number ? "number " : "") + (c.wide ? "wide" : "")} aria-sort=${sort.by === c.id ? (sort.down ? "descending" : "ascending") : "none"}>
        <button tabindex="-1" onClick=${() => setSort({ by: c.id, down: sort.by === c.id ? !sort.down : !!c.number })}>${c.text}${sort.by === c.id ? (sort.down ? " ↓" : " ↑") : ""}</button></div>`)}</div></div>
        <div class="all" role="rowgroup" style=${{ height: rows.length * height + "px" }}>
          ${rows.slice(from, to).map((r, i) => html`<div key=${r[S.N]} id=${"r" + r[S.N]} role="row" aria-rowindex=${from + i + 2} aria-selected=${r[S.ID] === current}
            class=${"line" + (S.bad(r) ? " bad" : "") + (r[S.OVER] < 0 ? " open" : "") + (from + i === focus ? " focus" : "")}
            style=${{ ...style, transform: "translateY(" + (from + i) * height + "px)" }} onClick=${() => { setFocus(from + i); location.hash = "request/" + encodeURIComponent(r[S.ID]); }}>
            ${shown.map((c) => html`<div role="gridcell" class=${(c.number ? "number " : "") + (c.wide ? "wide " : "") + c.id}>${c.show(r)}</div>`)}</div>`)}
        </div>
    </div>
    ${rows.length === 0 && html`<p class="empty">${s.rows.length ? "No request passes the filter." : "No request has been sent yet."}</p>`}
  </section>`;
}
