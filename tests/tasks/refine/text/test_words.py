from __future__ import annotations

import re

import pytest

from storage.schemas import Finding
from tasks.refine.duplicates.shingles import SHINGLE_WORDS, shingle_sets
from tasks.refine.text.language import language_of
from tasks.refine.text.rules import CODES, finding
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


@pytest.mark.parametrize("name", [*UNSPACED, *SPACED])
def test_a_run_without_spaces_is_cut_wherever_text_is_cut_and_a_word_nowhere(name: str) -> None:
    word = {**UNSPACED, **SPACED}[name]
    pairs = [word[i : i + 2] for i in range(len(word) - 1)] if name in UNSPACED else None
    spelled, words = list(spelled_terms(word)), words_of(word)
    assert (spelled, words) == (pairs, pairs) if pairs else len(spelled) == len(words) == 1
    assert count_words(word) == ((len(word) + 1) // 2 if pairs else 1)
    assert next(shingle_sets([word])).size == (len(word) - SHINGLE_WORDS + 1 if pairs else 0)


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


FENCE = "```\n" + TEXTS["en"] * 5 + "\n```\n"


@pytest.mark.parametrize(
    ("body", "description", "language"),
    [
        *((text, "", language) for language, text in TEXTS.items()),
        (f"{FENCE}{TEXTS['de']} `{TEXTS['en']}`", "", "de"),  # code has no say
        ("Brennen.", TEXTS["de"], "de"),
        *((body, "", None) for body in ("Brennen.", "", "1 2 3", "```\nx\n```", "\x00")),
    ],
)
def test_a_language_is_told_by_its_prose(body: str, description: str, language: str | None) -> None:
    found = language_of(body, description, min_confidence=0.2)
    assert (found.code, found.letters < 40) == (language, language is None)
    assert language == "en" or language_of(body, description, min_confidence=1.1).code is None


def test_every_code_of_a_finding_is_graded_and_explained_in_the_table() -> None:
    for code, meaning in CODES.items():
        assert re.fullmatch(r"[a-z]+\.[a-z0-9-]+", code)
        assert (meaning.severity in {"error", "warning", "info"}, "\n" in meaning.text) == (True, False)
        assert finding(code) == Finding(code, meaning.severity, meaning.text)
    assert finding("name.folder", "seen").message == "seen"
    sources = "\n".join(p.read_text("utf-8") for p in (PROJECT / "tasks" / "refine").rglob("*.py"))
    used = set(re.findall(r"\bfinding\(\s*\"([a-z.0-9-]+)\"", sources))
    assert used
    assert used <= CODES.keys()
