"""The Spark connector: `format("tidelog")` for PySpark, without a jar.

PySpark finds it by the top-level module `pyspark_tidelog`; nothing needs to be registered.
docs/spark.md is the manual, docs/design/0007-spark-connector.md the reasons.

    source           the DataSource class, what Spark meets first
    options          option texts to checked values, for the source and for the sink
    offsets          offsets of partitions as JSON, and what a query may start from and end at
    subscription     which partitions `assign`, `subscribe` and `subscribePattern` choose
    planning         ranges of offsets into tasks
    admission        how much one micro-batch takes
    data_loss        what happens when records are gone: an error or a warning
    offset_reader    the driver's questions to the cluster
    range_reader     the executor's reading of one range
    ranges           wanted offsets against those the logs hold
    stream_state     where the batches of a streaming query begin and end
    process_cluster, process_assembler           connections and buffers kept from task to task
    reader, stream_reader, writer, log_reader    Spark's interfaces
    sink_schema      which columns can be written
    group_commit     offsets shown to lag tools
    log_directory, log_planning, log_slice       segment files read without a broker

Only the modules that implement Spark's interfaces import pyspark. Nothing here imports a package
of the broker.
"""
