// Runs on the browser's audio thread: takes what the microphone hears, as 16-bit samples, and how loud it is.
// recorder.js adds it to its AudioContext and gets {samples, level} about ten times a second; samples is null in a pause.

const BLOCKS = 16; // of 128 samples, a message

class RecorderProcessor extends AudioWorkletProcessor {
  constructor() {
    super();
    this.recording = true;
    this.blocks = 0;
    this.level = 0;
    this.samples = new Int16Array(BLOCKS * 128);
    this.filled = 0;
    this.port.onmessage = ({ data }) => {
      this.send();
      this.recording = data.recording;
      if (data.flush) this.port.postMessage({ flushed: true });
    };
  }

  process([input]) {
    const channels = input ?? [];
    const length = channels[0]?.length ?? 0;
    for (let index = 0; index < length; index += 1) {
      let sample = 0;
      for (const channel of channels) sample += channel[index];
      sample = Math.max(-1, Math.min(1, sample / channels.length));
      this.level = Math.max(this.level, Math.abs(sample));
      if (this.recording) this.samples[this.filled++] = Math.round(sample < 0 ? sample * 32768 : sample * 32767);
      if (this.filled === this.samples.length) this.send();
    }
    this.blocks += 1;
    if (this.blocks >= BLOCKS) this.send();
    return true;
  }

  send() {
    const samples = this.filled ? this.samples.slice(0, this.filled) : null;
    this.port.postMessage({ samples, level: this.level }, samples ? [samples.buffer] : []);
    this.blocks = this.filled = this.level = 0;
  }
}

registerProcessor("transept-recorder", RecorderProcessor);
