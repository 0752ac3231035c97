// @ts-check
// Columns of a row. Moments are in microseconds, the first since the start of the run, the others since the first; -1
// means not yet. Written by go test ./web -run TestDeclarations -update.
export const N = 0;
export const ID = 1;
export const SENT = 2;
export const AT_PICKER = 3;
export const PICKED = 4;
export const PASSED = 5;
export const AT_SIDECAR = 6;
export const LEG_SENT = 7;
export const LEG_ENDED = 8;
export const AT_SERVER = 9;
export const STARTED = 10;
export const FIRST_SENT = 11;
export const PART2 = 12;
export const FIRST_GOT = 13;
export const LAST_SENT = 14;
export const OVER = 15;
export const TTFT = 16;
export const TOTAL = 17;
export const ENDPOINT = 18;
export const PREFILLER = 19;
export const MODEL = 20;
export const CLASS = 21;
export const OUTCOME = 22;
export const PROMPT = 23;
export const CACHED = 24;
export const TOKENS = 25;
export const STATUS = 26;
export const ATTEMPTS = 27;
export const FLAGS = 28;
export const FETCHED = 29;
export const POOL = 30;
export const PRIORITY = 31;

// Bits of the column FLAGS.
export const HELD = 1;
export const BY_HAND = 2;
