"""The rows of the broker's configuration table, one module a subject."""
