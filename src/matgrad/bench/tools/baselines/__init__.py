"""The code that matgrad is compared with, written as one would by hand for speed, one file each.

All have the data in memory and take slices of it, in order. What was tried and found slower, on 2 cores, is
said in each file.
"""
