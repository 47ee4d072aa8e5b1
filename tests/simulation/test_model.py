from __future__ import annotations

import os

from hypothesis import HealthCheck, given, settings

from tests.simulation.prediction import Prediction
from tests.simulation.program import Program, written
from tests.simulation.programs import programs
from tests.simulation.story import difference
from tests.simulation.world import happened

EXAMPLES = int(os.environ.get("SIMULATE", "10000"))


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=False,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
)
@given(program=programs())
def test_the_runtime_does_what_the_statements_say_S7_to_S62(program: Program) -> None:
    expected, _ = Prediction(program).tell()
    assert not (text := difference(happened(program), expected)), f"{text}\n\n{written(program)}"
