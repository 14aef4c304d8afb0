"""The producer: records in, deliveries out.

async_producer.py        AsyncProducer, which the blocking Producer stands on too
accumulator.py           batches that gather records (batch.py), within buffer.memory
                         (buffer_pool.py), chosen by partitioners.py, the large ones compressed
                         by compression_threads.py
sender.py                requests and their answers; the only module here that does I/O
transaction_manager.py   producer id, epochs, transactions; its requests and their answers in
                         transaction_requests.py, the sequences of a partition in sequences.py
arrow_rows.py            Arrow tables as batches
delivery.py              what `send` gives back
"""
