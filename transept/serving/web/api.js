// The server's HTTP interface: JSON, uploads, server-sent events, errors, and the key.
// Called by server.js, queue.js, downloads.js, image-queue.js, text-tab.js and live-stream.js. All addresses are relative to the page, which may stand behind a prefix.

const KEY = "transept-key";
const BUSY = new Set([429, 503]);
const STATUSES = {
  authentication_error: 401,
  not_found_error: 404,
  timeout_error: 408,
  rate_limit_error: 429,
  server_error: 500,
  service_unavailable_error: 503,
};
const LONGEST_WAIT = 60; // seconds between two attempts, whatever the server says

/** An error that the server answered. `message` is the server's text; errors.js has the text for users. */
export class ApiError extends Error {
  constructor(message, { status = 0, code = null, param = null, retryAfter = null, requestId = null } = {}) {
    super(message);
    Object.assign(this, { name: "ApiError", status, code, param, retryAfter, requestId });
  }
}

/** No answer: the server is down, or the connection broke. */
export class UnreachableError extends Error {
  constructor(message = "The server does not answer.") {
    super(message);
    this.name = "UnreachableError";
  }
}

/** The address of a path of the server. */
export const address = (path) => new URL(path, document.baseURI).href;

export async function getJson(path, { signal } = {}) {
  return (await send(path, { signal })).json();
}

/** Posts a form, and returns the JSON of the answer. */
export async function postForm(path, form, { signal }) {
  return (await send(path, { method: "POST", body: form, signal })).json();
}

/** Posts JSON, and returns the JSON of the answer. */
export async function postJson(path, body, { signal }) {
  return (await sendJson(path, body, { signal })).json();
}

/** Posts JSON, and returns the file that answers it: {name, blob}. */
export async function postForFile(path, body, { signal } = {}) {
  const response = await sendJson(path, body, { signal });
  const [, name] = /filename\*=utf-8''([^;]+)/.exec(response.headers.get("Content-Disposition") ?? "") ?? [];
  const blob = await response.blob().catch((error) => {
    throw error.name === "AbortError" ? error : new UnreachableError("The connection to the server broke off.");
  });
  return { name: name ? decodeURIComponent(name) : "transcript", blob };
}

/** Posts JSON and hands each event of the answering stream to onEvent. */
export async function streamJson(path, body, { signal, onEvent }) {
  const response = await sendJson(path, body, { signal, headers: { Accept: "text/event-stream" } });
  const parser = new EventParser();
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (;;) {
    const { done, value } = await reader.read().catch((error) => {
      throw error.name === "AbortError" ? error : new UnreachableError("The connection to the server broke off.");
    });
    if (done) return;
    parser.feed(value, onEvent);
  }
}

/**
 * Posts a form and hands each event of the answering stream to onEvent. With XMLHttpRequest, because fetch does not say
 * how much of a file is sent; onSent gets a fraction.
 */
export function upload(path, form, { signal, onSent, onEvent }) {
  return withKey((key) => uploadOnce(path, form, key, { signal, onSent, onEvent }));
}

function uploadOnce(path, form, key, { signal, onSent, onEvent }) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    const parser = new EventParser();
    let seen = 0; // characters of the answer that were parsed
    const abort = () => request.abort();
    const settle = (end, value) => {
      signal.removeEventListener("abort", abort);
      end(value);
    };
    const parse = () => {
      if (request.status !== 200) return;
      const text = request.responseText;
      const news = text.slice(seen);
      seen = text.length;
      try {
        parser.feed(news, onEvent);
      } catch (error) {
        settle(reject, error);
        request.abort();
      }
    };
    request.open("POST", address(path));
    request.setRequestHeader("Accept", "text/event-stream");
    if (key) request.setRequestHeader("Authorization", `Bearer ${key}`);
    request.upload.addEventListener("progress", (event) => onSent(event.total ? event.loaded / event.total : 0));
    request.addEventListener("progress", parse);
    request.addEventListener("load", () => {
      if (request.status === 200) {
        parse();
        settle(resolve);
      } else {
        settle(reject, errorOf(request.status, request.responseText, (name) => request.getResponseHeader(name)));
      }
    });
    request.addEventListener("error", () =>
      settle(reject, new UnreachableError(seen ? "The connection to the server broke off." : undefined)),
    );
    request.addEventListener("abort", () => settle(reject, new DOMException("cancelled", "AbortError")));
    signal.throwIfAborted();
    signal.addEventListener("abort", abort);
    request.send(form);
  });
}

/**
 * Repeats `attempt` while the server is busy or not ready (429, 503), after the pauses that the server asks for. onWait
 * gets the seconds and the error before each pause.
 */
export async function politely(attempt, { signal, onWait }) {
  for (let tries = 0; ; tries += 1) {
    try {
      return await attempt();
    } catch (error) {
      if (!(error instanceof ApiError) || !BUSY.has(error.status)) throw error;
      const seconds = Math.min(LONGEST_WAIT, error.retryAfter ?? 2 ** Math.min(tries, 5));
      onWait(seconds, error);
      await pause(seconds * 1000, signal);
    }
  }
}

/** Waits. Rejects at once when the signal aborts. */
export function pause(milliseconds, signal) {
  return new Promise((resolve, reject) => {
    signal?.throwIfAborted();
    const timer = setTimeout(done, milliseconds);
    function done() {
      signal?.removeEventListener("abort", stop);
      resolve();
    }
    function stop() {
      clearTimeout(timer);
      reject(signal.reason);
    }
    signal?.addEventListener("abort", stop, { once: true });
  });
}

/** Server-sent events from text that comes in pieces: the JSON of each, but for the mark [DONE] at the end. */
export class EventParser {
  #rest = "";
  #data = [];

  feed(text, onEvent) {
    const lines = (this.#rest + text).split(/\r\n|\n|\r(?!$)/);
    this.#rest = lines.pop();
    for (const line of lines) {
      if (line.startsWith("data:")) this.#data.push(line.slice(line.startsWith("data: ") ? 6 : 5));
      else if (line === "" && this.#data.length) {
        const data = this.#data.join("\n");
        this.#data = [];
        if (data !== "[DONE]") onEvent(JSON.parse(data));
      }
    }
  }
}

/** The error in an event {"error": {...}}, with the status that an answer would have had. */
export function errorInStream({ message, type, code, param }) {
  return new ApiError(message ?? "The server failed.", { status: STATUSES[type] ?? 400, code, param });
}

function sendJson(path, body, { signal, headers }) {
  const withType = { "Content-Type": "application/json", ...headers };
  return send(path, { method: "POST", headers: withType, body: JSON.stringify(body), signal });
}

async function send(path, options) {
  return withKey(async (key) => {
    const headers = { ...options.headers, ...(key ? { Authorization: `Bearer ${key}` } : {}) };
    let response;
    try {
      response = await fetch(address(path), { ...options, headers });
    } catch (error) {
      throw error.name === "AbortError" ? error : new UnreachableError();
    }
    if (!response.ok) throw errorOf(response.status, await response.text(), (name) => response.headers.get(name));
    return response;
  });
}

function errorOf(status, body, header) {
  let error = {};
  try {
    error = JSON.parse(body).error ?? {};
  } catch {
    // for example a proxy's page: only the status is known
  }
  const milliseconds = Number.parseFloat(header("retry-after-ms"));
  const seconds = Number.isFinite(milliseconds) ? milliseconds / 1000 : Number.parseFloat(header("retry-after"));
  return new ApiError(error.message || explained(status), {
    status,
    code: error.code,
    param: error.param,
    retryAfter: Number.isFinite(seconds) && seconds >= 0 ? seconds : null,
    requestId: header("x-request-id"),
  });
}

function explained(status) {
  if (status === 413) return "The file is larger than this server accepts.";
  if (status === 429) return "The server is busy.";
  if (status === 502 || status === 503 || status === 504) return "The server is not ready.";
  return `The server answered with an error (HTTP ${status}).`;
}

// --- the key

let askUser = null; // set by main.js
let asking = null; // the open question, shared by all requests

/** `ask({ check })` shows a dialog and resolves to a key that the server accepts, or null. Set once, by main.js. */
export function setKeyDialog(ask) {
  askUser = ask;
}

export const storedKey = () => readKey(sessionStorage) ?? readKey(localStorage);

/** remember: keep the key after the browser is closed. */
export function rememberKey(key, remember) {
  forgetKey();
  try {
    (remember ? localStorage : sessionStorage).setItem(KEY, key);
  } catch {
    // storage is switched off: the key is asked for again after a reload
  }
}

export function forgetKey() {
  for (const storage of [sessionStorage, localStorage]) {
    try {
      storage.removeItem(KEY);
    } catch {
      // nothing was stored either
    }
  }
}

function readKey(storage) {
  try {
    return storage.getItem(KEY);
  } catch {
    return null;
  }
}

async function withKey(attempt) {
  let key = storedKey();
  for (;;) {
    try {
      return await attempt(key);
    } catch (error) {
      if (!(error instanceof ApiError) || error.status !== 401 || !askUser) throw error;
      if (storedKey() !== key) {
        key = storedKey(); // another request has asked in the meantime
        continue;
      }
      asking ??= askUser({ refused: key !== null, check: isKeyTaken }).finally(() => (asking = null));
      key = await asking;
      if (key === null) throw error;
    }
  }
}

/** Returns true if the server accepts a key. Raises UnreachableError. */
async function isKeyTaken(key) {
  const response = await fetch(address("v1/models"), { headers: { Authorization: `Bearer ${key}` } }).catch(() => {
    throw new UnreachableError();
  });
  return response.status !== 401;
}
