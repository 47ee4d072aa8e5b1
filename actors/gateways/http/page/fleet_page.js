// The fleet: its head, what waits for a person, its agents by need or as a tree, its last hours.

import { html, useEffect, useRef } from "./vendor/preact.js";
import { GROUPS, byNeed, bytes, count, groupOf, isAlive, moment, money, since } from "./format.js";
import { costToday } from "./fleet_state.js";
import { History } from "./history.js";
import { Questions } from "./questions.js";
import { doing, selected, selection } from "./selection.js";
import { Rows, State, useClock, useShared } from "./view.js";

const SETTLED = 1500; // ms for which rows keep their order: nobody can click on what jumps

function Facts({ fleet }) {
  useClock();
  const { facts, agents } = fleet;
  const all = [...agents.values()];
  const cap = facts.cost_cap_usd;
  const rows = {
    Host: [facts.host, facts.pid && `process ${facts.pid}`].filter(Boolean).join(", "),
    "Up for": since(Date.parse(facts.since) / 1000),
    Running: `${all.filter(isAlive).length} of ${all.length}`,
    Queued: all.reduce((sum, agent) => sum + agent.queued, 0),
    "Tokens/s": fleet.tokenRate === null ? "–" : count(fleet.tokenRate),
    "Cost today": `${money(costToday(fleet))}${cap == null ? "" : ` of ${money(cap)}`}`,
  };
  const limits = facts.limits ?? [];
  return html`<section aria-label="Fleet" class="facts">
    <dl>
      ${Object.entries(rows).map(([name, value]) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`)}
    </dl>
    ${limits.map(({ name, until }) => html`<p class="limit">Usage limit: ${name}${until && `, until ${moment(until)}`}</p>`)}
  </section>`;
}

const COLUMNS = [
  ["state", "State", (agent) => html`<${State} agent=${agent} />`],
  ["name", "Agent", null],
  ["model", "Model", (agent) => agent.model ?? agent.kind],
  ["doing", "Does now, or why", doing],
  ["context", "Context", (agent) => (agent.context_window ? `${Math.round((100 * agent.context_tokens) / agent.context_window)} %` : "")],
  ["tokens", "Tokens", (agent) => count(agent.tokens_today ?? agent.tokens)],
  ["cost", "Cost", (agent) => money(agent.cost_today_usd ?? agent.cost_usd)],
  ["queue", "Queue", (agent) => agent.queued || ""],
  ["silence", "Silent", (agent) => (agent.state === "working" && agent.last_event ? since(agent.last_event) : "")],
  ["memory", "Memory", (agent) => bytes(agent.memory)],
  ["age", "For", (agent) => since(agent.since)],
  ["restarts", "Restarts", (agent) => (agent.restarts ? html`<span title=${agent.last_exit ?? ""}>${agent.restarts}</span>` : "")],
];

const Name = ({ agent }) => html`<a data-key=${agent.name} href=${`#/agent/${encodeURIComponent(agent.name)}`}>${agent.name}</a>`;

function AgentRow({ agent, index, depth, style }) {
  return html`<div role="row" aria-rowindex=${index + 2} class=${`row ${groupOf(agent).key}`} style=${style}>
    ${COLUMNS.map(([key, , text]) => {
      const indent = key === "name" && depth ? { paddingLeft: `${depth * 1.2}rem` } : {};
      return html`<span role="cell" class=${key} style=${indent}>${text ? text(agent) : html`<${Name} agent=${agent} />`}</span>`;
    })}
  </div>`;
}

const SupervisorRow = ({ node, index, depth, style }) => html`<div
  role="row"
  aria-rowindex=${index + 2}
  class="row supervisor"
  style=${style}
>
  <span role="cell" class="state"><span class="state idle">${node.state ?? ""}</span></span>
  <span role="cell" class="name" style=${{ paddingLeft: `${depth * 1.2}rem` }}>${node.id}</span>
  <span role="cell" class="doing">${node.restarts ? `${node.restarts} restarts` : ""}</span>
</div>`;

/** The rows of a tree, each with its depth: supervisors with something below them, and agents. */
function branch(node, agents, depth) {
  if (node.agent !== undefined) {
    const agent = agents.get(node.agent);
    return agent ? [{ agent, depth, key: agent.name }] : [];
  }
  const below = (node.children ?? []).flatMap((child) => branch(child, agents, depth + 1));
  return [{ node, depth, key: `/${node.path}` }, ...below];
}

/** The agents by need, in an order that holds for a moment. */
function useOrder(agents, signature, held) {
  const kept = useRef({ at: 0, signature: null, names: [] });
  const { at, signature: before, names } = kept.current;
  const stale = performance.now() - at > SETTLED && !held.current;
  if (signature !== before || names.length !== agents.length || stale) {
    const order = [...agents].sort(byNeed);
    kept.current = { at: performance.now(), signature, names: order.map((agent) => agent.name) };
    return order;
  }
  const known = new Map(agents.map((agent) => [agent.name, agent]));
  const order = names.map((name) => known.get(name)).filter(Boolean);
  return order.length === agents.length ? order : [...agents].sort(byNeed);
}

function Agents({ fleet }) {
  useClock();
  const { filter, group, tree } = useShared(selection);
  const field = useRef(null);
  const held = useRef(false);
  const all = [...fleet.agents.values()];
  const found = selected(all);
  const order = useOrder(found, `${filter}|${group}`, held);
  const items =
    tree && fleet.tree && selection.isWhole
      ? branch(fleet.tree, fleet.agents, 0)
      : order.map((agent) => ({ agent, depth: 0, key: agent.name }));
  useEffect(() => {
    const key = (event) => {
      const typing = /^(input|textarea|select)$/i.test(event.target.tagName);
      if (event.key === "/" && !typing) (event.preventDefault(), field.current.focus());
      if (event.key === "Escape" && event.target === field.current) (selection.set({ filter: "" }), field.current.blur());
    };
    addEventListener("keydown", key);
    return () => removeEventListener("keydown", key);
  }, []);
  return html`<section aria-label="Agents">
    <div class="tools">
      <label class="filter"
        >Filter <kbd aria-hidden="true">/</kbd>
        <input type="search" ref=${field} value=${filter} onInput=${(event) => selection.set({ filter: event.target.value })} />
      </label>
      <div role="group" aria-label="Agents by need" class="groups">
        ${GROUPS.map(({ key, label }) => {
          const size = all.filter((agent) => groupOf(agent).key === key).length;
          const pressed = group === key;
          return (
            (size > 0 || pressed) &&
            html`<button type="button" class=${key} aria-pressed=${pressed} onClick=${() => selection.set({ group: pressed ? "" : key })}>
              ${size} ${label}
            </button>`
          );
        })}
        ${fleet.tree &&
        html`<button type="button" aria-pressed=${tree} onClick=${() => selection.set({ tree: !tree })}>as a tree</button>`}
      </div>
      <p role="status" class="found">${!selection.isWhole ? `${found.length} of ${all.length} agents` : `${all.length} agents`}</p>
    </div>
    <div role="table" aria-label="Agents" aria-rowcount=${items.length + 1} class="agents"
      onPointerEnter=${() => (held.current = true)} onPointerLeave=${() => (held.current = false)}>
      <div role="rowgroup">
        <div role="row" aria-rowindex="1" class="row titles">
          ${COLUMNS.map(([key, title]) => html`<span role="columnheader" class=${key}>${title}</span>`)}
        </div>
      </div>
      <${Rows}
        items=${items}
        keyOf=${(item) => item.key}
        height=${2.125}
        narrowHeight=${4}
        row=${({ agent, node, depth, key }, index, style) =>
          agent
            ? html`<${AgentRow} key=${key} agent=${agent} index=${index} depth=${depth} style=${style} />`
            : html`<${SupervisorRow} key=${key} node=${node} index=${index} depth=${depth} style=${style} />`}
      />
    </div>
    ${!found.length && html`<p>No agent matches.</p>`}
  </section>`;
}

export function FleetPage({ fleet }) {
  if (fleet.facts === null) return html`<p>waiting for the host …</p>`;
  return html`
    <h1 class="spoken">Fleet ${fleet.facts.fleet}</h1>
    <${Facts} fleet=${fleet} />
    <${Questions} fleet=${fleet} questions=${fleet.questions} named=${true} />
    <${Agents} fleet=${fleet} />
    <${History} fleet=${fleet} />
  `;
}
