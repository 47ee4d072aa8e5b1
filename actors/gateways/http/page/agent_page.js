// One agent: its state and facts, its conversation as it streams, its questions, and what a person can have it do.

import { html, useEffect, useMemo, useRef, useState } from "./vendor/preact.js";
import { Stream, agentPath, get, post } from "./api.js";
import { bytes, count, isAlive, moment, money, since } from "./format.js";
import { Questions } from "./questions.js";
import { doing } from "./selection.js";
import { Conversation, Transcript } from "./transcript.js";
import { State, Sure, Trouble, useAction, useClock } from "./view.js";

const TAIL = 2000; // events of a conversation that are shown at first
const PAUSE = 120; // ms between two renderings of a stream
const BUSY = ["working", "blocked"];

/** The conversation of an agent, and the state of its stream. */
function useTranscript(name, host, incarnation, whole) {
  const [version, render] = useState(0);
  const [link, show] = useState({ state: "connecting" });
  const transcript = useMemo(() => new Transcript(), [name, host, whole]); // another host has another log
  const stream = useRef(null);
  useEffect(() => {
    let timer = null;
    let naming = null;
    let last = null; // the position of the last event
    const later = () => (timer ??= setTimeout(() => ((timer = null), render((n) => n + 1)), PAUSE));
    const nameAll = () => get(`requests?agent=${encodeURIComponent(name)}`).then(({ requests }) => (transcript.name(requests), later()));
    const nameLater = () => (naming ??= setTimeout(() => ((naming = null), nameAll().catch(() => {})), PAUSE));
    stream.current = new Stream({
      open: () => ({ path: `${agentPath(name, "events")}?${whole ? "since=0" : `tail=${TAIL}`}`, last }),
      take: (events) => {
        for (const { id, event, data } of events) {
          if (event === "end") return data.why !== "the agent is at rest";
          transcript.apply(event, data);
          transcript.first ??= id;
          last = id;
        }
        if (transcript.isUnnamed) nameLater();
        later();
        return true;
      },
      show: (state) => {
        // the log is one of another host: all of it is new
        if (state.state === "lost" && state.why?.includes("behind the end of the log")) ((last = null), transcript.clear());
        show((before) => (before.state === "live" && state.state === "live" ? before : state));
      },
    });
    return () => (clearTimeout(timer), clearTimeout(naming), stream.current.close());
  }, [transcript]);
  // a log that has ended goes on with the next incarnation
  useEffect(() => stream.current.retry(), [incarnation]);
  return [transcript, version, link];
}

function Actions({ agent, fleet }) {
  const [run, pending, problem] = useAction();
  const act = (verb, body) => run(() => post(agentPath(agent.name, verb), body).then((record) => fleet.say(`${agent.name}: ${record.fate ?? record.state}`)));
  const down = !isAlive(agent);
  const held = agent.evidence.startsWith("by the operator");
  return html`<div class="actions" role="group" aria-label="Actions">
      ${BUSY.includes(agent.state) && html`<button type="button" disabled=${pending} onClick=${() => act("interrupt")}>Interrupt</button>`}
      ${down
        ? html`<button type="button" disabled=${pending} onClick=${() => act("start")}>Start</button>`
        : html`<${Sure} label="Stop" sure="Really stop?" disabled=${pending} action=${() => act("stop")} />`}
      ${!down && html`<${Sure} label="Restart" sure="Really restart?" disabled=${pending} action=${() => act("restart")} />`}
      ${held && html`<button type="button" disabled=${pending} onClick=${() => act("unpark")}>Let it go</button>`}
      ${agent.state === "failed" && html`<button type="button" disabled=${pending} onClick=${() => act("reset")}>Reset</button>`}
      ${!down &&
      html`<details class="more">
        <summary>More</summary>
        ${!held && html`<button type="button" disabled=${pending} onClick=${() => act("park", { reason: "from the page" })}>Park</button>`}
        <${Sure} label="Kill" sure="Really kill?" disabled=${pending} action=${() => act("kill")} />
      </details>`}
    </div>
    <${Trouble} text=${problem} />`;
}

function Facts({ agent }) {
  useClock();
  const context = agent.context_window && `${count(agent.context_tokens)} of ${count(agent.context_window)} tokens`;
  const rows = {
    CLI: [agent.kind, agent.model].filter(Boolean).join(", "),
    Session: agent.session_id,
    Context: context,
    Tokens: count(agent.tokens),
    Cost: money(agent.cost_usd),
    Turns: agent.turns,
    Queued: agent.queued || "",
    Process: agent.pid && [agent.pid, bytes(agent.memory)].filter(Boolean).join(", "),
    Started: moment(agent.started),
    Restarts: agent.restarts && [agent.restarts, agent.last_exit].filter(Boolean).join(": "),
    Folder: agent.cwd,
    Worktree: agent.worktree,
    Recording: agent.recording ?? agent.not_recorded,
  };
  return html`<details class="about">
    <summary>About ${agent.name}</summary>
    <dl>
      ${Object.entries(rows)
        .filter(([, value]) => value || value === 0)
        .map(([name, value]) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`)}
    </dl>
  </details>`;
}

function Composer({ agent, fleet }) {
  const field = useRef(null);
  const [run, pending, problem] = useAction();
  const busy = BUSY.includes(agent.state);
  const send = (verb, body) => {
    const text = field.current.value.trim();
    if (!text) return field.current.focus();
    return run(async () => {
      const receipt = await post(agentPath(agent.name, verb), body(text));
      if (["refused", "expired"].includes(receipt.fate)) throw new Error(receipt.why || receipt.fate);
      field.current.value = "";
      fleet.say(`${agent.name}: ${verb === "steer" ? "sent to the running turn" : "queued"}`);
      field.current.focus();
    });
  };
  const ask = () => send("queue", (prompt) => ({ prompt }));
  const steer = () => send("steer", (text) => ({ text }));
  const key = (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) (event.preventDefault(), ask());
  };
  return html`<form class="composer" onSubmit=${(event) => event.preventDefault()}>
    <label for="message">Message to ${agent.name}</label>
    <textarea id="message" ref=${field} rows="2" onKeyDown=${key} placeholder="Ctrl+Enter asks"></textarea>
    <button type="button" class="allow" disabled=${pending} onClick=${ask}>${busy ? "Ask next" : "Ask"}</button>
    ${busy && html`<button type="button" disabled=${pending} onClick=${steer}>Steer</button>`}
    <${Trouble} text=${problem} />
  </form>`;
}

export function AgentPage({ fleet, name }) {
  const agent = fleet.agents.get(name);
  const [whole, showWhole] = useState(false);
  const [transcript, version, link] = useTranscript(name, fleet.host, agent?.incarnation, whole);
  if (agent === undefined)
    return html`<p>${fleet.facts === null ? "waiting for the host …" : html`There is no agent ${name}. <a href="#/">The fleet</a>`}</p>`;
  return html`
    <section class="agent-head" aria-label="Agent">
      <h1>${name}</h1>
      <${State} agent=${agent} />
      <span class="doing">${doing(agent)}${agent.until && ` · wakes ${moment(agent.until)}`}</span>
      <small>for ${since(agent.since)}</small>
      <${Actions} agent=${agent} fleet=${fleet} />
    </section>
    <${Facts} agent=${agent} />
    ${link.state === "lost" && html`<p class="trouble">The transcript is interrupted: ${link.why}</p>`}
    ${!whole && transcript.first > 0 && html`<button type="button" onClick=${() => showWhole(true)}>Load the beginning</button>`}
    <${Conversation} transcript=${transcript} version=${version} name=${name} />
    <div class="dock">
      <${Questions} fleet=${fleet} questions=${fleet.questionsOf(name)} />
      <${Composer} agent=${agent} fleet=${fleet} />
    </div>
  `;
}
