// The captions of the Live tab: lines of final text, and at the end the text that may still change. live-tab.js makes one.
// It stays at the newest line, unless the reader has scrolled back.

import { make, setText } from "./dom.js";

const MOST_LINES = 200; // the whole transcript is under Transcribe
const NEAR = 60; // pixels from the end that count as the end

export class Captions {
  #box;
  #line = null; // {final, tentative}, the elements of the current line

  constructor(box) {
    this.#box = box;
    new ResizeObserver(() => this.toEnd()).observe(box);
  }

  /** Shows a hint only. */
  clear(hint) {
    this.#line = null;
    this.#box.replaceChildren(make("p", { class: "captions-hint", text: hint }));
  }

  /** Adds final text to the line. language: its code, or "". */
  add(text, language) {
    this.#change(({ line, final, tentative }) => {
      if (language) line.lang = language;
      final.append(final.textContent ? text : text.trimStart());
      const [expected, added] = [tentative.textContent.trimStart(), text.trim()];
      setText(tentative, expected.startsWith(added) ? expected.slice(added.length) : "");
    });
  }

  /** Shows the text that may still change, after the final text. */
  tentative(text) {
    if (text || this.#line) this.#change(({ final, tentative }) => setText(tentative, final.textContent ? text : text.trimStart()));
  }

  /** The next text begins a new line. */
  endLine() {
    if (!this.#line) return;
    if (this.#line.final.textContent) this.#line.tentative.remove();
    else this.#line.line.remove();
    this.#line = null;
  }

  #change(act) {
    const box = this.#box;
    const atEnd = box.scrollHeight - box.scrollTop - box.clientHeight < NEAR;
    this.#line ??= this.#newLine();
    act(this.#line);
    if (atEnd) this.toEnd();
  }

  /** True if there is more than a hint. */
  get hasText() {
    return this.#box.querySelector("p:not(.captions-hint)") !== null;
  }

  /** Scrolls to the newest line. */
  toEnd() {
    this.#box.scrollTop = this.#box.scrollHeight;
  }

  #newLine() {
    this.#box.querySelector(".captions-hint")?.remove();
    const [final, tentative] = [make("span"), make("span", { class: "tentative", "aria-hidden": "true" })];
    const line = make("p", { dir: "auto" }, final, tentative);
    this.#box.append(line);
    if (this.#box.children.length > MOST_LINES) this.#box.firstChild.remove();
    return { line, final, tentative };
  }
}
