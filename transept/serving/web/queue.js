// The recordings of this browser, with their states and transcripts. Does not use the DOM.
// main.js adds files, and live-tab.js a recording that grows while it is spoken; queue-view.js and reader.js show them.
// Sends two recordings at a time, and waits when the server is busy. Stores every change.
//
// Events: "list" (order or number), "item" (detail: item), "segment" (detail: {item, index}), "said" (detail: message), "warning"
// (detail: message).

import { ApiError, UnreachableError, errorInStream, politely, upload } from "./api.js";
import { PageError, inPlainWords } from "./errors.js";
import { checkSize, formOf, inOrder, inTime, isUnderWay, newRecording, nothingYet, pathOf, secondsLeft, settle } from "./recording.js";
import { OtherWindows } from "./windows.js";
import { announceable, waitText } from "./words.js";

const AT_ONCE = 2;
const MOST_ITEMS = 300;
const SAVE_PAUSE = 250; // milliseconds until a change is stored
const SAVE_PAUSE_RUNNING = 2000; // while segments arrive

export const ACTIVE = new Set(["sending", "queued", "running"]);
const FINAL = new Set(["done", "failed", "cancelled"]);
export const RETRIABLE = new Set(["failed", "cancelled", "interrupted"]);

export class Queue extends EventTarget {
  items = []; // newest batch first, in it as dropped
  #store;
  #server;
  #blobs = new Map(); // id -> File of this visit, in case the store is full
  #controllers = new Map(); // id -> AbortController of its request
  #timers = new Map(); // id -> {due, timer} of the next write to the store
  #begun = new Map(); // id -> when the server started on it, in milliseconds of performance.now()
  #live = new Set(); // ids of the recordings that are spoken in this window
  #others = new OtherWindows(() => [...this.#controllers.keys(), ...this.#live]);

  constructor(store, server) {
    super();
    this.#store = store;
    this.#server = server;
    server.addEventListener("change", () => this.#pump());
    this.#others.addEventListener("changed", (event) => this.#follow(event.detail));
  }

  /**
   * Restores the recordings of earlier visits. Unfinished ones become "interrupted", or "elsewhere" if another window
   * works on them. A live one becomes done, with the text so far.
   */
  async restore() {
    const items = (await this.#store.items()).sort(inOrder);
    const left = items.filter(isUnderWay);
    const elsewhere = left.length ? await this.#others.running() : new Set();
    for (const item of left) {
      const wasLive = item.state === "live";
      Object.assign(item, { state: elsewhere.has(item.id) ? "elsewhere" : wasLive ? "done" : "interrupted", message: "" });
      if (item.state === "done") settle(item);
    }
    this.items = items;
    this.#tell("list");
  }

  /** Applies a change of another window, unless this window works on the recording. */
  async #follow(id) {
    const isOurs = () => this.#controllers.has(id) || this.#live.has(id) || this.#timers.has(id);
    const kept = isOurs() ? null : await this.#store.item(id);
    if (kept === null || isOurs()) return;
    const item = this.find(id);
    if (!kept) {
      this.items = this.items.filter((each) => each.id !== id);
      this.#tell("list");
      return;
    }
    if (isUnderWay(kept)) kept.state = "elsewhere";
    if (item) {
      Object.assign(item, kept);
      this.#tell("item", item);
    } else {
      this.items = [...this.items, kept].sort(inOrder);
      this.#tell("list");
    }
  }

  find(id) {
    return this.items.find((item) => item.id === id);
  }

  get unfinished() {
    return this.items.filter((item) => item.state === "waiting" || ACTIVE.has(item.state));
  }

  /** Adds files and begins with them. Returns the new items. */
  add(files, options) {
    const room = Math.max(0, MOST_ITEMS - this.items.length);
    if (files.length > room) {
      this.#tell("warning", `The list holds ${MOST_ITEMS} recordings. Remove some to add more.`);
    }
    const batch = Date.now();
    const added = files
      .slice(0, room)
      .map((file, index) => newRecording({ batch, index, name: file.name, size: file.size, options }));
    added.forEach((item, index) => this.#blobs.set(item.id, files[index]));
    this.items = [...added, ...this.items].sort(inOrder);
    this.#tell("list");
    added.forEach((item) => this.#keep(item));
    this.#pump();
    return added;
  }

  /** Begins a recording whose transcript grows while it is spoken. Returns the new item, whose state is "live". */
  open(name, options) {
    const item = { ...newRecording({ batch: Date.now(), name, options }), state: "live", duration: 0 };
    this.#live.add(item.id);
    this.items = [item, ...this.items].sort(inOrder);
    this.#tell("list");
    this.#saveNow(item);
    return item;
  }

  /** Changes a live recording: its `growing` segment, `duration` or `language`. */
  grow(item, change) {
    this.#set(item, change, { keep: "growing" in change, wait: SAVE_PAUSE_RUNNING });
  }

  /** Ends the growing segment of a live recording: the next words begin another one. */
  settle(item) {
    if (settle(item)) this.#tell("segment", { item, index: item.segments.length - 1 });
    this.#set(item, {}, { wait: SAVE_PAUSE_RUNNING });
  }

  /** Ends a live recording. file: its sound, or null. Removes it if it has neither sound nor text. */
  async close(item, file) {
    this.settle(item);
    this.#live.delete(item.id);
    if (!this.items.includes(item)) return;
    if (!file && !item.segments.length) {
      await this.remove(item);
      return;
    }
    if (file) this.#blobs.set(item.id, file);
    this.#set(item, { state: "done", size: file?.size ?? 0 });
    if (file) await this.#keep(item);
  }

  /** The sound, or null if this browser no longer has it. */
  async blob(item) {
    const blob = this.#blobs.get(item.id) ?? (await this.#store.file(item.id)) ?? null;
    if (!blob) return null;
    try {
      await blob.slice(0, 1).arrayBuffer(); // a file that was moved or changed since can no longer be read
      return blob;
    } catch {
      return null;
    }
  }

  cancel(item) {
    this.#controllers.get(item.id)?.abort();
    if (item.state === "waiting") this.#set(item, { state: "cancelled", message: "" });
  }

  /** Transcribes a recording again, and drops its earlier transcript and edits. */
  retry(item, options = item.options) {
    this.cancel(item);
    this.#set(item, { ...nothingYet(), peaks: item.peaks, options: { ...options } });
    this.#pump();
  }

  /** Stores the language that another model detected in a recording: {language, probability, model}. */
  hear(item, heard) {
    this.#set(item, { heard });
  }

  async remove(item) {
    this.cancel(item);
    this.#forget(item);
    this.items = this.items.filter((each) => each !== item);
    this.#tell("list");
    await this.#store.remove(item.id);
    this.#others.tell(item.id);
  }

  async clear() {
    const { items } = this;
    for (const item of this.items) {
      this.cancel(item);
      this.#forget(item);
    }
    this.items = [];
    this.#live.clear();
    this.#tell("list");
    await this.#store.clear();
    items.forEach((item) => this.#others.tell(item.id));
  }

  /** Stores an item after a pause; also called for edits. */
  save(item, wait = SAVE_PAUSE) {
    const due = performance.now() + wait;
    const pending = this.#timers.get(item.id);
    if (pending && pending.due <= due) return;
    clearTimeout(pending?.timer);
    this.#timers.set(item.id, { due, timer: setTimeout(() => this.#saveNow(item), wait) });
  }

  /** Stores all changes at once, because the page may be closed. */
  flush() {
    for (const id of [...this.#timers.keys()]) this.#saveNow(this.find(id));
  }

  #saveNow(item) {
    clearTimeout(this.#timers.get(item?.id)?.timer);
    this.#timers.delete(item?.id);
    if (!item || !this.items.includes(item)) return;
    this.#store.putItem(item).then(
      () => this.#others.tell(item.id),
      () => this.#tell("warning", NOT_KEPT),
    );
  }

  #forget(item) {
    clearTimeout(this.#timers.get(item.id)?.timer);
    this.#timers.delete(item.id);
    this.#blobs.delete(item.id);
  }

  async #keep(item) {
    this.#saveNow(item);
    const finished = this.items.filter((each) => each !== item && each.state === "done").map((each) => each.id);
    const { kept } = await this.#store.putFile(item.id, this.#blobs.get(item.id), finished.reverse());
    if (!this.items.includes(item)) await this.#store.remove(item.id); // removed during the write
    else if (!kept) this.#set(item, { unkept: true });
  }

  #pump() {
    if (this.#server.state !== "ready") return;
    const waiting = this.items.filter((item) => item.state === "waiting" && this.#modelIsReady(item)).sort(inTime);
    for (const item of waiting.slice(0, Math.max(0, AT_ONCE - this.#controllers.size))) this.#run(item);
  }

  #modelIsReady(item) {
    return this.#server.model(item.options.model)?.state !== "loading";
  }

  async #run(item) {
    const controller = new AbortController();
    const { signal } = controller;
    this.#controllers.set(item.id, controller);
    this.#set(item, { ...nothingYet(), peaks: item.peaks, state: "sending" });
    try {
      const blob = await this.blob(item);
      if (!blob) throw new PageError("This browser no longer has the file.", "Remove it here, and add it again.");
      checkSize(blob, this.#server.limits.max_upload_bytes ?? Infinity);
      const onWait = (seconds, error) =>
        this.#set(item, { state: "queued", position: null, message: waitText(seconds, error) });
      await politely(() => this.#send(item, blob, signal), { signal, onWait });
    } catch (error) {
      await this.#fail(item, error, signal);
    } finally {
      if (this.#controllers.get(item.id) === controller) this.#controllers.delete(item.id);
      this.#pump();
    }
  }

  async #send(item, blob, signal) {
    this.#set(item, { ...nothingYet(), peaks: item.peaks, state: "sending" });
    let done = false;
    await upload(pathOf(item.options), formOf(item, blob), {
      signal,
      onSent: (fraction) => {
        if (item.state === "sending") this.#set(item, { sent: fraction }, { keep: false });
      },
      onEvent: (event) => {
        if (signal.aborted) return;
        if (event.error) throw errorInStream(event.error);
        done ||= event.type === "transcript.text.done";
        this.#take(item, event);
      },
    });
    if (!done) throw new UnreachableError("The server stopped before the transcript was complete.");
  }

  #take(item, event) {
    if (event.type === "transcript.queued") {
      this.#set(item, { state: "queued", position: event.position, message: "" }, { keep: false });
    } else if (event.type === "transcript.opened") {
      this.#begun.set(item.id, performance.now());
      this.#set(item, { state: "running", duration: event.duration, message: "" });
      this.#tell("said", announceable(item));
    } else if (event.type === "transcript.info") {
      this.#set(item, { warnings: event.warnings ?? [] });
    } else if (event.type === "transcript.progress") {
      this.#set(item, { state: "running", ...this.#reached(item, event.seconds) }, { keep: false });
    } else if (event.type === "transcript.text.segment") {
      const { type, ...segment } = event;
      item.segments.push(segment);
      this.#set(item, { state: "running", ...this.#reached(item, segment.end) }, { wait: SAVE_PAUSE_RUNNING });
      this.#tell("segment", { item, index: item.segments.length - 1 });
    } else if (event.type === "transcript.text.done") {
      const duration = event.duration ?? item.duration;
      if (!item.segments.length && event.text) {
        item.segments.push({ start: 0, end: duration ?? 0, text: event.text });
        this.#tell("segment", { item, index: 0 });
      }
      const { warnings = item.warnings, reason = null, language = item.language } = event;
      this.#set(item, { state: "done", duration, language, warnings, reason, message: "" });
      this.#tell("said", announceable(item));
    }
  }

  /** The progress of a recording, and the time left at the current pace. */
  #reached(item, end) {
    const seconds = Math.max(item.seconds, end);
    return { seconds, left: secondsLeft(seconds, item.duration, performance.now() - this.#begun.get(item.id)) };
  }

  async #fail(item, error, signal) {
    if (!this.items.includes(item)) return;
    if (signal.aborted || error.name === "AbortError") {
      if (this.#controllers.get(item.id)?.signal === signal) this.#set(item, { state: "cancelled", message: "" });
      return;
    }
    const problem = inPlainWords(error, "recording");
    if (error instanceof UnreachableError) {
      const begun = item.segments.length > 0;
      await this.#server.refresh();
      if (this.#server.state !== "ready" && !begun) {
        this.#set(item, { ...nothingYet(), peaks: item.peaks }); // it continues once the server is back
        return;
      }
      if (!begun) Object.assign(problem, BROKE_OFF);
      else problem.advice = "The text so far is kept.";
    } else if (!(error instanceof ApiError || error instanceof PageError)) {
      console.error(error);
    }
    this.#set(item, { state: "failed", ...problem });
    this.#tell("said", announceable(item));
    if (error.status === 401) this.#server.refresh();
  }

  #set(item, change, { keep = true, wait = SAVE_PAUSE } = {}) {
    Object.assign(item, change);
    if (FINAL.has(change.state)) this.#saveNow(item);
    else if (keep && this.items.includes(item)) this.save(item, wait);
    this.#tell("item", item);
  }

  #tell(type, detail) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }
}

const BROKE_OFF = { message: "The connection broke while the file was sent.", advice: "It may be larger than the server takes." };
const NOT_KEPT = "The browser has no room left: changes are lost when this page is reloaded. Download what matters.";
