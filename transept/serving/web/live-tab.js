// The Live tab: the microphone's speech as captions while it is spoken. main.js makes one. The transcript and its sound are a
// recording of the queue, whose state is "live" until Stop.

import { announce, byId, clockText, fillSelect, setText } from "./dom.js";
import { Captions } from "./captions.js";
import { inPlainWords } from "./errors.js";
import { LiveStream } from "./live-stream.js";
import { showMessage } from "./message-box.js";
import { Recorder, fileName } from "./recorder.js";
import { byName, modelText } from "./settings.js";
import { Stage } from "./stage.js";

const RATE = 24_000; // Hz, of OpenAI's protocol
const SIZES = [0.6, 0.8, 1, 1.25, 1.6, 2]; // of the captions, as factors
const LONG_LINE = 12; // seconds after which a line ends with its sentence
const LONGEST_LINE = 30; // seconds
const SENTENCE_END = /[.?!…。？！]["'”’»)]*$/;
const BEHIND = 4; // seconds between speech and text; the page shows longer ones
const WORTH_KEEPING = 5; // seconds of sound without text
const FIELDS = ["model", "language", "hotwords"];
const HINT = "Press Start and speak. The words appear here.";

export class LiveTab {
  #store;
  #server;
  #queue;
  #ended;
  #captions = new Captions(byId("captions"));
  #stage = new Stage();
  #kept = {};
  #size = SIZES.indexOf(1);
  #recorder = null;
  #stream = null;
  #item = null; // of the queue
  #behind = 0; // seconds
  #stopping = false;
  #lock = null; // keeps the screen on

  /** open: called with the finished recording that the user wants to read. ended: with each that has ended. */
  constructor(store, server, queue, { open, ended }) {
    [this.#store, this.#server, this.#queue, this.#ended] = [store, server, queue, ended];
    this.#captions.clear(HINT);
    server.addEventListener("change", () => this.#showOptions());
    byId("live-start").addEventListener("click", () => this.#start());
    byId("live-stop").addEventListener("click", () => this.#stop());
    byId("live-pause").addEventListener("click", () => this.#pause());
    byId("live-smaller").addEventListener("click", () => this.#resize(-1));
    byId("live-larger").addEventListener("click", () => this.#resize(1));
    byId("live-open").addEventListener("click", () => {
      this.#stage.leave();
      open(this.#item);
    });
    byId("live-options").addEventListener("submit", (event) => event.preventDefault());
    byId("live-options").addEventListener("change", () => {
      this.#keep();
      this.#showOptions();
    });
    document.addEventListener("visibilitychange", () => this.#stayAwake());
  }

  /** True while the microphone is on. */
  get running() {
    return this.#recorder !== null;
  }

  /** True if this server transcribes live. */
  get possible() {
    return this.#server.speechModels.length > 0 && this.#server.limits.max_streams !== 0;
  }

  async restore() {
    this.#kept = (await this.#store.setting("live")) ?? {};
    byId("live-hotwords").value = this.#kept.hotwords ?? "";
    if (this.#kept.size in SIZES) this.#size = this.#kept.size;
    this.#resize(0);
    this.#showOptions();
  }

  /** Ends at once and keeps nothing, because the user deletes all data. */
  clear() {
    byId("live-hotwords").value = "";
    byId("live-kept").hidden = true;
    this.#captions.clear(HINT);
    this.#stream?.close();
    this.#recorder?.discard();
    this.#end();
  }

  async #start() {
    const obstacle = Recorder.obstacle();
    showMessage(byId("live-message"), obstacle ?? "");
    if (obstacle) return;
    const recorder = new Recorder(RATE);
    byId("live-start").disabled = true;
    try {
      await recorder.start();
    } catch (error) {
      showMessage(byId("live-message"), error.message);
      return;
    } finally {
      byId("live-start").disabled = false;
    }
    this.#begin(recorder);
  }

  #begin(recorder) {
    const { model, language, hotwords } = this.#options();
    const keywords = hotwords.split(/[,;\n]/).map((word) => word.trim()).filter(Boolean);
    const item = this.#queue.open(fileName("Live"), { model, language, hotwords, task: "transcribe", words: true });
    const stream = new LiveStream(recorder.rate, { model, language, keywords });
    [this.#recorder, this.#item, this.#stream] = [recorder, item, stream];
    [this.#behind, this.#stopping] = [0, false];
    recorder.addEventListener("samples", ({ detail: samples }) => stream.send(samples));
    recorder.addEventListener("level", () => this.#showLevel());
    recorder.addEventListener("lost", () => this.#stop("The microphone is gone. What was said until then is kept."));
    stream.addEventListener("words", ({ detail: words }) => this.#say(words));
    stream.addEventListener("tentative", ({ detail: text }) => this.#captions.tentative(text));
    stream.addEventListener("over", () => this.#endLine());
    stream.addEventListener("language", ({ detail: language }) => this.#queue.grow(item, { language }));
    stream.addEventListener("speech", ({ detail }) => byId("live-line").classList.toggle("speaking", detail));
    stream.addEventListener("state", () => this.#showState());
    stream.addEventListener("failed", () => this.#stop(stream.problem));
    this.#captions.clear("");
    this.#showRunning(true);
    this.#stayAwake();
    announce("The microphone is on.");
    stream.run().catch((error) => {
      console.error(error);
      this.#stop(inPlainWords(error, "stream"));
    });
  }

  /** Stops and continues captions and recording; the connection stays. */
  #pause() {
    const paused = !this.#recorder.paused;
    this.#recorder.pause(paused);
    if (paused) this.#stream.commit();
    this.#showState();
    announce(paused ? "Paused." : "The microphone is on.");
  }

  /** problem: why it ends, if the user did not end it. */
  async #stop(problem = "") {
    if (this.#stopping || !this.running) return;
    this.#stopping = true;
    this.#showState();
    const [recorder, stream, item] = [this.#recorder, this.#stream, this.#item];
    const { seconds } = recorder;
    const file = await recorder.stop(item.name);
    await stream.finish();
    if (this.#recorder !== recorder) return; // all data was deleted
    this.#endLine();
    this.#queue.grow(item, { duration: seconds });
    const worthless = !item.segments.length && seconds < WORTH_KEEPING;
    await this.#queue.close(item, worthless ? null : file);
    this.#end();
    showMessage(byId("live-message"), problem);
    byId("live-kept").hidden = worthless;
    setText(byId("live-kept-text"), `Kept as “${item.name}”.`);
    if (!this.#captions.hasText) this.#captions.clear(worthless ? HINT : "No speech was heard.");
    announce("The microphone is off.");
    this.#ended(item);
  }

  #end() {
    this.#recorder = this.#stream = null;
    this.#showRunning(false);
    this.#stayAwake();
  }

  /** Adds final words: to the captions, and to the segment that grows. */
  #say(words) {
    const text = words.map(({ word }) => word).join("");
    const before = this.#item.growing ?? { start: words[0].start, text: "", words: [] };
    const end = words.at(-1).end;
    const growing = { start: before.start, end, text: before.text + text, words: [...before.words, ...words] };
    this.#queue.grow(this.#item, { growing });
    this.#captions.add(text, this.#item.language ?? this.#item.options.language);
    this.#behind = this.#recorder.seconds - end;
    this.#showState();
    const seconds = end - growing.start;
    if (seconds > LONGEST_LINE || (seconds > LONG_LINE && SENTENCE_END.test(growing.text))) this.#endLine();
  }

  #endLine() {
    if (this.#item.growing) this.#queue.settle(this.#item);
    this.#captions.endLine();
  }

  #options() {
    const model = this.#model;
    return {
      model: model?.id ?? "whisper-1",
      language: model?.languages?.length ? byId("live-language").value : "",
      hotwords: byId("live-hotwords").value.trim(),
    };
  }

  get #model() {
    const models = this.#server.speechModels;
    return models.find((model) => model.id === byId("live-model").value) ?? models[0];
  }

  #showOptions() {
    const models = this.#server.speechModels;
    fillSelect(byId("live-model"), models.map((model) => [model.id, modelText(model)]), byId("live-model").value || this.#kept.model);
    byId("live-model-field").hidden = models.length < 2;
    const model = this.#model;
    const languages = byName(model?.languages ?? []);
    byId("live-language-field").hidden = languages.length < 2;
    const detected = model?.detects_language === false ? "Not said" : "Detect";
    fillSelect(byId("live-language"), [["", detected], ...languages], byId("live-language").value || this.#kept.language);
    byId("live-start").disabled = this.#server.state === "ready" && !this.possible;
  }

  #keep() {
    this.#kept = Object.fromEntries(FIELDS.map((name) => [name, byId(`live-${name}`).value]));
    this.#store.putSetting("live", { ...this.#kept, size: this.#size }).catch(() => {});
  }

  #resize(step) {
    this.#size = Math.max(0, Math.min(SIZES.length - 1, this.#size + step));
    byId("captions").style.setProperty("--size", SIZES[this.#size]);
    byId("live-smaller").disabled = this.#size === 0;
    byId("live-larger").disabled = this.#size === SIZES.length - 1;
    this.#captions.toEnd();
    if (step) this.#keep();
  }

  #showRunning(running) {
    const hadFocus = [byId("live-start"), byId("live-stop")].includes(document.activeElement);
    byId("live-start").hidden = running;
    for (const name of ["stop", "pause", "line"]) byId(`live-${name}`).hidden = !running;
    byId("tab-live").toggleAttribute("data-running", running);
    for (const name of FIELDS) byId(`live-${name}`).disabled = running;
    if (running) byId("live-kept").hidden = true;
    if (hadFocus) byId(running ? "live-stop" : "live-start").focus();
    this.#showState();
  }

  #showState() {
    const { state, problem } = this.#stream ?? {};
    const behind = this.#behind > BEHIND ? `Listening · ${Math.round(this.#behind)} s behind` : "Listening";
    const paused = this.#recorder?.paused ?? false;
    const connected = paused ? "Paused" : state === "open" ? behind : "Connecting";
    setText(byId("live-state"), this.#stopping ? "Writing the last words" : connected);
    setText(byId("live-pause"), paused ? "Go on" : "Pause");
    byId("live-pause").disabled = this.#stopping;
    byId("live-line").classList.toggle("paused", paused);
    if (!this.running || this.#stopping) return;
    showMessage(byId("live-message"), problem ?? "");
  }

  #showLevel() {
    if (!this.running) return;
    const { level, seconds } = this.#recorder;
    byId("live-level").value = Math.sqrt(level); // closer to perceived loudness
    if (Math.floor(seconds) === Math.floor(this.#item.duration) && seconds >= 1) return;
    setText(byId("live-time"), clockText(seconds));
    this.#queue.grow(this.#item, { duration: seconds });
  }

  /** Keeps the screen on while the microphone is, where the browser can. */
  async #stayAwake() {
    if (this.running && document.hidden) return; // the browser has released it
    await this.#lock?.release().catch(() => {});
    this.#lock = this.running ? await navigator.wakeLock?.request("screen").catch(() => null) : null;
  }
}
