"""One directory of `log.dirs`: lock, identity, checkpoints and failures. Knows no log."""
