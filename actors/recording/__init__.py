"""Recordings: the raw frames and the events of an agent, on disk and in memory."""
