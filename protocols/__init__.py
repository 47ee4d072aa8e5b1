"""Wire formats as values: bytes in, events out. No clock, no I/O, no tasks."""
