// The two download menus: for the recording that is shown, and for all finished ones, as one archive.
// main.js makes one.

import { announce, byId, counted, download } from "./dom.js";
import { FORMATS } from "./exports.js";
import { stemOf } from "./file-names.js";
import { Menu } from "./menu.js";
import { Transcript } from "./transcript.js";
import { uniqueNames, zipOf } from "./zip.js";

const EVERY = Object.keys(FORMATS);

export class Downloads {
  #queue;

  /** shown: returns the recording that the reader shows. */
  constructor(queue, shown) {
    this.#queue = queue;
    const each = (choose) => EVERY.map((format) => ({ label: FORMATS[format].label, note: format, choose: () => choose(format) }));
    const archive = (choose) => ({ label: "All of these", note: "zip", choose });
    new Menu("download", [...each((format) => saveOne(shown(), format)), archive(() => saveArchive([shown()], EVERY))]);
    new Menu("download-all", [
      ...each((format) => saveArchive(this.#done, [format])),
      archive(() => saveArchive(this.#done, EVERY)),
    ]);
    for (const type of ["item", "list"]) queue.addEventListener(type, () => this.#show());
  }

  get #done() {
    return this.#queue.items.filter((item) => item.state === "done" && item.segments.length);
  }

  #show() {
    byId("download-all").disabled = !this.#done.length;
  }
}

function saveOne(item, format) {
  const name = `${stemOf(item.name)}.${format}`;
  download(name, new Blob([written(item, format)], { type: FORMATS[format].type }));
  announce(`${name}: ${counted(item.segments.length, "segment")} downloaded.`);
}

function saveArchive(items, formats) {
  const files = items.flatMap((item) => formats.map((format) => ({ name: `${stemOf(item.name)}.${format}`, text: written(item, format) })));
  const names = uniqueNames(files.map(({ name }) => name));
  const single = items.length === 1 && formats.length > 1;
  const name = single ? `${stemOf(items[0].name)}.zip` : formats.length === 1 ? `transcripts-${formats[0]}.zip` : "transcripts.zip";
  download(name, zipOf(files.map(({ text }, index) => ({ name: names[index], text }))));
  announce(`${name}: ${counted(files.length, "file")} downloaded.`);
}

/** A recording's transcript in a format, with its edits. */
function written(item, format) {
  return FORMATS[format].write(new Transcript(item).exported(), item.language ?? item.options.language ?? "");
}
