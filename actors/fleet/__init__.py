"""Fleet files: a tree of agents in TOML."""
