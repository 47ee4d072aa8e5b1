"""An OpenCode server, held session by session."""
