"""Limits: whether a request may start now, and otherwise why not and until when."""
