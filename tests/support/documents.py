"""The documents of the repository, and the fenced blocks in them.

A block's language says what may be done with it:

sh          commands that a reader types; a backslash joins a line with the next
console     a session: commands behind `$ `, and what they print
python      compiled, and run where a test can
toml        parsed; a whole `[pipeline]` is loaded
properties  `key=value`, keys of the broker, of a topic or of clients; where the first line is
            `# NAME.properties`, commands of the page find it under that name
text        anything else: output, diagrams, layouts
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LANGUAGES = {"sh", "console", "python", "toml", "properties", "text", "ini"}
FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\S*)$")
INLINE_CODE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
DOCUMENTS = [
    *(ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    ROOT / "examples" / "README.md",
]


@dataclass(frozen=True)
class Block:
    document: str  # its path below the repository
    line: int  # of the opening fence
    language: str
    text: str

    @property
    def place(self) -> str:
        return f"{self.document}:{self.line}"

    @property
    def commands(self) -> list[str]:
        """What the reader types, one command each."""
        return [command for command, _ in self.session]

    @property
    def session(self) -> list[tuple[str, str]]:
        """Commands and what they print; nothing is printed in an `sh` block."""
        assert self.language in {"sh", "console"}, self.place
        joined = self.text.replace("\\\n", " ")
        if self.language == "sh":
            return [(line, "") for line in joined.splitlines() if line.strip()]
        assert joined.startswith("$ "), f"{self.place}: a session begins with a command"
        turns = re.split(r"^\$ ", joined, flags=re.MULTILINE)[1:]
        return [(command, output) for command, _, output in (t.partition("\n") for t in turns)]


def name_of(document: Path) -> str:
    return str(document.relative_to(ROOT))


def blocks(document: Path) -> list[Block]:
    return [part for part in _parts(document) if isinstance(part, Block)]


def prose(document: Path) -> str:
    """The document without its fenced blocks."""
    return "\n".join(part for part in _parts(document) if isinstance(part, str))


def _parts(document: Path) -> Iterator[Block | str]:
    """Lines of prose, and whole blocks."""
    opened: tuple[int, re.Match[str]] | None = None
    inside: list[str] = []
    for number, line in enumerate(document.read_text().splitlines(), start=1):
        fence = FENCE.match(line)
        if opened is None and fence is None:
            yield line
        elif opened is None:
            assert fence is not None
            opened, inside = (number, fence), []
        elif fence is not None and not fence["language"]:
            text = "".join(f"{line}\n" for line in inside)
            yield Block(name_of(document), opened[0], opened[1]["language"], text)
            opened = None
        else:
            inside.append(line.removeprefix(opened[1]["indent"]))
    assert opened is None, f"{name_of(document)}:{opened and opened[0]}: the block never ends"
