// Transcripts as files, byte for byte as transept/speech/output/ writes them.
// Called by downloads.js and reader.js. Each function takes segments as the server sends them ({start, end, text, words, speaker, ...}).
// What looks odd here (rounding, blanks, escapes) is Python's.

import { toKaraoke } from "./karaoke.js";
import { onOneLine, round, strip } from "./python-text.js";
import { attribution, makeCues, milliseconds } from "./subtitles.js";

// In the order of transept.speech.segments.Segment. "id" is the position, whatever the server calls it.
const INTEGERS = new Set(["seek"]);
const STRINGS = new Set(["text", "language", "speaker"]);
const SEGMENT_FIELDS = [
  "seek", "start", "end", "text", "tokens", "temperature", "avg_logprob", "compression_ratio", "no_speech_prob", "words",
  "language", "speaker",
]; // prettier-ignore

/** Formats by suffix: the word for it in a menu, its media type, and how it is written. */
export const FORMATS = {
  txt: { label: "Text", type: "text/plain", write: toPlainText },
  srt: { label: "Subtitles", type: "application/x-subrip", write: toSubRip },
  vtt: { label: "Web subtitles", type: "text/vtt", write: toWebVtt },
  json: { label: "Data", type: "application/json", write: toJson },
  tsv: { label: "Table", type: "text/tab-separated-values", write: toTable },
  csv: { label: "Spreadsheet", type: "text/csv", write: toCommaSeparated },
  lrc: { label: "Lyrics", type: "text/plain", write: toLyrics },
  ass: { label: "Karaoke", type: "text/x-ssa", write: toKaraoke },
};

export function toPlainText(segments) {
  return segments.map((segment) => `${attribution(segment)}${strip(segment.text)}\n`).join("");
}

export function toSubRip(segments) {
  const time = (total) => clock(total, ",", true);
  const escape = (text) => text.replaceAll("-->", "->"); // the arrow between two times must stay the only one
  return makeCues(segments, { escape })
    .map((cue, index) => `${index + 1}\n${time(cue.start)} --> ${time(cue.end)}\n${attribution(cue)}${cue.text}\n\n`)
    .join("");
}

export function toWebVtt(segments) {
  // A voice span is not shown in the line.
  const cues = makeCues(segments, { named: false, escape: escaped }).map(
    (cue) => `${clock(cue.start, ".")} --> ${clock(cue.end, ".")}\n${voice(cue)}${cue.text}\n\n`,
  );
  return `WEBVTT\n\n${cues.join("")}`;
}

/** WebVTT's voice span, which lasts to the end of its cue. */
function voice({ speaker }) {
  return speaker ? `<v ${escaped(speaker)}>` : "";
}

/** Text escaped for WebVTT. */
const escaped = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");

export function toTable(segments) {
  return rows(segments)
    .map((fields) => `${fields.map((field) => field.replaceAll("\t", " ")).join("\t")}\n`)
    .join("");
}

export function toCommaSeparated(segments) {
  const quoted = (field) => (/[",\r\n]/.test(field) ? `"${field.replaceAll('"', '""')}"` : field);
  return rows(segments)
    .map((fields) => `${fields.map(quoted).join(",")}\n`)
    .join("");
}

/** A table's head and its rows, times in whole milliseconds; with the speakers where there are any. */
function rows(segments) {
  const withSpeakers = segments.some(({ speaker }) => speaker);
  const row = (start, end, speaker, text) => (withSpeakers ? [start, end, speaker, text] : [start, end, text]);
  return [
    row("start", "end", "speaker", "text"),
    ...segments.map(({ start, end, speaker, text }) =>
      row(String(milliseconds(start)), String(milliseconds(end)), speaker || "", strip(text)),
    ),
  ];
}

export function toLyrics(segments) {
  const two = (number) => String(number).padStart(2, "0");
  return makeCues(segments)
    .map((cue) => {
      const hundredths = round(cue.start / 10);
      const seconds = Math.floor(hundredths / 100);
      const time = `${two(Math.floor(seconds / 60))}:${two(seconds % 60)}.${two(hundredths % 100)}`;
      return `[${time}]${onOneLine(attribution(cue) + cue.text)}\n`;
    })
    .join("");
}

export function toJson(segments, language) {
  const listed = segments.map((segment, index) => {
    const fields = SEGMENT_FIELDS.filter((name) => isKnown(name, segment[name]));
    return `{"id": ${index}, ${fields.map((name) => `"${name}": ${jsonField(name, segment[name])}`).join(", ")}}`;
  });
  const text = segments.map((segment) => segment.text).join("");
  return `{"text": ${jsonString(text)}, "segments": [${listed.join(", ")}], "language": ${jsonString(language)}}`;
}

/** In a stream a speaker is empty where nobody knows who it is. */
function isKnown(name, value) {
  return value !== undefined && value !== null && !(name === "speaker" && value === "");
}

/** What one copies: a line a segment. */
export const toClipboard = (segments) => toPlainText(segments).trim();

/** All that is said on one line, as models of text read it. */
export const toFlowingText = (segments) => segments.map((segment) => strip(segment.text)).filter(Boolean).join(" ");

/** [HH:]MM:SS.mmm */
function clock(total, point, hours = false) {
  const two = (number) => String(number).padStart(2, "0");
  const fullHours = Math.floor(total / 3_600_000);
  const head = hours || fullHours ? `${two(fullHours)}:` : "";
  const rest = `${two(Math.floor(total / 60_000) % 60)}:${two(Math.floor(total / 1000) % 60)}`;
  return `${head}${rest}${point}${String(total % 1000).padStart(3, "0")}`;
}

function jsonField(name, value) {
  if (STRINGS.has(name)) return jsonString(value);
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
