// ZIP archives without compression, because transcripts are small. The format is PKWARE's APPNOTE 6.3, sections 4.3.7,
// 4.3.12 and 4.3.16. Called by downloads.js and image-tab.js.

const MOST_FILES = 65535; // more, or more than 4 GiB, would need ZIP64
const UTF8_NAMES = 1 << 11; // general purpose bit 11
const VERSION = 20; // 2.0, the version that a reader needs
const CRC_TABLE = Uint32Array.from({ length: 256 }, (_, byte) => {
  let value = byte;
  for (let bit = 0; bit < 8; bit += 1) value = value & 1 ? (value >>> 1) ^ 0xedb88320 : value >>> 1;
  return value;
});

/** A Blob of the archive. files: [{name, data}] of bytes, under names that `uniqueNames` made. */
export function zipOf(files, date = new Date()) {
  if (files.length > MOST_FILES) throw new RangeError(`an archive holds ${MOST_FILES} files, not ${files.length}`);
  const encoder = new TextEncoder();
  const [parts, entries] = [[], []];
  let offset = 0;
  for (const { name, data } of files) {
    const path = encoder.encode(name);
    const common = commonFields(path, data, date);
    const local = fields([[4, 0x04034b50], ...common]);
    parts.push(local, path, data);
    // no comment, first disk, no attributes; then the position of the file's own header
    entries.push(fields([[4, 0x02014b50], [2, VERSION], ...common, [2, 0], [2, 0], [2, 0], [4, 0], [4, offset]]), path);
    offset += local.length + path.length + data.length;
  }
  const size = entries.reduce((sum, entry) => sum + entry.length, 0);
  const count = files.length;
  const end = fields([[4, 0x06054b50], [2, 0], [2, 0], [2, count], [2, count], [4, size], [4, offset], [2, 0]]);
  return new Blob([...parts, ...entries, end], { type: "application/zip" });
}

/** Names that are unique on any file system and do not lead to another folder: "a.txt", "a (2).txt". */
export function uniqueNames(names) {
  const taken = new Set();
  return names.map((given) => {
    const name = given.replace(/[\\/:*?"<>|\x00-\x1f\x7f]/g, "_").replace(/^\.+/, "_") || "_";
    const [, stem, suffix] = /^(.*?)(\.[^.]*)?$/s.exec(name);
    let unique = name;
    for (let number = 2; taken.has(folded(unique)); number += 1) unique = `${stem} (${number})${suffix ?? ""}`;
    taken.add(folded(unique));
    return unique;
  });
}

const folded = (name) => name.normalize("NFC").toLowerCase();

/** The fields shared by a file's own header and its entry in the directory. */
function commonFields(path, data, date) {
  const time = (date.getHours() << 11) | (date.getMinutes() << 5) | (date.getSeconds() >> 1);
  const day = ((date.getFullYear() - 1980) << 9) | ((date.getMonth() + 1) << 5) | date.getDate();
  const stored = 0;
  const sizes = [[4, data.length], [4, data.length], [2, path.length], [2, 0]]; // packed, unpacked, name, no extra field
  return [[2, VERSION], [2, UTF8_NAMES], [2, stored], [2, time], [2, day], [4, crc32(data)], ...sizes];
}

/** Little-endian numbers of so many bytes each: [[bytes, value], ...]. */
function fields(list) {
  const view = new DataView(new ArrayBuffer(list.reduce((sum, [bytes]) => sum + bytes, 0)));
  let offset = 0;
  for (const [bytes, value] of list) {
    if (bytes === 2) view.setUint16(offset, value, true);
    else view.setUint32(offset, value, true);
    offset += bytes;
  }
  return new Uint8Array(view.buffer);
}

function crc32(data) {
  let value = 0xffffffff;
  for (const byte of data) value = CRC_TABLE[(value ^ byte) & 0xff] ^ (value >>> 8);
  return (value ^ 0xffffffff) >>> 0;
}
