// The Images tab: drop images or PDFs, and see their text. Shown if the server has a model that reads images.
// main.js makes one.

import { announce, byId, copyText, counted, download, fillSelect, icon, iconButton, make, setText } from "./dom.js";
import { ImageQueue, textOf } from "./image-queue.js";
import { showMessage } from "./message-box.js";
import { sizeText, timeLeft } from "./words.js";
import { uniqueNames, zipOf } from "./zip.js";

const IMAGE_SUFFIX = /(?<=.)\.(avif|bmp|gif|hei[cf]|jfif|jp2|jpe?g?|p[bgnp]m|pdf|png|tiff?|webp)$/i;
const MARKS = { waiting: "waiting", running: "running", done: "done", failed: "failed", cancelled: "cancelled" };

export class ImageTab {
  #queue;
  #store;
  #server;
  #rows = new Map(); // item -> its elements
  #kept = {};

  constructor(store, server) {
    this.#store = store;
    this.#server = server;
    this.#queue = new ImageQueue(store, server);
    this.#queue.addEventListener("list", () => this.#list());
    this.#queue.addEventListener("item", ({ detail: item }) => this.#update(item));
    server.addEventListener("change", () => this.#showModels());
    byId("image-choose").addEventListener("click", () => byId("image-file").click());
    byId("image-file").addEventListener("change", (event) => {
      this.add([...event.target.files]);
      event.target.value = "";
    });
    byId("image-controls").addEventListener("change", () => {
      this.#kept = this.#options();
      this.#store.putSetting("imageOptions", this.#kept).catch(() => {});
      this.#showModels();
    });
    byId("images-download").addEventListener("click", () => this.#downloadAll());
  }

  async restore() {
    this.#kept = (await this.#store.setting("imageOptions")) ?? {};
    await this.#queue.restore();
    this.#showModels();
  }

  add(files) {
    if (!files.length) return;
    const added = this.#queue.add(files, this.#options());
    const rest = files.length - added;
    showMessage(byId("image-message"), rest ? `The list is full: ${counted(rest, "file")} left out. Remove some to add more.` : "");
  }

  clear() {
    this.#queue.clear();
  }

  flush() {
    this.#queue.keep();
  }

  /** True while images wait or are read: closing the page loses their files. */
  get busy() {
    return this.#queue.unfinished.length > 0;
  }

  get #model() {
    const models = this.#server.visionModels;
    return models.find((model) => model.id === byId("image-model").value) ?? models[0];
  }

  #options() {
    return { model: this.#model?.id ?? "", task: byId("image-task").value };
  }

  #showModels() {
    const models = this.#server.visionModels;
    fillSelect(byId("image-model"), models.map(({ id }) => [id, id]), byId("image-model").value || this.#kept.model);
    byId("image-model-field").hidden = models.length < 2;
    const tasks = this.#model?.tasks ?? [];
    fillSelect(byId("image-task"), tasks.map((task) => [task, taskName(task)]), byId("image-task").value || this.#kept.task);
    byId("image-task-field").hidden = tasks.length < 2;
    byId("image-controls").hidden = models.length < 2 && tasks.length < 2;
    const pdf = Boolean(this.#model?.reads_pdf);
    const { max_upload_bytes: upload = Infinity, max_image_bytes: image = Infinity } = this.#server.limits;
    const most = Math.min(upload, image ?? Infinity);
    const limit = Number.isFinite(most) ? `, up to ${sizeText(most)} each` : "";
    setText(byId("image-title"), pdf ? "Drop images or PDFs here" : "Drop images here");
    setText(byId("image-limits"), `PNG, JPEG, WebP, GIF, TIFF or BMP${pdf ? ", or PDF" : ""}${limit}. They go to this server and nowhere else.`);
    byId("image-file").accept = `image/*,.tif,.tiff,.bmp,.webp${pdf ? ",.pdf,application/pdf" : ""}`;
  }

  #list() {
    const { items } = this.#queue;
    for (const [item, { row, address }] of this.#rows) {
      if (items.includes(item)) continue;
      row.remove();
      if (address) URL.revokeObjectURL(address);
      this.#rows.delete(item);
    }
    items.forEach((item, index) => {
      if (!this.#rows.has(item)) this.#rows.set(item, this.#make(item));
      const { row } = this.#rows.get(item);
      const list = byId("images");
      if (list.children[index] !== row) list.insertBefore(row, list.children[index] ?? null);
      this.#update(item);
    });
    byId("image-results").hidden = items.length === 0;
    this.#showAll();
  }

  #make(item) {
    const view = { address: item.file?.type.startsWith("image/") ? URL.createObjectURL(item.file) : null };
    view.mark = make("span", { class: "row-mark" });
    view.state = make("p", { class: "row-state" });
    view.problem = make("div", { class: "message", role: "alert" });
    view.text = make("div", { class: "image-text", dir: "auto" });
    const cancelName = { "aria-label": `Cancel ${item.name}`, on: { click: () => this.#queue.cancel(item) } };
    view.cancel = make("button", { type: "button", class: "quiet-button", ...cancelName }, icon("close"), make("span", { text: "Cancel" }));
    view.copy = iconButton("copy", `Copy the text of ${item.name}`, () => this.#copy(item));
    view.save = iconButton("download", `Download the text of ${item.name}`, () => saveText(item));
    view.retry = iconButton("retry", `Try ${item.name} again`, () => this.#queue.retry(item));
    view.remove = iconButton("trash", `Remove ${item.name}`, () => this.#remove(item));
    const name = make("h3", { class: "row-name", text: item.name, dir: "auto" });
    const actions = make("div", { class: "image-actions" }, view.cancel, view.retry, view.copy, view.save, view.remove);
    const head = make("div", { class: "image-head" }, view.mark, make("div", { class: "row-words" }, name, view.state), actions);
    view.row = make("li", { class: "image-row" }, head, view.problem, make("div", { class: "image-body" }, view.text));
    if (view.address) {
      const picture = make("img", { src: view.address, alt: "", on: { error: () => picture.remove() } }); // a TIFF, say
      view.row.lastElementChild.prepend(picture);
    }
    return view;
  }

  #update(item) {
    const view = this.#rows.get(item);
    if (!view) return;
    const active = item.state === "waiting" || item.state === "running";
    if (view.row.dataset.state !== item.state) {
      view.row.dataset.state = item.state;
      view.mark.replaceChildren(icon(MARKS[item.state]));
      if (item.state === "done") announce(`${item.name} is read.`);
    }
    setText(view.state, stateText(item));
    showMessage(view.problem, item.state === "failed" ? item : "");
    view.text.replaceChildren(...item.pages.flatMap((page, index) => pageView(page, index, item.numPages ?? 1)));
    view.cancel.hidden = !active;
    view.retry.hidden = !item.file || !["failed", "cancelled"].includes(item.state);
    view.copy.hidden = view.save.hidden = !item.pages.length;
    view.remove.hidden = active;
    this.#showAll();
  }

  /** Shows the overall progress. */
  #showAll() {
    const [waiting, done] = [this.#queue.unfinished.length, this.#queue.done.length];
    const progress = [`${done} of ${this.#queue.items.length} done`, timeLeft(this.#queue.left)].filter(Boolean).join(" · ");
    setText(byId("images-about"), waiting ? progress : "");
    byId("images-download").disabled = done === 0;
  }

  #remove(item) {
    const index = this.#queue.items.indexOf(item);
    const neighbour = this.#queue.items[index + 1] ?? this.#queue.items[index - 1];
    this.#queue.remove(item);
    (this.#rows.get(neighbour)?.remove ?? byId("image-choose")).focus();
  }

  async #copy(item) {
    try {
      await copyText(textOf(item));
      announce("Copied.");
    } catch {
      announce("The browser did not let this page copy.");
    }
  }

  #downloadAll() {
    const items = this.#queue.done.reverse();
    const names = uniqueNames(items.map(({ name }) => textName(name)));
    const encoder = new TextEncoder();
    download("texts.zip", zipOf(items.map((item, index) => ({ name: names[index], data: encoder.encode(`${textOf(item)}\n`) }))));
    announce(`texts.zip: ${counted(items.length, "file")} downloaded.`);
  }
}

/** "page.png" -> "page.txt"; other suffixes stay. */
const textName = (name) => `${name.replace(IMAGE_SUFFIX, "")}.txt`;

function saveText(item) {
  download(textName(item.name), new Blob([`${textOf(item)}\n`], { type: "text/plain" }));
}

function pageView({ text, cut }, index, numPages) {
  const title = numPages > 1 ? [make("h4", { text: `Page ${index + 1}` })] : [];
  const note = cut ? [make("p", { class: "hint", text: "The text is longer than the model writes; its end is missing." })] : [];
  return [...title, make("p", { class: text ? "" : "hint", text: text || "The model found no text." }), ...note];
}

function stateText({ state, message, pages, numPages }) {
  if (state === "running" && message) return message;
  if (state === "running") return numPages ? `Reading page ${Math.min(pages.length + 1, numPages)} of ${numPages}` : "Reading";
  if (state === "done") return numPages > 1 ? `Done · ${numPages} pages` : "Done";
  return { waiting: "Waiting", cancelled: pages.length ? "Cancelled; the pages so far are kept" : "Cancelled", failed: "Failed" }[state];
}

/** "detailed-caption" -> "Detailed caption" */
function taskName(task) {
  const words = task.replaceAll("-", " ");
  return task === "read" ? "Read the text" : words[0].toUpperCase() + words.slice(1);
}
