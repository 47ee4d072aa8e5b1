// The requests that the host has kept: what waits, what runs, what became of the others.

import { html, useState } from "./vendor/preact.js";
import { get } from "./api.js";
import { duration, moment, money, now, plural } from "./format.js";
import { Trouble, textOf, useRecord } from "./view.js";

const STATES = ["waiting", "running", "ended"];

const Row = ({ request }) => {
  const { agent, prompt, state, accepted, sent, ended, outcome, cost_usd } = request;
  return html`<tr>
    <td>${moment(accepted)}</td>
    <td><a href=${`#/agent/${encodeURIComponent(agent)}`}>${agent}</a></td>
    <td>${prompt}</td>
    <td class=${![null, "ok"].includes(outcome) ? "bad" : ""}>${outcome ?? state}</td>
    <td>${sent && duration((ended ?? now()) - sent)}</td>
    <td>${money(cost_usd)}</td>
  </tr>`;
};

export function RequestsPage() {
  const [state, choose] = useState("");
  const [record, problem] = useRecord(() => get(`requests${state && `?state=${state}`}`), 3, [state]);
  const requests = record?.requests ?? [];
  return html`
    <h1>Requests</h1>
    <div class="tools">
      <div class="groups" role="group" aria-label="State">
        ${STATES.map((each) => html`<button type="button" aria-pressed=${state === each} onClick=${() => choose(state === each ? "" : each)}>${each}</button>`)}
      </div>
      <p role="status" class="found">${record && plural(requests.length, "request")}</p>
    </div>
    <${Trouble} text=${problem && textOf(problem)} />
    ${requests.length > 0 &&
    html`<div class="scroll" tabindex="0" role="region" aria-label="Requests">
      <table class="simple">
        <thead>
          <tr><th>Accepted</th><th>Agent</th><th>Prompt</th><th>Outcome</th><th>Took</th><th>Cost</th></tr>
        </thead>
        <tbody>${requests.map((request) => html`<${Row} key=${request.id} request=${request} />`)}</tbody>
      </table>
    </div>`}
  `;
}
