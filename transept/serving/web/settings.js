// The options of the Transcribe tab: which model, which language, and what stands under "More options".
// main.js makes one and asks `options()` when files are added. Kept in the store.

import { byId, fillSelect } from "./dom.js";

const FIELDS = ["model", "language", "translate", "channel", "diarize", "words", "batched", "prompt", "hotwords"];

export class Settings {
  #store;
  #server;
  #kept = {};

  constructor(store, server) {
    this.#store = store;
    this.#server = server;
    server.addEventListener("change", () => this.#show());
    byId("options").addEventListener("submit", (event) => event.preventDefault());
    byId("options").addEventListener("change", (event) => {
      this.#keep();
      if (["model", "channel"].includes(event.target.id)) this.#show();
    });
  }

  async restore() {
    this.#kept = (await this.#store.setting("options")) ?? {};
    for (const name of FIELDS) {
      const [input, value] = [byId(name), this.#kept[name]];
      if (value === undefined) continue;
      if (input.type === "checkbox") input.checked = value;
      else input.value = value;
    }
    this.#show();
  }

  /** What to ask of the server for a recording that is added now. */
  options() {
    const model = this.#model;
    return {
      model: model?.id ?? "whisper-1",
      language: model?.languages?.length ? byId("language").value : "",
      task: model?.translates && byId("translate").checked ? "translate" : "transcribe",
      channel: byId("channel").value,
      diarize: this.#mayDiarize && byId("diarize").checked,
      words: (model?.word_timestamps ?? true) && byId("words").checked,
      batched: byId("batched").checked,
      prompt: byId("prompt").value.trim(),
      hotwords: byId("hotwords").value.trim(),
    };
  }

  get #model() {
    const models = this.#server.speechModels;
    return models.find((model) => model.id === byId("model").value) ?? models[0];
  }

  /** Where each channel is a speaker, nobody has to be told apart. */
  get #mayDiarize() {
    return Boolean(this.#model?.diarizes) && byId("channel").value !== "each";
  }

  /** Only what the model can do is offered; a choice of one is no choice. */
  #show() {
    const models = this.#server.speechModels;
    fillSelect(
      byId("model"),
      models.map(({ id, state }) => [id, state === "ready" ? id : `${id} (${state === "failed" ? "failed" : "loading"})`]),
      byId("model").value || this.#kept.model,
    );
    byId("model-field").hidden = models.length < 2;
    const model = this.#model;
    const languages = [...(model?.languages ?? [])].sort((one, other) => one.name.localeCompare(other.name));
    byId("language-field").hidden = languages.length < 2;
    fillSelect(
      byId("language"),
      [["", "Detect"], ...languages.map(({ code, name }) => [code, name[0].toUpperCase() + name.slice(1)])],
      byId("language").value || this.#kept.language,
    );
    byId("translate-field").hidden = !model?.translates;
    byId("diarize-field").hidden = !this.#mayDiarize;
    byId("words-field").hidden = model?.word_timestamps === false;
  }

  #keep() {
    this.#kept = Object.fromEntries(
      FIELDS.map((name) => [name, byId(name).type === "checkbox" ? byId(name).checked : byId(name).value]),
    );
    this.#store.putSetting("options", this.#kept).catch(() => {});
  }
}
