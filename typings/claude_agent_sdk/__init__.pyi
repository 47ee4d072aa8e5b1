from collections.abc import AsyncIterator, Mapping
from pathlib import Path

class ClaudeAgentOptions:
    def __init__(self, *, cli_path: Path, include_partial_messages: bool, env: Mapping[str, str]) -> None: ...

def query(*, prompt: str, options: ClaudeAgentOptions) -> AsyncIterator[object]: ...
