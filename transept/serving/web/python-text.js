// Python's str methods and round(). Called by subtitles.js, whole-words.js and exports.js.

const BLANK = "[\\t-\\r\\x1c-\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000]";
const BLANKS = new RegExp(`${BLANK}+`, "g");
const BLANKS_AROUND = new RegExp(`^${BLANK}+|${BLANK}+$`, "g");
const BLANKS_AT_END = new RegExp(`${BLANK}+$`);
const ALL_BLANK = new RegExp(`^${BLANK}+$`);

/** str.strip() */
export const strip = (text) => text.replace(BLANKS_AROUND, "");

/** str.rstrip() */
export const stripEnd = (text) => text.replace(BLANKS_AT_END, "");

/** " ".join(text.split()) */
export const onOneLine = (text) => strip(text).replace(BLANKS, " ");

/** str.isspace() */
export const isBlank = (text) => ALL_BLANK.test(text);

/** round(): halves round to even. */
export function round(exact) {
  const floor = Math.floor(exact);
  if (exact - floor !== 0.5) return Math.round(exact);
  return floor % 2 === 0 ? floor : floor + 1;
}
