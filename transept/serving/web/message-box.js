// A message to the user: the problem and a remedy, with the technical details collapsed below.
// Called by every module that shows an error; errors.js writes the text.

import { make } from "./dom.js";

/** Shows a message in an element, or hides it without a message. A string is a message without details. */
export function showMessage(box, problem) {
  const { message = "", advice = "", details = "" } = typeof problem === "string" ? { message: problem } : problem;
  const shown = JSON.stringify([message, advice, details]);
  box.hidden = !message;
  if (box.dataset.shown === shown) return; // expanded details stay open, and a screen reader reads the message once
  box.dataset.shown = shown;
  box.replaceChildren(make("p", { text: [message, advice].filter(Boolean).join(" ") }));
  if (details) {
    box.append(make("details", {}, make("summary", { text: "Details" }), make("p", { class: "technical", text: details })));
  }
}
