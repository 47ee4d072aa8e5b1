// The fleet as this page knows it: a snapshot, kept up by the stream of changes, and the open questions of all agents.

import { Stream, get } from "./api.js";
import { now } from "./format.js";

const PAUSE = 200; // ms between two renderings, however fast the changes come
const QUESTIONS_PAUSE = 400; // ms between two looks at the open questions
const RATE_SECONDS = 10;

export class FleetState {
  constructor() {
    this.facts = null; // of the fleet itself
    this.agents = new Map();
    this.tree = null;
    this.questions = [];
    this.incidents = []; // restarts and limits that were seen while this page was open
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
      else if (event === "snapshot") await this.#takeSnapshot();
      if (id !== null) this.#sequence = Math.max(id, this.#sequence);
    }
    this.#changed();
  }

  #note(before, agent) {
    if (before && agent.restarts > before.restarts)
      this.incidents.push({ agent: agent.name, at: agent.started ?? now(), what: "restart", why: agent.last_exit ?? "" });
    if (agent.state === "parked" && before?.state !== "parked")
      this.incidents.push({ agent: agent.name, at: agent.since ?? now(), until: agent.until, what: "limit", why: agent.evidence });
    if (this.incidents.length > 1000) this.incidents.splice(0, 100);
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
    let tokens = 0;
    for (const agent of this.agents.values()) tokens += agent.tokens ?? 0;
    this.#samples.push({ at: now(), tokens });
    while (this.#samples.length > 2 && this.#samples[0].at < now() - RATE_SECONDS) this.#samples.shift();
    this.#listeners.forEach((listener) => listener());
  }
}
