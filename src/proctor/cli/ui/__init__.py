"""The terminal interface: the output of commands, and their questions to the user."""
