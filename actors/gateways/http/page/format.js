// Times, amounts and states as the page shows them.

const MINUTE = 60, HOUR = 3600, DAY = 86400;

export const now = () => Date.now() / 1000;

/** Seconds, in at most two units: "4 s", "3:07", "2 h 5 min", "3 d 4 h". */
export function duration(seconds) {
  if (seconds == null || Number.isNaN(seconds)) return "";
  const whole = Math.max(0, Math.round(seconds));
  if (whole < MINUTE) return `${whole} s`;
  if (whole < HOUR) return `${Math.floor(whole / MINUTE)}:${String(whole % MINUTE).padStart(2, "0")}`;
  if (whole < DAY) return `${Math.floor(whole / HOUR)} h ${Math.floor((whole % HOUR) / MINUTE)} min`;
  return `${Math.floor(whole / DAY)} d ${Math.floor((whole % DAY) / HOUR)} h`;
}

export const since = (moment) => (moment == null ? "" : duration(now() - moment));

/** A moment, in Unix seconds or ISO 8601; beyond this day with its date. */
export function moment(at) {
  if (at == null) return "";
  const date = new Date(typeof at === "number" ? at * 1000 : at);
  const time = date.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
  return date.toDateString() === new Date().toDateString()
    ? time
    : `${date.toLocaleDateString([], { weekday: "short", day: "numeric", month: "short" })} ${time}`;
}

export function money(dollars) {
  if (dollars == null) return "";
  return `$${dollars !== 0 && Math.abs(dollars) < 0.995 ? dollars.toFixed(3) : dollars.toFixed(2)}`;
}

/** A number with its unit of a thousand: 950, 12.3k, 4.1M. */
export function count(number) {
  if (number == null) return "";
  if (number < 1000) return String(Math.round(number));
  if (number < 1e6) return `${(number / 1e3).toFixed(number < 1e5 ? 1 : 0)}k`;
  return `${(number / 1e6).toFixed(number < 1e8 ? 1 : 0)}M`;
}

export const bytes = (number) => (number == null ? "" : `${Math.round(number / 2 ** 20)} MB`);

export const plural = (number, noun) => `${number} ${noun}${number === 1 ? "" : "s"}`;

/** The groups of states, in the order in which they need somebody, as `proctor ps` has them. */
export const GROUPS = [
  { key: "needs", label: "needs you", states: ["blocked"] },
  { key: "failed", label: "failed", states: ["stalled", "failed", "backoff"] },
  { key: "parked", label: "parked", states: ["parked"] },
  { key: "working", label: "working", states: ["working", "starting", "stopping"] },
  { key: "idle", label: "idle", states: ["idle", "done"] },
  { key: "stopped", label: "stopped", states: ["stopped"] },
];
const GROUP_OF = new Map(GROUPS.flatMap((group, rank) => group.states.map((state) => [state, { ...group, rank }])));

/** The group of an agent; a state that this page does not know needs somebody to look. */
export const groupOf = (agent) =>
  agent.approvals > 0 ? GROUP_OF.get("blocked") : (GROUP_OF.get(agent.state) ?? GROUP_OF.get("failed"));

export const byNeed = (a, b) => groupOf(a).rank - groupOf(b).rank || (a.name < b.name ? -1 : 1);

const DEAD = ["stopped", "done", "failed", "backoff"];
/** Whether its process lives; one that is no process of its own has no id. */
export const isAlive = (agent) => agent.pid != null || !DEAD.includes(agent.state);
