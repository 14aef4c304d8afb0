from __future__ import annotations

from tidelog.pipeline.declaration.toml_table import TomlLines, syntax_error_line

TEXT = '''\
# a comment with [brackets] and key = value
[pipeline]
name = "shop"   # name = "other"

[source.orders]
schema = """
    topic = "not a key",
    [not.a.table]
"""
topic = "orders"
watermark = { column = "at", delay = "5 minutes" }
text = 'one """ quote'
options."a.b" = 1
list = [
    "x",
]
after = true
'''


def test_tables_and_keys_are_found_by_their_path() -> None:
    lines = TomlLines(TEXT)
    assert lines.line("pipeline") == 2
    assert lines.line("pipeline", "name") == 3
    assert lines.line("source", "orders") == 5
    assert lines.line("source", "orders", "options", "a.b") == 13


def test_the_inside_of_a_string_is_not_mistaken_for_keys() -> None:
    lines = TomlLines(TEXT)
    assert lines.line("source", "orders", "topic") == 10
    assert lines.line("not", "a", "table") == 0
    assert lines.line("source", "orders", "after") == 17


def test_a_key_of_an_inline_table_is_found_at_the_table() -> None:
    assert TomlLines(TEXT).line("source", "orders", "watermark", "delay") == 11


def test_a_key_that_is_not_there_is_found_at_its_table() -> None:
    assert TomlLines(TEXT).line("source", "orders", "format") == 5
    assert TomlLines(TEXT).line("sink", "x") == 0


def test_text_begins_below_quotes_that_end_a_line() -> None:
    lines = TomlLines(TEXT)
    assert lines.first_text_line("two\nlines", "source", "orders", "schema") == 7
    assert lines.first_text_line("one line", "source", "orders", "topic") == 10


def test_the_line_of_a_syntax_error_is_taken_from_its_message() -> None:
    assert syntax_error_line("Expected '=' after a key (at line 12, column 3)") == 12
    assert syntax_error_line("something else") == 0
