"""The agent actor: one conversation that outlives its processes, and the handle of its callers."""
