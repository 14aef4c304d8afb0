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
    lag                  how far a query is behind its topics, for any PySpark program
    topics               topics that a job needs, made where they are not there
    executor             a task's reading of one range, and what a worker keeps from task to task
    writer               Spark's interfaces for writing, and which columns can be written
    batch_commit         how a driver commits a micro-batch exactly once
    sink_ledger          what that needs of a cluster: fencing, markers, the tasks' transactions
    task_slots           transactional ids of tasks
    shipped              whether a package of tidelog fits the Python that runs it
    log_reader           Spark's interface for reading segment files without a broker
    log_planning         which slices of which segment files a query reads
    log_directory        the files of a data directory, found and measured

Only the modules that implement Spark's interfaces import pyspark. Nothing here imports a package
of the broker.
"""

from tidelog.spark.shipped import require_fitting_here

require_fitting_here()
