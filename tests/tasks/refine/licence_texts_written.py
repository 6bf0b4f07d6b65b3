"""Licence files for tests: the phrases that tell a licence, and words of ours for the rest of its length."""

from __future__ import annotations

PHRASES = {
    "MIT": "Permission is hereby granted, free of charge, to any person obtaining a copy. ... above notice "
    "and this permission notice shall be included in all copies.",
    "Apache-2.0": "Apache License\nVersion 2.0\n grant of patent license; You "
    "may reproduce and distribute copies "
    "of the Work or Derivative Works thereof",
    "BSD-2-Clause": "Redistribution and use in source and binary forms, with or without modification, are "
    "permitted. Redistributions in binary form must reproduce it.",
    "BSD-3-Clause": "Redistribution and use in source and binary forms, with or without modification, are "
    "permitted. Redistributions in binary form must reproduce "
    "it. Nor be used to endorse or promote products.",
    "ISC": "Permission to use, copy, modify, and/or distribute this "
    "software for any purpose with or without fee "
    "is hereby granted; copyright notice and this permission notice appear in all copies.",
    "0BSD": "Permission to use, copy, modify, and/or distribute this "
    "software for any purpose with or without fee "
    "is hereby granted.",
    "Unlicense": "This is free and unencumbered software released into the public domain.",
    "GPL-3.0-only": "GNU GENERAL PUBLIC LICENSE Version 3, 29 June 2007. You may "
    "convey verbatim copies of the "
    "Program's source code.",
    "AGPL-3.0-only": "GNU AFFERO GENERAL PUBLIC LICENSE Version 3, 19 November 2007",
    "LGPL-3.0-only": "GNU LESSER GENERAL PUBLIC LICENSE Version 3, 29 June 2007",
    "MPL-2.0": "Mozilla Public License Version 2.0; Mozilla Public License, v. 2.0",
    "CC0-1.0": "CC0 1.0 Universal. Affirmer",
    "CC-BY-4.0": "Attribution 4.0 International. Licensed Material",
    "CC-BY-SA-4.0": "Attribution-ShareAlike 4.0 International. Licensed Material",
    "CC-BY-NC-4.0": "Attribution-NonCommercial 4.0 International. Licensed Material",
}
_WORDS = {
    "MIT": 160, "Apache-2.0": 1550, "BSD-2-Clause": 200, "BSD-3-Clause": 230, "ISC": 120, "0BSD": 100,
    "Unlicense": 200, "GPL-3.0-only": 5500, "AGPL-3.0-only": 5500, "LGPL-3.0-only": 1200, "MPL-2.0": 2500,
    "CC0-1.0": 1000, "CC-BY-4.0": 2800, "CC-BY-SA-4.0": 2900, "CC-BY-NC-4.0": 2900,
}  # fmt: skip


def licence_text(spdx: str, words: int | None = None) -> str:
    """Return a text with a licence's phrases at its head and about its length, or of so many words."""
    text = PHRASES[spdx]
    missing = (words or _WORDS[spdx]) - len(text.split())
    return "Copyright Ann of the pottery\n" + text + " clay" * missing
