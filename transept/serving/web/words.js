// Texts for a recording's state, in the queue, in the reader and for screen readers, all in one place.

import { clockText, counted } from "./dom.js";

const SURE = 0.5; // probability from which a detected language counts
const UNSURE = -0.7; // mean log probability; tiny.en is below it with French and Spanish, and with 1 of 54 English prompts

/** One line for the queue. model: the recording's model, as the server describes it. */
export function stateText(item, serverState, model) {
  switch (item.state) {
    case "waiting":
      if (serverState === "unreachable") return "Waiting for the server to come back";
      if (serverState === "loading" || model?.state === "loading") return "Waiting for the model to load";
      if (serverState === "locked") return "Waiting for the key";
      return "Waiting";
    case "sending":
      return item.sent > 0 && item.sent < 1 ? `Sending · ${percent(item.sent)}` : "Sending";
    case "queued":
      if (item.message) return item.message;
      return item.position > 0 ? `In the server’s queue · place ${item.position}` : "About to begin";
    case "running":
      return ["Transcribing", item.duration ? percent(item.seconds / item.duration) : "", timeLeft(item.left)]
        .filter(Boolean)
        .join(" · ");
    case "live":
      return `Live now · ${clockText(item.duration)}`;
    case "done":
      return ["Done", item.duration === null ? "" : clockText(item.duration), model?.only_language ? "" : languageName(item.language)]
        .filter(Boolean)
        .join(" · ");
    case "failed":
      return `Failed: ${item.message}`;
    case "cancelled":
      return item.segments.length ? "Cancelled; the text so far is kept" : "Cancelled";
    case "elsewhere":
      return "Running in another window";
    case "interrupted":
      return "Stopped when the page was reloaded";
    default:
      return "";
  }
}

/** "about 3 min left"; "" if it is not known yet. */
export function timeLeft(seconds) {
  if (typeof seconds !== "number") return "";
  if (seconds < 60) return seconds < 10 ? "a few seconds left" : "under a minute left";
  const minutes = Math.round(seconds / 60);
  const hours = Math.floor(minutes / 60);
  return `about ${hours ? `${hours} h ${minutes % 60} min` : `${minutes} min`} left`;
}

/** The text while the server has no free place and the page tries again in so many seconds. */
export function waitText(seconds, error) {
  const when = `trying again in ${Math.max(1, Math.round(seconds))} s`;
  return error.status === 429 ? `The server is busy; ${when}` : `The server is not ready; ${when}`;
}

/** 536870912 -> "512 MiB", as the server says it. */
export function sizeText(bytes) {
  const units = ["bytes", "KiB", "MiB", "GiB"];
  const power = Math.min(units.length - 1, Math.floor(Math.log2(Math.max(1, bytes)) / 10));
  const number = bytes / 1024 ** power;
  return `${number < 10 ? Math.round(10 * number) / 10 : Math.round(number)} ${units[power]}`;
}

/** 14400 -> "4 hours", 5400 -> "90 minutes", 45 -> "45 seconds". */
export function durationText(seconds) {
  for (const [unit, noun] of [[3600, "hour"], [60, "minute"]]) {
    if (seconds >= unit && seconds % unit === 0) return counted(seconds / unit, noun);
  }
  return seconds >= 3600 ? counted(Math.round(seconds / 60), "minute") : counted(Math.round(seconds), "second");
}

/** The server's limits on recordings: "Up to 512 MiB and 4 hours each. ..." */
export function limitsText({ max_upload_bytes: bytes, max_audio_seconds: seconds, max_running: running, max_queue: queue }, waiting) {
  const most = [bytes ? sizeText(bytes) : "", seconds ? durationText(seconds) : ""].filter(Boolean).join(" and ");
  const places = running ? `The server works on ${running} at a time${queue ? `, and ${queue} more may wait` : ""}.` : "";
  return [most ? `Up to ${most} each.` : "", places, waiting ? `${waiting} waiting now.` : ""].filter(Boolean).join(" ");
}

/**
 * The note on a model that knows one language: {text, isWarning}, or null for other models. It is a warning if another
 * model detected another language or, if there is no such check, if the model was unsure of its text.
 */
export function languageNotice(item, model) {
  const only = model?.only_language;
  if (!only) return null;
  const [knows, name] = [languageName(only), model.id];
  const heard = item.heard?.probability >= SURE ? item.heard : null;
  if (heard && heard.language !== only) {
    return { text: `This sounds like ${languageName(heard.language)}, and ${name} knows ${knows} only.`, isWarning: true };
  }
  if (!heard && item.state === "done" && confidence(item.segments) < UNSURE) {
    const text = `${name} knows ${knows} only, and was unsure of this text. Is another language spoken here?`;
    return { text, isWarning: true };
  }
  return { text: `${name} knows ${knows} only.`, isWarning: false };
}

/** The mean log probability of a transcript's tokens, by the time of its segments. */
function confidence(segments) {
  const timed = segments.filter(({ avg_logprob: logprob }) => logprob !== undefined);
  const seconds = timed.reduce((sum, { start, end }) => sum + end - start, 0);
  return timed.reduce((sum, { start, end, avg_logprob: logprob }) => sum + (end - start) * logprob, 0) / (seconds || 1);
}

/** How far a recording is: sending is the first twentieth of the bar. */
export function fraction(item) {
  if (item.state === "sending") return 0.05 * item.sent;
  if (item.state === "running") return 0.05 + 0.95 * Math.min(1, item.duration ? item.seconds / item.duration : 0);
  return item.state === "queued" ? 0.05 : 0;
}

/** The text of a change for screen readers. */
export function announceable(item) {
  if (item.state === "done") return `${item.name} is done: ${counted(item.segments.length, "segment")}.`;
  if (item.state === "failed") return `${item.name} failed: ${[item.message, item.advice].filter(Boolean).join(" ")}`;
  return `${item.name} is being transcribed.`;
}

const percent = (part) => `${Math.round(100 * Math.min(1, part))} %`;

/** "left" -> "left channel"; a mix has no name. */
export const channelName = (channel) => (channel === "left" || channel === "right" ? `${channel} channel` : "");

/** "1" -> "audio track 1"; the automatic choice has no name. */
export const trackName = (track) => (track ? `audio track ${track}` : "");

/** The code of the language that a recording is translated to; "" without translation. */
export const writtenIn = ({ options }) => options.target || (options.task === "translate" ? "en" : "");

/** "en" -> "English"; unknown codes stay unchanged. */
export function languageName(code) {
  if (!code) return "";
  try {
    return new Intl.DisplayNames(["en"], { type: "language" }).of(code) ?? code;
  } catch {
    return code;
  }
}
