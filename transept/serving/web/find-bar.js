// Find and replace in the transcript that the reader shows. reader.js makes one.

import { announce, byId, counted, setText } from "./dom.js";

export class FindBar {
  #view;
  #changed;
  #transcript = null;
  #places = [];
  #current = -1;

  /** changed: called after a replacement. */
  constructor(view, changed) {
    this.#view = view;
    this.#changed = changed;
    const bar = byId("find");
    bar.addEventListener("submit", (event) => event.preventDefault());
    bar.addEventListener("keydown", (event) => this.#key(event));
    byId("find-what").addEventListener("input", () => this.refresh(true));
    byId("find-case").addEventListener("change", () => this.refresh(true));
    byId("find-next").addEventListener("click", () => this.#go(1));
    byId("find-previous").addEventListener("click", () => this.#go(-1));
    byId("replace-one").addEventListener("click", () => this.#replaceOne());
    byId("replace-all").addEventListener("click", () => this.#replaceAll());
    byId("find-close").addEventListener("click", () => this.close());
    byId("find-open").addEventListener("click", () => (this.isOpen ? this.close() : this.open()));
  }

  get isOpen() {
    return !byId("find").hidden;
  }

  show(transcript) {
    this.#transcript = transcript;
    if (this.isOpen) this.refresh();
  }

  open() {
    byId("find").hidden = false;
    byId("find-open").setAttribute("aria-expanded", "true");
    const selected = getSelection().toString().trim();
    if (selected && selected.length < 60 && !selected.includes("\n")) byId("find-what").value = selected;
    byId("find-what").focus();
    byId("find-what").select();
    this.refresh(true);
  }

  close() {
    byId("find").hidden = true;
    byId("find-open").setAttribute("aria-expanded", "false");
    this.#view.showMatches([], -1);
    byId("find-open").focus();
  }

  /** Searches again after a change of the text or of the search term. */
  refresh(fromStart = false) {
    if (!this.isOpen) return;
    this.#places = this.#transcript?.find(byId("find-what").value, this.#options) ?? [];
    this.#current = fromStart ? 0 : Math.min(this.#current, this.#places.length - 1);
    if (this.#places.length && this.#current < 0) this.#current = 0;
    this.#show();
  }

  get #options() {
    return { matchCase: byId("find-case").checked };
  }

  #go(step) {
    if (!this.#places.length) return;
    this.#current = (this.#current + step + this.#places.length) % this.#places.length;
    this.#show();
  }

  #show() {
    const { length } = this.#places;
    this.#view.showMatches(this.#places, this.#current);
    const none = byId("find-what").value ? "None" : "";
    setText(byId("find-count"), length ? `${this.#current + 1} of ${length}` : none);
    for (const id of ["find-next", "find-previous", "replace-one", "replace-all"]) byId(id).disabled = !length;
  }

  #replaceOne() {
    const place = this.#places[this.#current];
    if (!place) return;
    this.#transcript.replace(place, byId("find-with").value);
    this.#view.update([place]);
    this.#changed();
    const after = { index: place.index, from: place.from + byId("find-with").value.length };
    this.refresh();
    const next = this.#places.findIndex(({ index, from }) => index > after.index || (index === after.index && from >= after.from));
    this.#current = next < 0 ? (this.#places.length ? 0 : -1) : next;
    this.#show();
  }

  #replaceAll() {
    const places = this.#places;
    this.#view.showMatches([], -1);
    const number = this.#transcript.replaceAll(byId("find-what").value, byId("find-with").value, this.#options);
    this.#view.update(places);
    this.#changed();
    this.refresh(true);
    announce(`${counted(number, "place")} replaced.`);
    setText(byId("find-count"), `${number} replaced`);
  }

  #key(event) {
    const { id } = event.target;
    if (event.key === "Escape") this.close();
    else if (event.key === "Enter" && id === "find-what") this.#go(event.shiftKey ? -1 : 1);
    else if (event.key === "Enter" && id === "find-with") this.#replaceOne();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }
}
