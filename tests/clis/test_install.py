from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs
import pytest

from tests.tables import each_row

HERE = Path(__file__).parent

# What npm does here: the platform package of one version at the top, that of the other below its alias.
NPM = """\
#!/bin/sh
echo "$@" >> "$LOG"
read_go() { [ -p "$GO" ] && cat "$GO"; }
read_go
[ -n "$FAILURE" ] && { echo "npm error code $FAILURE"; exit 7; }
package() {
  mkdir -p "$(dirname "$1/$3")"
  printf '{"version": "%s"}' "$2" > "$1/package.json"
  printf '#!/bin/sh\\n' > "$1/$3"
  chmod +x "$1/$3"
}
claude=@anthropic-ai/claude-code-linux-x64
package node_modules/$claude 2.1.197 claude
[ -n "$PARTIAL" ] || package node_modules/claude-2.1.330/node_modules/$claude 2.1.330 claude
package node_modules/@openai/codex-linux-x64 0.169.0-linux-x64 vendor/x86_64-unknown-linux-musl/bin/codex
package node_modules/codex-acp-2.6.0 2.6.0 dist/index.js
package node_modules/gemini-0.61.0 0.61.0 bundle/gemini.js
package node_modules/opencode-1.18.33 1.18.33 bin/opencode
"""


@attrs.frozen
class Checkout:
    """A copy of the folder with an npm of our own on its PATH."""

    folder: Path
    log: Path
    go: Path

    def start(self, extra: Mapping[str, str] | None = None, *, npm: bool = True) -> subprocess.Popen[str]:
        path = f"{self.folder.parent / 'bin'}:/usr/bin:/bin" if npm else str(self.folder.parent / "nowhere")
        environment = {"PATH": path, "LOG": str(self.log), "GO": str(self.go), **(extra or {})}
        program = [sys.executable, "-I", "-S", str(self.folder / "install.py")]
        return subprocess.Popen(
            program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        )

    def run(self, extra: Mapping[str, str] | None = None, *, npm: bool = True) -> tuple[int, str, str]:
        return finish(self.start(extra, npm=npm))

    def installs(self) -> int:
        return len(self.log.read_text().splitlines()) if self.log.exists() else 0

    def trees(self) -> list[Path]:
        return sorted(each for each in (self.folder / "node_modules").iterdir() if each.is_dir())


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    folder = tmp_path / "clis"
    folder.mkdir()
    for name in ("install.py", "package.json", "package-lock.json", ".npmrc"):
        shutil.copy(HERE / name, folder)
    npm = tmp_path / "bin" / "npm"
    npm.parent.mkdir()
    npm.write_text(NPM)
    npm.chmod(0o755)
    return Checkout(folder, tmp_path / "log", tmp_path / "go")


def aliases(out: str) -> Sequence[str]:
    found = dict(line.split(" ", 1) for line in out.splitlines())
    assert all(os.access(path, os.X_OK) for path in found.values())
    return list(found)


def test_each_alias_gets_the_executable_of_its_own_version(checkout: Checkout) -> None:
    status, out, _ = checkout.run()
    assert (status, aliases(out)) == (
        0,
        [
            "claude-2.1.197",
            "claude-2.1.330",
            "codex-0.169.0",
            "codex-acp-2.6.0",
            "gemini-0.61.0",
            "opencode-1.18.33",
        ],
    )
    versions = [
        json.loads(Path(line.split(" ", 1)[1]).with_name("package.json").read_text())
        for line in out.splitlines()[:2]
    ]
    assert [each["version"] for each in versions] == ["2.1.197", "2.1.330"]


def test_an_unchanged_lock_file_needs_no_npm(checkout: Checkout) -> None:
    first = checkout.run()
    second = checkout.run(npm=False)
    assert (second[0], second[1]) == (0, first[1])
    assert (second[2], checkout.installs()) == ("", 1)


def test_of_two_runs_at_once_one_installs_and_the_other_waits(checkout: Checkout) -> None:
    os.mkfifo(checkout.go)
    first = checkout.start()
    with checkout.go.open("w"):  # opens once the first run's npm reads
        second = checkout.start()
        assert second.stderr is not None
        assert "waiting" in second.stderr.readline()
    results = [finish(first), finish(second)]
    assert [status for status, _, _ in results] == [0, 0]
    assert results[0][1] == results[1][1]
    assert checkout.installs() == 1


def test_a_changed_lock_file_installs_again_and_removes_the_old_tree(checkout: Checkout) -> None:
    checkout.run()
    (old,) = checkout.trees()
    with (checkout.folder / "package-lock.json").open("a") as lock:
        lock.write("\n")
    status, _, _ = checkout.run()
    (new,) = checkout.trees()
    assert (status, checkout.installs()) == (0, 2)
    assert new != old


@pytest.mark.parametrize(
    ("extra", "reason"),
    [
        ({"FAILURE": "EAI_AGAIN"}, "npm ci failed with exit 7: code EAI_AGAIN"),
        ({"PARTIAL": "1"}, "no executable of claude-2.1.330"),
    ],
)
def test_a_failed_install_says_why_and_the_next_run_starts_afresh(
    checkout: Checkout, extra: dict[str, str], reason: str
) -> None:
    status, out, err = checkout.run(extra)
    assert (status, out) == (1, "")
    assert reason in err.splitlines()[-1]
    assert checkout.run()[0] == 0


def test_without_npm_the_reason_is_one_line(checkout: Checkout) -> None:
    status, _, err = checkout.run(npm=False)
    assert (status, len(err.splitlines())) == (1, 1)
    assert "npm is not on PATH" in err


def test_a_tree_that_lost_an_executable_is_filled_again(checkout: Checkout) -> None:
    _, out, _ = checkout.run()
    Path(out.splitlines()[1].split(" ", 1)[1]).unlink()
    status, again, _ = checkout.run()
    assert (status, again, checkout.installs()) == (0, out, 2)


@each_row("folder", [HERE, HERE.parent / "browser"])
def test_the_lock_file_pins_exact_versions_with_integrity_and_names_no_host(folder: Path) -> None:
    text = (folder / "package-lock.json").read_text()
    packages = json.loads(text)["packages"]
    assert "resolved" not in text
    assert "://" not in text
    assert all("integrity" in entry for path, entry in packages.items() if path)
    manifest = json.loads((folder / "package.json").read_text())
    for kind in {"dependencies", "optionalDependencies"} & {*manifest}:
        assert packages[""][kind] == manifest[kind]
        for alias, package in manifest[kind].items():
            assert packages[f"node_modules/{alias}"]["version"] == package.rpartition("@")[2]
