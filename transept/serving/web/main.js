// Starts the page and joins its parts: store, server, queue, reader, live tab, text tab; tabs, dropping, banner, keyboard.
// index.html loads it. Nothing else imports it.

import { forgetKey, setKeyDialog, storedKey } from "./api.js";
import { askForKey, confirmed, dialogIsOpen, showHelp } from "./dialogs.js";
import { announce, byId, setText } from "./dom.js";
import { Downloads } from "./downloads.js";
import { ImageTab } from "./image-tab.js";
import { LanguageCheck } from "./language-check.js";
import { LiveTab } from "./live-tab.js";
import { showMessage } from "./message-box.js";
import { ACTIVE, Queue } from "./queue.js";
import { QueueView } from "./queue-view.js";
import { Reader } from "./reader.js";
import { RecorderPanel } from "./recorder-panel.js";
import { Server } from "./server.js";
import { Settings } from "./settings.js";
import { Store } from "./store.js";
import { TextTab } from "./text-tab.js";
import { fraction, limitsText } from "./words.js";

const TABS = ["transcribe", "live", "text", "images"];
const TYPED_INTO = "input, textarea, select, [contenteditable]:not([contenteditable=false])";
const PRESSED_BY_SPACE = `${TYPED_INTO}, button, summary, a[href]`;
const MOVED_BY_ARROWS = `${TYPED_INTO}, [role=tab], [role=slider]`;

const store = await Store.open();
const server = new Server();
const queue = new Queue(store, server);
const settings = new Settings(store, server);
const textTab = new TextTab(store, server);
const imageTab = new ImageTab(store, server);
const reader = new Reader(queue, server, {
  options: () => settings.options(),
  sendToText: (text) => {
    selectTab("text");
    textTab.setText(text);
  },
});
const queueView = new QueueView(queue, server, (item) => show(item, { focus: true }));
const liveTab = new LiveTab(store, server, queue, {
  open: (item) => {
    selectTab("transcribe");
    show(item, { focus: true });
  },
  ended: (item) => {
    showTitle();
    if (reader.item === item) show(item); // it has sound now
  },
});
new LanguageCheck(queue, server);
new Downloads(queue, server, () => reader.item);
const recorderPanel = new RecorderPanel({ done: (file) => add([file]), complain });

setKeyDialog(askForKey);
listenToFiles();
listenToTabs();
listenToKeys();
listenToServer();
listenToLeaving();

queue.addEventListener("said", (event) => announce(event.detail));
queue.addEventListener("warning", (event) => complain(event.detail));
queue.addEventListener("list", () => byId("panel-transcribe").toggleAttribute("data-empty", queue.items.length === 0));
queue.addEventListener("list", () => {
  if (reader.item && !queue.items.includes(reader.item)) show(queue.items[0] ?? null);
});
queue.addEventListener("item", showTitle);
queue.addEventListener("list", showTitle);
byId("help-open").addEventListener("click", showHelp);
byId("delete-all").addEventListener("click", deleteAll);
byId("forget-key").addEventListener("click", () => {
  forgetKey();
  byId("choose-files").focus();
  server.refresh();
});

await settings.restore();
await liveTab.restore();
await textTab.restore();
await imageTab.restore();
await queue.restore();
await restoreView();
document.documentElement.dataset.started = "";
server.refresh();

// --- recordings

function add(files, tooMany = "") {
  complain(tooMany);
  if (!files.length) return;
  selectTab("transcribe");
  const [first] = queue.add(files, settings.options());
  if (first) show(first);
}

function show(item, options) {
  queueView.show(item);
  store.putSetting("shown", item?.id ?? null).catch(() => {});
  return reader.show(item, options);
}

async function deleteAll() {
  const sure = await confirmed("Delete all recordings, transcripts, edits and texts in this browser?");
  if (!sure) return;
  liveTab.clear();
  await queue.clear();
  textTab.clear();
  imageTab.clear();
  byId("choose-files").focus();
  announce("All deleted.");
}

async function restoreView() {
  const single = await store.setting("singleKeys");
  byId("single-keys").checked = single ?? true;
  byId("single-keys").addEventListener("change", (event) => store.putSetting("singleKeys", event.target.checked));
  await show(queue.find(await store.setting("shown")) ?? queue.items[0] ?? null);
  const tab = await store.setting("tab");
  if (tab === "images") byId("tab-images").hidden = false; // until the server says what it has
  if (TABS.includes(tab)) selectTab(tab);
}

function listenToFiles() {
  byId("choose-files").addEventListener("click", () => byId("file-input").click());
  byId("file-input").addEventListener("change", (event) => {
    add([...event.target.files]);
    event.target.value = "";
  });
  let inside = 0; // elements that the dragged files are over
  const veil = (shown) => (byId("drop-veil").hidden = !shown);
  const hasFiles = (event) => event.dataTransfer?.types.includes("Files");
  addEventListener("dragenter", (event) => {
    if (!hasFiles(event)) return;
    inside += 1;
    setText(byId("drop-veil"), { text: "Drop a text here", images: "Drop to read" }[currentTab()] ?? "Drop to transcribe");
    veil(true);
  });
  addEventListener("dragleave", (event) => {
    if (!hasFiles(event)) return;
    inside = Math.max(0, inside - 1);
    if (!inside) veil(false);
  });
  addEventListener("dragover", (event) => hasFiles(event) && event.preventDefault());
  addEventListener("drop", (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault();
    inside = 0;
    veil(false);
    const items = [...event.dataTransfer.items].filter((item) => item.kind === "file");
    const folders = items.filter((item) => item.webkitGetAsEntry?.()?.isDirectory);
    const files = items.filter((item) => !folders.includes(item)).map((item) => item.getAsFile());
    if (currentTab() === "text" && byId("text-form").hidden === false) textTab.readFile(files[0]);
    else if (currentTab() === "images" || areImages(files)) addImages(files.filter(Boolean));
    else add(files.filter(Boolean), folders.length ? "Folders stay outside: drop the recordings in them." : "");
  });
}

function addImages(files) {
  selectTab("images");
  imageTab.add(files);
}

/** True for files that belong to the Images tab, if there is one. */
function areImages(files) {
  const isImage = (file) => file?.type.startsWith("image/") || file?.type === "application/pdf";
  return server.visionModels.length > 0 && files.length > 0 && files.every(isImage);
}

function complain(problem) {
  showMessage(byId("intake-message"), problem);
}

/** Shows the overall progress in the window's title, or that the microphone is on. */
function showTitle() {
  const running = queue.items.filter((item) => ACTIVE.has(item.state));
  const done = running.reduce((sum, item) => sum + fraction(item), 0) / (running.length || 1);
  const state = liveTab.running ? "Live" : running.length ? `${Math.round(100 * done)} %` : "";
  document.title = [state, "Transept"].filter(Boolean).join(" · ");
}

// --- tabs

function currentTab() {
  return TABS.find((name) => !byId(`panel-${name}`).hidden);
}

function selectTab(name) {
  for (const each of TABS) {
    const [tab, panel] = [byId(`tab-${each}`), byId(`panel-${each}`)];
    tab.setAttribute("aria-selected", String(each === name));
    tab.tabIndex = each === name ? 0 : -1;
    panel.hidden = each !== name;
  }
  if (name !== "transcribe") reader.player.pause();
  store.putSetting("tab", name).catch(() => {});
}

/** Shows the Images tab if a model reads images, and the Live tab if one transcribes speech. */
function showTabs() {
  const settled = server.state === "ready" && !server.loading.length;
  for (const [name, possible] of [["images", server.visionModels.length > 0], ["live", liveTab.possible]]) {
    if (possible) byId(`tab-${name}`).hidden = false;
    else if (settled) {
      byId(`tab-${name}`).hidden = true;
      if (currentTab() === name) selectTab("transcribe");
    }
  }
}

function listenToTabs() {
  for (const name of TABS) {
    byId(`tab-${name}`).addEventListener("click", () => selectTab(name));
    byId(`tab-${name}`).addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      const shown = TABS.filter((each) => !byId(`tab-${each}`).hidden);
      const next = shown.at((shown.indexOf(name) + step) % shown.length);
      selectTab(next);
      byId(`tab-${next}`).focus();
      event.preventDefault();
    });
  }
}

// --- keyboard

function listenToKeys() {
  addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.isComposing || dialogIsOpen()) return;
    const on = (selector) => event.target.matches?.(selector) || event.target.closest?.("[contenteditable]:not([contenteditable=false])");
    const reading = reader.item && currentTab() === "transcribe";
    if (reading && !event.target.matches?.("input, textarea") && reader.undoKey(event)) {
      event.preventDefault();
      return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey || !byId("single-keys").checked) return;
    if (event.key === "?" && !on(TYPED_INTO)) showHelp();
    else if (!reading) return;
    else if (event.key === " " && !on(PRESSED_BY_SPACE)) reader.player.toggle();
    else if (event.key === "ArrowLeft" && !on(MOVED_BY_ARROWS)) reader.player.skip(-5);
    else if (event.key === "ArrowRight" && !on(MOVED_BY_ARROWS)) reader.player.skip(5);
    else if (event.key.toLowerCase() === "f" && !on(TYPED_INTO)) reader.openFind();
    else return;
    event.preventDefault();
  });
}

// --- the server

function listenToServer() {
  server.addEventListener("change", () => {
    const [problem, action] = bannerFor(server);
    byId("banner").hidden = !problem;
    byId("banner").dataset.state = server.state;
    showMessage(byId("banner-text"), problem);
    byId("banner-action").hidden = !action;
    setText(byId("banner-action"), action);
    byId("forget-key").hidden = !storedKey();
    const waiting = server.speechModels.reduce((sum, model) => sum + (model.waiting ?? 0), 0);
    setText(byId("limits"), limitsText(server.limits, waiting));
    const mute = server.state === "ready" && !server.speechModels.length;
    byId("choose-files").disabled = byId("record").disabled = mute;
    if (mute) complain("This server has no speech model, so it cannot transcribe. Its operator can add one, such as openai/whisper-base.");
    showTabs();
    if (mute && !queue.items.length && currentTab() === "transcribe") {
      if (server.textModels.length) selectTab("text");
      else if (server.visionModels.length) selectTab("images");
    }
  });
  byId("banner-action").addEventListener("click", () => server.refresh());
}

function bannerFor({ state, error, loading, models }) {
  const failed = models.filter((model) => model.state === "failed");
  if (state === "unreachable") return ["The server does not answer. This page keeps trying; nothing is lost.", "Try now"];
  if (state === "locked") return ["This server needs a key.", "Enter the key"];
  if (state === "failing") return [{ message: "The server has a problem.", details: error }, "Try again"];
  if (state === "loading") return ["The server is still loading. Recordings that you add start once it is ready.", ""];
  if (failed.length) {
    const message = failed.map(({ id }) => `The model ${id} could not be loaded.`).join(" ");
    return [{ message, details: failed.map(({ id, error: why }) => why && `${id}: ${why}`).filter(Boolean).join("\n") }, ""];
  }
  if (loading.length) return [`Still loading: ${loading.map(({ id }) => id).join(", ")}.`, ""];
  return ["", ""];
}

// --- leaving

function listenToLeaving() {
  const keep = () => {
    queue.flush();
    textTab.flush();
    imageTab.flush();
  };
  addEventListener("pagehide", keep);
  document.addEventListener("visibilitychange", () => (document.hidden ? keep() : server.refresh()));
  addEventListener("beforeunload", (event) => {
    if (recorderPanel.recording || liveTab.running || imageTab.busy) event.preventDefault();
  });
}
