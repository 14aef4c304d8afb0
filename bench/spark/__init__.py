"""Spark's own Kafka connector and tidelog's, side by side in one Spark.

    environment    a virtual environment of pyspark 4.2.0 and the official connector's jars
    plain_source   sources that decode nothing: the transport ceiling and the micro-batch floor
    record_formats the same orders in JSON, Avro and Protobuf
    reader         one task of a read without Spark
    workload       what is timed; runs inside that environment, one Spark session
    pipeline_workload   a declared pipeline beside the same query by hand
    stage          the broker and the process in which a workload runs

bench/measures/spark.py and bench/measures/pipeline.py make the tables.
"""
