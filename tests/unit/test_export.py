"""Report and card: stable names, no NaN, 80 columns, nothing that a terminal obeys, no secrets."""

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ddltop.export.markdown import to_markdown
from ddltop.export.report import report, to_json
from ddltop.export.text import text_card
from ddltop.wire import messages
from tests.unit.builders import make_snapshot, without_figures

DOCS = Path(__file__).resolve().parents[2] / "docs"


def names_of(value: Any) -> set[str]:
    """All field names of the report, but those of samples and open dictionaries."""
    if isinstance(value, list):
        return set().union(*map(names_of, value)) if value else set()
    if not isinstance(value, dict):
        return set()
    names: set[str] = set()
    for key, item in value.items():
        names.add(key)
        if key not in ("gpus", "nics", "host", "evidence", "unmeasured"):
            names |= names_of(item)
    return names


def test_every_field_of_the_report_is_documented_and_no_other() -> None:
    page = (DOCS / "report.md").read_text()
    documented = set(re.findall(r"`([a-z_0-9]+)`", page))
    actual = names_of(report(make_snapshot(2, late_rank=1)))
    assert actual - documented == set()
    assert documented - actual - {"report", "rest"} == set()


def test_every_message_and_field_of_the_wire_is_documented() -> None:
    page = (DOCS / "wire.md").read_text()
    sections = dict(re.findall(r"^## (\S+)\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL))
    for cls in vars(messages).values():
        if (
            not isinstance(cls, type)
            or not issubclass(cls, msgspec.Struct)
            or cls in (msgspec.Struct, messages.Message)
        ):
            continue
        title = str(cls.__struct_config__.tag or cls.__name__)
        documented = re.findall(r"^\| ([a-z_0-9]+) \|", sections[title], re.MULTILINE)
        assert [name for name in documented if name != "field"] == list(cls.__struct_fields__), title
    assert f"Version {messages.PROTOCOL} " in page


def test_every_table_and_column_of_a_recording_is_documented() -> None:
    import sqlite3

    from ddltop.recording.schema import TABLES

    page = (DOCS / "recording.md").read_text()
    database = sqlite3.connect(":memory:")
    database.executescript(TABLES)
    for (table,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
        assert f"## {table}\n" in page
        section = page.split(f"## {table}\n")[1].split("\n## ")[0]
        for row in database.execute(f"PRAGMA table_info({table})"):
            assert re.search(rf"\b{row[1]}\b", section), (table, row[1])
    database.close()


def test_every_finding_code_has_a_section() -> None:
    from ddltop.diagnose.finding import Code

    page = (DOCS / "diagnoses.md").read_text()
    for code in Code:
        assert f"## {code}\n" in page


def test_json_never_says_nan() -> None:
    snapshot = make_snapshot(2)
    assert snapshot.assessment is not None
    broken = replace(snapshot.assessment.phases, t_f=math.nan, t_b=math.inf)
    text = to_json(replace(snapshot, assessment=replace(snapshot.assessment, phases=broken)))
    parsed = json.loads(text, parse_constant=pytest.fail)
    assert parsed["phases_s"]["t_f"] is None
    assert parsed["phases_s"]["t_b"] is None


def test_before_the_first_steps_there_is_a_report_without_figures() -> None:
    early = without_figures(make_snapshot(2))
    assert json.loads(to_json(early))["phases_s"] is None
    assert "no figures yet" in text_card(early)


@pytest.mark.parametrize("num_ranks", [1, 2, 16, 300])
def test_the_card_keeps_to_eighty_columns_and_names_the_figures(num_ranks: int) -> None:
    card = text_card(make_snapshot(num_ranks, late_rank=min(1, num_ranks - 1), has_gpus=True))
    assert max(len(line) for line in card.splitlines()) <= 80
    for word in ("measured", "predicted", "ideal", "t_f", "t_b", "t_c", "t_u", "backward-straggler", "->"):
        assert word in card, word
    assert len(card.splitlines()) < 120


def test_the_card_is_ascii_on_request() -> None:
    text_card(make_snapshot(4, late_rank=1), ascii_only=True).encode("ascii")


def test_hostile_names_do_not_reach_the_terminal_and_secrets_not_the_card() -> None:
    snapshot = make_snapshot(2, late_rank=1)
    evil = "\x1b[31m\r\n" + "x" * 200
    ranks = tuple(replace(rank, node=evil) for rank in snapshot.ranks)
    nodes = tuple(replace(node, node=evil) for node in snapshot.nodes)
    card = text_card(replace(snapshot, ranks=ranks, nodes=nodes, run=replace(snapshot.run, model="")))
    assert "\x1b" not in card
    assert "\r" not in card
    assert max(len(line) for line in card.splitlines()) <= 80
    assert "secret" not in card


def test_markdown_holds_findings_and_card() -> None:
    page = to_markdown(make_snapshot(2, late_rank=1))
    assert page.startswith("## ddltop: ResNet50")
    assert "**backward-straggler**" in page
    assert "```text" in page


def test_lost_data_is_said() -> None:
    snapshot = make_snapshot(2)
    quality = replace(snapshot.quality, dropped=7, lost_batches=2, missing_ranks=(1,))
    card = " ".join(text_card(replace(snapshot, quality=quality)).split())
    assert "7 steps dropped" in card
    assert "2 batches lost" in card
    assert "1 ranks missing" in card
