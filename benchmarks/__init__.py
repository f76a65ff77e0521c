"""Measurements: kernels that run on Everstep and on LangGraph, and the table that compares them.

Nothing here is part of an installed package, and nothing in the packages knows of it.
"""
