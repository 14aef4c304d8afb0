from __future__ import annotations

from pathlib import Path

import pytest

from tidelog.config.definition import ConfigError
from tidelog.config.server_properties import Property, load_properties, parse_properties


@pytest.mark.parametrize(
    ("text", "properties"),
    [
        ("a=1\nb=2", {"a": "1", "b": "2"}),
        ("a=1\r\nb=2\rc=3\n", {"a": "1", "b": "2", "c": "3"}),
        ("# comment\n  ! comment too\n\n \t\f\na=1", {"a": "1"}),
        ("a = 1\nb:2\nc 3\nd\t=\t4\ne : 5", {"a": "1", "b": "2", "c": "3", "d": "4", "e": "5"}),
        ("a==1\nb=:2\nc  =  = 3", {"a": "=1", "b": ":2", "c": "= 3"}),
        ("a", {"a": ""}),
        ("a=", {"a": ""}),
        ("=1", {"": "1"}),
        ("a=1 # no comment", {"a": "1 # no comment"}),
        ("a=trailing blanks  ", {"a": "trailing blanks  "}),
        ("a=1,\\\n    2,\\\n\t3", {"a": "1,2,3"}),
        ("a=1\\\n# not a comment", {"a": "1# not a comment"}),
        ("a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
        ("a=1\\\\\\\nb=2", {"a": "1\\b=2"}),
        ("a=last line\\", {"a": "last line"}),
        ("a\\=b=1\na\\ c=2\na\\:d=3", {"a=b": "1", "a c": "2", "a:d": "3"}),
        ("a=\\t\\n\\r\\f\\\\\\q", {"a": "\t\n\r\f\\q"}),
        ("a=\\u00e9\\u0041", {"a": "\u00e9A"}),
        ("\\u0061=1", {"a": "1"}),
        ("a=1\na=2", {"a": "2"}),
        ("", {}),
    ],
)
def test_text_is_read_as_java_reads_it(text: str, properties: dict[str, str]) -> None:
    assert {item.key: item.value for item in parse_properties(text)} == properties


@pytest.mark.parametrize("text", ["x=1\na=\\u12", "x=1\na=\\u12g4", "x=1\na=\\u"])
def test_a_malformed_escape_is_refused_with_its_line(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^line 2: malformed"):
        parse_properties(text)


def test_a_file_is_read_as_utf_8_or_else_latin_1(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_bytes("log.dirs=/données".encode())
    assert load_properties(path) == [Property(1, "log.dirs", "/données")]
    path.write_bytes("log.dirs=/données".encode("latin-1"))
    assert load_properties(path) == [Property(1, "log.dirs", "/données")]


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read .*/none: No such file"):
        load_properties(tmp_path / "none")


def test_an_error_in_a_file_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text("a=\\uxyz")
    with pytest.raises(ConfigError, match=r"server\.properties: line 1: malformed"):
        load_properties(path)
