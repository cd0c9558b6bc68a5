// Other windows of this page in the same browser, which share its store. Each tells the others what it has changed, and
// answers which recordings it works on, so that none is sent twice and none shows an old transcript.
// queue.js makes one. Event "changed" (detail: id).

const ANSWER_TIME = 200; // milliseconds to wait for answers

export class OtherWindows extends EventTarget {
  #channel = globalThis.BroadcastChannel ? new BroadcastChannel("transept") : null;
  #heard = new Set();

  /** running: returns the ids of the recordings that this window works on. */
  constructor(running) {
    super();
    this.#channel?.addEventListener("message", ({ data }) => {
      if (data.ask) this.#channel.postMessage({ running: running() });
      for (const id of data.running ?? []) this.#heard.add(id);
      if (data.changed) this.dispatchEvent(new CustomEvent("changed", { detail: data.changed }));
    });
  }

  /** The ids of the recordings that other windows work on. */
  async running() {
    this.#heard.clear();
    this.#channel?.postMessage({ ask: true });
    await new Promise((resolve) => setTimeout(resolve, this.#channel ? ANSWER_TIME : 0));
    return this.#heard;
  }

  /** An item was kept or removed here. */
  tell(id) {
    this.#channel?.postMessage({ changed: id });
  }
}
