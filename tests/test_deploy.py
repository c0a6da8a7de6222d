"""The dashboard and the alert rules name metrics that there are, and the dashboard all of them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from serving import END, PLAIN, ScriptedSession, serving

yaml = pytest.importorskip("yaml", reason="reading the alert rules needs PyYAML")
DEPLOY = Path(__file__).parents[1] / "deploy"
NOT_METRICS = re.compile(r'"[^"]*"|\{[^}]*\}|\[[^\]]*\]|\b(?:by|without|on|ignoring)\s*\([^)]*\)')
NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*(?!\s*\(|[a-zA-Z0-9_:])")
OWN_TO_PROMETHEUS = {"up"}


def names(expression: str) -> set[str]:
    """Metrics of a PromQL expression: words outside of selectors, ranges and label lists that are
    not called as functions."""
    left = NOT_METRICS.sub(" ", re.sub(r'"[^"]*"', '""', expression))
    left = re.sub(r"\b(?:sum|avg|max|min|count)\b(?=\s*\()|\b(?:and|or|unless)\b", " ", left)
    return set(NAME.findall(left)) - OWN_TO_PROMETHEUS


def shown() -> Iterator[str]:
    """The expressions of the dashboard."""
    for panel in json.loads((DEPLOY / "grafana.json").read_text(encoding="utf-8"))["panels"]:
        yield from (target["expr"] for target in panel["targets"])


def rules() -> list[dict[str, object]]:
    document = yaml.safe_load((DEPLOY / "alerts.yml").read_text(encoding="utf-8"))
    return [rule for group in document["groups"] for rule in group["rules"]]


@pytest.fixture(scope="module")
def exported() -> set[str]:
    """The metrics of a server that has answered once."""
    with serving(ScriptedSession(PLAIN, "Hello." + END)) as address:
        body = {"messages": [{"role": "user", "content": "Hi"}]}
        assert httpx.post(f"{address}/v1/chat/completions", json=body).is_success
        text = httpx.get(f"{address}/metrics").text
    return {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE ")}


def test_the_names_of_an_expression() -> None:
    text = 'sum by (a, b) (rate(x_total{s=~"5..", y!="{z"}[5m])) / (n:m{q="x"} + z[$__rate]) > 3'
    assert names(text) == {"x_total", "n:m", "z"}


def test_the_dashboard_has_every_metric_and_no_other(exported: set[str]) -> None:
    used = set().union(*map(names, shown()))
    # Those of llama.cpp's names are the same figures again.
    assert used == {name for name in exported if not name.startswith("llamacpp:")}


def test_the_rules_name_metrics_that_there_are(exported: set[str]) -> None:
    for rule in rules():
        assert names(str(rule["expr"])) <= exported, rule["alert"]
        assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
    alerts = [rule["alert"] for rule in rules()]
    assert len(alerts) == len(set(alerts)) > 5


def test_panels_do_not_overlap() -> None:
    panels = json.loads((DEPLOY / "grafana.json").read_text(encoding="utf-8"))["panels"]
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells))
    assert len({panel["id"] for panel in panels}) == len(panels)
