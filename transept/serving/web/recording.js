// A recording of the queue: its fields, its order among the others, and the form in which it is sent. Used by queue.js.

import { PageError } from "./errors.js";
import { sizeText } from "./words.js";

const LEAST_WATCHED = 2000; // milliseconds of work before the pace is known

/** A new recording. A batch was added at once, at a time in milliseconds; index: the place in it. */
export const newRecording = ({ batch, index = 0, name, size = 0, options }) => ({
  id: newId(),
  batch,
  index,
  name: name || "recording",
  size,
  options: { ...options },
  ...nothingYet(),
});

/** The fields of a recording that an attempt fills. */
export function nothingYet() {
  return {
    state: "waiting",
    message: "", // reason of a failure or a pause, for the user
    advice: "", // of a failure: a remedy
    details: "", // of a failure: the server's own text
    sent: 0, // fraction
    position: null, // in the server's queue
    duration: null, // seconds
    seconds: 0, // done so far
    left: null, // estimated seconds of work; null: unknown
    language: null,
    warnings: [], // faults of the recording; each continues "the recording is"
    reason: null, // why the transcript is empty
    heard: undefined, // {language, probability, model} from a second model; null: not known
    segments: [], // as the server sent them
    growing: null, // the segment that is being spoken, of a live recording
    edits: {}, // index -> {text, words}: the edited version
    peaks: null, // of the waveform
  };
}

/** Raises PageError for an empty file, and for one over the server's limit in bytes. */
export function checkSize({ size }, most) {
  if (!size) throw new PageError("This file is empty.", "Add one with sound.");
  if (size > most) throw new PageError(`This file has ${sizeText(size)}, over the limit of ${sizeText(most)}.`, "Compress it, or split it into parts.");
}

const UNDER_WAY = new Set(["waiting", "sending", "queued", "running", "live"]);

export const isUnderWay = (item) => UNDER_WAY.has(item.state);
export const inOrder = (one, other) => other.batch - one.batch || one.index - other.index;
export const inTime = (one, other) => one.batch - other.batch || one.index - other.index;

export function pathOf(options) {
  return options.task === "translate" ? "v1/audio/translations" : "v1/audio/transcriptions";
}

/** The form of a recording, with its options. */
export function formOf(item, blob) {
  const { model, language, target, channel, track, diarize, speakers, words, prompt, hotwords } = item.options;
  const form = new FormData();
  form.append("model", model);
  form.append("stream", "true");
  form.append("progress", "true");
  if (language) form.append("language", language);
  if (target) form.append("target_language", target);
  if (channel) form.append("channel", channel);
  if (track) form.append("audio_track", track);
  if (diarize) form.append("diarize", "true");
  if (speakers) form.append("speakers", speakers);
  if (words) form.append("word_timestamps", "true");
  if (prompt) form.append("prompt", prompt);
  if (hotwords) form.append("hotwords", hotwords);
  form.append("file", blob, item.name); // last, so that the server knows the options first
  return form;
}

/** Seconds of work left; null: too early to estimate. `seconds` of `duration` were done in so many milliseconds. */
export function secondsLeft(seconds, duration, milliseconds) {
  if (!duration || !(seconds > 0) || !(milliseconds >= LEAST_WATCHED)) return null;
  return (Math.max(0, duration - seconds) / seconds) * (milliseconds / 1000);
}

/** Appends the growing segment of a live recording to the others. Returns true if there was one. */
export function settle(item) {
  if (!item.growing) return false;
  item.segments.push(item.growing);
  item.growing = null;
  return true;
}

/** crypto.randomUUID is for https and localhost only. */
function newId() {
  return Array.from(crypto.getRandomValues(new Uint8Array(12)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}
