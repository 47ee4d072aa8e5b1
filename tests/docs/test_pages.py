from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator

import pytest

from proctor.actors.plan.options import SPEC_OPTIONS
from proctor.cli.app import build_app
from proctor.cli.verbs import VERBS
from tests.house.tree import ROOT, listed
from tests.tables import each_row

PAGES = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "README.md", *ROOT.glob("docs/**/*.md")))
FOLDERS = "actors|bench|docs|examples|protocols|runtime|src|tests|typings"
NAMED = re.compile(r"(?<![\w.\"'/-])proctor(?:\.[A-Za-z_]\w*)+")


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(text: str) -> list[str]:
    """The Python blocks of a page."""
    return re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def spans(text: str) -> str:
    """What stands between single backticks."""
    return "\n".join(
        re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE))
    )


def syntax_of(block: str) -> ast.Module:
    compile(block, "page", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    return ast.parse(block)


def named(text: str) -> Iterator[str]:
    """Each dotted name of ours that a page's code and its spans of code speak of."""
    yield from NAMED.findall(spans(text))
    for tree in map(syntax_of, blocks(text)):
        for node in ast.walk(tree):
            match node:
                case ast.Attribute():
                    yield from NAMED.findall(ast.unparse(node))
                case ast.ImportFrom(module=str(module), names=names) if module.split(".")[0] == "proctor":
                    yield from (f"{module}.{alias.name}" for alias in names)
                case _:
                    pass


def is_there(name: str) -> bool:
    """Whether a dotted name leads to something: modules as far as they go, then attributes."""
    head, *rest = name.split(".")
    found: object = importlib.import_module(head)
    for place, part in enumerate(rest, 1):
        try:
            found = getattr(found, part)
        except AttributeError:
            try:
                found = importlib.import_module(".".join([head, *rest[:place]]))
            except ImportError:
                return False
    return True


@each_row("page", PAGES)
def test_the_code_of_a_page_compiles_and_every_name_of_ours_is_there(page: str) -> None:
    missing = sorted({name for name in named(text_of(page)) if not is_there(name)})
    assert missing == [], listed(missing)


@each_row("page", PAGES)
def test_a_page_leads_nowhere_that_is_not_there(page: str) -> None:
    linked = re.findall(r"\]\(([^)#:\s]+)(?:#[\w-]+)?\)", text_of(page))
    assert [link for link in linked if not (ROOT / page).parent.joinpath(link).exists()] == []


@each_row("page", PAGES)
def test_a_page_speaks_of_no_module_or_file_that_is_not_there(page: str) -> None:
    told = spans(text_of(page)).split("\n")
    modules = {
        span for span in told if re.fullmatch(r"(?:actors|protocols|runtime)(?:\.[A-Za-z_]\w*)+", span)
    }
    files = {span for span in told if re.fullmatch(rf"(?:{FOLDERS})/[\w./-]*", span)}
    assert sorted(name for name in modules if not is_there(f"proctor.{name}")) == []
    roots = (ROOT, ROOT / "tests")  # the generated pages name tests by their place among the tests
    assert sorted(name for name in files if not any((root / name).exists() for root in roots)) == []


def anchors(page: str) -> set[str]:
    """The fragments that lead to the headings of a page, as GitHub names them."""
    headings = re.findall(
        r"^#+ (.+)$", re.sub(r"^```.*?^```", "", text_of(page), flags=re.DOTALL | re.MULTILINE), re.MULTILINE
    )
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@each_row("page", PAGES)
def test_a_link_into_a_page_leads_to_one_of_its_headings(page: str) -> None:
    linked = re.findall(r"\]\(([^):\s]*)#([\w-]+)\)", text_of(page))
    folder = (ROOT / page).parent
    targets = [(path, (folder / path).resolve() if path else ROOT / page, anchor) for path, anchor in linked]
    missing = [
        f"{path}#{anchor}"
        for path, target, anchor in targets
        if target.suffix == ".md" and anchor not in anchors(target.relative_to(ROOT).as_posix())
    ]
    assert missing == []


def test_the_index_leads_to_every_page_and_the_readme_to_the_index() -> None:
    index = set(re.findall(r"\]\(([\w/-]+\.md)\)", text_of("docs/README.md")))
    pages = {page.removeprefix("docs/") for page in PAGES if page.startswith("docs/")} - {"README.md"}
    assert pages - index == set()
    assert "](docs/README.md)" in text_of("README.md")


def test_every_command_has_a_page() -> None:
    commands = [name for name in build_app() if not name.startswith("-")]
    pages = [path.stem for path in (ROOT / "docs" / "reference" / "commands").iterdir()]
    assert len(commands) > 5
    # the verbs are a table, and so they have one page
    assert sorted({*commands} - {*VERBS} | {"verbs"}) == sorted(pages)


def test_the_page_of_a_command_has_each_of_its_flags() -> None:
    app = build_app()
    flags = {
        (command, name)
        for command in app
        if not command.startswith("-") and command not in VERBS
        for argument in app[command].assemble_argument_collection()
        for name in argument.names
        if name.startswith("--")
    }
    page = "docs/reference/commands/{}.md".format
    assert "The options, the output and the exit status are those of" in text_of(page("resume"))
    flags = {(command, name) for command, name in flags if command != "resume"}
    assert len(flags) > 50
    assert [(c, name) for c, name in sorted(flags) if not re.search(rf"{name}\b", text_of(page(c)))] == []


@pytest.mark.parametrize("verb", VERBS)
def test_the_page_of_the_verbs_has_each_with_its_words(verb: str) -> None:
    text = text_of("docs/reference/commands/verbs.md")
    words = [name for word in VERBS[verb].words for name in word.names if name.startswith("--")]
    assert f"`{verb}" in text
    assert [word for word in words if word not in text] == []


def test_the_page_of_fleet_files_has_the_options_that_a_file_can_have_and_no_others() -> None:
    text = text_of("docs/reference/fleet-file.md")
    keys = {name for name in SPEC_OPTIONS if f"`{name}`" in text}
    assert keys == {name for name, option in SPEC_OPTIONS.items() if option.file is not None}


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("```python\nx = await proctor.asks(1)\n```\n", ["proctor.asks"]),
        ("```python\nfrom proctor.actors import nothing\n```\n", ["proctor.actors.nothing"]),
        (
            "Say `proctor.nothing` or `proctor.runtime.processes.process_errors.Nothing`.\n",
            ["proctor.nothing", "proctor.runtime.processes.process_errors.Nothing"],
        ),
        ("`proctor.ask(x)`, `proctor.Answer.ok`, `logs/proctor.log`, proctor.nothing\n", []),
    ],
)
def test_the_search_finds_a_name_that_is_not_there(text: str, names: list[str]) -> None:
    assert [name for name in named(text) if not is_there(name)] == names
