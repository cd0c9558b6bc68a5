// Subtitles from segments, as transept/speech/output/subtitles.py makes them where no layout is asked for.
// Called by exports.js and karaoke.js. Times are milliseconds, rounded as Python does.

const LINE_WIDTH = 1000; // characters of a line, and words of a subtitle
const PYTHON_BLANKS = "[\\t-\\r\\x1c-\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000]+";
const BLANKS = new RegExp(PYTHON_BLANKS, "g");
const BLANKS_AROUND = new RegExp(`^${PYTHON_BLANKS}|${PYTHON_BLANKS}$`, "g");

/** What stands before a text where it is read: "left: "; empty without a speaker. */
export const attribution = ({ speaker }) => (speaker ? `${speaker}: ` : "");

/** The subtitles, [{start, end, text, speaker}]: by words where every segment has them, else one a segment. */
export function makeCues(segments) {
  if (!haveWords(segments)) {
    return segments.map(({ start, end, text, speaker }) => ({
      start: milliseconds(start),
      end: milliseconds(end),
      text: strip(text).replaceAll("-->", "->"), // the arrow between two times must stay the only one
      speaker,
    }));
  }
  return fillSubtitles(segments).map(({ words, speaker }) => ({
    start: milliseconds(words[0].start),
    end: milliseconds(words.at(-1).end),
    text: words.map((each) => each.word).join(""),
    speaker,
  }));
}

export const haveWords = (segments) => segments.every((segment) => segment.words);

/** The words of each subtitle, and its speaker: [{words, speaker}]. A word that begins a line has no blank before it. */
export function fillSubtitles(segments) {
  const subtitles = [];
  let subtitle = { words: [] };
  let length = 0; // characters of the present line
  for (const segment of segments) {
    for (const [index, word] of segment.words.entries()) {
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
          newLength += codePoints(attribution(segment));
        }
        length = newLength;
      }
      subtitle.words.push({ ...word, word: text });
    }
  }
  if (subtitle.words.length) subtitles.push(subtitle);
  return subtitles;
}

/** Python's str.strip(). */
export const strip = (text) => text.replace(BLANKS_AROUND, "");

/** Python's " ".join(text.split()). */
export const onOneLine = (text) => strip(text).replace(BLANKS, " ");

/** Python's round(): a half goes to the even neighbour. */
export function round(exact) {
  const floor = Math.floor(exact);
  if (exact - floor !== 0.5) return Math.round(exact);
  return floor % 2 === 0 ? floor : floor + 1;
}

export const milliseconds = (seconds) => round(seconds * 1000);

const codePoints = (text) => [...text].length;
