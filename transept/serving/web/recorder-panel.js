// The recording panel under "Record": time, level, pause, stop, discard. main.js makes one; `done` gets the file.

import { confirmed } from "./dialogs.js";
import { announce, byId, clockText, setText } from "./dom.js";
import { Recorder, fileName } from "./recorder.js";

const WORTH_ASKING = 5; // seconds; less is discarded without a question

export class RecorderPanel {
  #recorder = null;
  #done;
  #complain;

  constructor({ done, complain }) {
    this.#done = done;
    this.#complain = complain;
    byId("record").addEventListener("click", () => this.#start());
    byId("recorder-pause").addEventListener("click", () => this.#pause());
    byId("recorder-stop").addEventListener("click", () => this.#stop());
    byId("recorder-discard").addEventListener("click", () => this.#discard());
  }

  get recording() {
    return this.#recorder !== null;
  }

  async #start() {
    const obstacle = Recorder.obstacle();
    this.#complain(obstacle ?? "");
    if (obstacle || this.#recorder) return;
    const recorder = new Recorder();
    recorder.addEventListener("level", () => this.#show(recorder));
    byId("record").disabled = true;
    try {
      await recorder.start();
    } catch (error) {
      this.#complain(error.message);
      return;
    } finally {
      byId("record").disabled = false;
    }
    this.#recorder = recorder;
    this.#open(true);
    announce("Recording.");
  }

  #pause() {
    this.#recorder.pause(!this.#recorder.paused);
    this.#showPaused();
    announce(this.#recorder.paused ? "Paused." : "Recording.");
  }

  async #stop() {
    const recorder = this.#recorder;
    const file = await recorder.stop(fileName("Recording"));
    this.#recorder = null;
    this.#open(false);
    if (file) this.#done(file);
    else this.#complain("Nothing was recorded.");
  }

  async #discard() {
    const recorder = this.#recorder;
    if (recorder.seconds > WORTH_ASKING && !(await confirmed("Discard this recording?", "Discard"))) return;
    if (this.#recorder !== recorder) return;
    recorder.discard();
    this.#recorder = null;
    this.#open(false);
  }

  #open(open) {
    byId("recorder").hidden = !open;
    document.querySelector(".intake > .intake-buttons").hidden = open;
    if (open) this.#showPaused();
    byId(open ? "recorder-stop" : "record").focus();
  }

  #showPaused() {
    const { paused } = this.#recorder;
    byId("recorder").classList.toggle("paused", paused);
    setText(byId("recorder-state"), paused ? "Paused" : "Recording");
    setText(byId("recorder-pause"), paused ? "Go on" : "Pause");
  }

  #show(recorder) {
    byId("recorder-level").value = Math.sqrt(recorder.level); // closer to perceived loudness
    setText(byId("recorder-time"), clockText(recorder.seconds));
  }
}
