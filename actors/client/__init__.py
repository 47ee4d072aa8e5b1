"""Clients of the fleets that run on this machine, by their control sockets."""
