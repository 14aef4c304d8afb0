"""The measures, in the order they run: a module each, with TITLE and run(arena) -> Report."""
