"""What a start does about moves between log directories that a crash has cut off.

    in the old directory     in the new one          then
    the log                  a copy                  the move goes on
    the log                  the log, `replaces`     the old one is deleted: the new one is complete
    no log                   a copy, `replaces`      the copy becomes the log
    no log                   a copy                  left alone

Only a folder whose file `replaces` names the other one wins: two logs of one partition that came
about otherwise (a restored backup, say) are nobody's to decide but the operator's. If the old
directory cannot be read, nothing is decided at all.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping

from tidelog.log.future_log import forget_replaced, replaced_folder
from tidelog.log.index_file import fsync_path
from tidelog.log.log_directory import DELETE_SUFFIX, Folders, LogDirectory
from tidelog.types import TopicPartition

logger = logging.getLogger(__name__)


def finish_interrupted_moves(
    found: Mapping[LogDirectory, Folders], new_unique: Callable[[], str]
) -> None:
    """Rename what has to be renamed on disk, and in `found` as well."""
    homes: dict[TopicPartition, LogDirectory] = {}
    for directory, folders in found.items():
        for topic_partition in list(folders.partitions):
            other = homes.setdefault(topic_partition, directory)
            if other is not directory:
                this, that = (directory, folders), (other, found[other])
                if _drop_replaced(topic_partition, this, that, new_unique):
                    homes[topic_partition] = directory
                else:
                    _drop_replaced(topic_partition, that, this, new_unique)
    by_path = {str(directory.path): directory for directory in found}
    for directory, folders in found.items():
        for topic_partition, folder in list(folders.futures.items()):
            if topic_partition in homes:
                continue
            replaced = replaced_folder(folder)
            if replaced is not None and os.path.dirname(replaced) in by_path:
                _promote(topic_partition, directory, folders)


def _drop_replaced(
    topic_partition: TopicPartition,
    new: tuple[LogDirectory, Folders],
    old: tuple[LogDirectory, Folders],
    new_unique: Callable[[], str],
) -> bool:
    directory, folders = new
    old_directory, old_folders = old
    folder, old_folder = (
        folders.partitions[topic_partition],
        old_folders.partitions[topic_partition],
    )
    if replaced_folder(folder) != old_folder:
        return False
    fsync_path(str(directory.path))
    away = old_directory.marked_folder_for(topic_partition, new_unique(), DELETE_SUFFIX)
    os.rename(old_folder, away)
    fsync_path(str(old_directory.path))
    forget_replaced(folder)
    del old_folders.partitions[topic_partition]
    old_directory.partition_count -= 1
    old_folders.deleted.append(away)
    logger.warning("%s has moved to %s: what is left in %s goes", topic_partition, folder, away)
    return True


def _promote(topic_partition: TopicPartition, directory: LogDirectory, folders: Folders) -> None:
    folder = directory.folder_for(topic_partition)
    os.rename(folders.futures.pop(topic_partition), folder)
    fsync_path(str(directory.path))
    forget_replaced(folder)
    folders.partitions[topic_partition] = folder
    logger.warning("%s had all but moved: it is in %s now", topic_partition, folder)
