// Checks if a model that knows one language was given another. Such a model writes its own language for any speech and
// does not detect the difference. If the server also has a model that detects languages, that model gets half a minute
// of the recording; otherwise the check uses the first model's confidence. main.js makes one; words.js has the words, reader.js shows them.

import { upload } from "./api.js";
import { decode } from "./decoding.js";
import { wavHeader } from "./recorder.js";

const RATE = 16_000; // Hz
const EXCERPT = 30; // seconds, the window in which Whisper detects a language

export class LanguageCheck {
  #queue;
  #server;
  #last = Promise.resolve(); // one at a time

  constructor(queue, server) {
    this.#queue = queue;
    this.#server = server;
    queue.addEventListener("item", ({ detail: item }) => {
      const only = server.model(item.options.model)?.only_language;
      if (item.state !== "done" || !only || item.heard !== undefined) return;
      item.heard = null; // requested
      const { segments } = item;
      this.#last = this.#last.then(() => this.#check(item, segments)).catch(() => {}); // on failure it stays unknown
    });
  }

  async #check(item, segments) {
    const detector = this.#server.speechModels.find((model) => model.detects_language && model.state === "ready");
    const blob = detector && (await this.#queue.blob(item));
    const excerpt = blob && (await excerptOf(blob, item.duration, segments[0]?.start ?? 0));
    const heard = excerpt && (await languageOf(excerpt, detector.id));
    if (heard && item.segments === segments) this.#queue.hear(item, { ...heard, model: detector.id });
  }
}

/** Half a minute of mono sound from a given time, as a WAV file, or null if this browser cannot decode it. */
async function excerptOf(blob, duration, start) {
  const decoded = await decode(blob, duration, RATE);
  if (!decoded) return null;
  const from = Math.floor(start * RATE);
  const channels = Array.from({ length: decoded.numberOfChannels }, (_, number) =>
    decoded.getChannelData(number).subarray(from, from + EXCERPT * RATE),
  );
  const samples = Int16Array.from(channels[0], (_, index) => {
    const mixed = channels.reduce((sum, channel) => sum + channel[index], 0) / channels.length;
    return Math.round(32767 * Math.max(-1, Math.min(1, mixed)));
  });
  return new Blob([wavHeader(samples.length, RATE), samples], { type: "audio/wav" });
}

/** The {language, probability} that a model detects. Ends the request as soon as these are known. */
async function languageOf(excerpt, model) {
  const controller = new AbortController();
  const form = new FormData();
  for (const [name, value] of Object.entries({ model, stream: "true", progress: "true" })) form.append(name, value);
  form.append("file", excerpt, "excerpt.wav");
  let heard = null;
  const onEvent = ({ type, language, language_probability: probability }) => {
    if (type !== "transcript.info") return;
    heard = { language, probability };
    controller.abort();
  };
  try {
    await upload("v1/audio/transcriptions", form, { signal: controller.signal, onSent: () => {}, onEvent });
  } catch (error) {
    if (!heard) throw error;
  }
  return heard;
}
