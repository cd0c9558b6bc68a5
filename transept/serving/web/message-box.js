// A message to the user: what is wrong and what would work, with the technical details folded away below.
// Called by every module that shows an error; errors.js finds the words.

import { make } from "./dom.js";

/** Shows a message in an element, which is hidden where there is none. A string is a message without details. */
export function showMessage(box, problem) {
  const { message = "", advice = "", details = "" } = typeof problem === "string" ? { message: problem } : problem;
  const shown = JSON.stringify([message, advice, details]);
  box.hidden = !message;
  if (box.dataset.shown === shown) return; // folded out details stay so, and a screen reader hears it once
  box.dataset.shown = shown;
  box.replaceChildren(make("p", { text: [message, advice].filter(Boolean).join(" ") }));
  if (details) {
    box.append(make("details", {}, make("summary", { text: "Details" }), make("p", { class: "technical", text: details })));
  }
}
