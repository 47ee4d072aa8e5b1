"""The terminal view of a running fleet: a program of its own, and a client of the control socket."""
