"""Actors and their messages: mailboxes, refs and names, calls, casts, streams, monitors and links."""
