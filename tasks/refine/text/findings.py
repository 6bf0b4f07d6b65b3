"""The stable codes of findings, as data: nobody writes a severity anywhere else.

`error`: something was lost or had to be made up. `warning`: broken, but recovered whole, or likely to trip a
reader. `info`: worth knowing, costs nothing.
"""

from __future__ import annotations

from typing import NamedTuple

from storage.schemas import Finding, Severity


class Meaning(NamedTuple):
    """How grave a code is, and what it says in one line."""

    severity: Severity
    text: str


CODES: dict[str, Meaning] = {
    "frontmatter.missing": Meaning("error", "the file has no front matter"),
    "frontmatter.empty": Meaning("error", "the front matter holds nothing"),
    "frontmatter.unclosed": Meaning("error", "the front matter is never closed; its end was guessed"),
    "frontmatter.nested": Meaning(
        "warning", "a second front matter at the start of the body; its fields count"
    ),
    "frontmatter.not-mapping": Meaning("error", "what stands between the marks is no mapping; kept as text"),
    "frontmatter.too-large": Meaning(
        "error", "the front matter is over the size limit; only its start was read"
    ),
    "frontmatter.lines": Meaning("error", "no YAML; only single `key: value` lines could be read"),
    "frontmatter.requoted": Meaning("warning", "no valid YAML until its single-line values were quoted"),
    "frontmatter.comment": Meaning(
        "warning", "YAML takes the rest of a description for a comment; it was kept"
    ),
    "frontmatter.block-indicator": Meaning("warning", "a block indicator with its text on the same line"),
    "frontmatter.duplicate-key": Meaning("warning", "a key occurs twice; the last value counts"),
    "name.missing": Meaning("error", "no name; taken from the folder"),
    "name.too-long": Meaning("warning", "the name is longer than 64 characters"),
    "name.pattern": Meaning(
        "warning", "the name is not lower-case letters and digits joined by single hyphens"
    ),
    "name.not-ascii": Meaning("info", "the name has letters beyond ASCII, which some validators refuse"),
    "name.folder": Meaning("warning", "the name differs from its folder's"),
    "description.missing": Meaning("error", "no description; taken from the body"),
    "description.too-long": Meaning("warning", "the description is longer than 1,024 characters"),
    "description.not-text": Meaning("warning", "the description is a list or a mapping; joined into text"),
    "description.filler": Meaning("info", "the description begins with words that say nothing of the task"),
    "description.name-only": Meaning("warning", "the description says no more than the name"),
    "description.markup": Meaning("info", "the description holds tags, which clients may refuse"),
    "keys.unknown": Meaning("info", "top-level keys that the specification does not have"),
    "tools.declared": Meaning(
        "info", "the tools that `allowed-tools` names, as the specification writes them"
    ),
    "tools.comma": Meaning("warning", "`allowed-tools` is separated by commas instead of spaces"),
    "tools.list": Meaning("warning", "`allowed-tools` is a list instead of a text"),
    "tools.not-text": Meaning("warning", "`allowed-tools` holds what names no tool"),
    "compatibility.not-text": Meaning("warning", "`compatibility` is a list or a mapping"),
    "compatibility.length": Meaning("warning", "`compatibility` is empty or longer than 500 characters"),
    "metadata.not-mapping": Meaning("warning", "`metadata` is no mapping"),
    "metadata.nested": Meaning("info", "`metadata` holds values that are no text"),
    "licence.declared": Meaning("info", "the licence as the front matter states it"),
    "licence.unknown-name": Meaning("info", "the licence stated is none that is known by that name"),
    "licence.recognised": Meaning("info", "a licence file's text is that of a known licence"),
    "licence.unrecognised": Meaning("warning", "a licence file's text is that of no known licence"),
    "licence.conflict": Meaning("warning", "two places name different licences; the nearer one counts"),
    "licence.file-missing": Meaning("warning", "the licence is left to a file that is not at hand"),
    "links.missing": Meaning("warning", "the body links to files that the skill's folder lacks"),
    "links.outside": Meaning("info", "the body links to files outside the skill's folder"),
    "body.long": Meaning("info", "the body is longer than 500 lines"),
    "body.many-tokens": Meaning("info", "the body is longer than about 5,000 tokens"),
    "body.unbalanced-fence": Meaning("warning", "a code fence is never closed"),
    "language.undetermined": Meaning("info", "the text's language could not be told"),
    "boilerplate.removed": Meaning("info", "text that an aggregator had added was removed"),
    "document.crlf": Meaning("info", "lines ended in CR LF or CR"),
    "document.bom": Meaning("info", "byte-order marks were removed"),
    "document.not-utf8": Meaning("warning", "the file is not UTF-8"),
    "document.control-characters": Meaning("warning", "control characters were removed"),
    "document.stacked-marks": Meaning(
        "warning", "over 100 combining marks on one letter; the rest was removed"
    ),
    "document.replacement-characters": Meaning(
        "warning", "characters were lost before the file was fetched (U+FFFD)"
    ),
    "document.too-large": Meaning("error", "the file is over the size limit and was not fetched"),
    "bundle.too-large": Meaning("warning", "the folder's files are over the size limit; some are not listed"),
    "bundle.symlink": Meaning("warning", "a symbolic link in the folder was not followed"),
}


def finding(code: str, message: str = "") -> Finding:
    """Return the finding of a known code with its severity.

    Args:
        code: A key of `CODES`.
        message: What was found here; the code's meaning where empty.

    Raises:
        KeyError: The code is not in `CODES`.
    """
    meaning = CODES[code]
    return Finding(code, meaning.severity, message or meaning.text)
