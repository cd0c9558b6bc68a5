// The server's state: its models, and whether it is loading, unreachable or locked by a key.
// main.js makes one; the queue waits for it, settings.js, text-tab.js and image-tab.js show its models, main.js the banner.

import { ApiError, UnreachableError, getJson } from "./api.js";

const LOADING_PAUSE = 2; // seconds between requests while models load
const LONGEST_PAUSE = 15; // seconds between requests while the server does not answer

export class Server extends EventTarget {
  /** "unknown", "ready", "loading", "unreachable", "locked" (no key) or "failing" (`error` says how). */
  state = "unknown";
  models = [];
  limits = {}; // of a request, as the server reports them
  error = null;
  #failures = 0;
  #timer = null;
  #looking = null;

  get speechModels() {
    return this.models.filter((model) => model.kind === "speech" || (model.kind === null && model.state !== "failed"));
  }

  get textModels() {
    return this.models.filter((model) => model.kind === "text");
  }

  get visionModels() {
    return this.models.filter((model) => model.kind === "vision");
  }

  get loading() {
    return this.models.filter((model) => model.state === "loading");
  }

  model(id) {
    return this.models.find((model) => model.id === id);
  }

  /** Requests the models now, and again while they load or the server does not answer. */
  refresh() {
    clearTimeout(this.#timer);
    this.#looking ??= this.#look().finally(() => (this.#looking = null));
    return this.#looking;
  }

  async #look() {
    let next = null; // seconds
    try {
      const { data, limits } = await getJson("v1/models");
      [this.models, this.limits] = [data, limits ?? {}];
      this.#failures = 0;
      this.error = null;
      const open = this.models.some((model) => model.state === "ready");
      this.state = open || !this.loading.length ? "ready" : "loading";
      if (this.loading.length) next = LOADING_PAUSE;
    } catch (error) {
      this.#failures += 1;
      next = Math.min(LONGEST_PAUSE, 2 ** (this.#failures - 1));
      if (error instanceof UnreachableError) this.state = "unreachable";
      else if (error instanceof ApiError && error.status === 401) [this.state, next] = ["locked", null];
      else if (error instanceof ApiError && error.status === 503) {
        this.state = "loading";
        next = error.retryAfter ?? next;
      } else [this.state, this.error] = ["failing", error.message];
    }
    if (next !== null) this.#timer = setTimeout(() => this.refresh(), next * 1000);
    this.dispatchEvent(new Event("change"));
  }
}
