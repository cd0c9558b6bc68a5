// The waveform: its peaks, computed once from a recording, and their picture on a canvas.
// player.js draws with it, reader.js asks for peaks. Without peaks, the picture is a plain line.

import { decode } from "./decoding.js";

export const PEAKS = 1200; // of a recording, whatever its length
const DECODED_RATE = 8000; // Hz; enough for a picture
const [BAR, GAP] = [2, 1]; // CSS pixels

/**
 * The loudness of a recording, of its loudest channel, in PEAKS steps, each 0..255, or null if it is too long or this browser cannot decode it.
 * The browser decodes in another thread, and a worker computes the peaks.
 */
export async function computePeaks(blob, duration) {
  const decoded = await decode(blob, duration, DECODED_RATE);
  if (!decoded) return null;
  try {
    const channels = Array.from({ length: decoded.numberOfChannels }, (_, number) => decoded.getChannelData(number).slice());
    return await inWorker(channels);
  } catch {
    return null;
  }
}

function inWorker(channels) {
  return new Promise((resolve, reject) => {
    const worker = new Worker(new URL("peaks-worker.js", import.meta.url), { type: "module" });
    worker.onmessage = (event) => {
      worker.terminate();
      resolve(event.data);
    };
    worker.onerror = (event) => {
      worker.terminate();
      reject(new Error(event.message));
    };
    worker.postMessage({ channels, count: PEAKS }, channels.map((samples) => samples.buffer));
  });
}

/** Draws peaks, and how far playback is. Colours are the style sheet's. */
export class Waveform {
  #canvas;
  #peaks = null;
  #position = 0; // fraction
  #scheduled = false;

  constructor(canvas) {
    this.#canvas = canvas;
    new ResizeObserver(() => this.#schedule()).observe(canvas.parentElement);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.#schedule());
  }

  setPeaks(peaks) {
    this.#peaks = peaks;
    this.#canvas.parentElement.classList.toggle("plain", !peaks);
    this.#schedule();
  }

  setPosition(fraction) {
    if (fraction === this.#position) return;
    this.#position = fraction;
    this.#schedule();
  }

  #schedule() {
    if (this.#scheduled) return;
    this.#scheduled = true;
    requestAnimationFrame(() => {
      this.#scheduled = false;
      this.#draw();
    });
  }

  #draw() {
    const canvas = this.#canvas;
    const { width, height } = canvas.parentElement.getBoundingClientRect();
    if (!width) return;
    const scale = window.devicePixelRatio || 1;
    const [pixelWidth, pixelHeight] = [Math.round(width * scale), Math.round(height * scale)];
    if (canvas.width !== pixelWidth || canvas.height !== pixelHeight) {
      [canvas.width, canvas.height] = [pixelWidth, pixelHeight];
    }
    const style = getComputedStyle(canvas);
    const [played, rest] = [style.getPropertyValue("--wave-played"), style.getPropertyValue("--wave-rest")];
    const context = canvas.getContext("2d");
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.clearRect(0, 0, width, height);
    const now = this.#position * width;
    if (this.#peaks) this.#drawBars(context, width, height, now, played, rest);
    else this.#drawLine(context, width, height, now, played, rest);
    context.fillStyle = played;
    context.fillRect(Math.max(0, Math.min(width - 2, now - 1)), 0, 2, height);
  }

  #drawBars(context, width, height, now, played, rest) {
    const count = Math.floor(width / (BAR + GAP));
    for (let bar = 0; bar < count; bar += 1) {
      const from = Math.floor((bar * PEAKS) / count);
      const to = Math.max(from + 1, Math.floor(((bar + 1) * PEAKS) / count));
      let peak = 0;
      for (let index = from; index < to; index += 1) peak = Math.max(peak, this.#peaks[index]);
      const tall = Math.max(2, (peak / 255) * (height - 4));
      const x = bar * (BAR + GAP);
      context.fillStyle = x < now ? played : rest;
      context.fillRect(x, (height - tall) / 2, BAR, tall);
    }
  }

  #drawLine(context, width, height, now, played, rest) {
    context.fillStyle = rest;
    context.fillRect(0, height / 2 - 1.5, width, 3);
    context.fillStyle = played;
    context.fillRect(0, height / 2 - 1.5, now, 3);
  }
}
