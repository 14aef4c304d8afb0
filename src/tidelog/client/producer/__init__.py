"""The producer: records in, deliveries out.

async_producer.py        AsyncProducer, which the blocking Producer stands on too
accumulator.py           batches that gather records (batch.py), within buffer.memory
                         (buffer_pool.py), chosen by partitioners.py, the large ones compressed
                         by compression_threads.py
sender.py                requests and their answers; the only module here that does I/O
sequences.py             the sequences of an idempotent producer, and when its epoch is bumped
transaction_manager.py   producer id and transactions; its requests and their answers in
                         transaction_requests.py
arrow_rows.py            Arrow tables as batches
delivery.py              what `send` gives back

Order. The records of a partition are written in the order in which `send` returned them, over all
retries, if the producer is idempotent or max.in.flight.requests.per.connection is 1. This rests on
four rules:
1. Only the first batch of a partition's queue is drained, once it is closed and compressed.
2. A batch gets its sequence when it is first drained and keeps it, so the broker refuses one that
   arrives before its predecessor. A bumped epoch renumbers the batches in flight in their order.
3. A batch that comes back goes before everything that was drained after it or never, and of the
   batches in flight only the first is sent again.
4. From the first batch in flight to the last that was ever sent there are at most five, because the
   broker knows no more of them again.
Without idempotence the sender mutes a partition while a batch of it is in flight, if only one
request may be. With more requests, a retry may overtake, as in Kafka.
"""
