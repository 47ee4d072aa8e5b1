// A conversation from the events of an agent: what it wrote as it streams, its tools folded, what became of each turn.

import { Component, html, useEffect, useLayoutEffect, useRef, useState } from "./vendor/preact.js";
import { count, duration, moment, money } from "./format.js";
import { Diff, diffOf, inputText } from "./questions.js";

const KEPT = 4000; // items
const SHOWN = 200; // items that are on the page at first
const LONGEST = 20_000; // characters of one result
const QUIET = new Set(["answered", "steered", "started", "tool_requested", "hook_called", "request_withdrawn", "approval_withdrawn"]);

/** The items of a conversation. Each has a `key` that stays, and a `version` that changes with it. */
export class Transcript {
  items = [];
  first = null; // the position of its first event
  #key = 0;
  #tools = new Map();
  #prompts = new Map();
  #unnamed = new Map();
  #open = new Map(); // text that is being written, by its author

  clear() {
    this.items = [];
    this.first = null;
    this.#tools.clear();
    this.#open.clear();
  }

  apply(type, data) {
    const read = READERS[type];
    if (read) read.call(this, data);
    else if (!QUIET.has(type)) this.note(type, data.text ?? data.kind ?? data.error ?? "", "quiet");
  }

  add(kind, facts) {
    const item = { kind, key: ++this.#key, version: 0, ...facts };
    this.items.push(item);
    if (this.items.length > KEPT) this.items.splice(0, KEPT / 10);
    return item;
  }

  note(label, text, tone = "") {
    this.#open.clear();
    return this.add("note", { label: label.replaceAll("_", " "), text, tone });
  }

  /** A prompt that was sent; its text comes by `name`, since events do not have it. */
  prompt({ ticket, at, attempt = 1 }) {
    this.#open.clear();
    const item = this.add("prompt", { text: this.#prompts.get(ticket), at, again: attempt > 1 });
    if (item.text === undefined) this.#unnamed.set(ticket, item);
  }

  /** Whether there are prompts without a text. */
  get isUnnamed() {
    return this.#unnamed.size > 0;
  }

  /** Name the prompts by the requests of the agent. */
  name(requests) {
    for (const { id, prompt } of requests) {
      this.#prompts.set(id, prompt);
      const item = this.#unnamed.get(id);
      if (item) Object.assign(item, { text: prompt, version: item.version + 1 });
    }
    this.#unnamed.clear();
  }

  write(kind, { text, parent }, whole) {
    const author = `${kind} ${parent ?? ""}`;
    const item = this.#open.get(author);
    if (item) {
      item.text = whole ? text : item.text + text;
      item.version += 1;
    } else this.#open.set(author, this.add(kind, { text, parent }));
    if (whole) this.#open.delete(author);
  }

  call({ id, name, input = {}, parent }) {
    this.#open.clear();
    this.#tools.set(id, this.add("tool", { name, input, parent, result: null, failed: false }));
  }

  result({ id, text, is_error = false, duration }) {
    const item = this.#tools.get(id);
    if (!item) return;
    this.#tools.delete(id);
    Object.assign(item, { result: text, failed: is_error, seconds: duration, version: item.version + 1 });
  }
}

const READERS = {
  text_delta(data) {
    this.write("text", data, false);
  },
  text(data) {
    this.write("text", data, true);
  },
  thinking(data) {
    this.write("thinking", data, !data.partial);
  },
  tool_call(data) {
    this.call(data);
  },
  tool_result(data) {
    this.result(data);
  },
  turn_started({ solicited = true }) {
    if (!solicited) this.note("turn", "begun by the agent itself");
  },
  turn_ended({ ending, error, detail, cost_usd, duration: seconds, usage }) {
    const tokens = usage && Object.values(usage).reduce((sum, number) => sum + (number ?? 0), 0);
    const facts = [error ?? (ending === "completed" ? "" : detail), seconds != null && duration(seconds), money(cost_usd)];
    if (tokens) facts.push(`${count(tokens)} tokens`);
    this.note(`turn ${ending}`, facts.filter(Boolean).join(" · "), ending === "completed" ? "end" : "bad");
  },
  approval_requested({ tool }) {
    this.note("question", `may it use ${tool}?`, "needs");
  },
  limit_reached({ kind, resets_at }) {
    this.note("usage limit", [kind, resets_at && `until ${moment(resets_at)}`].filter(Boolean).join(" "), "bad");
  },
  retrying({ attempt, max_attempts, error, delay = 0 }) {
    const of = max_attempts ? ` of ${max_attempts}` : "";
    this.note("trying again", `${attempt}${of} in ${duration(delay)}${error ? `: ${error}` : ""}`);
  },
  exited({ outcome, code, signal, stderr }) {
    const end = signal ?? (code == null ? "" : `exit ${code}`);
    this.note("process ended", [outcome, end, stderr?.split("\n").at(-1)].filter(Boolean).join(" · "), "bad");
  },
  notice({ code, text, data = {} }) {
    if (code === "sent") this.prompt(data);
    else this.note(code, text);
  },
};

const cut = (text) => (text.length > LONGEST ? `${text.slice(0, LONGEST)}\n… ${count(text.length - LONGEST)} more characters` : text);

/** Text with its fenced blocks of code set apart. */
const Prose = ({ text }) =>
  text.split(/^```[^\n]*\n?/m).map((part, index) => (index % 2 ? html`<pre>${part}</pre>` : part && html`<p class="prose">${part.trim()}</p>`));

function Tool({ item }) {
  const { name, input, result, failed, seconds, parent } = item;
  const diff = diffOf(input);
  const line = (input.command ?? input.file_path ?? input.filePath ?? input.path ?? input.pattern ?? input.description ?? "") + "";
  const state = result === null ? "runs" : failed ? "failed" : "";
  return html`<details class=${`tool ${state} ${parent ? "child" : ""}`}>
    <summary>
      <b>${name}</b> <code>${line.split("\n")[0].slice(0, 160)}</code>
      ${state && html` <em>${state}</em>`}${seconds > 1 && html` <small>${duration(seconds)}</small>`}
    </summary>
    ${diff ? html`<${Diff} text=${cut(diff)} />` : html`<pre>${cut(inputText(input))}</pre>`}
    ${result && html`<pre class="result">${cut(result)}</pre>`}
  </details>`;
}

/** One item, rendered again only when it has changed. */
class Item extends Component {
  shouldComponentUpdate({ item, version }) {
    return item !== this.props.item || version !== this.props.version;
  }

  render({ item }) {
    if (item.kind === "tool") return html`<${Tool} item=${item} />`;
    if (item.kind === "thinking")
      return html`<details class="thinking"><summary>Thinking</summary><p class="prose">${item.text}</p></details>`;
    if (item.kind === "prompt")
      return html`<div class="prompt">
        <small>${item.again ? "sent again" : "you"} ${moment(item.at)}</small>${item.text && html`<${Prose} text=${item.text} />`}
      </div>`;
    if (item.kind === "note")
      return html`<p class=${`note ${item.tone}`}><b>${item.label}</b> ${item.text}</p>`;
    return html`<div class=${item.parent ? "text child" : "text"}><${Prose} text=${item.text} /></div>`;
  }
}

/** The items, the last ones first to exist; the page follows the end while the reader is there. */
export function Conversation({ transcript, version, name }) {
  const [shown, show] = useState(SHOWN);
  const atEnd = useRef(true);
  const [behind, setBehind] = useState(false);
  const items = transcript.items;
  const first = Math.max(0, items.length - shown);
  const toEnd = () => scrollTo(0, document.documentElement.scrollHeight);
  useEffect(() => {
    const look = () => {
      atEnd.current = innerHeight + scrollY >= document.documentElement.scrollHeight - 60;
      if (atEnd.current) setBehind(false);
    };
    addEventListener("scroll", look, { passive: true });
    return () => removeEventListener("scroll", look);
  }, []);
  useLayoutEffect(() => {
    if (atEnd.current) toEnd();
    else setBehind(true);
  }, [version]);
  return html`<section aria-label=${`Transcript of ${name}`} class="transcript">
    ${first > 0 && html`<button type="button" onClick=${() => show(shown + SHOWN)}>Show ${Math.min(first, SHOWN)} earlier entries</button>`}
    <div role="log" aria-live="off" aria-label="Entries">
      ${items.slice(first).map((item) => html`<${Item} key=${item.key} item=${item} version=${item.version} />`)}
    </div>
    ${!items.length && html`<p class="empty">Nothing yet.</p>`}
    ${behind && html`<button type="button" class="to-end" onClick=${() => (setBehind(false), toEnd())}>To the newest</button>`}
  </section>`;
}
