"""KV bytes, what stays in HBM, when loading beats recomputing, and what to type to run it.

`shape` (a model's KV layout), `models` (known ones), `plan` (figures with their formulas), `emit` (commands for both arms).
"""
