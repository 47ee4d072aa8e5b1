// The last hours of a fleet: turns, limits and restarts of each agent on a line of time, and what the day has cost.

import { html, useEffect, useRef, useState } from "./vendor/preact.js";
import { get } from "./api.js";
import { byNeed, groupOf, moment, money, now, plural } from "./format.js";
import { selected, selection } from "./selection.js";
import { useClock, useRecord, useShared } from "./view.js";

const LANES = 25;
const WINDOWS = [1, 4, 24]; // hours
const SHOWN = new Set(["working", "blocked", "parked", "backoff", "stalled", "failed"]);

/** The parts of an agent's line: what this page has seen, and before that the requests and restarts that the host has kept. */
function partsOf(agent, history, requests, restarts) {
  const seen = (history.get(agent.name) ?? []).filter(({ what }) => what === "restart" || SHOWN.has(what));
  const first = Math.min(now(), ...(history.get(agent.name) ?? []).map(({ from }) => from));
  const before = requests
    .filter((request) => request.agent === agent.name && request.sent && request.sent < first)
    .map(({ sent, ended, outcome, prompt }) => ({ what: "working", from: sent, to: Math.min(ended ?? first, first), why: `${outcome ?? ""} ${prompt}` }));
  const restarted = restarts.filter((one) => one.agent === agent.name && one.at < first).map(({ at, cause }) => ({ what: "restart", from: at, why: cause }));
  return [...before, ...restarted, ...seen];
}

function Lane({ agent, parts, begin, seconds }) {
  const percent = (at) => Math.max(0, Math.min(100, (100 * (at - begin)) / seconds));
  const left = (at) => `min(${percent(at)}%, 100% - 3px)`;
  const inside = parts.filter(({ from, to, what }) => (what === "restart" ? from : (to ?? now())) >= begin);
  const size = (what) => inside.filter((part) => part.what === what).length;
  const summary = [plural(size("working"), "turn"), plural(size("restart"), "restart"), plural(size("parked"), "limit")].join(", ");
  return html`<li>
    <a href=${`#/agent/${encodeURIComponent(agent.name)}`}>${agent.name}</a>
    <div class="lane" role="img" aria-label=${`${agent.name}: ${summary}`}>
      ${inside.map(({ what, from, to, why }) => {
        const title = `${what} ${moment(from)}${to ? ` to ${moment(to)}` : ""} ${why ?? ""}`;
        if (what === "restart") return html`<i class="restart" title=${title} style=${{ left: left(from) }}></i>`;
        const group = groupOf({ state: what }).key;
        return html`<i class=${group} title=${title} style=${{ left: left(from), right: `${100 - percent(to ?? now())}%` }}></i>`;
      })}
    </div>
  </li>`;
}

function Timeline({ fleet, requests, restarts, hours }) {
  useClock(5);
  const seconds = hours * 3600;
  const begin = now() - seconds;
  const agents = selected([...fleet.agents.values()]).sort(byNeed);
  return html`<ol class="lanes" aria-label=${`The last ${plural(hours, "hour")}`}>
      ${agents
        .slice(0, LANES)
        .map((agent) => html`<${Lane} key=${agent.name} agent=${agent} parts=${partsOf(agent, fleet.history, requests, restarts)} begin=${begin} seconds=${seconds} />`)}
    </ol>
    <p class="axis"><span>${moment(begin)}</span><span>${moment(begin + seconds / 2)}</span><span>now</span></p>
    <p class="legend"><i class="working"></i> turn <i class="needs"></i> needs you <i class="parked"></i> limit <i class="failed"></i> failed <i class="restart"></i> restart
      ${agents.length > LANES && html` · ${LANES} of ${agents.length} agents: the filter above chooses`}</p>`;
}

let chart = null;
/** uPlot, loaded when the first chart is shown. */
const loadChart = () =>
  (chart ??= new Promise((resolve, reject) => {
    const script = Object.assign(document.createElement("script"), { src: "static/vendor/uplot.js", onload: () => resolve(window.uPlot), onerror: reject });
    document.head.append(script);
  }));

/** The cost of the day: as requests ended, then as this page has seen it. */
function costPoints(costs, requests) {
  const midnight = new Date().setHours(0, 0, 0, 0) / 1000;
  const first = costs[0]?.at ?? now();
  const ended = requests.filter(({ ended, cost_usd }) => cost_usd && ended > midnight && ended < first).sort((a, b) => a.ended - b.ended);
  let sum = 0;
  const before = ended.map((request) => [request.ended, (sum += request.cost_usd)]);
  return [...before, ...costs.map(({ at, cost }) => [at, cost])];
}

function Costs({ fleet, requests }) {
  useClock(10);
  const box = useRef(null);
  const plot = useRef(null);
  const points = costPoints(fleet.costs, requests);
  const data = [points.map(([at]) => at), points.map(([, cost]) => cost)];
  useEffect(() => {
    let gone = false;
    loadChart().then((UPlot) => {
      if (gone) return;
      const colour = (name) => getComputedStyle(box.current).getPropertyValue(name);
      const axis = { stroke: colour("--soft"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false } };
      const dollars = (u, values) => values.map(money);
      plot.current = new UPlot(
        {
          width: box.current.clientWidth,
          height: 180,
          legend: { show: false },
          cursor: { y: false },
          scales: { x: { range: (u, min) => [min, Math.max(now(), min + 600)] }, y: { range: (u, min, max) => [0, Math.max(0.01, max * 1.1)] } },
          axes: [axis, { ...axis, size: 70, values: dollars }],
          series: [{}, { stroke: colour("--link"), width: 2, paths: UPlot.paths.stepped({ align: 1 }) }],
        },
        data,
        box.current,
      );
    }, () => {});
    const fit = () => plot.current?.setSize({ width: box.current.clientWidth, height: 180 });
    addEventListener("resize", fit);
    return () => ((gone = true), removeEventListener("resize", fit), plot.current?.destroy());
  }, []);
  useEffect(() => plot.current?.setData(data));
  const last = points.at(-1)?.[1];
  return html`<figure>
    <figcaption>Cost today${last !== undefined && `: ${money(last)}`}</figcaption>
    <div class="chart" ref=${box} role="img" aria-label=${`Cost today over time, now ${money(last ?? 0)}`}></div>
  </figure>`;
}

function Charts({ fleet }) {
  useShared(selection);
  const [hours, choose] = useState(WINDOWS[1]);
  const [record] = useRecord(() => get("requests"), 30, []);
  const requests = record?.requests ?? [];
  const [kept] = useRecord(() => get("restarts?limit=1000"), 30, []);
  return html`
    <div class="groups" role="group" aria-label="Span of time">
      ${WINDOWS.map((each) => html`<button type="button" aria-pressed=${hours === each} onClick=${() => choose(each)}>${each} h</button>`)}
    </div>
    <${Timeline} fleet=${fleet} requests=${requests} restarts=${kept?.restarts ?? []} hours=${hours} />
    <${Costs} fleet=${fleet} requests=${requests} />
  `;
}

export function History({ fleet }) {
  const [open, show] = useState(false);
  return html`<details class="history" onToggle=${(event) => show(event.target.open)}>
    <summary>The last hours</summary>
    ${open && html`<${Charts} fleet=${fleet} />`}
  </details>`;
}
