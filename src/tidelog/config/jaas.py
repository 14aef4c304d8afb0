"""Login settings in the form of Java's JAAS, as Kafka's sasl.jaas.config holds them.

    MODULE required name="value" other=value;

There may be several entries, each ended by a semicolon. Values stand in double or single quotes,
with Java's escapes (\\" \\\\ \\n \\t \\101); only a word of letters, digits and . _ - $ that begins
with a letter may go without. // and /* */ begin comments.

A module is the name of a Java class. Nothing is loaded by that name: the modules below are known,
and any other is refused. What is wrong is told without the text itself, which holds passwords.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from tidelog.config.definition import ConfigError

PLAIN_MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTH_MODULE: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
MODULES: Final = {
    "PLAIN": PLAIN_MODULE,
    "SCRAM-SHA-256": SCRAM_MODULE,
    "SCRAM-SHA-512": SCRAM_MODULE,
    "OAUTHBEARER": OAUTH_MODULE,
}
CONTROL_FLAGS: Final = frozenset(("REQUIRED", "REQUISITE", "SUFFICIENT", "OPTIONAL"))
USER_PREFIX: Final = "user_"  # of PlainLoginModule's options that name users with their passwords

_TOKEN: Final = re.compile(
    r"""(?P<blank>[\x00-\x20]+|//[^\r\n]*|/\*.*?\*/)
      | (?P<word>[A-Za-z_$\u00a0-\U0010ffff][A-Za-z0-9._$\-\u00a0-\U0010ffff]*)
      | "(?P<double>(?:[^"\\\r\n]|\\.)*)"
      | '(?P<single>(?:[^'\\\r\n]|\\.)*)'
      | (?P<mark>[=;])
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPE: Final = re.compile(r"\\([0-3][0-7]{0,2}|[4-7][0-7]?|.)", re.DOTALL)
_ESCAPED: Final = {"a": "\x07", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


class JaasEntry(NamedTuple):
    module: str
    options: Mapping[str, str]

    def __repr__(self) -> str:
        return f"JaasEntry({self.module}, [hidden])"

    @property
    def plain_users(self) -> dict[str, str]:
        """The passwords of PlainLoginModule's users."""
        return {
            name.removeprefix(USER_PREFIX): value
            for name, value in self.options.items()
            if name.startswith(USER_PREFIX)
        }


class _Token(NamedTuple):
    text: str
    is_mark: bool


def parse_jaas(key: str, text: str) -> list[JaasEntry]:
    """The entries of a value of `key`; ConfigError names the key and what is wrong."""
    tokens = _tokens(key, text)
    entries: list[JaasEntry] = []
    for first in tokens:
        if first.is_mark:
            raise _wrong(key, "a login module was expected")
        if first.text not in MODULES.values():
            raise _wrong(
                key,
                f"{first.text} is no login module that is known here; known are "
                f"{', '.join(sorted(set(MODULES.values())))}",
            )
        flag = next(tokens, None)
        if flag is None or flag.is_mark or flag.text.upper() not in CONTROL_FLAGS:
            raise _wrong(key, f"after {first.text} the word `required` was expected")
        entries.append(JaasEntry(first.text, _options(key, tokens)))
    if not entries:
        raise _wrong(key, "there is no login module")
    return entries


def entry_for(key: str, text: str, mechanism: str) -> JaasEntry:
    """The one entry for a mechanism, with the module that Kafka has for it."""
    found = [entry for entry in parse_jaas(key, text) if entry.module == MODULES[mechanism]]
    if len(found) != 1:
        raise _wrong(key, f"{mechanism} needs exactly one entry of {MODULES[mechanism]}")
    return found[0]


def _options(key: str, tokens: Iterator[_Token]) -> dict[str, str]:
    options: dict[str, str] = {}
    for name in tokens:
        if name.is_mark and name.text == ";":
            return options
        equals, value = next(tokens, None), next(tokens, None)
        if name.is_mark or equals != _Token("=", True) or value is None or value.is_mark:
            raise _wrong(
                key, f'the options are not of the form name="value" after {_last(options)}'
            )
        if name.text in options:
            raise _wrong(key, f"{name.text} is there twice")
        options[name.text] = value.text
    raise _wrong(key, "an entry must end with a semicolon")


def _last(options: dict[str, str]) -> str:
    return next(reversed(options), "the module")


def _tokens(key: str, text: str) -> Iterator[_Token]:
    position = 0
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None:
            raise _wrong(
                key,
                f"character {position + 1} does not belong there; put values in quotes, and a "
                "backslash before a quote within them",
            )
        position = found.end()
        kind = found.lastgroup
        assert kind is not None
        part = found[kind]
        if kind in ("double", "single"):
            yield _Token(_ESCAPE.sub(_unescaped, part), False)
        elif kind != "blank":
            yield _Token(part, kind == "mark")


def _unescaped(escape: re.Match[str]) -> str:
    escaped = escape[1]
    if escaped[0] in "01234567":
        return chr(int(escaped, 8))
    return _ESCAPED.get(escaped, escaped)


def _wrong(key: str, problem: str) -> ConfigError:
    return ConfigError(f"{key}: {problem}")
