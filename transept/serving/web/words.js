// Texts for a recording's state, in the queue, in the reader and to a screen reader. One place for its wording.

import { clockText, counted } from "./dom.js";

/** One line for the queue. `modelState` is of the model that it waits for. */
export function stateText(item, serverState, modelState) {
  switch (item.state) {
    case "waiting":
      if (serverState === "unreachable") return "Waiting for the server to come back";
      if (serverState === "loading" || modelState === "loading") return "Waiting for the model to load";
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
    case "done":
      return ["Done", item.duration === null ? "" : clockText(item.duration), languageName(item.language)]
        .filter(Boolean)
        .join(" · ");
    case "failed":
      return `Failed: ${item.message}`;
    case "cancelled":
      return item.segments.length ? "Cancelled; what had come is kept" : "Cancelled";
    case "elsewhere":
      return "Under way in another window";
    case "interrupted":
      return "Stopped when the page was reloaded";
    default:
      return "";
  }
}

/** "about 3 min left"; "" where it cannot be told yet. */
export function timeLeft(seconds) {
  if (typeof seconds !== "number") return "";
  if (seconds < 60) return seconds < 10 ? "a few seconds left" : "under a minute left";
  const minutes = Math.round(seconds / 60);
  const hours = Math.floor(minutes / 60);
  return `about ${hours ? `${hours} h ${minutes % 60} min` : `${minutes} min`} left`;
}

/** How far a recording is: sending is the first twentieth of the bar. */
export function fraction(item) {
  if (item.state === "sending") return 0.05 * item.sent;
  if (item.state === "running") return 0.05 + 0.95 * Math.min(1, item.duration ? item.seconds / item.duration : 0);
  return item.state === "queued" ? 0.05 : 0;
}

/** What a screen reader says of a change. */
export function announceable(item) {
  if (item.state === "done") return `${item.name} is done: ${counted(item.segments.length, "segment")}.`;
  if (item.state === "failed") return `${item.name} failed: ${[item.message, item.advice].filter(Boolean).join(" ")}`;
  return `${item.name} is being transcribed.`;
}

const percent = (part) => `${Math.round(100 * Math.min(1, part))} %`;

/** "left" -> "left channel"; of all that are heard there is nothing to say. */
export const channelName = (channel) => (channel === "left" || channel === "right" ? `${channel} channel` : "");

/** The code of the language that a recording is translated to; "" where that is not asked for. */
export const writtenIn = ({ options }) => options.target || (options.task === "translate" ? "en" : "");

/** "en" -> "English"; what the browser does not know stays as it is. */
export function languageName(code) {
  if (!code) return "";
  try {
    return new Intl.DisplayNames(["en"], { type: "language" }).of(code) ?? code;
  } catch {
    return code;
  }
}
