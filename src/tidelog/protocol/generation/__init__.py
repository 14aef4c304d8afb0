"""From the schema table to Python source; used at development time only, see `generator.py`."""
