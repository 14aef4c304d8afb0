"""What a pipeline is, read from `pipeline.toml`. Needs no Spark.

parts         what a pipeline is, as checked values; errors that name file, line and fix
file          pipeline.toml to a declaration, or every problem with its line
toml_table    values of one TOML table, by key and type, with their lines
references    `${env:NAME}` and `${file:PATH}` in the file
lineage       what a source or view is made of
example       the commented example that `init` writes, which is also what the demo runs
"""
