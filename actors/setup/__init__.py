"""Registration of proctor as an MCP server in the configuration files of other programs."""
