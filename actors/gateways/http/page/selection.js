// Which agents the fleet page shows: its filter stays while another page is shown.

import { groupOf } from "./format.js";

export const selection = {
  filter: "",
  group: "",
  tree: false,
  listeners: new Set(),
  subscribe(listener) {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  },
  set(parts) {
    Object.assign(this, parts);
    this.listeners.forEach((listener) => listener());
  },
  get isWhole() {
    return !this.filter.trim() && !this.group;
  },
};

/** What an agent does now, or why it is in its state. */
export const doing = (agent) =>
  agent.unresponsive ||
  (["working", "blocked"].includes(agent.state) && agent.activity) ||
  agent.evidence ||
  agent.last_exit ||
  "";

/** The agents of the selection: of its group, with all its words. */
export function selected(agents) {
  const words = selection.filter.toLowerCase().split(/\s+/).filter(Boolean);
  return agents.filter((agent) => {
    const group = groupOf(agent);
    if (selection.group && group.key !== selection.group) return false;
    if (!words.length) return true;
    const text = [agent.name, agent.state, group.label, agent.kind, agent.model, doing(agent)].join(" ").toLowerCase();
    return words.every((word) => text.includes(word));
  });
}
