from __future__ import annotations

import pytest

from tidelog.config.definition import ConfigError
from tidelog.config.jaas import PLAIN_MODULE, SCRAM_MODULE, entry_for, parse_jaas


def options(text: str) -> dict[str, str]:
    (entry,) = parse_jaas("sasl.jaas.config", f"{PLAIN_MODULE} required {text};")
    return dict(entry.options)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ('username="alice" password="secret"', {"username": "alice", "password": "secret"}),
        ("username='alice'", {"username": "alice"}),
        ("username=alice-1.example_$", {"username": "alice-1.example_$"}),
        (r'password="a\"b\\c"', {"password": 'a"b\\c'}),
        (r'password="\t\n\101\7"', {"password": "\t\nA\x07"}),
        (r'password="\q\;"', {"password": "q;"}),
        ("password=\"; // no comment = 'x'\"", {"password": "; // no comment = 'x'"}),
        ('a="1" // a comment\n b="2" /* another; */ c="3"', {"a": "1", "b": "2", "c": "3"}),
        ('user_josé="contraseña"', {"user_josé": "contraseña"}),
        ('user_a.b-c="x"', {"user_a.b-c": "x"}),
        ('"user_a b"="x"', {"user_a b": "x"}),
        ('a\n=\t"1"', {"a": "1"}),
        ('password=""', {"password": ""}),
    ],
)
def test_options_are_read_as_java_reads_them(text: str, expected: dict[str, str]) -> None:
    assert options(text) == expected


def test_there_may_be_several_entries() -> None:
    entries = parse_jaas("k", f'{PLAIN_MODULE} REQUIRED a="1"; {SCRAM_MODULE} sufficient b="2";')
    assert [(entry.module, dict(entry.options)) for entry in entries] == [
        (PLAIN_MODULE, {"a": "1"}),
        (SCRAM_MODULE, {"b": "2"}),
    ]
    text = f'{PLAIN_MODULE} required a="1"; {SCRAM_MODULE} required b="2";'
    assert entry_for("k", text, "SCRAM-SHA-512").options == {"b": "2"}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "there is no login module"),
        ("; ", "a login module was expected"),
        (PLAIN_MODULE, "the word `required` was expected"),
        (f"{PLAIN_MODULE} perhaps;", "the word `required` was expected"),
        (f'{PLAIN_MODULE} required password="hush"', "must end with a semicolon"),
        (f"{PLAIN_MODULE} required password=;", "not of the form"),
        (f"{PLAIN_MODULE} required password 'hush';", "not of the form"),
        (f"{PLAIN_MODULE} required password=12345hush;", "does not belong there"),
        (f'{PLAIN_MODULE} required password="hush;', "does not belong there"),
        (f"{PLAIN_MODULE} required password=hush/hush;", "does not belong there"),
        (f'{PLAIN_MODULE} required a="hush" a="hush";', "a is there twice"),
        (
            'com.sun.security.auth.module.JndiLoginModule required url="ldap://hush";',
            "JndiLoginModule is no login module that is known here",
        ),
        ("com.sun.security.auth.module.Krb5LoginModule required;", "is no login module"),
    ],
)
def test_what_is_wrong_is_told_without_the_text(text: str, problem: str) -> None:
    """Another module would be a class to load (CVE-2025-27818, CVE-2025-27819)."""
    with pytest.raises(ConfigError, match=problem) as raised:
        parse_jaas("the.key", text)
    assert str(raised.value).startswith("the.key: ")
    assert "hush" not in str(raised.value)


def test_nothing_secret_is_shown() -> None:
    (entry,) = parse_jaas("k", f'{PLAIN_MODULE} required user_alice="hush";')
    assert "hush" not in repr(entry)
    assert entry.plain_users == {"alice": "hush"}
