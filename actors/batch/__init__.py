"""Batches: tasks for several agents, each attempt in a workspace of its own, with results that outlive the program."""
