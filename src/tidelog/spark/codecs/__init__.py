"""Records that need a schema, as Arrow columns and back; no TOML, no broker in here.

    avro_schema        Avro schemas: parsed, and made of columns
    avro_reader        Avro records to columns, by the schemas of the writer and of the reader
    avro_writer        columns to Avro records
    protobuf_schema    a message of a descriptor set, and the indexes that stand for it
    protobuf_columns   Protobuf messages to columns and back
    column_types       from the type that a format gives to the type of the declared column
    json_schema        the JSON Schema of columns
    arrow_arrays       arrays by their buffers
    broken_rows        which rows of a batch are broken, and why
    framing            Confluent's frame before a record
    schema_registry    schemas by id: a registry, or a folder of files
    errors             what goes wrong, by whose fault it is
    record_codecs      Avro and Protobuf as columns of Spark, decoded and encoded in Python workers

Whole batches are read and written, a field of all rows at a time. A row that is broken is told with
its reason and does not disturb the others. `record_codecs` puts these together as functions of
Spark; nothing else here knows Spark.
"""
