"""Declared pipelines: topics in, SQL or Python in between, topics, Parquet or the console out, run
by Spark Structured Streaming through `format("tidelog")`.

A pipeline is a folder with one file, `pipeline.toml`; docs/pipelines.md is the manual.

    declaration        what a pipeline is, as checked values
    declaration_file   pipeline.toml to a declaration, or every problem with its line
    toml_lines         on which line of a TOML text a key stands
    problems           errors that name file, line and fix
    example            the commented example that `init` writes, which is also what the demo runs
    spark_session      whether Spark can run here, and a session without its noise
    formats            Spark columns for JSON, CSV, raw, Avro and Protobuf, and why a row is broken
    record_codecs      Avro and Protobuf to JSON text and back, inside Python workers
    frames             a declaration as DataFrames, streaming or batch
    queries            sinks as running streaming queries
    spark_errors       Spark's errors as one line with a place in the file
    plan_report        what `validate` shows
    figures            live figures out of Spark's progress reports
    interruption       signals as one KeyboardInterrupt
    table_reader       values of one TOML table, by key and type
    terminal           lines that redraw themselves
    topics             topics that a pipeline needs, made where they are not there

Only `spark_session`, `formats`, `frames`, `queries`, `plan_report` and `spark_errors` need pyspark,
and they import it when it is used. Nothing here imports a package of the broker.
"""
