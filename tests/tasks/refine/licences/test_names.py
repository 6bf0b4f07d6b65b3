from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.refine.licences.names import Stated, licence_tables, spdx_expression, stated_licence
from tasks.refine.text.strict_yaml import Value

NAMES = [(alias, spdx) for spdx, names in licence_tables()["names"].items() for alias in names]


@pytest.mark.parametrize(("name", "spdx"), NAMES)
def test_every_name_of_the_table_is_understood_with_and_without_the_word_licence(
    name: str, spdx: str
) -> None:
    assert stated_licence(name).licence == spdx
    assert stated_licence(f"The {name.upper()} Licence").licence == spdx


@pytest.mark.parametrize(
    ("value", "licence"),
    [
        ("MIT", "MIT"),
        ("mit license", "MIT"),
        ("Apache License, Version 2.0", "Apache-2.0"),
        ("Apache-2.0", "Apache-2.0"),
        ("GPL-3.0", "GPL-3.0-only"),
        ("GPLv3", "GPL-3.0-only"),
        ("gpl-3.0-or-later", "GPL-3.0-or-later"),
        ("GPLv3+", "GPL-3.0-or-later"),
        ("GPLv2+ License", "GPL-2.0-or-later"),
        ("AGPLv3+", "AGPL-3.0-or-later"),
        ("GPL-3.0+", "GPL-3.0-or-later"),
        ("mit or apache-2.0", "MIT OR Apache-2.0"),
        ("GPL-2.0-or-later WITH Classpath-exception-2.0", "GPL-2.0-or-later WITH Classpath-exception-2.0"),
        ("https://opensource.org/licenses/MIT", "MIT"),
        ("https://spdx.org/licenses/ISC.html", "ISC"),
        ("https://creativecommons.org/licenses/by-nc-sa/4.0/deed.en", "CC-BY-NC-SA-4.0"),
        ("http://creativecommons.org/publicdomain/zero/1.0/", "CC0-1.0"),
        ("http://www.apache.org/licenses/LICENSE-2.0", "Apache-2.0"),
        ("Proprietary. Ask Ann.", "LicenseRef-Proprietary"),
        ("© 2026 Ann. All rights reserved", "LicenseRef-Proprietary"),
        ("UNLICENSED", "LicenseRef-Proprietary"),
        ("Unlicense", "Unlicense"),
        (["MIT"], "MIT"),
        ({"type": "MIT", "url": "x"}, "MIT"),
    ],
)
def test_a_stated_licence_becomes_spdx(value: Value, licence: str) -> None:
    assert stated_licence(value) == Stated(licence)


@pytest.mark.parametrize(
    "value",
    [
        None, "", "Unknown", "BSD", "GPL", "Creative Commons", "SD-3-Clause license", "MIT-ish",
        "MIT/Apache-2.0",
        "https://example.org/pots/LICENSE", "free to use", ["MIT", "ISC"], {"kind": "MIT"}, "MIT OR", "LGPL",
        "MIT AND Pottery-1.0", "LicenseRef-Anns", "x" * 301, "MIT " * 50,
    ],
)  # fmt: skip
def test_nothing_is_guessed(value: Value | None) -> None:
    assert stated_licence(value) == Stated(None)


@pytest.mark.parametrize(
    ("value", "licence"),
    [
        ("Complete terms in LICENSE.txt", None),
        ("SEE LICENSE IN LICENSE", None),
        ("MIT. See LICENSE for what you may not do", None),
        ("MIT, see LICENSE for commercial use", None),
        ("LICENSE", None),
        ("Apache-2.0. See LICENSE for complete terms.", "Apache-2.0"),
        ("Proprietary. LICENSE.txt has complete terms", "LicenseRef-Proprietary"),
        ("(MIT AND CC-BY-SA-4.0). See LICENSE-MIT and LICENSE-CC", "MIT AND CC-BY-SA-4.0"),
    ],
)
def test_a_value_may_leave_it_to_a_file(value: str, licence: str | None) -> None:
    assert stated_licence(value) == Stated(licence, points_to_file=True)


@given(st.text())
def test_what_is_understood_is_an_expression_that_stays_what_it_is(text: str) -> None:
    licence = stated_licence(text).licence
    assert licence is None or spdx_expression(licence) == licence
