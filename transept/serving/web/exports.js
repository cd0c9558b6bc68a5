// Transcripts as files: txt, srt, vtt and json, byte for byte as transept/speech/output/ writes them.
// Called by reader.js. Each function takes segments as the server sends them ({start, end, text, words, ...}).
// The rules are openai-whisper's; what looks odd here (rounding, blanks, escapes) is Python's.

const LINE_WIDTH = 1000; // characters of a line, and words of a subtitle, where no layout is asked for
const PYTHON_BLANKS = "[\\t-\\r\\x1c-\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000]+";
const BLANKS_AROUND = new RegExp(`^${PYTHON_BLANKS}|${PYTHON_BLANKS}$`, "g");

// In the order of transept.speech.segments.Segment. "id" is the position, whatever the server calls it.
const INTEGERS = new Set(["seek"]);
const SEGMENT_FIELDS = [
  "seek", "start", "end", "text", "tokens", "temperature", "avg_logprob", "compression_ratio", "no_speech_prob", "words",
]; // prettier-ignore

/** Formats by suffix: what a download is, and how it is written. */
export const FORMATS = {
  txt: { type: "text/plain", write: toPlainText },
  srt: { type: "application/x-subrip", write: toSubRip },
  vtt: { type: "text/vtt", write: toWebVtt },
  json: { type: "application/json", write: toJson },
};

export function toPlainText(segments) {
  return segments.map((segment) => `${strip(segment.text)}\n`).join("");
}

export function toSubRip(segments) {
  return makeCues(segments)
    .map((cue, index) => `${index + 1}\n${clock(cue.start, ",", true)} --> ${clock(cue.end, ",", true)}\n${cue.text}\n\n`)
    .join("");
}

export function toWebVtt(segments) {
  const cues = makeCues(segments).map((cue) => `${clock(cue.start, ".")} --> ${clock(cue.end, ".")}\n${cue.text}\n\n`);
  return `WEBVTT\n\n${cues.join("")}`;
}

export function toJson(segments, language) {
  const listed = segments.map((segment, index) => {
    const fields = SEGMENT_FIELDS.filter((name) => segment[name] !== undefined && segment[name] !== null);
    return `{"id": ${index}, ${fields.map((name) => `"${name}": ${jsonField(name, segment[name])}`).join(", ")}}`;
  });
  const text = segments.map((segment) => segment.text).join("");
  return `{"text": ${jsonString(text)}, "segments": [${listed.join(", ")}], "language": ${jsonString(language)}}`;
}

/** What one copies: a line a segment. */
export const toClipboard = (segments) => toPlainText(segments).trim();

/** All that is said on one line, as models of text read it. */
export const toFlowingText = (segments) => segments.map((segment) => strip(segment.text)).filter(Boolean).join(" ");

/** The subtitles: laid out by words where every segment has them, else one a segment. Times in milliseconds. */
function makeCues(segments) {
  if (segments.some((segment) => !segment.words)) {
    return segments.map(({ start, end, text }) => ({
      start: milliseconds(start),
      end: milliseconds(end),
      text: strip(text).replaceAll("-->", "->"), // the arrow between two times must stay the only one
    }));
  }
  return fillSubtitles(segments).map((words) => ({
    start: milliseconds(words[0].start),
    end: milliseconds(words.at(-1).end),
    text: words.map((each) => each.word).join(""),
  }));
}

function fillSubtitles(segments) {
  const subtitles = [];
  let subtitle = [];
  let length = 0; // characters of the present line
  for (const segment of segments) {
    for (const [index, word] of segment.words.entries()) {
      const nextGroup = index % LINE_WIDTH === 0 && subtitle.length > 0;
      let text = word.word;
      if (length && length + codePoints(text) <= LINE_WIDTH && !nextGroup) {
        length += codePoints(text);
      } else {
        text = strip(text);
        const newLength = codePoints(text);
        if (nextGroup) {
          subtitles.push(subtitle);
          subtitle = [];
        } else if (length) {
          text = `\n${text}`;
        }
        length = newLength;
      }
      subtitle.push({ ...word, word: text });
    }
  }
  if (subtitle.length) subtitles.push(subtitle);
  return subtitles;
}

const strip = (text) => text.replace(BLANKS_AROUND, "");
const codePoints = (text) => [...text].length;

/** [HH:]MM:SS.mmm */
function clock(total, point, hours = false) {
  const two = (number) => String(number).padStart(2, "0");
  const fullHours = Math.floor(total / 3_600_000);
  const head = hours || fullHours ? `${two(fullHours)}:` : "";
  const rest = `${two(Math.floor(total / 60_000) % 60)}:${two(Math.floor(total / 1000) % 60)}`;
  return `${head}${rest}${point}${String(total % 1000).padStart(3, "0")}`;
}

/** Python's round(): a half goes to the even neighbour. */
function milliseconds(seconds) {
  const exact = seconds * 1000;
  const floor = Math.floor(exact);
  if (exact - floor !== 0.5) return Math.round(exact);
  return floor % 2 === 0 ? floor : floor + 1;
}

function jsonField(name, value) {
  if (name === "text") return jsonString(value);
  if (name === "tokens") return `[${value.join(", ")}]`;
  if (name === "words") return `[${value.map(jsonWord).join(", ")}]`;
  return INTEGERS.has(name) ? String(value) : pythonFloat(value);
}

function jsonWord({ word, start, end, probability }) {
  const times = `"word": ${jsonString(word)}, "start": ${pythonFloat(start)}, "end": ${pythonFloat(end)}`;
  return probability === undefined ? `{${times}}` : `{${times}, "probability": ${pythonFloat(probability)}}`;
}

/** json.dumps of text: ASCII only. */
function jsonString(text) {
  const escaped = JSON.stringify(text).replace(
    /[\x7f-\uffff]/g,
    (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
  return escaped;
}

/** repr() of a float: the same digits as JavaScript's, in another dress. */
function pythonFloat(value) {
  if (!Number.isFinite(value)) return Number.isNaN(value) ? "NaN" : value > 0 ? "Infinity" : "-Infinity";
  if (value === 0) return Object.is(value, -0) ? "-0.0" : "0.0";
  const size = Math.abs(value);
  if (size >= 1e16 || size < 1e-4) {
    const [mantissa, exponent] = value.toExponential().split("e");
    return `${mantissa}e${exponent[0]}${exponent.slice(1).padStart(2, "0")}`;
  }
  const digits = String(value);
  return digits.includes(".") ? digits : `${digits}.0`;
}
