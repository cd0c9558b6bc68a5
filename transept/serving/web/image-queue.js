// The images and PDFs of the Images tab, with their states and the text of each page. Does not use the DOM. image-tab.js adds files and shows it. Sends two files at a time, and the pages of a PDF one by one.
//
// The store keeps the texts; the files are kept only while the page is open.
// Events: "list" (items added or removed), "item" (detail: item).

import { ApiError, politely, postForm } from "./api.js";
import { PageError, inPlainWords } from "./errors.js";
import { sizeText, waitText } from "./words.js";

const AT_ONCE = 2;
const MOST_ITEMS = 200;
const ACTIVE = new Set(["sending", "running"]);

export class ImageQueue extends EventTarget {
  items = []; // newest first
  #store;
  #server;
  #controllers = new Map(); // item -> AbortController of its request
  #pace = { pages: 0, milliseconds: 0 }; // of everything read since the page was opened

  constructor(store, server) {
    super();
    this.#store = store;
    this.#server = server;
    server.addEventListener("change", () => this.#pump());
  }

  async restore() {
    this.items = (await this.#store.setting("images")) ?? [];
    this.#tell("list");
  }

  /** Adds files and starts them. options: {model, task}. Returns the number of files that fitted. */
  add(files, options) {
    const room = Math.max(0, MOST_ITEMS - this.items.length);
    const added = files.slice(0, room).map((file) => ({ name: file.name || "image", file, options, ...nothingYet() }));
    this.items = [...added, ...this.items];
    this.#tell("list");
    this.#pump();
    return added.length;
  }

  cancel(item) {
    this.#controllers.get(item)?.abort();
    if (item.state === "waiting") this.#set(item, { state: "cancelled" });
  }

  retry(item) {
    this.#set(item, nothingYet());
    this.#pump();
  }

  remove(item) {
    this.cancel(item);
    this.items = this.items.filter((each) => each !== item);
    this.#tell("list");
    this.keep();
  }

  clear() {
    for (const item of this.items) this.cancel(item);
    this.items = [];
    this.#tell("list");
    this.keep();
  }

  get done() {
    return this.items.filter((item) => item.state === "done");
  }

  get unfinished() {
    return this.items.filter((item) => item.state === "waiting" || ACTIVE.has(item.state));
  }

  /** Seconds until all files are read, at the current pace; null: not known yet. A PDF that has not begun counts as one page. */
  get left() {
    const pages = this.unfinished.reduce((sum, item) => sum + (item.numPages ?? 1) - item.pages.length, 0);
    if (!pages || !this.#pace.pages) return null;
    const busy = Math.min(AT_ONCE, this.unfinished.length);
    return ((this.#pace.milliseconds / this.#pace.pages) * pages) / busy / 1000;
  }

  /** Keeps the texts, without the files. */
  keep() {
    const kept = this.items.filter((item) => item.pages.length).map((item) => ({ ...item, file: null, state: settled(item) }));
    this.#store.putSetting("images", kept).catch(() => {});
  }

  #pump() {
    if (this.#server.state !== "ready") return;
    const waiting = this.items.filter((item) => item.state === "waiting").reverse(); // oldest first
    for (const item of waiting.slice(0, Math.max(0, AT_ONCE - this.#controllers.size))) this.#run(item);
  }

  async #run(item) {
    const controller = new AbortController();
    this.#controllers.set(item, controller);
    try {
      checkSize(item.file, this.#server.limits);
      while (item.pages.length < (item.numPages ?? 1)) await this.#read(item, item.pages.length + 1, controller.signal);
      this.#set(item, { state: "done", message: "" });
    } catch (error) {
      if (controller.signal.aborted) this.#set(item, { state: "cancelled", message: "" });
      else {
        if (!(error instanceof ApiError || error instanceof PageError)) console.error(error);
        this.#set(item, { state: "failed", ...inPlainWords(error, "image") });
      }
    } finally {
      this.#controllers.delete(item);
      this.keep();
      this.#pump();
    }
  }

  async #read(item, page, signal) {
    const form = new FormData();
    form.append("model", item.options.model);
    if (item.options.task) form.append("task", item.options.task);
    if (page > 1) form.append("page", String(page));
    form.append("file", item.file, item.name);
    const onWait = (seconds, error) => this.#set(item, { state: "running", message: waitText(seconds, error) });
    const attempt = () => {
      this.#set(item, { state: "running", message: "" });
      item.began = performance.now();
      return postForm("v1/read", form, { signal });
    };
    const answer = await politely(attempt, { signal, onWait });
    this.#pace.pages += 1;
    this.#pace.milliseconds += performance.now() - item.began;
    const { text, finish_reason: reason } = answer;
    item.pages.push({ text, cut: reason === "length" });
    this.#set(item, { numPages: answer.num_pages ?? null });
  }

  #set(item, change) {
    Object.assign(item, change);
    this.dispatchEvent(new CustomEvent("item", { detail: item }));
  }

  #tell(type) {
    this.dispatchEvent(new Event(type));
  }
}

/** An item's whole text. */
export const textOf = (item) => item.pages.map(({ text }) => text).join("\n\n");

function checkSize(file, { max_upload_bytes: upload = Infinity, max_image_bytes: image = Infinity }) {
  const most = Math.min(upload, image ?? Infinity);
  if (!file.size) throw new PageError("This file is empty.", "Choose another one.");
  if (file.size > most) {
    throw new PageError(`This file has ${sizeText(file.size)}, and this server takes ${sizeText(most)}.`, "Make it smaller, and try again.");
  }
}

/** The fields of an item before an attempt. */
function nothingYet() {
  return { state: "waiting", message: "", advice: "", details: "", pages: [], numPages: null };
}

const settled = ({ state }) => (state === "waiting" || ACTIVE.has(state) ? "cancelled" : state);
