"""The plan of an agent: every option as frozen data, checked before anything starts."""
