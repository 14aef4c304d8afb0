"""Declared pipelines: topics in, SQL or Python in between, topics, Parquet or the console out, run
by Spark Structured Streaming through `format("tidelog")`.

A pipeline is a folder with one file, `pipeline.toml`; docs/pipelines.md is the manual.

    declaration        what a pipeline is, as checked values; errors that name file, line and fix
    declaration_file   pipeline.toml to a declaration, or every problem with its line
    declared_references   `${env:NAME}` and `${file:PATH}` in the file
    toml_table         values of one TOML table, by key and type, with their lines
    example            the commented example that `init` writes, which is also what the demo runs
    topics             topics that a pipeline needs, made where they are not there
    checkpoint         folders of the queries, and the record of what made them
    restart_plan       what starting on a checkpoint would do to each query
    package            one archive for Spark's workers that have no tidelog
    spark_session      whether Spark can run here, and a session without its noise
    dataframes         a declaration as DataFrames, streaming or batch
    python_views       views that are functions of Python files, and what these import
    formats            Spark columns for JSON, CSV, raw, Avro and Protobuf, and why a row is broken
    record_codecs      Avro and Protobuf as columns of Spark, decoded and encoded in Python workers
    codecs/            the records themselves, as columns of Arrow; schemas by their id
    sink_rows          what a sink writes: keys and values, or columns
    query_layout       which queries there are, and which sinks share one
    query_start        the queries started, each on its folder of the checkpoint
    topic_writer       rows of a batch to topics, for shared queries and update mode
    queries            queries while they run and fail, and how far they are
    run_status         what a running pipeline tells other processes
    progress_table     what `run` shows
    spark_errors       Spark's errors as one line with a place in the file
    plan_report        what `validate` shows
    terminal           lines that redraw themselves

Whatever needs pyspark imports it when it is used. Nothing here imports a package of the broker.
"""
