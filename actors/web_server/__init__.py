"""The HTTP server under every gateway: an ASGI application on a bound socket."""
