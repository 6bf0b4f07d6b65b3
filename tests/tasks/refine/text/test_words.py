from __future__ import annotations

import re

import pytest
import yaml

from storage.schemas import Finding
from tasks.refine.duplicates.shingles import SHINGLE_WORDS, shingle_sets
from tasks.refine.text.language import language_of
from tasks.refine.text.rules import CODES, finding, parse_rules, rules_data, rules_text
from tasks.refine.text.words import UNSPACED_CLASS, count_words
from tasks.retrieve.paging.terms import words_of
from tasks.retrieve.routing.postings import spelled_terms
from tests.support.paths import PROJECT

UNSPACED = {
    "Han": "揉面团十分钟",
    "rare Han": "𠀀𠀁𠀂𠀃𠀄𠀅",
    "kana": "パンをやくとき",
    "half-width kana": "ﾃﾆｦﾔｸﾓ",
}
SPACED = {"Latin": "sourdough", "Hangul": "반죽하세요", "Greek": "ζυμώνουμε", "Cyrillic": "замешивать"}


@pytest.mark.parametrize("word", UNSPACED.values(), ids=UNSPACED)
def test_a_run_without_spaces_is_cut_wherever_text_is_cut(word: str) -> None:
    pairs = [word[i : i + 2] for i in range(len(word) - 1)]
    assert list(spelled_terms(word)) == words_of(word) == pairs
    assert count_words(word) == (len(word) + 1) // 2
    assert next(shingle_sets([word])).size == len(word) - SHINGLE_WORDS + 1


@pytest.mark.parametrize("word", SPACED.values(), ids=SPACED)
def test_a_word_between_spaces_stays_whole_wherever_text_is_cut(word: str) -> None:
    assert len(list(spelled_terms(word))) == len(words_of(word)) == count_words(word) == 1
    assert next(shingle_sets([word])).size == 0


@pytest.mark.parametrize("character", "ขລကក្នあ漢ｱ")
def test_thai_lao_myanmar_khmer_and_japanese_are_written_without_spaces(character: str) -> None:
    assert re.fullmatch(UNSPACED_CLASS, character)


TEXTS = {
    "en": "Let the pots dry for a week before you fire them, and keep the kiln closed until it is cold.",
    "de": "Lass die Töpfe eine Woche trocknen, bevor du sie brennst, "
    "und öffne den Ofen erst, wenn er kalt ist.",
    "fr": "Laissez sécher les pots pendant une semaine avant la "
    "cuisson, et n'ouvrez le four que lorsqu'il est froid.",
    "es": "Deja secar las vasijas durante una semana antes de cocerlas "
    "y no abras el horno hasta que esté frío.",
    "zh": "烧制之前，先让陶器晾干一个星期；窑炉冷却之前不要打开。"
    "每次烧制都要记录温度和时间，以便下次比较结果，改进釉料。",
    "ja": "焼く前に器を一週間乾かしてください。窯が冷めるまでは"
    "開けないでください。温度と時間を毎回記録しておくこと。",
    "ko": "굽기 전에 그릇을 일주일 동안 말리세요. 가마가 식을 때까지 열지 마세요. 온도와 시간을 매번 기록해 "
    "두세요. 그래야 다음에 비교할 수 있습니다.",
    "ru": "Дайте горшкам высохнуть в течение недели перед обжигом и не открывайте печь, пока она не остынет.",
}


def code(body: str, description: str = "") -> str | None:
    return language_of(body, description, min_confidence=0.2).code


@pytest.mark.parametrize("language", TEXTS)
def test_a_language_is_told_by_its_prose(language: str) -> None:
    assert code(TEXTS[language]) == language


def test_code_has_no_say() -> None:
    fence = "```\n" + TEXTS["en"] * 5 + "\n```\n"
    assert code(f"{fence}{TEXTS['de']} `{TEXTS['en']}`") == "de"


def test_a_description_helps_where_the_body_is_short() -> None:
    assert code("Brennen.", TEXTS["de"]) == "de"
    assert code("Brennen.") is None


def test_the_least_confidence_is_a_parameter() -> None:
    assert language_of(TEXTS["de"], "", min_confidence=1.1).code is None


@pytest.mark.parametrize("body", ["", "1 2 3", "```\nx\n```", "\x00"])
def test_what_has_no_words_has_no_language(body: str) -> None:
    found = language_of(body, "", min_confidence=0.2)
    assert found.code is None
    assert found.letters < 40


FILES = ("aggregators.yaml", "licences.yaml", "placeholders.yaml", "risk_rules.yaml")


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
