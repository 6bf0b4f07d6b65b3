"""The world behind the loopback marketplace: git's own ids, listed rows, seeded material."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.marketplace.objects import Blob, RandomBlob, Tree, executable, grow, link
from tests.support.marketplace.populate import change, populate
from tests.support.marketplace.rows import Row, skill_folders
from tests.support.marketplace.world import World

BREAD = b"---\nname: bread\ndescription: Bakes a loaf\n---\n# Bread\n"
_NAMES = st.text("abc-._", min_size=1, max_size=4).filter(lambda name: name.strip("."))
_PATHS = st.lists(_NAMES, min_size=1, max_size=3).map("/".join)
_TREES = st.dictionaries(_PATHS, st.binary(max_size=8), min_size=1, max_size=6).filter(
    lambda files: not any(other.startswith(f"{path}/") for path in files for other in files)
)


def git(folder: Path, *arguments: str) -> str:
    who = {"NAME": "Market Gardener", "EMAIL": "gardener@example.org", "DATE": "1770000000 +0000"}
    names = {f"GIT_{role}_{key}": value for role in ("AUTHOR", "COMMITTER") for key, value in who.items()}
    environment = {**os.environ, **names, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    command = ["git", "-C", str(folder), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_trees_and_commits_have_the_ids_that_git_gives_them(tmp_path: Path) -> None:
    repository = World().repository("ann/bakery")
    first = repository.commit(
        {"README.md": b"# Hi\n", "a/b.md": b"b", "a.md": b"a", "a-b/c": b""}, at=1_770_000_000
    )
    second = repository.commit(
        {"run.sh": executable(b"ls\n"), "now": link("a/b.md"), "a.md": None}, at=1_770_000_000
    )
    git(tmp_path, "init", "-q")
    ids = []
    for commit in (first, second):
        git(tmp_path, "rm", "-rfq", "--ignore-unmatch", ".")
        for path, blob in commit.files.items():
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            if blob.mode == "120000":
                (tmp_path / path).symlink_to(blob.content.decode())
            else:
                (tmp_path / path).write_bytes(blob.content)
                (tmp_path / path).chmod(0o755 if blob.mode == "100755" else 0o644)
        git(tmp_path, "add", "-A")
        git(tmp_path, "commit", "-qm", "Tend the garden")
        ids.append((git(tmp_path, "rev-parse", "HEAD"), git(tmp_path, "rev-parse", "HEAD^{tree}")))

    assert ids == [(commit.sha, commit.tree.sha) for commit in (first, second)]


@given(files=_TREES, data=st.data())
@settings(max_examples=60)
def test_a_folders_id_changes_exactly_when_something_below_it_does(
    files: dict[str, bytes], data: st.DataObject
) -> None:
    changed = data.draw(st.sampled_from(sorted(files)))
    before = grow({path: Blob(content) for path, content in files.items()})
    after = grow({path: Blob(content + b"!" * (path == changed)) for path, content in files.items()})

    for path, node in before.walk():
        other = after.at(path)
        assert other is not None
        below = path == changed or (isinstance(node, Tree) and changed.startswith(f"{path}/"))
        assert (node.sha != other.sha) == below


def test_a_path_cannot_be_file_and_folder() -> None:
    with pytest.raises(ValueError, match=r"\['a'\]"):
        grow({"a": Blob(b"x"), "a/b": Blob(b"y")})


def test_random_bytes_are_the_same_ones_each_time_they_are_drawn() -> None:
    blob = RandomBlob(2_500_000, seed=3)

    drawn = b"".join(blob.pieces())

    assert len(drawn) == blob.size
    assert Blob(drawn).sha == blob.sha
    assert RandomBlob(2_500_000, seed=4).sha != blob.sha


def row_of(world: World, folder: str) -> Row:
    (row,) = [row for row in world.rows if row.folder == folder]
    return row


def test_a_commit_lists_the_skills_it_touches_and_no_others() -> None:
    world = World()
    repository = world.repository("ann/bakery", default_branch="trunk")
    repository.commit({"bread/SKILL.md": BREAD, "tea/skill.md": b"No front matter", "README.md": b""}, at=100)

    repository.commit({"bread/scripts/run.sh": b"ls"}, at=200)

    bread, tea = row_of(world, "bread"), row_of(world, "tea")
    assert (bread.name, bread.description, bread.updated_at) == ("bread", "Bakes a loaf", 200)
    assert (tea.name, tea.description, tea.updated_at) == ("tea", "", 100)
    assert bread.github_url == "https://github.com/ann/bakery/tree/trunk/bread"
    assert bread.slug == "ann-bakery-bread-skill-md"


def test_a_removed_skill_loses_its_row_and_a_deleted_repository_keeps_its_rows() -> None:
    world = World()
    repository = world.repository("ann/bakery")
    repository.commit({"bread/SKILL.md": BREAD, "tea/SKILL.md": BREAD})

    repository.commit({"tea/SKILL.md": None})
    repository.delete()

    assert [row.folder for row in world.rows_of(repository)] == ["bread"]


def test_a_root_skill_a_space_and_a_branch_with_a_slash_show_in_urls() -> None:
    world = World()
    repository = world.repository("ann/bakery")
    repository.commit({"SKILL.md": BREAD, "old ways/SKILL.md": BREAD})
    repository.commit({"new/SKILL.md": BREAD}, branch="feature/x")

    world.list_skill(repository, "new", ref="feature/x")

    start = "https://github.com/ann/bakery"
    assert [row.github_url for row in world.rows] == [
        start,
        f"{start}/tree/main/old%20ways",
        f"{start}/tree/feature/x/new",
    ]
    assert world.rows[-1].name == "bread"


def test_a_row_may_be_about_nothing() -> None:
    world = World()

    row = world.list_skill(None, "ghost", url="https://gist.github.com/ann/1", updated_at=7)

    assert (row.github_url, row.updated_at, row.stars) == ("https://gist.github.com/ann/1", 7, 0)
    world.unlist(row)
    assert world.rows == []


def test_a_row_about_a_missing_skill_is_new_and_one_about_a_skill_as_old_as_its_commit() -> None:
    world = World()
    repository = world.repository("ann/bakery")
    repository.commit({"bread/SKILL.md": BREAD}, at=100)

    there = world.list_skill(repository, "bread")
    missing = [world.list_skill(repository, folder) for folder in ("cake", "pie")]

    assert there.updated_at == 100
    assert 100 < missing[0].updated_at < missing[1].updated_at


def test_a_renamed_repositorys_rows_keep_the_old_name_until_relisted() -> None:
    world = World()
    repository = world.repository("ann/bakery")
    repository.commit({"bread/SKILL.md": BREAD})

    repository.rename("ann/oven")

    assert row_of(world, "bread").full_name == "ann/bakery"
    world.relist(repository)
    assert row_of(world, "bread").full_name == "ann/oven"


def test_names_are_found_in_any_case_and_may_pass_to_another_repository() -> None:
    world = World()
    first = world.repository("Ann/Bakery")

    assert world.repository("ann/bakery") is first
    first.delete()
    second = world.repository("ann/bakery")

    assert second.repo_id != first.repo_id
    assert world.find("ANN/bakery") == (second, False)


def test_a_seed_makes_the_same_world_every_time_and_another_another() -> None:
    worlds = [World(), World(), World()]
    for world, seed in zip(worlds, (7, 7, 8), strict=True):
        populate(world, 30, 90, seed)

    same, again, other = [[repository.head.sha for repository in world.repositories] for world in worlds]
    assert same == again
    assert not set(same) & set(other)


def test_populating_makes_as_many_skills_of_real_sizes_as_asked_for() -> None:
    world = World()
    populate(world, 40, 160)

    folders = [skill_folders(repository.head) for repository in world.repositories]
    texts = [blob for held in folders for blob in held.values()]

    assert (len(folders), len(texts), len(world.rows)) == (40, 160, 160)
    assert len({blob.sha for blob in texts}) == 160
    assert all(2_000 <= blob.size <= 18_000 for blob in texts)
    assert max(map(len, folders)) >= 10
    paths = [path for repository in world.repositories for path in repository.head.files]
    assert any(path.endswith("/scripts/run.sh") for path in paths)
    assert any(path.count("/") > 1 and path.endswith("/LICENSE") for path in paths)


def test_a_change_touches_the_skills_it_names_and_no_others() -> None:
    world = World()
    populate(world, 30, 100)
    before = {(row.full_name, row.folder): row.updated_at for row in world.rows}

    changed = change(world, 0.05)

    newer = [
        f"{row.full_name}/{row.folder}"
        for row in world.rows
        if row.updated_at > before[row.full_name, row.folder]
    ]
    assert sorted(newer) == changed
    assert len(changed) == 5
    assert {row.updated_at for row in world.rows if f"{row.full_name}/{row.folder}" in changed}.isdisjoint(
        before.values()
    )


def test_fewer_skills_than_repositories_are_refused() -> None:
    with pytest.raises(ValueError, match="3 skills do not fill 4 repositories"):
        populate(World(), 4, 3)
