// The two download menus: for the recording that is shown, and for all finished ones, as one archive.
// The server writes each file, so that it is the one that `transept transcribe` writes. main.js makes one.

import { UnreachableError, politely, postForFile } from "./api.js";
import { announce, byId, counted, download } from "./dom.js";
import { PageError, inPlainWords } from "./errors.js";
import { Menu } from "./menu.js";
import { showMessage } from "./message-box.js";
import { Transcript } from "./transcript.js";
import { waitText } from "./words.js";
import { uniqueNames, zipOf } from "./zip.js";

// The formats of /v1/format, with the word for each in a menu.
const FORMATS = {
  txt: "Text",
  srt: "Subtitles",
  vtt: "Web subtitles",
  json: "Data",
  tsv: "Table",
  csv: "Spreadsheet",
  lrc: "Lyrics",
  ass: "Karaoke",
  ttml: "Broadcast subtitles",
  html: "Page",
};
const SUBTITLES = ["srt", "vtt", "lrc", "ass", "ttml"]; // which have a style
const PLAIN = "plain"; // the style that needs no times of words
const EVERY = Object.keys(FORMATS);
const AT_ONCE = 2; // requests
const LONG = 1000; // milliseconds after which an archive shows its progress

export class Downloads {
  #queue;
  #server;

  /** shown: returns the recording that the reader shows. */
  constructor(queue, server, shown) {
    [this.#queue, this.#server] = [queue, server];
    const each = (choose) => EVERY.map((format) => ({ label: FORMATS[format], note: format, choose: () => choose(format) }));
    const archive = (choose) => ({ label: "All of these", note: "zip", choose });
    const [one, all] = [byId("download-message"), byId("download-all-message")];
    new Menu("download", [
      ...each((format) => this.#attempt(one, (say) => saveOne(shown(), format, say))),
      archive(() => this.#attempt(one, (say) => saveArchive([shown()], EVERY, say))),
    ]);
    new Menu("download-all", [
      ...each((format) => this.#attempt(all, (say) => saveArchive(this.#done, [format], say))),
      archive(() => this.#attempt(all, (say) => saveArchive(this.#done, EVERY, say))),
    ]);
    for (const type of ["item", "list"]) queue.addEventListener(type, () => this.#show());
  }

  get #done() {
    return this.#queue.items.filter((item) => item.state === "done" && item.segments.length);
  }

  #show() {
    byId("download-all").disabled = !this.#done.length;
  }

  /** Runs a download, which may say how far it is, and shows in a box what went wrong. */
  async #attempt(box, save) {
    const say = (text) => {
      box.className = "hint";
      showMessage(box, text);
    };
    try {
      await save(say);
      showMessage(box, "");
    } catch (error) {
      const gone = error instanceof UnreachableError;
      if (gone) this.#server.refresh();
      box.className = "message";
      showMessage(box, inPlainWords(gone ? SERVER_GONE : error, "transcript"));
    }
  }
}

const SERVER_GONE = new PageError("The server, which writes the files, does not answer.", "Nothing is lost: download again when it is back.");

const NO_WORDS = new PageError(
  "The style of subtitles needs the times of words, which this transcript does not have.",
  "Choose the plain style, or transcribe the recording again with times of words.",
);

async function saveOne(item, format, say) {
  const { name, blob } = await written(item, format, say);
  download(name, blob);
  announce(`${name}: ${counted(item.segments.length, "segment")} downloaded.`);
}

async function saveArchive(items, formats, say) {
  const wanted = items.flatMap((item) => formats.map((format) => [item, format]));
  const [files, begin, stop] = [[], performance.now(), new AbortController()];
  let done = 0;
  const write = async () => {
    for (let index = files.length; index < wanted.length; index = files.length) {
      files.push(null); // its place is taken
      const { name, blob } = await written(...wanted[index], say, stop.signal);
      files[index] = { name, data: new Uint8Array(await blob.arrayBuffer()) };
      done += 1;
      if (performance.now() - begin > LONG) say(`${done} of ${counted(wanted.length, "file")} written`);
    }
  };
  try {
    await Promise.all(Array.from({ length: AT_ONCE }, write));
  } finally {
    stop.abort();
  }
  const names = uniqueNames(files.map(({ name }) => name));
  const single = items.length === 1 && formats.length > 1;
  const stem = single ? files[0].name.slice(0, -formats[0].length - 1) : formats.length === 1 ? `transcripts-${formats[0]}` : "transcripts";
  download(`${stem}.zip`, zipOf(files.map(({ data }, index) => ({ name: names[index], data }))));
  announce(`${stem}.zip: ${counted(files.length, "file")} downloaded.`);
}

/** A recording's transcript in a format, with its edits, as the server writes it: {name, blob}. */
function written(item, format, say, signal) {
  const language = item.language ?? item.options.language ?? "";
  const body = { format, file_name: item.name, language, segments: new Transcript(item).exported() };
  if (SUBTITLES.includes(format) && byId("style").value !== PLAIN) {
    if (!body.segments.every(({ words }) => words)) throw NO_WORDS;
    body.style = byId("style").value;
  }
  return politely(() => postForFile("v1/format", body, { signal }), { signal, onWait: (seconds, error) => say(waitText(seconds, error)) });
}
