// Decodes sound to samples in the browser. Called by waveform.js and language-check.js.

const LONGEST = 30 * 60; // seconds; longer recordings are not decoded: an hour at 8 kHz is 115 MB of samples
const LARGEST = 256 * 1024 ** 2; // bytes of a file

/** A recording's AudioBuffer at a sample rate in Hz, or null if it is too long or this browser cannot decode it. */
export async function decode(blob, duration, rate) {
  if (blob.size > LARGEST || !duration || duration > LONGEST || !window.OfflineAudioContext) return null;
  try {
    return await new OfflineAudioContext(1, 1, rate).decodeAudioData(await blob.arrayBuffer());
  } catch {
    return null;
  }
}
