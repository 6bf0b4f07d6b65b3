from __future__ import annotations

import pytest

from flows.commands.routing.methods import require_names
from flows.commands.routing.settings import (
    SWEEPS,
    VARIED,
    SkillFlowSettings,
    SkillRouterSettings,
    base_of,
    expanded,
    llm_setting,
    require_skillflow,
    settings_of,
)
from storage.errors import WrongInput


def test_a_variant_has_the_settings_that_its_name_says_and_the_others_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SKILLERY_SKILLFLOW_DENSE_K", "70")
    monkeypatch.setenv("SKILLERY_SKILLFLOW_DEEP_TOKENS", "99")
    found = settings_of("skillflow:stages=dense+deep,deep_tokens=512,dense_model=", SkillFlowSettings)
    assert (found.stages, found.deep_tokens, found.dense_model) == (["dense", "deep"], 512, "")
    assert (found.dense_k, found.shallow_k) == (70, 100)
    assert settings_of("skillflow", SkillFlowSettings).deep_tokens == 99


@pytest.mark.parametrize("sweep", sorted(SWEEPS))
def test_all_variants_of_a_sweep_can_be_made(sweep: str) -> None:
    names = expanded((), [sweep])
    assert len(names) > 1
    require_names(names)
    for name in names:
        if base_of(name) == "skillflow":
            require_skillflow(settings_of(name, SkillFlowSettings))
        else:
            settings_of(name, SkillRouterSettings)
    assert {base_of(name) for name in names} <= set(VARIED)


def test_a_variable_that_cannot_be_used_is_named_not_the_variant(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKILLERY_SKILLFLOW_DENSE_K", "many")
    with pytest.raises(WrongInput, match=r"^SKILLERY_SKILLFLOW_DENSE_K='many'"):
        settings_of("skillflow:deep_k=3", SkillFlowSettings)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("skillflow", None),
        ("skillflow:stages=dense+shallow,dense_queries=1", None),
        ("skillflow:deep_k=3,dense_queries=3", "dense_queries=3"),
        ("skillflow:shallow_aggregation=max", "shallow_aggregation=max"),
        ("skillflow:stages=dense+select", "stages=dense+select"),
    ],
)
def test_a_variant_that_means_nothing_without_an_llm_is_told(name: str, said: str | None) -> None:
    assert llm_setting(name) == said


def test_methods_and_sweeps_are_measured_once_each() -> None:
    first, *others = SWEEPS["skillrouter-candidates"]
    assert expanded(["zsum", first], ["skillrouter-candidates"]) == ["zsum", first, *others]
