"""Another broker that leads partitions and writes their markers when the test says so."""

from __future__ import annotations

from tidelog.pending import Pending
from tidelog.protocol.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

OTHER_BROKER = 2

Answer = Pending[WriteTxnMarkersResponse | None]


class SlowBroker:
    """The `OtherBrokers` of a MarkerWriter."""

    def __init__(self) -> None:
        self.asked: list[tuple[WriteTxnMarkersRequest, Answer]] = []

    def leader_of(self, topic: str, index: int) -> int | None:
        return OTHER_BROKER

    def write_markers(self, broker_id: int, request: WriteTxnMarkersRequest) -> Answer:
        answer: Answer = Pending()
        self.asked.append((request, answer))
        return answer

    def answer(self, place: int = -1) -> None:
        """The markers of this request are written."""
        request, answer = self.asked[place]
        answer.complete(
            WriteTxnMarkersResponse(
                markers=[
                    WritableTxnMarkerResult(
                        producer_id=marker.producer_id,
                        topics=[
                            WritableTxnMarkerTopicResult(
                                name=topic.name,
                                partitions=[
                                    WritableTxnMarkerPartitionResult(partition_index=index)
                                    for index in topic.partition_indexes
                                ],
                            )
                            for topic in marker.topics
                        ],
                    )
                    for marker in request.markers
                ]
            )
        )

    def lose(self, place: int = -1) -> None:
        """No answer is to be had."""
        self.asked[place][1].complete(None)
