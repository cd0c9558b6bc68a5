// A transcript on the page: a line a segment, the spoken word and found places highlighted, text edited in place.
// reader.js makes one. Each segment's text is a single text node; words and matches are ranges in it (CSS highlights),
// so that editing never meets markup. Who speaks stands above the first segment of a turn, and in each text's label.
// Undo is the transcript's own: the browser's knows nothing of replaced text.
//
// Events: "edit" (something changed), "play" (detail: seconds; null: at the cursor there is no time), "leave" (Esc).

import { byId, clockText, make } from "./dom.js";
import { caretOffset, offsetAt, rangeIn, selectionOffsets, setCaret } from "./ranges.js";

const HIGHLIGHTS = Boolean(globalThis.CSS?.highlights);
const EDGES = ["startContainer", "startOffset", "endOffset"];
const HANDS_OFF = 4000; // milliseconds after the user scrolls in which playback does not scroll

export class TranscriptView extends EventTarget {
  #list = byId("segments");
  #transcript = null;
  #language = "";
  #editable = true;
  #texts = []; // index -> the element with a segment's text
  #speaker = ""; // of the last segment that is shown
  #current = -1; // the segment that is spoken
  #reached = 0; // the segment that Tab reaches
  #scrolled = -HANDS_OFF;
  #spoken = HIGHLIGHTS ? new Highlight() : null;
  #found = HIGHLIGHTS ? new Highlight() : null;
  #foundNow = HIGHLIGHTS ? new Highlight() : null;

  constructor() {
    super();
    if (HIGHLIGHTS) {
      CSS.highlights.set("spoken", this.#spoken);
      CSS.highlights.set("found", this.#found);
      CSS.highlights.set("found-now", this.#foundNow);
      this.#foundNow.priority = 1;
    }
    for (const type of ["wheel", "touchmove"]) {
      addEventListener(type, () => (this.#scrolled = performance.now()), { passive: true });
    }
    const list = this.#list;
    list.addEventListener("click", (event) => this.#click(event));
    list.addEventListener("keydown", (event) => this.#key(event));
    list.addEventListener("beforeinput", (event) => this.#beforeInput(event));
    list.addEventListener("input", (event) => this.#input(event));
    list.addEventListener("focusin", (event) => this.#reach(this.#indexOf(event.target)));
  }

  show(transcript, language) {
    this.#transcript = transcript;
    this.#language = language ?? "";
    this.#texts = [];
    this.#speaker = "";
    this.#current = -1;
    this.#reached = 0;
    this.#spoken?.clear();
    this.showMatches([], -1);
    this.#list.replaceChildren();
    for (let index = 0; index < (transcript?.length ?? 0); index += 1) this.append(index);
  }

  /** Shows a new segment. */
  append(index) {
    const { start, speaker } = this.#transcript.segment(index);
    const shown = this.#transcript.shown(index);
    const time = make("button", {
      type: "button",
      class: "time",
      tabindex: -1, // by keyboard: Ctrl+Enter in the text
      text: clockText(start),
      "aria-label": `Play from ${clockText(start)}`,
    });
    const text = make("p", {
      class: "said",
      role: "textbox",
      "aria-label": speaker ? `${speaker}, text at ${clockText(start)}` : `Text at ${clockText(start)}`,
      "aria-multiline": "true",
      dir: "auto",
      lang: this.#language || null,
      text: shown,
    });
    const line = make("li", { class: "segment", "data-index": index }, time, text);
    line.hidden = shown === "" && !this.#transcript.isEdited(index);
    if (!line.hidden) this.#attribute(line, speaker || "");
    this.#texts[index] = text;
    this.#applyEditable(text, index);
    this.#list.append(line);
  }

  /** Shows the speaker of a line if it differs from the line before. */
  #attribute(line, speaker) {
    if (speaker === this.#speaker) return;
    this.#speaker = speaker;
    line.prepend(make("p", { class: "speaker", dir: "auto", text: speaker || "unknown speaker" }));
  }

  setEditable(editable) {
    this.#editable = editable;
    this.#list.classList.toggle("editable", editable);
    this.#texts.forEach((text, index) => this.#applyEditable(text, index));
  }

  /** Shows changed segments again: [{index, from, to}]. focus: moves the cursor to the first change. */
  update(changes, { focus = false } = {}) {
    for (const index of new Set(changes.map((change) => change.index))) {
      this.#texts[index].textContent = this.#transcript.shown(index);
      this.#texts[index].parentElement.hidden = false;
    }
    if (focus && changes.length) this.focus(changes[0].index, changes[0].to);
    this.#current = -1;
  }

  focus(index, offset = 0) {
    const text = this.#texts[index];
    if (!text) return;
    text.focus();
    setCaret(text, offset);
    scrollTo(text);
  }

  /** Marks the spoken segments and words at a time (-1: none). moving: playback is running, so the page scrolls along. */
  showTime(seconds, moving) {
    const isShown = (index) => this.#texts[index]; // a new one may not be shown yet
    const spoken = (this.#transcript?.segmentsAt(seconds) ?? []).filter(isShown);
    const index = spoken.at(-1) ?? -1;
    if (index !== this.#current) {
      this.#texts[this.#current]?.parentElement.removeAttribute("aria-current");
      this.#texts[index]?.parentElement.setAttribute("aria-current", "true");
      this.#current = index;
      if (index >= 0 && moving && this.#mayScroll()) scrollTo(this.#texts[index]);
    }
    if (!this.#spoken) return;
    const ranges = spoken.map((at) => this.#wordAt(at, seconds)).filter(Boolean);
    const before = [...this.#spoken];
    const isSame = (range, number) => before[number] && EDGES.every((edge) => before[number][edge] === range[edge]);
    if (ranges.length === before.length && ranges.every(isSame)) return;
    this.#spoken.clear();
    ranges.forEach((range) => this.#spoken.add(range));
  }

  /** The range of the word that is spoken at a time in a segment, or null. */
  #wordAt(index, seconds) {
    const word = this.#transcript.wordPlaces(index).findLast(({ start }) => start <= seconds);
    return word ? rangeIn(this.#texts[index], word) : null;
  }

  /** Marks matches, and scrolls to the current one. */
  showMatches(places, current) {
    this.#found?.clear();
    this.#foundNow?.clear();
    places.forEach(({ index, from, to }, number) => {
      const range = rangeIn(this.#texts[index], { from, to });
      if (range) (number === current ? this.#foundNow : this.#found)?.add(range);
    });
    const text = this.#texts[places[current]?.index];
    if (text) scrollTo(text);
  }

  #mayScroll() {
    const editing = this.#editable && this.#list.contains(document.activeElement);
    return !editing && performance.now() - this.#scrolled > HANDS_OFF;
  }

  #applyEditable(text, index) {
    if (this.#editable) {
      try {
        text.contentEditable = "plaintext-only";
      } catch {
        text.contentEditable = "true"; // #beforeInput keeps it plain
      }
    } else {
      text.removeAttribute("contenteditable");
    }
    if (this.#editable) text.removeAttribute("aria-readonly");
    else text.setAttribute("aria-readonly", "true");
    text.tabIndex = index === this.#reached ? 0 : -1;
  }

  /** Only the last focused segment is in the Tab order. Arrow keys move to the others. */
  #reach(index) {
    if (index < 0) return;
    if (this.#texts[this.#reached]) this.#texts[this.#reached].tabIndex = -1;
    this.#reached = index;
    this.#texts[index].tabIndex = 0;
  }

  #indexOf(element) {
    return Number(element.closest?.(".segment")?.dataset.index ?? -1);
  }

  #click(event) {
    const index = this.#indexOf(event.target);
    if (index < 0) return;
    if (event.target.closest(".time")) {
      this.#play(this.#transcript.segment(index).start, true);
    } else if (event.target.closest(".said") && getSelection().isCollapsed) {
      this.#play(this.#timeAt(index, offsetAt(event, this.#texts[index])), false);
    }
  }

  #play(seconds, start) {
    this.dispatchEvent(new CustomEvent("play", { detail: { seconds, start } }));
  }

  /** The start of the word at an offset of the shown text. */
  #timeAt(index, offset) {
    const words = this.#transcript.wordPlaces(index);
    const word = words.find(({ to }) => offset <= to) ?? words.at(-1);
    return word?.start ?? this.#transcript.segment(index).start;
  }

  #key(event) {
    const index = this.#indexOf(event.target);
    if (index < 0 || event.isComposing) return;
    const command = event.ctrlKey || event.metaKey;
    if (event.key === "Enter" && (command || !this.#editable)) {
      this.#play(this.#timeAt(index, caretOffset(this.#texts[index])), "toggle");
    } else if (event.key === "Enter") {
      this.focus(this.#neighbour(index, 1), 0);
    } else if (event.key === "Escape") {
      this.dispatchEvent(new Event("leave"));
    } else if (event.key === "ArrowUp" && !command && !event.shiftKey && this.#atEdge(index, "top")) {
      const before = this.#neighbour(index, -1);
      this.focus(before, this.#transcript.shown(before).length);
    } else if (event.key === "ArrowDown" && !command && !event.shiftKey && this.#atEdge(index, "bottom")) {
      this.focus(this.#neighbour(index, 1), 0);
    } else {
      return;
    }
    event.preventDefault();
    event.stopPropagation();
  }

  #neighbour(index, step) {
    let next = index + step;
    while (this.#texts[next]?.parentElement.hidden) next += step;
    return this.#texts[next] ? next : index;
  }

  /** True if the cursor is in the first or last line of a segment. */
  #atEdge(index, edge) {
    if (!this.#editable) return true;
    const caret = getSelection().rangeCount ? getSelection().getRangeAt(0).getClientRects()[0] : null;
    const box = this.#texts[index].getBoundingClientRect();
    return !caret || Math.abs(caret[edge] - box[edge]) < caret.height;
  }

  #beforeInput(event) {
    const index = this.#indexOf(event.target);
    const kind = event.inputType;
    if (kind === "historyUndo" || kind === "historyRedo") {
      event.preventDefault();
      this.dispatchEvent(new CustomEvent("history", { detail: kind === "historyUndo" ? "undo" : "redo" }));
    } else if (kind === "insertParagraph" || kind === "insertLineBreak" || kind.startsWith("format")) {
      event.preventDefault();
    } else if (kind.startsWith("insertFrom") && kind !== "insertFromComposition") {
      event.preventDefault(); // pasted or dropped: on one line, without any markup
      this.#insert(index, (event.dataTransfer?.getData("text/plain") ?? event.data ?? "").replace(/\s+/g, " "));
    }
  }

  #insert(index, inserted) {
    const text = this.#texts[index];
    const [from, to] = selectionOffsets(text);
    const shown = text.textContent;
    text.textContent = shown.slice(0, from) + inserted + shown.slice(to);
    setCaret(text, from + inserted.length);
    this.#changed(index, false);
  }

  #input(event) {
    this.#changed(this.#indexOf(event.target), true);
  }

  #changed(index, typing) {
    const text = this.#texts[index];
    this.#transcript.edit(index, text.textContent.replace(/[\r\n]+/g, " "), { typing });
    this.dispatchEvent(new Event("edit"));
  }
}

/** Scrolls only if the text is out of sight. style.css has the margins for fixed elements. */
function scrollTo(text) {
  const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
  text.parentElement.scrollIntoView({ block: "nearest", behavior: calm ? "auto" : "smooth" });
}
