"""Presets: named settings of every algorithm, as data. One module per algorithm, one dict each.

A preset says what it is `for`, and gives values of the groups `algo`, `hp`, `train` and `pbt`.
"""
