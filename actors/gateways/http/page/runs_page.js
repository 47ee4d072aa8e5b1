// Past runs: what the host has recorded of its agents, and each again, event by event.

import { html, useEffect, useMemo, useRef, useState } from "./vendor/preact.js";
import { get } from "./api.js";
import { moment, money, plural } from "./format.js";
import { Conversation, Transcript } from "./transcript.js";
import { Trouble, textOf, useRecord } from "./view.js";

const STEP = 40; // ms between two events of a replay
const SPEEDS = [1, 5, 25];

const result = ({ is_running, is_in_turn, outcome }) =>
  is_running ? (is_in_turn ? "works" : "is idle") : is_in_turn ? "was cut off" : (outcome ?? "no turn");

const Row = ({ run }) => html`<tr>
  <td><a href=${`#/runs/${encodeURIComponent(run.id)}`}>${moment(run.begun)}</a></td>
  <td>${run.agent}</td>
  <td class=${["ok", null].includes(run.outcome) ? "" : "bad"}>${result(run)}</td>
  <td>${money(run.cost_usd)}</td>
  <td class="words">${run.text}</td>
</tr>`;

export function RunsPage() {
  const [record, problem] = useRecord(() => get("runs?limit=200"), 30, []);
  const runs = record?.runs ?? [];
  return html`
    <h1>Past runs</h1>
    <p role="status" class="found">${record && plural(runs.length, "run")}</p>
    <${Trouble} text=${problem && textOf(problem)} />
    ${runs.length > 0 &&
    html`<div class="scroll" tabindex="0" role="region" aria-label="Runs">
      <table class="simple">
        <thead><tr><th>Begun</th><th>Agent</th><th>Last turn</th><th>Cost</th><th>Last words</th></tr></thead>
        <tbody>${runs.map((run) => html`<${Row} key=${run.id} run=${run} />`)}</tbody>
      </table>
    </div>`}
  `;
}

/** The events of a run, page by page as they come. */
function useEvents(id) {
  const events = useMemo(() => [], [id]);
  const [state, set] = useState({ size: 0, problem: null, done: false });
  useEffect(() => {
    let gone = false;
    const take = async (since) => {
      const page = await get(`runs/${encodeURIComponent(id)}/events?since=${since}`);
      if (gone) return;
      events.push(...page.events);
      set({ size: events.length, problem: null, done: page.next === null });
      if (page.next !== null) await take(page.next);
    };
    take(0).catch((problem) => gone || set({ size: events.length, problem, done: true }));
    return () => (gone = true);
  }, [id]);
  return [events, state];
}

export function RunPage({ id }) {
  const [run] = useRecord(() => get(`runs/${encodeURIComponent(id)}`), 0, [id]);
  const [events, { size, problem, done }] = useEvents(id);
  const [place, go] = useState(null); // null: the end
  const [speed, choose] = useState(SPEEDS[0]);
  const [playing, play] = useState(false);
  const transcript = useMemo(() => new Transcript(), [id]);
  const shown = useRef(0);
  const upTo = Math.min(place ?? size, size);
  if (upTo < shown.current) (transcript.clear(), (shown.current = 0));
  for (; shown.current < upTo; shown.current++) transcript.apply(events[shown.current].type, events[shown.current]);
  useEffect(() => {
    const timer = playing && setInterval(() => go((now) => (now ?? 0) + speed), STEP);
    return () => clearInterval(timer);
  }, [playing, speed]);
  useEffect(() => {
    if (playing && done && upTo >= size) play(false);
  });
  const start = () => (!playing && upTo >= size && go(0), play(!playing));
  return html`
    <h1>${run ? `${run.agent}, ${moment(run.begun)}` : `Run ${id}`}</h1>
    <${Trouble} text=${problem && textOf(problem)} />
    <div class="tools replay" role="group" aria-label="Replay">
      <button type="button" onClick=${start}>${playing ? "Pause" : "Replay"}</button>
      <label>Event <input type="range" min="0" max=${size} value=${upTo} onInput=${(event) => (play(false), go(Number(event.target.value)))} /></label>
      <span>${upTo} of ${size}</span>
      ${SPEEDS.map((each) => html`<button type="button" aria-pressed=${speed === each} onClick=${() => choose(each)}>${each}x</button>`)}
    </div>
    <${Conversation} transcript=${transcript} version=${upTo} name=${run?.agent ?? id} />
  `;
}
