"""How a page is made: its template rendered, its forms read, its messages shown.

A page is a module of `pages` with

    NAVIGATION: Final = ("Topics", "/topics")     # label and path; None: not in the navigation
    ROUTES: Final[Sequence[BaseRoute]] = (...)

A POST changes something unless its route is a `ReadingPost`; without --write every other POST is
refused before the page sees it (`access.py`). Templates are escaped always; a page that needs an
element of its own makes it in a template, never in Python.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from tidelog.tools.cli.output import counted, human_bytes, printable

if TYPE_CHECKING:
    from tidelog.tools.console.access import Visitor

THEMES: Final = ("auto", "light", "dark")
SHORT_CHARACTERS: Final = 60


class ReadingPost(Route):
    """A POST that changes nothing in the cluster: a login, a preview."""

    def __init__(self, path: str, endpoint: Callable[..., Any]) -> None:
        super().__init__(path, endpoint, methods=["POST"])


@dataclass(frozen=True)
class Section:
    """A part of the navigation: its title, and the label and path of each page."""

    title: str
    pages: Sequence[tuple[str, str]] = field(default_factory=tuple)


def visitor_of(request: Request) -> Visitor:
    visitor: Visitor = request.scope["tidelog.visitor"]
    return visitor


def can_write(request: Request) -> bool:
    return bool(request.app.state.settings.can_write)


def form_of(request: Request) -> Mapping[str, list[str]]:
    """The fields of the POST's form, as `access.py` has read and bounded them."""
    form: Mapping[str, list[str]] = request.scope["tidelog.form"]
    return form


def field_of(request: Request, name: str, default: str = "") -> str:
    """The first value of a field of the form, without blanks around it."""
    values = form_of(request).get(name)
    return values[0].strip() if values else default


def render(request: Request, template: str, *, status: int = 200, **context: object) -> Response:
    """A whole page. Every template may use what `_surroundings` gives."""
    messages = request.app.state.access.messages(visitor_of(request))
    page = templates().get_template(template)
    around = _surroundings(request) | {"messages": messages}
    return HTMLResponse(page.render(around | context), status)


def part(request: Request, template: str, **context: object) -> str:
    """A piece of a page, for an event of its live parts."""
    return templates().get_template(template).render(_surroundings(request) | context)


def parts_event(parts: Mapping[str, str]) -> tuple[str, str]:
    """The event that replaces the elements with these `data-part` names by new HTML."""
    return "parts", json.dumps(parts)


def told(request: Request, path: str, message: str) -> Response:
    """Sends the browser on to a page that shows the message once: the answer to a POST."""
    request.app.state.access.tell(visitor_of(request), message)
    return RedirectResponse(path, 303)


def problem(
    request: Request, title: str, message: str, *, status: int = 400, hint: str = ""
) -> Response:
    return render(request, "problem.html", status=status, title=title, message=message, hint=hint)


def link(*steps: str, **query: object) -> str:
    """A path of the console; names may hold anything. Queries that are None are left out."""
    path = "/" + "/".join(quote(step, safe="") for step in steps)
    asked = {name: value for name, value in query.items() if value is not None}
    return f"{path}?{urlencode(asked, doseq=True)}" if asked else path


def _surroundings(request: Request) -> dict[str, object]:
    state = request.app.state
    visitor = visitor_of(request)
    theme = request.cookies.get("theme", "auto")
    found = {
        "request": request,
        "path": request.url.path,
        "sections": state.sections,
        "assets": state.assets.base,
        "cluster": state.settings.properties.get("bootstrap.servers", ""),
        "visitor": visitor,
        "csrf": visitor.csrf_token,
        "can_write": state.settings.can_write,
        "theme": theme if theme in THEMES else "auto",
    }
    found["elements"] = templates().get_template("elements.html").make_module(found)
    return found


# Templates

_environment: Environment | None = None


def templates() -> Environment:
    global _environment
    if _environment is None:
        _environment = _new_environment()
    return _environment


def _new_environment() -> Environment:
    made = Environment(
        loader=PackageLoader("tidelog.tools.console"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters.update(
        bytes=lambda count: "-" if count is None else human_bytes(int(count)),
        number=lambda count: "-" if count is None else f"{count:,}",
        rate=_rate,
        time=_time,
        ago=_ago,
        shown=lambda text: printable(str(text)),
        short=_short,
        counted=counted,
    )
    from tidelog.tools.console.plots import sparkline

    made.globals.update(link=link, sparkline=sparkline)
    return made


def _rate(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 10 or value == 0 else f"{value:.1f}"


def _time(milliseconds: int | None) -> str:
    if milliseconds is None or milliseconds < 0:
        return "-"
    try:
        at = datetime.fromtimestamp(milliseconds / 1_000, UTC)
    except (OverflowError, ValueError, OSError):
        return str(milliseconds)
    return at.strftime("%Y-%m-%d %H:%M:%S.") + f"{at.microsecond // 1_000:03} UTC"


def _ago(milliseconds: int | None) -> str:
    if milliseconds is None or milliseconds < 0:
        return "-"
    seconds = max(time.time() - milliseconds / 1_000, 0)
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit} ago"
    return f"{seconds:.0f} s ago"


def _short(text: object, characters: int = SHORT_CHARACTERS) -> str:
    shown = printable(str(text))
    return shown if len(shown) <= characters else shown[: characters - 1] + "…"
