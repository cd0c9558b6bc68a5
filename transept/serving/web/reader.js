// The right-hand side: one recording with its player, its transcript and what can be done with it.
// main.js makes one and calls `show`; it follows the queue by itself.

import { confirmed } from "./dialogs.js";
import { announce, byId, clockText, copyText, make, setText } from "./dom.js";
import { FindBar } from "./find-bar.js";
import { showMessage } from "./message-box.js";
import { Player } from "./player.js";
import { ACTIVE, RETRIABLE } from "./queue.js";
import { Transcript } from "./transcript.js";
import { TranscriptView } from "./transcript-view.js";
import { computePeaks } from "./waveform.js";
import { channelName, languageName, languageNotice, stateText, trackName, writtenIn } from "./words.js";

export class Reader {
  item = null;
  player = new Player();
  #queue;
  #server;
  #view = new TranscriptView();
  #find = new FindBar(this.#view, () => this.#edited());
  #transcript = null;
  #segments = null; // of the attempt that is shown
  #transcripts = new WeakMap(); // segments of an attempt -> Transcript, which knows what can be undone
  #undecodable = new Set(); // ids

  /** sendToText: called with a transcript's text; options: returns the options for transcribing again. */
  constructor(queue, server, { sendToText, options }) {
    this.#queue = queue;
    this.#server = server;
    queue.addEventListener("item", (event) => event.detail === this.item && this.#update());
    queue.addEventListener("segment", ({ detail: { item, index } }) => item === this.item && this.#append(index));
    server.addEventListener("change", () => this.#update());
    this.player.addEventListener("time", () => this.#showTime());
    byId("audio").addEventListener("loadedmetadata", () => this.#drawWaveform());

    this.#view.addEventListener("edit", () => this.#edited());
    this.#view.addEventListener("history", (event) => this.#step(event.detail));
    this.#view.addEventListener("leave", () => byId("play").focus());
    this.#view.addEventListener("play", ({ detail: { seconds, start } }) => this.#playFrom(seconds, start));
    this.#setEditable(false);

    byId("editing").addEventListener("click", () => this.#setEditable(byId("editing").getAttribute("aria-pressed") !== "true"));
    byId("undo").addEventListener("click", () => this.#step("undo"));
    byId("redo").addEventListener("click", () => this.#step("redo"));
    byId("copy").addEventListener("click", () => this.#copy());
    byId("to-text").addEventListener("click", () => sendToText(this.#transcript.flowing()));
    byId("again").addEventListener("click", () => this.#again(options()));
    byId("language-again").addEventListener("click", () =>
      this.#again({ ...this.item.options, model: byId("language-again").dataset.model, language: "" }),
    );
    byId("reader-retry").addEventListener("click", () => {
      queue.retry(this.item);
      byId("reader-title").focus();
    });
  }

  /** Shows a recording, or nothing. focus: the user asked for it, so the focus goes there. */
  async show(item, { focus = false } = {}) {
    this.item = item;
    byId("reader").hidden = !item;
    showMessage(byId("download-message"), "");
    this.player.unload();
    this.#segments = null;
    if (!item) {
      this.#view.show(null);
      this.#find.show(null);
      return;
    }
    byId("reader-title").textContent = item.name;
    this.#update();
    if (focus) {
      byId("reader-title").focus({ preventScroll: true });
      byId("reader").scrollIntoView({ block: "nearest" });
      if (matchMedia("(max-width: 860px)").matches) byId("reader").scrollIntoView(); // it stands below the list
    }
    const blob = await this.#queue.blob(item);
    if (this.item === item) this.player.load(blob, item);
  }

  openFind() {
    if (this.item?.segments.length) this.#find.open();
  }

  /** Undo or redo of an edit; returns whether there is a transcript that could. */
  #step(direction) {
    const changes = this.#transcript?.[direction]() ?? [];
    this.#view.update(changes, { focus: true });
    if (changes.length) this.#edited();
  }

  undoKey(event) {
    if (!(event.ctrlKey || event.metaKey) || event.altKey) return false;
    const key = event.key.toLowerCase();
    if (key !== "z" && key !== "y") return false;
    this.#step(key === "y" || event.shiftKey ? "redo" : "undo");
    return true;
  }

  #update() {
    const { item } = this;
    if (!item) return;
    if (item.segments !== this.#segments) this.#startOver();
    const active = ACTIVE.has(item.state);
    const said = item.segments.length > 0;
    const about = [
      item.state === "done" || !said ? "" : stateText(item, this.#server.state),
      item.duration === null ? "" : clockText(item.duration),
      this.#server.model(item.options.model)?.only_language ? "" : languageName(item.language),
      writtenIn(item) ? `translated to ${languageName(writtenIn(item))}` : "",
      channelName(item.options.channel),
      trackName(item.options.track),
      item.options.model,
    ];
    setText(byId("reader-about"), about.filter(Boolean).join(" · "));
    // everything is in place from the start, so that nothing moves
    byId("tools").hidden = !said && !(active || item.state === "waiting");
    for (const id of ["download", "copy", "find-open"]) byId(id).disabled = !said;
    byId("again").classList.toggle("reserved", item.state !== "done");
    byId("to-text").hidden = !this.#server.textModels.length;
    byId("to-text").disabled = item.state !== "done" || !said;
    if (item.duration !== null) this.player.setDuration(item.duration);
    this.#showWarnings();
    this.#showLanguageNotice();
    this.#showState(item, active, said);
    this.#showHistory();
  }

  /** The text in place of a transcript, or below an incomplete one. Progress is in the line under the title. */
  #showState(item, active, said) {
    const state = byId("reader-state");
    state.dataset.state = item.state;
    state.hidden = said && (active || item.state === "live" || item.state === "done");
    const text = stateText(item, this.#server.state, this.#server.model(item.options.model));
    const advice = item.reason ? `${item.reason[0].toUpperCase()}${item.reason.slice(1)}.` : "";
    if (item.state === "done") showMessage(byId("reader-state-text"), { message: "No speech was found in this recording.", advice });
    else showMessage(byId("reader-state-text"), item.state === "failed" ? { ...item, message: text } : text);
    state.classList.toggle("active", active);
    byId("reader-retry").hidden = !RETRIABLE.has(item.state);
  }

  #startOver() {
    const { item } = this;
    this.#segments = item.segments;
    this.#transcript = this.#transcripts.get(item.segments) ?? new Transcript(item);
    this.#transcripts.set(item.segments, this.#transcript);
    this.#view.show(this.#transcript, writtenIn(item) || (item.language ?? item.options.language));
    this.#find.show(this.#transcript);
  }

  #append(index) {
    if (this.item.segments !== this.#segments) this.#startOver();
    else this.#view.append(index);
    this.#find.refresh();
  }

  #showTime() {
    this.#view.showTime(this.player.touched ? this.player.position : -1, this.player.playing);
  }

  #edited() {
    this.#queue.save(this.item);
    this.#showTime(); // words have moved
    this.#showHistory();
    this.#find.refresh();
  }

  #showHistory() {
    byId("undo").disabled = !this.#transcript?.canUndo;
    byId("redo").disabled = !this.#transcript?.canRedo;
  }

  #setEditable(editable) {
    byId("editing").setAttribute("aria-pressed", String(editable));
    this.#view.setEditable(editable);
  }

  /** start: whether it plays then (true), stays as it is (false), or changes ("toggle"). */
  #playFrom(seconds, start) {
    if (start === "toggle" && this.player.playing) {
      this.player.pause();
      return;
    }
    this.player.seek(seconds);
    if (start) this.player.play();
  }

  /** Shows the faults of the recording, such as damage. */
  #showWarnings() {
    const list = byId("recording-warnings");
    const texts = (this.item.warnings ?? []).map((warning) => `The recording is ${warning}.`);
    list.hidden = !texts.length;
    if (list.textContent !== texts.join("")) list.replaceChildren(...texts.map((text) => make("li", { text })));
  }

  /** Shows below the tools that a model knows only one language, from the start, so that nothing moves. */
  #showLanguageNotice() {
    const notice = languageNotice(this.item, this.#server.model(this.item.options.model));
    const better = this.#server.speechModels.find(({ state, detects_language: detects }) => detects && state === "ready");
    const again = byId("language-again");
    byId("language-notice").hidden = !notice || (byId("tools").hidden && !notice.isWarning);
    byId("language-notice").classList.toggle("warning", Boolean(notice?.isWarning));
    setText(byId("language-notice-text"), notice?.text ?? "");
    again.hidden = !notice?.isWarning || !better;
    again.dataset.model = better?.id ?? "";
    setText(again, `Transcribe with ${better?.id}`);
  }

  async #again(options) {
    const { item } = this;
    const edits = Object.keys(item.edits).length;
    if (edits && !(await confirmed("Transcribe it again? Your edits of this transcript are dropped.", "Drop them"))) return;
    this.#queue.retry(item, options);
    byId("reader-title").focus();
  }

  async #copy() {
    const label = byId("copy").querySelector("span");
    try {
      await copyText(this.#transcript.lines());
      label.textContent = "Copied";
      announce("Copied.");
    } catch {
      label.textContent = "Not copied";
      announce("The browser did not let this page copy.");
    }
    setTimeout(() => (label.textContent = "Copy"), 1600);
  }

  async #drawWaveform() {
    const { item } = this;
    if (!item || item.peaks || this.#undecodable.has(item.id)) return;
    const blob = await this.#queue.blob(item);
    const peaks = blob && (await computePeaks(blob, this.player.duration || item.duration));
    if (!peaks) {
      this.#undecodable.add(item.id);
      return;
    }
    item.peaks = peaks;
    this.#queue.save(item);
    if (this.item === item) this.player.setPeaks(peaks);
  }
}
