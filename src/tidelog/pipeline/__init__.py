"""Declared pipelines: topics in, SQL or Python in between, topics, Parquet or the console out, run
by Spark Structured Streaming through `format("tidelog")`.

A pipeline is a folder with one file, `pipeline.toml`; docs/pipelines.md is the manual.

    declaration        what a pipeline is, as checked values; errors that name file, line and fix
    declaration_file   pipeline.toml to a declaration, or every problem with its line
    declared_references   `${env:NAME}` and `${file:PATH}` in the file
    toml_table         values of one TOML table, by key and type, with their lines
    example            the commented example that `init` writes, which is also what the demo runs
    topics             topics that a pipeline needs, made where they are not there
    package            one archive for Spark's workers that have no tidelog
    spark_session      whether Spark can run here, and a session without its noise
    dataframes         a declaration as DataFrames, streaming or batch
    formats            Spark columns for JSON, CSV, raw, Avro and Protobuf, and why a row is broken
    record_codecs      Avro and Protobuf to JSON text and back, inside Python workers
    queries            sinks as running streaming queries, and how far they are
    spark_errors       Spark's errors as one line with a place in the file
    plan_report        what `validate` shows
    terminal           lines that redraw themselves

Only `spark_session`, `formats`, `dataframes`, `queries`, `plan_report` and `spark_errors` need
pyspark, and they import it when it is used. Nothing here imports a package of the broker.
"""
