"""The console's own CSS and JavaScript, held in memory and served under a path that names their
content, so browsers keep them for as long as they like."""

from __future__ import annotations

import hashlib
from importlib.resources import files
from typing import Final

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


class Assets:
    def __init__(self) -> None:
        self.contents = {
            each.name: each.read_bytes()
            for each in files("tidelog.tools.console").joinpath("static").iterdir()
            if _suffix(each.name) in TYPES
        }
        digest = hashlib.sha256()
        for name in sorted(self.contents):
            digest.update(self.contents[name])
        self.base = f"/static/{digest.hexdigest()[:12]}"

    async def serve(self, request: Request) -> Response:
        name = request.path_params["name"]
        content = self.contents.get(name)
        if content is None:
            return PlainTextResponse("no such file", 404)
        is_current = request.url.path == f"{self.base}/{name}"
        keep = "public, max-age=31536000, immutable" if is_current else "no-cache"
        return Response(content, media_type=TYPES[_suffix(name)], headers={"cache-control": keep})


def _suffix(name: str) -> str:
    return name[name.rfind(".") :]
