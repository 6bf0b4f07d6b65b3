from __future__ import annotations

import pytest
import yaml

from tasks.refine.text.rules import parse_rules, rules_data, rules_text

FILES = ("aggregators.yaml", "licences.yaml", "placeholders.yaml", "risk_rules.yaml", "secret_rules.yaml")


@pytest.mark.parametrize("name", FILES)
def test_packaged_rules_are_read_as_plain_yaml_has_them(name: str) -> None:
    assert rules_data(name) == yaml.safe_load(rules_text(name))


def test_rules_construct_no_objects() -> None:
    with pytest.raises(yaml.YAMLError):
        parse_rules("!!python/object/apply:os.getcwd []")
