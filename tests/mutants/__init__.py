"""Planted bugs: each takes one text of the product out and puts a wrong one in. A test must find it.

`table.py` reads the bugs from `planted/`, `run.py` plants them, `random.py` makes more of them from the syntax tree.
"""
