"""OpenCode: its dialects, one for each way of holding it."""
