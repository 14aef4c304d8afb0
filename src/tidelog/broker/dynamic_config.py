"""Configuration that changes while the broker runs: overrides of topics, brokers and groups.

Kept in the metadata store as Kafka keeps it, {"version":1,"config":{...}} at

    /config/topics/T             overrides of a topic
    /config/brokers/N            of one broker
    /config/brokers/<default>    of all brokers
    /config/groups/G             of a consumer group; G as in a URL
    /config/client-metrics/S     a subscription to metrics of clients; S as in a URL
    /config/users/U              SCRAM credentials and quotas of a user; U as in a URL
    /config/{clients,ips}/N      quotas, see `quotas/quota_entity.py`

A change begins with what the store has: this broker knows the overrides only of topics that it
hosts or has heard of, and others change them too. It is checked by building the configuration it
leads to, written if the node is still as it was read (else it begins again), and only then seen:
the store, `broker_config`, `log_config` and those who asked to be told follow in this order.
Changes happen one after another; a caller that gives up does not stop one that has begun. What is
found in the store and does not fit (another Kafka may have put it there) is left out with a
warning, and stays there unless a change names it.

In a cluster a change is announced under /config/changes, and what others announce is taken over
(`config_changes.py`). A change and its announcement are one transaction of the store: otherwise no
broker would hear of a change whose writer dies in between, and a user that was deleted could go on
logging in.

Kafka's ZooKeeper mode has no groups and no client-metrics below /config; its KRaft mode has both.
Here they are nodes like the others. Kafka's brokers of a mixed cluster log that they do not know
them.

Not done: passwords, which Kafka encrypts; a change that has one is refused.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import quote, unquote

from tidelog.broker.broker_config_checks import (
    must_be_dynamic,
    must_be_read_by_a_listener,
    must_find_hosts,
    must_keep_cleaning,
)
from tidelog.broker.quotas.quota_entity import QuotaEntity
from tidelog.broker.quotas.quota_limits import QuotaLimits
from tidelog.broker.security.scram_credentials import ScramCredentials
from tidelog.config.broker import BrokerConfig
from tidelog.config.client_metrics import CLIENT_METRICS_TABLE, Subscription, subscription
from tidelog.config.definition import ConfigError
from tidelog.config.description import BrokerLayers, Entry, describe_subscription
from tidelog.config.group import GROUP_TABLE, GroupConfig, group_config
from tidelog.config.topic import LogConfig, log_config
from tidelog.controller import acl_znodes, znodes
from tidelog.controller.metadata_store import (
    BadVersion,
    Check,
    Create,
    Delete,
    MetadataStore,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    SetData,
    StoreClosed,
    StoreError,
    StoreUnavailable,
)
from tidelog.controller.store_changes import StoreChanges
from tidelog.controller.topics import TopicChange, TopicImage, TopicImages
from tidelog.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from tidelog.sasl.scram_credential import ScramCredential, ScramMechanism

logger = logging.getLogger(__name__)

CLIENT_METRICS: Final = "client-metrics"

Texts = Mapping[str, str]
Edit = Callable[[Texts], dict[str, str]]


class StoredTexts(NamedTuple):
    texts: dict[str, str]
    version: int | None  # of the node; None if there is none


class DynamicConfig:
    """Touched only on the broker's loop."""

    def __init__(self, config: BrokerConfig, store: MetadataStore, broker_id: int) -> None:
        if config.broker_id != broker_id:
            config = config.with_overrides({"broker.id": str(broker_id)})
        self._store = store
        self._broker_id = broker_id
        self._topics: TopicImages | None = None
        self._announces = False
        self._overrides: dict[str, dict[str, str]] = {}  # by topic; the catalogue has the others
        self._log_configs: dict[str, LogConfig] = {}  # of topics with overrides, as far as asked
        self._topic_listeners: list[Callable[[str], None]] = []
        self._broker_listeners: list[Callable[[BrokerConfig], None]] = []
        self._group_listeners: list[Callable[[str], None]] = []
        self._group_configs: dict[str, GroupConfig] = {}  # of groups with overrides
        # By name; replaced as a whole, so that its identity tells whether something has changed.
        self.subscriptions: Mapping[str, Subscription] = {}  # to metrics of clients
        # Asked before a change of this broker is written; raises ConfigError or KafkaError.
        self.must_be_usable: Callable[[BrokerConfig], Awaitable[None]] = _anything_is
        self._scram_credentials = ScramCredentials()
        self.quota_limits = QuotaLimits()
        self._ip_quota_listeners: list[Callable[[], None]] = []
        self._changes = StoreChanges()
        self.layers = BrokerLayers(config)
        self._default_log_config = log_config(config, {})

    @property
    def broker_config(self) -> BrokerConfig:
        """What holds for this broker: the static configuration with the dynamic one on top."""
        return self.layers.effective

    def load(self) -> None:
        """Reads all overrides, blocking; for start-up."""
        brokers = dict(self._stored("brokers"))
        for name in (znodes.DEFAULT_ENTITY, str(self._broker_id)):
            per_broker = name != znodes.DEFAULT_ENTITY
            texts = self._usable_broker_texts(brokers.get(name, {}), per_broker=per_broker)
            self._replace_layers(self._layers_of(texts, per_broker=per_broker))
        self._overrides = {name: texts for name, texts in self._stored("topics") if texts}
        self._log_configs.clear()
        for name, texts in self._stored("groups"):
            self._take_over_group(unquote(name), texts)
        for name, texts in self._stored(CLIENT_METRICS):
            self._take_over_subscription(unquote(name), texts)
        for entity_type in ("users", "clients", "ips"):
            root = znodes.config_path(entity_type, "")
            for path, data, _ in self._store.subtree(root[:-1]):
                entity = path.removeprefix(root)
                self._take_over_client(entity_type, entity, decoded(entity, data))
        self._warn_of_what_is_not_served()

    def _warn_of_what_is_not_served(self) -> None:
        """Another Kafka may have put it into the store, and its operator may count on it."""
        if not self.layers.static.has_authorizer and any(
            acl_znodes.pattern_of(path) is not None
            for root in acl_znodes.PATTERN_TYPES.values()
            for path, _, _ in self._store.subtree(root)
        ):
            logger.warning(
                "the store has access control lists, which bind nobody: authorizer.class.name is "
                "not set"
            )

    def follow(self, topics: TopicImages) -> None:
        """Learns of topics that are created with overrides, and forgets those deleted."""
        self._topics = topics
        topics.on_change(self._topic_changed)

    def follow_cluster(self, topics: TopicImages) -> None:
        """Forgets topics that are deleted; overrides are read from the store (`learn_topics`)."""
        self._announces = True
        self._topics = topics
        topics.on_change(self._cluster_topic_changed)

    async def learn_topics(self, names: Iterable[str]) -> None:
        """Reads the overrides of topics that are not known yet.

        Those of a topic without an image are of another that had its name and was deleted unseen.
        """
        assert self._topics is not None
        for name in names:
            if name not in self._overrides or name not in self._topics.topics:
                try:
                    await self.topic_announced(name)
                except StoreError as error:
                    raise not_read(error) from error

    # What is announced raises StoreError if the store cannot be read, and is announced again then.

    async def topic_announced(self, name: str) -> None:
        """The overrides of a topic have changed elsewhere, or are not known yet."""
        texts = (await self._now("topics", name)).texts
        if texts == self._overrides.get(name):
            return
        is_known = name in self._overrides
        self._overrides[name] = texts
        self._log_configs.pop(name, None)
        if is_known or texts:
            for listener in self._topic_listeners:
                listener(name)

    async def broker_announced(self, name: str) -> None:
        """The overrides of one broker, or of all, have changed elsewhere."""
        if name in (znodes.DEFAULT_ENTITY, str(self._broker_id)):
            await self._changes.in_turn(self._take_over(name))

    async def group_announced(self, entity: str) -> None:
        """The overrides of a group have changed elsewhere."""
        stored = await self._now("groups", entity)
        name = unquote(entity)
        before = self._group_configs.get(name)
        self._take_over_group(name, stored.texts)
        if self._group_configs.get(name) != before:
            for listener in self._group_listeners:
                listener(name)

    async def subscription_announced(self, entity: str) -> None:
        """A subscription to metrics of clients has changed elsewhere."""
        stored = await self._now(CLIENT_METRICS, entity)
        self._take_over_subscription(unquote(entity), stored.texts)

    async def client_announced(self, entity_type: str, entity: str) -> None:
        """What is kept of a user, a client or an address has changed elsewhere."""
        self._take_over_client(entity_type, entity, (await self._now(entity_type, entity)).texts)

    async def read_anew(self) -> None:
        """Everything: this broker may have been away for longer than changes stay announced."""
        for name in (znodes.DEFAULT_ENTITY, str(self._broker_id)):
            await self.broker_announced(name)
        # One that has no overrides any more is deleted, of which the controller tells.
        for name in self._overrides.keys() & set(await self._names("topics")):
            await self.topic_announced(name)
        for entity in {*await self._names("groups"), *map(quoted, self._group_configs)}:
            await self.group_announced(entity)
        for entity in {*await self._names(CLIENT_METRICS), *map(quoted, self.subscriptions)}:
            await self.subscription_announced(entity)
        for entity_type, entity in await self._clients():
            await self.client_announced(entity_type, entity)

    async def _clients(self) -> set[tuple[str, str]]:
        """Users, clients and addresses that something is kept of, here or in the store."""
        found = {entity.node for entity, _ in self.quota_limits.all()}
        found |= {("users", znodes.sanitized(name)) for name in self._scram_credentials.users()}
        for entity_type in ("users", "clients", "ips"):
            found |= {(entity_type, name) for name in await self._names(entity_type)}
        for user in await self._names("users"):
            names = await self._names(f"users/{user}/clients")
            found |= {("users", f"{user}/clients/{name}") for name in names}
        return found

    async def _names(self, folder: str) -> list[str]:
        try:
            return await self._store.children(znodes.config_path(folder, "")[:-1])
        except NoNode:
            return []

    def _take_over_client(self, entity_type: str, entity: str, texts: Texts) -> None:
        of = QuotaEntity.of_node(entity_type, entity)
        if of is None:
            return
        if entity_type == "users" and "/" not in entity:
            self._scram_credentials.take_over(znodes.desanitized(entity), texts)
        self._use_quotas(of, texts)

    def _use_quotas(self, entity: QuotaEntity, texts: Texts) -> None:
        if self.quota_limits.take_over(entity, texts) and "ip" in dict(entity.parts):
            for listener in self._ip_quota_listeners:
                listener()

    def on_ip_quota_change(self, listener: Callable[[], None]) -> None:
        self._ip_quota_listeners.append(listener)

    async def alter_quotas(
        self, entity: QuotaEntity, edit: Edit, *, validate_only: bool = False
    ) -> None:
        """KafkaError if it fails, or what `edit` raises."""
        await self._changes.in_turn(self._alter_quotas(entity, edit, validate_only))

    async def _alter_quotas(self, entity: QuotaEntity, edit: Edit, validate_only: bool) -> None:
        entity_type, name = entity.node
        while True:
            stored = await self._read(entity_type, name)
            texts = edit(stored.texts)
            if validate_only:
                return
            if texts == stored.texts:
                self._use_quotas(entity, texts)
                return
            if await self._write_quotas(entity_type, name, texts, stored.version):
                break
        self._use_quotas(entity, texts)
        logger.info(
            "quotas changed", extra={"event": "quotas-changed", "entity": f"{entity_type}/{name}"}
        )

    def scram_credential_or_none(
        self, mechanism: ScramMechanism, user: str
    ) -> ScramCredential | None:
        return self._scram_credentials.get(mechanism, user)

    async def describe_user(self, name: str) -> Texts:
        return (await self._read("users", znodes.sanitized(name))).texts

    async def users(self) -> list[str]:
        """All that something is kept of."""
        try:
            return sorted(map(znodes.desanitized, await self._store.children(znodes.USER_CONFIGS)))
        except NoNode:
            return []
        except StoreError as error:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"The users cannot be read: {error}"
            ) from error

    async def alter_user(self, name: str, edit: Edit) -> None:
        """KafkaError if it fails, or what `edit` raises."""
        await self._changes.in_turn(self._alter_user(name, edit))

    async def _alter_user(self, name: str, edit: Edit) -> None:
        entity = znodes.sanitized(name)
        while True:
            stored = await self._read("users", entity)
            texts = edit(stored.texts)
            if await self._write_plain("users", entity, texts, stored.version):
                break
        self._scram_credentials.take_over(name, texts)
        logger.info("SCRAM credentials changed", extra={"user": name})

    def _take_over_group(self, name: str, texts: Texts) -> None:
        try:
            self._use_group(name, texts)
        except ConfigError as error:
            logger.warning("overrides of a group left out: %s", error, extra={"group": name})
            self._group_configs.pop(name, None)

    def _use_group(self, name: str, texts: Texts) -> None:
        if texts:
            self._group_configs[name] = group_config(self.broker_config, texts)
        else:
            self._group_configs.pop(name, None)

    async def _take_over(self, name: str) -> None:
        per_broker = name != znodes.DEFAULT_ENTITY
        stored = await self._now("brokers", name)
        texts = self._usable_broker_texts(stored.texts, per_broker=per_broker)
        layers = self._layers_of(texts, per_broker=per_broker)
        self._replace_layers(layers)
        for listener in self._broker_listeners:
            listener(layers.effective)

    def _layers_of(self, texts: Texts, *, per_broker: bool) -> BrokerLayers:
        """Those of now, with these texts for this broker or for all."""
        old = self.layers
        if per_broker:
            return BrokerLayers(old.static, old.dynamic_default, texts)
        return BrokerLayers(old.static, texts, old.dynamic_broker)

    async def _read(self, entity_type: str, name: str) -> StoredTexts:
        try:
            return await self._now(entity_type, name)
        except StoreError as error:
            raise not_read(error) from error

    async def _now(self, entity_type: str, name: str) -> StoredTexts:
        """StoreError if it cannot be read."""
        try:
            data, stat = await self._store.get(znodes.config_path(entity_type, name))
        except NoNode:
            return StoredTexts({}, None)
        return StoredTexts(decoded(name, data), stat.version)

    def _announcement(self, entity_type: str, name: str) -> list[Operation]:
        if not self._announces:
            return []
        data = znodes.encode_config_change(entity_type, name)
        return [Create(znodes.CONFIG_CHANGE, data, sequence=True, make_parents=True)]

    def on_topic_change(self, listener: Callable[[str], None]) -> None:
        """To be told the name of a topic whose overrides have changed."""
        self._topic_listeners.append(listener)

    def on_group_change(self, listener: Callable[[str], None]) -> None:
        """To be told the name of a group whose overrides have changed."""
        self._group_listeners.append(listener)

    def groups_with_overrides(self) -> Iterable[str]:
        return tuple(self._group_configs)

    def group_config_or_none(self, name: str) -> GroupConfig | None:
        """None for a group without overrides."""
        return self._group_configs.get(name)

    async def describe_group(self, name: str) -> list[Entry]:
        stored = await self._read("groups", quoted(name))
        known = {k: text for k, text in stored.texts.items() if k in GROUP_TABLE}
        return self.layers.describe_group(known)

    async def alter_group(self, name: str, edit: Edit, *, validate_only: bool = False) -> None:
        """Raises ConfigError if the edited overrides are not valid, KafkaError if it fails."""
        await self._changes.in_turn(self._alter_group(name, edit, validate_only))

    async def _alter_group(self, name: str, edit: Edit, validate_only: bool) -> None:
        entity = quoted(name)
        while True:
            stored = await self._read("groups", entity)
            texts = edit(stored.texts)
            group_config(self.broker_config, texts)
            if validate_only:
                return
            if await self._write_plain("groups", entity, texts, stored.version):
                break
        self._use_group(name, texts)
        logger.info(
            "group configuration changed",
            extra={"event": "group-config-changed", "group": name, "overrides": texts},
        )
        for listener in self._group_listeners:
            listener(name)

    def _take_over_subscription(self, name: str, texts: Texts) -> None:
        try:
            self._use_subscription(name, texts)
        except (ConfigError, KafkaError) as error:
            logger.warning(
                "a subscription to metrics of clients left out: %s",
                error,
                extra={"subscription": name},
            )
            self._use_subscription(name, {})

    def _use_subscription(self, name: str, texts: Texts) -> None:
        made = subscription(texts) if texts else None
        if made == self.subscriptions.get(name):
            return
        others = {k: each for k, each in self.subscriptions.items() if k != name}
        self.subscriptions = others if made is None else {**others, name: made}

    async def describe_subscription(self, name: str) -> list[Entry]:
        stored = await self._read(CLIENT_METRICS, quoted(name))
        known = {k: text for k, text in stored.texts.items() if k in CLIENT_METRICS_TABLE}
        return describe_subscription(known)

    async def alter_subscription(
        self, name: str, edit: Edit, *, validate_only: bool = False
    ) -> None:
        """Raises ConfigError or KafkaError as `alter_group` does."""
        await self._changes.in_turn(self._alter_subscription(name, edit, validate_only))

    async def _alter_subscription(self, name: str, edit: Edit, validate_only: bool) -> None:
        entity = quoted(name)
        while True:
            stored = await self._read(CLIENT_METRICS, entity)
            texts = edit(stored.texts)
            subscription(texts)
            if validate_only:
                return
            if await self._write_subscription(entity, texts, stored.version):
                break
        self._use_subscription(name, texts)
        logger.info(
            "subscription to metrics of clients changed",
            extra={
                "event": "client-metrics-config-changed",
                "subscription": name,
                "overrides": texts,
            },
        )

    async def _write_subscription(self, entity: str, texts: Texts, version: int | None) -> bool:
        """One without settings is no subscription, and its node goes."""
        if texts:
            return await self._write_plain(CLIENT_METRICS, entity, texts, version)
        if version is None:
            return True
        try:
            path = znodes.config_path(CLIENT_METRICS, entity)
            return await self._write(CLIENT_METRICS, entity, [Delete(path, version)])
        except NoNode:
            return False

    def on_broker_change(self, listener: Callable[[BrokerConfig], None]) -> None:
        """To be told the broker's new configuration; the configuration of topics follows it."""
        self._broker_listeners.append(listener)

    def topic_overrides(self, name: str) -> Texts:
        overrides = self._overrides.get(name)
        if overrides is None and self._topics is not None:
            image = self._topics.topics.get(name)
            return image.configs if image is not None else {}
        return overrides or {}

    def log_config(self, topic: str) -> LogConfig:
        overrides = self.topic_overrides(topic)
        if not overrides:
            return self._default_log_config
        config = self._log_configs.get(topic)
        if config is None:
            usable = self._usable_overrides(topic, overrides)
            config = self._log_configs[topic] = log_config(self.broker_config, usable)
        return config

    async def describe_topic(self, name: str) -> list[Entry]:
        """As the store has it: of a topic that is hosted elsewhere no more may be known here."""
        stored = await self._read("topics", name)
        return self.layers.describe_topic(self._usable_overrides(name, stored.texts))

    async def alter_topic(self, name: str, edit: Edit, *, validate_only: bool = False) -> None:
        """Raises ConfigError if the edited overrides are not valid, KafkaError if it fails."""
        await self._changes.in_turn(self._alter_topic(name, edit, validate_only))

    async def alter_broker(
        self, broker_id: int | None, edit: Edit, *, validate_only: bool = False
    ) -> None:
        """None stands for all brokers. Raises ConfigError or KafkaError as `alter_topic` does."""
        await self._changes.in_turn(self._alter_broker(broker_id, edit, validate_only))

    async def _alter_topic(self, name: str, edit: Edit, validate_only: bool) -> None:
        while True:
            stored = await self._read("topics", name)
            overrides = edit(stored.texts)
            usable = self._usable_overrides(name, stored.texts)
            log_config(self.broker_config, without_carried(overrides, stored.texts, usable))
            if self._topics is not None and name not in self._topics.topics:
                raise unknown_topic(name)
            if validate_only:
                return
            if await self._write_topic(name, overrides, stored.version):
                break
        self._overrides[name] = overrides
        self._log_configs.pop(name, None)
        logger.info(
            "topic configuration changed",
            extra={"event": "topic-config-changed", "topic": name, "overrides": overrides},
        )
        for listener in self._topic_listeners:
            listener(name)

    async def _alter_broker(self, broker_id: int | None, edit: Edit, validate_only: bool) -> None:
        name = znodes.DEFAULT_ENTITY if broker_id is None else str(broker_id)
        while True:
            stored = await self._read("brokers", name)
            texts = edit(stored.texts)
            layers = self._layers_with(broker_id, texts, stored.texts)
            await must_find_hosts(self.broker_config, layers.effective)
            await self.must_be_usable(layers.effective)
            if validate_only:
                return
            if await self._write_plain("brokers", name, texts, stored.version):
                break
        self._replace_layers(layers)
        logger.info(
            "broker configuration changed",
            extra={"event": "broker-config-changed", "broker": name, "overrides": texts},
        )
        for listener in self._broker_listeners:
            listener(layers.effective)

    def _layers_with(self, broker_id: int | None, texts: Texts, before: Texts) -> BrokerLayers:
        """Raises ConfigError or KafkaError if the texts may not follow those before."""
        per_broker = broker_id is not None
        usable = self._usable_broker_texts(before, per_broker=per_broker)
        texts = without_carried(texts, before, usable)
        must_be_dynamic(texts, per_broker=per_broker)
        layers = self._layers_of(texts, per_broker=per_broker)
        if per_broker:
            changed = {name for name, text in texts.items() if before.get(name) != text}
            must_be_read_by_a_listener(layers.effective, changed)
        log_config(layers.effective, {})
        must_keep_cleaning(self.broker_config, layers.effective)
        return layers

    async def _write_topic(self, name: str, overrides: Texts, version: int | None) -> bool:
        """Writes only while the topic exists: its deletion takes the overrides along."""
        path, topic = znodes.config_path("topics", name), Check(znodes.topic_path(name))
        try:
            return await self._write("topics", name, [topic, write_of(path, overrides, version)])
        except NoNode:
            raise unknown_topic(name) from None

    async def _write_plain(
        self, entity_type: str, name: str, texts: Texts, version: int | None
    ) -> bool:
        path = znodes.config_path(entity_type, name)
        try:
            return await self._write(entity_type, name, [write_of(path, texts, version)])
        except NoNode:
            return False

    async def _write_quotas(
        self, entity_type: str, name: str, texts: Texts, version: int | None
    ) -> bool:
        """As Kafka does, nodes that nothing is left of are removed."""
        if texts or version is None:
            return await self._write_plain(entity_type, name, texts, version)
        try:
            path = znodes.config_path(entity_type, name)
            if not await self._write(entity_type, name, [Delete(path, version)]):
                return False
        except NoNode:
            return False
        except NotEmpty:
            return await self._write_plain(entity_type, name, texts, version)
        user, slash, _ = name.partition("/")
        if slash:
            await self._remove_empty_user(user)
        return True

    async def _remove_empty_user(self, user: str) -> None:
        path = znodes.config_path("users", user)
        with contextlib.suppress(NoNode, NotEmpty, BadVersion, StoreUnavailable):
            await self._store.delete(f"{path}/clients")
            stored = await self._read("users", user)
            if not stored.texts and stored.version is not None:
                await self._store.delete(path, stored.version)

    async def _write(self, entity_type: str, name: str, operations: list[Operation]) -> bool:
        """Whether the node was still as it was read."""
        try:
            await self._store.multi([*operations, *self._announcement(entity_type, name)])
        except (BadVersion, NodeExists):
            return False
        except (StoreUnavailable, StoreClosed) as error:
            raise not_written() from error
        return True

    def _replace_layers(self, layers: BrokerLayers) -> None:
        self.layers = layers
        self._default_log_config = log_config(layers.effective, {})
        self._log_configs.clear()

    def _topic_changed(self, change: TopicChange, image: TopicImage) -> None:
        if change is not TopicChange.PARTITIONS_ADDED:
            self._overrides.pop(image.name, None)
            self._log_configs.pop(image.name, None)

    def _cluster_topic_changed(self, change: TopicChange, image: TopicImage) -> None:
        if change is TopicChange.DELETED:
            self._overrides.pop(image.name, None)
            self._log_configs.pop(image.name, None)

    def _stored(self, entity_type: str) -> list[tuple[str, dict[str, str]]]:
        root = znodes.config_path(entity_type, "")[:-1]
        found: list[tuple[str, dict[str, str]]] = []
        for path, data, _ in self._store.subtree(root):
            if path == root or not data or data.endswith(b'"config":{}}'):
                continue
            try:
                found.append((path.rpartition("/")[2], znodes.decode_config(data)))
            except ValueError:
                logger.warning("configuration left out: not readable", extra={"path": path})
        return found

    def _usable_overrides(self, topic: str, overrides: Texts) -> dict[str, str]:
        usable, errors = usable_of(overrides, partial(log_config, self.broker_config))
        for error in errors.values():
            logger.warning("override left out: %s", error, extra={"topic": topic})
        return usable

    def _usable_broker_texts(self, texts: Texts, *, per_broker: bool) -> dict[str, str]:
        """What can hold of them, together with the other layer of now."""

        def must_be_valid(texts: Texts) -> None:
            must_be_dynamic(texts, per_broker=per_broker)
            self._layers_of(texts, per_broker=per_broker)

        usable, errors = usable_of(texts, must_be_valid)
        for name, error in errors.items():
            logger.warning("broker override left out: %s", error, extra={"key": name})
        return usable


def usable_of(
    texts: Texts, must_be_valid: Callable[[Texts], object]
) -> tuple[dict[str, str], dict[str, ConfigError | KafkaError]]:
    """What can hold of stored texts, and why the others cannot. A text may need others, in whatever
    order they are stored."""
    try:
        must_be_valid(texts)
    except (ConfigError, KafkaError):
        pass
    else:
        return dict(texts), {}
    usable: dict[str, str] = {}
    errors: dict[str, ConfigError | KafkaError] = {}
    left = dict(texts)
    for _ in texts:  # each round takes at least one, or is the last
        before = len(left)
        for name, text in list(left.items()):
            try:
                must_be_valid({**usable, name: text})
            except (ConfigError, KafkaError) as error:
                errors[name] = error
            else:
                usable[name] = left.pop(name)
        if len(left) == before:
            break
    return usable, {name: errors[name] for name in left}


async def _anything_is(_: BrokerConfig) -> None:
    pass


def decoded(name: str, data: bytes) -> dict[str, str]:
    try:
        return znodes.decode_config(data)
    except ValueError:
        logger.warning("configuration left out: not readable", extra={"entity": name})
        return {}


def quoted(group_id: str) -> str:
    """The name of its node: a group id may hold anything, a slash too, or be nothing but dots."""
    return quote(group_id, safe="").replace(".", "%2E")


def without_carried(texts: Texts, before: Texts, usable: Texts) -> dict[str, str]:
    """Without what was of no use here before and has not changed."""
    return {k: text for k, text in texts.items() if k in usable or before.get(k) != text}


def write_of(path: str, texts: Texts, version: int | None) -> Operation:
    data = znodes.encode_config(texts)
    if version is None:
        return Create(path, data, make_parents=True)
    return SetData(path, data, version)


def unknown_topic(name: str) -> KafkaError:
    return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")


def not_read(error: StoreError) -> KafkaError:
    return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"The configuration cannot be read: {error}")


def not_written() -> KafkaError:
    return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "The configuration could not be written.")
