// Advanced SubStation Alpha, in which each word changes its colour as it is said, byte for byte as
// transept/speech/output/advanced_substation.py writes it, which says what the format wants. Called by exports.js.

import { round } from "./python-text.js";
import { attribution, fillSubtitles, haveWords, makeCues } from "./subtitles.js";

const HEAD = `[Script Info]
ScriptType: v4.00+
PlayResX: 1920
PlayResY: 1080
ScaledBorderAndShadow: yes

[V4+ Styles]
Format: Name, Fontname, Fontsize, PrimaryColour, SecondaryColour, OutlineColour, BackColour, Bold, Italic, Underline, \
StrikeOut, ScaleX, ScaleY, Spacing, Angle, BorderStyle, Outline, Shadow, Alignment, MarginL, MarginR, MarginV, Encoding
Style: Default,Arial,64,&H0000FFFF,&H00FFFFFF,&H00000000,&H80000000,0,0,0,0,100,100,0,0,1,3,1,2,60,60,50,1

[Events]
Format: Layer, Start, End, Style, Name, MarginL, MarginR, MarginV, Effect, Text
`;
const WORD_JOINER = "\u2060"; // shown as nothing; what stands after it begins no command of the format

export function toKaraoke(segments) {
  const lines = haveWords(segments)
    ? fillSubtitles(segments).map(({ words, speaker }) =>
        line(hundredths(words[0].start), hundredths(words.at(-1).end), speaker, syllables(words)),
      )
    : makeCues(segments).map((cue) => line(round(cue.start / 10), round(cue.end / 10), cue.speaker, escaped(cue.text)));
  return HEAD + lines.join("");
}

/** Words, each with its time; pauses between them are syllables without text. */
function syllables(words) {
  let done = hundredths(words[0].start);
  return words
    .map(({ start, end, word }) => {
      const begin = Math.max(done, hundredths(start));
      const pause = begin > done ? `{\\k${begin - done}}` : "";
      done = Math.max(begin, hundredths(end));
      return `${pause}{\\k${done - begin}}${escaped(word)}`;
    })
    .join("");
}

/** The speaker stands in the field that editors show, and before the text, as players show that alone. */
function line(start, end, speaker, text) {
  const name = (speaker ?? "").replaceAll(",", ";");
  return `Dialogue: 0,${clock(start)},${clock(end)},Default,${name},0,0,0,,${escaped(attribution({ speaker }))}${text}\n`;
}

const escaped = (text) =>
  text.replaceAll("\\", `\\${WORD_JOINER}`).replaceAll("{", "\\{").replaceAll("}", "\\}").replaceAll("\n", "\\N");

const hundredths = (seconds) => round(seconds * 100);

/** H:MM:SS.cc */
function clock(total) {
  const two = (number) => String(number).padStart(2, "0");
  const seconds = Math.floor(total / 100);
  return `${Math.floor(seconds / 3600)}:${two(Math.floor(seconds / 60) % 60)}:${two(seconds % 60)}.${two(total % 100)}`;
}
