"""The example of OAUTHBEARER in docs/security.md, with an identity provider in the place of
idp.example.com."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tests.integration.test_documented_commands import Reader
from tests.support.documents import ROOT, blocks
from tests.support.oauth_provider import CLIENT_SECRET, OAuthProvider

FILES = ("# oauth.properties", "# shop.properties")


@pytest.mark.integration
def test_the_commands_of_the_page_work_with_a_provider(tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    page = blocks(ROOT / "docs" / "security.md")
    with OAuthProvider() as provider:
        for block in page:
            if block.text.startswith(FILES):
                text = block.text.replace("shop-secret", CLIENT_SECRET)
                for url in (provider.jwks_url, provider.token_url):
                    name = url.rpartition("/")[2]
                    ours = url.replace("127.0.0.1", "localhost")  # or it is taken for a listener
                    text = text.replace(f"https://idp.example.com/{name}", ours)
                reader.writes(text)
        try:
            (commands,) = (
                block.commands for block in page if "--config oauth.properties" in block.text
            )
            for command in commands:
                printed = reader.types(command)
                assert reader.exit_code == 0, f"{shlex.quote(command)}\n{printed}"
            assert provider.asked_for_tokens[-1]["scope"] == ["kafka"]
        finally:
            reader.ends()
