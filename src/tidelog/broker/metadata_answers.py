"""Encoded Metadata answers, kept while the cluster stays as it is.

Most clients of a broker ask for the same topics and get the same bytes, which cost more to make
than all else about the request. An answer is found by everything in the request that it depends
on: the bytes of the body, the version, and the listener by which clients are told of brokers.
Everything in the broker that it depends on is in `MetadataCache.revision`; with another revision
all answers go.

Only plain answers are kept: every topic is there, every partition has a leader, nothing was
created. All others are made anew each time. The dispatcher keeps no answers if it is given an
authorizer, since they would depend on the principal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from tidelog.broker.bulky_answers import EncodedAnswer
from tidelog.pending import Pending

if TYPE_CHECKING:
    from tidelog.broker.context import Answer
    from tidelog.broker.metadata_cache import MetadataCache
    from tidelog.protocol.messages.metadata import MetadataResponse

KEPT_MAX: Final = 64
REQUEST_BYTES_MAX: Final = 1024
ANSWER_BYTES_MAX: Final = 8 * 1024

# Version, listener name, body of the request.
Question: TypeAlias = tuple[int, str, bytes]


class MetadataAnswers:
    """Touched only on the broker's loop."""

    def __init__(self, metadata: MetadataCache) -> None:
        self._metadata = metadata
        self._revision: int | None = None  # of all answers kept
        self._kept: dict[Question, EncodedAnswer] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, question: Question) -> EncodedAnswer | None:
        revision = self._metadata.revision
        if revision is None or revision != self._revision:
            self._kept.clear()
            self._revision = revision
            return None
        return self._kept.get(question)

    def maybe_keep(
        self, question: Question, answer: Answer | Pending[Answer]
    ) -> Answer | Pending[Answer]:
        """The answer, encoded if it is kept. Called in the turn of the loop that made it, after
        `get` found none.
        """
        from tidelog.protocol.messages.metadata import MetadataResponse

        version, _, body = question
        if (
            not isinstance(answer, MetadataResponse)
            or len(body) > REQUEST_BYTES_MAX
            or self._revision is None
            or self._revision != self._metadata.revision
            or not _is_plain(answer)
        ):
            return answer
        data = answer.encode(version)
        encoded = EncodedAnswer(data)
        if len(data) <= ANSWER_BYTES_MAX:
            if len(self._kept) >= KEPT_MAX:
                self._kept.clear()
            self._kept[question] = encoded
        return encoded


def _is_plain(answer: MetadataResponse) -> bool:
    return not answer.error_code and not any(
        topic.error_code or any(partition.error_code for partition in topic.partitions)
        for topic in answer.topics
    )
