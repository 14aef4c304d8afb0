"""What all pages of the console are made of: rendering, plots, events, shared looks, assets."""

from __future__ import annotations

import asyncio
import gzip
import itertools
import json
import re
from collections.abc import AsyncGenerator, Iterator
from importlib.resources import files

import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tests.support.console_client import ConsoleClient, parsed_events
from tidelog.client.errors import ConnectionFailed
from tidelog.tools.console import application, events
from tidelog.tools.console.assets import Assets
from tidelog.tools.console.clients import Clients
from tidelog.tools.console.events import Event, encoded, event_stream
from tidelog.tools.console.page import link, parts_event, render, templates
from tidelog.tools.console.plots import LINES_MAX, POINTS_MAX, Line, plot, sparkline, thinned

HOSTILE = "<script>alert(1)</script>\"'&\x1b[2J\u202e{{7*7}}"
ASSETS_BYTES_MAX = 150_000


@pytest.fixture
def console() -> Iterator[ConsoleClient]:
    with ConsoleClient() as client:
        yield client


# Pages


def test_a_template_escapes_whatever_it_is_given() -> None:
    text = templates().from_string("<p title='{{ x }}'>{{ x|short }}</p>").render(x=HOSTILE)
    assert "<script" not in text
    assert "&lt;script&gt;" in text
    assert "\x1b" not in text.split(">", 1)[1], "control characters are written, not sent"


def test_no_template_marks_anything_safe_or_holds_script_or_style() -> None:
    folder = files("tidelog.tools.console").joinpath("templates")
    found = []
    for each in sorted(str(path) for path in _files(folder)):
        with open(each) as file:
            text = file.read()
        pattern = (
            r"\|\s*safe\b|autoescape|<style|\sstyle=|\son[a-z]+=|javascript:|<script(?![^>]*src=)"
        )
        found += [f"{each}: {bad}" for bad in re.findall(pattern, text)]
    assert not found


def _files(folder: object) -> Iterator[object]:
    for each in folder.iterdir():  # type: ignore[attr-defined]
        if each.is_dir():
            yield from _files(each)
        elif each.name.endswith(".html"):
            yield each


def test_every_form_that_posts_sends_the_token() -> None:
    for path in _files(files("tidelog.tools.console").joinpath("templates")):
        with open(str(path)) as file:
            text = file.read()
        for form in re.findall(r"<form\b[^>]*method=\"post\".*?</form>", text, re.S):
            assert "elements.token()" in form, f"{path}: {form[:100]}"


def test_a_link_holds_any_name() -> None:
    assert link("topics", "a/b?c#d&e", q="x y&z", none=None) == (
        "/topics/a%2Fb%3Fc%23d%26e?q=x+y%26z"
    )
    assert link("é") == "/%C3%A9"


def test_a_page_that_is_not_there_says_so_with_the_path_as_text(console: ConsoleClient) -> None:
    answer = console.get("/%3Cscript%3Ealert(1)%3C/script%3E")
    assert answer.status == 404
    assert "<script>alert" not in answer.text


def test_a_cluster_that_does_not_answer_is_a_calm_page() -> None:
    nobody = {"bootstrap.servers": "127.0.0.1:1", "default.api.timeout.ms": "100"}
    with ConsoleClient(properties=nobody) as console:
        answer = console.get("/topics")
    assert answer.status == 502
    assert "The cluster did not answer this" in answer.words
    assert "Traceback" not in answer.text


def test_pages_have_one_first_heading_landmarks_and_a_language(console: ConsoleClient) -> None:
    text = console.get("/login/none").text
    assert text.count("<h1") == 1
    assert '<html lang="en"' in text
    for landmark in ("<header", "<nav", "<main", 'href="#main"'):
        assert landmark in text


def test_names_of_any_length_are_cut_where_they_must_be() -> None:
    short = templates().from_string("{{ x|short }}").render(x="a" * 5_000)
    assert len(short) == 60


@pytest.mark.parametrize(
    ("written", "value", "shown"),
    [
        ("bytes", 1_500_000, "1.5 MB"),
        ("bytes", None, "-"),
        ("number", 1_234_567, "1,234,567"),
        ("rate", 0.25, "0.2"),
        ("rate", 12_345.6, "12,346"),
        ("rate", None, "-"),
        ("time", 0, "1970-01-01 00:00:00.000 UTC"),
        ("time", -1, "-"),
        ("time", 1 << 62, str(1 << 62)),
        ("ago", None, "-"),
    ],
)
def test_numbers_and_times_are_written_for_people(written: str, value: object, shown: str) -> None:
    assert templates().from_string(f"{{{{ x|{written} }}}}").render(x=value) == shown


# Assets


def test_the_assets_are_small_and_our_own() -> None:
    contents = Assets().contents
    assert sum(len(gzip.compress(each)) for each in contents.values()) < ASSETS_BYTES_MAX
    for name, content in contents.items():
        text = content.decode()
        outside = re.findall(r"(?:https?:)?//[a-z][a-z0-9.-]+\.[a-z]{2,}", text)
        assert not [each for each in outside if "www.w3.org" not in each], name


def test_assets_are_kept_by_browsers_while_they_are_current(console: ConsoleClient) -> None:
    base = console.app.state.assets.base
    answer = console.get(f"{base}/console.css")
    assert answer.headers["content-type"] == "text/css; charset=utf-8"
    assert "immutable" in answer.headers["cache-control"]
    assert console.get("/static/old/console.js").headers["cache-control"] == "no-cache"
    for path in (f"{base}/none.css", f"{base}/..%2fsettings.py", f"{base}/__init__.py"):
        assert console.get(path).status == 404


# Plots


def test_a_plot_tells_its_last_values_to_those_who_cannot_see_it() -> None:
    drawn = plot("Lag", [Line("a", [(0, 1.0), (1_000, 2_500.0)])])
    assert drawn.description == "Lag from 00:00:00 to 00:00:01 UTC. Last: a 2.5k."
    assert 'role="img"' in drawn.__html__()


def test_a_gap_breaks_a_line() -> None:
    drawn = plot("x", [Line("a", [(0, 1.0), (1, 2.0), (2, None), (3, 1.0)])])
    assert drawn.lines[0].path.count("M") == 2


def test_a_plot_of_nothing_is_no_error() -> None:
    for lines in ([], [Line("a", [])], [Line("a", [(0, None)])]):
        assert "Nothing yet" in plot("x", lines).__html__()
    assert "svg" not in sparkline("x", [(0, 1.0)]).__html__()


def test_a_plot_of_one_point_or_of_zeros_has_a_place_for_it() -> None:
    for points in ([(5.0, 3.0)], [(0.0, 0.0), (1.0, 0.0)], [(0.0, 1e12), (1.0, 1e-12)]):
        text = plot("x", [Line("a", points)]).__html__()
        assert "nan" not in text
        assert "inf" not in text


def test_names_in_a_plot_are_text() -> None:
    text = plot(HOSTILE, [Line(HOSTILE, [(0, 1.0), (1, 2.0)])]).__html__()
    assert "<script" not in text


def test_a_plot_stays_small_whatever_is_plotted() -> None:
    points = [(float(at), float(at % 7)) for at in range(100_000)]
    drawn = plot("x", [Line(str(number), points) for number in range(50)])
    assert len(drawn.lines) == LINES_MAX
    assert drawn.left_out == 50 - LINES_MAX
    assert len(drawn.__html__()) < 60_000
    assert len(thinned(points)) <= POINTS_MAX
    assert thinned(points)[-1] == points[-1]


# Server-sent events


@pytest.mark.parametrize("data", ["", "a", "a\nevent: b\n\ndata: c", "a\r\nb\rc", "\n\n"])
def test_data_of_an_event_cannot_begin_another(data: str) -> None:
    found = parsed_events(encoded("x", data))
    assert [name for name, _ in found] == ["x"]


def test_parts_are_json_so_html_of_several_lines_is_one_line() -> None:
    name, data = parts_event({"rows": "<tr>\n</tr>"})
    assert (name, json.loads(data)) == ("parts", {"rows": "<tr>\n</tr>"})


class Counted:
    """Streams numbers, and notes that the generator was closed."""

    def __init__(self, failure: Exception | None = None, last: int = 1 << 30) -> None:
        self.is_closed = False
        self._failure = failure
        self._last = last

    async def show(self, request: Request) -> Response:
        return event_stream(request, self._events())

    async def _events(self) -> AsyncGenerator[Event, None]:
        try:
            for number in itertools.count():
                if number == self._last:
                    return
                yield "number", str(number)
                await asyncio.sleep(0)
                if self._failure is not None:
                    raise self._failure
        finally:
            self.is_closed = True


def streaming(console: ConsoleClient, counted: Counted) -> None:
    console.app.router.routes.append(Route("/counted", counted.show))


def test_a_stream_is_closed_when_the_browser_goes(console: ConsoleClient) -> None:
    counted = Counted()
    streaming(console, counted)
    found = console.events("/counted", 3)
    assert found == [("number", "0"), ("number", "1"), ("number", "2")]
    assert counted.is_closed
    assert console.app.state.streams.has_room("any")
    assert not console.app.state.streams._of_session


def test_a_stream_that_ends_says_so(console: ConsoleClient) -> None:
    streaming(console, Counted(last=1))
    assert console.events("/counted", 2) == [("number", "0"), ("end", "")]


def test_a_refusal_of_the_cluster_is_told_in_the_stream(console: ConsoleClient) -> None:
    streaming(console, Counted(failure=ConnectionFailed("gone")))
    assert console.events("/counted", 2)[-1] == ("problem", "gone")


def test_a_session_has_a_bounded_number_of_streams(
    console: ConsoleClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "SESSION_STREAMS_MAX", 0)
    streaming(console, Counted())
    assert console.get("/counted").status == 503


def test_streams_end_when_the_console_stops(console: ConsoleClient) -> None:
    counted = Counted()
    streaming(console, counted)
    console.app.state.streams.end_all()
    assert console.get("/counted").status == 200, "it ends at once, though the browser is there"


# Looks that visitors share


def test_those_who_ask_at_once_share_a_look_and_it_grows_old() -> None:
    now = [0.0]
    looks = itertools.count(1)
    waiting = asyncio.Event()

    async def take() -> int:
        await waiting.wait()
        return next(looks)

    async def story() -> list[int]:
        clients = Clients({"bootstrap.servers": "127.0.0.1:1"}, lambda: now[0])
        both = asyncio.gather(clients.shared("x", 5.0, take), clients.shared("x", 5.0, take))
        waiting.set()
        found = list(await both)
        now[0] = 5.0
        found.append(await clients.shared("x", 5.0, take))
        now[0] = 5.1
        found.append(await clients.shared("x", 5.0, take))
        clients.forget("x")
        found.append(await clients.shared("x", 5.0, take))
        await clients.close()
        return found

    assert asyncio.run(story()) == [1, 1, 1, 2, 3]


def test_a_look_that_fails_is_not_kept_and_harms_no_other() -> None:
    outcomes: list[Exception | int] = [ConnectionFailed("no"), 7]

    async def take() -> int:
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def story() -> int:
        clients = Clients({"bootstrap.servers": "127.0.0.1:1"}, lambda: 0.0)
        with pytest.raises(ConnectionFailed):
            await clients.shared("x", 5.0, take)
        found = await clients.shared("x", 5.0, take)
        await clients.close()
        return found

    assert asyncio.run(story()) == 7


def test_every_module_of_the_pages_is_in_the_navigation_or_says_that_it_is_not() -> None:
    named = [name for names in application.PAGES.values() for name in names]
    there = {
        each.name.removesuffix(".py")
        for each in files("tidelog.tools.console").joinpath("pages").iterdir()
        if each.name.endswith(".py") and each.name != "__init__.py"
    }
    assert set(named) >= there
    assert len(named) == len(set(named))


def test_render_is_of_a_request_alone(console: ConsoleClient) -> None:
    """Context of a page cannot hide what all pages have."""

    async def show(request: Request) -> Response:
        return render(request, "problem.html", title=HOSTILE, message=HOSTILE, hint="")

    console.app.router.routes.append(Route("/hostile", show))
    text = console.get("/hostile").text
    assert "<script>alert" not in text
    assert "{{7*7}}" in text, "a name is no template"


def test_a_stream_ends_with_the_login_that_opened_it() -> None:
    with ConsoleClient(user="ada", password="a long password") as console:
        console.post("/login", user="ada", password="a long password")
        access = console.app.state.access

        class LoggingOut(Counted):
            async def _events(self) -> AsyncGenerator[Event, None]:
                async for event in super()._events():
                    yield event
                    access._sessions.clear()

        streaming(console, LoggingOut())
        assert [name for name, _ in console.events("/counted", 2)] == ["number", "end"]
