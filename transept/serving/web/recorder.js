// Recording from the microphone: an AudioWorklet collects 16-bit samples, which become a WAV file.
// recorder-panel.js and live-tab.js show it.
//
// Events: "level" (`level`, 0..1, and `seconds` changed), "samples" (detail: new ones, an Int16Array), "lost" (the
// microphone was unplugged or taken away).

const SPEECH_RATE = 16000; // Hz, the rate of speech models
const MOST_CHUNKS = 700; // about a minute; older ones become one Blob, which browsers can keep on disk

export class Recorder extends EventTarget {
  level = 0;
  paused = false;
  #stream = null;
  #context = null;
  #node = null;
  #rate;
  #chunks = []; // of samples: Int16Array, and Blobs of many
  #length = 0; // samples
  #flushed = null;

  /** rate: Hz to record at. Browsers that cannot record at this rate use their own; see `rate`. */
  constructor(rate = SPEECH_RATE) {
    super();
    this.#rate = rate;
  }

  /** The reason why this page cannot record, or null. */
  static obstacle() {
    if (!window.isSecureContext) return "Browsers record only on pages that come from https or localhost.";
    if (!navigator.mediaDevices?.getUserMedia || !window.AudioWorkletNode) return "This browser cannot record.";
    return null;
  }

  /** Hz, once it has started. */
  get rate() {
    return this.#context.sampleRate;
  }

  get seconds() {
    return this.#context ? this.#length / this.#context.sampleRate : 0;
  }

  /** Asks for the microphone and starts. Raises an Error whose message is for the user. */
  async start() {
    try {
      this.#stream = await navigator.mediaDevices.getUserMedia({ audio: { channelCount: 1 } });
      await this.#connect();
    } catch (error) {
      this.#release();
      throw new Error(explained(error));
    }
  }

  async #connect() {
    this.#stream.getTracks().forEach((track) => track.addEventListener("ended", () => this.dispatchEvent(new Event("lost"))));
    const worklet = new URL("recorder-worklet.js", import.meta.url);
    try {
      this.#context = new AudioContext({ sampleRate: this.#rate });
      this.#context.createMediaStreamSource(this.#stream); // some browsers refuse another rate than the microphone's
    } catch {
      await this.#context?.close();
      this.#context = new AudioContext();
    }
    await this.#context.audioWorklet.addModule(worklet);
    this.#node = new AudioWorkletNode(this.#context, "transept-recorder", { numberOfOutputs: 0 });
    this.#node.port.onmessage = ({ data }) => this.#take(data);
    this.#context.createMediaStreamSource(this.#stream).connect(this.#node);
    await this.#context.resume();
  }

  pause(paused) {
    this.paused = paused;
    this.#node.port.postMessage({ recording: !paused });
  }

  /** Ends. Returns the recording as a WAV file, or null when nothing was recorded. */
  async stop(name) {
    const last = new Promise((resolve) => (this.#flushed = resolve));
    this.#node.port.postMessage({ recording: false, flush: true });
    await last;
    const rate = this.#context.sampleRate;
    this.#release();
    return this.#length ? new File([wavHeader(this.#length, rate), ...this.#chunks], name, { type: "audio/wav" }) : null;
  }

  discard() {
    this.#release();
  }

  #take({ samples, level, flushed }) {
    if (flushed) {
      this.#flushed();
      return;
    }
    if (samples) {
      this.#chunks.push(samples);
      this.#length += samples.length;
      if (this.#chunks.length > MOST_CHUNKS) this.#chunks = [new Blob(this.#chunks)];
      this.dispatchEvent(new CustomEvent("samples", { detail: samples }));
    }
    this.level = level;
    this.dispatchEvent(new Event("level"));
  }

  #release() {
    this.#stream?.getTracks().forEach((track) => track.stop());
    this.#context?.close();
    this.#stream = this.#context = null;
  }
}

/** The name of a recording's file: "Recording 2030-12-31 23.59.59.wav". */
export function fileName(kind, date = new Date()) {
  const two = (number) => String(number).padStart(2, "0");
  const day = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  return `${kind} ${day} ${two(date.getHours())}.${two(date.getMinutes())}.${two(date.getSeconds())}.wav`;
}

/** The 44 bytes before the samples of a 16-bit mono WAV file. */
export function wavHeader(samples, rate) {
  const view = new DataView(new ArrayBuffer(44));
  const ascii = (offset, text) => [...text].forEach((letter, index) => view.setUint8(offset + index, letter.charCodeAt(0)));
  ascii(0, "RIFF");
  view.setUint32(4, 36 + 2 * samples, true);
  ascii(8, "WAVEfmt ");
  view.setUint32(16, 16, true); // bytes of the format
  view.setUint16(20, 1, true); // PCM
  view.setUint16(22, 1, true); // channels
  view.setUint32(24, rate, true);
  view.setUint32(28, 2 * rate, true); // bytes a second
  view.setUint16(32, 2, true); // bytes a frame
  view.setUint16(34, 16, true); // bits a sample
  ascii(36, "data");
  view.setUint32(40, 2 * samples, true);
  return view.buffer;
}

function explained(error) {
  switch (error.name) {
    case "NotAllowedError":
      return "The browser may not use the microphone. Allow it for this page, beside the address, and try again.";
    case "NotFoundError":
      return "No microphone was found. Plug one in and try again.";
    case "NotReadableError":
      return "Another program has the microphone. Close it there and try again.";
    default:
      return `The microphone could not be used: ${error.message}`;
  }
}
