// @ts-check
// Numbers as the terminal prints them.

/** @param {number} n */
export function thousands(n) {
  return String(Math.round(n)).replace(/\B(?=(\d{3})+$)/g, ",");
}

// span formats microseconds with about four digits, in a suitable unit.
/** @param {number | null | undefined} us */
export function span(us) {
  if (us == null || us < 0 || Number.isNaN(us)) return "–";
  const s = us / 1e6;
  if (s >= 99.95) return thousands(s) + " s";
  if (s >= 0.99995) return s.toFixed(3) + " s";
  if (us >= 999.95) return (us / 1e3).toFixed(1) + " ms";
  if (us === 0) return "0";
  return us.toFixed(0) + " µs";
}

/** @type {(s: number) => string} */
export const seconds = (s) => span(s * 1e6);

// clock formats a time since the start of the run.
/** @param {number} us */
export function clock(us) {
  const s = Math.max(0, us) / 1e6;
  if (s < 60) return s.toFixed(s < 10 ? 3 : 2) + " s";
  return Math.floor(s / 60) + ":" + String(Math.floor(s % 60)).padStart(2, "0") + " min";
}

// label is the short name of a request: #7 for the run's seventh request, otherwise the beginning of its id.
/** @param {string} id */
export function label(id) {
  const own = /^req-\d+-(\d{6,})$/.exec(id);
  return own ? "#" + Number(own[1]) : id.slice(0, 8);
}

// spaced returns a name of the record, such as a step's, with spaces between its words.
/** @type {(name: string) => string} */
export const spaced = (name) => name.replaceAll("_", " ");

/** @type {(x: number) => string} */
export const percent = (x) => (100 * x).toFixed(x < 0.1 && x > 0 ? 1 : 0) + " %";

/** @param {number} n @param {string} what */
export function plural(n, what) {
  return thousands(n) + " " + what + (n === 1 ? "" : "s");
}

// bytes formats a number of bytes in decimal units.
/** @param {number} n */
export function bytes(n) {
  const unit = [1e9, 1e6, 1e3].find((x) => n >= x) || 1, name = { 1e9: "GB", 1e6: "MB", 1e3: "kB", 1: "B" }[unit];
  return (n / unit).toFixed(n / unit < 100 && unit > 1 ? 1 : 0) + " " + name;
}
