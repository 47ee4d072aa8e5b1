// What the pages share: state that renders them, rows of which only the visible ones exist, small parts.

import { html, useEffect, useLayoutEffect, useRef, useState } from "./vendor/preact.js";
import { Problem } from "./api.js";
import { groupOf, isAlive } from "./format.js";

/** Render again when `state` changes; returns it. */
export function useShared(state) {
  const [, render] = useState(0);
  useEffect(() => state.subscribe(() => render((n) => n + 1)), [state]);
  return state;
}

/** Render again each `seconds`: for what only time changes. */
export function useClock(seconds = 1) {
  const [, render] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => render((n) => n + 1), seconds * 1000);
    return () => clearInterval(timer);
  }, [seconds]);
}

/** A record that is asked for now, and again each `seconds` while the page is visible: `[record, problem, again]`. */
export function useRecord(ask, seconds, parts) {
  const [result, set] = useState([null, null]);
  const [round, again] = useState(0);
  useEffect(() => {
    let gone = false;
    const look = () =>
      document.hidden ||
      ask().then(
        (record) => gone || set([record, null]),
        (problem) => gone || set(([record]) => [record, problem]),
      );
    look();
    const timer = seconds && setInterval(look, seconds * 1000);
    return () => {
      gone = true;
      clearInterval(timer);
    };
  }, [...parts, round]);
  return [...result, () => again((n) => n + 1)];
}

/** The text of an error, with what to do. */
export const textOf = (error) =>
  error instanceof Problem ? [error.message, error.remedy].filter(Boolean).join("; ") : String(error);

/** Run an action of the operator: `[run, pending, problem]`. */
export function useAction() {
  const [state, set] = useState({ pending: false, problem: "" });
  const run = async (work) => {
    set({ pending: true, problem: "" });
    try {
      const result = await work();
      set({ pending: false, problem: "" });
      return result;
    } catch (error) {
      set({ pending: false, problem: textOf(error) });
      return undefined;
    }
  };
  return [run, state.pending, state.problem];
}

export const Trouble = ({ text }) => text && html`<p class="trouble" role="alert">${text}</p>`;

/** The state of an agent: the colour is that of its group, the shape says whether its process lives. */
export const State = ({ agent }) => html`<span class=${`state ${groupOf(agent).key}`}
  ><i class=${isAlive(agent) ? "mark alive" : "mark"}></i>${agent.approvals > 0 ? "needs you" : agent.state}</span
>`;

/** A button that has to be pressed twice: the second press within some seconds does it. */
export function Sure({ label, sure, action, disabled }) {
  const [armed, arm] = useState(false);
  useEffect(() => {
    const timer = armed && setTimeout(() => arm(false), 5000);
    return () => clearTimeout(timer);
  }, [armed]);
  const press = () => (armed ? (arm(false), action()) : arm(true));
  return html`<button type="button" class=${armed ? "danger" : ""} disabled=${disabled} onClick=${press}>
    ${armed ? sure : label}
  </button>`;
}

const rem = () => parseFloat(getComputedStyle(document.documentElement).fontSize);

/**
 * Rows of one height, of which only those on the screen exist. `row(item, index, style)` makes one, keyed.
 *
 * A row that has the focus keeps it when it moves: a browser takes it away from an element that is inserted elsewhere.
 */
export function Rows({ items, keyOf, row, height, narrowHeight }) {
  const box = useRef(null);
  const focused = useRef(null);
  const next = useRef(null);
  const [[first, last], show] = useState([0, 40]);
  const size = Math.round(rem() * (matchMedia("(max-width: 45rem)").matches ? narrowHeight : height));
  const look = () => {
    if (box.current === null) return;
    const above = Math.max(0, -box.current.getBoundingClientRect().top);
    const begin = Math.max(0, Math.floor(above / size) - 4);
    const end = begin + Math.ceil(innerHeight / size) + 8;
    show((now) => (now[0] === begin && now[1] === end ? now : [begin, end]));
  };
  useLayoutEffect(look);
  useEffect(() => {
    addEventListener("scroll", look, { passive: true });
    addEventListener("resize", look);
    return () => {
      removeEventListener("scroll", look);
      removeEventListener("resize", look);
    };
  }, [size]);
  const focus = (key) => {
    const target = box.current.querySelector(`[data-key="${CSS.escape(key)}"]`);
    target?.focus({ preventScroll: true });
    target?.scrollIntoView({ block: "nearest" });
    return target !== null;
  };
  useLayoutEffect(() => {
    if (next.current !== null && focus(next.current)) next.current = null;
    else if (focused.current !== null && document.activeElement === document.body) focus(focused.current);
  });
  const move = (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const from = items.findIndex((item) => keyOf(item) === (next.current ?? event.target.dataset.key));
    if (!step || from < 0 || !items[from + step]) return;
    event.preventDefault();
    const key = keyOf(items[from + step]);
    if (focus(key)) return;
    // not there yet: keys come faster than the browser says that it has scrolled
    next.current = key;
    scrollBy(0, step * size);
    look();
  };
  return html`<div
    ref=${box}
    role="rowgroup"
    class="rows"
    style=${{ height: `${items.length * size}px` }}
    onKeyDown=${move}
    onfocusin=${(event) => (focused.current = event.target.dataset.key ?? null)}
    onfocusout=${(event) => event.relatedTarget && (focused.current = null)}
  >
    ${items
      .slice(first, last)
      .map((item, index) => row(item, first + index, { top: `${(first + index) * size}px`, height: `${size}px` }))}
  </div>`;
}
