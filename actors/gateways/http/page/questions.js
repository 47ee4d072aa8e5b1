// Open questions: what an agent wants to do, with its difference, and the answers a person can give.

import { html, useRef, useState } from "./vendor/preact.js";
import { agentPath, post } from "./api.js";
import { duration, now } from "./format.js";
import { Trouble, useAction, useClock } from "./view.js";

const LABELS = { allow: "Allow", always: "Always allow", deny: "Deny" };
const MORE_TIME = 3600;

/** The lines of a unified difference, each in its colour and with its sign, which is there for those who see no colours. */
export const Diff = ({ text }) => html`<pre class="diff" tabindex="0" aria-label="Difference">${text
  .split("\n")
  .map((line) => {
    const kind = /^(\+\+\+|---|@@|diff )/.test(line) ? "head" : { "+": "plus", "-": "minus" }[line[0]];
    return html`<span class=${kind ?? ""}>${line}\n</span>`;
  })}</pre>`;

/** The difference that a tool's input describes, for the common ones; null for the others. */
export function diffOf(input) {
  const edits = input.edits ?? (input.old_string === undefined ? [] : [input]);
  const file = input.file_path ?? input.filePath ?? input.path ?? "";
  const lines = (sign, text) => (text ? text.replace(/\n$/, "").split("\n").map((line) => sign + line) : []);
  if (edits.length && edits[0].old_string !== undefined)
    return [file && `--- ${file}`, ...edits.flatMap((e) => [...lines("-", e.old_string), ...lines("+", e.new_string)])]
      .filter(Boolean)
      .join("\n");
  if (typeof input.patch === "string") return input.patch;
  if (typeof input.content === "string" && file) return [`+++ ${file}`, ...lines("+", input.content)].join("\n");
  return null;
}

/** A tool's input in full: the command of a shell as it is, the rest as JSON. */
export function inputText(input) {
  const { command, description, ...rest } = input;
  const parts = typeof command === "string" ? [command] : [];
  const others = typeof command === "string" ? rest : input;
  if (Object.keys(others).length) parts.push(JSON.stringify(others, null, 2));
  return parts.join("\n");
}

/** A question to the person: its options, or an answer of one's own. */
function Choices({ question, answer, give }) {
  const { text, header, options, multiple } = question;
  const chosen = multiple ? answer.split(", ").filter(Boolean) : [answer];
  const pick = (label) =>
    give(!multiple ? label : (chosen.includes(label) ? chosen.filter((one) => one !== label) : [...chosen, label]).join(", "));
  return html`<fieldset>
    <legend>${header && `${header}: `}${text}</legend>
    ${options.map(
      ({ label, description }) => html`<label class="option">
        <input type=${multiple ? "checkbox" : "radio"} checked=${chosen.includes(label)} onChange=${() => pick(label)} />
        <span>${label} ${description && html`<small>${description}</small>`}</span>
      </label>`,
    )}
    <label class="reason">Answer<input value=${answer} onInput=${(event) => give(event.target.value)} /></label>
  </fieldset>`;
}

function Question({ question, fleet, named }) {
  useClock();
  const [run, pending, problem] = useAction();
  const asked = question.questions;
  const [answers, answer] = useState(asked.map(() => ""));
  const reason = useRef(null);
  const box = useRef(null);
  const path = `${agentPath(question.agent, "approvals")}/${encodeURIComponent(question.id)}`;
  const decide = (decision) =>
    run(async () => {
      const message = reason.current.value;
      const more = asked.length && decision !== "deny" ? { answers } : {};
      try {
        await post(path, { decision, message: decision === "deny" ? message : "", ...more });
      } catch (error) {
        if (error.status !== 404) throw error;
        // no error of this person: somebody else was faster, or the agent took it back
        fleet.say(`${question.agent}: ${question.tool} was answered already, or is not asked any more`);
      }
      const next = box.current?.parentElement.querySelector(`:scope > :not(#${CSS.escape(box.current.id)}) button`);
      await fleet.refreshQuestions();
      (next ?? document.querySelector("main")).focus({ preventScroll: true });
    });
  const extend = () => run(() => post(`${path}/deadline`, { seconds: MORE_TIME }).then(() => fleet.refreshQuestions()));
  const diff = question.diff ?? diffOf(question.input);
  const left = question.deadline - now();
  const id = `question-${encodeURIComponent(`${question.agent}-${question.id}`)}`;
  return html`<section class="question" id=${id} ref=${box} aria-labelledby=${`${id}-name`}>
    <h3>
      <span id=${`${id}-name`}>
        ${named ? html`<a href=${`#/agent/${encodeURIComponent(question.agent)}`}>${question.agent}</a>${" may use "}` : "May use "}
        ${question.tool}?
      </span>
      ${Number.isFinite(left) && html`<small class=${left < 60 ? "soon" : ""}>${duration(left)} left</small>`}
    </h3>
    ${question.description !== question.tool && html`<p>${question.description}</p>`}
    ${asked.map(
      (each, at) => html`<${Choices} question=${each} answer=${answers[at]} give=${(text) => answer(answers.with(at, text))} />`,
    )}
    ${asked.length ? "" : diff ? html`<${Diff} text=${diff} />` : html`<pre tabindex="0" aria-label="Input">${inputText(question.input)}</pre>`}
    <div class="answers">
      ${Object.entries(LABELS).map(
        ([choice, label]) =>
          question.choices.includes(choice) &&
          html`<button type="button" class=${choice} disabled=${pending} onClick=${() => decide(choice)}>
            ${asked.length && choice === "allow" ? "Answer" : label}
          </button>`,
      )}
      <label class="reason">Reason<input ref=${reason} placeholder="for a denial; the agent reads it" /></label>
      <button type="button" class="quiet" disabled=${pending} onClick=${extend}>1 h more</button>
    </div>
    <${Trouble} text=${problem} />
  </section>`;
}

/** All questions of a fleet, or those of one agent. */
export const Questions = ({ fleet, questions, named = false }) =>
  questions.length > 0 &&
  html`<section class="questions" aria-label=${named ? "Questions for you" : "Its questions for you"}>
    ${questions.map(
      (question) =>
        html`<${Question} key=${`${question.agent} ${question.id}`} question=${question} fleet=${fleet} named=${named} />`,
    )}
  </section>`;
