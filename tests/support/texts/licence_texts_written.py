"""Licence files for tests: real texts where a file is compared word by word, telling phrases elsewhere."""

from __future__ import annotations

from tests.support.paths import PROJECT

_MIT = (PROJECT / "LICENSE").read_text("utf-8")
MIT = _MIT.replace("The Skillery authors", "Ann of the pottery")
_WARRANTY = """THE SOFTWARE IS PROVIDED "AS IS" AND THE AUTHOR DISCLAIMS ALL WARRANTIES WITH REGARD TO THIS
SOFTWARE INCLUDING ALL IMPLIED WARRANTIES OF MERCHANTABILITY AND FITNESS. IN NO EVENT SHALL THE AUTHOR BE
LIABLE FOR ANY SPECIAL, DIRECT, INDIRECT, OR CONSEQUENTIAL DAMAGES OR ANY DAMAGES WHATSOEVER RESULTING FROM
LOSS OF USE, DATA OR PROFITS, WHETHER IN AN ACTION OF CONTRACT, NEGLIGENCE OR OTHER TORTIOUS ACTION, ARISING
OUT OF OR IN CONNECTION WITH THE USE OR PERFORMANCE OF THIS SOFTWARE."""
_PERMISSION = """Permission to use, copy, modify, and/or distribute this software for any purpose with or
without fee is hereby granted"""
ISC = f"""ISC License

Copyright (c) 2026, Ann of the pottery

{_PERMISSION}, provided that the above copyright notice and this permission notice appear in all copies.

{_WARRANTY}
"""
ZERO_BSD = f"""BSD Zero Clause License

Copyright (C) 2026 by Ann <ann@pots.example>

{_PERMISSION}.

{_WARRANTY}
"""
APACHE_NOTICE = """Copyright 2026 Ann of the pottery

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
"""
WHOLE = {"MIT": MIT, "ISC": ISC, "0BSD": ZERO_BSD, "Apache-2.0": APACHE_NOTICE}

PHRASES = {
    "GPL-3.0-only": "GNU GENERAL PUBLIC LICENSE Version 3, 29 June 2007. You may "
    "convey verbatim copies of the "
    "Program's source code.",
    "AGPL-3.0-only": "GNU AFFERO GENERAL PUBLIC LICENSE Version 3, 19 November 2007",
    "LGPL-3.0-only": "GNU LESSER GENERAL PUBLIC LICENSE Version 3, 29 June 2007",
    "MPL-2.0": "Mozilla Public License Version 2.0; Mozilla Public License, v. 2.0",
    "CC-BY-SA-4.0": "Attribution-ShareAlike 4.0 International. Licensed Material",
    "CC-BY-NC-4.0": "Attribution-NonCommercial 4.0 International. Licensed Material",
}
_WORDS = {
    "GPL-3.0-only": 5500, "AGPL-3.0-only": 5500, "LGPL-3.0-only": 1200, "MPL-2.0": 2400,
    "CC-BY-SA-4.0": 2900, "CC-BY-NC-4.0": 2900,
}  # fmt: skip


def licence_text(spdx: str, words: int | None = None) -> str:
    """Return a whole text, or a licence's phrases at the head of about its length, or of so many words."""
    if spdx in WHOLE:
        return WHOLE[spdx]
    text = PHRASES[spdx]
    missing = (words or _WORDS[spdx]) - len(text.split())
    return "Copyright Ann of the pottery\n" + text + " clay" * missing
