"""Patterns mean what they mean to `re`, are refused where RE2 refuses, and never stall."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from time import thread_time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.clock import FakeClock
from tests.support.consumer_scenario import ConsumerScenario
from tidelog.coordinator.re2 import InvalidPattern, Pattern, PatternResolution

names = st.text("ab._-1A", min_size=1, max_size=5)
atoms = st.sampled_from(
    ["a", "b", "1", "A", ".", r"\.", "-", "_", "[ab]", "[^a]", "[a-z0-9]", r"\d", r"\w", r"\W",
     r"[\d_]", "^", "$", r"\b", r"\B"]
)  # fmt: skip
patterns = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map("|".join),
        inner.map("(?:{})*".format),
        inner.map("({})+".format),
        inner.map("(?:{})?".format),
        inner.map("(?i:{})".format),
        st.tuples(inner, st.integers(0, 2), st.integers(0, 2)).map(
            lambda part: f"(?:{part[0]}){{{part[1]},{part[1] + part[2]}}}"
        ),
    ),
    max_leaves=8,
).filter(lambda pattern: sum(map(pattern.count, "*+{")) <= 2)  # with more, `re` may stall


@settings(max_examples=500, deadline=None)
@given(patterns, st.lists(names, min_size=1, max_size=5))
def test_a_pattern_means_what_it_means_to_python(pattern: str, candidates: list[str]) -> None:
    ours, theirs = Pattern(pattern), re.compile(pattern, re.ASCII)
    for name in candidates:
        assert ours.matches(name) == (theirs.fullmatch(name) is not None), name


@pytest.mark.parametrize(
    ("pattern", "name", "does_match"),
    [
        ("orders", "orders", True),
        ("orders", "orders2", False),
        ("orders.*", "orders-2024", True),
        ("^orders-[0-9]+$", "orders-12", True),
        ("", "", True),
        ("", "a", False),
        ("a|", "", True),
        ("[[:alpha:]]+", "abc", True),
        ("[[:^alpha:]]+", "abc", False),
        ("[]a]", "a", True),
        ("[a-]", "-", True),
        ("[^-]", "-", False),
        (r"\Qa.b\E", "a.b", True),
        (r"\Qa.b\E", "axb", False),
        (r"\Qa.b\E+", "a.bbb", True),
        (r"\Qab", "ab", True),
        (r"\x61\x{62}\141", "aba", True),
        (r"\Aa\z", "a", True),
        ("(?P<year>[0-9]{4})", "2024", True),
        ("(?<year>[0-9]{4})", "2024", True),
        ("(?i)ORDERS", "orders", True),
        ("(?i:O)RDERS", "oRDERS", True),
        ("(?i:O)RDERS", "orders", False),
        ("(?i-i)A", "a", False),
        ("(?s).+", "abc", True),
        ("a{,2}", "a", False),
        ("a{2", "a", False),
        ("a*?b+?c??", "aab", True),
        ("(?:(a+){2})?", "a", False),
        ("é|a", "a", True),
        ("[à-ü]", "a", False),
        (r"\s", "a", False),
        (r"\S+", "a-b", True),
        ("é+", "éé", True),
        ("(?i)É", "é", True),
        ("(?i)[à-ü]", "É", True),
        ("[^a]", "é", True),
        (".", "é", True),
        (".", "\n", False),
        ("(?s).", "\n", True),
        ("a$.^b", "a\nb", False),
        ("(?ms)a$.^b", "a\nb", True),
        (r"\s", "\t", True),
        (r"[\s\d]+", " 1", True),
        ("[[:punct:]]", "!", True),
        (r"\pL+", "aéя", True),
        (r"\p{Lu}", "a", False),
        (r"\PL", "1", True),
        (r"\p{^L}", "a", False),
        (r"[^\pL]", "1", True),
        (r"[\p{Nd}x]+", "1x", True),
    ],
)
def test_a_pattern_matches_whole_names(pattern: str, name: str, does_match: bool) -> None:
    assert Pattern(pattern).matches(name) is does_match


@pytest.mark.parametrize(
    "pattern",
    [
        "(",
        ")",
        "(a",
        "[a",
        "[",
        "a**",
        "a+*",
        "a{2}{3}",
        "a++",
        "*a",
        "a|*",
        "\\",
        r"\1",
        r"(a)\1",
        r"\k<n>",
        r"\p{Greek}",
        r"\p",
        r"\pQ",
        "(?=a)",
        "(?!a)",
        "(?<=a)",
        "(?<!a)",
        "(?>a)",
        "(?P=n)",
        "(?P<>a)",
        "(?P<n-1>a)",
        "(?P<n",
        "(?x)a",
        "[b-a]",
        "[[:nothing:]]",
        r"\x{110000000}",
        r"\xzz",
        "a{1001}",
        "a{3,2}",
        "((a{100}){100}){100}",
        "(((){1000}){1000}){1000}",
        "(" * 200 + ")" * 200,
        "a" * 5000,
    ],
)
def test_what_re2_does_not_have_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidPattern):
        Pattern(pattern)


@given(st.text(st.sampled_from("ab()[]{}*+?|\\^$.-:<>P=!Qi1,"), max_size=14))
def test_any_text_is_a_pattern_or_refused(text: str) -> None:
    with contextlib.suppress(InvalidPattern):
        Pattern(text).matches("ab-1")


@pytest.mark.parametrize(
    "pattern", ["(a+)+b", "(a|aa)+b", "(.*)*.*.*=", "(a?){400}a{100}b", "((a*)*)*b"]
)
def test_patterns_that_stall_others_take_no_time(pattern: str) -> None:
    compiled = Pattern(pattern)
    began = thread_time()
    assert not any(compiled.matches("a" * 240 + str(number)) for number in range(10))
    assert thread_time() - began < 2.0


def test_topics_are_looked_at_in_slices_one_group_after_the_other() -> None:
    clock = FakeClock()
    resolution = PatternResolution(clock)
    done: list[str] = []
    topics = [f"topic-{number}" for number in range(5000)]
    resolution.resolve(["topic-1.*", "b"], topics, lambda found: done.append(str(len(found))))
    resolution.resolve(["topic-7"], topics, lambda found: done.append(str(found)))
    turns = 0
    while clock.pending_timers():
        assert clock.pending_timers() == 1
        clock.advance(ms=0) if turns > 1000 else run_one_timer(clock)
        turns += 1
    assert done == ["2", str({"topic-7": frozenset({"topic-7"})})]
    assert turns > 5


def test_the_patterns_of_all_groups_share_one_slice_a_turn(tmp_path: Path) -> None:
    scenario = ConsumerScenario(tmp_path, "")
    clock = scenario.stage.clock
    scenario.do("topics t=1")
    before = clock.pending_timers()
    scenario.do("join a group=one regex=t.* timeout=1000")
    with_one_group = clock.pending_timers() - before
    scenario.do("join b group=two regex=t.* timeout=1000")
    with_two_groups = clock.pending_timers() - before
    assert with_two_groups == 2 * with_one_group - 1


def run_one_timer(clock: FakeClock) -> None:
    """Only the timer that is due now, not those that it sets."""
    import heapq

    _, _, handle = heapq.heappop(clock._timers)
    handle.callback()


def test_a_pattern_that_was_accepted_elsewhere_but_not_here_is_left_out() -> None:
    clock = FakeClock()
    found: list[dict[str, frozenset[str]]] = []
    PatternResolution(clock).resolve([r"\p{Greek}+", "a"], ["a"], found.append)
    clock.advance(ms=0)
    assert found == [{"a": frozenset({"a"})}]


def test_a_bug_met_in_one_groups_pattern_holds_up_no_other_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = FakeClock()
    resolution = PatternResolution(clock)
    found: list[dict[str, frozenset[str]]] = []

    def fail(self: Pattern, name: str) -> object:
        raise RecursionError("nobody expected this")

    with monkeypatch.context() as patch:
        patch.setattr(Pattern, "matching", fail)
        resolution.resolve(["a"], ["a"], found.append)
        resolution.resolve(["b"], ["b"], found.append)
        with pytest.raises(RecursionError):
            clock.advance(ms=0)
    clock.advance(ms=0)
    assert found == [{}, {"b": frozenset({"b"})}]
