"""The directories of `log.dirs`: locks, identity, checkpoints and failures. Knows no log."""
