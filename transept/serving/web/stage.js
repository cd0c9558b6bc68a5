// The stage: captions fill a dark screen, for a room. live-tab.js makes one. The controls show while the pointer or a key
// moves. Browsers that have no full screen for pages fill their window instead.

import { byId, setText } from "./dom.js";

const IDLE = 3000; // milliseconds until the controls disappear

export class Stage {
  #panel = byId("panel-live");
  #button = byId("live-stage");
  #timer = null;

  constructor() {
    this.#button.addEventListener("click", () => (this.shown ? this.leave() : this.#enter()));
    document.addEventListener("fullscreenchange", () => {
      if (!document.fullscreenElement) this.#show(false);
    });
    this.#panel.addEventListener("keydown", (event) => {
      if (event.key === "Escape" && this.shown) this.leave();
    });
    for (const type of ["pointermove", "pointerdown", "keydown", "focusin"]) this.#panel.addEventListener(type, () => this.#wake());
  }

  get shown() {
    return this.#panel.classList.contains("stage");
  }

  leave() {
    if (document.fullscreenElement) document.exitFullscreen();
    this.#show(false);
  }

  async #enter() {
    this.#show(true);
    await this.#panel.requestFullscreen?.().catch(() => {}); // the window is filled anyway
  }

  #show(shown) {
    this.#panel.classList.toggle("stage", shown);
    setText(this.#button.querySelector("span"), shown ? "Leave the stage" : "Stage");
    this.#wake();
  }

  #wake() {
    clearTimeout(this.#timer);
    this.#panel.classList.remove("idle");
    if (this.shown) this.#timer = setTimeout(() => this.#panel.classList.add("idle"), IDLE);
  }
}
