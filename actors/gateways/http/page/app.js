// The page: its frame, its routes, and the form for the token.

import { html, render, useEffect, useLayoutEffect, useMemo, useRef, useState } from "./vendor/preact.js";
import { AgentPage } from "./agent_page.js";
import { get, hasToken, onRefused, setToken, takeToken } from "./api.js";
import { FleetPage } from "./fleet_page.js";
import { FleetState } from "./fleet_state.js";
import { plural } from "./format.js";
import { RequestsPage } from "./requests_page.js";
import { RunPage, RunsPage } from "./runs_page.js";
import { useClock, useShared } from "./view.js";

const PAGES = [
  { hash: "#/", label: "Fleet" },
  { hash: "#/requests", label: "Requests" },
  { hash: "#/runs", label: "Past runs" },
];

function routeOf(hash) {
  const [page = "", ...rest] = hash.replace(/^#\/?/, "").split("/");
  return { page, name: decodeURIComponent(rest.join("/")) };
}

function useRoute() {
  const [hash, set] = useState(location.hash);
  useEffect(() => {
    const change = () => (takeToken(), set(location.hash));
    addEventListener("hashchange", change);
    return () => removeEventListener("hashchange", change);
  }, []);
  return routeOf(hash);
}

function TokenForm({ wrong, done }) {
  const field = useRef(null);
  useLayoutEffect(() => field.current.focus(), [wrong]);
  const submit = (event) => {
    event.preventDefault();
    const token = field.current.value.trim();
    if (token) (setToken(token), done());
  };
  return html`<main class="gate">
    <h1>proctor</h1>
    <form onSubmit=${submit}>
      <label for="token">Token of this server</label>
      <input id="token" ref=${field} type="password" autocomplete="off" spellcheck=${false}
        aria-invalid=${wrong} aria-describedby="token-help" />
      ${wrong && html`<p class="trouble" role="alert">The server refused this token.</p>`}
      <p id="token-help">proctor web shows it when it starts. It stays in this tab.</p>
      <button type="submit">Open</button>
    </form>
  </main>`;
}

function Connection({ fleet }) {
  useClock();
  const { state, why, retry } = fleet.connection;
  if (state === "live") return html`<span class="link live" title="connected"><i class="mark alive"></i>live</span>`;
  if (state === "connecting") return html`<span class="link">connecting …</span>`;
  const left = Math.max(0, Math.ceil(((retry ?? 0) - Date.now()) / 1000));
  return html`<span class="link lost">
    connection lost: ${why ?? "the host has ended"}; trying again in ${left} s
    <button type="button" onClick=${() => fleet.reconnect()}>Now</button>
  </span>`;
}

/** What a screen reader is to say: a new question, and the loss and return of the connection. */
function useAnnouncement(fleet) {
  const known = useRef({ questions: new Set(), state: "connecting" });
  const [text, say] = useState("");
  useEffect(() => {
    const { questions, state } = known.current;
    const fresh = fleet.questions.filter((one) => !questions.has(`${one.agent} ${one.id}`));
    if (fresh.length) say(fresh.map((one) => `${one.agent} needs you: may it use ${one.tool}?`).join(" "));
    else if (fleet.notice && fleet.notice !== known.current.notice) say(fleet.notice);
    else if (fleet.connection.state !== state && state !== "connecting")
      say(fleet.connection.state === "live" ? "connected again" : "connection lost");
    known.current = {
      questions: new Set(fleet.questions.map((one) => `${one.agent} ${one.id}`)),
      state: fleet.connection.state,
      notice: fleet.notice,
    };
  }, [fleet.version]);
  return text;
}

function Page({ route, fleet }) {
  if (route.page === "agent") return html`<${AgentPage} key=${route.name} fleet=${fleet} name=${route.name} />`;
  if (route.page === "requests") return html`<${RequestsPage} />`;
  if (route.page === "runs" && route.name) return html`<${RunPage} key=${route.name} id=${route.name} />`;
  if (route.page === "runs") return html`<${RunsPage} />`;
  return html`<${FleetPage} fleet=${fleet} />`;
}

function Frame() {
  const fleet = useShared(useMemo(() => new FleetState(), []));
  useEffect(() => () => fleet.close(), [fleet]);
  const route = useRoute();
  const main = useRef(null);
  const before = useRef(location.hash);
  const announcement = useAnnouncement(fleet);
  const open = fleet.questions.length;
  useLayoutEffect(() => {
    if (before.current === location.hash) return;
    before.current = location.hash;
    scrollTo(0, 0);
    main.current.focus({ preventScroll: true });
  }, [route.page, route.name]);
  useEffect(() => {
    const parts = [route.page === "agent" && route.name, fleet.facts?.fleet, "proctor"].filter(Boolean);
    document.title = `${open ? `(${open}) ` : ""}${parts.join(" · ")}`;
  });
  return html`
    <button type="button" class="skip" onClick=${() => main.current.focus()}>Skip to the content</button>
    <header>
      <a class="name" href="#/">${fleet.facts?.fleet || "proctor"}</a>
      <nav aria-label="Pages">
        ${PAGES.map(
          ({ hash, label }) => html`<a
            href=${hash}
            aria-current=${`#/${route.page === "agent" ? "" : route.page}` === hash ? "page" : undefined}
            >${label}</a
          >`,
        )}
      </nav>
      ${open > 0 && html`<a class="needs" href="#/">${plural(open, "question")} for you</a>`}
      <${Connection} fleet=${fleet} />
    </header>
    <p class="spoken" role="status">${announcement}</p>
    ${fleet.notice && html`<p class="notice" aria-hidden="true">${fleet.notice}</p>`}
    <main ref=${main} tabindex="-1" class=${fleet.connection.state === "lost" ? "stale" : ""}>
      <${Page} route=${route} fleet=${fleet} />
    </main>
  `;
}

function App() {
  // a server without a token answers at once, any other refuses first
  const [gate, set] = useState("asking");
  const ask = () =>
    get("fleet").then(
      () => set("open"),
      (problem) => set(problem.status === 401 ? "closed" : "open"),
    );
  useEffect(() => {
    ask();
    return onRefused(() => set("closed"));
  }, []);
  if (gate === "asking") return html`<p class="gate">connecting …</p>`;
  if (gate === "open") return html`<${Frame} />`;
  return html`<${TokenForm} wrong=${hasToken()} done=${() => (set("asking"), ask())} />`;
}

takeToken();
render(html`<${App} />`, document.getElementById("app"));
