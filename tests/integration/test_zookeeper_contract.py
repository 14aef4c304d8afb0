"""The store over a real ZooKeeper: the contract of every store, and what only this one has."""

from __future__ import annotations

import pytest

from tests.support.metadata_store_contract import MetadataStoreContract, Open
from tests.support.zookeeper import ZooKeeperProcess, fresh_chroot
from tidelog.controller.zookeeper_store import ZooKeeperStore


class TestZooKeeperStore(MetadataStoreContract):
    @pytest.fixture
    def open_one(self, zookeeper: ZooKeeperProcess) -> Open:
        chroot = fresh_chroot()
        return lambda: ZooKeeperStore.connect(zookeeper.address + chroot)
