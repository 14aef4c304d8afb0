"""A declaration as DataFrames.

dataframes      sources and views, streaming or batch; broken rows as dead letters
python_views    views that are functions of Python files, and what these import
sink_rows       what a sink writes: keys and values, or columns
"""
