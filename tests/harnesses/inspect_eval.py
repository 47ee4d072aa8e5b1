"""One evaluation of Inspect, in its own Python: inspect_eval.py FOLDER, where `config.json` has the options of the solver. Prints its log as JSON."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def main(folder: Path) -> None:
    os.environ["INSPECT_ASYNC_BACKEND"] = "trio"
    sys.path.insert(0, os.fspath(ROOT))
    from inspect_ai import Task
    from inspect_ai import eval as evaluate
    from inspect_ai.dataset import Sample
    from inspect_ai.scorer import Score, Scorer, Target, accuracy, scorer
    from inspect_ai.solver import TaskState

    from examples.inspect_solver import proctor_agent

    @scorer(metrics=[accuracy()])
    def wrote_it() -> Scorer:
        async def score(state: TaskState, target: Target) -> Score:
            return Score(value="C" if state.store.get("files", {}).get("answer.txt") == target.text else "I")

        return score

    options: dict[str, Any] = json.loads((folder / "config.json").read_text())
    [log] = evaluate(
        Task(
            [Sample("Write `done` into answer.txt.", target="done\n")],
            solver=proctor_agent(**options),
            scorer=wrote_it(),
        ),
        model="mockllm/model",
        log_dir=str(folder / "logs"),
        display="none",
    )
    sys.stdout.write(log.model_dump_json(fallback=str))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
