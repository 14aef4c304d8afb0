"""What people see on a terminal.

plan_report       what `validate` shows
progress_table    what `run` shows
terminal          lines that redraw themselves
"""
