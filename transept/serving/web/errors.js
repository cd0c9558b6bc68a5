// Error messages for the user. The server's own message, for programs and operators, becomes the details.
// Called by queue.js, downloads.js, text-tab.js, image-queue.js and live-tab.js; message-box.js shows the result.

import { ApiError, UnreachableError } from "./api.js";

const UNREADABLE = {
  recording: ["This file is not audio that can be read.", "Recordings and videos with sound work, such as mp3, m4a, wav or mp4."],
  image: ["This file is not an image that can be read.", "PNG, JPEG, WebP, GIF, TIFF and BMP files work."],
  text: ["This text cannot be read.", "Paste plain text."],
  transcript: ["This transcript cannot be read.", "Transcribe the recording again."],
};
const TOO_LARGE = {
  recording: ["This recording is too long for this server.", "Split it into parts, and add those."],
  image: ["This image is too large for this server.", "Make it smaller, and try again."],
  text: ["This text is too long for this server.", "Take a part of it."],
  transcript: ["This transcript is too long for this server.", "Copy its text instead."],
};
const CHANNELS = ["The channels are not what you chose.", "Choose “Mixed” under Channels, and try again."];
const TRACK = ["This file has no such audio track.", "Clear “Audio track”, or choose another one, and try again."];
const MODEL = ["This model is no longer available.", "Choose another one, and try again."];
const KEY = ["This server needs a key.", "Enter the key, and try again."];
const SLOW = ["The upload was too slow.", "Try again over a better connection."];
const BUSY = ["The server is busy.", "Try again in a moment."];
const DISK = ["The server has no room for this file.", "Try again later, or tell the people who run the server."];
const NOT_LIVE = ["This server has no live captions.", "Record instead, under Transcribe."];
const STOPPED = ["The server stopped before this was done.", "Try again in a moment."];
const LABELS = {
  language: "Language",
  target_language: "Write in",
  channel: "Channels",
  audio_track: "Audio track",
  diarize: "Tell speakers apart",
  speakers: "Number of speakers",
  word_timestamps: "Times of words",
  prompt: "Context",
  initial_prompt: "Context",
  hotwords: "Words to look out for",
  keywords: "Words to look out for",
  source: "From",
  target: "To",
  task: "Task",
};

/** An error of the page itself, whose text is already for the user. */
export class PageError extends Error {
  constructor(message, advice = "") {
    super(message);
    Object.assign(this, { name: "PageError", advice });
  }
}

/** An error as the user sees it: {message, advice, details}. subject: "recording", "image", "text", "transcript" or "stream". */
export function inPlainWords(error, subject) {
  if (error instanceof PageError) return { message: error.message, advice: error.advice, details: "" };
  if (error instanceof UnreachableError) return { message: error.message, advice: "Try again in a moment.", details: "" };
  if (!(error instanceof ApiError)) {
    return { message: "This page failed.", advice: "Reload it, and try again.", details: `${error.name}: ${error.message}` };
  }
  const [message, advice] = wordsFor(error, subject);
  return { message, advice, details: technical(error) };
}

function wordsFor({ status, code, param }, subject) {
  if (subject === "stream" && status === 404 && code !== "model_not_found") return NOT_LIVE;
  if (code === "invalid_media") return { channel: CHANNELS, audio_track: TRACK }[param] ?? UNREADABLE[subject];
  if (code === "invalid_prompt") return UNREADABLE.text;
  if (code === "too_large" || status === 413) return TOO_LARGE[subject];
  if (code === "model_not_found" || code === "wrong_model_kind" || (status === 503 && code === "failed")) return MODEL;
  if (status === 401) return KEY;
  if (status === 408) return SLOW;
  if (status === 429) return BUSY;
  if (code === "disk_full") return DISK;
  if (status >= 502 || code === "unavailable" || code === "draining") return STOPPED;
  if (status === 500) return [`The server failed on this ${subject}.`, "Try again. If it fails again, tell the people who run the server."];
  const field = param?.split(".").at(-1);
  if (field in LABELS) return [`“${LABELS[field]}” has an invalid value.`, "Change it, and try again."];
  return [`The server did not take this ${subject}.`, "The details say why."];
}

/** The server's own text, with the status, code and request id, to find it in the server's log. */
function technical({ message, status, code, requestId }) {
  const known = [`status ${status}`, code, requestId ? `request ${requestId}` : ""].filter(Boolean);
  return `${message} (${known.join(", ")})`;
}
