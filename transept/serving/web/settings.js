// The options of the Transcribe tab: model, language, and those under "More options".
// main.js makes one and asks `options()` when files are added. Kept in the store. live-tab.js fills its lists in the same way.

import { byId, fillSelect, setText } from "./dom.js";
import { languageName } from "./words.js";

const FIELDS = ["model", "language", "translate", "target-language", "channel", "audio-track", "diarize", "speakers", "words", "prompt", "hotwords"];

/** Codes and names of languages, by name. */
export function byName(languages) {
  const sorted = [...languages].sort((one, other) => one.name.localeCompare(other.name));
  return sorted.map(({ code, name }) => [code, name[0].toUpperCase() + name.slice(1)]);
}

/** "tiny.en (English only)", "base (loading)" */
export function modelText({ id, state, only_language: only }) {
  const notes = [only ? `${languageName(only)} only` : "", state === "ready" ? "" : state === "failed" ? "failed" : "loading"];
  const said = notes.filter(Boolean).join(", ");
  return said ? `${id} (${said})` : id;
}

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
      if (["model", "channel", "diarize"].includes(event.target.id)) this.#show();
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
      task: this.#onlyEnglish && byId("translate").checked ? "translate" : "transcribe",
      target: this.#targets.length ? byId("target-language").value : "",
      channel: byId("channel").value,
      track: byId("audio-track").value.trim(),
      diarize: this.#diarizes,
      speakers: this.#diarizes ? byId("speakers").value.trim() : "",
      words: (model?.word_timestamps ?? true) && byId("words").checked,
      prompt: byId("prompt").value.trim(),
      hotwords: byId("hotwords").value.trim(),
    };
  }

  get #model() {
    const models = this.#server.speechModels;
    return models.find((model) => model.id === byId("model").value) ?? models[0];
  }

  /** True if the model translates to English only: a checkbox then replaces the list. */
  get #onlyEnglish() {
    const model = this.#model;
    return Boolean(model?.translates) && model.transcribes && model.target_languages.length === 1;
  }

  /** The languages to choose from for the text, beside the one that is spoken. */
  get #targets() {
    return this.#onlyEnglish ? [] : this.#model?.target_languages ?? [];
  }

  /** If each channel is a speaker, no diarization is needed. */
  get #mayDiarize() {
    return Boolean(this.#model?.diarizes) && byId("channel").value !== "each";
  }

  get #diarizes() {
    return this.#mayDiarize && byId("diarize").checked;
  }

  /** Only what the model can do is offered; a choice of one is no choice. */
  #show() {
    const models = this.#server.speechModels;
    fillSelect(
      byId("model"),
      models.map((model) => [model.id, modelText(model)]),
      byId("model").value || this.#kept.model,
    );
    byId("model-field").hidden = models.length < 2;
    const model = this.#model;
    const only = languageName(model?.only_language);
    byId("model-note").hidden = !only || models.length > 1; // else the list says so
    setText(byId("model-note"), only ? `${model.id} knows ${only} only.` : "");
    const languages = byName(model?.languages ?? []);
    byId("language-field").hidden = languages.length < 2;
    fillSelect(
      byId("language"),
      [["", model?.detects_language === false ? "Not said" : "Detect"], ...languages],
      byId("language").value || this.#kept.language,
    );
    byId("translate-field").hidden = !this.#onlyEnglish;
    byId("target-language-field").hidden = !this.#targets.length;
    fillSelect(
      byId("target-language"),
      [...(model?.transcribes === false ? [] : [["", "What is spoken"]]), ...byName(this.#targets)],
      byId("target-language").value || this.#kept["target-language"],
    );
    byId("diarize-field").hidden = !this.#mayDiarize;
    byId("speakers-field").hidden = !this.#diarizes;
    byId("words-field").hidden = model?.word_timestamps === false;
  }

  #keep() {
    this.#kept = Object.fromEntries(
      FIELDS.map((name) => [name, byId(name).type === "checkbox" ? byId(name).checked : byId(name).value]),
    );
    this.#store.putSetting("options", this.#kept).catch(() => {});
  }
}
