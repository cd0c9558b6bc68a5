// A worker: the peaks of a recording's channels together, scaled so that the loudest is 255. waveform.js starts it and posts to it.

self.onmessage = ({ data: { channels, count } }) => {
  const heights = new Float32Array(count);
  for (const samples of channels) {
    for (let index = 0; index < count; index += 1) {
      const from = Math.floor((index * samples.length) / count);
      const to = Math.floor(((index + 1) * samples.length) / count);
      let peak = heights[index];
      for (let at = from; at < to; at += 1) peak = Math.max(peak, Math.abs(samples[at]));
      heights[index] = peak;
    }
  }
  const loudest = heights.reduce((most, height) => Math.max(most, height), 1e-4);
  self.postMessage(Uint8Array.from(heights, (height) => Math.round((255 * height) / loudest)));
};
