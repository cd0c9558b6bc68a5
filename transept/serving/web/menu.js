// A button that opens a menu, by mouse and by keyboard, as WAI-ARIA's menu button does. downloads.js makes two.

import { byId, make } from "./dom.js";

export class Menu {
  #button;
  #list;

  /** items: [{label, note, choose}]. The button is the element before the list. */
  constructor(id, items) {
    this.#button = byId(id);
    this.#list = byId(`${id}-menu`);
    this.#list.replaceChildren(
      ...items.map(({ label, note, choose }) => {
        const text = [make("span", { text: label }), " ", make("span", { class: "menu-note", text: note })];
        const click = () => {
          this.#close({ focus: true });
          choose();
        };
        return make("button", { type: "button", role: "menuitem", tabindex: -1, on: { click } }, ...text);
      }),
    );
    this.#button.addEventListener("click", () => (this.#list.hidden ? this.#open(0) : this.#close()));
    this.#button.addEventListener("keydown", (event) => this.#buttonKey(event));
    this.#list.addEventListener("keydown", (event) => this.#key(event));
    this.#list.addEventListener("focusout", ({ relatedTarget: next }) => {
      if (next !== this.#button && !this.#list.contains(next)) this.#close();
    });
    addEventListener("pointerdown", ({ target }) => {
      if (!this.#list.contains(target) && !this.#button.contains(target)) this.#close();
    });
  }

  get #items() {
    return [...this.#list.children];
  }

  #open(index) {
    this.#list.hidden = false;
    this.#button.setAttribute("aria-expanded", "true");
    this.#items.at(index).focus();
  }

  #close({ focus = false } = {}) {
    if (this.#list.hidden) return;
    this.#list.hidden = true;
    this.#button.setAttribute("aria-expanded", "false");
    if (focus) this.#button.focus();
  }

  #buttonKey(event) {
    if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
    this.#open(event.key === "ArrowDown" ? 0 : -1);
    event.preventDefault();
    event.stopPropagation();
  }

  #key(event) {
    const items = this.#items;
    const at = items.indexOf(document.activeElement);
    const places = { ArrowDown: (at + 1) % items.length, ArrowUp: at - 1, Home: 0, End: -1 };
    const letter = event.key.length === 1 && event.key !== " " && !event.ctrlKey && !event.metaKey && !event.altKey;
    if (event.key === "Tab") {
      this.#close();
      return;
    }
    if (event.key === "Escape") this.#close({ focus: true });
    else if (event.key in places) items.at(places[event.key]).focus();
    else if (letter) [...items.slice(at + 1), ...items].find((item) => beginsWith(item, event.key))?.focus();
    else return;
    event.preventDefault();
    event.stopPropagation(); // the page has single-key shortcuts
  }
}

const beginsWith = (item, letter) => item.textContent.toLowerCase().startsWith(letter.toLowerCase());
