// The dialogs: the key, "are you sure", help. Called by main.js and whoever needs a yes.

import { forgetKey, rememberKey } from "./api.js";
import { byId } from "./dom.js";

let question = null; // one at a time; the key dialog may be up while another asks

/** Asks for the server's key. Resolves to one that `check` found good, kept as the user wants it, or to null. */
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
  complain(refused ? "The key that was kept here is no longer right. Enter the new one." : "");

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
          complain("That key is not right. Check it and try again.");
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

/** Asks before something is lost. Resolves to whether to go on. */
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
