"""Requests made of /openapi.json against the server: it answers as the schema says.

What the schema admits is served, or refused for a reason that no schema can state. What it does
not admit is refused, or understood all the same: clients send many things.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from octavo.server.app import make_app
from octavo.server.fleet import Fleet
from octavo.server.resident import Resident
from octavo.types import SamplingParams
from serving import END, ScriptedSession, ScriptedStream, serving
from tool_texts import TEMPLATES

schemathesis = pytest.importorskip(
    "schemathesis", reason="the package schemathesis is not here (extra `test`)"
)

N_CASES = 4  # of sound ones; of others fewer, `fuzz_server.py` does more of them
TIMEOUT_SECONDS = 30
NAME = "scripted"

# Why a request that the schema admits may be a 400 all the same.
BEYOND_SCHEMAS = (
    r"Token id \d+ does not exist",  # how many there are is the model's matter
    r"to fill in the middle",  # so is this
    r"maximum context length|available context size",
    r"chat template",  # it refuses an order of messages
    r"the prompt is empty",
    r"prompt has \d+ entries",  # times n
    r"has to be called and is not declared",
    r"grammar|schema",  # of a tool, or of the answer
    r"names .* twice",
    r"there is no (response|item) ",
    r"input: there is none",
    r"declared twice",
    r"filename is",
    r"This is no text",  # of a file
    r"ids cannot begin what is filled in",
)


class Answering(ScriptedSession):
    """Says the same, briefly, to everyone."""

    def submit(
        self, ids: Sequence[int], params: SamplingParams, *, marks: Iterable[int] = ()
    ) -> ScriptedStream:
        self._scripts = [f"hm\n</think>\n\nHi{END}"]
        return super().submit(ids, params, marks=marks)


def make_schema() -> Any:
    app = make_app(Fleet([Resident(lambda report, plan: Answering(""), NAME)]))
    return schemathesis.openapi.from_dict(app.openapi())


SCHEMA = make_schema()
OPERATIONS = [found.ok() for found in SCHEMA.get_all_operations()]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("slots")
    session = Answering(TEMPLATES["qwen3_xml"], context=4096)
    with serving(session, slot_folder=folder) as address:
        yield address


@pytest.mark.parametrize("sound", [True, False])
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.label)
def test_the_server_answers_as_its_schema_says(operation: Any, sound: bool, address: str) -> None:
    modes = schemathesis.GenerationMode
    mode = modes.POSITIVE if sound else modes.NEGATIVE
    if not sound and not operation.body and not operation.query:
        pytest.skip("nothing can be wrong with it")

    @settings(
        max_examples=N_CASES if sound else 1,
        derandomize=True,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def ask(data: st.DataObject) -> None:
        case = data.draw(operation.as_strategy(generation_mode=mode))
        answer = case.call(base_url=address, timeout=TIMEOUT_SECONDS)
        check(answer, operation)
        if sound:
            check_served(answer, case)

    ask()


def check(answer: Any, operation: Any) -> None:
    """Status, content type and body are documented, and no fault is ours."""
    assert answer.status_code < 500 or answer.status_code == 501, answer.text
    kind = answer.headers["content-type"][0].partition(";")[0]
    documented = operation.definition.raw["responses"][str(answer.status_code)]
    assert kind in documented["content"], (answer.status_code, kind)
    if kind == "application/json":
        operation.validate_response(answer)


def check_served(answer: Any, case: Any) -> None:
    if answer.status_code == 400:
        assert any(re.search(reason, answer.text) for reason in BEYOND_SCHEMAS), (
            answer.text,
            case.body,
        )
    elif answer.status_code != 404:  # nothing of a made-up name is there
        assert answer.status_code in (200, 422), answer.text
