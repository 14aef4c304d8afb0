"""Named sets of client settings, so that a cluster is described once.

    $XDG_CONFIG_HOME/tidelog/contexts/NAME.properties   the settings, as --config reads them
    $XDG_CONFIG_HOME/tidelog/current-context            the name of the one in use

Without XDG_CONFIG_HOME it is ~/.config. $TIDELOG_CONTEXT goes before the file. The files may hold
passwords, so only their owner may read them.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from tidelog.tools.cli.frame import CommandFailed

NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")


class Contexts:
    def __init__(self, directory: Path | None = None) -> None:
        self._directory = directory or default_directory()

    def names(self) -> list[str]:
        found = self._directory.glob("contexts/*.properties")
        return sorted(path.stem for path in found if NAME.fullmatch(path.stem))

    def current(self) -> str | None:
        """The name in use, if there is one; the context itself may be gone."""
        chosen = os.environ.get("TIDELOG_CONTEXT")
        if chosen:
            return chosen
        try:
            return self._pointer.read_text().strip() or None
        except OSError:
            return None

    def use(self, name: str) -> None:
        self.properties(name)
        self._write(self._pointer, f"{name}\n")

    def properties(self, name: str) -> dict[str, str]:
        from tidelog.config.server_properties import load_properties

        path = self._path(name)
        if not path.exists():
            known = ", ".join(self.names()) or "none yet"
            raise CommandFailed(
                f"there is no context {name} (known: {known}). "
                f"`tidelog context set {name} bootstrap.servers=HOST:PORT` makes it."
            )
        return {each.key: each.value for each in load_properties(path)}

    def exists(self, name: str) -> bool:
        return self._path(name).exists()

    def write(self, name: str, properties: dict[str, str]) -> None:
        from tidelog.config.server_properties import escaped_value

        lines = [
            f"{_escaped_key(key)}={escaped_value(value)}\n" for key, value in properties.items()
        ]
        self._write(self._path(name), "".join(lines))

    def delete(self, name: str) -> None:
        self.properties(name)
        self._path(name).unlink()
        if os.environ.get("TIDELOG_CONTEXT") != name and self.current() == name:
            self._pointer.unlink()

    @property
    def _pointer(self) -> Path:
        return self._directory / "current-context"

    def _path(self, name: str) -> Path:
        if not NAME.fullmatch(name):
            raise CommandFailed(
                f"{name!r} is no name of a context: letters, digits, dots, dashes and underscores"
            )
        return self._directory / "contexts" / f"{name}.properties"

    def _write(self, path: Path, text: str) -> None:
        """Whole or not at all."""
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
            draft.replace(path)
        except OSError:
            draft.unlink(missing_ok=True)
            raise


def default_directory() -> Path:
    home = os.environ.get("XDG_CONFIG_HOME")
    return (Path(home) if home else Path.home() / ".config") / "tidelog"


def _escaped_key(key: str) -> str:
    """What would end the key, or make its line a comment, gets a backslash."""
    return re.sub(r"([:=#! ])", r"\\\1", key.replace("\\", "\\\\"))
