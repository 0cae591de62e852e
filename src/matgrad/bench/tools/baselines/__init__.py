"""The code that matgrad is compared with, written by hand for speed, one file per framework.

All of it has the data in memory and takes slices of it, in order. Each file says what was tried on 2 cores and
was not faster.
"""
