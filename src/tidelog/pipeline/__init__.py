"""Declared pipelines: topics in, SQL or Python in between, topics, Parquet or the console out, run
by Spark Structured Streaming through `format("tidelog")`.

A pipeline is a folder with one file, `pipeline.toml`; docs/pipelines.md is the manual.

    declaration/    what a pipeline is, read from its file
    frames/         the declaration as DataFrames
    queries/        the streaming queries: checkpoint, plan, start, failures, status
    console/        what people see on a terminal
    topics          topics that a pipeline needs, made where they are not there
    fixtures        `tidelog pipeline test`: records in, expected rows out
    package         one archive for Spark's workers that have no tidelog
    spark_session   whether Spark can run here, and a session without its noise
    spark_errors    Spark's errors as one line with a place in the file

Decoding, expectations, the making of topics and lag are functions of `tidelog.spark`, for programs
without a pipeline too.

Whatever needs pyspark imports it when it is used. Nothing here imports a package of the broker.
"""
