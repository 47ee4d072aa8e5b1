// The fleet as this page knows it: a snapshot, kept up by the stream of changes, and the open questions of all agents.

import { Stream, get } from "./api.js";
import { now } from "./format.js";

const PAUSE = 200; // ms between two renderings, however fast the changes come
const QUESTIONS_PAUSE = 400; // ms between two looks at the open questions
const RATE_SECONDS = 10;
const COST_SECONDS = 10;
const KEPT = 60; // parts of the history of an agent

/** What the fleet has cost today, by its own account or by those of its agents. */
export function costToday({ facts, agents }) {
  if (facts.cost_today_usd != null) return facts.cost_today_usd;
  let sum = 0;
  for (const agent of agents.values()) sum += agent.cost_today_usd ?? agent.cost_usd ?? 0;
  return sum;
}

export class FleetState {
  constructor() {
    this.facts = null; // of the fleet itself
    this.host = 1; // counts the hosts that this page has seen
    this.agents = new Map();
    this.tree = null;
    this.questions = [];
    this.history = new Map(); // of each agent: its states and restarts, as far as this page has seen them
    this.costs = []; // of the day, from time to time
    this.connection = { state: "connecting" };
    this.version = 0;
    this.notice = "";
    this.#stream = new Stream({
      open: async () => {
        if (this.facts === null) await this.#takeSnapshot();
        return { path: `fleet/changes?since=${this.#sequence}`, last: null };
      },
      take: (events) => this.#take(events),
      show: (connection) => {
        const again = connection.state === "live" && this.connection.state !== "live";
        if (connection.state === this.connection.state && connection.state === "live") return;
        this.connection = connection;
        if (again) this.#lookAtQuestions();
        this.#changed();
      },
    });
  }

  #stream;
  #sequence = 0;
  #listeners = new Set();
  #timer = null;
  #last = 0;
  #looking = false;
  #lookAgain = false;
  #samples = [];
  #noticeTimer = null;

  subscribe(listener) {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  reconnect() {
    this.#stream.retry();
  }

  close() {
    this.#stream.close();
  }

  /** Tokens a second of all agents, over the last seconds. */
  get tokenRate() {
    const [first, last] = [this.#samples[0], this.#samples.at(-1)];
    return !first || last.at - first.at < 1 ? null : Math.max(0, (last.tokens - first.tokens) / (last.at - first.at));
  }

  questionsOf(name) {
    return this.questions.filter((question) => question.agent === name);
  }

  /** Show a sentence about what somebody did, for some seconds. */
  say(text) {
    this.notice = text;
    clearTimeout(this.#noticeTimer);
    if (text) this.#noticeTimer = setTimeout(() => this.say(""), 6000);
    this.#changed();
  }

  /** Take the questions anew: one was answered here. */
  refreshQuestions() {
    return this.#lookAtQuestions();
  }

  async #takeSnapshot() {
    const { agents, tree, sequence, ...facts } = await get("fleet");
    const before = this.agents;
    this.agents = new Map(agents.map((agent) => [agent.name, agent]));
    agents.forEach((agent) => this.#note(before.get(agent.name), agent));
    Object.assign(this, { facts, tree });
    this.#sequence = sequence;
    this.#lookAtQuestions();
    this.#changed();
  }

  async #take(events) {
    for (const { id, event, data } of events) {
      if (event === "agent") {
        const before = this.agents.get(data.name);
        this.#note(before, data);
        this.agents.set(data.name, data);
        if (data.approvals || before?.approvals) this.#lookAtQuestions();
      } else if (event === "tree") this.tree = data;
      else if (event === "fleet") Object.assign(this.facts, data);
      else if (event === "snapshot") {
        this.host += 1; // that number is of an earlier one
        await this.#takeSnapshot();
      }
      if (id !== null) this.#sequence = Math.max(id, this.#sequence);
    }
    this.#changed();
  }

  /** Note what became of an agent, for the history. */
  #note(before, agent) {
    const parts = this.history.get(agent.name) ?? [];
    this.history.set(agent.name, parts);
    const at = agent.since ?? now();
    if (agent.restarts > (before?.restarts ?? 0) && (before || agent.started)) parts.push({ what: "restart", from: agent.started ?? now(), why: agent.last_exit ?? "" });
    const open = parts.findLast((part) => part.what !== "restart");
    if (open?.what === agent.state && open.to === null) return;
    if (open) open.to ??= at;
    parts.push({ what: agent.state, from: at, to: null, why: agent.evidence });
    if (parts.length > KEPT) parts.splice(0, KEPT / 4);
  }

  /** Note what the day has cost until now, at most each `COST_SECONDS`. */
  #noteCost() {
    const last = this.costs.at(-1);
    if (this.facts === null || (last && now() - last.at < COST_SECONDS)) return;
    this.costs.push({ at: now(), cost: costToday(this) });
    if (this.costs.length > 2000) this.costs.splice(0, 500);
  }

  async #lookAtQuestions() {
    if (this.#looking) {
      this.#lookAgain = true;
      return;
    }
    this.#looking = true;
    try {
      const { approvals } = await get("approvals");
      const at = now();
      this.questions = approvals.map((one) => ({ ...one, deadline: at + one.seconds_left }));
      this.#changed();
    } catch {
      // the stream shows that the connection is lost, and has this done again
    }
    setTimeout(() => {
      this.#looking = false;
      if (this.#lookAgain) {
        this.#lookAgain = false;
        this.#lookAtQuestions();
      }
    }, QUESTIONS_PAUSE);
  }

  #changed() {
    if (this.#timer !== null) return;
    this.#timer = setTimeout(() => this.#show(), Math.max(0, this.#last + PAUSE - performance.now()));
  }

  #show() {
    this.#timer = null;
    this.#last = performance.now();
    this.version += 1;
    this.#noteCost();
    let tokens = 0;
    for (const agent of this.agents.values()) tokens += agent.tokens ?? 0;
    this.#samples.push({ at: now(), tokens });
    while (this.#samples.length > 2 && this.#samples[0].at < now() - RATE_SECONDS) this.#samples.shift();
    this.#listeners.forEach((listener) => listener());
  }
}
