// The Text tab: summarize or translate with the text models of the server, streamed. main.js makes one.
// What was written and what came out are kept in the store.

import { announce, byId, copyText, counted, download, fillSelect, setText } from "./dom.js";
import { UnreachableError, errorInStream, politely, streamJson } from "./api.js";
import { inPlainWords } from "./errors.js";
import { showMessage } from "./message-box.js";
import { languageName } from "./words.js";

const TASKS = {
  summarize: { path: "v1/summarize", verb: "Summarize", noun: "Summary", doing: "Summarizing", file: "summary.txt" },
  translate: { path: "v1/translate", verb: "Translate", noun: "Translation", doing: "Translating", file: "translation.txt" },
};
const LARGEST_FILE = 5 * 1024 ** 2; // bytes of a dropped text
const SAVE_PAUSE = 400; // milliseconds

export class TextTab {
  #store;
  #server;
  #running = null; // AbortController
  #result = null; // {task, text, about}
  #timer = null;
  #kept = {};
  #restored = false; // before that there is nothing to keep

  constructor(store, server) {
    this.#store = store;
    this.#server = server;
    server.addEventListener("change", () => this.#showModels());
    byId("text-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#run();
    });
    byId("text-form").addEventListener("change", () => {
      this.#showModels();
      this.#saveSoon();
    });
    byId("text-input").addEventListener("input", () => this.#textChanged());
    byId("text-stop").addEventListener("click", () => this.#running?.abort());
    byId("text-clear").addEventListener("click", () => this.setText(""));
    byId("text-choose").addEventListener("click", () => byId("text-file").click());
    byId("text-file").addEventListener("change", (event) => {
      this.readFile(event.target.files[0]);
      event.target.value = "";
    });
    byId("result-copy").addEventListener("click", () => this.#copy());
    byId("result-download").addEventListener("click", () =>
      download(TASKS[this.#result.task].file, new Blob([`${this.#result.text}\n`], { type: "text/plain" })),
    );
  }

  async restore() {
    this.#kept = (await this.#store.setting("text")) ?? {};
    this.#restored = true;
    byId("text-input").value = this.#kept.input ?? "";
    if (this.#kept.task in TASKS) this.#choose(this.#kept.task);
    if (this.#kept.result) this.#showResult(this.#kept.result);
    this.#textChanged(false);
    this.#showModels();
  }

  /** Deletes the text and the result. */
  clear() {
    this.#running?.abort();
    this.#result = null;
    byId("text-result").hidden = true;
    this.setText("");
  }

  setText(text) {
    byId("text-input").value = text;
    this.#textChanged();
    byId("text-input").focus();
    byId("text-input").setSelectionRange(0, 0);
    byId("text-input").scrollTop = 0;
  }

  async readFile(file) {
    if (!file) return;
    if (file.size > LARGEST_FILE) {
      this.#complain("That file is larger than 5 MiB. Paste the part that matters.");
      return;
    }
    const text = await file.text();
    if (text.includes("\0")) this.#complain(`“${file.name}” is not a text file.`);
    else {
      this.#complain("");
      this.setText(text);
    }
  }

  get #task() {
    return new FormData(byId("text-form")).get("task") ?? "summarize";
  }

  #choose(task) {
    document.querySelector(`#text-tasks input[value="${task}"]`).checked = true;
  }

  #modelsFor(task) {
    return this.#server.textModels.filter((model) => model.tasks?.includes(task));
  }

  #showModels() {
    const possible = Object.keys(TASKS).filter((task) => this.#modelsFor(task).length);
    const known = this.#server.state === "ready" && !this.#server.loading.length;
    const none = byId("text-none");
    none.hidden = possible.length > 0;
    byId("text-form").hidden = !possible.length;
    if (!possible.length) {
      const why = "This server has no model that summarizes or translates. Its operator can add one, such as facebook/bart-large-cnn.";
      setText(none, known ? why : "As soon as the server has loaded a text model you can summarize and translate here.");
      return;
    }
    for (const task of Object.keys(TASKS)) {
      const input = document.querySelector(`#text-tasks input[value="${task}"]`);
      input.disabled = !possible.includes(task);
      input.parentElement.hidden = input.disabled;
    }
    if (!possible.includes(this.#task)) this.#choose(possible[0]);
    const task = this.#task;
    const models = this.#modelsFor(task);
    fillSelect(byId("text-model"), models.map(({ id }) => [id, id]), byId("text-model").value || this.#kept.model);
    byId("text-model-field").hidden = models.length < 2;
    byId("text-tasks").hidden = possible.length < 2;
    const model = models.find(({ id }) => id === byId("text-model").value);
    for (const [name, codes] of [["source", model?.sources], ["target", model?.targets]]) {
      byId(`${name}-field`).hidden = task !== "translate" || !codes?.length;
      const pairs = (codes ?? []).map((code) => [code, languageName(code)]).sort((one, other) => one[1].localeCompare(other[1]));
      fillSelect(byId(name), pairs, byId(name).value || this.#kept[name]);
    }
    setText(byId("text-run"), TASKS[task].verb);
  }

  #textChanged(save = true) {
    const words = byId("text-input").value.trim().split(/\s+/).filter(Boolean).length;
    setText(byId("text-count"), words ? counted(words, "word") : "");
    byId("text-clear").hidden = !words;
    if (save) this.#saveSoon();
  }

  async #run() {
    const input = byId("text-input").value.trim();
    if (!input) {
      this.#complain("There is no text yet. Paste one, or drop a .txt file.");
      byId("text-input").focus();
      return;
    }
    const task = this.#task;
    const { path, doing, noun } = TASKS[task];
    const body = { model: byId("text-model").value, input, stream: true, chunk: true };
    for (const name of ["source", "target"]) {
      if (!byId(`${name}-field`).hidden) body[name] = byId(name).value;
    }
    this.#complain("");
    this.#showResult({ task, text: "", about: `${doing}…` });
    this.#showRunning(new AbortController());
    const { signal } = this.#running;
    announce(`${doing}.`);
    try {
      const onWait = (seconds) => setText(byId("text-about"), `The server is busy; trying again in ${Math.max(1, Math.round(seconds))} s`);
      const onEvent = (event) => this.#take(event);
      await politely(() => streamJson(path, body, { signal, onEvent }), { signal, onWait });
      this.#setAbout(this.#result.text ? counted(this.#result.text.trim().split(/\s+/).length, "word") : "The model had nothing to say.");
      announce(`${noun} is done.`);
    } catch (error) {
      if (signal.aborted) this.#setAbout("Stopped.");
      else {
        this.#setAbout(this.#result.text ? "Broke off here." : "");
        byId("text-result").hidden = !this.#result.text;
        this.#complain(inPlainWords(error, "text"));
        if (error instanceof UnreachableError) this.#server.refresh();
      }
    } finally {
      this.#showRunning(null);
      this.#saveSoon();
    }
  }

  #take(event) {
    if (event.error) throw errorInStream(event.error);
    if (event.type === "text.delta") this.#result.text += event.delta;
    else if (event.type === "text.done") this.#result.text = event.text;
    setText(byId("text-output"), this.#result.text);
  }

  #showResult(result) {
    this.#result = result;
    byId("text-result").hidden = false;
    setText(byId("text-result-title"), TASKS[result.task].noun);
    setText(byId("text-output"), result.text);
    this.#setAbout(result.about);
  }

  #setAbout(about) {
    this.#result.about = about;
    setText(byId("text-about"), about);
  }

  #showRunning(controller) {
    const hadFocus = [byId("text-run"), byId("text-stop")].includes(document.activeElement);
    this.#running = controller;
    byId("text-run").hidden = controller !== null;
    byId("text-stop").hidden = controller === null;
    if (hadFocus) byId(controller ? "text-stop" : "text-run").focus();
  }

  async #copy() {
    try {
      await copyText(this.#result.text);
      byId("result-copy").textContent = "Copied";
      announce("Copied.");
    } catch {
      announce("The browser did not let this page copy.");
    }
    setTimeout(() => (byId("result-copy").textContent = "Copy"), 1600);
  }

  #saveSoon() {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.flush(), SAVE_PAUSE);
  }

  flush() {
    clearTimeout(this.#timer);
    if (!this.#restored) return;
    const chosen = { task: this.#task, model: byId("text-model").value, source: byId("source").value, target: byId("target").value };
    this.#kept = { ...chosen, input: byId("text-input").value, result: this.#running ? null : this.#result };
    this.#store.putSetting("text", this.#kept).catch(() => {});
  }

  #complain(problem) {
    showMessage(byId("text-message"), problem);
  }
}
