"""Arrow in and out through the record kernel: columns of records, with no row as an object."""
