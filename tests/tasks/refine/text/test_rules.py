from __future__ import annotations

import re

import pytest
import yaml

from storage.schemas import Finding
from tasks.refine.text.rules import CODES, finding, parse_rules, rules_data, rules_text
from tests.support.paths import PROJECT

FILES = ("aggregators.yaml", "licences.yaml", "placeholders.yaml", "risk_rules.yaml", "secret_rules.yaml")


@pytest.mark.parametrize("name", FILES)
def test_packaged_rules_are_read_as_plain_yaml_has_them(name: str) -> None:
    assert rules_data(name) == yaml.safe_load(rules_text(name))


def test_rules_construct_no_objects() -> None:
    with pytest.raises(yaml.YAMLError):
        parse_rules("!!python/object/apply:os.getcwd []")


REFINE = PROJECT / "tasks" / "refine"


def test_a_finding_takes_severity_and_default_message_from_the_table() -> None:
    assert finding("body.long") == Finding("body.long", "info", CODES["body.long"].text)
    assert finding("name.folder", "seen").message == "seen"


def test_an_unknown_code_is_refused() -> None:
    with pytest.raises(KeyError):
        finding("body.purple")


@pytest.mark.parametrize("code", CODES)
def test_codes_are_dotted_and_graded_and_explained_in_one_line(code: str) -> None:
    assert re.fullmatch(r"[a-z]+\.[a-z0-9-]+", code)
    assert CODES[code].severity in {"error", "warning", "info"}
    assert CODES[code].text
    assert "\n" not in CODES[code].text


def test_every_code_that_the_stage_uses_is_in_the_table() -> None:
    sources = "\n".join(path.read_text(encoding="utf-8") for path in REFINE.rglob("*.py"))
    used = set(re.findall(r"\bfinding\(\s*\"([a-z.0-9-]+)\"", sources))
    assert used
    assert used <= CODES.keys()
