// Live transcription over /v1/realtime, OpenAI's protocol: sound goes out, text comes back. live-tab.js makes one for each
// recording. Does not use the DOM.
//
// If the connection breaks, the stream connects again and sends the sound that has no final text yet, at most KEPT_SECONDS
// of it. All times are seconds of the recording.
//
// Events: "state" (`state`, `problem` changed), "words" (detail: final [{word, start, end, probability}]), "tentative"
// (detail: the text that may still change), "speech" (detail: true during speech), "over" (the utterance is
// complete), "language" (detail: its code), "failed" (`problem` says why; the stream has ended).

import { ApiError, UnreachableError, address, errorInStream, pause, politely, postJson, storedKey } from "./api.js";
import { PageError, inPlainWords } from "./errors.js";
import { waitText } from "./words.js";

const KEPT_SECONDS = 30; // of sound to send again
const FINISH_TIME = 15_000; // milliseconds for the last words
const PAUSES = [1, 2, 4, 8, 15]; // seconds before each attempt to connect again
const BLOCKED_AFTER = 3; // failed handshakes
const OF_ITEM = "conversation.item.input_audio_transcription";
const INCLUDED = ["words", "tentative"].map((each) => `item.input_audio_transcription.${each}`);
const NO_AUDIO = "input_audio_buffer_commit_empty";
const CONNECT_AGAIN = new Set(["session_expired", "idle_timeout"]);
const BLOCKED = new PageError(
  "The connection for live captions could not be opened.",
  "A proxy before the server may block WebSockets. Record instead, under Transcribe.",
);
const LOST = "The connection is lost; trying again. Everything said until now is kept.";

export class LiveStream extends EventTarget {
  /** "connecting", "open", "waiting" (`problem` says for what), "failed" or "ended". */
  state = "connecting";
  problem = "";
  #settings;
  #rate;
  #socket = null; // while it is open
  #stop = new AbortController();
  #sound = []; // [{start, end, samples}] without final text yet, in order
  #seconds = 0; // of all sound
  #offset = 0; // where the connection's sound begins
  #utterances = new Set(); // ids of items that are not complete
  #finished = null; // called once the last words have come
  #isLast = false; // the server has taken the end of the sound

  /** rate: Hz of the samples. settings: {model, language, keywords}; language: "" if it is to be detected. */
  constructor(rate, settings) {
    super();
    this.#rate = rate;
    this.#settings = settings;
  }

  /** Connects, and again while the connection breaks. Returns once the stream has ended or failed. */
  async run() {
    const { signal } = this.#stop;
    let [failures, blocked] = [0, 0];
    while (!signal.aborted) {
      try {
        await this.#connect(() => ([failures, blocked] = [0, 0]), () => (blocked += 1));
        break;
      } catch (error) {
        this.#disconnected();
        if (signal.aborted) break;
        const fatal = blocked >= BLOCKED_AFTER ? BLOCKED : isPassing(error) ? null : error;
        if (fatal) {
          this.#set("failed", inPlainWords(fatal, "stream"));
          this.#tell("failed");
          return;
        }
        const seconds = PAUSES[Math.min(failures, PAUSES.length - 1)];
        failures += 1;
        this.#set("waiting", error instanceof UnreachableError ? LOST : waitText(seconds, error));
        await pause(seconds * 1000, signal).catch(() => {});
      }
    }
    this.#set("ended");
  }

  /** Sends sound. samples: Int16Array. */
  send(samples) {
    const start = this.#seconds;
    this.#seconds += samples.length / this.#rate;
    this.#sound.push({ start, end: this.#seconds, samples });
    while (this.#seconds - this.#sound[0].start > KEPT_SECONDS) this.#sound.shift();
    if (this.state === "open") this.#append(samples);
  }

  /** Ends the utterance, because no sound follows for a while. */
  commit() {
    if (this.state === "open") this.#post("input_audio_buffer.commit");
  }

  /** Ends the sound, waits for the last words, and closes the connection. */
  async finish() {
    if (this.state === "open") {
      const finished = new Promise((resolve) => (this.#finished = resolve));
      this.commit();
      this.#post("session.update", { session: { type: "transcription" } }); // its answer shows that the end was taken
      await Promise.race([finished, pause(FINISH_TIME)]);
    }
    this.close();
  }

  /** Ends at once. */
  close() {
    this.#stop.abort();
    this.#socket?.close();
  }

  async #connect(onOpen, onBlocked) {
    const { signal } = this.#stop;
    this.#set("connecting", this.problem);
    const onWait = (seconds, error) => this.#set("waiting", waitText(seconds, error));
    // even without a stored key, because this request asks for one if the server needs it
    const { value } = await politely(() => postJson("v1/realtime/client_secrets", {}, { signal }), { signal, onWait });
    signal.throwIfAborted();
    const key = storedKey() ? [`openai-insecure-api-key.${value}`] : []; // browsers cannot set a WebSocket's headers
    const url = new URL(address("v1/realtime?intent=transcription"));
    url.protocol = url.protocol.replace("http", "ws");
    url.searchParams.set("model", this.#settings.model);
    const socket = new WebSocket(url, ["realtime", ...key]);
    this.#socket = socket;
    let wasOpen = false;
    let refusal = null; // the server's error before it closes the connection
    await new Promise((resolve, reject) => {
      socket.addEventListener("open", () => (wasOpen = true));
      socket.addEventListener("message", ({ data }) => {
        const event = JSON.parse(data);
        if (event.type === "session.updated" && this.state !== "open") onOpen();
        if (event.type !== "error" || event.error.code === NO_AUDIO) this.#take(event);
        else {
          refusal = errorInStream(event.error);
          socket.close();
          reject(refusal);
        }
      });
      socket.addEventListener("close", () => {
        if (!wasOpen) onBlocked();
        if (signal.aborted) resolve();
        else reject(refusal ?? new UnreachableError());
      });
    });
  }

  #take(event) {
    if (event.type === "session.created") this.#post("session.update", { session: this.#session() });
    else if (event.type === "session.updated" && this.state === "open") this.#isLast = this.#finished !== null;
    else if (event.type === "session.updated") this.#begin();
    else if (event.type === "input_audio_buffer.speech_started") {
      this.#utterances.add(event.item_id);
      this.#tell("speech", true);
    } else if (event.type === "input_audio_buffer.speech_stopped") this.#tell("speech", false);
    else if (event.type === "input_audio_buffer.committed") this.#utterances.add(event.item_id);
    else if (event.type === `${OF_ITEM}.delta`) this.#words(event);
    else if (event.type === `${OF_ITEM}.tentative`) this.#tell("tentative", event.text);
    else if (event.type === `${OF_ITEM}.completed` || event.type === `${OF_ITEM}.failed`) this.#complete(event);
    if (this.#isLast && !this.#utterances.size) this.#finished();
  }

  #session() {
    const { model, language, keywords } = this.#settings;
    const transcription = { model, ...(language ? { language } : {}), ...(keywords.length ? { keywords } : {}) };
    const input = { format: { type: "audio/pcm", rate: this.#rate }, transcription };
    return { type: "transcription", audio: { input }, include: INCLUDED };
  }

  #begin() {
    this.#set("open");
    this.#offset = this.#sound[0]?.start ?? this.#seconds;
    this.#sound.forEach(({ samples }) => this.#append(samples));
  }

  #words({ item_id: id, delta, words }) {
    this.#utterances.add(id);
    if (this.problem) this.#set("open"); // of an earlier utterance
    const placed = words.map((word) => ({ ...word, start: word.start + this.#offset, end: word.end + this.#offset }));
    if (/^\s/.test(delta) && !/^\s/.test(placed[0].word)) placed[0].word = ` ${placed[0].word}`; // between two segments
    while (this.#sound[0]?.end <= placed.at(-1).end) this.#sound.shift();
    this.#tell("words", placed);
  }

  #complete({ item_id: id, languages, error }) {
    this.#utterances.delete(id);
    this.#tell("over");
    if (languages?.length) this.#tell("language", languages[0].code);
    if (error) this.#set("open", inPlainWords(errorInStream(error), "stream"));
  }

  #disconnected() {
    this.#socket = null;
    this.#utterances.clear();
    this.#tell("speech", false);
    this.#tell("over");
  }

  #append(samples) {
    this.#post("input_audio_buffer.append", { audio: base64(samples) });
  }

  #post(type, fields = {}) {
    this.#socket.send(JSON.stringify({ type, ...fields }));
  }

  #set(state, problem = "") {
    Object.assign(this, { state, problem });
    this.#tell("state");
  }

  #tell(type, detail) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }
}

/** True for errors after which another attempt may succeed. */
function isPassing(error) {
  if (!(error instanceof ApiError)) return error instanceof UnreachableError;
  return CONNECT_AGAIN.has(error.code) || (error.code !== "failed" && (error.status === 429 || error.status === 503));
}

const base64 = ({ buffer, byteOffset, byteLength }) =>
  btoa(String.fromCharCode(...new Uint8Array(buffer, byteOffset, byteLength)));
