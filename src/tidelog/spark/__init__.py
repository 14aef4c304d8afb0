"""The Spark connector: `format("tidelog")` for PySpark, without a jar.

PySpark finds it by the top-level module `pyspark_tidelog`; nothing needs to be registered.
docs/spark.md is the manual; docs/design/0007-spark-connector.md and 0021 have the reasons.

    source               the DataSource class, what Spark meets first
    options              option texts to checked values, for the source and for the sink
    references           `${env:NAME}` and `${file:PATH}`: secrets that Spark never sees
    subscription         which partitions `assign`, `subscribe` and `subscribePattern` choose
    offsets              offsets of partitions as JSON, and what a query may start from and end at
    offset_ranges        ranges of offsets: what of them the logs hold, and how they become tasks
    offset_lookup        the driver's questions to the cluster
    reader               Spark's interfaces for reading topics, batch and streaming
    micro_batch_stream   where the batches of a streaming query begin and end
    group_commit         offsets shown to lag tools
    executor             a task's reading of one range, and what a worker keeps from task to task
    writer               Spark's interfaces for writing, and which columns can be written
    batch_commit         how a driver commits a micro-batch exactly once
    sink_ledger          what that needs of a cluster: fencing, markers, the tasks' transactions
    task_slots           transactional ids of tasks
    shipped              whether a package of tidelog fits the Python that runs it
    log_reader           Spark's interface for reading segment files without a broker
    log_planning         which slices of which segment files a query reads
    log_directory        the files of a data directory, found and measured

A library for any PySpark program, which `tidelog.pipeline` stands on too:

    topics               topics that a job needs, made where they are not there
    record_format        how the value of a record is written
    decoding             records into columns, and broken ones into dead letters
    encoding             columns into records
    expectations         what holds for every row, and what becomes of the others
    lag                  how far a query is behind its topics
    codecs/              Avro and Protobuf records as columns of Arrow; schemas by their id

Only the modules that implement Spark's interfaces import pyspark. Nothing here imports a package
of the broker.
"""

from tidelog.spark.shipped import require_fitting_here

require_fitting_here()
