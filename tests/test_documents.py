"""The documents keep their word: their links, snippets, arguments and flags.

`tests/integration/test_documented_commands.py` runs their commands.
"""

from __future__ import annotations

import ast
import re
import runpy
import shlex
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from bench.__main__ import arguments as bench_arguments
from tests.support.command_line import flags_of, parsed
from tests.support.documents import (
    DOCUMENTS,
    INLINE_CODE,
    LANGUAGES,
    ROOT,
    Block,
    blocks,
    name_of,
    prose,
)
from tests.support.kafka_data import KAFKA_DATA
from tidelog.config.broker import find_key
from tidelog.config.client import AdminConfig
from tidelog.config.topic import TOPIC_TABLE
from tidelog.pipeline.declaration.file import parse_pipeline
from tidelog.tools.cli.kafka import SECTIONS as KAFKAS_TOOLS
from tidelog.tools.cli.main import root

LINK = re.compile(r"\]\(([^)\s]+)\)|<(?:img|a) [^>]*(?:src|href)=\"([^\"]+)\"")
HEADING = re.compile(r"^#+ +(.+?)$", re.MULTILINE)
MODULE = re.compile(r"(?:[a-z_]\w*/)*[a-z_]\w*\.py")
MEMBER = re.compile(r"([A-Z]\w+)\.([a-z_]\w+)(?:\(\))?")
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
# Flags of other people's tools that the documents mention.
FOREIGN_FLAGS = {
    "--describe",  # kafka-topics
    "--entity-type",  # kafka-configs
    "--throttle",  # kafka-reassign-partitions
}
EVERY_BLOCK = [block for document in DOCUMENTS for block in blocks(document)]


def by_document(document: Path) -> str:
    return name_of(document)


def by_place(block: Block) -> str:
    return block.place


def of_language(*languages: str) -> list[Block]:
    return [block for block in EVERY_BLOCK if block.language in languages]


@cache
def anchors(document: Path) -> set[str]:
    """As GitHub makes them of headings."""
    found: set[str] = set()
    for heading in HEADING.findall(prose(document)):
        words = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()
        anchor = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        repeated = sum(1 for known in found if re.fullmatch(rf"{anchor}(-\d+)?", known))
        found.add(f"{anchor}-{repeated}" if repeated else anchor)
    return found


def targets(document: Path) -> Iterator[tuple[str, Path, str]]:
    """Links into the repository: as written, the file, and its anchor."""
    for link in (markdown or html for markdown, html in LINK.findall(prose(document))):
        if not re.match(r"[a-z]+:", link):
            path, _, anchor = link.partition("#")
            yield link, (document.parent / path).resolve() if path else document, anchor


@pytest.mark.parametrize("document", DOCUMENTS, ids=by_document)
def test_every_link_and_picture_points_to_a_file_and_heading_that_exist(document: Path) -> None:
    assert not [
        link
        for link, target, anchor in targets(document)
        if not target.exists() or (anchor and anchor not in anchors(target))
    ]


def test_the_site_holds_every_file_that_a_document_links_to() -> None:
    site = runpy.run_path(str(ROOT / "packaging" / "documentation_site.py"))
    copied = set(site["copied_files"]())
    linked = [(name_of(each), *link) for each in DOCUMENTS for link in targets(each)]
    assert linked
    assert not [(page, link) for page, link, target, _ in linked if target not in copied]


@pytest.mark.parametrize("document", DOCUMENTS, ids=by_document)
def test_every_module_that_the_text_names_exists(document: Path) -> None:
    named = {code for code in INLINE_CODE.findall(prose(document)) if MODULE.fullmatch(code)}
    assert not [name for name in named if not any(f"/{name}" in path for path in modules())]


@pytest.mark.parametrize("document", DOCUMENTS, ids=by_document)
def test_every_member_of_a_class_that_the_text_names_exists(document: Path) -> None:
    named = [MEMBER.fullmatch(code) for code in INLINE_CODE.findall(prose(document))]
    unknown = [m[0] for m in named if m and f"{m[1]}.{m[2]}" not in members()]
    assert not unknown


@cache
def members() -> set[str]:
    """Class.member of everything that a class of tidelog defines or sets on itself."""
    found = set()
    for path in (ROOT / "src").rglob("*.py"):
        for kind in ast.walk(ast.parse(path.read_text())):
            if isinstance(kind, ast.ClassDef):
                found |= {f"{kind.name}.{name}" for name in names_in(kind)}
    return found


def names_in(kind: ast.ClassDef) -> Iterator[str]:
    for node in ast.walk(kind):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id


@cache
def modules() -> list[str]:
    """Their paths, with a slash before each directory."""
    roots = (ROOT / "src", ROOT / "tests", ROOT / "bench")
    return [f"/{path.relative_to(ROOT)}" for root in roots for path in root.rglob("*.py")]


@pytest.mark.parametrize("document", DOCUMENTS, ids=by_document)
def test_every_block_has_a_language(document: Path) -> None:
    assert not [b.place for b in blocks(document) if b.language not in LANGUAGES]


@pytest.mark.parametrize("block", of_language("python"), ids=by_place)
def test_python_compiles(block: Block) -> None:
    compile(block.text, block.place, "exec")


@pytest.mark.parametrize("block", of_language("toml"), ids=by_place)
def test_toml_parses_and_a_whole_pipeline_loads(block: Block) -> None:
    if "pipeline" in tomllib.loads(block.text):
        parse_pipeline(ROOT / "pipeline.toml", block.text, {})


@pytest.mark.parametrize("block", of_language("properties"), ids=by_place)
def test_properties_are_keys_of_the_broker_or_of_topics_or_of_clients(block: Block) -> None:
    lines = block.text.replace("\\\n", "").splitlines()
    keys = {line.partition("=")[0] for line in lines if not line.startswith("#")}
    assert not [
        key
        for key in keys
        if find_key(key) is None and key not in TOPIC_TABLE and key not in AdminConfig.TABLE
    ]


def split_at(words: list[str], mark: str) -> Iterator[list[str]]:
    """The parts of a command line between these words."""
    part: list[str] = []
    for word in words:
        if word == mark:
            yield part
            part = []
        else:
            part.append(word)
    yield part


def commands_of_tidelog(block: Block) -> Iterator[list[str]]:
    """Their arguments, variables of the block filled in."""
    variables: dict[str, str] = {}
    for command in block.commands:
        given = re.fullmatch(r"(\w+)=\"([^\"]*)\"", command)
        if given:
            variables[given[1]] = given[2]
        for name, value in variables.items():
            command = command.replace(f"${name}", value)
        words = [word for word in shlex.split(command, comments=True) if word != "&"]
        for part in split_at(words, "|"):
            if part[:1] == ["tidelog"]:
                yield next(split_at(part, ">"))[1:]


@pytest.mark.parametrize("block", of_language("sh", "console"), ids=by_place)
def test_the_parser_accepts_every_command_of_tidelog(
    block: Block, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(KAFKA_DATA.parent)  # some commands look for `data` at once
    for arguments in commands_of_tidelog(block):
        parsed(arguments)


@pytest.mark.parametrize("block", of_language("sh", "console"), ids=by_place)
def test_the_benchmark_accepts_its_arguments(block: Block) -> None:
    for command in block.commands:
        _, found, arguments = command.partition("python -m bench")
        if found:
            bench_arguments(shlex.split(arguments, comments=True))


@cache
def flags_in(*sources: Path) -> set[str]:
    """Flags that these modules add to their parsers."""
    return {flag for file in sources for flag in re.findall(r"\"(--[a-z-]+)\"", file.read_text())}


def source_of(module: str) -> Path:
    path = ROOT.joinpath(*module.split("."))
    if module.startswith("tidelog"):
        path = ROOT / "src" / path.relative_to(ROOT)
    return path / "__main__.py" if path.is_dir() else path.with_suffix(".py")


def flags_known_to(code: str) -> set[str]:
    """All that may follow this piece of inline code."""
    command = re.match(r"tidelog ([a-z-]+)", code)
    module = re.match(r"python -m ([\w.]+)", code)
    if command and command[1] in (*root().rows, *root().aliases):
        return flags_of(command[1])
    if module:
        return flags_in(source_of(module[1]))
    harnesses = (ROOT / "tests" / "support").glob("*_harness.py")
    ours = set().union(*(flags_of(name) for name in root().rows))
    return flags_in(*harnesses, source_of("bench")) | ours | FOREIGN_FLAGS


def test_the_manual_names_every_tool_of_kafka() -> None:
    manual = (ROOT / "docs" / "cli.md").read_text().partition("## Kafka's tools")[2]
    tools = [name for rows in KAFKAS_TOOLS.values() for name in rows]
    assert [name for name in tools if f"`{name}`" not in manual] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=by_document)
def test_every_flag_in_the_text_is_known_to_its_command(document: Path) -> None:
    unknown = [
        code
        for code in INLINE_CODE.findall(prose(document))
        if (FLAG.search(code) or "python -m" in code)
        and not set(FLAG.findall(code)) <= flags_known_to(code)
    ]
    assert not unknown
