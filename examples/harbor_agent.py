"""Any agent that proctor runs, as an agent of Harbor: harbor run -p TASKS --agent-import-path examples.harbor_agent:Proctor --ak kind=claude

proctor and the command line run inside of Harbor's environment. The trial gets the answer, the recording, the trajectory (ATIF), and the tokens
and dollars that the command line reports. Keys and endpoints come from the environment of Harbor, or from its `--ae NAME=VALUE`.
"""

from __future__ import annotations

import json
import os
import shlex
import tempfile
from pathlib import Path
from typing import Any

from harbor.agents.base import BaseAgent
from harbor.agents.capabilities import AgentCapabilities
from harbor.agents.installed.base import ApiUsageLimitError, NonZeroAgentExitCodeError
from harbor.environments.base import BaseEnvironment
from harbor.models.agent.context import AgentContext

COMMANDS = {
    "claude": ("claude", "npm install --global @anthropic-ai/claude-code"),
    "codex": ("codex", "npm install --global @openai/codex"),
    "opencode": ("opencode", "npm install --global opencode-ai"),
    "gemini": ("gemini", "npm install --global @google/gemini-cli"),
}
"""Kind → its program, and what installs it where it is not there."""

KEYS = {
    "claude": ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL", "CLAUDE_CODE_OAUTH_TOKEN"),
    "codex": ("OPENAI_API_KEY", "OPENAI_BASE_URL", "CODEX_API_KEY"),
    "opencode": ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "OPENCODE_CONFIG_CONTENT"),
    "gemini": ("GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_GEMINI_BASE_URL"),
}
"""Kind → the variables of Harbor's environment that it gets."""

PARKED = 75
"""The exit status of `proctor run` when a usage limit was reached."""


class Proctor(BaseAgent):
    """One prompt to one agent. `kind` is what `proctor run` takes, `package` what pip installs in the environment, or a wheel on this machine; `python`
    is a Python 3.11 or newer there. `flags` go to `proctor run`, in one string."""

    capabilities = AgentCapabilities(atif=True)

    def __init__(
        self,
        logs_dir: Path,
        *args: Any,
        kind: str = "claude",
        package: str = "proctor[cli]",
        python: str = "python3",
        flags: str = "",
        **kwargs: Any,
    ) -> None:
        super().__init__(logs_dir, *args, **kwargs)
        self._kind, self._package, self._python, self._flags = kind, package, python, shlex.split(flags)
        self._version: str | None = None

    @staticmethod
    def name() -> str:
        return "proctor"

    def version(self) -> str | None:
        return self._version

    async def setup(self, environment: BaseEnvironment) -> None:
        """Install proctor, and the command line where it is not there."""
        package, wheel = self._package, Path(self._package.removesuffix("[cli]"))
        if wheel.suffix == ".whl":
            package = f"{self._folder}/{wheel.name}"
            await self._do(environment, f"mkdir -p {self._folder}")
            await environment.upload_file(wheel, package)
            package += "[cli]"
        venv = shlex.quote(f"{self._folder}/venv")
        await self._do(
            environment, f"{self._python} -m venv {venv} && {venv}/bin/pip install -q {shlex.quote(package)}"
        )
        program, install = COMMANDS.get(self._kind, ("true", ""))
        await self._do(environment, f"command -v {program} || {install or 'true'}", user="root")
        done = await self._do(environment, f"{venv}/bin/proctor --version")
        self._version = (done.stdout or "").split()[-1]

    async def run(self, instruction: str, environment: BaseEnvironment, context: AgentContext) -> None:
        """Send the instruction, and write the trajectory. Raises `ApiUsageLimitError` at a usage limit, else
        `NonZeroAgentExitCodeError` when there was no answer."""
        logs = str(self.environment_logs_dir)
        with tempfile.NamedTemporaryFile("w", suffix=".md", encoding="utf-8") as prompt:
            prompt.write(instruction)
            prompt.flush()
            await environment.upload_file(prompt.name, f"{logs}/instruction.md")
        done = await environment.exec(self._script(logs), env=self._variables())
        if done.return_code != 0:
            error = ApiUsageLimitError if done.return_code == PARKED else NonZeroAgentExitCodeError
            raise error(f"proctor run exited with {done.return_code}: {(done.stderr or '')[-2000:]}")

    def populate_context_post_run(self, context: AgentContext) -> None:
        """Take tokens and dollars from the trajectory."""
        path = self.logs_dir / "trajectory.json"
        if not path.exists():  # stopped before it was written
            return
        final = json.loads(path.read_bytes())["final_metrics"]
        context.n_input_tokens = final.get("total_prompt_tokens")
        context.n_cache_tokens = final.get("total_cached_tokens")
        context.n_output_tokens = final.get("total_completion_tokens")
        context.cost_usd = final.get("total_cost_usd")
        context.metadata = {"kind": self._kind, **final.get("extra", {})}

    @property
    def _folder(self) -> str:
        return "/tmp/harbor-proctor"

    def _variables(self) -> dict[str, str]:
        found = {name: os.environ[name] for name in KEYS.get(self._kind, ()) if name in os.environ}
        return {**found, **self.extra_env}

    def _script(self, logs: str) -> str:
        proctor = shlex.quote(f"{self._folder}/venv/bin/proctor")
        words = ["run", self._kind, "--permission", "allow", "--timeout", "none", "--record", f"{logs}/runs"]
        if self.model_name:
            # OpenCode takes a model with its provider, the others without
            words += [
                "--model",
                self.model_name if self._kind == "opencode" else self.model_name.split("/")[-1],
            ]
        for name in self._variables():
            words += ["--env", name]
        run = shlex.join([*words, *self._flags, "-"])
        logs = shlex.quote(logs)
        # Harbor ends a trial by its own clock; a failed run has a trajectory, too
        return (
            f"{proctor} {run} < {logs}/instruction.md > {logs}/answer.txt; status=$?; "
            f'{proctor} show "$(ls -d {logs}/runs/2* | tail -n 1)" -o atif > {logs}/trajectory.json; exit $status'
        )

    async def _do(self, environment: BaseEnvironment, command: str, user: str | None = None) -> Any:
        done = await environment.exec(command, user=user)
        if done.return_code != 0:
            raise RuntimeError(
                f"{command!r} failed with {done.return_code}: {(done.stderr or done.stdout or '')[-2000:]}"
            )
        return done
