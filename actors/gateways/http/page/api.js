// The requests of this page: each with the token, errors as `Problem`, and streams that find their place again.

const KEY = "proctor.token";
const SILENCE = 40_000; // of a stream, in ms: the server sends a sign of life every 15 s
const LONGEST_PAUSE = 10_000;

/** An error of a request; `status` is 0 where the server could not be reached. */
export class Problem extends Error {
  constructor(status, text, remedy = "", type = "") {
    super(text);
    Object.assign(this, { status, remedy, type });
  }
}

// -- the token: in this tab only, never in an address that is sent or kept

/** Take the token of a link `#token=…`, and remove it from the address bar and its history. */
export function takeToken() {
  const found = /^#token=([^&]*)/.exec(location.hash);
  if (found === null) return;
  sessionStorage.setItem(KEY, decodeURIComponent(found[1]));
  history.replaceState(null, "", location.pathname + location.search);
}

export const setToken = (token) => sessionStorage.setItem(KEY, token);
export const hasToken = () => sessionStorage.getItem(KEY) !== null;

const refused = new Set();
/** Call `listener` when the server refuses the token. */
export function onRefused(listener) {
  refused.add(listener);
  return () => refused.delete(listener);
}

function headersWith(own) {
  const token = sessionStorage.getItem(KEY);
  if (token === null) return own;
  // a header holds bytes: those of the token in UTF-8
  const data = String.fromCharCode(...new TextEncoder().encode(token));
  return { ...own, authorization: `Bearer ${data}` };
}

async function send(method, path, { headers = {}, body, signal }) {
  const options = { method, headers: headersWith(headers), signal, cache: "no-store", credentials: "omit" };
  if (body !== undefined) {
    options.body = JSON.stringify(body);
    options.headers["content-type"] = "application/json";
  }
  let response;
  try {
    response = await fetch(path, options);
  } catch (error) {
    if (signal.reason === "closed") throw error;
    throw new Problem(0, "the host does not answer");
  }
  if (!response.ok) throw await problemOf(response);
  return response;
}

async function problemOf(response) {
  const record = await response.json().catch(() => ({}));
  if (response.status === 401) refused.forEach((listener) => listener());
  const type = (record.type ?? "").split(/[/:]/).pop();
  return new Problem(response.status, record.detail ?? `status ${response.status}`, record.remedy, type);
}

/** Send a request and return its record, null where it has none. Throws `Problem`. */
export async function request(method, path, body, { seconds = 20 } = {}) {
  const response = await send(method, path, { body, signal: AbortSignal.timeout(seconds * 1000) });
  return response.status === 204 ? null : response.json();
}

export const get = (path) => request("GET", path);
export const post = (path, body) => request("POST", path, body);
export const agentPath = (name, rest = "") => `agents/${encodeURIComponent(name)}${rest && `/${rest}`}`;

// -- streams

/** The events of one connection in batches, as they arrive: `{id, event, data}`. Throws `Problem` when it is lost. */
export async function* batches(path, last, signal) {
  const headers = { accept: "text/event-stream", ...(last == null ? {} : { "last-event-id": String(last) }) };
  const response = await send("GET", path, { headers, signal });
  yield { status: response.status, events: [] };
  if (response.status === 204) return;
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      const blocks = (rest + value).split("\n\n");
      rest = blocks.pop();
      yield { status: 200, events: blocks.map(parse).filter(Boolean) };
    }
  } catch (error) {
    if (signal.reason === "closed") throw error;
    throw new Problem(0, "the connection was cut");
  } finally {
    reader.cancel().catch(() => {});
  }
}

function parse(block) {
  const fields = {};
  for (const line of block.split("\n")) {
    const at = line.indexOf(": ");
    if (at > 0) fields[line.slice(0, at)] = line.slice(at + 2);
  }
  if (fields.data === undefined) return null;
  const id = fields.id === undefined ? null : Number(fields.id);
  return { id, event: fields.event, data: JSON.parse(fields.data) };
}

/**
 * A stream that connects again by itself, after the last event that arrived.
 *
 * `open` gives the path and the position of a connection, `take` gets each batch of events and returns false when there
 * is nothing more to come, and `show` gets the state: connecting, live, lost (with the moment `retry`) or ended.
 */
export class Stream {
  constructor({ open, take, show }) {
    Object.assign(this, { open, take, show });
    this.closed = false;
    this.wake = () => {};
    this.retry = () => this.wake();
    addEventListener("online", this.retry);
    document.addEventListener("visibilitychange", this.retry);
    this.#run();
  }

  close() {
    this.closed = true;
    this.abort?.abort("closed");
    this.wake();
    removeEventListener("online", this.retry);
    document.removeEventListener("visibilitychange", this.retry);
  }

  async #run() {
    let failures = 0;
    while (!this.closed) {
      let pause = LONGEST_PAUSE;
      try {
        const more = await this.#connection(() => (failures = 0));
        // an orderly end: the host goes down, or there is nothing to come for now
        if (more) pause = this.#lost(failures++, "the host ended the connection");
        else this.show({ state: "ended" });
      } catch (error) {
        if (this.closed) return;
        if (error.status === 401) return;
        pause = this.#lost(failures++, error.message);
      }
      if (!this.closed) await this.#sleep(pause);
    }
  }

  async #connection(connected) {
    this.abort = new AbortController();
    const { path, last } = await this.open();
    let silence;
    const listen = () => {
      clearTimeout(silence);
      silence = setTimeout(() => this.abort.abort("silence"), SILENCE);
    };
    try {
      listen();
      for await (const { status, events } of batches(path, last, this.abort.signal)) {
        listen();
        if (status === 204) return false;
        connected();
        this.show({ state: "live" });
        if (events.length && (await this.take(events)) === false) return false;
      }
      return true;
    } finally {
      clearTimeout(silence);
      this.abort.abort("done");
    }
  }

  #lost(failures, why) {
    const pause = Math.min(LONGEST_PAUSE, 500 * 2 ** failures);
    this.show({ state: "lost", why, retry: Date.now() + pause });
    return pause;
  }

  #sleep(pause) {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, pause);
      this.wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }
}
