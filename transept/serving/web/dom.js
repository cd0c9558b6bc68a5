// Small helpers for the document. Everything that comes from the server or from a file becomes text here, never markup.
// Used by every module that shows something.

const SVG = "http://www.w3.org/2000/svg";

/** The element with this id, which index.html has. */
export const byId = (id) => document.getElementById(id);

/**
 * A new element. `attributes` are attributes, but for `text` (its text) and `on` (listeners by event); an attribute that
 * is false, null or undefined is left out, one that is true is empty.
 */
export function make(tag, { text, on = {}, ...attributes } = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value === true ? "" : value);
  }
  for (const [event, listener] of Object.entries(on)) element.addEventListener(event, listener);
  if (text !== undefined) element.textContent = text;
  element.append(...children);
  return element;
}

/** An icon of the sprite in index.html; decoration, so a label must stand beside it or on its button. */
export function icon(name) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("class", "icon");
  svg.setAttribute("aria-hidden", "true");
  const use = document.createElementNS(SVG, "use");
  use.setAttribute("href", `#icon-${name}`);
  svg.append(use);
  return svg;
}

/** A button that shows an icon only; `label` is its name and its tooltip. */
export function iconButton(name, label, onClick) {
  const button = make("button", { type: "button", class: "icon-button", "aria-label": label, title: label }, icon(name));
  button.addEventListener("click", onClick);
  return button;
}

/** Sets the text only where it differs, so that a live region speaks once. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

let spoken = 0;

/** Says something to a screen reader, politely. */
export function announce(message) {
  const places = byId("announcer").children; // two in turn: the same message twice is still a change
  places[spoken % 2].textContent = "";
  spoken += 1;
  places[spoken % 2].textContent = message;
}

/** Options of a <select>: [value, text] pairs. What was chosen stays chosen where it still exists. */
export function fillSelect(select, pairs, chosen = select.value) {
  select.replaceChildren(...pairs.map(([value, text]) => make("option", { value, text })));
  if (pairs.some(([value]) => value === chosen)) select.value = chosen;
}

/** Downloads a Blob as a file. */
export function download(name, blob) {
  const address = URL.createObjectURL(blob);
  const link = make("a", { href: address, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

/** Copies text; also where the page is not from https or localhost, and browsers have no clipboard for it. */
export async function copyText(text) {
  if (navigator.clipboard) {
    await navigator.clipboard.writeText(text);
    return;
  }
  const area = make("textarea", { class: "visually-hidden", "aria-hidden": "true" });
  const before = document.activeElement;
  area.value = text;
  document.body.append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  before?.focus();
  if (!done) throw new Error("the browser did not copy");
}

/** 3725 -> "1:02:05". */
export function clockText(seconds) {
  const whole = Math.max(0, Math.floor(Number.isFinite(seconds) ? seconds : 0));
  const [h, m, s] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
  return `${h ? `${h}:${String(m).padStart(2, "0")}` : m}:${String(s).padStart(2, "0")}`;
}

/** "1 file", "3 files". */
export const counted = (number, noun) => `${number} ${noun}${number === 1 ? "" : "s"}`;
