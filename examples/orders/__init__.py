"""A batch of orders, worked off by processes that are killed on the way: the example Everstep is shown by.

Start with `workflow` (the graph) and `worker` (a process that runs it); `demo` puts them under fire.
"""
