// Subtitles from segments, as transept/speech/output/subtitles.py makes them where no layout is asked for.
// Called by exports.js and karaoke.js. Times are milliseconds, rounded as Python does.

import { round, strip } from "./python-text.js";
import { SHORTEST, lengthened, wholeWords } from "./whole-words.js";

const LINE_WIDTH = 1000; // characters of a line, and words of a subtitle
const BLANK_LINES = /[\r\n][ \t\r\n]*/g; // would end a subtitle in its file

/** What stands before a text where it is read: "left: "; empty without a speaker. */
export const attribution = ({ speaker }) => (speaker ? `${speaker}: ` : "");

/**
 * The subtitles, [{start, end, text, speaker}]: by words where every segment has them, else one a segment.
 * named: the file shows a speaker's name, which then counts towards the line's width. escape: turns text into the file's markup.
 */
export function makeCues(segments, { named = true, escape = (text) => text } = {}) {
  if (!haveWords(segments)) {
    return segments
      .map(({ start, end, text, speaker }) => ({
        start: milliseconds(start),
        end: milliseconds(Math.max(end, start + SHORTEST)),
        text: escape(strip(text).replace(BLANK_LINES, "\n")),
        speaker,
      }))
      .filter(({ text }) => text);
  }
  return fillSubtitles(segments, named).map(({ words, speaker }) => ({
    start: milliseconds(words[0].start),
    end: milliseconds(words.at(-1).end),
    text: words.map((each) => escape(each.word)).join(""),
    speaker,
  }));
}

export const haveWords = (segments) => segments.every((segment) => segment.words);

/**
 * The whole words of each subtitle, each with a duration, and its speaker: [{words, speaker}].
 * A word that begins a line has no blank before it.
 */
export function fillSubtitles(segments, named = true) {
  const subtitles = [];
  let subtitle = { words: [] };
  let length = 0; // characters of the present line
  for (const segment of segments) {
    for (const [index, word] of lengthened(wholeWords(segment.words)).entries()) {
      const nextGroup = index % LINE_WIDTH === 0 && subtitle.words.length > 0;
      let text = word.word;
      if (length && length + codePoints(text) <= LINE_WIDTH && !nextGroup) {
        length += codePoints(text);
      } else {
        text = strip(text);
        let newLength = codePoints(text);
        if (nextGroup) {
          subtitles.push(subtitle);
          subtitle = { words: [] };
        } else if (length) {
          text = `\n${text}`;
        }
        if (!subtitle.words.length) {
          subtitle.speaker = segment.speaker;
          newLength += named ? codePoints(attribution(segment)) : 0;
        }
        length = newLength;
      }
      subtitle.words.push({ ...word, word: text });
    }
  }
  if (subtitle.words.length) subtitles.push(subtitle);
  return subtitles.map(({ words, speaker }) => ({ words: lengthened(words), speaker }));
}

export const milliseconds = (seconds) => round(seconds * 1000);

const codePoints = (text) => [...text].length;
