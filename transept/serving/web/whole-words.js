// Whole words, each with a duration, as transept/speech/word_breaks.py and durations.py make them from timed words.
// Called by subtitles.js. Times are seconds.

import { isBlank, strip, stripEnd } from "./python-text.js";

export const SHORTEST = 0.02; // seconds; one position of Whisper's encoder
// Scripts that put no blanks between words: Thai and Lao, Burmese, Khmer, Chinese, Japanese, and full-width forms.
const UNSPACED_SCRIPTS =
  /[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u312f\u3190-\ua4cf\uaa60-\uaa7f\uf900-\ufaff\uff00-\uff9f\u{20000}-\u{3ffff}]/u;
const NEVER_FIRST = /[\p{Mn}\p{Mc}\p{Pe}\p{Pf}\p{Po}\p{Lm}ぁぃぅぇぉっゃゅょゎァィゥェォッャュョヮヵヶ]/u;
const NEVER_LAST = /[\p{Ps}\p{Pi}เแโใไເແໂໃໄ\u1039\u17d2]/u;
const LINE_BREAKS = /[ \t\r\n]*[\r\n][ \t\r\n]*/g;

/** True if a word ends between two adjacent texts, neither of them empty. */
export function mayBreak(before, after) {
  const last = [...before].at(-1);
  const first = String.fromCodePoint(after.codePointAt(0));
  if (isBlank(last) || isBlank(first)) return true;
  if (!UNSPACED_SCRIPTS.test(last) && !UNSPACED_SCRIPTS.test(first)) return false;
  return !NEVER_FIRST.test(first) && !NEVER_LAST.test(last);
}

/** The whole words of a segment, without words that show nothing. */
export function wholeWords(words) {
  let blank = ""; // at the end of the previous word
  return partsOfWords(words).flatMap((parts) => {
    const shown = parts.filter(({ word }) => strip(word));
    if (!shown.length) return [];
    const text = parts.map((part) => part.word).join("").replace(LINE_BREAKS, " "); // prettier-ignore
    const word = (isBlank(text[0]) ? "" : blank) + stripEnd(text);
    blank = isBlank(text.at(-1)) ? " " : "";
    return [{ ...shown[0], end: shown.at(-1).end, word }];
  });
}

/** The parts of each whole word of a segment. */
function partsOfWords(words) {
  const groups = [];
  let text = ""; // of the current word
  for (const word of words) {
    if (groups.length && (!word.word || !strip(text) || !mayBreak(text, word.word))) {
      groups.at(-1).push(word);
      text += word.word;
    } else {
      groups.push([word]);
      text = word.word;
    }
  }
  return groups;
}

/** The words, each at least SHORTEST long, and none beginning before the previous one ends. */
export function lengthened(words) {
  if (!words.length) return [];
  const begin = words[0].start;
  let done = begin;
  const times = words.map((word) => {
    const start = Math.max(word.start, done);
    done = Math.max(word.end, start + SHORTEST);
    return { start, end: done };
  });
  let limit = Math.max(words.at(-1).end, begin + words.length * SHORTEST);
  for (const time of times.reverse()) {
    time.end = Math.min(time.end, limit);
    limit = time.start = Math.max(begin, Math.min(time.start, time.end - SHORTEST));
  }
  times.reverse();
  return words.map((word, index) => ({ ...word, ...times[index] }));
}
