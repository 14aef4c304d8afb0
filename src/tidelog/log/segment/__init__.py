"""One segment of a log: the `.log` file, its indexes, and the ways to read and check them."""
