"""One trial of Harbor, in its own Python: harbor_trial.py FOLDER, where `config.json` has what the agent gets.

Its environment is this machine: Harbor's own need containers. The absolute paths that Harbor uses are folders below FOLDER.
Prints the result of the trial as JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

from harbor.environments.base import BaseEnvironment, ExecResult
from harbor.environments.capabilities import EnvironmentCapabilities
from harbor.models.trial.config import AgentConfig, EnvironmentConfig, TaskConfig, TrialConfig
from harbor.trial.trial import Trial

PLACES = ("/logs", "/tests", "/solution", "/tmp/harbor-proctor")


class ThisMachine(BaseEnvironment):
    """The folder `root` as an environment, with nothing but the variables `only`."""

    def __init__(self, *args: Any, root: str, only: dict[str, str], **kwargs: Any) -> None:
        self._root, self._only = Path(root), only
        super().__init__(*args, **kwargs)

    @staticmethod
    def type() -> str:
        return "this-machine"

    @property
    def capabilities(self) -> EnvironmentCapabilities:
        return EnvironmentCapabilities()

    def _validate_definition(self) -> None:
        pass

    def _here(self, text: str) -> str:
        for place in PLACES:
            text = text.replace(place, f"{self._root}{place}")
        return text

    async def start(self, force_build: bool) -> None:
        for place in ("/logs/agent", "/logs/verifier", "/logs/artifacts", "/project"):
            os.makedirs(f"{self._root}{place}")

    async def stop(self, delete: bool) -> None:
        pass

    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        Path(self._here(target_path)).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source_path, self._here(target_path))

    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        shutil.copytree(source_dir, self._here(target_dir), dirs_exist_ok=True)

    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        shutil.copy(self._here(source_path), target_path)

    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        shutil.copytree(self._here(source_dir), target_dir, dirs_exist_ok=True)

    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        process = await asyncio.create_subprocess_exec(
            "bash",
            "-c",
            self._here(command),
            cwd=cwd or self._root / "project",
            env={**self._only, "MACHINE": str(self._root), **(env or {})},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await asyncio.wait_for(process.communicate(), timeout_sec)
        return ExecResult(stdout=out.decode(), stderr=err.decode(), return_code=process.returncode or 0)


async def main(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    trial = await Trial.create(
        TrialConfig(
            task=TaskConfig(path=folder / "task"),
            trials_dir=folder / "trials",
            agent=AgentConfig(
                import_path="examples.harbor_agent:Proctor",
                model_name=config["model"],
                kwargs=config["agent"],
                env=config["env"],
            ),
            environment=EnvironmentConfig(
                import_path=f"{ThisMachine.__module__}:ThisMachine",
                kwargs={"root": str(folder / "machine"), "only": config["only"]},
            ),
        )
    )
    result = await trial.run()
    sys.stdout.write(result.model_dump_json())


if __name__ == "__main__":
    # imported by its name, as Harbor does, so that the class is one
    sys.path.insert(0, os.fspath(Path(__file__).parents[2]))
    from tests.harnesses.harbor_trial import main as run

    asyncio.run(run(Path(sys.argv[1])))
