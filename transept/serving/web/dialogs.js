// The dialogs: the key, "are you sure", help. Called by main.js and queue-view.js.

import { forgetKey, rememberKey } from "./api.js";
import { byId } from "./dom.js";

let question = null; // one at a time; the key dialog may be open at the same time

/** Asks for the server's key. Resolves to a key that passed `check`, stored as the user wants, or to null. */
export function askForKey({ refused, check }) {
  const dialog = byId("key-dialog");
  const input = byId("key-input");
  const error = byId("key-error");
  const submit = byId("key-submit");
  const complain = (message) => {
    error.textContent = message;
    error.hidden = !message;
    input.setAttribute("aria-invalid", String(Boolean(message)));
  };
  if (refused) forgetKey();
  input.value = "";
  complain(refused ? "The stored key is no longer valid. Enter the new one." : "");

  return new Promise((resolve) => {
    let result = null;
    const listening = new AbortController();
    const listen = (target, type, listener) => target.addEventListener(type, listener, { signal: listening.signal });
    listen(byId("key-cancel"), "click", () => dialog.close());
    listen(byId("key-form"), "submit", async (event) => {
      event.preventDefault();
      const key = input.value.trim();
      if (!key) return;
      if (/[^\x20-\x7e]/.test(key)) {
        complain("A key has only plain letters, digits and signs. Copy it again.");
        return;
      }
      submit.disabled = true;
      try {
        if (await check(key)) {
          result = key;
          rememberKey(key, byId("key-remember").checked);
          dialog.close();
        } else {
          complain("This key is not valid. Check it and try again.");
        }
      } catch {
        complain("The server does not answer. Try again in a moment.");
      } finally {
        submit.disabled = false;
        if (dialog.open) input.select();
      }
    });
    listen(dialog, "close", () => {
      listening.abort();
      input.value = "";
      resolve(result);
    });
    dialog.showModal();
    input.focus();
  });
}

/** Asks before data is deleted. Resolves to true if the user agrees. */
export async function confirmed(text, action = "Delete") {
  await question;
  const dialog = byId("confirm-dialog");
  byId("confirm-text").textContent = text;
  byId("confirm-yes").textContent = action;
  dialog.returnValue = "no";
  dialog.showModal();
  question = new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true });
  });
  return question;
}

export function showHelp() {
  const dialog = byId("help-dialog");
  if (!dialog.open) dialog.showModal();
}

export const dialogIsOpen = () => document.querySelector("dialog[open]") !== null;
