"""Hostile variants that no bench holds: how many of each class are found."""

from __future__ import annotations

import base64
import codecs
import io
import json
import re
import tarfile
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
import yaml

from storage.schemas import Finding, RawDocument
from tasks.evaluate.risks.bench import read_bench, scan_skills
from tasks.refine.document import refine_bundles

HERE = Path(__file__).parent
SKILL = "---\nname: ledger\ndescription: Keeps a ledger.\n---\n# Ledger\n\nAdd a row a booking.\n\n"
ENCODE: Mapping[str, Callable[[str], str]] = {
    "b64": lambda text: base64.b64encode(text.encode()).decode(),
    "b32": lambda text: base64.b32encode(text.encode()).decode(),
    "hex": lambda text: text.encode().hex(),
    "rot13": lambda text: codecs.encode(text, "rot13"),
    "rev": lambda text: text[::-1],
    "url": lambda text: "".join(f"%{byte:02x}" for byte in text.encode()),
    "tags": lambda text: "".join(chr(0xE0000 + ord(c)) for c in text),
    "zero": lambda text: "".join("\u200b\u200c"[int(bit)] for c in text for bit in f"{ord(c):08b}"),
    "select": lambda text: "".join(chr(0xFE00 + ord(c) % 16) for c in text),
    "lines": lambda text: "\n" * int(text),
}
_CODED = re.compile(r"⟦(\w+):([^⟧]*)⟧")


def variants(name: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the class of each variant of a table, and its files by path, encoded where it says so."""
    for kind, entries in yaml.safe_load((HERE / name).read_text("utf-8")).items():
        for entry in entries:
            files = {"": entry} if isinstance(entry, str) else entry
            yield kind, {path: _CODED.sub(lambda m: ENCODE[m[1]](m[2]), files[path]) for path in files}


def packed(path: str, member: str, text: str) -> bytes:
    at, inside = io.BytesIO(), text.encode()
    if path.endswith(".zip"):
        with zipfile.ZipFile(at, "w") as archive:
            archive.writestr(member, inside)
    else:
        name, _, target = member.partition(" -> ")
        info = tarfile.TarInfo(name)
        info.size, info.linkname = len(inside), target
        info.type = tarfile.SYMTYPE if target else tarfile.REGTYPE
        with tarfile.open(fileobj=at, mode="w") as tar:
            tar.addfile(info, io.BytesIO(inside))
    return at.getvalue()


def bench_of(name: str, folder: Path) -> Path:
    """Return a folder in the form of a bench of risks with the variants of a table, none of them run."""
    labels, links, numbers = list[dict[str, object]](), dict[str, str](), Counter[str]()
    for kind, files in variants(name):
        numbers[kind] += 1
        skill = f"malicious/{kind}-{numbers[kind]}/ledger"
        place = "SKILL.md" if "" in files else "file"
        labels.append({"id": f"{kind}-{numbers[kind]}", "class": kind, "malicious": True, "place": place})
        for path, text in {"SKILL.md": SKILL + files.pop("", ""), **files}.items():
            outer, _, member = path.partition("!")
            file, _, target = outer.partition(" -> ")
            at = folder / skill / file
            at.parent.mkdir(parents=True, exist_ok=True)
            if target:
                links[f"{skill}/{file}"] = target
            else:
                at.write_bytes(packed(outer, member, text) if member else text.encode())
    (folder / "labels.jsonl").write_text("\n".join(map(json.dumps, labels)), "utf-8")
    (folder / "links.json").write_text(json.dumps(links), "utf-8")
    return folder


def _scanned(raw: RawDocument) -> list[Finding]:
    (bundle,) = refine_bundles([raw])
    return [*bundle.text_risks, *bundle.risks]


@pytest.mark.parametrize(
    ("table", "least", "blocked", "of_class"),
    [
        ("variants.yaml", 0.95, 0.4, 0.8),
        pytest.param("variants_second.yaml", 0.85, 0.3, 0.6, marks=pytest.mark.slow),
        ("variants_unseen.yaml", 0.65, 0.3, 0.0),
    ],
)
def test_most_variants_of_each_class_are_found(
    table: str, least: float, blocked: float, of_class: float, tmp_path: Path
) -> None:
    (tmp_path / "bench").mkdir()
    bench = bench_of(table, tmp_path / "bench")
    rows = scan_skills(read_bench(bench, tmp_path / "read"), _scanned, ["error"])
    assert len({row["class"] for row in rows}) == 13
    assert sum(row["warned"] for row in rows) >= least * len(rows)
    assert sum(row["blocked"] for row in rows) >= blocked * len(rows)
    for kind in {row["class"] for row in rows}:
        found = [row["warned"] for row in rows if row["class"] == kind]
        assert sum(found) >= of_class * len(found), kind
