// An editable transcript: the segments that the server sent, and their edits.
// reader.js makes one for each recording it shows; downloads.js sends `exported()` to the server. Does not use the DOM.
//
// Times are never edited. Unchanged words keep theirs; new words share the time of those that they replace.

const TYPING_PAUSE = 900; // milliseconds; typing without a longer pause is undone at once
const MOST_UNDO = 500;
const LONGEST_SEGMENT = 60; // seconds; segments that start earlier are not searched

export class Transcript {
  #item; // of the queue: {segments, edits}
  #undo = []; // of [{index, before, after}, ...], one list for each undo
  #redo = [];
  #lastTyping = { index: -1, time: 0 };

  constructor(item) {
    this.#item = item;
  }

  get length() {
    return this.#item.segments.length;
  }

  /** A segment with its edits: {start, end, text, words}. */
  segment(index) {
    return { ...this.#item.segments[index], ...this.#item.edits[index] };
  }

  /** The text that is shown: without the blank before the first word. */
  shown(index) {
    return this.segment(index).text.trimStart();
  }

  isEdited(index) {
    return index in this.#item.edits;
  }

  /** All segments with their edits. */
  exported() {
    return this.#item.segments.map((_, index) => this.segment(index));
  }

  /** The text to copy, one line for each segment. */
  lines() {
    return this.exported().map(({ speaker, text }) => `${speaker ? `${speaker}: ` : ""}${text.trim()}`).join("\n").trim();
  }

  /** The whole text on one line, for text models. */
  flowing() {
    return this.exported().map(({ text }) => text.trim()).filter(Boolean).join(" ");
  }

  /** The places of a segment's words in the shown text: [{from, to, start, end}], times in seconds. */
  wordPlaces(index) {
    const { text, words } = this.segment(index);
    const lead = text.length - text.trimStart().length;
    return locate(words ?? [], text).map(({ from, to, word }) => ({
      from: from - lead,
      to: to - lead,
      start: word.start,
      end: word.end,
    }));
  }

  /** The segments that are spoken at a time, in order: several, where speakers talk at once. */
  segmentsAt(seconds) {
    let [low, high] = [0, this.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.#item.segments[middle].start <= seconds) low = middle + 1; // they are in order of their starts
      else high = middle;
    }
    const spoken = [];
    for (let index = low - 1; index >= 0; index -= 1) {
      const { start, end } = this.#item.segments[index];
      if (seconds < end) spoken.unshift(index);
      if (seconds - start > LONGEST_SEGMENT) break;
    }
    return spoken;
  }

  /** Sets the shown text of a segment. typing: keystrokes in a row become one step of undo. */
  edit(index, shown, { typing = false } = {}) {
    const change = this.#changeOf(index, shown);
    if (!change) return;
    const now = performance.now();
    const last = this.#undo.at(-1);
    const joins = typing && last?.length === 1 && this.#lastTyping.index === index;
    if (joins && now - this.#lastTyping.time < TYPING_PAUSE) last[0].after = change.after;
    else this.#push([change]);
    this.#lastTyping = typing ? { index, time: now } : { index: -1, time: 0 };
    this.#redo = [];
    this.#put(index, change.after);
  }

  get canUndo() {
    return this.#undo.length > 0;
  }

  get canRedo() {
    return this.#redo.length > 0;
  }

  /** Returns the segments that changed: [{index, from, to}], with where in the shown text; empty when there is nothing. */
  undo() {
    return this.#step(this.#undo, this.#redo, "before");
  }

  redo() {
    return this.#step(this.#redo, this.#undo, "after");
  }

  /** All places of a text: [{index, from, to}], in the shown texts. */
  find(query, { matchCase = false } = {}) {
    if (!query) return [];
    const places = [];
    for (let index = 0; index < this.length; index += 1) {
      const shown = this.shown(index);
      for (const [from, to] of occurrences(shown, query, matchCase)) places.push({ index, from, to });
    }
    return places;
  }

  replace({ index, from, to }, replacement) {
    const shown = this.shown(index);
    this.edit(index, shown.slice(0, from) + replacement + shown.slice(to));
  }

  /** Replaces all places as one step. One after the other, so that the words around each keep their times. */
  replaceAll(query, replacement, options) {
    const places = this.find(query, options);
    const before = new Map();
    for (const { index, from, to } of places.reverse()) {
      if (!before.has(index)) before.set(index, this.#current(index));
      const shown = this.shown(index);
      const change = this.#changeOf(index, shown.slice(0, from) + replacement + shown.slice(to));
      if (change) this.#put(index, change.after);
    }
    const changes = [...before].map(([index, state]) => ({ index, before: state, after: this.#current(index) }));
    if (changes.length) this.#push(changes.reverse());
    this.#redo = [];
    this.#lastTyping = { index: -1, time: 0 };
    return places.length;
  }

  #step(from, to, side) {
    const changes = from.pop();
    if (!changes) return [];
    to.push(changes);
    this.#lastTyping = { index: -1, time: 0 };
    return changes.map((change) => {
      const old = this.shown(change.index);
      this.#put(change.index, change[side]);
      const shown = this.shown(change.index);
      const { prefix, suffix } = difference(old, shown);
      return { index: change.index, from: prefix, to: shown.length - suffix };
    });
  }

  #push(changes) {
    this.#undo.push(changes);
    if (this.#undo.length > MOST_UNDO) this.#undo.shift();
  }

  #current(index) {
    return this.#item.edits[index] ?? null; // null: as the server sent it
  }

  #changeOf(index, shown) {
    const original = this.#item.segments[index];
    const { start, end, text, words } = this.segment(index);
    const lead = original.text.slice(0, original.text.length - original.text.trimStart().length);
    const newText = lead + shown;
    if (newText === text) return null;
    const after = newText === original.text ? null : { text: newText, words: retime(words, text, newText, start, end) };
    return { index, before: this.#current(index), after };
  }

  #put(index, state) {
    if (state === null) delete this.#item.edits[index];
    else this.#item.edits[index] = state;
  }
}

/** Where each word stands in a text: [{from, to, word}], without blanks; words that are not there are left out. */
export function locate(words, text) {
  const places = [];
  let position = 0;
  for (const word of words) {
    const bare = word.word.trim();
    const from = bare ? text.indexOf(bare, position) : -1;
    if (from < 0) continue;
    position = from + bare.length;
    places.push({ from, to: position, word });
  }
  return places;
}

/**
 * The words of an edited text. One stretch differs: words that it touches are replaced, and the new ones share their
 * time by length (one for one where there are as many); all others keep theirs.
 *
 *     before   Where  is  the  cat |er now|
 *     after    Where  is  the  cat |hedral|        "cater" and "now" were touched; "cathedral" gets the time of both
 */
export function retime(words, before, after, start, end) {
  if (!words) return words ?? null;
  const { prefix, suffix } = difference(before, after);
  const [oldEnd, newEnd] = [before.length - suffix, after.length - suffix];
  const grows = newEnd - oldEnd;
  const inserted = after.slice(prefix, newEnd);
  const [gluesLeft, gluesRight] = [/^\S/.test(inserted), /\S$/.test(inserted)];
  const joined = !inserted; // deleted text may have joined two words
  const head = [];
  const touched = [];
  const tail = [];
  for (const place of locate(words, before)) {
    const isLeft = place.to < prefix || (place.to === prefix && !gluesLeft && !(joined && /^\S/.test(after.slice(prefix))));
    const isRight = place.from > oldEnd || (place.from === oldEnd && !gluesRight && !(joined && /\S$/.test(after.slice(0, prefix))));
    (isLeft ? head : isRight ? tail : touched).push(place);
  }
  const from = Math.min(prefix, touched[0]?.from ?? prefix);
  const to = Math.max(newEnd, (touched.at(-1)?.to ?? oldEnd) + grows);
  const pieces = [...after.slice(from, to).matchAll(/\S+/g)].map((match) => ({
    from: from + match.index,
    to: from + match.index + match[0].length,
  }));
  const span = [
    touched[0]?.word.start ?? head.at(-1)?.word.end ?? start,
    touched.at(-1)?.word.end ?? tail[0]?.word.start ?? end,
  ];
  const all = [
    ...head,
    ...pieces.map((piece, index) => ({ ...piece, word: { ...timeOf(piece, index, pieces, touched, span), probability: 1 } })),
    ...tail.map((place) => ({ ...place, from: place.from + grows, to: place.to + grows })),
  ];
  let position = 0;
  return all.map((place) => {
    const word = after.slice(position, place.to); // with the blank before it
    position = place.to;
    return { word, start: place.word.start, end: place.word.end, probability: place.word.probability };
  });
}

function timeOf(piece, index, pieces, touched, [start, end]) {
  if (pieces.length === touched.length) return { start: touched[index].word.start, end: touched[index].word.end };
  const lengths = pieces.map(({ from, to }) => to - from);
  const total = lengths.reduce((sum, length) => sum + length, 0);
  const before = lengths.slice(0, index).reduce((sum, length) => sum + length, 0);
  const at = (letters) => Math.round(1000 * (start + ((end - start) * letters) / total)) / 1000;
  return { start: at(before), end: at(before + lengths[index]) };
}

/** Lengths of what two texts have in common at their begin and at their end. */
function difference(before, after) {
  const shorter = Math.min(before.length, after.length);
  let prefix = 0;
  while (prefix < shorter && before[prefix] === after[prefix]) prefix += 1;
  let suffix = 0;
  while (suffix < shorter - prefix && before.at(-1 - suffix) === after.at(-1 - suffix)) suffix += 1;
  return { prefix, suffix };
}

function occurrences(text, query, matchCase) {
  const pattern = new RegExp(query.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"), matchCase ? "gu" : "giu");
  return [...text.matchAll(pattern)].map((match) => [match.index, match.index + match[0].length]);
}
