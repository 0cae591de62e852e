"""What becomes of a measurement: the `record` of it, with machine and versions, and its `tables` and `plots`."""
