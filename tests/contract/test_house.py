"""The house rules that a script can see."""

import ast
import re
import subprocess
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {"ddltop": "ddltop", "agents": "ddltop_agents", "demo": "ddltop.demo"}


def tracked_files() -> list[Path]:
    done = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip("not a git checkout")
    return [ROOT / name for name in done.stdout.split()]


def sources() -> list[Path]:
    return [path for folder in PACKAGES for path in sorted((ROOT / folder).rglob("*.py"))]


def test_the_package_list_is_what_the_folders_hold() -> None:
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    folders = {
        ".".join([PACKAGES[folder], *path.parent.relative_to(ROOT / folder).parts])
        for folder in PACKAGES
        for path in (ROOT / folder).rglob("__init__.py")
    }
    assert set(listed) == folders


def test_a_wheel_has_two_top_level_names_and_all_that_runs(tmp_path: Path) -> None:
    import sys

    copy = tmp_path / "source"
    subprocess.run(["git", "clone", "-q", str(ROOT), str(copy)], check=True)
    for name in ("pyproject.toml", "LICENSE", "README.md"):
        (copy / name).write_bytes((ROOT / name).read_bytes())
    words = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(tmp_path), str(copy)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.partition("/")[0] for name in names if ".dist-info/" not in name}
    assert tops == {"ddltop", "ddltop_agents"}
    for needed in (
        "ddltop/py.typed",
        "ddltop_agents/py.typed",
        "ddltop/demo/train.py",
        "ddltop/demo/recordings/straggler-2-ranks.ddltop",
        "ddltop_agents/shim/sitecustomize.py",
    ):
        assert needed in names, needed


def test_no_file_needs_what_is_not_in_the_project() -> None:
    outside = re.compile(
        r"\.\./" + "shared|/work/" + "shared|pypi" + r"\.org|files\.pythonhosted|registry\.npm", re.IGNORECASE
    )
    for path in tracked_files():
        if path.suffix in (".ddltop", ".svg") or not path.is_file():
            continue
        assert not outside.search(path.read_text(errors="replace")), path


def test_documents_that_are_linked_exist() -> None:
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), (page.name, target)


def test_guarantees_name_tests_that_exist() -> None:
    tests = {path.name: path.read_text() for path in (ROOT / "tests").rglob("test_*.py")}
    for name in re.findall(r"`(test_[a-z_]+\.py(?:::[a-z_]+)?)`", (ROOT / "docs" / "guarantees.md").read_text()):
        file, _, function = name.partition("::")
        assert file in tests, file
        assert f"def {function}" in tests[file], name


def test_files_and_functions_stay_small() -> None:
    for path in sources():
        text = path.read_text()
        assert text.count("\n") <= 400, path
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                assert (node.end_lineno or 0) - node.lineno < 60, (path, node.name)


def test_make_help_lists_every_target() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = re.findall(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)[0].split()
    done = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True)
    for target in targets:
        assert f"make {target}" in done.stdout


def test_the_licence_is_apache_2() -> None:
    assert "Apache License" in (ROOT / "LICENSE").read_text()
    assert "Version 2.0" in (ROOT / "LICENSE").read_text()


def test_readme_opens_with_a_picture_and_the_two_commands() -> None:
    first = (ROOT / "README.md").read_text()[:1500]
    assert "docs/pictures/overview.svg" in first
    assert first.index("make demo") < first.index("make test")


def test_the_picture_is_what_the_script_draws_from_the_shipped_recording(tmp_path: Path) -> None:
    from ddltop.sources.replay import read_end
    from ddltop.tui.picture import picture_svg
    from ddltop.tui.view import View

    shipped = (ROOT / "docs" / "pictures" / "overview.svg").read_text()
    snapshot = read_end(ROOT / "demo" / "recordings" / "straggler-2-ranks.ddltop")
    drawn = picture_svg(View(snapshot=snapshot, is_replay=True), width=100, height=26)
    assert _words(drawn) == _words(shipped)


def _words(svg: str) -> list[str]:
    return re.findall(r">([^<>]+)</text>", svg)
