"""Is a break noticed? Each is tried in a copy of the package, with the tests that are about it.

Guarantees: the tree itself is never written to. A trial counts as noticed when a test fails, when the module does not
import, or when the tests take longer than the limit. Before the first, the copy as it is must pass (else every break
would look noticed) and a copy whose module cannot be imported must not (else the tests would import another).

A trial runs a module's own tests first, and only if they notice nothing those that use it from afar.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import attrs

ROOT = Path(__file__).parents[2]
LIMIT = 60.0
KEPT_OUT = shutil.ignore_patterns("__pycache__", "node_modules", ".hypothesis", "mutants")
PLUGINS = ("-p", "no:cacheprovider", "-p", "pytest_trio.plugin", "-p", "_hypothesis_pytestplugin")
PYTEST = ("-m", "pytest", "-x", "-q", *PLUGINS, "--hypothesis-profile=trial")
ALONE = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
"""The plugins that happen to be installed take longer to load than most tests of a module to run."""

# A trial asks whether an example fails, not which one is the smallest, and asks the same each time.
CONFTEST = """\
import hypothesis

phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
hypothesis.settings.register_profile("trial", derandomize=True, database=None, phases=phases)
"""


@attrs.frozen
class Target:
    """A module to break, with its own tests and those that use it from afar; all relative to the tree."""

    module: str
    own: tuple[str, ...]
    afar: tuple[str, ...] = ()


class Copy:
    """A copy of what the tests need, for one trial at a time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._trials = 0
        shutil.copytree(ROOT / "src", folder / "src", ignore=KEPT_OUT)  # follows the links: plain folders
        shutil.copytree(ROOT / "tests" / "runtime", folder / "tests" / "runtime", ignore=KEPT_OUT)
        shutil.copy(ROOT / "tests" / "tables.py", folder / "tests")  # what its tests share with others
        shutil.copy(ROOT / "pyproject.toml", folder)
        (folder / "conftest.py").write_text(CONFTEST)

    def notices(self, target: Target, source: str) -> bool:
        """Whether a test fails when the target's module is `source`."""
        module = self._folder / "src" / "proctor" / target.module
        whole = module.read_text(encoding="utf-8")
        try:
            self._write(module, source)
            return any(self._fails(tests) for tests in (target.own, target.afar) if tests)
        finally:
            self._write(module, whole)

    def _write(self, module: Path, source: str) -> None:
        """A compiled file is known by the second and the size of its source: each text gets a second of its own."""
        module.write_text(source, encoding="utf-8")
        self._trials += 1
        os.utime(module, (self._trials, self._trials))

    def _fails(self, tests: tuple[str, ...]) -> bool:
        try:
            done = subprocess.run(
                [sys.executable, *PYTEST, *tests],
                cwd=self._folder,
                env={**os.environ, **ALONE},
                capture_output=True,
                timeout=LIMIT,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return True
        return done.returncode != 0


def check(copy: Copy, target: Target) -> None:
    """See that trials of `target` mean something. Raises `RuntimeError` if they do not."""
    whole = (ROOT / target.module).read_text(encoding="utf-8")
    if copy.notices(target, whole):
        raise RuntimeError(f"the tests of {target.module} fail, or take too long, without any break")
    if not copy.notices(target, f"{whole}\nraise ImportError\n"):
        raise RuntimeError(f"the tests of {target.module} do not import the copy")
