// @ts-check
// The moving part of the topology: lines between the parts, and requests as dots that travel on the lines.
import { useEffect, useRef } from "preact/hooks";
import { html } from "./html.js";
import * as S from "./store.js";
import { moment, stage, partOf } from "./topology.js";

const most = 1500; // largest number of dots
const colors = ["queue", "prefill", "decode", "hold", "bad", "accent"];

// bezier returns the points of a curve from one point to another that leaves and arrives horizontally, or vertically.
/** @param {number} x0 @param {number} y0 @param {number} x1 @param {number} y1 @param {boolean} down */
function bezier(x0, y0, x1, y1, down) {
  const out = [], bend = (/** @type {number} */ k) => k * k * (3 - 2 * k);
  for (let i = 0; i <= 12; i++) {
    const k = i / 12, near = k + (bend(k) - k) * 0.5;
    out.push(x0 + (x1 - x0) * (down ? bend(k) : near), y0 + (y1 - y0) * (down ? near : bend(k)));
  }
  return out;
}

// pipe returns the points of the line from a part to one beside or below it, or within it. Lines stay between the cards:
// they reach a server behind others by the gap above it, and a part far below by the margin at the left.
/** @typedef {{from: string, tile: boolean, strip: boolean, pod: boolean, left: number, x: number, y: number, w: number, h: number, cx: number, cy: number}} Place */
/** @param {Place} p @param {Place} c @param {number} margin */
function pipe(p, c, margin) {
  if (c.x >= p.x && c.x + c.w <= p.x + p.w + 1 && c.y >= p.y && c.y + c.h <= p.y + p.h + 1) return [p.x, p.cy, c.cx, c.cy];
  const behind = c.x > c.left + 2, [x, y] = behind ? [c.left, c.y - 2] : [c.x, c.cy], end = behind ? [c.x + 12, y, c.x + 12, c.cy] : [];
  if (x >= p.x + p.w - 2) return bezier(p.x + p.w, p.cy, x, y, false).concat(end);
  if (c.x + c.w <= p.x + 2 && c.y < p.y + p.h) return bezier(p.x, p.cy, c.x + c.w, c.cy, false);
  if (c.y > p.y + p.h + 28) return [p.cx, p.y + p.h, p.cx, p.y + p.h + 7, margin, p.y + p.h + 7, margin, y, x, y].concat(end);
  const to = Math.max(c.x + 8, Math.min(c.x + c.w - 8, p.cx)), below = c.y >= p.cy;
  return bezier(p.cx, below ? p.y + p.h : p.y, to, below ? c.y : c.y + c.h, true);
}

// Places has the places of the parts and the lines between them, as the elements of the page stand now. Each element names
// its part (data-part) and the part at the other end of its line (data-from).
export class Places {
  /** @param {HTMLElement} box */
  constructor(box) {
    const r = box.getBoundingClientRect();
    this.of = /** @type {Map<string, Place>} */ (new Map());
    this.mark = Math.round(r.width) + "x" + Math.round(r.height);
    for (const e of /** @type {NodeListOf<HTMLElement>} */ (box.querySelectorAll("[data-part]"))) {
      const b = e.getBoundingClientRect(), x = b.left - r.left, y = b.top - r.top, kind = e.classList;
      this.of.set(e.dataset.part || "", { from: e.dataset.from || "", tile: kind.contains("tile"), strip: kind.contains("strip"), pod: kind.contains("pod"), left: kind.contains("row") || kind.contains("card") ? /** @type {HTMLElement} */ (e.parentElement).getBoundingClientRect().left - r.left : Infinity, x, y, w: b.width, h: b.height, cx: x + b.width / 2, cy: y + b.height / 2 });
      this.mark += ";" + Math.round(x) + "," + Math.round(y) + "," + Math.round(b.width) + "," + Math.round(b.height);
    }
    this.lines = /** @type {Map<string, number[]>} */ (new Map());
  }
  /** @type {(key: string) => Place} */
  at(key) {
    return /** @type {Place} */ (this.of.get(key));
  }
  // line returns the points of the line between a part and the one that it hangs on.
  /** @param {string} key @returns {number[]} */
  line(key) {
    let at = this.lines.get(key);
    if (!at) {
      const c = this.at(key);
      this.lines.set(key, (at = pipe(this.at(c.from), c, 5)));
    }
    return at;
  }
  // up returns a part and those that it hangs on, up to the root.
  /** @param {string} key */
  up(key) {
    const out = /** @type {string[]} */ ([]);
    for (let at = key; this.of.has(at) && !out.includes(at); at = this.at(at).from) out.push(at);
    return out;
  }
  // route returns the points of the way between two parts, along the lines.
  /** @param {string} a @param {string} b */
  route(a, b) {
    const A = this.up(a), B = this.up(b), out = /** @type {number[]} */ ([]);
    const meet = A.find((x) => B.includes(x));
    if (meet === undefined) return out;
    for (const key of A.slice(0, A.indexOf(meet))) {
      const at = this.line(key);
      for (let i = at.length - 2; i >= 0; i -= 2) out.push(at[i], at[i + 1]);
    }
    for (const key of B.slice(0, B.indexOf(meet)).reverse()) out.push(...this.line(key));
    return out;
  }
  // seat returns a request's place within a part, which stays the same.
  /** @param {string} key @param {number} n @returns {[number, number]} */
  seat(key, n) {
    const p = this.at(key), a = (n * 0.618034) % 1, b = (n * 0.754878) % 1;
    if (p.tile) return [p.cx, p.cy];
    if (p.pod) return [p.x + 10 + a * Math.max(1, Math.min(p.w, 260) - 20), p.y + p.h - (p.h > 60 ? 17 : 8) + b * (p.h > 60 ? 11 : 3)];
    return [p.x + 8 + a * Math.max(1, Math.min(p.w, 180) - 16), p.y + p.h * 0.62 + b * Math.max(1, p.h * 0.38 - 6)];
  }
}

// walk moves a dot along its way.
/** @typedef {{n: number, x: number, y: number, way: number[], i: number, part: string, m: number}} Dot */
/** @param {Dot} d @param {number} ms */
function walk(d, ms) {
  let step = (1.1 + 0.03 * (d.way.length - d.i)) * ms;
  while (d.i < d.way.length && step > 0) {
    const x = d.way[d.i], y = d.way[d.i + 1], far = Math.hypot(x - d.x, y - d.y);
    if (far <= step) { d.x = x; d.y = y; d.i += 2; } else { d.x += ((x - d.x) * step) / far; d.y += ((y - d.y) * step) / far; }
    step -= far;
  }
}

// size fits a canvas to its box and returns its context.
/** @param {HTMLCanvasElement} canvas @param {number} w @param {number} h */
function size(canvas, w, h) {
  const ratio = Math.min(2, devicePixelRatio || 1), W = Math.round(w * ratio), H = Math.round(h * ratio), g = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  if (canvas.width !== W || canvas.height !== H) Object.assign(canvas, { width: W, height: H });
  g.setTransform(ratio, 0, 0, ratio, 0, 0);
  g.clearRect(0, 0, w, h);
  return g;
}

// Dots draws lines below the parts of the box and dots above them. list has the pools.
/** @param {{box: {current: HTMLElement | null}, list: import("./topology.js").Pool[]}} props */
export function Dots({ box, list }) {
  const lines = useRef(/** @type {HTMLCanvasElement | null} */ (null)), canvas = useRef(lines.current), now = useRef(list);
  now.current = list;
  useEffect(() => {
    const still = matchMedia("(prefers-reduced-motion: reduce)");
    const dots = /** @type {Map<number, Dot>} */ (new Map()), faded = /** @type {(Dot & {bad: boolean, left: number})[]} */ ([]), style = /** @type {Record<string, string>} */ ({});
    let at = /** @type {Places | null} */ (null), measured = 0, frame = 0, before = performance.now(), wide = 0, high = 0;
    const measure = () => {
      const b = box.current;
      if (!b || !lines.current) return;
      const next = new Places(b), css = getComputedStyle(b);
      for (const name of colors) style[name] = css.getPropertyValue("--dot-" + name).trim() || "#888";
      if (at && at.mark === next.mark) return;
      at = next;
      faded.length = 0;
      [wide, high] = [b.clientWidth, b.clientHeight];
      for (const d of dots.values()) { // the parts have moved
        if (at.of.has(d.part)) [d.x, d.y] = at.seat(d.part, d.n);
        Object.assign(d, { way: [], i: 0 });
      }
      const g = size(lines.current, wide, high);
      g.strokeStyle = "#8a9aa5";
      for (const [key, p] of at.of) {
        const from = at.of.get(p.from);
        if (p.tile || !from) continue;
        g.globalAlpha = p.pod && at.of.size > 30 ? 0.3 : 0.55;
        g.lineWidth = p.strip ? 4 : 1;
        trace(g, at.line(key), 1);
      }
    };
    /** @type {(g: CanvasRenderingContext2D, points: number[], share: number) => void} */
    const trace = (g, points, share) => {
      g.beginPath();
      g.moveTo(points[0], points[1]);
      for (let i = 2; i < points.length * share; i += 2) g.lineTo(points[i], points[i + 1]);
      g.stroke();
    };
    /** @type {(at: Places, d: Dot, key: string) => void} */
    const go = (at, d, key) => { // adds a way to a part
      if (d.part === key) return;
      d.way = d.way.slice(d.i).concat(at.route(d.part, key), at.seat(key, d.n));
      Object.assign(d, { i: 0, part: key });
    };
    const draw = () => {
      frame = requestAnimationFrame(draw);
      const time = performance.now(), ms = Math.min(200, time - before);
      before = time;
      if (document.hidden || !canvas.current) return;
      if (time - measured > 400) { measure(); measured = time; }
      const g = size(canvas.current, wide, high);
      if (!at || still.matches) return;
      const t = S.playhead(), requests = S.under(t), step = Math.max(1, Math.ceil(requests.length / most));
      const sidecars = new Set(now.current.filter((p) => p.sidecar).map((p) => p.key)), seen = new Set();
      S.store.sampled = step;
      g.lineCap = "round";
      for (const r of requests) {
        if (r[S.N] % step) continue;
        const n = r[S.N], m = moment(r, t), part = partOf(r, m, sidecars);
        seen.add(n);
        if (!at.of.has(part)) continue;
        let d = dots.get(n);
        if (!d) {
          const far = m > S.AT_PICKER && r[S.OVER] >= 0 && t - r[S.SENT] > 3e5 * S.store.play.rate, part0 = far ? part : "client", [x, y] = at.seat(part0, n);
          dots.set(n, (d = { n, x, y, way: [], i: 0, part: part0, m: far ? m : S.SENT }));
          go(at, d, far ? part : "envoy");
        }
        for (let k = d.m + 1; k <= m; k++) { // every part that the request passed, in order
          const then = Number(r[k]);
          if (then < 0 || then > t - r[S.SENT]) continue;
          const q = partOf(r, k, sidecars);
          if (at.of.has(q)) go(at, d, q);
        }
        if (m < d.m) go(at, d, part); // the slider moved back
        d.m = m;
        walk(d, ms);
        const held = r[S.FLAGS] & S.HELD && m >= S.PASSED, whole = held && r[S.PART2] >= 0 && r[S.SENT] + r[S.PART2] <= t, pod = "pod " + S.name(r[S.ENDPOINT]);
        if (held && at.of.has(pod)) { // unfinished until part 2 is sent
          g.strokeStyle = whole ? style.decode : style.hold;
          g.globalAlpha = whole ? Math.min(0.5, 8 / requests.length + 0.1) : Math.min(0.95, 30 / requests.length + 0.35);
          g.lineWidth = whole ? 1.2 : 1.8;
          g.setLineDash(whole ? [] : [5, 4]);
          trace(g, at.route("envoy", pod), whole ? 1 : 0.86);
          g.setLineDash([]);
        }
        if (d.i >= d.way.length && at.at(d.part).tile) continue; // the tile's colour shows it
        g.globalAlpha = 0.95;
        g.fillStyle = style[{ queue: "queue", prefill: "prefill", decode: "decode", way: "accent" }[stage(m)]];
        g.beginPath();
        g.arc(d.x, d.y, requests.length > 400 ? 2.2 : 3.4, 0, 7);
        g.fill();
      }
      for (const [n, d] of dots) {
        if (seen.has(n)) continue;
        dots.delete(n);
        const r = S.row(n);
        if (r && at.of.has(d.part) && r[S.OVER] >= 0 && r[S.SENT] + r[S.OVER] <= t && faded.length < 300) { // on its way back to the client
          go(at, d, "client");
          faded.push(Object.assign(d, { bad: S.bad(r), left: 500 }));
        }
      }
      for (let i = faded.length - 1; i >= 0; i--) {
        const d = faded[i];
        walk(d, ms * 1.5);
        if (d.i >= d.way.length && (d.left -= ms) <= 0) { faded.splice(i, 1); continue; }
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
  return html`<canvas class="lines" ref=${lines} aria-hidden="true"></canvas><canvas ref=${canvas} aria-hidden="true"></canvas>`;
}
