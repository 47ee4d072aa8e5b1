"""The Model Context Protocol: any `Toolset`, served over stdio or HTTP. Nothing here knows an agent, or a command line."""
