// The list of recordings: a row each, with its state, its progress and what can be done with it.
// main.js makes one; it calls `open(item)` when the user selects a recording.

import { confirmed } from "./dialogs.js";
import { byId, counted, icon, iconButton, make, setText } from "./dom.js";
import { ACTIVE, RETRIABLE } from "./queue.js";
import { fraction, stateText } from "./words.js";

const MARKS = { elsewhere: "running", live: "microphone" }; // other states have marks of their names

export class QueueView {
  #queue;
  #server;
  #open;
  #rows = new Map(); // id -> {row, ...}
  #shown = null;

  constructor(queue, server, open) {
    this.#queue = queue;
    this.#server = server;
    this.#open = open;
    queue.addEventListener("list", () => this.#list());
    queue.addEventListener("item", (event) => this.#update(event.detail));
    server.addEventListener("change", () => queue.items.forEach((item) => this.#update(item)));
    byId("resume-all").addEventListener("click", () => {
      const items = this.#interrupted();
      items.reverse().forEach((item) => queue.retry(item));
      this.#rows.get(items.at(-1)?.id)?.open.focus();
    });
  }

  /** Marks the recording that the reader shows. */
  show(item) {
    this.#shown = item?.id ?? null;
    for (const [id, { open }] of this.#rows) {
      if (id === this.#shown) open.setAttribute("aria-current", "true");
      else open.removeAttribute("aria-current");
    }
  }

  #list() {
    const { items } = this.#queue;
    const ids = new Set(items.map((item) => item.id));
    for (const [id, { row }] of this.#rows) {
      if (!ids.has(id)) {
        row.remove();
        this.#rows.delete(id);
      }
    }
    const list = byId("queue");
    items.forEach((item, index) => {
      if (!this.#rows.has(item.id)) this.#rows.set(item.id, this.#make(item));
      const { row } = this.#rows.get(item.id);
      if (list.children[index] !== row) list.insertBefore(row, list.children[index] ?? null);
      this.#update(item);
    });
    byId("list").hidden = items.length === 0;
    this.#offerToContinue();
    this.show(this.#queue.find(this.#shown));
  }

  #interrupted() {
    return this.#queue.items.filter((item) => item.state === "interrupted");
  }

  #offerToContinue() {
    const number = this.#interrupted().length;
    byId("resume").hidden = number < 2; // for a single one, its row is enough
    setText(byId("resume-text"), `${counted(number, "recording")} stopped when the page was reloaded.`);
  }

  #make(item) {
    const mark = make("span", { class: "row-mark" });
    const name = make("span", { class: "row-name", text: item.name, dir: "auto" });
    const state = make("span", { class: "row-state" });
    const open = make(
      "button",
      { type: "button", class: "row-open", on: { click: () => this.#open(item) } },
      mark,
      make("span", { class: "row-words" }, name, state),
    );
    const bar = make("progress", { class: "row-bar", max: 1, "aria-label": `Progress of ${item.name}` });
    const cancel = make(
      "button",
      {
        type: "button",
        class: "row-cancel quiet-button",
        "aria-label": `Cancel ${item.name}`,
        on: { click: () => this.#act(item, () => this.#queue.cancel(item)) },
      },
      icon("close"),
      make("span", { text: "Cancel" }),
    );
    const retry = iconButton("retry", `Try ${item.name} again`, () => this.#act(item, () => this.#queue.retry(item)));
    const remove = iconButton("trash", `Remove ${item.name}`, () => this.#remove(item));
    const actions = make("span", { class: "row-actions" }, cancel, retry, remove);
    const row = make("li", { class: "row" }, open, actions, bar);
    return { row, open, mark, state, bar, cancel, retry, remove };
  }

  #update(item) {
    const view = this.#rows.get(item.id);
    if (!view) return;
    const active = ACTIVE.has(item.state);
    if (view.row.dataset.state !== item.state) {
      view.row.dataset.state = item.state;
      view.mark.replaceChildren(icon(active ? "running" : (MARKS[item.state] ?? item.state)));
      this.#offerToContinue();
    }
    const model = this.#server.model(item.options.model);
    const unkept = item.unkept && !RETRIABLE.has(item.state) ? " · not kept after a reload: it is too large" : "";
    const text = stateText(item, this.#server.state, model) + unkept;
    if (view.state.textContent !== text) view.state.replaceChildren(...markedAsFailed(text));
    view.bar.hidden = !active;
    view.bar.value = fraction(item);
    view.cancel.hidden = !active && item.state !== "waiting";
    view.retry.hidden = !RETRIABLE.has(item.state);
    view.remove.hidden = active || item.state === "elsewhere" || item.state === "live";
  }

  /** Performs an action that may hide the focused button. */
  #act(item, action) {
    action();
    this.#rows.get(item.id)?.open.focus();
  }

  async #remove(item) {
    if (item.segments.length && !(await confirmed(`Remove “${item.name}”? Its transcript is deleted from this browser.`))) {
      return;
    }
    const index = this.#queue.items.indexOf(item);
    const neighbour = this.#queue.items[index + 1] ?? this.#queue.items[index - 1];
    await this.#queue.remove(item);
    (this.#rows.get(neighbour?.id)?.open ?? byId("choose-files")).focus();
  }
}

/** The row's mark shows that a recording failed; screen readers read the word. */
function markedAsFailed(text) {
  const [, mark, rest] = /^(Failed: )?(.*)$/s.exec(text);
  return mark ? [make("span", { class: "visually-hidden", text: mark }), rest] : [rest];
}
