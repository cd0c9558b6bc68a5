// The recordings of this browser, with their states and transcripts. Does not use the DOM.
// main.js adds files; queue-view.js and reader.js show them. Sends two recordings at a time, and waits when the server is
// busy. Stores every change.
//
// Events: "list" (order or number), "item" (detail: item), "segment" (detail: {item, index}), "said" (detail: message), "warning"
// (detail: message).

import { ApiError, UnreachableError, errorInStream, politely, upload } from "./api.js";
import { PageError, inPlainWords } from "./errors.js";
import { OtherWindows } from "./windows.js";
import { announceable, sizeText, waitText } from "./words.js";

const AT_ONCE = 2;
const MOST_ITEMS = 300;
const SAVE_PAUSE = 250; // milliseconds until a change is stored
const SAVE_PAUSE_RUNNING = 2000; // while segments arrive
const LEAST_WATCHED = 2000; // milliseconds of work before the pace is known

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
  #others = new OtherWindows(() => [...this.#controllers.keys()]);

  constructor(store, server) {
    super();
    this.#store = store;
    this.#server = server;
    server.addEventListener("change", () => this.#pump());
    this.#others.addEventListener("changed", (event) => this.#follow(event.detail));
  }

  /**
   * Restores the recordings of earlier visits. Unfinished ones become "interrupted", or "elsewhere" if another window
   * works on them.
   */
  async restore() {
    const items = (await this.#store.items()).sort(inOrder);
    const left = items.filter(isUnderWay);
    const elsewhere = left.length ? await this.#others.running() : new Set();
    for (const item of left) Object.assign(item, { state: elsewhere.has(item.id) ? "elsewhere" : "interrupted", message: "" });
    this.items = items;
    this.#tell("list");
  }

  /** Applies a change of another window, unless this window works on the recording. */
  async #follow(id) {
    const isOurs = () => this.#controllers.has(id) || this.#timers.has(id);
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
    const added = files.slice(0, room).map((file, index) => ({
      id: newId(),
      batch,
      index,
      name: file.name || "recording",
      size: file.size,
      options: { ...options },
      ...nothingYet(),
    }));
    added.forEach((item, index) => this.#blobs.set(item.id, files[index]));
    this.items = [...added, ...this.items].sort(inOrder);
    this.#tell("list");
    added.forEach((item) => this.#keep(item));
    this.#pump();
    return added;
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

/** The fields of a recording that an attempt fills. */
function nothingYet() {
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
    edits: {}, // index -> {text, words}: the edited version
    peaks: null, // of the waveform
  };
}

/** Seconds of work left; null: too early to estimate. `seconds` of `duration` were done in so many milliseconds. */
export function secondsLeft(seconds, duration, milliseconds) {
  if (!duration || !(seconds > 0) || !(milliseconds >= LEAST_WATCHED)) return null;
  return (Math.max(0, duration - seconds) / seconds) * (milliseconds / 1000);
}

function checkSize({ size }, most) {
  if (!size) throw new PageError("This file is empty.", "Add one with sound.");
  if (size > most) throw new PageError(`This file has ${sizeText(size)}, over the limit of ${sizeText(most)}.`, "Compress it, or split it into parts.");
}

const isUnderWay = (item) => item.state === "waiting" || ACTIVE.has(item.state);
const inOrder = (one, other) => other.batch - one.batch || one.index - other.index;
const inTime = (one, other) => one.batch - other.batch || one.index - other.index;

function pathOf(options) {
  return options.task === "translate" ? "v1/audio/translations" : "v1/audio/transcriptions";
}

function formOf(item, blob) {
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

/** crypto.randomUUID is for https and localhost only. */
function newId() {
  return Array.from(crypto.getRandomValues(new Uint8Array(12)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}
