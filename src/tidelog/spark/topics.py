"""Topics that a Spark job needs, made where they are not there; for any PySpark program.

It takes the options that `format("tidelog")` takes, so a job has one dictionary for both.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from tidelog.errors import ErrorCode
from tidelog.spark.options import OptionTexts
from tidelog.spark.references import resolved

if TYPE_CHECKING:
    from tidelog.client.admin.topics import NewTopic
    from tidelog.client.blocking.admin import Admin
    from tidelog.client.errors import ClientError


def create_missing_topics(
    options: Mapping[str, str],
    partitions: Mapping[str, int | None],
    *,
    replication_factor: int | None = None,
    configs: Mapping[str, str] | None = None,
) -> list[str]:
    """Creates each topic that is not there with so many partitions, and returns the names of those
    it made. Topics that are there stay as they are. None leaves a number to the broker. `options`
    are kafka.bootstrap.servers and other kafka.* options. Raises ClientError."""
    from tidelog.client.blocking.admin import Admin
    from tidelog.config.client import AdminConfig

    given = {
        name: resolved(text)
        for name, text in OptionTexts(options).kafka().items()
        if name in AdminConfig.TABLE
    }
    with Admin(given) as admin:
        there = {row.name for row in admin.list_topics(include_internal=True)}
        made, refused = create_topics(
            admin,
            [
                new_topic(name, count, replication_factor, configs or {})
                for name, count in partitions.items()
                if name not in there
            ],
        )
    for problem in refused.values():
        raise problem
    return made


def new_topic(
    name: str, partitions: int | None, replication_factor: int | None, configs: Mapping[str, str]
) -> NewTopic:
    from tidelog.client.admin.topics import LEFT_TO_BROKER, NewTopic

    return NewTopic(
        name,
        LEFT_TO_BROKER if partitions is None else partitions,
        LEFT_TO_BROKER if replication_factor is None else replication_factor,
        configs=dict(configs),
    )


def create_topics(
    admin: Admin, topics: Collection[NewTopic]
) -> tuple[list[str], dict[str, ClientError]]:
    """The names of those that were made, and why others were not; somebody else may have made one
    meanwhile, which is neither."""
    made, refused = [], {}
    for name, result in (admin.create_topics(topics) if topics else {}).items():
        if result.error is None:
            made.append(name)
        elif result.error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
            refused[name] = result.error
    return made, refused
