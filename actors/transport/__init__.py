"""Transports: the byte streams between a conversation and its peer, a process or a task of this program."""
