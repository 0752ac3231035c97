// @ts-check
// Keyboard focus of panels that open and close, and announcements for screen readers.
import { useEffect, useRef, useState } from "preact/hooks";
import { html } from "./html.js";
import * as S from "./store.js";
import { plural, thousands, spaced } from "./format.js";

// useDismiss focuses a panel's heading when the panel opens, and closes the panel on Escape. It then focuses the
// previous element again, or a replacement if that is gone.
/** @param {() => void} close @param {() => HTMLElement | null} otherwise */
export function useDismiss(close, otherwise) {
  const heading = useRef(/** @type {HTMLElement | null} */ (null)), from = useRef(/** @type {HTMLElement | null} */ (null)), last = useRef(close);
  const dismiss = () => {
    last.current();
    const back = from.current && from.current.isConnected && from.current !== document.body ? from.current : otherwise();
    if (back) back.focus({ preventScroll: true });
  };
  last.current = close;
  useEffect(() => {
    from.current = /** @type {HTMLElement | null} */ (document.activeElement);
    if (heading.current) heading.current.focus({ preventScroll: true });
    /** @param {KeyboardEvent} e */
    const f = (e) => { if (e.key === "Escape" && !e.defaultPrevented) { e.preventDefault(); dismiss(); } };
    addEventListener("keydown", f);
    return () => removeEventListener("keydown", f);
  }, []);
  return [heading, dismiss];
}

// keyed returns what a key stands for.
/** @type {<T>(e: KeyboardEvent, by: Record<string, T>) => T | undefined} */
export const keyed = (e, by) => by[e.key];

const every = 5000; // milliseconds between two announcements

// Aloud announces outcomes of requests and incidents to screen readers. It does so rarely, because each announcement
// interrupts the user.
export function Aloud() {
  const [said, say] = useState("");
  useEffect(() => {
    let before = /** @type {Record<string, number> | null} */ (null), seen = Infinity, over = S.store.ended;
    const tick = () => {
      const s = S.store, sum = s.metrics && s.metrics.summary, words = [];
      if (!sum || over) return;
      const fresh = s.notices.filter((x) => x.at > seen);
      for (const x of fresh.slice(-3)) words.push(spaced(x.step) + " " + (x.endpoint || x.hop));
      seen = s.notices.length ? s.notices[s.notices.length - 1].at : -1;
      if (s.ended) {
        over = true;
        words.push("The run is over: " + plural(sum.requests, "request") + ", " + thousands(sum.outcomes?.completed || 0) + " completed");
      } else if (before) {
        for (const [outcome, n] of Object.entries(sum.outcomes || {})) if (n > (before[outcome] || 0)) words.push(thousands(n - (before[outcome] || 0)) + " more " + spaced(outcome));
      }
      before = { ...sum.outcomes };
      if (words.length) say(words.join("; ") + ".");
    };
    const i = setInterval(tick, every);
    tick();
    return () => clearInterval(i);
  }, []);
  return html`<p class="heard" id="aloud" role="status">${said}</p>`;
}
