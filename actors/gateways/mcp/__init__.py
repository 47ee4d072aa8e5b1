"""The Model Context Protocol: a server for any `Toolset` over stdio or HTTP, without knowledge of agents or command lines."""
