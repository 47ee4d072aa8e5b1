"""Tools and hooks that run in this program, and the ways in which a CLI reaches them."""
