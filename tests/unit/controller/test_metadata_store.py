"""The embedded store keeps the contract of every metadata store."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.metadata import open_store
from tests.support.metadata_store_contract import MetadataStoreContract, Open


class TestEmbeddedStore(MetadataStoreContract):
    @pytest.fixture
    def open_one(self, tmp_path: Path) -> Open:
        return lambda: open_store(tmp_path)
