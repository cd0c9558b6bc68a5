// Playback: the audio element, its buttons, the clock, speed, and the slider that is the waveform.
// reader.js makes one and loads a recording into it. Event "time": the position changed (`position`, in seconds).

import { byId, clockText, setText } from "./dom.js";
import { Waveform } from "./waveform.js";

const SKIP = 5; // seconds
const REWIND = 2; // seconds back when playback continues after a pause
const STALLED = 1000; // milliseconds without progress although the sound is loaded: Chromium sometimes stops so after seeking

export class Player extends EventTarget {
  #audio = byId("audio");
  #waveform = new Waveform(byId("wave-canvas"));
  #source = null; // object URL
  #known = 0; // duration in seconds, from the server or an earlier visit
  #rewinds = false; // the next play goes back first
  #touched = false;
  #pending = null; // a position to seek to once the sound is loaded
  #moved = { position: 0, at: 0, patience: STALLED }; // time of the last progress, and the patience until the next

  constructor() {
    super();
    const audio = this.#audio;
    byId("play").addEventListener("click", () => this.toggle());
    byId("skip-back").addEventListener("click", () => this.skip(-SKIP));
    byId("skip-forward").addEventListener("click", () => this.skip(SKIP));
    byId("speed").addEventListener("change", () => this.#applySpeed());
    for (const type of ["timeupdate", "seeking", "seeked", "durationchange"]) audio.addEventListener(type, () => this.#show());
    audio.addEventListener("loadedmetadata", () => {
      this.#applySpeed();
      if (this.#pending !== null) audio.currentTime = this.#pending;
      this.#pending = null;
    });
    audio.addEventListener("play", () => this.#showPlaying());
    audio.addEventListener("pause", () => {
      if (audio.paused) this.#rewinds = !audio.ended; // also where a headset's key pauses
      this.#showPlaying();
    });
    audio.addEventListener("error", () => {
      if (!this.#source) return;
      this.#complain("This browser cannot play this file.");
      byId("player").toggleAttribute("data-mute", true);
    });
    this.#listenToSlider(byId("wave"));
  }

  get position() {
    return this.#pending ?? this.#audio.currentTime;
  }

  get duration() {
    return Number.isFinite(this.#audio.duration) ? this.#audio.duration : this.#known;
  }

  /** True if the user has played or sought since the recording was loaded. */
  get touched() {
    return this.#touched;
  }

  get playing() {
    return !this.#audio.paused;
  }

  /** Shows a recording. blob: null if this browser no longer has the sound. Peaks are drawn once they are known. */
  load(blob, { duration, peaks, state }) {
    this.unload();
    this.#known = duration ?? 0;
    if (blob) {
      this.#source = URL.createObjectURL(blob);
      this.#audio.src = this.#source;
    } else {
      const isLive = state === "live";
      this.#complain(isLive ? "You can play this recording once it has ended." : "This browser no longer has the sound of this recording.");
    }
    byId("player").toggleAttribute("data-mute", !blob);
    this.setPeaks(peaks);
  }

  unload() {
    this.#audio.pause();
    if (this.#source) URL.revokeObjectURL(this.#source);
    this.#source = null;
    this.#pending = null;
    this.#rewinds = false;
    this.#touched = false;
    this.#known = 0;
    this.#audio.removeAttribute("src");
    this.#audio.load();
    this.#complain("");
    this.setPeaks(null);
  }

  setPeaks(peaks) {
    this.#waveform.setPeaks(peaks);
    this.#show();
  }

  /** Sets the duration from the server, until the browser knows it. */
  setDuration(seconds) {
    this.#known = seconds ?? 0;
    this.#show();
  }

  play() {
    if (!this.#source) return;
    this.#touched = true;
    if (this.#rewinds) this.#audio.currentTime = Math.max(0, this.#audio.currentTime - REWIND);
    this.#rewinds = false;
    this.#moved.at = performance.now();
    this.#audio.play().catch((error) => {
      if (error.name === "NotAllowedError") this.#complain("The browser did not let it play. Press play again.");
    });
  }

  pause() {
    this.#rewinds ||= this.playing; // the event arrives later, possibly after the next play
    this.#audio.pause();
  }

  toggle() {
    if (this.playing) this.pause();
    else this.play();
  }

  seek(seconds) {
    const position = Math.max(0, Math.min(seconds, this.duration || seconds));
    this.#touched = true;
    this.#rewinds = false; // the user has just chosen a position
    if (this.#audio.readyState > 0) this.#audio.currentTime = position;
    else this.#pending = position;
    this.#show();
  }

  skip(seconds) {
    this.seek(this.position + seconds);
  }

  #applySpeed() {
    this.#audio.defaultPlaybackRate = Number(byId("speed").value);
    this.#audio.playbackRate = Number(byId("speed").value);
  }

  #showPlaying() {
    byId("play-icon").setAttribute("href", this.playing ? "#icon-pause" : "#icon-play");
    byId("play").setAttribute("aria-label", this.playing ? "Pause" : "Play");
    if (this.playing) this.#follow();
  }

  #follow() {
    this.#show();
    if (!this.playing) return;
    this.#unstick();
    requestAnimationFrame(() => this.#follow());
  }

  #unstick() {
    const [audio, now] = [this.#audio, performance.now()];
    if (audio.currentTime !== this.#moved.position) this.#moved = { position: audio.currentTime, at: now, patience: STALLED };
    if (now - this.#moved.at < this.#moved.patience) return;
    this.#moved.at = now;
    this.#moved.patience *= 2; // seeking itself may take long
    const buffered = [...Array(audio.buffered.length).keys()].some(
      (index) => audio.buffered.start(index) <= audio.currentTime && audio.buffered.end(index) > audio.currentTime + 1,
    );
    if (buffered) audio.currentTime = audio.currentTime;
  }

  #show() {
    const [position, duration] = [this.position, this.duration];
    const text = `${clockText(position)} of ${clockText(duration)}`;
    const wave = byId("wave");
    setText(byId("time-now"), clockText(position));
    setText(byId("time-all"), clockText(duration));
    if (wave.getAttribute("aria-valuetext") !== text) {
      wave.setAttribute("aria-valuemax", String(Math.round(duration)));
      wave.setAttribute("aria-valuenow", String(Math.round(Math.min(position, duration || position))));
      wave.setAttribute("aria-valuetext", text);
    }
    this.#waveform.setPosition(duration ? position / duration : 0);
    this.dispatchEvent(new Event("time"));
  }

  #listenToSlider(wave) {
    const seekTo = (event) => {
      const box = wave.getBoundingClientRect();
      this.seek((Math.max(0, Math.min(1, (event.clientX - box.left) / box.width)) || 0) * this.duration);
    };
    wave.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      wave.setPointerCapture(event.pointerId);
      seekTo(event);
    });
    wave.addEventListener("pointermove", (event) => {
      if (wave.hasPointerCapture(event.pointerId)) seekTo(event);
    });
    wave.addEventListener("keydown", (event) => {
      const steps = { PageUp: 30, PageDown: -30, ArrowUp: SKIP, ArrowDown: -SKIP, ArrowRight: SKIP, ArrowLeft: -SKIP };
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.key === "Home") this.seek(0);
      else if (event.key === "End") this.seek(this.duration);
      else if (event.key in steps) this.skip(steps[event.key]);
      else return;
      event.preventDefault();
      event.stopPropagation(); // the page's own arrows would skip once more
    });
  }

  #complain(message) {
    byId("player-message").textContent = message;
    byId("player-message").hidden = !message;
  }
}
